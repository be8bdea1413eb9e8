//! Sanitises texts of others: bounded, on one line, with printable characters only. HTML stays text.

use terms::is_printable;

/// The text on one line: what is not printable and runs of blanks become one blank; cut after `most` characters. Doing it again changes nothing.
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
}
