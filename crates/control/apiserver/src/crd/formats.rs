//! The string and number formats that custom resources may ask for (apiextensions `supportedFormats`).
//! Unknown formats hold for every value, as with kube-apiserver.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use base64::Engine as _;
use regex::Regex;
use serde_json::Number;

/// Whether the text has the format.
pub fn string(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid(format, text),
        "uri" => uri(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "hexcolor" => matches(text, &HEX, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        "isbn10" | "isbn13" | "isbn" | "creditcard" => text.bytes().any(|b| b.is_ascii_digit()),
        _ => true,
    }
}

/// Whether the number has the format.
pub fn number(format: &str, number: &Number) -> bool {
    let whole = || number.as_i64().or_else(|| number.as_f64().filter(|f| f.fract() == 0.0).map(|f| f as i64));
    match format {
        "int32" => whole().is_some_and(|n| i32::try_from(n).is_ok()),
        "int64" => number.is_i64() || number.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9.2e18),
        _ => true,
    }
}

static HEX: OnceLock<Option<Regex>> = OnceLock::new();
static DURATION: OnceLock<Option<Regex>> = OnceLock::new();
static WORDS: OnceLock<Option<Regex>> = OnceLock::new();

fn matches(text: &str, cell: &'static OnceLock<Option<Regex>>, source: &str) -> bool {
    cell.get_or_init(|| Regex::new(source).ok()).as_ref().is_some_and(|r| r.is_match(text))
}

fn date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && matches!(bytes[10], b'T' | b't') && text.parse::<jiff::Timestamp>().is_ok()
}

/// Go's durations (`1h30m`), or words such as `2 days`.
fn duration(text: &str) -> bool {
    matches(text, &DURATION, r"^[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$")
        || matches(
            text,
            &WORDS,
            r"^[0-9]+\s*(ns|nanos?|us|µs|micros?|ms|millis?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)$",
        )
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32) || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

fn mac(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn uuid(format: &str, text: &str) -> bool {
    let Ok(parsed) = uuid::Uuid::try_parse(text) else { return false };
    match format {
        "uuid3" => parsed.get_version_num() == 3,
        "uuid4" => parsed.get_version_num() == 4,
        "uuid5" => parsed.get_version_num() == 5,
        _ => true,
    }
}

fn uri(text: &str) -> bool {
    text.starts_with('/') || text.parse::<http::Uri>().is_ok_and(|u| u.scheme().is_some()) || {
        // Schemes that http::Uri does not split, such as "redfish-virtualmedia+https://[::1]/x" or "mailto:a".
        text.split_once(':').is_some_and(|(scheme, rest)| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
                && !rest.contains(char::is_whitespace)
        })
    }
}

fn hostname(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || !c.is_ascii())
    };
    !text.is_empty() && text.len() <= 253 && text.trim_end_matches('.').split('.').all(label)
}

fn email(text: &str) -> bool {
    text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !user.contains(' ') && hostname(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_take_and_refuse() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02"),
            ("duration", "1h30m", "soon"),
            ("ipv4", "192.0.2.1", "192.0.2"),
            ("ipv6", "2001:db8::1", "192.0.2.1"),
            ("cidr", "192.0.2.0/24", "192.0.2.0/33"),
            ("mac", "00:11:22:33:44:55", "00:11:22:33:44"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uri", "redfish-virtualmedia://192.0.2.1/redfish", "no uri"),
            ("hostname", "a.example", "-a.example"),
            ("email", "a@b.example", "a"),
            ("byte", "YQ==", "%"),
        ] {
            assert!(string(format, good), "{format} {good}");
            assert!(!string(format, bad), "{format} {bad}");
        }
        assert!(string("no-such-format", "x"));
        assert!(!number("int32", &Number::from(1u64 << 40)));
    }
}
