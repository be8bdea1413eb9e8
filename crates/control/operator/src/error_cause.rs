//! The cause of an error behind its words in `status.errorMessage`. Who writes the status puts it there, and takes it away before the state machine sees the host: an error is the same error whatever
//! has been found to be its cause.

use terms::clean;

/// Between an error's words and its cause.
const MARK: &str = " — Cause: ";
/// Longest cause, characters.
const MAX_CAUSE: usize = 300;

/// The error's own words.
#[must_use]
pub fn without_cause(message: &str) -> &str {
    message.rsplit_once(MARK).map_or(message, |(words, _)| words)
}

/// The error's words with its cause, on one line: what [`without_cause`] gives of it are these words, whatever is in them.
pub(crate) fn with_cause(words: &str, cause: Option<&str>) -> String {
    // The mark is not formed again by what is taken out.
    let told = |cause: &str| clean(cause, MAX_CAUSE).replace("— Cause:", "- Cause:");
    let cause = cause.map(told).filter(|cause| !cause.trim().is_empty());
    match cause {
        Some(cause) => format!("{words}{MARK}{cause}"),
        // Words of somebody who has written the mark.
        None if words.contains(MARK) => format!("{words}{MARK}not known"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_behind_words_is_taken_away_again_whatever_is_in_them() {
        let forged = format!("no{MARK}the operator{MARK}");
        let twice = format!("{}{}", MARK.trim_end(), MARK);
        for words in ["it did not work", "", MARK, &forged, "ä — Cause:"] {
            assert_eq!(without_cause(&with_cause(words, None)), words);
            for cause in [
                "a disk has failed",
                "",
                "\n",
                MARK,
                &forged,
                &twice,
                "— Cause: x",
                "a —\n Cause: x",
                "two\nlines\u{1b}[2J \u{202e}x",
            ] {
                let told = with_cause(words, Some(cause));
                assert_eq!(without_cause(&told), words, "{cause:?}");
                assert!(told[words.len()..].chars().all(|c| c != '\n' && c != '\u{1b}' && c != '\u{202e}'), "{told:?}");
            }
        }
        assert_eq!(with_cause("no", Some("a disk has failed")), "no — Cause: a disk has failed");
        assert_eq!(with_cause("no", Some(" ")), "no");
        let long = with_cause("no", Some(&"\u{1F525}".repeat(5000)));
        assert!(long.chars().count() < MAX_CAUSE + 30, "{}", long.chars().count());
    }
}
