//! Whose a machine is: rows of what is known and what answers.

use api::metamorph::{DiscoveryApproval, DiscoveryPhase as Phase};
use discovery::{Recorded, Rediscover, identity};

use crate::kit::{World, at, declared, phase, shown, uuid};

fn record(namespace: &str, name: &str, n: u32, key: Option<char>) -> Recorded {
    Recorded {
        namespace: namespace.into(),
        name: name.into(),
        identity: identity(&uuid(n)),
        others: Vec::new(),
        key_sha256: key.map(|key| key.to_string().repeat(64)),
    }
}

#[test]
fn a_machine_that_is_nobodys_becomes_one_host_and_a_second_scan_changes_nothing() {
    let mut world = World::new();
    let found = [(at(7), shown(1, Some('a')))];
    let first = world.scan(&found);
    assert_eq!((first.make.len(), first.pending, phase(&first, at(7))), (1, 1, Phase::Found));
    let second = world.scan(&found);
    assert_eq!((second.make.len(), second.pending), (0, 1));
    assert_eq!(second.machines[0].host, Some(first.make[0].name.clone()));
    assert_eq!(second.machines[0].host_uid, Some("uid-0".into()));
    world.approve(&first.make[0].name);
    let third = world.scan(&found);
    assert_eq!((phase(&third, at(7)), third.pending), (Phase::Approved, 0));
    // It does not answer for a while: it stays listed.
    assert_eq!(world.scan(&[]).machines.len(), 1);
}

#[test]
fn a_declared_machine_is_known_by_its_address_by_whatever_protocol() {
    for (namespace, address) in [
        ("n", "redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1"),
        ("other", "redfish://192.0.2.7"),
        ("n", "ipmi://192.0.2.7:623"),
    ] {
        let mut world = World::new();
        world.hosts.push(declared(namespace, "mine", address));
        let verdict = world.judge(&[(at(7), shown(1, Some('a')))]);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Known), "{address}");
        let machine = &verdict.machines[0];
        // Whoever may read this object need not be told names of other namespaces.
        assert_eq!(machine.host.is_some(), namespace == "n");
        assert!(!machine.message.contains("other/") && (namespace == "n" || !machine.message.contains("mine")));
    }
}

#[test]
fn two_addresses_of_one_machine_make_one_host() {
    let mut world = World::new();
    let both = [(at(8), shown(1, Some('a'))), (at(7), shown(1, Some('a')))];
    let verdict = world.scan(&both);
    assert_eq!(verdict.make.len(), 1);
    assert_eq!((phase(&verdict, at(7)), phase(&verdict, at(8))), (Phase::Found, Phase::Known));
    let again = world.scan(&both);
    assert_eq!((again.make.len(), phase(&again, at(7)), phase(&again, at(8))), (0, Phase::Found, Phase::Known));
    // The other one alone, with the first gone: still the same host.
    let moved = world.scan(&both[..1]);
    assert_eq!((moved.make.len(), phase(&moved, at(8))), (0, Phase::Known));
}

#[test]
fn who_shows_anothers_uuid_without_its_key_gets_nothing() {
    // Found together: neither can be told to be the one meant.
    for (one, other) in [(Some('a'), Some('b')), (Some('a'), None), (None, None)] {
        let verdict = World::new().judge(&[(at(7), shown(1, one)), (at(8), shown(1, other))]);
        assert_eq!(
            (verdict.make.len(), phase(&verdict, at(7)), phase(&verdict, at(8))),
            (0, Phase::Contradiction, Phase::Contradiction)
        );
    }
    // After a host was made: that host stays, and is not approved by itself while it lasts.
    let mut world = World::new();
    world.spec.allow = vec!["true".into()];
    world.scan(&[(at(7), shown(1, Some('a')))]);
    world.spec.approval = DiscoveryApproval::Automatic;
    let both = [(at(7), shown(1, Some('a'))), (at(3), shown(1, Some('b')))];
    let verdict = world.scan(&both);
    assert_eq!((phase(&verdict, at(3)), phase(&verdict, at(7))), (Phase::Contradiction, Phase::Found));
    assert!(verdict.make.is_empty() && verdict.approve.is_empty());
    assert_eq!(world.scan(&both[..1]).approve.len(), 1);
    // A machine that a record knows.
    for (key, expected) in [(Some('a'), Phase::Known), (Some('b'), Phase::Contradiction), (None, Phase::Contradiction)]
    {
        let mut world = World::new();
        world.hosts.push(declared("n", "mine", "redfish://192.0.2.9"));
        world.records.push(record("n", "mine", 1, Some('a')));
        let verdict = world.judge(&[(at(7), shown(1, key))]);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, expected), "{key:?}");
    }
}

#[test]
fn a_machine_whose_bmc_shows_the_systems_uuid_or_serial_number_is_known_by_it() {
    let mut world = World::new();
    let mut record = record("n", "mine", 9, None);
    (record.identity, record.others) = (None, vec![identity(&uuid(1)).unwrap(), identity("ABC1234").unwrap()]);
    world.records.push(record);
    let mut tag = shown(2, None);
    tag.uuid = Some("abc1234".into());
    let verdict = world.judge(&[(at(7), shown(1, None)), (at(8), tag)]);
    assert_eq!((phase(&verdict, at(7)), phase(&verdict, at(8))), (Phase::Contradiction, Phase::Contradiction));
}

#[test]
fn two_ports_of_one_address_with_one_uuid_are_one_machine_without_a_key() {
    let mut world = World::new();
    let other = discovery::Place { port: 8443, ..at(7) };
    let both = [(at(7), shown(1, None)), (other, shown(1, None))];
    for made in [1, 0] {
        let verdict = world.scan(&both);
        assert_eq!(
            (verdict.make.len(), phase(&verdict, at(7)), phase(&verdict, other)),
            (made, Phase::Found, Phase::Known)
        );
    }
}

#[test]
fn another_machine_at_the_address_of_a_host_is_told_and_makes_none() {
    let mut world = World::new();
    world.hosts.push(declared("n", "mine", "redfish://192.0.2.7"));
    world.records.push(record("n", "mine", 1, Some('a')));
    let verdict = world.judge(&[(at(7), shown(2, Some('b')))]);
    assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Contradiction));
    // At that of a host that waits.
    let mut world = World::new();
    world.scan(&[(at(7), shown(1, Some('a')))]);
    let verdict = world.scan(&[(at(7), shown(2, Some('b')))]);
    assert_eq!((verdict.make.len(), phase(&verdict, at(7)), verdict.pending), (0, Phase::Contradiction, 1));
}

#[test]
fn the_record_of_a_host_that_is_gone_keeps_its_machine() {
    let mut world = World::new();
    world.records.push(record("n", "gone", 1, Some('a')));
    let verdict = world.judge(&[(at(7), shown(1, Some('a')))]);
    assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Known));
    assert!(verdict.machines[0].message.contains("delete its MachineRecord"));
}

#[test]
fn a_host_that_was_deleted_is_not_made_again_until_somebody_asks() {
    for approved in [false, true] {
        let mut world = World::new();
        let found = [(at(7), shown(1, Some('a')))];
        let name = world.scan(&found).make[0].name.clone();
        if approved {
            world.approve(&name);
            world.scan(&found);
        }
        world.hosts.clear();
        for _ in 0..3 {
            let verdict = world.scan(&found);
            assert_eq!((verdict.make.len(), phase(&verdict, at(7)), verdict.pending), (0, Phase::Dismissed, 0));
        }
        // It is remembered while it is silent, under another address, and under another UUID at this one.
        assert_eq!(world.scan(&[]).machines[0].phase, Phase::Dismissed);
        assert_eq!(world.judge(&[(at(9), shown(1, Some('a')))]).make, []);
        assert_eq!(world.judge(&[(at(7), shown(5, Some('a')))]).make, []);
        for (text, made) in [
            (uuid(2), 0),
            (String::new(), 0),
            ("192.0.2.8".into(), 0),
            (uuid(1), 1),
            (at(7).address(), 1),
            ("192.0.2.9, 192.0.2.7".into(), 1),
            ("::ffff:192.0.2.7".into(), 1),
            ("all".into(), 1),
        ] {
            world.rediscover = Rediscover::read(&text);
            let verdict = world.judge(&found);
            assert_eq!((verdict.make.len(), verdict.again), (made, made), "{text}");
        }
    }
}

#[test]
fn what_shows_no_uuid_or_a_placeholder_is_no_host() {
    for bad in [None, Some("00000000-0000-0000-0000-000000000000"), Some("\u{1b}[2J"), Some("")] {
        let mut machine = shown(1, Some('a'));
        machine.uuid = bad.map(ToOwned::to_owned);
        let verdict = World::new().judge(&[(at(7), machine)]);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Denied), "{bad:?}");
    }
}

#[test]
fn an_allow_rule_approves_where_it_may_and_a_person_may_say_no() {
    let mut world = World::new();
    world.spec.approval = DiscoveryApproval::Automatic;
    world.spec.allow = vec!["vendor == 'Contoso'".into()];
    world.spec.deny = vec!["address == '192.0.2.9'".into()];
    let mut other = shown(3, Some('c'));
    other.vendor = "Else".into();
    let found = [(at(7), shown(1, Some('a'))), (at(8), other), (at(9), shown(2, Some('b')))];
    let verdict = world.scan(&found);
    assert_eq!(verdict.make.iter().map(|new| (new.machine, new.approved)).collect::<Vec<_>>(), [(0, true)]);
    assert_eq!((phase(&verdict, at(8)), phase(&verdict, at(9))), (Phase::Denied, Phase::Denied));
    assert_eq!(world.scan(&found).approve.len(), 1);
    world.hosts[0].discovered.as_mut().unwrap().is_refused = true;
    assert_eq!(world.scan(&found).approve.len(), 0);
    // A rule that comes later leaves the host to its owner.
    world.hosts[0].discovered.as_mut().unwrap().is_refused = false;
    world.spec.deny.push("vendor == 'Contoso'".into());
    let verdict = world.scan(&found);
    assert_eq!(
        (phase(&verdict, at(7)), verdict.machines[0].host.is_some(), verdict.approve.len()),
        (Phase::Denied, true, 0)
    );
}

#[test]
fn two_host_discoveries_make_one_host() {
    let mut world = World::new();
    world.scan(&[(at(7), shown(1, Some('a')))]);
    // The host is the other one's, of this namespace or of another.
    for namespace in ["n", "elsewhere"] {
        let mut other = World::new();
        other.hosts.clone_from(&world.hosts);
        other.hosts[0].namespace = namespace.into();
        other.hosts[0].discovered.as_mut().unwrap().by = "other".into();
        let verdict = other.judge(&[(at(7), shown(1, Some('a')))]);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7)), verdict.pending), (0, Phase::Known, 0), "{namespace}");
    }
}

#[test]
fn a_host_that_was_deleted_is_not_made_again_by_another_host_discovery() {
    let found = [(at(7), shown(1, Some('a')))];
    let mut rack = World::new();
    let host = rack.scan(&found).make[0].name.clone();
    rack.hosts.clear();
    // Its own HostDiscovery has seen that, or has not yet.
    for seen in [false, true] {
        if seen {
            rack.scan(&found);
        }
        let mut other = World::new();
        other.elsewhere.clone_from(&rack.before);
        let verdict = other.judge(&found);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Denied), "{seen}");
        assert_eq!(other.judge(&[(at(8), shown(1, Some('a')))]).make, []);
        other.rediscover = Rediscover::read(&uuid(1));
        assert_eq!(other.scan(&found).make[0].name, host);
        // Made so, it waits like any other, though the first one still remembers.
        other.rediscover = Rediscover::default();
        let verdict = other.judge(&found);
        assert_eq!((phase(&verdict, at(7)), verdict.pending), (Phase::Found, 1));
    }
}

#[test]
fn a_declared_host_that_was_taken_away_with_its_record_is_not_made_again() {
    let mut world = World::new();
    world.hosts.push(declared("n", "mine", "redfish://192.0.2.7"));
    let found = [(at(7), shown(1, Some('a')))];
    assert_eq!(phase(&world.scan(&found), at(7)), Phase::Known);
    let host = world.hosts.pop().unwrap();
    for _ in 0..2 {
        let verdict = world.scan(&found);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Dismissed), "it was moved, say");
    }
    world.rediscover = Rediscover::read(&uuid(1));
    assert_eq!(world.judge(&found).make.len(), 1, "somebody asks");
    world.rediscover = Rediscover::read("");
    world.hosts.push(host);
    assert_eq!(phase(&world.scan(&found), at(7)), Phase::Known, "it is back");
}

#[test]
fn a_host_that_somebody_has_restored_waits_again() {
    let mut world = World::new();
    let found = [(at(7), shown(1, Some('a')))];
    world.scan(&found);
    let host = world.hosts.pop().unwrap();
    assert_eq!(phase(&world.scan(&found), at(7)), Phase::Dismissed);
    world.hosts.push(discovery::KnownHost { uid: "restored".into(), ..host });
    let verdict = world.scan(&found);
    assert_eq!((phase(&verdict, at(7)), verdict.machines.len()), (Phase::Found, 1));
    assert_eq!(verdict.machines[0].host_uid.as_deref(), Some("restored"));
}

#[test]
fn a_waiting_machine_with_another_key_is_told_with_the_way_out() {
    let mut world = World::new();
    (world.spec.approval, world.spec.allow) = (DiscoveryApproval::Automatic, vec!["true".into()]);
    world.scan(&[(at(7), shown(1, Some('a')))]);
    for key in [Some('b'), None] {
        let verdict = world.judge(&[(at(7), shown(1, key))]);
        assert_eq!((phase(&verdict, at(7)), verdict.approve.len()), (Phase::Contradiction, 0), "{key:?}");
        let message = &verdict.machines[0].message;
        assert!(message.contains("another key") && message.contains(&format!("rediscover={}", uuid(1))), "{message}");
    }
    assert_eq!(world.judge(&[(at(7), shown(1, Some('a')))]).approve.len(), 1);
}

#[test]
fn the_usual_ports_of_one_address_are_one_bmc() {
    let http = discovery::Place { port: 80, tls: false, ..at(7) };
    for (address, place, expected) in [
        ("redfish+http://192.0.2.7", at(7), Phase::Known),
        ("redfish://192.0.2.7", http, Phase::Known),
        ("redfish://192.0.2.7:8443", at(7), Phase::Found),
        ("redfish+http://192.0.2.7", discovery::Place { port: 8443, ..at(7) }, Phase::Found),
    ] {
        let mut world = World::new();
        world.hosts.push(declared("n", "mine", address));
        world.records.push(record("n", "mine", 1, None));
        let who = if expected == Phase::Known { 1 } else { 2 };
        assert_eq!(phase(&world.judge(&[(place, shown(who, Some('a')))]), place), expected, "{address} {place}");
    }
}

#[test]
fn a_machine_that_was_declared_is_remembered_while_it_is_silent() {
    for namespace in ["n", "other"] {
        let mut world = World::new();
        world.hosts.push(declared(namespace, "mine", "redfish://192.0.2.7"));
        let found = [(at(7), shown(1, Some('a')))];
        assert_eq!(phase(&world.scan(&found), at(7)), Phase::Known);
        let silent = world.scan(&[]);
        assert_eq!(phase(&silent, at(7)), Phase::Known, "{namespace}: it is off, say");
        assert!(silent.machines.iter().all(|machine| machine.host.is_some() == (namespace == "n")));
        // It was moved to another cluster, with its record, while it was silent.
        let host = world.hosts.pop().unwrap();
        assert_eq!(phase(&world.scan(&[]), at(7)), Phase::Dismissed, "{namespace}");
        let verdict = world.scan(&found);
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, Phase::Dismissed), "{namespace}");
        // Its BMC is replaced, and another has its address: nobody has declared that place any more.
        world.hosts.push(host);
        world.scan(&found);
        world.hosts[0].spots = declared(namespace, "mine", "redfish://192.0.2.9").spots;
        assert_eq!(world.scan(&[]).machines.len(), 0, "{namespace}");
    }
}

#[test]
fn who_only_waits_in_another_namespace_dismisses_nothing_here() {
    let mut world = World::new();
    let mut waits = declared("other", "theirs", "redfish://192.0.2.7");
    (waits.is_managed, waits.spots) = (false, Vec::new());
    waits.discovered = Some(discovery::Discovered {
        by: "rack".into(),
        address: at(7).address(),
        identity: identity(&uuid(1)),
        ..discovery::Discovered::default()
    });
    world.hosts.push(waits);
    let found = [(at(7), shown(1, Some('a')))];
    assert_eq!(phase(&world.scan(&found), at(7)), Phase::Known);
    world.hosts.clear();
    assert_eq!(world.scan(&found).make.len(), 1);
}

#[test]
fn whoever_has_been_declared_with_a_bmc_since_keeps_it() {
    let waiting = ("n", "waiting");
    let asked = |hosts: &[discovery::KnownHost], records: &[Recorded]| {
        discovery::is_anothers((hosts, records), waiting, (&at(7), identity(&uuid(1)).as_deref()))
    };
    assert_eq!(asked(&[], &[]), None);
    for address in
        ["redfish-virtualmedia://192.0.2.7/redfish/v1/Systems/1", "redfish+http://192.0.2.7", "ipmi://192.0.2.7:623"]
    {
        let why = asked(&[declared("n", "mine", address)], &[]).unwrap();
        assert!(why.starts_with("the host mine has been declared"), "{why}");
        let why = asked(&[declared("other", "mine", address)], &[]).unwrap();
        assert!(!why.contains("mine") && why.contains("another namespace"), "{why}");
    }
    assert_eq!(asked(&[declared("n", "mine", "redfish://192.0.2.8")], &[record("n", "mine", 2, None)]), None);
    assert!(asked(&[], &[record("n", "mine", 1, None)]).unwrap().contains("recorded for the host mine"));
    assert_eq!(asked(&[], &[record("n", "waiting", 1, None)]), None, "its own");
}
