//! Links, addresses and routes by rtnetlink.

use std::io;
use std::net::IpAddr;

use agent_protocol::{BondLink, NetworkAddress, Route};
use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with};

use super::netlink::{ACK, CREATE, DONE, DUMP, EXCL, Message, REPLACE, Request, attributes, messages};

const NEWLINK: u16 = 16;
const DELLINK: u16 = 17;
const NEWADDR: u16 = 20;
const GETADDR: u16 = 22;
const NEWROUTE: u16 = 24;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VLAN_ID: u16 = 1;
const BOND_MODE: u16 = 1;
const BOND_MIIMON: u16 = 3;
const BOND_XMIT_HASH_POLICY: u16 = 14;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;

const IFF_UP: u32 = 1;
/// Use the address at once, without asking whether another has it.
const IFA_F_NODAD: u8 = 2;
const TABLE_MAIN: u8 = 254;
const PROTOCOL_STATIC: u8 = 4;
const TYPE_UNICAST: u8 = 1;
/// Treat the next hop as on this link, regardless of the addresses.
const ONLINK: u32 = 4;

/// Largest datagram read.
const MAX_DATAGRAM: usize = 256 << 10;

/// Most datagrams read for one answer.
const MAX_DATAGRAMS: usize = 4096;

/// Transmit hash policies of a bond, by the kernel's numbers.
const POLICIES: [&str; 6] = ["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"];

fn family(address: IpAddr) -> u8 {
    // AF_INET and AF_INET6 of Linux
    if address.is_ipv4() { 2 } else { 10 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn link_body(index: u32, flags: u32, change: u32) -> Vec<u8> {
    // family, pad, type: 0
    let mut body = vec![0; 4];
    for number in [index, flags, change] {
        body.extend(number.to_ne_bytes());
    }
    body
}

/// Bytes of a hardware address written with colons.
#[must_use]
pub fn mac_bytes(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

fn with_mac(request: Request, mac: Option<&str>) -> Request {
    match mac.and_then(mac_bytes) {
        Some(bytes) => request.attribute(IFLA_ADDRESS, &bytes),
        None => request,
    }
}

/// Sets a link up or down.
#[must_use]
pub fn set_up(index: u32, up: bool) -> Request {
    Request::new(NEWLINK, ACK, 1, &link_body(index, u32::from(up) * IFF_UP, IFF_UP))
}

/// Sets a link's MTU in bytes.
#[must_use]
pub fn set_mtu(index: u32, mtu: u32) -> Request {
    Request::new(NEWLINK, ACK, 1, &link_body(index, 0, 0)).number(IFLA_MTU, mtu)
}

/// Makes a link a port of a bond.
#[must_use]
pub fn set_master(index: u32, master: u32) -> Request {
    Request::new(NEWLINK, ACK, 1, &link_body(index, 0, 0)).number(IFLA_MASTER, master)
}

/// Removes a link that is not a device.
#[must_use]
pub fn delete(index: u32) -> Request {
    Request::new(DELLINK, ACK, 1, &link_body(index, 0, 0))
}

/// Makes a VLAN on a link.
#[must_use]
pub fn add_vlan(name: &str, parent: u32, vlan: u16, mac: Option<&str>) -> Request {
    let request = Request::new(NEWLINK, ACK | CREATE | EXCL, 1, &link_body(0, 0, 0));
    with_mac(request.text(IFLA_IFNAME, name).number(IFLA_LINK, parent), mac).nest(IFLA_LINKINFO, |info| {
        info.text(INFO_KIND, "vlan").nest(INFO_DATA, |data| data.attribute(VLAN_ID, &vlan.to_ne_bytes()))
    })
}

/// Makes a bond without ports.
#[must_use]
pub fn add_bond(name: &str, bond: &BondLink) -> Request {
    let policy = bond.xmit_hash_policy.as_deref().and_then(|name| POLICIES.iter().position(|known| *known == name));
    let request = Request::new(NEWLINK, ACK | CREATE | EXCL, 1, &link_body(0, 0, 0));
    with_mac(request.text(IFLA_IFNAME, name), bond.mac.as_deref()).nest(IFLA_LINKINFO, |info| {
        info.text(INFO_KIND, "bond").nest(INFO_DATA, |data| {
            let data = data.attribute(BOND_MODE, &[bond.mode]).number(BOND_MIIMON, bond.miimon);
            match policy.and_then(|number| u8::try_from(number).ok()) {
                Some(number) => data.attribute(BOND_XMIT_HASH_POLICY, &[number]),
                None => data,
            }
        })
    })
}

/// Gives a link an address.
#[must_use]
pub fn add_address(index: u32, address: NetworkAddress) -> Request {
    let mut body = vec![family(address.address), address.prefix, IFA_F_NODAD, 0];
    body.extend(index.to_ne_bytes());
    let bytes = octets(address.address);
    Request::new(NEWADDR, ACK | CREATE | REPLACE, 1, &body).attribute(IFA_LOCAL, &bytes).attribute(IFA_ADDRESS, &bytes)
}

/// Adds a route through a link; `onlink` when no address of the link's network covers the next hop.
#[must_use]
pub fn add_route(index: u32, route: Route, metric: u32, onlink: bool) -> Request {
    let mut body = vec![family(route.gateway), route.prefix, 0, 0, TABLE_MAIN, PROTOCOL_STATIC, 0, TYPE_UNICAST];
    body.extend((u32::from(onlink) * ONLINK).to_ne_bytes());
    let request = Request::new(NEWROUTE, ACK | CREATE | REPLACE, 1, &body);
    let request = if route.prefix == 0 { request } else { request.attribute(RTA_DST, &octets(route.destination)) };
    let request = request.number(RTA_OIF, index).attribute(RTA_GATEWAY, &octets(route.gateway));
    if metric == 0 { request } else { request.number(RTA_PRIORITY, metric) }
}

/// Interface index and address of an answer to a dump of addresses. Hostile input.
#[must_use]
pub fn read_address(message: Message<'_>) -> Option<(u32, IpAddr)> {
    let (body, rest) = message.payload.split_first_chunk::<8>().filter(|_| message.kind == NEWADDR)?;
    let index = u32::from_ne_bytes([body[4], body[5], body[6], body[7]]);
    let found = attributes(rest);
    let value = |kind| found.iter().find(|(known, _)| *known == kind).map(|(_, value)| *value);
    let bytes = value(IFA_LOCAL).or_else(|| value(IFA_ADDRESS))?;
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some((index, address))
}

/// A socket to the kernel.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
}

impl Socket {
    /// Opens it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // protocol 0 is NETLINK_ROUTE
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&descriptor, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { descriptor })
    }

    fn exchange(&self, request: Request, each: &mut dyn FnMut(Message<'_>)) -> io::Result<()> {
        let bytes = request.finish();
        sendto(&self.descriptor, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = vec![0; MAX_DATAGRAM];
        for _ in 0..MAX_DATAGRAMS {
            let (_, length) = recv(&self.descriptor, &mut buffer[..], RecvFlags::empty())?;
            for message in messages(buffer.get(..length).unwrap_or(&buffer)) {
                match message.error() {
                    Some(0) => return Ok(()),
                    Some(code) => return Err(io::Error::from_raw_os_error(code)),
                    None if message.kind == DONE => return Ok(()),
                    None => each(message),
                }
            }
        }
        Err(io::Error::other("the kernel's answer has no end"))
    }

    /// Sends a request and waits for its acknowledgement.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn request(&self, request: Request) -> io::Result<()> {
        self.exchange(request, &mut |_| {})
    }

    /// All addresses, by interface index.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn addresses(&self) -> io::Result<Vec<(u32, IpAddr)>> {
        let mut found = Vec::new();
        let request = Request::new(GETADDR, DUMP, 1, &[0; 8]);
        self.exchange(request, &mut |message| found.extend(read_address(message)))?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(request: Request) -> Vec<u8> {
        let bytes = request.finish();
        messages(&bytes)[0].payload.to_vec()
    }

    #[test]
    fn a_vlan_names_parent_and_number() {
        let bytes = payload(add_vlan("bond0.7", 5, 7, Some("52:54:00:00:00:0a")));
        let found = attributes(&bytes[16..]);
        assert_eq!(found[0], (IFLA_IFNAME, &b"bond0.7\0"[..]));
        assert_eq!(found[1], (IFLA_LINK, &5_u32.to_ne_bytes()[..]));
        assert_eq!(found[2], (IFLA_ADDRESS, &[0x52, 0x54, 0, 0, 0, 0x0a][..]));
        let info = attributes(found[3].1);
        assert_eq!(info[0], (INFO_KIND, &b"vlan\0"[..]));
        assert_eq!(attributes(info[1].1), [(VLAN_ID, &7_u16.to_ne_bytes()[..])]);
    }

    #[test]
    fn a_bond_has_mode_monitoring_and_policy() {
        let bond =
            BondLink { ports: vec![], mode: 4, miimon: 100, xmit_hash_policy: Some("layer3+4".into()), mac: None };
        let bytes = payload(add_bond("bond0", &bond));
        let found = attributes(&bytes[16..]);
        let info = attributes(found[1].1);
        let data = attributes(info[1].1);
        assert_eq!(data[0], (BOND_MODE, &[4][..]));
        assert_eq!(data[2], (BOND_XMIT_HASH_POLICY, &[1][..]));
    }

    #[test]
    fn a_default_route_has_no_destination() {
        let route = Route { destination: [0; 4].into(), prefix: 0, gateway: [10, 0, 0, 1].into() };
        let bytes = payload(add_route(2, route, 7, true));
        assert_eq!(&bytes[..2], &[2, 0]);
        assert_eq!(bytes[8..12], ONLINK.to_ne_bytes());
        let kinds: Vec<u16> = attributes(&bytes[12..]).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [RTA_OIF, RTA_GATEWAY, RTA_PRIORITY]);
    }

    #[test]
    fn the_kernel_understands_a_dump() {
        let found = Socket::open().and_then(|socket| socket.addresses()).unwrap();
        assert!(found.iter().any(|(index, address)| *index == 1 && address.is_loopback()), "{found:?}");
    }

    #[test]
    fn the_kernels_refusal_arrives() {
        let error = Socket::open().unwrap().request(set_mtu(u32::MAX >> 1, 1500)).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
    }
}
