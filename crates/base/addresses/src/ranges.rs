//! Addresses that outsiders may not make this program call unless the operator allows them.
//!
//! BMC and image addresses come from anyone who may write a BareMetalHost. Services on the server's own loopback, on its link, or at a cloud's
//! metadata address may trust every caller that can reach them. So the check is on the resolved address of each connection, whatever its notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use url::{Host, Url};

/// Most ranges that may be allowed.
pub const MAX_RANGES: usize = 64;

/// A range of addresses that share a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    base: IpAddr,
    bits: u8,
}

/// Why a text is not a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The part before the prefix length is not an address.
    Address,
    /// The prefix length is not a number, or exceeds this maximum.
    Prefix(u8),
    /// The address has bits set beyond its prefix.
    Beyond,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("is no range of addresses; write for example 10.1.0.0/16 or fd00::/8"),
            Self::Prefix(most) => write!(f, "has a prefix that is no number from 0 to {most}"),
            Self::Beyond => f.write_str("has an address with bits beyond its prefix"),
        }
    }
}

impl std::error::Error for RangeError {}

impl FromStr for Range {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let bare = address.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(address);
        let base: IpAddr = bare.parse().map_err(|_| RangeError::Address)?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most);
        let bits = bits.ok_or(RangeError::Prefix(most))?;
        if prefix(base, bits) != number(base) {
            return Err(RangeError::Beyond);
        }
        Ok(Self { base, bits })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl Range {
    const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Self {
        Self { base: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    const fn v6(segments: [u16; 8], bits: u8) -> Self {
        let [a, b, c, d, e, f, g, h] = segments;
        Self { base: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), bits }
    }

    /// Whether the range contains an address, compared as written: `::ffff:10.0.0.1` is not an address of 10.0.0.0/8.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && prefix(address, self.bits) == number(self.base)
    }

    /// Whether it is one single address.
    fn is_single(&self) -> bool {
        self.bits == if self.base.is_ipv4() { 32 } else { 128 }
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The address with all bits beyond the prefix cleared.
fn prefix(ip: IpAddr, bits: u8) -> u128 {
    let width = if ip.is_ipv4() { 32 } else { 128 };
    let shift = width - u32::from(bits).min(width);
    number(ip).checked_shr(shift).and_then(|high| high.checked_shl(shift)).unwrap_or(0)
}

/// Why an address is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This machine's own: 127.0.0.0/8, ::1, and the addresses that also connect there: 0.0.0.0/8, ::.
    Loopback,
    /// On the link: 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// A cloud's metadata service, which returns secrets to any caller inside.
    Metadata,
    /// Not a single host: multicast, broadcast, reserved.
    NoHost,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "the address of a cloud's metadata service",
            Self::NoHost => "a multicast, broadcast or reserved address",
        }
    }
}

/// Metadata services: of AWS, Azure, Google and most others; of AWS for containers; of Alibaba, Oracle, Azure's host; and by IPv6 of AWS, Google,
/// OpenStack, Scaleway, Linode.
const METADATA: [Range; 11] = [
    Range::v4(169, 254, 169, 254, 32),
    Range::v4(169, 254, 170, 2, 32),
    Range::v4(169, 254, 170, 23, 32),
    Range::v4(100, 100, 100, 200, 32),
    Range::v4(192, 0, 0, 192, 32),
    Range::v4(168, 63, 129, 16, 32),
    Range::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    Range::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Range::v6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    Range::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    Range::v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1], 128),
];

/// The others.
const LOCAL: [(Range, Kind); 9] = [
    (Range::v4(127, 0, 0, 0, 8), Kind::Loopback),
    (Range::v4(0, 0, 0, 0, 8), Kind::Loopback),
    (Range::v4(169, 254, 0, 0, 16), Kind::LinkLocal),
    (Range::v4(224, 0, 0, 0, 4), Kind::NoHost),
    (Range::v4(240, 0, 0, 0, 4), Kind::NoHost),
    (Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Kind::Loopback),
    (Range::v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Kind::Loopback),
    (Range::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Kind::LinkLocal),
    (Range::v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Kind::NoHost),
];

/// The address itself and, for an IPv6 address that embeds an IPv4 address, that one: mapped, compatible, NAT64 (RFC 6052) or 6to4.
fn forms(address: IpAddr) -> [Option<IpAddr>; 2] {
    let within = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
            [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
            | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
            | [0x64, 0xff9b, 1, _, _, _, high, low]
            | [0x2002, high, low, ..] => Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))),
            _ => None,
        },
    };
    [Some(address), within]
}

/// Why an address needs permission; `None` for addresses that do not.
#[must_use]
pub fn local_kind(address: IpAddr) -> Option<Kind> {
    let kind = |ip: IpAddr| {
        if METADATA.iter().any(|range| range.holds(ip)) {
            return Some(Kind::Metadata);
        }
        LOCAL.iter().find(|(range, _)| range.holds(ip)).map(|(_, kind)| *kind)
    };
    forms(address).into_iter().flatten().find_map(kind)
}

/// Local addresses that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(Vec<Range>);

impl Allowed {
    /// These ranges, the first [`MAX_RANGES`] of them.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range>) -> Self {
        Self(ranges.into_iter().take(MAX_RANGES).collect())
    }

    /// This machine's own addresses, for demonstrations and tests.
    #[must_use]
    pub fn loopback() -> Self {
        Self(vec![Range::v4(127, 0, 0, 0, 8), Range::v6([0, 0, 0, 0, 0, 0, 0, 1], 128)])
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// Filters a name's addresses to those to which a connection may be made.
    ///
    /// # Errors
    /// [`NotAllowed`] for the first address, if no address may be called.
    pub fn among(&self, found: impl IntoIterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, NotAllowed> {
        let (mut good, mut bad) = (Vec::new(), None);
        for address in found {
            match self.check(address.ip()) {
                Ok(()) => good.push(address),
                Err(refused) => bad = bad.or(Some(refused)),
            }
        }
        match bad {
            Some(refused) if good.is_empty() => Err(refused),
            _ => Ok(good),
        }
    }

    /// Checks whether a connection to this address may be made. Only a range of that single address allows a metadata service: an operator who allows
    /// link-local BMCs with a wider range does not mean it.
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn check(&self, address: IpAddr) -> Result<(), NotAllowed> {
        let Some(kind) = local_kind(address) else { return Ok(()) };
        let allows =
            |ip: IpAddr| self.0.iter().any(|range| range.holds(ip) && (range.is_single() || kind != Kind::Metadata));
        if forms(address).into_iter().flatten().any(allows) { Ok(()) } else { Err(NotAllowed { address, kind }) }
    }

    /// The same for a URL, as far as that can be told without resolving names: of addresses, and of `localhost` and what is below it, which each
    /// machine resolves to itself (RFC 6761, 6.3).
    ///
    /// # Errors
    /// [`NotAllowed`].
    pub fn check_url(&self, url: &Url) -> Result<(), NotAllowed> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                if name != "localhost" && !name.ends_with(".localhost") {
                    return Ok(());
                }
                IpAddr::V4(Ipv4Addr::LOCALHOST)
            }
            None => return Ok(()),
        };
        self.check(address)
    }
}

/// The address is not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAllowed {
    /// The address.
    pub address: IpAddr,
    /// Why it is not called.
    pub kind: Kind,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, which is not called", self.address, self.kind.name())
    }
}

impl std::error::Error for NotAllowed {}

impl NotAllowed {
    /// Advice for the user; `field` names the field with the address.
    #[must_use]
    pub fn advice(&self, field: &str) -> String {
        format!("correct {field}; if it is meant so, the server is to be started with --allow-address {}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn allowed(ranges: &[&str]) -> Allowed {
        Allowed::new(ranges.iter().map(|range| range.parse().unwrap()))
    }

    #[test]
    fn what_is_local_is_known_in_each_form() {
        use Kind::{LinkLocal, Loopback, Metadata, NoHost};
        for (kind, addresses) in [
            (Some(Loopback), &["127.0.0.1", "127.255.255.255", "0.0.0.0", "0.1.2.3", "::1", "::"][..]),
            (
                Some(Loopback),
                &["::ffff:127.0.0.1", "::ffff:0.0.0.0", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"],
            ),
            (Some(LinkLocal), &["169.254.0.1", "fe80::1", "febf::1", "::ffff:169.254.1.1", "64:ff9b:1::a9fe:101"]),
            (Some(Metadata), &["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192"]),
            (Some(Metadata), &["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe", "fd00:42::42"]),
            (
                Some(Metadata),
                &["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:a9fe:a9fe"],
            ),
            (Some(NoHost), &["224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "ff02::1"]),
            (None, &["10.0.0.1", "172.16.0.1", "192.168.1.1", "192.0.2.1", "8.8.8.8", "100.100.100.201", "126.0.0.1"]),
            (
                None,
                &["128.0.0.1", "169.253.0.1", "169.255.0.1", "223.255.255.255", "2001:db8::1", "fd00::1", "fec0::1"],
            ),
            (None, &["::ffff:10.0.0.1", "64:ff9b::808:808", "2002:808:808::1", "fd00:ec3::254"]),
        ] {
            for address in addresses {
                assert_eq!(local_kind(ip(address)), kind, "{address}");
            }
        }
    }

    #[test]
    fn what_is_allowed_is_called_and_metadata_by_its_own_name_alone() {
        for (ranges, address, called) in [
            (&[][..], "127.0.0.1", false),
            (&[], "192.0.2.1", true),
            (&["127.0.0.0/8"], "127.0.0.1", true),
            (&["127.0.0.0/8"], "::ffff:127.0.0.1", true),
            (&["127.0.0.0/8"], "::1", false),
            (&["127.0.0.1"], "127.0.0.2", false),
            (&["::1"], "::1", true),
            (&["169.254.0.0/16"], "169.254.3.4", true),
            (&["169.254.0.0/16"], "169.254.169.254", false),
            (&["0.0.0.0/0", "::/0"], "169.254.169.254", false),
            (&["0.0.0.0/0", "::/0"], "::ffff:169.254.169.254", false),
            (&["0.0.0.0/0", "::/0"], "fd00:ec2::254", false),
            (&["0.0.0.0/0", "::/0"], "ff02::1", true),
            (&["169.254.169.254"], "169.254.169.254", true),
            (&["169.254.169.254/32"], "::ffff:169.254.169.254", true),
            (&["fe80::/10"], "fe80::1", true),
            (&["fe80::/10"], "fe80::a9fe:a9fe", false),
        ] {
            assert_eq!(allowed(ranges).check(ip(address)).is_ok(), called, "{ranges:?} {address}");
        }
        let refused = allowed(&[]).check(ip("169.254.7.7")).unwrap_err();
        assert_eq!(refused.to_string(), "169.254.7.7 is a link-local address, which is not called");
        assert!(refused.advice("spec.image.url").ends_with("--allow-address 169.254.7.7"));
    }

    #[test]
    fn a_url_is_judged_by_its_address_and_by_the_names_of_this_machine() {
        let none = allowed(&[]);
        for (url, called) in [
            ("http://a.example/", true),
            ("http://192.0.2.1/", true),
            ("http://localhost.example/", true),
            ("http://127.0.0.1/", false),
            ("http://[::1]/", false),
            ("http://0x7f.1/", false),
            ("http://LOCALHOST:81/", false),
            ("http://a.localhost./", false),
            ("oci://LocalHost/a", false),
        ] {
            assert_eq!(none.check_url(&Url::parse(url).unwrap()).is_ok(), called, "{url}");
        }
        assert_eq!(Allowed::loopback().check_url(&Url::parse("http://localhost/").unwrap()), Ok(()));
    }

    #[test]
    fn of_a_names_addresses_those_that_may_be_called_are_left() {
        let at = |text: &str| SocketAddr::new(ip(text), 443);
        let none = allowed(&[]);
        assert_eq!(none.among([at("127.0.0.1"), at("192.0.2.1")]), Ok(vec![at("192.0.2.1")]));
        assert_eq!(none.among([at("fe80::1"), at("127.0.0.1")]).unwrap_err().address, ip("fe80::1"));
        assert_eq!(none.among([]), Ok(vec![]));
    }

    #[test]
    fn ranges_are_read_and_told() {
        for (text, printed) in
            [("10.0.0.0/8", "10.0.0.0/8"), ("::1", "::1/128"), ("[fd00::]/8", "fd00::/8"), ("0.0.0.0/0", "0.0.0.0/0")]
        {
            assert_eq!(text.parse::<Range>().unwrap().to_string(), printed);
        }
        for (text, error) in [
            ("", RangeError::Address),
            ("10.0.0", RangeError::Address),
            ("0177.0.0.1", RangeError::Address),
            ("bmc.example", RangeError::Address),
            ("[::1", RangeError::Address),
            ("10.0.0.0/33", RangeError::Prefix(32)),
            ("::/129", RangeError::Prefix(128)),
            ("::/x", RangeError::Prefix(128)),
            ("10.0.0.1/8", RangeError::Beyond),
        ] {
            assert_eq!(text.parse::<Range>(), Err(error), "{text}");
        }
        assert!(!"0.0.0.0/0".parse::<Range>().unwrap().holds(ip("::1")));
    }

    proptest! {
        /// An embedded IPv4 address is judged like the plain one.
        #[test]
        fn forms_of_an_address_are_judged_alike(bits: u32) {
            let plain = Ipv4Addr::from_bits(bits);
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            let forms = [
                plain.to_ipv6_mapped(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 1, 2, 3, 4, 5),
            ];
            for form in forms {
                prop_assert_eq!(local_kind(form.into()), local_kind(plain.into()), "{}", form);
            }
        }

        /// A single allowed address is called, and a range without the address changes nothing.
        #[test]
        fn only_what_is_named_is_allowed(bits: u128, other: u128) {
            for (address, other) in [
                (IpAddr::from(Ipv6Addr::from_bits(bits)), IpAddr::from(Ipv6Addr::from_bits(other))),
                (Ipv4Addr::from_bits(bits as u32).into(), Ipv4Addr::from_bits(other as u32).into()),
            ] {
                let named: Range = address.to_string().parse().unwrap();
                prop_assert!(Allowed::new([named]).check(address).is_ok());
                if other != address && local_kind(other).is_some() {
                    prop_assert!(Allowed::new([named]).check(other).is_err());
                }
            }
        }
    }
}
