//! Resolves plain scalars of YAML 1.1 like `go.yaml.in/yaml/v2`: `yes` is true, `0777` is octal.

use base64::Engine as _;

use crate::YamlError;

/// Prefix of the tags of YAML's own types.
pub const LONG: &str = "tag:yaml.org,2002:";

/// A scalar's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Nothing.
    Null,
    /// Truth.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer beyond those.
    Uint(u64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
}

impl Scalar {
    fn tag(&self, text: &str) -> &'static str {
        match self {
            Self::Null => "!!null",
            Self::Bool(_) => "!!bool",
            Self::Int(_) | Self::Uint(_) => "!!int",
            Self::Float(_) => "!!float",
            Self::Text(_) if is_time(text) => "!!timestamp",
            Self::Text(_) => "!!str",
        }
    }
}

fn short(tag: &str) -> String {
    tag.strip_prefix(LONG).map_or_else(|| tag.to_owned(), |rest| format!("!!{rest}"))
}

/// The value of a scalar with a tag, which may be empty.
pub fn scalar(text: &str, tag: &str) -> Result<Scalar, YamlError> {
    let short = short(tag);
    let plain = || Scalar::Text(text.to_owned());
    let found = match short.as_str() {
        "" => return Ok(untagged(text)),
        "!!str" => return Ok(plain()),
        "!!binary" => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text.replace(['\n', '\r'], ""));
            let bytes = bytes.map_err(|_| YamlError::Base64)?;
            return Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()));
        }
        "!!bool" | "!!int" | "!!float" | "!!null" => untagged(text),
        "!!timestamp" if is_time(text) => return Ok(plain()),
        "!!timestamp" => untagged(text),
        _ => return Ok(plain()),
    };
    match (short.as_str(), found) {
        ("!!float", Scalar::Int(number)) => Ok(Scalar::Float(number as f64)),
        (wanted, found) if found.tag(text) == wanted => Ok(found),
        (wanted, found) => {
            Err(YamlError::Tag { found: found.tag(text).to_owned(), text: text.to_owned(), wanted: wanted.to_owned() })
        }
    }
}

fn untagged(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    number(text).unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

fn number(text: &str) -> Option<Scalar> {
    match text.bytes().next()? {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' if !is_time(text) => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| float(&plain))
        }
        _ => None,
    }
}

/// Digits with a point and an exponent, nothing else, within a float's range.
fn float(text: &str) -> Option<Scalar> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let float: f64 = text.parse().ok().filter(|_| digits)?;
    float.is_finite().then_some(Scalar::Float(float))
}

fn integer(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    match i64::try_from(value) {
        Ok(value) => Some(Scalar::Int(if negative { -value } else { value })),
        Err(_) if negative && value == 1 << 63 => Some(Scalar::Int(i64::MIN)),
        // With a sign it is no unsigned integer for Go.
        Err(_) if !text.starts_with(['-', '+']) => Some(Scalar::Uint(value)),
        Err(_) => None,
    }
}

/// Whether a text is a date, or a date and a time.
pub fn is_time(text: &str) -> bool {
    parse_time(text).is_some()
}

/// A number of some digits before a sign; the rest.
fn part(text: &str, digits: std::ops::RangeInclusive<usize>, sign: Option<char>) -> Option<(i8, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    if !digits.contains(&length) {
        return None;
    }
    let (number, rest) = text.split_at(length);
    let rest = match sign {
        Some(sign) => rest.strip_prefix(sign)?,
        None => rest,
    };
    Some((number.parse().ok()?, rest))
}

fn parse_time(text: &str) -> Option<()> {
    let (year, rest) = text.split_at_checked(4)?;
    let year: i16 = year.parse().ok().filter(|_| year.bytes().all(|b| b.is_ascii_digit()))?;
    let (month, rest) = part(rest.strip_prefix('-')?, 1..=2, Some('-'))?;
    let (day, rest) = part(rest, 1..=2, None)?;
    jiff::civil::Date::new(year, month, day).ok()?;
    if rest.is_empty() {
        return Some(());
    }
    let zoned = rest.starts_with(['T', 't']);
    let (hour, rest) = part(rest.strip_prefix(['T', 't', ' '])?, 1..=2, Some(':'))?;
    let (minute, rest) = part(rest, 1..=2, Some(':'))?;
    let (second, rest) = part(rest, 1..=2, None)?;
    let rest = match rest.strip_prefix(['.', ',']) {
        Some(fraction) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
            fraction.get(digits..).filter(|_| digits > 0)?
        }
        None => rest,
    };
    let at = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    let zone = match rest {
        "Z" => zoned,
        "" => !zoned,
        offset => {
            let bytes = offset.as_bytes();
            let digits = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
            zoned
                && bytes.len() == 6
                && offset.starts_with(['+', '-'])
                && bytes[3] == b':'
                && [1, 2, 4, 5].map(digits) == [true; 4]
        }
    };
    (at && zone).then_some(())
}

/// Whether a text without quotes would be read as another type.
pub fn needs_quotes(text: &str) -> bool {
    !matches!(untagged(text), Scalar::Text(_)) || is_time(text) || text == "<<" || base_sixty(text)
}

/// Numbers such as `1:30`, which others read as numbers of base 60.
fn base_sixty(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or_default();
    let head =
        first.starts_with(|c: char| c.is_ascii_digit()) && first.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let rest: Vec<&str> = parts.collect();
    let sixty = |part: &str| match part.as_bytes() {
        [b'0'..=b'9'] => true,
        [tens, ones] => (b'0'..=b'5').contains(tens) && ones.is_ascii_digit(),
        _ => false,
    };
    let Some((last, middle)) = rest.split_last() else { return false };
    let (last, fraction) = last.split_once('.').unwrap_or((last, ""));
    head && sixty(last) && middle.iter().all(|p| sixty(p)) && fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// A float as a key of JSON: with the digits that one of 32 bits needs.
pub fn float_key(float: f64) -> String {
    match float as f32 {
        short if short.is_nan() => ".nan".to_owned(),
        f32::INFINITY => ".inf".to_owned(),
        f32::NEG_INFINITY => "-.inf".to_owned(),
        short => {
            let text = short.to_string();
            text.parse().map_or(text, gotext::float)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_what_yaml_1_1_says() {
        let text = |t: &str| Scalar::Text(t.to_owned());
        for (given, value) in [
            ("yes", Scalar::Bool(true)),
            ("Off", Scalar::Bool(false)),
            ("yEs", text("yEs")),
            ("~", Scalar::Null),
            ("12", Scalar::Int(12)),
            ("-12", Scalar::Int(-12)),
            ("1_000", Scalar::Int(1000)),
            ("0777", Scalar::Int(511)),
            ("0o17", Scalar::Int(15)),
            ("0x1F", Scalar::Int(31)),
            ("-0b11", Scalar::Int(-3)),
            ("08", Scalar::Float(8.0)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("1.", Scalar::Float(1.0)),
            ("...", text("...")),
            ("1e999", text("1e999")),
            ("+", text("+")),
            ("-", text("-")),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
            ("99999999999999999999", Scalar::Float(1e20)),
            ("2001-01-01", text("2001-01-01")),
            ("1.2.3", text("1.2.3")),
            ("0x", text("0x")),
            ("<<", text("<<")),
        ] {
            assert_eq!(scalar(given, ""), Ok(value), "{given}");
        }
        assert_eq!(scalar("12", "tag:yaml.org,2002:str"), Ok(text("12")));
        assert_eq!(scalar("12", "tag:yaml.org,2002:float"), Ok(Scalar::Float(12.0)));
        let misfit = scalar("a", "tag:yaml.org,2002:int").unwrap_err();
        assert_eq!(misfit.to_string(), "yaml: cannot decode !!str `a` as a !!int");
        assert_eq!(scalar("YQ==", "tag:yaml.org,2002:binary"), Ok(text("a")));
        assert_eq!(scalar("12", "!own"), Ok(text("12")));
    }

    #[test]
    fn texts_that_look_like_something_else_need_quotes() {
        for text in ["yes", "1", "", "2026-01-02T03:04:05Z", "2026-1-2", "1:30", "<<", "0x1"] {
            assert!(needs_quotes(text), "{text}");
        }
        for text in ["a", "1a", "v1", "2026-13-01", "a:b", "1:99", "2026-01-02T03:04:05"] {
            assert!(!needs_quotes(text), "{text}");
        }
    }
}
