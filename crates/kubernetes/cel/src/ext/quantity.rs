//! Quantities (apimachinery's `resource.Quantity`).

use std::cmp::Ordering;

use crate::fault::Fault;

/// Nanos in a unit.
pub(crate) const NANO: i128 = 1_000_000_000;
/// Larger amounts count as this one, as upstream.
const MOST: i128 = i64::MAX as i128 * NANO;

/// An amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    pub(crate) nanos: i128,
    /// Whether it was written without a fraction or a small unit.
    pub(crate) whole: bool,
}

impl Quantity {
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        if !self.whole || self.nanos % NANO != 0 {
            return None;
        }
        i64::try_from(self.nanos / NANO).ok()
    }

    pub(crate) fn plus(self, other: Self, sign: i128) -> Self {
        Self { nanos: self.nanos.saturating_add(sign * other.nanos), whole: self.whole && other.whole }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::new("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
        };
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let has_digits = !whole.is_empty() || !part.is_empty();
        if !has_digits || part.contains('.') {
            return Err(wrong());
        }
        let allowed = |c: char| "eEinumkKMGTP+-".contains(c) || c.is_ascii_digit();
        if !suffix.chars().all(allowed) {
            return Err(wrong());
        }
        let (base, exponent) = unit(suffix).ok_or_else(|| Fault::new("unable to parse quantity's suffix"))?;
        let nanos = amount(whole, part, base, exponent);
        let scale = exponent - part.len() as i32;
        let written_whole = nanos < MOST && (if base == 2 { part.is_empty() } else { scale >= 0 });
        let nanos = if text.starts_with('-') { -nanos } else { nanos };
        Ok(Self { nanos, whole: written_whole })
    }
}

/// The base and the exponent that a suffix means.
fn unit(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        other => (10, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// Nanos, rounded up, at most [`MOST`].
fn amount(whole: &str, part: &str, base: u32, exponent: i32) -> i128 {
    let digits: String = whole.chars().chain(part.chars().take(30)).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let shift = 9 - part.len().min(30) as i32 + if base == 10 { exponent } else { 0 };
    let Ok(mut value) = digits.parse::<i128>() else { return MOST };
    if base == 2 {
        let Some(product) = value.checked_mul(1 << exponent) else { return MOST };
        value = product;
    }
    if shift >= 0 {
        let scale = u32::try_from(shift).ok().and_then(|s| 10i128.checked_pow(s));
        return scale.and_then(|s| value.checked_mul(s)).map_or(MOST, |v| v.min(MOST));
    }
    let Some(scale) = 10i128.checked_pow(shift.unsigned_abs()) else { return 1 };
    (value / scale + i128::from(value % scale != 0)).min(MOST)
}
