//! Quantities such as `128Mi` or `0.5`: their one canonical text (apimachinery, `pkg/api/resource`).

/// How the text was written, which its canonical text keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `G`, …
    Decimal,
    /// `Ki`, `Mi`, `Gi`, …
    Binary,
    /// `e3`, `E6`, …
    Exponent,
}

/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// The greatest amount, in billionths.
const MOST: i128 = (i64::MAX as i128) * NANO;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The canonical text, or `None` if this is no quantity.
pub fn canonical(text: &str) -> Option<String> {
    let (nanos, format) = parse(text.trim())?;
    Some(print(nanos, format))
}

/// Billionths of a quantity; amounts that are too great count as the greatest.
pub fn nanos(text: &str) -> Option<i128> {
    parse(text.trim()).map(|(nanos, _)| nanos)
}

fn parse(text: &str) -> Option<(i128, Format)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) || text.len() > 256 {
        return None;
    }
    let (base, power, format) = parse_suffix(suffix)?;
    let amount = scaled(whole, fraction, base, power).unwrap_or(MOST).min(MOST);
    Some((if negative { -amount } else { amount }, format))
}

/// Base, power and format of a suffix.
fn parse_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some(&(_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((10, power, Format::Decimal));
    }
    if let Some(at) = BINARY.iter().position(|s| *s == suffix) {
        return Some((2, i32::try_from(at).ok()? * 10, Format::Binary));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = digits.parse().ok()?;
    Some((10, power.clamp(-400, 400), Format::Exponent))
}

/// Billionths, rounded up; `None` if there are too many.
fn scaled(whole: &str, fraction: &str, base: u32, power: i32) -> Option<i128> {
    let digits: String = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    let places = i32::try_from(fraction.len()).ok()?;
    if digits.is_empty() {
        return Some(0);
    }
    let ten = if base == 10 { power } else { 0 } - places + 9;
    let mut digits = digits;
    let mut rest = false;
    if ten < 0 {
        // What is less than a billionth is cut, and rounded up at the end.
        let cut = usize::try_from(-ten).ok()?.min(digits.len());
        if base == 10 {
            let tail = digits.split_off(digits.len() - cut);
            rest = tail.bytes().any(|b| b != b'0');
            let number: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
            return number.checked_add(i128::from(rest));
        }
    }
    let mut number: i128 = digits.parse().ok()?;
    if base == 2 {
        number = number.checked_mul(1i128.checked_shl(u32::try_from(power).ok()?)?)?;
    }
    if ten < 0 {
        let by = 10i128.checked_pow(u32::try_from(-ten).ok()?)?;
        rest |= number % by != 0;
        return Some(number / by + i128::from(rest));
    }
    number.checked_mul(10i128.checked_pow(u32::try_from(ten).ok()?)?)
}

fn print(nanos: i128, format: Format) -> String {
    let small = nanos.abs() < 1024 * NANO;
    if format == Format::Binary && !small {
        let mut number = nanos / NANO + if nanos % NANO == 0 { 0 } else { nanos.signum() };
        let mut at = 0;
        while at + 1 < BINARY.len() && number % 1024 == 0 {
            number /= 1024;
            at += 1;
        }
        return format!("{number}{}", BINARY[at]);
    }
    if nanos == 0 {
        return "0".to_owned();
    }
    let (mut number, mut power) = (nanos, -9);
    while number % 1000 == 0 && power < 18 {
        number /= 1000;
        power += 3;
    }
    if format == Format::Exponent {
        return if power == 0 { number.to_string() } else { format!("{number}e{power}") };
    }
    let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(s, _)| s);
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_upstream_writes_them() {
        for (given, text) in [
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("100000", "100k"),
            ("1500", "1500"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e6", "12e6"),
            ("-5k", "-5k"),
            ("+1", "1"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("99999999999999999999", "9223372036854775807"),
            ("2048Mi", "2Gi"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(text), "{given}");
        }
        for bad in ["", "x", "1x", "1.2.3", "1 k", "k", ".", "1e", "--1"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn canonical_texts_stay_as_they_are(text in "[-+]?[0-9]{0,25}[.]?[0-9]{0,12}(|n|u|m|k|M|E|Ki|Mi|Ei|e[0-9]{1,3}|E-[0-9]{1,3})") {
            if let Some(once) = canonical(&text) {
                prop_assert_eq!(canonical(&once), Some(once));
            }
        }
    }
}
