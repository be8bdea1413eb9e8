//! Chassis and port ids: a subtype and up to 255 bytes.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use terms::clean;

/// Longest id, in characters: 255 bytes are twice as many digits, of which nobody reads all.
const MAX_ID: usize = 128;

/// IANA address family numbers.
const IPV4: u8 = 1;
const IPV6: u8 = 2;

/// What the bytes of an id are.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A name.
    Text,
    /// A hardware address.
    Mac,
    /// An address, after a byte with its family.
    Network,
    /// Bytes of somebody's own.
    Bytes,
}

/// Subtypes of chassis ids (IEEE 802.1AB-2016, table 8-2). `None`: reserved.
pub fn chassis(subtype: u8) -> Option<Kind> {
    match subtype {
        // Chassis component, interface alias, port component, interface name, locally assigned.
        1..=3 | 6 | 7 => Some(Kind::Text),
        4 => Some(Kind::Mac),
        5 => Some(Kind::Network),
        _ => None,
    }
}

/// Subtypes of port ids (table 8-3).
pub fn port(subtype: u8) -> Option<Kind> {
    match subtype {
        // Interface alias, port component, interface name, locally assigned.
        1 | 2 | 5 | 7 => Some(Kind::Text),
        3 => Some(Kind::Mac),
        4 => Some(Kind::Network),
        // Agent circuit id (RFC 3046).
        6 => Some(Kind::Bytes),
        _ => None,
    }
}

fn digits(bytes: &[u8], between: &str) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().take(MAX_ID).enumerate() {
        let _ = write!(text, "{}{byte:02x}", if at == 0 { "" } else { between });
    }
    text
}

/// The id as text; what is not of its kind is told in hexadecimal digits.
pub fn text(kind: Kind, bytes: &[u8]) -> String {
    let found = match (kind, bytes) {
        (Kind::Mac, mac) if mac.len() == 6 => Some(digits(mac, ":")),
        (Kind::Network, [IPV4, address @ ..]) => {
            <[u8; 4]>::try_from(address).ok().map(|a| Ipv4Addr::from(a).to_string())
        }
        (Kind::Network, [IPV6, address @ ..]) => {
            <[u8; 16]>::try_from(address).ok().map(|a| Ipv6Addr::from(a).to_string())
        }
        // Some end their names with a zero byte.
        (Kind::Text, name) => std::str::from_utf8(name).ok().map(|name| clean(name.trim_end_matches('\0'), MAX_ID)),
        _ => None,
    };
    found.filter(|text| !text.is_empty()).unwrap_or_else(|| clean(&digits(bytes, ""), MAX_ID))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_as_people_write_it() {
        assert_eq!(text(Kind::Mac, &[0, 0x1c, 0x73, 0xAA, 0xbb, 0xcc]), "00:1c:73:aa:bb:cc");
        assert_eq!(text(Kind::Network, &[1, 10, 0, 0, 1]), "10.0.0.1");
        assert_eq!(text(Kind::Network, &[2, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "fd00::1");
        assert_eq!(text(Kind::Text, b"Ethernet1/1\0"), "Ethernet1/1");
        // What is not of its kind.
        assert_eq!(text(Kind::Mac, &[1, 2, 3]), "010203");
        assert_eq!(text(Kind::Network, &[1, 10, 0]), "010a00");
        assert_eq!(text(Kind::Network, &[7, 10]), "070a");
        assert_eq!(text(Kind::Text, &[0xff, 0xfe]), "fffe");
        assert_eq!(text(Kind::Text, b"\x1b\x07"), "1b07");
        assert_eq!(text(Kind::Bytes, &[1, 2]), "0102");
        assert_eq!(text(Kind::Text, b"a\x1b[2Jb"), "a [2Jb");
        assert!(text(Kind::Text, &[b'x'; 255]).chars().count() <= MAX_ID);
        assert!(text(Kind::Bytes, &[9; 255]).chars().count() <= MAX_ID);
    }
}
