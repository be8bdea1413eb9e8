//! Times in JSON as Go's `time.Parse` reads them, with its errors.

/// Why a text is no time, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Its rest is not what the layout has there.
    #[error("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{element}\"")]
    Layout {
        /// The text.
        text: String,
        /// The layout, as Go writes layouts.
        layout: &'static str,
        /// What is left of the text.
        rest: String,
        /// The layout's element.
        element: &'static str,
    },
    /// A number is too large or too small.
    #[error("parsing time \"{text}\": {what} out of range")]
    Range {
        /// The text.
        text: String,
        /// Which number.
        what: &'static str,
    },
    /// There is text behind the time.
    #[error("parsing time \"{text}\": extra text: \"{extra}\"")]
    Extra {
        /// The text.
        text: String,
        /// The text behind it.
        extra: String,
    },
}

/// Checks an RFC 3339 time; with `micro` it has exactly six digits after the second.
pub fn check(text: &str, micro: bool) -> Result<(), TimeError> {
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let unfit = |rest: &str, element: &'static str| TimeError::Layout {
        text: text.to_owned(),
        layout,
        rest: rest.to_owned(),
        element,
    };
    let range = |what: &'static str| TimeError::Range { text: text.to_owned(), what };
    let mut rest = text;
    let mut numbers = Vec::new();
    for element in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let Some(part) = rest.get(..element.len()) else { return Err(unfit(rest, element)) };
        let number = element.starts_with(|c: char| c.is_ascii_digit());
        let good = if number { part.bytes().all(|b| b.is_ascii_digit()) } else { part == element };
        if !good {
            return Err(unfit(rest, element));
        }
        if number {
            let value: u32 = part.parse().map_err(|_| unfit(rest, element))?;
            let wrong = match element {
                "01" => (!(1..=12).contains(&value)).then_some("month"),
                "15" => (value > 23).then_some("hour"),
                "04" => (value > 59).then_some("minute"),
                "05" => (value > 59).then_some("second"),
                _ => None,
            };
            if let Some(what) = wrong {
                return Err(range(what));
            }
            numbers.push(value);
        }
        rest = &rest[element.len()..];
    }
    rest = fraction(rest, micro).ok_or_else(|| unfit(rest, ".000000"))?;
    let after = zone(rest).ok_or_else(|| unfit(rest, "Z07:00"))?;
    if !after.is_empty() {
        return Err(TimeError::Extra { text: text.to_owned(), extra: after.to_owned() });
    }
    // The remaining errors: a wrong day of the month, or a year beyond our calendar.
    text.replace(',', ".").parse::<jiff::Timestamp>().map(|_| ()).map_err(|_| range("day"))
}

/// The part after the fraction of a second.
fn fraction(rest: &str, micro: bool) -> Option<&str> {
    let digits = rest.strip_prefix(['.', ',']).map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    match (micro, digits) {
        (true, 6..) => rest.get(7..),
        (true, _) => None,
        (false, 0) => Some(rest),
        (false, some) => rest.get(some + 1..),
    }
}

/// The part after the zone.
fn zone(rest: &str) -> Option<&str> {
    if let Some(after) = rest.strip_prefix('Z') {
        return Some(after);
    }
    let bytes = rest.as_bytes().get(..6)?;
    let digits = [1, 2, 4, 5].iter().all(|at| bytes[*at].is_ascii_digit());
    (matches!(bytes[0], b'+' | b'-') && bytes[3] == b':' && digits).then(|| rest.get(6..)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_go_says_it() {
        assert_eq!(check("2026-01-02T03:04:05Z", false), Ok(()));
        assert_eq!(check("2026-01-02T03:04:05.5+02:00", false), Ok(()));
        assert_eq!(check("2026-01-02T03:04:05.000001Z", true), Ok(()));
        for (text, micro, message) in [
            ("yesterday", false, "cannot parse \"yesterday\" as \"2006\""),
            ("2026-01-02", false, "cannot parse \"\" as \"T\""),
            ("2026-01-02T03:04:05", false, "cannot parse \"\" as \"Z07:00\""),
            ("2026-13-02T03:04:05Z", false, "month out of range"),
            ("2026-02-30T03:04:05Z", false, "day out of range"),
            ("2026-01-02T03:04:05Zx", false, "extra text: \"x\""),
            ("2026-01-02T03:04:05Z", true, "cannot parse \"Z\" as \".000000\""),
            ("2026-01-02T03:04:05.1Z", true, "cannot parse \".1Z\" as \".000000\""),
        ] {
            let error = check(text, micro).unwrap_err().to_string();
            assert!(error.ends_with(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9TZ:.,+\\-é]{0,40}", micro in any::<bool>()) {
            let _ = check(&text, micro);
        }
    }
}
