//! Continue tokens: the revision of a list and the key to continue after, encoded as kube-apiserver does.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::status::{ApiError, ApiResult};
use crate::store::Cursor;

/// Ignores trailing bits, as Go does.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&base64::alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// Longest token, in bytes.
const MAX_TOKEN: usize = 4096;

/// A decoded token.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// Revision of the list. `None` continues at the newest, for lists whose revision was compacted.
    pub rev: Option<u64>,
    /// The last returned position.
    pub after: Cursor,
}

/// The key inside a token: without the namespace for a list of one namespace.
fn start(place: &Cursor, scoped: bool) -> String {
    let (ns, name) = place;
    if scoped || ns.is_empty() { format!("{name}\0") } else { format!("{ns}/{name}\0") }
}

/// The token to continue after `place`. `scoped` if the list is of one namespace or of cluster scope.
pub fn encode(rev: Option<u64>, place: &Cursor, scoped: bool) -> String {
    let rev = rev.map_or(-1, |rev| i64::try_from(rev).unwrap_or(i64::MAX));
    let text = json!({"v": "meta.k8s.io/v1", "rv": rev, "start": start(place, scoped)}).to_string();
    URL_SAFE_NO_PAD.encode(text)
}

fn refused(why: &str) -> ApiError {
    ApiError::bad_request(format!("invalid continue token: continue key is not valid{why}"))
}

/// Reads a token back for a list of `ns` (empty for all namespaces or cluster scope).
pub fn decode(token: &str, ns: &str, namespaced: bool) -> ApiResult<Token> {
    if token.len() > MAX_TOKEN {
        return Err(refused(": too long"));
    }
    let bytes = LENIENT.decode(token).map_err(|e| refused(&format!(": {}", base64_text(&e, token))))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| refused(&format!(": {}", json_text(&bytes))))?;
    let version = value.get("v").and_then(Value::as_str).unwrap_or_default();
    if version != "meta.k8s.io/v1" {
        return Err(refused(&format!(": server does not recognize this encoded version {version}")));
    }
    let rev = value.get("rv").and_then(Value::as_i64).unwrap_or(0);
    if rev == 0 {
        return Err(refused(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    let start = value.get("start").and_then(Value::as_str).unwrap_or_default();
    if start.is_empty() {
        return Err(refused(": encoded start key empty (version meta.k8s.io/v1)"));
    }
    let key = start.strip_suffix('\0').unwrap_or(start);
    let relative = key.strip_prefix('/').unwrap_or(key);
    // Rejects path tricks: the position stays within the list's resource and namespace.
    if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(refused(&format!(": {start}")));
    }
    let after = match relative.split_once('/') {
        Some((found, name)) if ns.is_empty() && namespaced => (found.to_owned(), name.to_owned()),
        _ => (ns.to_owned(), relative.to_owned()),
    };
    Ok(Token { rev: u64::try_from(rev).ok(), after })
}

/// Go's error text for invalid base64.
fn base64_text(error: &base64::DecodeError, token: &str) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        _ => token.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

/// Go's error text for bytes that are not JSON.
fn json_text(bytes: &[u8]) -> String {
    match bytes.iter().find(|b| !b.is_ascii_whitespace()) {
        None => "unexpected end of JSON input".to_owned(),
        Some(b'{') => "unexpected end of JSON input".to_owned(),
        Some(byte) => format!("invalid character {} looking for beginning of value", quoted(*byte)),
    }
}

/// The character with this code as Go quotes it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\n' => "'\\n'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\'' => "'\\''".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        other => format!("'{}'", char::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_read_back() {
        let place = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            decode(&encode(Some(7), &place, true), "a", true).unwrap(),
            Token { rev: Some(7), after: place.clone() }
        );
        assert_eq!(decode(&encode(None, &place, false), "", true).unwrap(), Token { rev: None, after: place });
    }

    #[test]
    fn rubbish_is_refused_in_upstreams_words() {
        let text = |token: &str| decode(token, "", true).unwrap_err().message;
        assert_eq!(
            text("rubbish"),
            "invalid continue token: continue key is not valid: invalid character '®' looking for beginning of value"
        );
        assert!(text("garbage").ends_with("invalid character '\\u0081' looking for beginning of value"));
        assert_eq!(text("!"), "invalid continue token: continue key is not valid: illegal base64 data at input byte 0");
        let with = |value: Value| text(&URL_SAFE_NO_PAD.encode(value.to_string()));
        assert!(with(json!({"v": "meta.k8s.io/v1", "start": "a"})).contains("incorrect encoded start resourceVersion"));
        assert!(with(json!({"v": "meta.k8s.io/v1", "rv": 1})).contains("encoded start key empty"));
        assert!(with(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": "../x"})).ends_with("../x"));
        assert!(with(json!({"v": "v9", "rv": 1, "start": "x"})).ends_with("encoded version v9"));
    }

    proptest! {
        #[test]
        fn no_token_panics(token in "[A-Za-z0-9_=-]{0,80}", raw in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&token, "", true);
            let _ = decode(&URL_SAFE_NO_PAD.encode(raw), "n", true);
        }
    }
}
