//! Names in the order in which people count: `Ethernet1/2` before `Ethernet1/10`.

use std::cmp::Ordering;

/// The first run of digits, or of anything else, and what follows.
fn run(text: &str) -> (&str, &str) {
    let is_digit = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(text.len());
    text.split_at(end)
}

/// Compares by runs, digits as numbers of any length. Equal only if the texts are.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let ((x, more), (y, rest)) = (run(left), run(right));
        (left, right) = (more, rest);
        let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let order = if digits(x) && digits(y) {
            let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
            x.len().cmp(&y.len()).then(x.cmp(y))
        } else {
            x.cmp(y)
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then(a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_as_such() {
        let mut names = [
            "Ethernet1/10",
            "Ethernet1/2",
            "Ethernet1",
            "a",
            "Ethernet01/2",
            "10",
            "9",
            "",
            "99999999999999999999999",
            "eth2b",
        ];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(
            names,
            [
                "",
                "9",
                "10",
                "99999999999999999999999",
                "Ethernet1",
                "Ethernet01/2",
                "Ethernet1/2",
                "Ethernet1/10",
                "a",
                "eth2b"
            ]
        );
        assert_eq!((natural("a1", "a01"), natural("x", "x")), (natural("a01", "a1").reverse(), Ordering::Equal));
    }
}
