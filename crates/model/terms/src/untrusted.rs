//! Bounds for what machines, BMCs and agents send: they may be anybody's.

/// Whether a character is shown as it is: no control character, and none that reorders or hides the text around it (bidirectional controls,
/// characters without width).
#[must_use]
pub fn is_printable(c: char) -> bool {
    let hides = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !hides && !c.is_control()
}

/// A text of somebody else's on one line: what is not printable and runs of blanks become one blank; of one that is longer than `most` characters the last is
/// an ellipsis. Doing it again changes nothing. HTML stays text.
#[must_use]
pub fn clean(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    // Cut first: a text of megabytes is not looked at as a whole.
    for c in text.chars().take(most.saturating_mul(4)) {
        let c = if c.is_whitespace() || !is_printable(c) { ' ' } else { c };
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        out.push(c);
        count += 1;
        if count > most {
            break;
        }
    }
    out.truncate(out.trim_end().len());
    if out.chars().count() > most {
        out = out.chars().take(most.saturating_sub(1)).collect();
        out.truncate(out.trim_end().len());
        out.extend((most > 0).then_some('…'));
    }
    out
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
    fn texts_are_one_bounded_line() {
        assert_eq!(clean(" a\r\n\tb\u{0}\u{1b}[2Jc\u{202e}d <b>", 100), "a b [2Jc d <b>");
        assert_eq!(clean("abcdef", 4), "abc…");
        assert_eq!(clean(&clean("abcdef", 4), 4), "abc…");
        assert_eq!(clean(&" ".repeat(1_000_000), 3), "");
        assert_eq!((clean("abc", 0), clean("abc", 3)), (String::new(), "abc".into()));
    }

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
