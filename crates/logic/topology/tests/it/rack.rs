//! Two switches, eight hosts, bonds: in all forms.

use topology::Host;

use crate::kit::{DAY, LEAF_1, LEAF_2, NOW, bond, heard, host, quiet, rack, view};

/// Compares with a file; `GOLDEN=1` writes it.
fn golden(name: &str, found: &str) {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap();
    assert!(found == want, "{name} is otherwise:\n{found}");
}

#[test]
fn each_host_is_at_the_same_port_of_both_switches() {
    let view = view(&rack());
    let ids: Vec<&str> = view.switches.iter().map(|switch| switch.id.as_str()).collect();
    assert_eq!(ids, [LEAF_1.0, LEAF_2.0]);
    assert_eq!(view.switches[0].object.as_deref(), Some("metal/rack-7-left"));
    for (at, switch) in view.switches.iter().enumerate() {
        assert_eq!(switch.ports.len(), 8);
        for (number, port) in switch.ports.iter().enumerate() {
            assert_eq!(port.id, format!("Ethernet1/{}", (number + 1) * 2 + 1), "in the order of people");
            let [nic] = &port.nics[..] else { panic!("{port:?}") };
            assert_eq!(
                (nic.host.as_str(), nic.nic.as_str()),
                (&*format!("metal/node-{}", number + 1), &*format!("eno{}", at + 1))
            );
        }
    }
    for host in &view.hosts {
        let bonds: Vec<Option<&str>> = host.nics.iter().map(|nic| nic.bond.as_deref()).collect();
        assert_eq!(bonds, [Some("bond0"), Some("bond0"), None, None]);
        assert!(!host.stale);
    }
    assert!(view.findings.is_empty(), "{:?}", view.findings);
}

#[test]
fn it_is_told_in_five_forms() {
    let view = view(&rack());
    golden("rack.txt", &view.tree());
    golden("rack.dot", &view.dot());
    golden("rack.mmd", &view.mermaid());
    golden("rack.json", &view.json().unwrap());
    golden("rack.svg", &view.svg());
}

#[test]
fn the_tree_says_what_people_ask() {
    let tree = view(&rack()).tree();
    for line in [
        "leaf-1  00:1c:73:00:00:01  BareMetalSwitch metal/rack-7-left\n",
        "├─ Ethernet1/3  metal/node-1 eno1  25 Gbit/s  bond0  VLAN 10 untagged, 20 storage\n",
        "└─ Ethernet1/17  metal/node-8 eno2  25 Gbit/s  bond0  VLAN 10 untagged, 20 storage\n",
        "   ├─ eno3  no LLDP seen\n   └─ eno4  link down\n",
    ] {
        assert!(tree.contains(line), "{line}\nin\n{tree}");
    }
}

/// Two hosts of the rack, one whose bond is at one switch, one at a port that is somebody else's, one that nobody has listened for, and one without facts.
fn faulty() -> Vec<Host> {
    let mut hosts: Vec<Host> = rack().into_iter().filter(|host| ["node-1", "node-2"].contains(&&*host.name)).collect();
    let nics = vec![heard(3, 1, LEAF_1, "Ethernet1/7"), heard(3, 2, LEAF_1, "Ethernet1/8")];
    hosts.push(Host { network_data: Some(bond(3)), ..host(3, nics) });
    let third = ("10.0.0.3", "spine <3> & \"co\"");
    let nics =
        vec![heard(4, 1, LEAF_1, "Ethernet1/3"), heard(4, 2, LEAF_2, "Ethernet1/9"), heard(4, 3, third, "ge-0/0/1")];
    hosts.push(Host { inspected: Some(NOW - 400 * DAY), ..host(4, nics) });
    hosts.push(host(5, vec![quiet(5, 1), quiet(5, 2)]));
    hosts.push(host(6, vec![]));
    hosts
}

#[test]
fn a_rack_with_faults_is_told_with_them() {
    let view = view(&faulty());
    golden("faulty.txt", &view.tree());
    golden("faulty.svg", &view.svg());
}
