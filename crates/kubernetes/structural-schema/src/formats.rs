//! The string and number formats that custom resources may use (apiextensions `supportedFormats`).
//! Upstream's are those of kube-openapi's `strfmt`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use base64::Engine as _;
use regex::Regex;

/// Whether custom resources are checked for this format. Others hold for every value, as with kube-apiserver.
pub fn known(format: &str) -> bool {
    const KNOWN: [&str; 24] = [
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
    ];
    KNOWN.contains(&format.replace('-', "").as_str())
}

/// Whether the text has the format.
pub fn string(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => date_time(text),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => matches(text, &UUID, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        "uuid3" => matches(text, &UUID3, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        "uuid4" => {
            matches(text, &UUID4, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
        }
        "uuid5" => {
            matches(text, &UUID5, r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
        }
        "uri" => uri(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "hexcolor" => matches(text, &HEX, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        "rgbcolor" => rgb(text),
        "ssn" => matches(text, &SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "isbn" => isbn10(text) || isbn13(text),
        "creditcard" => credit_card(text),
        _ => true,
    }
}

static UUID: OnceLock<Option<Regex>> = OnceLock::new();
static UUID3: OnceLock<Option<Regex>> = OnceLock::new();
static UUID4: OnceLock<Option<Regex>> = OnceLock::new();
static UUID5: OnceLock<Option<Regex>> = OnceLock::new();
static SSN: OnceLock<Option<Regex>> = OnceLock::new();
static HOST: OnceLock<Option<Regex>> = OnceLock::new();
static CARD: OnceLock<Option<Regex>> = OnceLock::new();
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
    text.len() <= 255
        && text.split('.').all(|part| part.len() <= 63)
        && matches(
            text,
            &HOST,
            r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([-a-zA-Z0-9\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$",
        )
}

/// `rgb(r,g,b)` with bytes.
fn rgb(text: &str) -> bool {
    let parts = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')'));
    parts.is_some_and(|parts| {
        let all: Vec<&str> = parts.split(',').collect();
        all.len() == 3 && all.iter().all(|p| p.trim().parse::<u8>().is_ok())
    })
}

/// The digits of a text that may have spaces and dashes between them; `X` is ten.
fn digits(text: &str) -> Option<Vec<u32>> {
    let one = |c: char| if c == 'X' { Some(10) } else { c.to_digit(10) };
    text.chars().filter(|c| !matches!(c, ' ' | '-')).map(one).collect()
}

fn isbn10(text: &str) -> bool {
    digits(text).is_some_and(|d| {
        d.len() == 10
            && d[..9].iter().all(|n| *n < 10)
            && d.iter().zip(1..).map(|(n, weight)| n * weight).sum::<u32>() % 11 == 0
    })
}

fn isbn13(text: &str) -> bool {
    digits(text).is_some_and(|d| {
        d.len() == 13
            && d.iter().all(|n| *n < 10)
            && d.iter().enumerate().map(|(at, n)| if at % 2 == 0 { *n } else { n * 3 }).sum::<u32>() % 10 == 0
    })
}

fn credit_card(text: &str) -> bool {
    let plain: String = text.chars().filter(char::is_ascii_digit).collect();
    let known = matches(
        &plain,
        &CARD,
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$",
    );
    let double = |n: u32| if n > 4 { n * 2 - 9 } else { n * 2 };
    let sum = |(at, c): (usize, char)| c.to_digit(10).map_or(0, |n| if at % 2 == 1 { double(n) } else { n });
    known && plain.chars().rev().enumerate().map(sum).sum::<u32>() % 10 == 0
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
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("rgbcolor", "rgb(255,255,25)", "rgb(256,0,0)"),
        ] {
            assert!(string(format, good), "{format} {good}");
            assert!(!string(format, bad), "{format} {bad}");
        }
        assert!(string("no-such-format", "x"));
        assert!(!known("int32") && known("date-time"));
    }
}
