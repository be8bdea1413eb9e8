//! Bounds for what machines, BMCs and agents send: they may be anybody's.

/// Whether a character is shown as it is: no control character, and none that reorders or hides the text around it (bidirectional controls,
/// characters without width).
#[must_use]
pub fn is_printable(c: char) -> bool {
    let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !hides && !c.is_control()
}

/// How many values a JSON text has at most, told without reading it. A value of two bytes takes a hundred times as much in memory.
#[must_use]
pub fn json_values_at_most(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_or_hides_text_is_not_printable() {
        assert!("a Ä 中 -".chars().all(is_printable));
        assert!(!"\n\u{1b}\u{7f}\u{202e}\u{200b}\u{feff}".chars().any(is_printable));
    }

    #[test]
    fn values_are_never_more_than_told() {
        for text in ["1", "[]", "[1,2]", r#"{"a":[{},{}],"b":"x,y"}"#, "[[0],[0],[0]]"] {
            fn count(value: &serde_json::Value) -> usize {
                1 + match value {
                    serde_json::Value::Array(items) => items.iter().map(count).sum(),
                    serde_json::Value::Object(fields) => fields.values().map(count).sum(),
                    _ => 0,
                }
            }
            let values = count(&serde_json::from_str(text).unwrap());
            assert!(values <= json_values_at_most(text.as_bytes()), "{text}");
        }
    }
}
