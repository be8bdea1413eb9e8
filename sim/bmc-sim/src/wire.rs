//! Effects of faults on an answer: on its fields, and on its transmission.

use std::{io, time::Duration};

use axum::{
    body::{Body, to_bytes},
    http::{HeaderName, HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use serde_json::Value;

use crate::{
    faults::{Action, Encoding, When},
    redfish::{answer::Answer, request::Request},
    settings,
};

/// Longest answer that is changed, in bytes.
const MAX_ANSWER: usize = 16 << 20;

/// The answer that is given in place of one's own, before or after the effect.
#[must_use]
pub fn forced(actions: &[Action], at: When) -> Option<Answer> {
    actions.iter().find_map(|action| match action {
        Action::Status { status } if at == When::Before => {
            Some(Answer::error(*status, "InternalError", "The service is unwell: a fault was set.", &[]))
        }
        Action::Answer { status, headers, message_id, message, arguments, body, when } if *when == at => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let mut answer = match (body, message_id) {
                (Some(body), _) => Answer { status: *status, ..Answer::resource(body.clone()) },
                (None, Some(id)) => Answer::error(*status, id, message, &arguments),
                (None, None) => Answer::empty(*status),
            };
            for (name, value) in headers {
                if let Ok(name) = name.parse::<HeaderName>() {
                    answer = answer.with(name, value);
                }
            }
            Some(answer)
        }
        _ => None,
    })
}

/// The request as the BMC handles it: at another path, if a fault redirects it.
#[must_use]
pub fn routed(request: &Request, actions: &[Action]) -> Request {
    let to = actions.iter().find_map(|action| if let Action::Route { to } = action { Some(to.clone()) } else { None });
    let mut request = request.clone();
    if let Some(to) = to {
        request.path = to;
    }
    request
}

/// Changes the fields of an answer.
pub fn edit(answer: &mut Answer, actions: &[Action]) {
    let Some(body) = &mut answer.body else { return };
    for action in actions {
        match action {
            Action::Edit { fields } => settings::merge(body, fields, 0),
            Action::Remove { fields } => fields.iter().for_each(|pointer| remove(body, pointer)),
            _ => {}
        }
    }
}

/// Removes the field at a JSON pointer from a value.
fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.shift_remove(&name);
        }
        Some(Value::Array(items)) => {
            if let Some(at) = name.parse().ok().filter(|at| *at < items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

/// Applies faults to an answer's text, headers and transmission.
pub async fn shaped(response: Response, actions: &[Action]) -> Response {
    let shapes = |action: &Action| {
        matches!(action, Action::Headers { .. } | Action::Text { .. } | Action::Pieces { .. } | Action::Garbage)
    };
    if !actions.iter().any(shapes) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // It is the simulator's own body, and in memory.
    let mut bytes = to_bytes(body, MAX_ANSWER).await.unwrap_or_default().to_vec();
    let mut pieces = None;
    for action in actions {
        match action {
            Action::Garbage => {
                bytes = b"<html><body>Please wait, the page is loading.".to_vec();
                parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            }
            Action::Text { encoding, .. } => {
                bytes = rewrite(&bytes, action);
                if *encoding == Encoding::Gzip {
                    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                }
            }
            Action::Headers { set, remove } => {
                for name in remove {
                    parts.headers.remove(name.as_str());
                }
                for (name, value) in set {
                    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
                        parts.headers.insert(name, value);
                    }
                }
            }
            Action::Pieces { bytes, pause_ms, cut_after } => pieces = Some((*bytes, *pause_ms, *cut_after)),
            _ => {}
        }
    }
    let body = match pieces {
        Some((size, pause, cut)) => in_pieces(Bytes::from(bytes), size, pause, cut),
        None => Body::from(bytes),
    };
    Response::from_parts(parts, body)
}

/// Applies a text fault.
fn rewrite(bytes: &[u8], action: &Action) -> Vec<u8> {
    let Action::Text { replace, prefix, suffix, keep, encoding } = action else { return bytes.to_vec() };
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    for (from, to) in replace {
        text = text.replace(from.as_str(), to);
    }
    let text: String = format!("{prefix}{text}{suffix}").chars().take(keep.unwrap_or(usize::MAX)).collect();
    match encoding {
        Encoding::Utf8 => text.into_bytes(),
        Encoding::Utf16 => {
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(|unit: u16| unit.to_le_bytes()).collect()
        }
        Encoding::Latin1 => text.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(),
        Encoding::Gzip => gzip(text.as_bytes()),
    }
}

/// A gzip file (RFC 1952) of stored blocks (RFC 1951, 3.2.4).
fn gzip(data: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let blocks: Vec<&[u8]> = if data.is_empty() { vec![data] } else { data.chunks(0xffff).collect() };
    for (index, block) in blocks.iter().enumerate() {
        // A chunk is never longer than 65535 bytes.
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        file.push(u8::from(index + 1 == blocks.len()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(*block);
    }
    file.extend(crc32fast::hash(data).to_le_bytes());
    file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    file
}

/// A body in pieces of so many bytes, with pauses between them, that breaks off where it is to be cut.
fn in_pieces(bytes: Bytes, size: usize, pause_ms: u64, cut_after: Option<usize>) -> Body {
    let end = cut_after.map_or(bytes.len(), |cut| cut.min(bytes.len()));
    let mut pieces: Vec<io::Result<Bytes>> = Vec::new();
    for start in (0..end).step_by(size.max(1)) {
        pieces.push(Ok(bytes.slice(start..end.min(start + size.max(1)))));
    }
    if cut_after.is_some() {
        pieces.push(Err(io::ErrorKind::ConnectionReset.into()));
    }
    let pause = Duration::from_millis(pause_ms);
    Body::from_stream(stream::iter(pieces).then(move |piece| async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        piece
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(encoding: Encoding) -> Action {
        let replace = vec![("1".to_owned(), "ü".to_owned())];
        Action::Text { replace, prefix: "<".to_owned(), suffix: "€>".to_owned(), keep: None, encoding }
    }

    #[test]
    fn texts_are_retold() {
        assert_eq!(rewrite(b"a1", &text(Encoding::Utf8)), "<aü€>".as_bytes());
        assert_eq!(rewrite(b"a1", &text(Encoding::Latin1)), b"<a\xfc?>");
        assert_eq!(rewrite(b"", &text(Encoding::Utf16))[..4], [0xff, 0xfe, b'<', 0]);
        let keep = Action::Text {
            replace: Vec::new(),
            prefix: String::new(),
            suffix: String::new(),
            keep: Some(2),
            encoding: Encoding::Utf8,
        };
        assert_eq!(rewrite(b"abc", &keep), b"ab");
    }

    #[test]
    fn fields_are_removed() {
        let actions =
            [Action::Remove { fields: vec!["/a/b".into(), "/l/0".into(), "/x~1y".into(), "/no/where".into()] }];
        let mut answer = Answer::resource(json!({ "a": { "b": 1, "c": 2 }, "l": [1, 2], "x/y": 3 }));
        edit(&mut answer, &actions);
        assert_eq!(answer.body, Some(json!({ "a": { "c": 2 }, "l": [2] })));
    }
}
