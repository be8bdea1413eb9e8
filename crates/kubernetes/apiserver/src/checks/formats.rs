//! Keys of data, ports and addresses: each check gives upstream's texts, none if all is well (apimachinery,
//! `pkg/util/validation`).

use std::net::{IpAddr, Ipv4Addr};

use crate::status::FieldError;
use serde_json::json;

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', \
    regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Key of a Secret's or ConfigMap's data.
pub fn config_key(text: &str) -> Vec<String> {
    let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let mut errors: Vec<String> =
        names::too_long(text, names::MAX_SUBDOMAIN).into_iter().chain((!good).then(|| CONFIG_KEY.to_owned())).collect();
    match text {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// Number of a port.
pub fn port_number(number: i64) -> Option<String> {
    (!(1..=65535).contains(&number)).then(|| "must be between 1 and 65535, inclusive".to_owned())
}

/// Name of a port as targets use it (IANA service name).
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = names::too_long(text, 15).into_iter().collect();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Parses an address like older versions of Go, which ignore leading zeros in IPv4.
pub fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok().filter(IpAddr::is_ipv6);
    }
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next().filter(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))?;
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Whether the address counts as IPv4, including IPv4-mapped IPv6.
pub fn is_ipv4(address: &IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}

/// An address in a field of old.
pub fn legacy_ip(field: &str, text: &str, errors: &mut Vec<FieldError>) -> Option<IpAddr> {
    let address = sloppy_ip(text);
    if address.is_none() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(field, &json!(text), detail));
    }
    address
}

/// An address range in a field of old.
pub fn legacy_cidr(field: &str, text: &str, errors: &mut Vec<FieldError>) {
    if cidr(text).is_none() {
        let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(FieldError::invalid(field, &json!(text), detail));
    }
}

/// A name of hosts that begins with a wildcard.
pub fn wildcard(text: &str) -> Vec<String> {
    let mut errors: Vec<String> = names::too_long(text, names::MAX_SUBDOMAIN).into_iter().collect();
    if !text.strip_prefix("*.").is_some_and(|rest| names::dns_1123_subdomain(rest).is_empty()) {
        errors.push(WILDCARD.to_owned());
    }
    errors
}

/// Whether an address is in a range.
pub fn contains((range, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((range, size), (address, other)) = (bits(range), bits(address));
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    size == other && range & mask == address & mask
}

/// Parses a range: address and prefix length.
pub fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = sloppy_ip(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let plain = !length.is_empty() && length.len() < 8 && length.bytes().all(|b| b.is_ascii_digit());
    let length: u32 = if plain { length.parse().ok()? } else { return None };
    u8::try_from(length).ok().filter(|l| *l <= most).map(|l| (address, l))
}

/// The warning about an address in a non-standard form.
pub fn ip_warning(field: &str, text: &str) -> Option<String> {
    let address = sloppy_ip(text)?;
    let plain: Option<IpAddr> = text.parse().ok();
    let canonical = address.to_canonical();
    if plain.is_none() || canonical != address {
        return Some(format!(
            "{field}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use \
             {:?}",
            canonical.to_string()
        ));
    }
    let written = address.to_string();
    (address.is_ipv6() && written != text)
        .then(|| format!("{field}: IPv6 address {text:?} should be in RFC 5952 canonical format ({written:?})"))
}

/// An address that endpoints may have.
pub fn endpoint_ip(field: &str, text: &str, errors: &mut Vec<FieldError>) {
    let Some(address) = sloppy_ip(text) else {
        errors.push(FieldError::invalid(field, &json!(text), "must be a valid IP address"));
        return;
    };
    let address = address.to_canonical();
    let mut wrong = |detail: String| errors.push(FieldError::invalid(field, &json!(text), detail));
    if address.is_unspecified() {
        wrong(format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        wrong("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    let (link_local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        wrong("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if multicast {
        wrong("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_ports() {
        assert_eq!(config_key("..x"), ["must not start with '..'"]);
        assert_eq!(port_name("-a--"), ["must not contain consecutive hyphens", "must not begin or end with a hyphen"]);
    }

    #[test]
    fn addresses_as_go_reads_them() {
        assert_eq!(sloppy_ip("010.002.3.4"), Some("10.2.3.4".parse().unwrap()));
        assert_eq!(sloppy_ip("1.2.3"), None);
        assert_eq!(sloppy_ip("1.2.3.256"), None);
        assert!(cidr("10.0.0.0/24").is_some() && cidr("10.0.0.0/33").is_none() && cidr("10.0.0.0").is_none());
        assert!(ip_warning("f", "010.0.0.1").unwrap().contains("use \"10.0.0.1\""));
        assert!(ip_warning("f", "FE80:0:0::1").unwrap().contains("RFC 5952"));
        assert_eq!(ip_warning("f", "10.0.0.1"), None);
        let mut errors = Vec::new();
        endpoint_ip("f", "127.0.0.1", &mut errors);
        endpoint_ip("f", "ff02::1", &mut errors);
        endpoint_ip("f", "10.0.0.1", &mut errors);
        assert_eq!(errors.len(), 2);
    }
}
