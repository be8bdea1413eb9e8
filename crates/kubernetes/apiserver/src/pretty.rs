//! Indented JSON, as upstream: for `?pretty=true`, and for curl, Wget and browsers.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body as _, Frame};

use crate::media::Encoding;
use crate::reply::{self, Response};
use crate::route::Query;
use crate::status::ApiError;

/// Deepest indentation of lines: without a limit, a deeply nested list would grow a thousandfold.
const MAX_INDENT: usize = 64;
/// Bytes formatted at once; longer bodies are formatted while they are sent.
const AT_ONCE: usize = 16 << 10;

/// Marks a response whose JSON may be indented.
#[derive(Clone)]
pub struct Plain;

/// Whether the client wants indented JSON.
pub fn wanted(query: &Query, headers: &HeaderMap) -> bool {
    match query.get("pretty") {
        "" => {
            let agent = headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
        }
        asked => matches!(asked, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// Indents the response if it is marked.
pub async fn form(mut response: Response) -> Response {
    if response.extensions_mut().remove::<Plain>().is_none() {
        return response;
    }
    let mut printer = Printer::default();
    let (head, body) = response.into_parts();
    if body.size_hint().exact().is_none() {
        let parts = body.into_data_stream().map(move |part| part.map(|part| Frame::data(printer.print(&part))));
        return http::Response::from_parts(head, StreamBody::new(parts).boxed_unsync());
    }
    let whole = match body.collect().await {
        Ok(whole) => whole.to_bytes(),
        Err(broken) => return reply::error(&ApiError::internal(broken), Encoding::Json),
    };
    if whole.len() <= AT_ONCE {
        return http::Response::from_parts(head, reply::full(printer.print(&whole)));
    }
    let parts = futures::stream::unfold((whole, printer), |(mut rest, mut printer)| async move {
        let part = rest.split_to(rest.len().min(AT_ONCE));
        (!part.is_empty()).then(|| (Ok(Frame::data(printer.print(&part))), (rest, printer)))
    });
    http::Response::from_parts(head, StreamBody::new(parts).boxed_unsync())
}

/// State of the printer, which accepts JSON in arbitrary chunks.
#[derive(Default)]
struct Printer {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Whether a bracket was just opened.
    opened: bool,
}

impl Printer {
    fn print(&mut self, part: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(part.len() * 2);
        for byte in part {
            self.byte(*byte, &mut out);
        }
        out.into()
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.in_text {
            out.push(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return;
        }
        if byte.is_ascii_whitespace() {
            return;
        }
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        if self.opened != closes {
            // No line break within empty brackets, nor after other characters on the line.
            self.line(out);
        }
        self.opened = matches!(byte, b'{' | b'[');
        self.depth += usize::from(self.opened);
        out.push(byte);
        match byte {
            b'"' => self.in_text = true,
            b',' => self.line(out),
            b':' => out.push(b' '),
            _ => {}
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', self.depth.min(MAX_INDENT) * 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn any_parts_come_to_what_serde_prints() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "x\"y\\", "e": [[]]}, null], "f": ", : { } \n"});
        let text = value.to_string() + "\n";
        for size in [1, 2, 3, 7, 1000] {
            let mut printer = Printer::default();
            let printed: Vec<u8> = text.as_bytes().chunks(size).flat_map(|part| printer.print(part)).collect();
            assert_eq!(String::from_utf8(printed).unwrap(), serde_json::to_string_pretty(&value).unwrap());
        }
        let scalar: Value = json!("alone");
        assert_eq!(Printer::default().print(scalar.to_string().as_bytes()), "\"alone\"");
    }

    #[tokio::test]
    async fn what_is_deep_and_long_does_not_explode() {
        let (depth, items) = (1000, 20_000);
        let text = format!("{}{}1{}\n", "[".repeat(depth), "1,".repeat(items), "]".repeat(depth));
        let mut answer = reply::plain(http::StatusCode::OK, "application/json", text.clone());
        answer.extensions_mut().insert(Plain);
        let mut body = form(answer).await.into_body();
        let (mut whole, mut most) = (Vec::new(), 0);
        while let Some(part) = body.frame().await {
            let part = part.unwrap().into_data().unwrap();
            most = most.max(part.len());
            whole.extend_from_slice(&part);
        }
        assert!(most < 100 * AT_ONCE && whole.len() < 100 * text.len(), "{most} {}", whole.len());
        whole.retain(|byte| !byte.is_ascii_whitespace());
        assert_eq!(whole, text.trim_end().as_bytes());
    }

    #[test]
    fn people_are_known_by_their_programs() {
        let agent = |name: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, name.parse().unwrap());
            headers
        };
        assert!(wanted(&Query::default(), &agent("curl/8.5.0")));
        assert!(!wanted(&Query::default(), &agent("kubectl/v1.34.4")));
        assert!(wanted(&Query::parse("pretty=true"), &agent("kubectl/v1.34.4")));
        assert!(!wanted(&Query::parse("pretty=no"), &agent("curl/8.5.0")));
    }
}
