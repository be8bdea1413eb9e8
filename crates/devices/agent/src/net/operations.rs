//! The operations that network data requires, in an order in which they succeed. No IO.

use std::collections::BTreeMap;
use std::net::IpAddr;

use agent_protocol::{Link, LinkKind, NetworkAddress, NetworkPlan, Route};
use serde::Serialize;

use crate::machine::NetworkError;

/// Longest name of an interface, in bytes (IFNAMSIZ of Linux, less the zero byte).
const MAX_NAME: usize = 15;

/// An interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Kernel's name.
    pub name: String,
    /// Hardware address, lower case with colons.
    pub mac: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Operation {
    /// Set it down (a port, before it joins a bond).
    Down {
        /// Interface.
        name: String,
    },
    /// Set it up.
    Up {
        /// Interface.
        name: String,
    },
    /// Set the MTU.
    Mtu {
        /// Interface.
        name: String,
        /// Bytes.
        mtu: u32,
    },
    /// Make a bond.
    Bond {
        /// Name to be.
        name: String,
        /// Linux bonding mode, 0 to 6.
        mode: u8,
        /// Link monitoring interval in ms.
        miimon: u32,
        /// Transmit hash policy by Linux's name.
        xmit_hash_policy: Option<String>,
        /// Own hardware address.
        mac: Option<String>,
    },
    /// Make an interface a port of a bond.
    Join {
        /// Port.
        name: String,
        /// Bond.
        bond: String,
    },
    /// Make a VLAN.
    Vlan {
        /// Name to be.
        name: String,
        /// Interface below.
        parent: String,
        /// 1 to 4094.
        vlan: u16,
        /// Own hardware address.
        mac: Option<String>,
    },
    /// Give it an address.
    Address {
        /// Interface.
        name: String,
        /// Address.
        address: IpAddr,
        /// Prefix length.
        prefix: u8,
    },
    /// Add a route through it.
    Route {
        /// Interface.
        name: String,
        /// Destination.
        destination: IpAddr,
        /// Prefix length; 0 for the default route.
        prefix: u8,
        /// Next hop.
        gateway: IpAddr,
        /// No network of the interface covers the next hop.
        onlink: bool,
    },
    /// Request a lease.
    Dhcp {
        /// Interface.
        name: String,
    },
}

/// Operations for a plan on this machine.
///
/// # Errors
/// [`NetworkError::NoInterface`] when a physical link's hardware address is not there.
pub fn operations(plan: &NetworkPlan, interfaces: &[Interface]) -> Result<Vec<Operation>, NetworkError> {
    let mut steps = Vec::new();
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    let mut routes = Vec::new();
    for link in &plan.links {
        let name = match &link.kind {
            LinkKind::Physical { mac } => physical(link, mac, interfaces)?,
            _ => new_name(&link.id, &names, interfaces),
        };
        make(link, &name, &names, &mut steps);
        if let Some(mtu) = link.mtu {
            steps.push(Operation::Mtu { name: name.clone(), mtu });
        }
        steps.push(Operation::Up { name: name.clone() });
        for NetworkAddress { address, prefix } in link.addresses.iter().copied() {
            steps.push(Operation::Address { name: name.clone(), address, prefix });
        }
        for Route { destination, prefix, gateway } in link.routes.iter().copied() {
            let onlink = !link.addresses.iter().any(|address| covers(*address, gateway)) && !is_link_local(gateway);
            routes.push(Operation::Route { name: name.clone(), destination, prefix, gateway, onlink });
        }
        if link.dhcp4 {
            routes.push(Operation::Dhcp { name: name.clone() });
        }
        names.insert(&link.id, name);
    }
    // a route may lead over an address of another link
    steps.extend(routes);
    Ok(steps)
}

fn physical(link: &Link, mac: &str, interfaces: &[Interface]) -> Result<String, NetworkError> {
    let found = interfaces.iter().find(|interface| interface.mac == mac);
    found.map(|interface| interface.name.clone()).ok_or_else(|| NetworkError::NoInterface {
        id: link.id.clone(),
        mac: mac.to_owned(),
        present: interfaces.iter().map(|i| format!("{} {}", i.name, i.mac)).collect::<Vec<_>>().join(", "),
    })
}

/// An interface name that the kernel accepts, close to the document's id and not in use yet.
fn new_name(id: &str, names: &BTreeMap<&str, String>, interfaces: &[Interface]) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let mut base: String = id.chars().map(plain).take(MAX_NAME).collect();
    if base.chars().all(|c| c == '.') {
        base = "link".to_owned();
    }
    let taken =
        |name: &str| names.values().any(|other| other == name) || interfaces.iter().any(|other| other.name == name);
    let mut name = base.clone();
    let mut number = 1;
    while taken(&name) {
        let suffix = format!("-{number}");
        name = format!("{}{suffix}", crate::text::cut(&base, MAX_NAME - suffix.len()));
        number += 1;
    }
    name
}

fn make(link: &Link, name: &str, names: &BTreeMap<&str, String>, steps: &mut Vec<Operation>) {
    let known = |id: &str| names.get(id).cloned();
    match &link.kind {
        LinkKind::Physical { .. } => {}
        LinkKind::Vlan(vlan) => steps.extend(known(&vlan.parent).map(|parent| Operation::Vlan {
            name: name.to_owned(),
            parent,
            vlan: vlan.vlan,
            mac: vlan.mac.clone(),
        })),
        LinkKind::Bond(bond) => {
            steps.push(Operation::Bond {
                name: name.to_owned(),
                mode: bond.mode,
                miimon: bond.miimon,
                xmit_hash_policy: bond.xmit_hash_policy.clone(),
                mac: bond.mac.clone(),
            });
            for port in bond.ports.iter().filter_map(|port| known(port)) {
                steps.push(Operation::Down { name: port.clone() });
                steps.push(Operation::Join { name: port.clone(), bond: name.to_owned() });
                steps.push(Operation::Up { name: port });
            }
        }
    }
}

/// Whether the network of `network` holds `other`.
fn covers(network: NetworkAddress, other: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let ((a, width), (b, other_width)) = (bits(network.address), bits(other));
    width == other_width && (network.prefix == 0 || (a ^ b) >> (128 - u32::from(network.prefix).min(128)) == 0)
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xFFC0 == 0xFE80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_protocol::NetworkData;

    fn machine() -> Vec<Interface> {
        [("eno1", "52:54:00:00:00:0a"), ("eno2", "52:54:00:00:00:0b"), ("bond0", "52:54:00:00:00:0c")]
            .map(|(name, mac)| Interface { name: name.into(), mac: mac.into() })
            .to_vec()
    }

    #[test]
    fn a_vlan_on_a_bond_is_made_from_below() {
        let text = r#"{"links":[
            {"id":"storage network 7","type":"vlan","vlan_link":"bond0","vlan_id":7},
            {"id":"bond0","type":"bond","bond_links":["a","b"],"bond_mode":"active-backup"},
            {"id":"a","type":"phy","ethernet_mac_address":"52:54:00:00:00:0A"},
            {"id":"b","type":"phy","ethernet_mac_address":"52:54:00:00:00:0b","mtu":9000}],
          "networks":[{"id":"n","type":"ipv4","link":"storage network 7","ip_address":"10.1.2.3/24",
            "routes":[{"network":"0.0.0.0/0","gateway":"10.9.9.9"}]}]}"#;
        let (_, plan) = NetworkData::from_json(text).unwrap();
        let steps = operations(&plan, &machine()).unwrap();
        let json: Vec<String> = steps.iter().map(|step| serde_json::to_string(step).unwrap()).collect();
        let text = json.join("\n");
        // an interface of the machine is called bond0 already
        for (before, after) in [
            (r#""do":"mtu","name":"eno2""#, r#""do":"bond","name":"bond0-1","mode":1"#),
            (r#""do":"down","name":"eno2""#, r#""do":"join","name":"eno2","bond":"bond0-1""#),
            (r#""do":"join","name":"eno2""#, r#""do":"vlan","name":"storage-network","parent":"bond0-1","vlan":7"#),
            (r#""do":"address","name":"storage-network""#, r#""do":"route""#),
        ] {
            let (a, b) = (text.find(before), text.find(after));
            assert!(a.is_some() && b.is_some() && a < b, "{before} / {after} in\n{text}");
        }
        assert!(text.contains(r#""onlink":true"#), "{text}");
    }

    #[test]
    fn a_missing_interface_is_named_with_those_that_are_there() {
        let text = r#"{"links":[{"id":"a","type":"phy","ethernet_mac_address":"52:54:00:00:00:ff"}]}"#;
        let (_, plan) = NetworkData::from_json(text).unwrap();
        let error = operations(&plan, &machine()).unwrap_err().to_string();
        assert!(error.contains("52:54:00:00:00:ff") && error.contains("eno1 52:54:00:00:00:0a"), "{error}");
    }

    #[test]
    fn networks_cover_by_prefix() {
        let network = |text: &str, prefix| NetworkAddress { address: text.parse().unwrap(), prefix };
        let other = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(covers(network("10.1.2.3", 24), other("10.1.2.1")));
        assert!(!covers(network("10.1.2.3", 32), other("10.1.2.1")));
        assert!(!covers(network("fd00::1", 64), other("10.1.2.1")));
        assert!(covers(network("fd00::1", 64), other("fd00::ffff")));
    }
}
