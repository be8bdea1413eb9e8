//! What Ironic says when it does not do what was asked.

use serde_json::Value;

use crate::transport::TransportError;

/// Longest text of Ironic's that is shown, in characters.
const MAX_TEXT: usize = 600;

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing answers.
    #[error("Ironic at {endpoint} cannot be reached: {text}")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// Why.
        text: String,
    },
    /// A certificate is not accepted.
    #[error("the TLS connection to Ironic at {endpoint} cannot be made: {text}")]
    Untrusted {
        /// Where.
        endpoint: String,
        /// Why.
        text: String,
    },
    /// It wants other credentials (401).
    #[error("Ironic at {endpoint} refuses the user or the password (HTTP {status})")]
    Denied {
        /// Where.
        endpoint: String,
        /// HTTP status.
        status: u16,
    },
    /// Its API is older than what is needed.
    #[error("Ironic at {endpoint} has the API version {found}, and 1.{needed} is needed")]
    TooOld {
        /// Where.
        endpoint: String,
        /// What it has.
        found: String,
        /// Minor number.
        needed: u32,
    },
    /// The node is locked, or on its way into another state (409, in the words of `NodeLocked` or of a change during a transition).
    #[error("{0}")]
    Locked(String),
    /// It has no worker, or is starting (502 to 504, with words of Ironic's own).
    #[error("{0}")]
    Full(String),
    /// None of its conductors that could do it runs (404, or 400 where something is changed, in the words of `NoValidHost`).
    #[error("{0}")]
    NoConductor(String),
    /// It does not have what was asked for (404, with words of Ironic's own).
    #[error("{0}")]
    NotFound(String),
    /// It refuses the request.
    #[error("{text} (HTTP {status})")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its words.
        text: String,
    },
    /// Something else has answered in its place, and said that it has not passed the request on (3xx and 4xx without words of Ironic's own).
    #[error("the answer of Ironic at {endpoint} cannot be read: HTTP {status}, without a word of Ironic's")]
    Foreign {
        /// Where.
        endpoint: String,
        /// HTTP status.
        status: u16,
    },
    /// The answer is not what the API promises.
    #[error("the answer of Ironic at {endpoint} cannot be read: {text}")]
    Unreadable {
        /// Where.
        endpoint: String,
        /// Why.
        text: String,
    },
}

impl Fault {
    /// The fault of an exchange that failed.
    pub fn of(endpoint: String, error: TransportError) -> Self {
        match error {
            TransportError::Unreachable(text) => Self::Unreachable { endpoint, text: clean(&text) },
            TransportError::Untrusted(text) => Self::Untrusted { endpoint, text: clean(&text) },
            TransportError::Unreadable(text) => Self::Unreadable { endpoint, text: clean(&text) },
        }
    }

    /// The fault of an answer with a status that is no success.
    pub fn answered(endpoint: &str, status: u16, body: &[u8]) -> Self {
        let endpoint = endpoint.to_owned();
        match (status, words(body)) {
            (401, _) => Self::Denied { endpoint, status },
            (400 | 404, Some(text)) if text.starts_with("No valid host was found") => Self::NoConductor(text),
            (404, Some(text)) => Self::NotFound(text),
            (409, Some(text)) if is_lock(&text) => Self::Locked(text),
            (502..=504, Some(text)) => Self::Full(text),
            // A proxy's, or that of something else that stands before Ironic, or instead of it.
            (500.., None) => Self::Unreachable { endpoint, text: format!("HTTP {status}, without a word of Ironic's") },
            (408, None) => Self::Unreachable { endpoint, text: "HTTP 408, without a word of Ironic's".to_owned() },
            (status, None) => Self::Foreign { endpoint, status },
            (status, Some(text)) => Self::Refused { status, text },
        }
    }

    /// Whether it says that Ironic does not have this node, and not that something of the node's is missing.
    pub fn is_without(&self, node: &str) -> bool {
        matches!(self, Self::NotFound(text) if text.starts_with(&format!("Node {node} ")))
    }
}

/// Whether a conflict ends by itself: `NodeLocked`, or a change while the node goes from one state to another.
fn is_lock(text: &str) -> bool {
    text.contains("is locked by host") || text.contains("while a state transition is in progress")
}

/// The sentence in an error's body: `error_message` holds a JSON document as a string, or the document itself; Pecan's own errors have `errors[].detail`.
pub fn words(body: &[u8]) -> Option<String> {
    let read: Value = serde_json::from_slice(body).ok()?;
    let message = &read["error_message"];
    let inner = message.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let inner = inner.as_ref().unwrap_or(message);
    let known =
        [&inner["faultstring"], &inner["description"], &read["faultstring"], &read["errors"][0]["detail"], message];
    let found = known.into_iter().find_map(Value::as_str)?;
    Some(clean(found)).filter(|text| !text.is_empty())
}

/// A text of somebody else's, fit to be shown: one line, without control characters, not longer than [`MAX_TEXT`].
pub fn clean(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let line = words.join(" ");
    if line.chars().count() <= MAX_TEXT {
        return line;
    }
    line.chars().take(MAX_TEXT).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_found_in_each_form_that_ironic_writes() {
        let twice = br#"{"error_message": "{\"faultcode\": \"Client\", \"faultstring\": \"Node 1 is locked by host a, please retry after the current operation is completed.\", \"debuginfo\": null}"}"#;
        assert_eq!(
            words(twice).unwrap(),
            "Node 1 is locked by host a, please retry after the current operation is completed."
        );
        let once = br#"{"error_message": {"faultstring": "Node x could not be found.", "faultcode": "Client"}}"#;
        assert_eq!(words(once).unwrap(), "Node x could not be found.");
        assert_eq!(words(br#"{"error_message": "Not\nallowed"}"#).unwrap(), "Not allowed");
        let too_new = br#"{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"Version 1.999 was requested\"}"}"#;
        assert_eq!(words(too_new).unwrap(), "Version 1.999 was requested");
        assert_eq!(words(br#"{"errors": [{"status": 406, "detail": "Version too new"}]}"#).unwrap(), "Version too new");
        for no_words in [&b"<html>"[..], b"", b"[]", b"{}", b"{\"error_message\": 7}"] {
            assert_eq!(words(no_words), None);
        }
    }

    #[test]
    fn what_others_write_is_cut_and_is_one_line() {
        let long = clean(&"\u{1b}[31m\n ä ".repeat(1000));
        assert!(long.chars().count() == MAX_TEXT + 1 && long.ends_with('…') && !long.contains('\u{1b}'), "{long}");
    }

    #[test]
    fn a_status_tells_what_can_be_done() {
        let said = |status, text: &str| {
            let body = serde_json::json!({ "error_message": { "faultstring": text } }).to_string();
            Fault::answered("http://i", status, body.as_bytes())
        };
        let locked = "Node 1 is locked by host a, please retry after the current operation is completed.";
        assert!(matches!(said(409, locked), Fault::Locked(_)));
        assert!(matches!(said(409, "Node 1 is associated with instance 2."), Fault::Refused { status: 409, .. }));
        assert!(matches!(said(503, "lack of free conductor workers"), Fault::Full(_)));
        assert!(matches!(said(403, "Node 1 is protected"), Fault::Refused { status: 403, .. }));
        assert!(said(404, "Node 1 could not be found.").is_without("1"));
        for (node, text) in [
            ("2", "Node 1 could not be found."),
            ("1", "The resource could not be found."),
            ("1", "Node inventory record for node 1 could not be found."),
        ] {
            assert!(!said(404, text).is_without(node), "{text}");
        }
        let of = |status| Fault::answered("http://i", status, b"<html>Bad gateway</html>");
        assert!(matches!(of(401), Fault::Denied { .. }));
        // A login page, a redirection, a limit of a proxy's: no word of Ironic's on what was asked.
        let unread = [302, 308, 400, 403, 404, 409, 429];
        assert!(unread.map(of).iter().all(|fault| matches!(fault, Fault::Foreign { .. })));
        assert!([408, 500, 502, 503, 504].map(of).iter().all(|fault| matches!(fault, Fault::Unreachable { .. })));
    }
}
