//! Ranges of addresses, as they are written in a HostDiscovery.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses of one family, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    v4: bool,
    first: u128,
    last: u128,
}

impl Span {
    /// Reads `a/prefix`, `a-b` or `a`. Of a prefix, the addresses that are no host's are left out: network and broadcast address of IPv4 (RFC 1122,
    /// 3.2.1.3; of a /31 both are hosts', RFC 3021), and the routers' anycast address of IPv6 (RFC 4291, 2.6.1; not of a /127, RFC 6164).
    ///
    /// # Errors
    /// What is wrong with it, a clause.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        Self::read(text, false)
    }

    /// The same with all addresses of a prefix: what is not to be asked. The ends of a prefix may be hosts' of a wider network.
    ///
    /// # Errors
    /// What is wrong with it, a clause.
    pub fn whole(text: &str) -> Result<Self, &'static str> {
        Self::read(text, true)
    }

    fn read(text: &str, whole: bool) -> Result<Self, &'static str> {
        let no_address = "is no range: write for example 192.0.2.0/24, 192.0.2.10-192.0.2.40 or 192.0.2.7";
        let ip = |text: &str| text.trim().parse::<IpAddr>().map_err(|_| no_address);
        if let Some((base, bits)) = text.split_once('/') {
            let base = ip(base)?;
            let v4 = base.is_ipv4();
            let width: u32 = if v4 { 32 } else { 128 };
            let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits: u32 = bits
                .parse()
                .ok()
                .filter(|bits| is_number && *bits <= width)
                .ok_or("has a prefix that is no number of bits")?;
            let free = width - bits;
            let hosts = 1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
            let first = number(base);
            if first & hosts != 0 {
                return Err("has an address with bits beyond its prefix: write the first address of the network");
            }
            let last = first | hosts;
            let (first, last) = match (v4, free) {
                (true, 2..) if !whole => (first + 1, last - 1),
                (false, 2..) if !whole => (first + 1, last),
                _ => (first, last),
            };
            return Ok(Self { v4, first, last });
        }
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (ip(first)?, ip(last)?);
            if first.is_ipv4() != last.is_ipv4() {
                return Err("begins with an address of one family and ends with one of the other");
            }
            let span = Self { v4: first.is_ipv4(), first: number(first), last: number(last) };
            return if span.first > span.last { Err("ends before it begins") } else { Ok(span) };
        }
        let one = ip(text)?;
        Ok(Self { v4: one.is_ipv4(), first: number(one), last: number(one) })
    }

    /// How many addresses it has.
    pub fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether it has this one.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let is = |ip: IpAddr| self.v4 == ip.is_ipv4() && (self.first..=self.last).contains(&number(ip));
        is(ip) || matches!(ip, IpAddr::V4(ip) if is(ip.to_ipv6_mapped().into()))
    }

    /// Its addresses, in canonical form.
    pub fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |number| {
            let ip: IpAddr = match u32::try_from(number) {
                Ok(bits) if self.v4 => Ipv4Addr::from_bits(bits).into(),
                _ => Ipv6Addr::from_bits(number).into(),
            };
            ip.to_canonical()
        })
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}
