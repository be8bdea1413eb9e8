//! What contradicts itself, and what is worth knowing.

use inventory::{LinkReport, LinkSeen, Nic};
use topology::{Declared, Host, Kind, Level, SeenAs, Topology};

use crate::kit::{DAY, LEAF_1, LEAF_2, NOW, bond, heard, host, link, quiet, rack, view};

fn kinds(view: &Topology) -> Vec<Kind> {
    view.findings.iter().map(|finding| finding.kind).collect()
}

fn messages(view: &Topology) -> String {
    view.findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("\n")
}

#[test]
fn one_port_cannot_have_two_hosts() {
    let hosts = [host(1, vec![heard(1, 1, LEAF_1, "e1")]), host(2, vec![heard(2, 1, LEAF_1, "e1")])];
    let view = view(&hosts);
    let [finding] = &view.findings[..] else { panic!("{:?}", view.findings) };
    assert_eq!((finding.kind, finding.level), (Kind::PortOfTwoHosts, Level::Contradiction));
    assert_eq!(finding.message, "leaf-1 e1 is where metal/node-1 eno1, metal/node-2 eno1 are");
    assert_eq!(
        (&finding.hosts[..], finding.port_id.as_deref()),
        (&["metal/node-1".to_owned(), "metal/node-2".to_owned()][..], Some("e1"))
    );
    assert!(view.tree().contains("e1  2 interfaces\n   ├─ metal/node-1 eno1"), "{}", view.tree());
    assert!(view.svg().contains("! e1") && view.dot().contains("color=red"));
    // A card that shows one port as several interfaces is meant so.
    let parted = [host(1, vec![heard(1, 1, LEAF_1, "e1"), heard(1, 2, LEAF_1, "e1")])];
    assert_eq!(kinds(&crate::kit::view(&parted)), [Kind::NoSwitchRedundancy, Kind::PortOfTwoInterfaces]);
}

#[test]
fn legs_of_a_bond_belong_to_two_switches_with_the_same_vlans_and_speeds() {
    let bonded = |nics: Vec<Nic>, links: Vec<LinkReport>| Host { network_data: Some(bond(1)), links, ..host(1, nics) };
    let one_switch = view(&[bonded(vec![heard(1, 1, LEAF_1, "e1"), heard(1, 2, LEAF_1, "e2")], vec![])]);
    assert_eq!(kinds(&one_switch), [Kind::BondOnOneSwitch]);
    assert!(
        messages(&one_switch).starts_with("metal/node-1 bond0: all its legs are at leaf-1"),
        "{}",
        messages(&one_switch)
    );
    let mut other = heard(1, 2, LEAF_2, "e1");
    (other.vlan_id, other.speed_gbps) = (Some(11), Some(10));
    let differs = view(&[bonded(vec![heard(1, 1, LEAF_1, "e1"), other], vec![])]);
    assert_eq!(kinds(&differs), [Kind::BondOfDifferentVlans, Kind::BondOfDifferentSpeeds]);
    assert!(messages(&differs).contains("eno1 25 Gbit/s, eno2 10 Gbit/s"), "{}", messages(&differs));
    // A switch that tells no VLAN may have any.
    let mut silent = heard(1, 2, LEAF_2, "e1");
    (silent.vlan_id, silent.vlans) = (None, vec![]);
    assert!(view(&[bonded(vec![heard(1, 1, LEAF_1, "e1"), silent], vec![])]).findings.is_empty());
    let down = view(&[bonded(vec![heard(1, 1, LEAF_1, "e1"), quiet(1, 2)], vec![link(2, LinkSeen::Down)])]);
    assert_eq!(kinds(&down), [Kind::BondLegDown]);
    // Whatever port is declared for it.
    let declared = Declared { nic: Some("eno2".into()), mac: None, switch_id: LEAF_2.0.into(), port_id: "e2".into() };
    let down = bonded(vec![heard(1, 1, LEAF_1, "e1"), quiet(1, 2)], vec![link(2, LinkSeen::Down)]);
    let down = view(&[Host { declared: vec![declared], ..down }]);
    assert_eq!(kinds(&down), [Kind::BondLegDown]);
    assert!(down.tree().contains("eno2  bond0  declared, link down"), "{}", down.tree());
    // A Secret that is no network data, perhaps because another was meant.
    let two = vec![heard(1, 1, LEAF_1, "e1"), heard(1, 2, LEAF_1, "e2")];
    let bad = view(&[Host { network_data: Some("\"hunter2\"".into()), ..host(1, two) }]);
    assert_eq!(kinds(&bad), [Kind::NetworkDataUnreadable]);
    assert!(!bad.json().unwrap().contains("hunter2") && !bad.tree().contains("hunter2"));
}

#[test]
fn all_cables_of_a_host_at_one_switch_are_worth_a_note() {
    let single = host(1, vec![heard(1, 1, LEAF_1, "e1"), heard(1, 2, LEAF_1, "e2"), quiet(1, 3)]);
    assert_eq!(kinds(&view(&[single])), [Kind::NoSwitchRedundancy]);
    let one = host(1, vec![heard(1, 1, LEAF_1, "e1")]);
    let two = host(2, vec![heard(2, 1, LEAF_1, "e2"), heard(2, 2, LEAF_2, "e2")]);
    assert!(kinds(&view(&[one, two])).is_empty());
}

#[test]
fn switches_have_one_name_and_names_one_switch() {
    let renamed =
        view(&[host(1, vec![heard(1, 1, LEAF_1, "e1")]), host(2, vec![heard(2, 1, (LEAF_1.0, "old"), "e2")])]);
    assert_eq!((kinds(&renamed), renamed.switches.len()), (vec![Kind::SwitchOfTwoNames], 1));
    let twice =
        view(&[host(1, vec![heard(1, 1, LEAF_1, "e1")]), host(2, vec![heard(2, 1, (LEAF_2.0, LEAF_1.1), "e2")])]);
    assert_eq!((kinds(&twice), twice.switches.len()), (vec![Kind::NameOfTwoSwitches], 2));
    // One id, written differently.
    let upper = view(&[
        host(1, vec![heard(1, 1, LEAF_1, "e1")]),
        host(2, vec![heard(2, 1, ("00-1C-73-00-00-01", "leaf-1"), "e2")]),
    ]);
    assert_eq!((upper.switches.len(), upper.findings.len()), (1, 0));
    // None but a name.
    let mut nameless = heard(1, 1, LEAF_1, "e1");
    nameless.lldp.as_mut().unwrap().switch_id = None;
    assert_eq!(view(&[host(1, vec![nameless])]).switches[0].id, "leaf-1");
}

#[test]
fn what_is_declared_goes_before_what_was_heard_and_a_difference_is_told() {
    let declared = |nic: Option<&str>, mac: Option<&str>, port: &str| Declared {
        nic: nic.map(Into::into),
        mac: mac.map(Into::into),
        switch_id: LEAF_2.0.to_uppercase(),
        port_id: port.into(),
    };
    let with = |nic: Nic, declared: Declared| Host { declared: vec![declared], ..host(1, vec![nic]) };
    let differs = view(&[with(heard(1, 1, LEAF_1, "e1"), declared(Some("eno1"), None, "e9"))]);
    assert_eq!(kinds(&differs), [Kind::DeclaredDiffers]);
    assert_eq!((differs.switches[0].id.as_str(), differs.hosts[0].nics[0].seen), (LEAF_2.0, SeenAs::Declared));
    let agrees = view(&[with(heard(1, 1, LEAF_2, "e1"), declared(None, Some("52:54:00:00:01:01"), "e1"))]);
    assert!(agrees.findings.is_empty());
    assert!(agrees.tree().contains("VLAN 10 untagged, 20 storage  declared\n"), "{}", agrees.tree());
    let heard = agrees.hosts[0].nics[0].heard.as_ref().unwrap();
    assert_eq!((heard.switch.as_str(), heard.port.as_str()), (LEAF_2.0, "e1"));
    let alone = view(&[with(quiet(1, 1), declared(Some("eno1"), None, "e9"))]);
    assert!(alone.tree().contains("e9  metal/node-1 eno1  declared, not heard"), "{}", alone.tree());
    let nobodys = view(&[with(quiet(1, 1), declared(None, None, "e9"))]);
    assert!(nobodys.switches.is_empty());
}

#[test]
fn a_port_that_is_declared_for_an_unknown_interface_is_told() {
    let declared = |nic: Option<&str>, mac: Option<&str>, port: &str| Declared {
        nic: nic.map(Into::into),
        mac: mac.map(Into::into),
        switch_id: LEAF_1.0.into(),
        port_id: port.into(),
    };
    let all = vec![declared(Some("enol"), None, "e1"), declared(None, Some("52:54:00:AA:00:01"), "e2")];
    let fresh = Host { declared: all, ..host(1, vec![]) };
    let view = view(&[fresh, host(2, vec![heard(2, 1, LEAF_1, "e1")])]);
    assert_eq!(
        kinds(&view),
        [Kind::PortOfTwoHosts, Kind::NoSwitchRedundancy, Kind::DeclaredUnknown, Kind::DeclaredUnknown]
    );
    assert!(
        messages(&view).contains("metal/node-1: a switch port is declared for enol, which no inspection has found"),
        "{}",
        messages(&view)
    );
    assert!(view.tree().contains("e2  metal/node-1 52:54:00:aa:00:01  declared, not heard"), "{}", view.tree());
}

#[test]
fn a_port_without_an_id_is_no_contradiction() {
    let nameless = |number: usize| {
        let mut nic = heard(number, 1, LEAF_1, "e1");
        nic.lldp.as_mut().unwrap().port_id = None;
        nic
    };
    assert!(view(&[host(1, vec![nameless(1)]), host(2, vec![nameless(2)])]).findings.is_empty());
    let declared = Declared { nic: Some("eno1".into()), mac: None, switch_id: LEAF_1.0.into(), port_id: "e1".into() };
    assert!(view(&[Host { declared: vec![declared], ..host(1, vec![nameless(1)]) }]).findings.is_empty());
}

#[test]
fn silence_has_reasons() {
    let links = vec![link(1, LinkSeen::Silent), link(2, LinkSeen::Down), link(3, LinkSeen::Unheard)];
    let listened = Host { links, ..host(1, vec![quiet(1, 1), quiet(1, 2), quiet(1, 3)]) };
    let tree = view(&[listened, host(2, vec![quiet(2, 1)]), host(3, vec![])]).tree();
    let want = "at no known switch\n├─ metal/node-1\n│  ├─ eno1  no LLDP seen\n│  ├─ eno2  link down\n│  └─ eno3  not listened to the end\n├─ metal/node-2\n│  └─ eno1  not known whether anybody has listened\n└─ metal/node-3  no interface is known\n";
    assert_eq!(tree, want);
    assert_eq!(view(&[]).tree(), "there are no hosts\n");
}

#[test]
fn several_neighbours_and_old_facts_are_told() {
    let report = LinkReport { nic: "eno1".into(), seen: LinkSeen::Heard, neighbours: 3 };
    let several = Host { links: vec![report], ..host(1, vec![heard(1, 1, LEAF_1, "e1")]) };
    assert_eq!(kinds(&view(&[several])), [Kind::SeveralNeighbours]);
    let old = |age: i64| Host { inspected: Some(NOW - age), ..host(1, vec![]) };
    assert_eq!(kinds(&view(&[old(31 * DAY)])), [Kind::Stale]);
    assert!(view(&[old(30 * DAY)]).findings.is_empty() && view(&[old(-DAY)]).findings.is_empty());
    assert!(view(&[old(31 * DAY)]).svg().contains("(old facts)"));
}

#[test]
fn an_interface_with_two_addresses_is_one() {
    let twice = [heard(1, 1, LEAF_1, "e1"), heard(1, 1, LEAF_1, "e1")].to_vec();
    let view = view(&[host(1, twice)]);
    assert_eq!((view.hosts[0].nics.len(), view.switches[0].ports[0].nics.len(), view.findings.len()), (1, 1, 0));
}

#[test]
fn texts_of_others_stay_texts() {
    let evil = ("</text><script>\"'&`#;\u{1b}[2J\u{fffe}", "\" ] evil\\ <b>&\u{202e}");
    let view = view(&[host(1, vec![heard(1, 1, evil, "\"]--><x>\n`")])]);
    let svg = view.svg();
    assert!(
        !svg.contains("<script") && !svg.contains("<x>") && !svg.contains('\u{fffe}') && svg.contains("&lt;b&gt;"),
        "{svg}"
    );
    let mermaid = view.mermaid();
    assert!(mermaid.lines().all(|line| line.matches('"').count() % 2 == 0 && !line.contains('`')), "{mermaid}");
    let dot = view.dot();
    assert!(dot.contains("\\\" ] evil\\\\ <b>&"), "{dot}");
    for text in [view.tree(), dot, mermaid, svg, view.json().unwrap()] {
        assert!(text.chars().all(|c| c == '\n' || terms::is_printable(c)), "{text:?}");
    }
}

#[test]
fn ten_thousand_hosts_are_no_more_than_their_number() {
    let hosts: Vec<Host> = (0..10_000)
        .map(|number| {
            let switch = |leg: usize| {
                (
                    format!("00:1c:73:00:{:02x}:{:02x}", number / 4000, number / 16 % 250),
                    format!("leaf-{}-{leg}", number / 16),
                )
            };
            let of = |leg: usize| {
                let (id, name) = switch(leg);
                heard(number, leg, (&format!("{leg}{}", &id[1..]), &name), &format!("e{}", number % 16))
            };
            let nics = vec![of(1), of(2)];
            Host { name: format!("node-{number}"), ..host(0, nics) }
        })
        .collect();
    let view = view(&hosts);
    assert_eq!(view.hosts.len(), 10_000);
    let svg = view.svg();
    assert!(svg.len() < 40_000_000 && view.tree().lines().count() > 20_000);
}

#[test]
fn the_order_of_what_is_given_changes_nothing() {
    let mut hosts = rack();
    hosts.push(host(9, vec![heard(9, 1, LEAF_1, "Ethernet1/3")]));
    let before = view(&hosts);
    hosts.reverse();
    let after = view(&hosts);
    assert_eq!((before.svg(), before.dot(), before.tree()), (after.svg(), after.dot(), after.tree()));
}
