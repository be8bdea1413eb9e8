//! Whatever hosts have heard.

use inventory::{LinkReport, LinkSeen, Lldp, Nic, Vlan};
use proptest::prelude::*;
use topology::{Declared, Host, Topology};

use crate::kit::{DAY, NOW};

prop_compose! {
    fn nic()(
        name in prop::option::of("[a-z]{0,3}|.{0,300}"),
        mac in prop::option::of("52:54:00:00:0[0-3]:0[0-3]|.{0,20}"),
        switch in prop::option::of("[ab]|.{0,200}"),
        port in prop::option::of("[12]{0,3}|.{0,200}"),
        system in prop::option::of("[ab]|.{0,300}"),
        speed in prop::option::of(any::<i64>()),
        vlans in prop::collection::vec((any::<i32>(), prop::option::of(".{0,40}")), 0..4),
        untagged in prop::option::of(any::<i32>()),
        spoken in any::<bool>(),
    ) -> Nic {
        Nic {
            name, mac,
            lldp: spoken.then_some(Lldp { switch_id: switch, port_id: port, switch_system_name: system }),
            speed_gbps: speed,
            vlan_id: untagged,
            vlans: vlans.into_iter().map(|(id, name)| Vlan { id: Some(id), name }).collect(),
            ..Nic::default()
        }
    }
}

prop_compose! {
    fn host()(
        name in "[a-z]{1,2}|.{0,80}",
        nics in prop::collection::vec(nic(), 0..6),
        links in prop::collection::vec(("[a-z]{0,3}", 0_usize..4, any::<u32>()), 0..4),
        declared in prop::collection::vec((prop::option::of("[a-z]{0,3}"), ".{0,20}", ".{0,20}"), 0..3),
        network_data in prop::option::of(".{0,60}"),
        inspected in prop::option::of(any::<i64>()),
    ) -> Host {
        let seen = [LinkSeen::Heard, LinkSeen::Silent, LinkSeen::Down, LinkSeen::Unheard];
        Host {
            namespace: "n".into(), name, nics,
            links: links.into_iter().map(|(nic, at, neighbours)| LinkReport { nic, seen: seen[at], neighbours }).collect(),
            declared: declared.into_iter().map(|(nic, switch_id, port_id)| Declared { nic, mac: None, switch_id, port_id }).collect(),
            network_data, inspected,
        }
    }
}

proptest! {
    #[test]
    fn every_interface_is_told_once_and_all_forms_are_printable(hosts in prop::collection::vec(host(), 0..6)) {
        let view = Topology::of(&hosts, &[], NOW, DAY);
        let attached: usize = view.switches.iter().flat_map(|switch| &switch.ports).map(|port| port.nics.len()).sum();
        let known = view.hosts.iter().flat_map(|host| &host.nics).filter(|nic| nic.switch_id.is_some()).count();
        prop_assert_eq!(attached, known);
        prop_assert_eq!(view.hosts.len(), hosts.len());
        for text in [view.tree(), view.dot(), view.mermaid(), view.svg(), view.json().unwrap()] {
            prop_assert!(text.chars().all(|c| c == '\n' || terms::is_printable(c)), "{text:?}");
        }
        // Tags are closed, and only ours are there.
        let svg = view.svg();
        prop_assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
        prop_assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }
}
