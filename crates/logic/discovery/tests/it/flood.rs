//! Floods: whatever answers, hosts and memory have a bound, and no machine gets the place of another.

use std::collections::{BTreeMap, BTreeSet};

use api::metamorph::{DiscoveryPhase as Phase, MAX_MACHINES};
use discovery::{Place, Shown, identity};
use proptest::prelude::*;

use crate::kit::{World, at, phase, shown};

fn place(n: u32) -> Place {
    Place { ip: std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into(), port: 443, tls: true }
}

#[test]
fn an_address_that_is_another_machine_each_time_has_one_host() {
    let mut world = World::new();
    for n in 0..2000 {
        world.scan(&[(at(7), shown(n, Some('a')))]);
    }
    assert_eq!((world.hosts.len(), world.before.len()), (1, 2), "its host, and what it shows now");
    // Neither does a deletion help it.
    world.hosts.clear();
    for n in 0..100 {
        let verdict = world.scan(&[(at(7), shown(n, Some('a')))]);
        let expected = if n == 0 { Phase::Dismissed } else { Phase::Denied };
        assert_eq!((verdict.make.len(), phase(&verdict, at(7))), (0, expected));
    }
    assert_eq!(world.before.len(), 2, "what was deleted, and what it shows now");
}

#[test]
fn so_many_hosts_are_made_at_once_so_many_wait_and_the_rest_is_told() {
    let mut world = World::new();
    let all: Vec<(Place, Shown)> = (0..4000).map(|n| (place(n), shown(n, None))).collect();
    let verdict = world.scan(&all);
    assert_eq!((verdict.make.len(), verdict.pending, verdict.machines.len()), (32, 32, MAX_MACHINES));
    assert!(verdict.left_out.iter().any(|said| said.contains("2976 machines have no room")), "{:?}", verdict.left_out);
    assert!(verdict.left_out.iter().any(|said| said.contains("maxNewHosts")), "{:?}", verdict.left_out);
    for _ in 0..10 {
        world.scan(&all);
    }
    assert_eq!(world.hosts.len(), 128);
    let verdict = world.scan(&all);
    assert!(verdict.left_out.iter().any(|said| said.contains("maxPendingHosts")), "{:?}", verdict.left_out);
    // One that was found in quiet times is found again among them.
    assert!(verdict.machines.iter().filter(|machine| machine.host_uid.is_some()).count() == 128);
    let size = serde_json::to_string(&verdict.machines).unwrap().len();
    assert!(size < 1 << 20, "a status of {size} bytes");
}

/// Characters of four bytes, and such as the API's server writes as six.
#[test]
fn no_texts_make_the_status_larger_than_the_api_stores() {
    for text in ["\u{1f5a5}", "<"] {
        let mut world = World::new();
        let texts = |n: u32| Shown { vendor: text.repeat(64), product: text.repeat(64), ..shown(n, Some('a')) };
        world.scan(&[(place(4000), texts(4000))]);
        let all: Vec<(Place, Shown)> = (0..2000).map(|n| (place(n), texts(n))).collect();
        let machines = world.scan(&all).machines;
        let mut rows = Vec::new();
        for n in 0..200_u32 {
            let machine = inventory::MachineEvidence {
                system_uuid: Some(format!("{n:04}{}", text.repeat(124))),
                serial_number: Some(format!("{n:04}{}", text.repeat(124))),
                macs: vec![format!("00:1b:21:00:00:{n:02x}")],
                ..Default::default()
            };
            let report = agent_protocol::Sighting { machine, ..Default::default() };
            let row = discovery::Sighted::of(&report).unwrap().row(
                api::metamorph::ReportOutcome::NoBmc,
                &text.repeat(500),
                api::Time(jiff::Timestamp::UNIX_EPOCH),
            );
            rows = discovery::listed(&rows, row);
        }
        let size = |json: String| json.replace('<', "\\u003c").len();
        let size = size(serde_json::to_string(&(&machines, &rows)).unwrap());
        assert!(
            machines.len() > 500 && rows.len() > 16 && size < 1100 << 10,
            "{} {} {size}",
            machines.len(),
            rows.len()
        );
        // What must be remembered is.
        assert!(machines.iter().any(|machine| machine.address == place(4000).address()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Scans of machines that show, at a few addresses, a few UUIDs and keys, while hosts are approved and deleted.
    #[test]
    fn no_two_hosts_of_one_machine_nor_at_one_address_and_nothing_is_done_twice(
        scans in prop::collection::vec((prop::collection::vec((0_u32..6, 0_u32..5, 0_usize..3), 0..6), 0_usize..4, any::<bool>()), 1..12)
    ) {
        let mut world = World::new();
        for (answers, which, deletes) in scans {
            let found: BTreeMap<Place, Shown> =
                answers.iter().map(|(at, who, key)| (place(*at), shown(*who, [None, Some('a'), Some('b')][*key]))).collect();
            let found: Vec<(Place, Shown)> = found.into_iter().collect();
            let before = world.hosts.clone();
            let turned: Vec<(Place, Shown)> = found.iter().rev().cloned().collect();
            prop_assert_eq!(world.judge(&found), world.judge(&turned));
            let verdict = world.scan(&found);
            // Hosts that were there are as they were, and the same scan again makes none.
            prop_assert_eq!(&world.hosts[..before.len()], &before[..]);
            prop_assert_eq!(world.judge(&found).make, vec![]);
            let made: Vec<_> = world.hosts.iter().filter_map(|host| host.discovered.as_ref()).collect();
            let identities: BTreeSet<_> = made.iter().filter_map(|made| made.identity.clone()).collect();
            let addresses: BTreeSet<_> = made.iter().map(|made| made.address.clone()).collect();
            prop_assert_eq!((identities.len(), addresses.len()), (made.len(), made.len()));
            for machine in &verdict.machines {
                let own = machine.uuid.as_deref().and_then(identity);
                let of_host = world.hosts.iter().find(|host| machine.host_uid.as_ref() == Some(&host.uid));
                // The uid of a host stands only beside the machine that it was made from.
                if let Some(host) = of_host {
                    let made = host.discovered.as_ref().unwrap();
                    prop_assert!(made.address == machine.address && made.identity == own);
                }
            }
            prop_assert!(verdict.pending as usize <= world.hosts.len());
            if which < world.hosts.len() {
                if deletes {
                    world.hosts.remove(which);
                } else {
                    let name = world.hosts[which].name.clone();
                    world.approve(&name);
                }
            }
        }
    }
}
