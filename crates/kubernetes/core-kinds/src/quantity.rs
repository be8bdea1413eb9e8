//! Quantities such as `128Mi` or `0.5`: the canonical text that an API server returns
//! (apimachinery, `pkg/api/resource`: `ParseQuantity`, `CanonicalizeBytes`, `MarshalJSON`).

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

/// The greatest amount: [`nanos`] and amounts with powers of 1024 saturate there.
const MOST: i128 = i64::MAX as i128;
/// Billionths in one.
const NANO: i128 = 1_000_000_000;
/// Smaller amounts than 10 to this power are rounded away from zero.
const FINEST: i32 = -9;
/// Most digits that upstream holds in a machine word; such texts may stay as written.
const WORD_DIGITS: i32 = 18;
/// Powers of ten beyond it are refused. Upstream calculates with them, for minutes.
const GREATEST_POWER: i32 = 100_000;
const LONGEST: usize = 256;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The text by which an API server answers this one, or `None` if this is no quantity.
pub fn canonical(text: &str) -> Option<String> {
    let written = parse(text.trim())?;
    if written.is_kept() {
        return Some(written.text.to_owned());
    }
    Some(written.amount().print(written.format))
}

/// Billionths of a quantity; amounts that are too great count as the greatest.
pub fn nanos(text: &str) -> Option<i128> {
    parse(text.trim()).map(|written| written.amount().nanos())
}

/// A quantity as it was written.
struct Written<'a> {
    text: &'a str,
    negative: bool,
    /// Digits before the point without leading zeros; empty for none.
    whole: &'a str,
    /// Digits after it.
    fraction: &'a str,
    format: Format,
    /// Power of 2 for the binary format, else of 10.
    power: i32,
}

fn parse(text: &str) -> Option<Written<'_>> {
    if text.is_empty() || text.len() > LONGEST {
        return None;
    }
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let rest = unsigned.trim_start_matches('0');
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let (format, power) = parse_suffix(suffix)?;
    let written = Written { text, negative, whole, fraction, format, power };
    // A text without digits is 0 if upstream uses a machine word, and an error otherwise.
    (written.is_int64_amount() || unsigned.len() > rest.len() || !whole.is_empty() || !fraction.is_empty())
        .then_some(written)
}

fn parse_suffix(suffix: &str) -> Option<(Format, i32)> {
    if let Some(&(_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some((Format::Decimal, power));
    }
    if let Some(at) = BINARY.iter().position(|s| *s == suffix) {
        return Some((Format::Binary, i32::try_from(at).ok()? * 10));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (power.abs() <= GREATEST_POWER).then_some((Format::Exponent, power))
}

impl Written<'_> {
    /// Whether upstream stores it in 64 bits (`int64Amount`).
    fn is_int64_amount(&self) -> bool {
        let places = |digits: &str| i32::try_from(digits.len()).unwrap_or(i32::MAX / 2);
        let (before, after) = (places(self.whole).max(1), places(self.fraction));
        if self.format == Format::Binary {
            return after == 0 && before + self.power * 3 / 10 < 15;
        }
        before + after <= WORD_DIGITS && self.power - after >= FINEST
    }

    /// Whether upstream returns the text as written, because a quick check calls it canonical: it also accepts `+1`, `5.` and `007`.
    fn is_kept(&self) -> bool {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let shifted = format!("{whole}{}", self.fraction);
        if !self.is_int64_amount() || shifted.bytes().all(|b| b == b'0') {
            return false;
        }
        if self.format == Format::Binary {
            // No multiple of 8 is no multiple of 1024.
            return shifted.parse::<u64>().is_ok_and(|value| value % 8 != 0);
        }
        let places = i32::try_from(self.fraction.len()).unwrap_or_default();
        (self.power - places) % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0')
    }

    fn amount(&self) -> Amount {
        let digits = self.whole.bytes().chain(self.fraction.bytes()).map(|b| b - b'0').collect();
        let places = i32::try_from(self.fraction.len()).unwrap_or_default();
        let mut amount = Amount { negative: self.negative, digits, power: -places };
        if self.format == Format::Binary {
            (0..self.power).for_each(|_| amount.double());
            amount.round();
            if amount.nanos().abs() == MOST * NANO {
                amount.digits = MOST.to_string().bytes().map(|b| b - b'0').collect();
                amount.power = 0;
            }
        } else {
            amount.power += self.power;
            amount.round();
        }
        amount.shorten();
        amount
    }
}

/// `digits` times 10 to the `power`.
struct Amount {
    negative: bool,
    digits: Vec<u8>,
    power: i32,
}

impl Amount {
    fn double(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().rev() {
            let twice = *digit * 2 + carry;
            (*digit, carry) = (twice % 10, twice / 10);
        }
        if carry > 0 {
            self.digits.insert(0, carry);
        }
    }

    /// Rounds away from zero to billionths.
    fn round(&mut self) {
        let Ok(cut @ 1..) = usize::try_from(FINEST - self.power) else { return };
        let tail = self.digits.split_off(self.digits.len().saturating_sub(cut));
        self.power = FINEST;
        if tail.iter().all(|d| *d == 0) {
            return;
        }
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// Moves trailing zeros into the power, and drops leading ones.
    fn shorten(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.power += 1;
        }
        let zeros = self.digits.iter().take_while(|d| **d == 0).count();
        self.digits.drain(..zeros);
    }

    fn text(&self) -> String {
        self.digits.iter().map(|d| char::from(b'0' + d)).collect()
    }

    /// Billionths, at most as many as the greatest amount has.
    fn nanos(&self) -> i128 {
        let most = MOST * NANO;
        let number = if self.text().trim_start_matches('0').is_empty() { Some(0) } else { self.billionths() };
        let number = number.unwrap_or(most).min(most);
        if self.negative { -number } else { number }
    }

    /// Without the sign; `None` if they are too many.
    fn billionths(&self) -> Option<i128> {
        let number: i128 = self.text().parse().ok()?;
        number.checked_mul(10i128.checked_pow(u32::try_from(self.power - FINEST).ok()?)?)
    }

    fn print(&self, format: Format) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        // Powers of 1024 cannot express fractions or less than 1024: such an amount is printed as a decimal one.
        let nanos = self.nanos().abs();
        if format == Format::Binary && nanos >= 1024 * NANO && nanos % NANO == 0 {
            let (mut number, mut at) = (nanos / NANO, 0);
            while at + 1 < BINARY.len() && number % 1024 == 0 {
                number /= 1024;
                at += 1;
            }
            return format!("{sign}{number}{}", BINARY[at]);
        }
        let zeros = self.power.rem_euclid(3);
        let power = self.power - zeros;
        let mut text = format!("{sign}{}", self.text());
        (0..zeros).for_each(|_| text.push('0'));
        if format == Format::Exponent {
            return if power == 0 { text } else { format!("{text}e{power}") };
        }
        // A power without a suffix is lost, as upstream: 1000E becomes 1.
        let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(s, _)| s);
        format!("{text}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Answers are those of apimachinery 0.34.4.
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
            ("1E3", "1E3"),
            ("1E5", "100e3"),
            ("12e6", "12e6"),
            ("1234.5e1", "1234.5e1"),
            ("-5k", "-5k"),
            ("+1", "+1"),
            (".5", "500m"),
            ("5.", "5."),
            ("007", "007"),
            ("1.50", "1500m"),
            ("0.0000000001", "1n"),
            ("0.0000000001Ki", "103n"),
            ("99999999999999999999", "99999999999999999999"),
            ("9999999999999999999999.5M", "9999999999999999999999500k"),
            ("2048Mi", "2Gi"),
            ("0012Ki", "0012Ki"),
            ("-1.5Ki", "-1536"),
            ("0.1Ki", "102400m"),
            ("458.984Ki", "469999616m"),
            ("1000Ei", "9223372036854775807"),
            ("-1000Ei", "-9223372036854775807"),
            ("9223372036854775807Ki", "9223372036854775807"),
            ("1000E", "1"),
            ("1e9999", "1e9999"),
            ("1e-9999", "1e-9"),
            ("1e400", "10e399"),
            ("-1e400", "-10e399"),
            ("k", "0"),
            ("Ki", "0"),
            (".", "0"),
            ("-", "0"),
            ("00", "0"),
            ("-0", "0"),
            ("0.0e-22", "0"),
            ("12345678901234567.8", "12345678901234567800m"),
            ("123456789012345678.9", "123456789012345678900m"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(text), "{given}");
        }
        for bad in ["", "x", "1x", "1.2.3", "1 k", "--1", "1e", "1ki", "1k5", "1e+-5", "Pi", ".Ei", "E-18", "+e-22"] {
            assert_eq!(canonical(bad), None, "{bad}");
        }
        assert_eq!(canonical("1e2147483648"), None, "upstream hangs");
        assert_eq!(canonical(&"1".repeat(LONGEST + 1)), None);
    }

    #[test]
    fn amounts_are_compared_in_billionths() {
        for (given, amount) in [
            ("1.5", 1_500_000_000),
            ("-2n", -2),
            ("1Ki", 1024 * NANO),
            ("1e100", MOST * NANO),
            ("-1E999", -MOST * NANO),
        ] {
            assert_eq!(nanos(given), Some(amount), "{given}");
        }
    }

    proptest! {
        /// Upstream answers 187.5Ki by 192000, and that by 192k; there it ends.
        #[test]
        fn canonical_texts_are_stable(text in "[-+]?[0-9]{0,25}[.]?[0-9]{0,12}(|n|u|m|k|M|E|Ki|Mi|Ei|e[0-9]{1,3}|E-[0-9]{1,3})") {
            if let Some(once) = canonical(&text) {
                let twice = canonical(&once).unwrap();
                prop_assert_eq!(canonical(&twice).unwrap(), twice);
            }
        }

        #[test]
        fn the_amount_stays(text in "[-+]?[0-9]{1,15}[.]?[0-9]{0,12}(|n|u|m|k|M|Ki|Mi|Ei|e[0-9]{1,3}|E-[0-9]{1,3})") {
            prop_assert_eq!(nanos(&canonical(&text).unwrap()), nanos(&text));
        }
    }
}
