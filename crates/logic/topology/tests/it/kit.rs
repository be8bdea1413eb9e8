//! Hosts as an inspection leaves them.

use inventory::{LinkReport, LinkSeen, Lldp, Nic, Vlan};
use topology::{Host, SwitchObject, Topology};

/// 2026-03-01T00:00:00Z.
pub const NOW: i64 = 1_772_323_200;
pub const DAY: i64 = 86_400;

pub const LEAF_1: (&str, &str) = ("00:1c:73:00:00:01", "leaf-1");
pub const LEAF_2: (&str, &str) = ("00:1c:73:00:00:02", "leaf-2");

pub fn mac(host: usize, nic: usize) -> String {
    format!("52:54:00:00:{host:02x}:{nic:02x}")
}

/// An interface that has heard a switch.
pub fn heard(host: usize, nic: usize, switch: (&str, &str), port: &str) -> Nic {
    Nic {
        name: Some(format!("eno{nic}")),
        mac: Some(mac(host, nic)),
        speed_gbps: Some(25),
        vlan_id: Some(10),
        vlans: vec![Vlan { id: Some(10), name: None }, Vlan { id: Some(20), name: Some("storage".into()) }],
        lldp: Some(Lldp {
            switch_id: Some(switch.0.into()),
            port_id: Some(port.into()),
            switch_system_name: Some(switch.1.into()),
        }),
        ..Nic::default()
    }
}

pub fn quiet(host: usize, nic: usize) -> Nic {
    Nic { name: Some(format!("eno{nic}")), mac: Some(mac(host, nic)), speed_gbps: Some(0), ..Nic::default() }
}

pub fn link(nic: usize, seen: LinkSeen) -> LinkReport {
    LinkReport { nic: format!("eno{nic}"), seen, neighbours: 0 }
}

/// Network data with a bond of the first two interfaces.
pub fn bond(host: usize) -> String {
    format!(
        r#"{{"links":[{{"id":"a","type":"phy","ethernet_mac_address":"{}"}},{{"id":"b","type":"phy","ethernet_mac_address":"{}"}},
        {{"id":"bond0","type":"bond","bond_links":["a","b"],"bond_mode":"802.3ad"}},{{"id":"bond0.20","type":"vlan","vlan_link":"bond0","vlan_id":20}}]}}"#,
        mac(host, 1).to_uppercase(),
        mac(host, 2)
    )
}

pub fn host(number: usize, nics: Vec<Nic>) -> Host {
    Host {
        namespace: "metal".into(),
        name: format!("node-{number}"),
        nics,
        inspected: Some(NOW - DAY),
        ..Host::default()
    }
}

/// Eight hosts, each with a bond of a leg at either switch, a port that hears nothing and one without a cable.
pub fn rack() -> Vec<Host> {
    let one = |number: usize| {
        let port = format!("Ethernet1/{}", number * 2 + 1);
        let nics =
            vec![heard(number, 1, LEAF_1, &port), heard(number, 2, LEAF_2, &port), quiet(number, 3), quiet(number, 4)];
        Host {
            network_data: Some(bond(number)),
            links: vec![
                link(1, LinkSeen::Heard),
                link(2, LinkSeen::Heard),
                link(3, LinkSeen::Silent),
                link(4, LinkSeen::Down),
            ],
            ..host(number, nics)
        }
    };
    // The order of the API is nobody's.
    [7, 2, 5, 1, 8, 3, 6, 4].map(one).to_vec()
}

pub fn view(hosts: &[Host]) -> Topology {
    let object =
        SwitchObject { namespace: "metal".into(), name: "rack-7-left".into(), mac: "00-1C-73-00-00-01".into() };
    Topology::of(hosts, &[object], NOW, 30 * DAY)
}
