//! DHCP for IPv4: messages. Source: RFC 2131, RFC 2132, RFC 3442 (classless routes). Answers are hostile input.

use std::net::Ipv4Addr;

const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// The server must answer by broadcast: without an address, the client receives nothing else.
const BROADCAST: u16 = 0x8000;

const MASK: u8 = 1;
const ROUTER: u8 = 3;
const DNS: u8 = 6;
const MTU: u8 = 26;
const REQUESTED: u8 = 50;
const LEASE: u8 = 51;
const TYPE: u8 = 53;
const SERVER: u8 = 54;
const PARAMETERS: u8 = 55;
const MAX_SIZE: u8 = 57;
const RENEWAL: u8 = 58;
const CLIENT: u8 = 61;
const ROUTES: u8 = 121;

/// Most routes or servers taken from a lease.
const MAX_ENTRIES: usize = 32;

/// Kinds of messages that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Is there a server?
    Discover,
    /// An offer.
    Offer,
    /// I take this one.
    Request,
    /// It is yours.
    Ack,
    /// It is not.
    Nak,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Discover => 1,
            Self::Offer => 2,
            Self::Request => 3,
            Self::Ack => 5,
            Self::Nak => 6,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Discover, Self::Offer, Self::Request, Self::Ack, Self::Nak].into_iter().find(|kind| kind.code() == code)
    }
}

/// A server's offer or grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Option<Ipv4Addr>,
    /// Prefix length of its network.
    pub prefix: u8,
    /// Server that gave it.
    pub server: Option<Ipv4Addr>,
    /// Routes: destination, prefix length, next hop.
    pub routes: Vec<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Name servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// How long it holds, in seconds.
    pub seconds: u32,
    /// When to ask for more, in seconds.
    pub renewal: u32,
}

/// A client message.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Discover or request.
    pub kind: Kind,
    /// Transaction.
    pub transaction: u32,
    /// Our hardware address.
    pub mac: [u8; 6],
    /// The requested lease.
    pub wanted: Option<&'a Lease>,
    /// The lease is ours and is to be extended.
    pub renew: bool,
}

/// Writes a message.
#[must_use]
pub fn encode(question: &Question<'_>) -> Vec<u8> {
    let mut bytes = vec![0; FIXED];
    // request, Ethernet, six bytes of address
    bytes[..3].copy_from_slice(&[1, 1, 6]);
    bytes[4..8].copy_from_slice(&question.transaction.to_be_bytes());
    bytes[10..12].copy_from_slice(&BROADCAST.to_be_bytes());
    let wanted = question.wanted.and_then(|lease| lease.address);
    if let Some(address) = wanted.filter(|_| question.renew) {
        bytes[12..16].copy_from_slice(&address.octets());
    }
    bytes[28..34].copy_from_slice(&question.mac);
    bytes.extend(COOKIE);
    bytes.extend([TYPE, 1, question.kind.code()]);
    bytes.extend([CLIENT, 7, 1]);
    bytes.extend(question.mac);
    bytes.extend([MAX_SIZE, 2]);
    bytes.extend(1472_u16.to_be_bytes());
    bytes.extend([PARAMETERS, 7, MASK, ROUTER, DNS, MTU, LEASE, RENEWAL, ROUTES]);
    if !question.renew {
        let server = question.wanted.and_then(|lease| lease.server);
        for (code, address) in [(REQUESTED, wanted), (SERVER, server)] {
            if let Some(address) = address {
                bytes.extend([code, 4]);
                bytes.extend(address.octets());
            }
        }
    }
    bytes.push(255);
    // some relays drop messages shorter than BOOTP's
    bytes.resize(bytes.len().max(300), 0);
    bytes
}

/// Options: code and value, values of the same code joined (RFC 3396).
fn options(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found: Vec<(u8, Vec<u8>)> = Vec::new();
    while let Some((&code, rest)) = bytes.split_first() {
        match code {
            0 => bytes = rest,
            255 => break,
            _ => {
                let Some((&length, rest)) = rest.split_first() else { break };
                let Some((value, rest)) = rest.split_at_checked(usize::from(length)) else { break };
                match found.iter_mut().find(|(known, _)| *known == code) {
                    Some((_, all)) => all.extend_from_slice(value),
                    None => found.push((code, value.to_vec())),
                }
                bytes = rest;
            }
        }
    }
    found
}

fn addresses(value: &[u8]) -> Vec<Ipv4Addr> {
    value.as_chunks::<4>().0.iter().take(MAX_ENTRIES).map(|octets| Ipv4Addr::from(*octets)).collect()
}

/// Classless routes: prefix length, as many octets of the destination as it needs, next hop.
fn classless(mut value: &[u8]) -> Option<Vec<(Ipv4Addr, u8, Ipv4Addr)>> {
    let mut routes = Vec::new();
    while let Some((&prefix, rest)) = value.split_first() {
        if prefix > 32 || routes.len() == MAX_ENTRIES {
            return None;
        }
        let (significant, rest) = rest.split_at_checked(usize::from(prefix).div_ceil(8))?;
        let (gateway, rest) = rest.split_first_chunk::<4>()?;
        let mut destination = [0; 4];
        destination[..significant.len()].copy_from_slice(significant);
        let mask = if prefix == 0 { 0 } else { u32::MAX << (32 - u32::from(prefix)) };
        let destination = Ipv4Addr::from(u32::from_be_bytes(destination) & mask);
        routes.push((destination, prefix, Ipv4Addr::from(*gateway)));
        value = rest;
    }
    Some(routes)
}

/// Parses a server's answer to this transaction and hardware address; `None` for other messages and damaged ones.
#[must_use]
pub fn decode(bytes: &[u8], transaction: u32, mac: [u8; 6]) -> Option<(Kind, Lease)> {
    let (fixed, rest) = bytes.split_first_chunk::<FIXED>()?;
    let rest = rest.strip_prefix(&COOKIE)?;
    if fixed[0] != 2 || fixed[4..8] != transaction.to_be_bytes() || fixed[28..34] != mac {
        return None;
    }
    let found = options(rest);
    let value = |code: u8| found.iter().find(|(known, _)| *known == code).map(|(_, value)| value.as_slice());
    let four = |code: u8| value(code).and_then(|value| <[u8; 4]>::try_from(value).ok());
    let kind = Kind::of(*value(TYPE)?.first()?)?;
    let address = Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19]);
    let usable =
        !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback());
    let mask = four(MASK).map_or(u32::MAX << 8, u32::from_be_bytes);
    let routers = value(ROUTER).map(addresses).unwrap_or_default();
    // classless routes replace the router option (RFC 3442)
    let routes = value(ROUTES).and_then(classless).filter(|routes| !routes.is_empty());
    let routes = routes
        .unwrap_or_else(|| routers.first().map(|router| (Ipv4Addr::UNSPECIFIED, 0, *router)).into_iter().collect());
    let seconds = four(LEASE).map_or(3600, u32::from_be_bytes).max(60);
    let lease = Lease {
        address: usable.then_some(address),
        prefix: u8::try_from(mask.leading_ones()).ok()?,
        server: four(SERVER).map(Ipv4Addr::from),
        routes,
        name_servers: value(DNS).map(addresses).unwrap_or_default(),
        mtu: value(MTU)
            .and_then(|value| <[u8; 2]>::try_from(value).ok())
            .map(|value| u32::from(u16::from_be_bytes(value)))
            .filter(|mtu| (576..=9216).contains(mtu)),
        seconds,
        renewal: four(RENEWAL).map_or(seconds / 2, u32::from_be_bytes).clamp(30, seconds),
    };
    (kind == Kind::Nak || lease.address.is_some()).then_some((kind, lease))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

    fn answer(kind: u8, options: &[u8]) -> Vec<u8> {
        let question = Question { kind: Kind::Discover, transaction: 9, mac: OWN, wanted: None, renew: false };
        let mut bytes = encode(&question)[..FIXED].to_vec();
        bytes[0] = 2;
        bytes[16..20].copy_from_slice(&[10, 0, 2, 15]);
        bytes.extend(COOKIE);
        bytes.extend([TYPE, 1, kind]);
        bytes.extend(options);
        bytes.push(255);
        bytes
    }

    #[test]
    fn an_offer_is_read() {
        let options = [
            &[MASK, 4, 255, 255, 255, 0][..],
            &[0, ROUTER, 4, 10, 0, 2, 2],
            &[DNS, 8, 10, 0, 2, 3, 10, 0, 2, 4],
            &[LEASE, 4, 0, 1, 0x51, 0x80],
            &[SERVER, 4, 10, 0, 2, 2],
            &[MTU, 2, 0x23, 0x28],
        ]
        .concat();
        let (kind, lease) = decode(&answer(2, &options), 9, OWN).unwrap();
        assert_eq!(kind, Kind::Offer);
        assert_eq!((lease.address, lease.prefix), (Some([10, 0, 2, 15].into()), 24));
        assert_eq!(lease.routes, [(Ipv4Addr::UNSPECIFIED, 0, [10, 0, 2, 2].into())]);
        assert_eq!(lease.name_servers.len(), 2);
        assert_eq!((lease.seconds, lease.renewal, lease.mtu), (86400, 43200, Some(9000)));
        assert_eq!(decode(&answer(2, &options), 8, OWN), None, "another's transaction");
        assert_eq!(decode(&answer(2, &options), 9, [0; 6]), None, "another's address");
    }

    #[test]
    fn classless_routes_take_the_routers_place_and_may_come_in_parts() {
        let options = [&[ROUTER, 4, 9, 9, 9, 9][..], &[ROUTES, 3, 24, 10, 1], &[ROUTES, 5, 2, 10, 0, 2, 2]].concat();
        let (_, lease) = decode(&answer(5, &options), 9, OWN).unwrap();
        assert_eq!(lease.routes, [([10, 1, 2, 0].into(), 24, [10, 0, 2, 2].into())]);
    }

    #[test]
    fn a_request_names_offer_and_server_and_a_renewal_only_itself() {
        let lease =
            Lease { address: Some([10, 0, 2, 15].into()), server: Some([10, 0, 2, 2].into()), ..Lease::default() };
        let question = Question { kind: Kind::Request, transaction: 1, mac: OWN, wanted: Some(&lease), renew: false };
        let found = options(&encode(&question)[FIXED + 4..]);
        assert!(found.contains(&(REQUESTED, vec![10, 0, 2, 15])) && found.contains(&(SERVER, vec![10, 0, 2, 2])));
        let bytes = encode(&Question { renew: true, ..question });
        assert_eq!(bytes[12..16], [10, 0, 2, 15]);
        assert!(!options(&bytes[FIXED + 4..]).iter().any(|(code, _)| *code == REQUESTED));
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_fail(kind in 0_u8..8, options in prop::collection::vec(any::<u8>(), 0..300), cut in 0_usize..600) {
            let bytes = answer(kind, &options);
            let _ = decode(&bytes[..cut.min(bytes.len())], 9, OWN);
        }
    }
}
