//! Sanitises texts from BMCs for status messages: bounded, on one line.

use terms::is_printable;

/// Longest text taken from one field, characters.
pub const MAX_FIELD: usize = 300;

/// The text on one line: control characters and runs of blanks become one blank; cut after `most` characters.
pub fn clean(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    // Truncated first: a text of megabytes is not scanned completely.
    for c in text.chars().take(most.saturating_mul(4)) {
        let c = if c.is_whitespace() || !is_printable(c) { ' ' } else { c };
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        if count == most {
            out.push('…');
            return out;
        }
        out.push(c);
        count += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_bounded_line() {
        assert_eq!(clean(" a\r\n\tb\u{0}\u{1b}[2Jc\u{202e}d ", 100), "a b [2Jc d");
        assert_eq!(clean("abcdef", 3), "abc…");
        assert_eq!(clean(&" ".repeat(1_000_000), 3), "");
        assert_eq!(clean("abc", 3), "abc");
    }
}
