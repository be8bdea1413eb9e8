//! OpenStack network data (`network_data.json`), and the validated plan made from it.
//!
//! Shape: OpenStack nova, `doc/api_schemas/network_data.json`; the same document serves the agent (preprovisioning network data)
//! and, unchanged, the installed system. Unknown fields are ignored, not refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Most links, networks, routes or name servers in one document.
const MAX_ENTRIES: usize = 256;

/// `network_data.json` as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NetworkData {
    /// Interfaces, VLANs and bonds.
    #[serde(default)]
    pub links: Vec<RawLink>,
    /// Addresses on links.
    #[serde(default)]
    pub networks: Vec<RawNetwork>,
    /// Name servers.
    #[serde(default)]
    pub services: Vec<RawService>,
}

/// A link as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawLink {
    /// Name that networks and other links refer to.
    pub id: String,
    /// `phy`, `vlan`, `bond` and others that mean a physical port.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Hardware address of a physical port or bond.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ethernet_mac_address: Option<String>,
    /// MTU in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Parent of a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_link: Option<String>,
    /// VLAN id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<u16>,
    /// Hardware address of a VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_mac_address: Option<String>,
    /// Ports of a bond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bond_links: Vec<String>,
    /// Linux bonding mode, by name (`802.3ad`, `active-backup`, …) or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond_mode: Option<String>,
    /// Link monitoring interval in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond_miimon: Option<u32>,
    /// Transmit hash policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond_xmit_hash_policy: Option<String>,
}

/// A network as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawNetwork {
    /// Name.
    #[serde(default)]
    pub id: String,
    /// `ipv4`, `ipv4_dhcp`, `ipv6`, `ipv6_dhcp`, `ipv6_slaac`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Link it is on.
    pub link: String,
    /// Address, perhaps with `/prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    /// Netmask or prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netmask: Option<String>,
    /// Default gateway (some producers put it here instead of in `routes`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RawRoute>,
    /// Name servers of this network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_nameservers: Vec<String>,
}

/// A route as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawRoute {
    /// Destination, perhaps with `/prefix`.
    pub network: String,
    /// Netmask or prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netmask: Option<String>,
    /// Next hop.
    pub gateway: String,
}

/// A service as given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RawService {
    /// `dns`.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Address.
    pub address: String,
}

/// Why network data cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDataError(pub String);

impl std::fmt::Display for NetworkDataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "network data cannot be used: {}", self.0)
    }
}

impl std::error::Error for NetworkDataError {}

/// The configuration, in an order that works: parents before children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// Links.
    pub links: Vec<Link>,
    /// Name servers, in order, without repetition.
    pub name_servers: Vec<IpAddr>,
}

/// One link to bring up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name in the document; also the interface name of a VLAN or bond (shortened to 15 bytes).
    pub id: String,
    /// Kind.
    pub kind: LinkKind,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Static addresses.
    pub addresses: Vec<NetworkAddress>,
    /// Routes through it.
    pub routes: Vec<Route>,
    /// Request a lease by DHCP (IPv4).
    pub dhcp4: bool,
    /// Leave IPv6 to router advertisements and DHCPv6.
    pub auto6: bool,
}

/// Kinds of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// A port, found by its hardware address (lower case, colons).
    Physical {
        /// Hardware address.
        mac: String,
    },
    /// A VLAN.
    Vlan(VlanLink),
    /// A bond.
    Bond(BondLink),
}

/// A VLAN on another link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanLink {
    /// Parent's id.
    pub parent: String,
    /// 1 to 4094.
    pub vlan: u16,
    /// Own hardware address.
    pub mac: Option<String>,
}

/// A bond of physical links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondLink {
    /// Ports' ids.
    pub ports: Vec<String>,
    /// Linux bonding mode, 0 to 6.
    pub mode: u8,
    /// Link monitoring interval in ms.
    pub miimon: u32,
    /// Transmit hash policy by Linux's name.
    pub xmit_hash_policy: Option<String>,
    /// Own hardware address.
    pub mac: Option<String>,
}

/// An address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkAddress {
    /// Address.
    pub address: IpAddr,
    /// Prefix length.
    pub prefix: u8,
}

/// A route; the default route has prefix 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination.
    pub destination: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// Next hop.
    pub gateway: IpAddr,
}

const BOND_MODES: [&str; 7] =
    ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"];

fn fail<T>(text: String) -> Result<T, NetworkDataError> {
    Err(NetworkDataError(text))
}

fn mac_of(text: &str, of: &str) -> Result<String, NetworkDataError> {
    let lower = text.trim().to_ascii_lowercase();
    let sound = lower.split(':').count() == 6
        && lower.split(':').all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
    if sound { Ok(lower) } else { fail(format!("{of}: \"{text}\" is not a hardware address")) }
}

fn address_of(text: &str, of: &str) -> Result<IpAddr, NetworkDataError> {
    text.trim().parse().or_else(|_| fail(format!("{of}: \"{text}\" is not an IP address")))
}

/// Prefix length from `/n` behind the address, a number, or a dotted mask; default is the whole address.
fn cidr(text: &str, mask: Option<&str>, of: &str) -> Result<(IpAddr, u8), NetworkDataError> {
    let (address, suffix) = match text.split_once('/') {
        Some((a, p)) => (a, Some(p)),
        None => (text, mask),
    };
    let address = address_of(address, of)?;
    let widest = if address.is_ipv4() { 32 } else { 128 };
    let Some(suffix) = suffix.map(str::trim) else { return Ok((address, widest)) };
    if let Ok(n) = suffix.parse::<u8>() {
        return if n <= widest {
            Ok((address, n))
        } else {
            fail(format!("{of}: prefix {n} is longer than the address"))
        };
    }
    let bits: u128 = match address_of(suffix, of)? {
        IpAddr::V4(m) => u128::from(u32::from(m)) << 96,
        IpAddr::V6(m) => u128::from(m),
    };
    let ones = bits.leading_ones();
    if bits.count_ones() != ones {
        return fail(format!("{of}: \"{suffix}\" is not a netmask"));
    }
    u8::try_from(ones)
        .ok()
        .filter(|n| *n <= widest)
        .map_or_else(|| fail(format!("{of}: bad netmask")), |n| Ok((address, n)))
}

impl NetworkData {
    /// Parses JSON and checks it.
    ///
    /// # Errors
    /// [`NetworkDataError`] that names the entry at fault.
    pub fn from_json(text: &str) -> Result<(Self, NetworkPlan), NetworkDataError> {
        let data: Self = serde_json::from_str(text).map_err(|e| NetworkDataError(e.to_string()))?;
        let plan = data.plan()?;
        Ok((data, plan))
    }

    /// Checks references, addresses and kinds, and sorts parents before children.
    ///
    /// # Errors
    /// [`NetworkDataError`] that names the faulty entry.
    pub fn plan(&self) -> Result<NetworkPlan, NetworkDataError> {
        if self.links.len().max(self.networks.len()).max(self.services.len()) > MAX_ENTRIES {
            return fail(format!("more than {MAX_ENTRIES} entries"));
        }
        let mut ids = BTreeSet::new();
        for link in &self.links {
            if link.id.is_empty() || !ids.insert(link.id.as_str()) {
                return fail(format!("link id \"{}\" is empty or used twice", link.id));
            }
        }
        let mut links = BTreeMap::new();
        for link in &self.links {
            links.insert(link.id.clone(), link.check(&ids)?);
        }
        let mut plan = NetworkPlan::default();
        for network in &self.networks {
            let Some(link) = links.get_mut(&network.link) else {
                return fail(format!("network \"{}\" names the unknown link \"{}\"", network.id, network.link));
            };
            network.apply(link, &mut plan.name_servers)?;
        }
        for service in self.services.iter().filter(|s| s.kind == "dns") {
            plan.name_servers.push(address_of(&service.address, "services")?);
        }
        let mut seen = BTreeSet::new();
        plan.name_servers.retain(|a| seen.insert(*a));
        plan.links = order(&self.links, links)?;
        Ok(plan)
    }
}

/// Parents before children, otherwise in the document's order.
fn order(raw: &[RawLink], mut links: BTreeMap<String, Link>) -> Result<Vec<Link>, NetworkDataError> {
    let mut done: Vec<Link> = Vec::new();
    while !links.is_empty() {
        let before = links.len();
        for id in raw.iter().map(|l| &l.id) {
            let ready = links.get(id).is_some_and(|l| {
                let parents: Vec<&String> = match &l.kind {
                    LinkKind::Physical { .. } => vec![],
                    LinkKind::Vlan(v) => vec![&v.parent],
                    LinkKind::Bond(b) => b.ports.iter().collect(),
                };
                parents.iter().all(|p| !links.contains_key(*p))
            });
            if ready && let Some(link) = links.remove(id) {
                done.push(link);
            }
        }
        if links.len() == before {
            return fail(format!("links {:?} refer to each other in a circle", links.keys().collect::<Vec<_>>()));
        }
    }
    Ok(done)
}

impl RawLink {
    fn check(&self, ids: &BTreeSet<&str>) -> Result<Link, NetworkDataError> {
        let of = format!("link \"{}\"", self.id);
        let known = |id: &str| -> Result<(), NetworkDataError> {
            if ids.contains(id) { Ok(()) } else { fail(format!("{of} names the unknown link \"{id}\"")) }
        };
        let own_mac = self.ethernet_mac_address.as_deref().map(|m| mac_of(m, &of)).transpose()?;
        let kind = match self.kind.as_str() {
            "vlan" => {
                let Some(parent) = &self.vlan_link else { return fail(format!("{of} is a VLAN without vlan_link")) };
                known(parent)?;
                let vlan = self.vlan_id.filter(|v| (1..=4094).contains(v));
                let Some(vlan) = vlan else { return fail(format!("{of}: vlan_id must be 1 to 4094")) };
                let mac = self.vlan_mac_address.as_deref().map(|m| mac_of(m, &of)).transpose()?;
                LinkKind::Vlan(VlanLink { parent: parent.clone(), vlan, mac })
            }
            "bond" => {
                if self.bond_links.is_empty() || self.bond_links.len() > 16 {
                    return fail(format!("{of} is a bond of {} links; 1 to 16 can be", self.bond_links.len()));
                }
                self.bond_links.iter().try_for_each(|l| known(l))?;
                let mode = self.bond_mode.as_deref().unwrap_or("802.3ad");
                let number = BOND_MODES.iter().position(|m| *m == mode).or_else(|| mode.parse().ok());
                let Some(mode) = number.and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 6) else {
                    return fail(format!("{of}: bond_mode \"{mode}\" is none of {}", BOND_MODES.join(", ")));
                };
                LinkKind::Bond(BondLink {
                    ports: self.bond_links.clone(),
                    mode,
                    miimon: self.bond_miimon.unwrap_or(100),
                    xmit_hash_policy: self.bond_xmit_hash_policy.clone(),
                    mac: own_mac,
                })
            }
            _ => match own_mac {
                Some(mac) => LinkKind::Physical { mac },
                None => return fail(format!("{of} has no ethernet_mac_address")),
            },
        };
        Ok(Link {
            id: self.id.clone(),
            kind,
            mtu: self.mtu,
            addresses: vec![],
            routes: vec![],
            dhcp4: false,
            auto6: false,
        })
    }
}

impl RawNetwork {
    fn apply(&self, link: &mut Link, dns: &mut Vec<IpAddr>) -> Result<(), NetworkDataError> {
        let of = format!("network \"{}\"", self.id);
        match self.kind.as_str() {
            "ipv4_dhcp" => link.dhcp4 = true,
            "ipv6_dhcp" | "ipv6_slaac" | "ipv6_dhcpv6-stateful" | "ipv6_dhcpv6-stateless" => link.auto6 = true,
            "ipv4" | "ipv6" => {
                let Some(address) = &self.ip_address else { return fail(format!("{of} has no ip_address")) };
                let (address, prefix) = cidr(address, self.netmask.as_deref(), &of)?;
                link.addresses.push(NetworkAddress { address, prefix });
            }
            other => {
                return fail(format!("{of}: type \"{other}\" is none of ipv4, ipv4_dhcp, ipv6, ipv6_dhcp, ipv6_slaac"));
            }
        }
        if self.routes.len().max(self.dns_nameservers.len()) > MAX_ENTRIES {
            return fail(format!("{of} has more than {MAX_ENTRIES} routes or name servers"));
        }
        for route in &self.routes {
            let (destination, prefix) = cidr(&route.network, route.netmask.as_deref(), &of)?;
            link.routes.push(Route { destination, prefix, gateway: address_of(&route.gateway, &of)? });
        }
        if let Some(gateway) = &self.gateway {
            let gateway = address_of(gateway, &of)?;
            let destination = if gateway.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0u16; 8]) };
            let route = Route { destination, prefix: 0, gateway };
            if !link.routes.contains(&route) {
                link.routes.push(route);
            }
        }
        for server in &self.dns_nameservers {
            dns.push(address_of(server, &of)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_on_a_bond_is_ordered_after_its_parents() {
        let text = r#"{"links":[
            {"id":"bond0.7","type":"vlan","vlan_link":"bond0","vlan_id":7},
            {"id":"bond0","type":"bond","bond_links":["a","b"],"bond_mode":"active-backup"},
            {"id":"a","type":"phy","ethernet_mac_address":"52:54:00:00:00:0A"},
            {"id":"b","type":"phy","ethernet_mac_address":"52:54:00:00:00:0b","mtu":9000}],
          "networks":[{"id":"n","type":"ipv4","link":"bond0.7","ip_address":"10.1.2.3","netmask":"255.255.255.0",
            "routes":[{"network":"0.0.0.0","netmask":"0.0.0.0","gateway":"10.1.2.1"}]}],
          "services":[{"type":"dns","address":"10.0.0.53"},{"type":"dns","address":"10.0.0.53"}]}"#;
        let (_, plan) = NetworkData::from_json(text).unwrap();
        let ids: Vec<&str> = plan.links.iter().map(|l| l.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "bond0", "bond0.7"]);
        assert_eq!(plan.name_servers.len(), 1);
        let vlan = &plan.links[3];
        assert_eq!(vlan.addresses[0].prefix, 24);
        assert_eq!(vlan.routes[0].prefix, 0);
        assert_eq!(plan.links[0].kind, LinkKind::Physical { mac: "52:54:00:00:00:0a".into() });
    }

    #[test]
    fn faults_are_named() {
        let cases = [
            (r#"{"networks":[{"id":"n","type":"ipv4","link":"x","ip_address":"1.2.3.4"}]}"#, "unknown link \"x\""),
            (
                r#"{"links":[{"id":"v","type":"vlan","vlan_link":"w","vlan_id":1},{"id":"w","type":"vlan","vlan_link":"v","vlan_id":1}]}"#,
                "circle",
            ),
            (r#"{"links":[{"id":"v","type":"phy"}]}"#, "no ethernet_mac_address"),
            (
                r#"{"links":[{"id":"v","type":"phy","ethernet_mac_address":"52:54:00:00:00:0b"}],"networks":[{"id":"n","type":"ipv4","link":"v","ip_address":"1.2.3.4","netmask":"255.0.255.0"}]}"#,
                "not a netmask",
            ),
        ];
        for (text, want) in cases {
            let error = NetworkData::from_json(text).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
