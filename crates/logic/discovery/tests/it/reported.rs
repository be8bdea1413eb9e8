//! What machines report that have booted a medium.

use std::collections::BTreeSet;

use agent_protocol::{BmcClaim, LanChannel, RedfishInterface, Sighting};
use api::Time;
use api::metamorph::{DiscoveryPhase as Phase, MAX_REPORTS, ReportOutcome as Outcome};
use discovery::{Declared, Sighted, check, contested, listed, outcome};
use inventory::MachineEvidence;
use proptest::prelude::*;

use crate::kit::{World, at, phase, shown, spec, uuid};

fn report(n: u32, bmc: &[u8]) -> Sighting {
    let channel = |last: &u8| LanChannel { channel: 1, ipv4: Some([192, 0, 2, *last].into()), ..LanChannel::default() };
    Sighting {
        machine: MachineEvidence {
            system_uuid: Some(format!("00112233-4455-6677-8899-{n:012x}")),
            macs: vec![format!("00:1b:21:00:00:{n:02x}")],
            ..MachineEvidence::default()
        },
        bmc: BmcClaim { channels: bmc.iter().map(channel).collect(), ..BmcClaim::default() },
        ..Sighting::default()
    }
}

fn sighted(n: u32, bmc: &[u8]) -> Sighted {
    Sighted::of(&report(n, bmc)).unwrap()
}

fn now(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_800_000_000 + second).unwrap())
}

#[test]
fn only_addresses_that_the_discovery_asks_are_asked_for_a_report() {
    let plan = check(&spec(&["192.0.2.0/28"])).unwrap();
    let outcome_of = |one: &Sighted| one.places(&plan, &[]).map_err(|(outcome, _)| outcome);
    assert_eq!(outcome_of(&sighted(1, &[7])), Ok(vec![at(7)]));
    assert_eq!(outcome_of(&sighted(1, &[])), Err(Outcome::NoBmc));
    assert_eq!(outcome_of(&sighted(1, &[200])), Err(Outcome::OutOfRange));
    assert_eq!(outcome_of(&sighted(1, &[200, 7])), Ok(vec![at(7)]), "one of several");
    let many = check(&discovery_with_ports()).unwrap();
    assert_eq!(sighted(1, &[1, 2, 3, 4]).places(&many, &[]).unwrap().len(), discovery::MAX_CLAIMED);
}

fn discovery_with_ports() -> api::metamorph::HostDiscoverySpec {
    api::metamorph::HostDiscoverySpec { ports: vec![443, 8443, 8000], ..spec(&["192.0.2.0/28"]) }
}

#[test]
fn a_machine_that_knows_its_service_alone_is_looked_for_where_that_was_found() {
    let mut world = World::new();
    world.scan(&[(at(7), shown(3, Some('a')))]);
    let plan = check(&world.spec).unwrap();
    let mut one = report(1, &[]);
    one.bmc.redfish = Some(RedfishInterface {
        service_uuid: Some(uuid(3)),
        address: Some([169, 254, 0, 17].into()),
        port: Some(443),
    });
    let one = Sighted::of(&one).unwrap();
    assert_eq!(one.places(&plan, &world.before).unwrap(), [at(7)]);
    assert_eq!(one.differs(&shown(3, None)), None);
    assert!(one.differs(&shown(4, None)).unwrap().contains("another Redfish service"));
}

#[test]
fn a_machine_without_any_identity_is_refused() {
    let nobody = Sighting { machine: MachineEvidence::default(), ..report(1, &[7]) };
    assert!(Sighted::of(&nobody).unwrap_err().contains("no UUID"));
    let placeholders = MachineEvidence {
        system_uuid: Some("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF".into()),
        serial_number: Some("To be filled by O.E.M.".into()),
        macs: vec!["02:00:00:00:00:01".into()],
        ..MachineEvidence::default()
    };
    assert!(Sighted::of(&Sighting { machine: placeholders, ..report(1, &[7]) }).is_err());
}

#[test]
fn a_serial_number_that_grows_in_normal_form_is_no_identity_that_the_status_could_not_hold() {
    for serial in ["\u{149}a".repeat(64), "\u{390}".repeat(64) + &"a".repeat(64), "x".repeat(500)] {
        let machine = MachineEvidence { serial_number: Some(serial), ..MachineEvidence::default() };
        let sighted = Sighted::of(&Sighting { machine, ..report(1, &[7]) });
        assert!(sighted.is_err() || sighted.is_ok_and(|sighted| sighted.identity.chars().count() <= 128));
    }
}

#[test]
fn a_declared_machine_is_known_by_uuid_and_by_mac() {
    let of = |machine| Declared { namespace: "n".into(), name: "a".into(), machine };
    let by_mac = MachineEvidence { macs: vec!["00:1B:21:00:00:05".into()], ..MachineEvidence::default() };
    let by_uuid = MachineEvidence { system_uuid: report(6, &[]).machine.system_uuid, ..MachineEvidence::default() };
    let declared = [of(by_mac), of(by_uuid)];
    assert!(sighted(5, &[]).known_as(&declared).is_some() && sighted(6, &[]).known_as(&declared).is_some());
    assert_eq!(sighted(7, &[]).known_as(&declared), None);
}

#[test]
fn asking_one_place_leaves_what_is_known_of_others() {
    let mut world = World::new();
    world.spec.deny = vec!["product == 'Switch'".into()];
    let switch = discovery::Shown { product: "Switch".into(), ..shown(9, Some('c')) };
    world.scan(&[(at(1), shown(1, Some('a'))), (at(2), switch)]);
    world.asked = Some(BTreeSet::from([at(3)]));
    let verdict = world.scan(&[(at(3), shown(3, Some('b')))]);
    assert_eq!((verdict.machines.len(), verdict.make.len(), verdict.pending), (3, 1, 2));
    assert_eq!([1, 2, 3].map(|n| phase(&verdict, at(n))), [Phase::Found, Phase::Denied, Phase::Found]);
    // The same again makes none; one that shows the UUID of a machine elsewhere, and proves another key, is none.
    assert!(world.scan(&[(at(3), shown(3, Some('b')))]).make.is_empty());
    world.asked = Some(BTreeSet::from([at(4)]));
    let verdict = world.scan(&[(at(4), shown(1, Some('d')))]);
    assert_eq!((phase(&verdict, at(4)), verdict.make.len()), (Phase::Contradiction, 0));
    // Nothing answers: nothing is forgotten.
    world.asked = Some(BTreeSet::from([at(5)]));
    assert_eq!(world.scan(&[]).machines.len(), 4);
    // A host that was deleted is not made again by a report.
    world.hosts.retain(|host| host.discovered.as_ref().is_none_or(|made| made.address != at(3).address()));
    world.asked = Some(BTreeSet::from([at(3)]));
    let verdict = world.scan(&[(at(3), shown(3, Some('b')))]);
    assert_eq!((phase(&verdict, at(3)), verdict.make.len()), (Phase::Dismissed, 0));
}

#[test]
fn two_machines_that_tell_one_bmc_contest_it() {
    let row = |n: u32, second: i64| {
        let mut row = sighted(n, &[7]).row(Outcome::Host, "", now(second));
        row.address = Some(at(7).address());
        row
    };
    let rows = listed(&listed(&[], row(1, 0)), row(1, 5));
    assert_eq!(rows.len(), 1);
    assert!(!contested(&rows, &row(1, 6)) && contested(&rows, &row(2, 6)));
    assert!(!contested(&rows, &row(2, 25 * 3600)), "a board that was replaced is believed after a day");
}

#[test]
fn a_flood_of_reports_displaces_no_machine_that_has_a_host() {
    let mut own = sighted(1, &[7]).row(Outcome::Host, "", now(0));
    own.host = Some("rack7-1".into());
    let mut rows = vec![own.clone()];
    for n in 2..600 {
        let mut other = own.clone();
        (other.identity, other.host, other.last_seen) = (format!("{n}"), None, Some(now(n)));
        rows = listed(&rows, other);
        assert!(rows.len() <= MAX_REPORTS);
    }
    assert!(rows.contains(&own));
    assert_eq!(rows.last().unwrap().identity, "599");
}

#[test]
fn what_comes_of_a_report_is_what_came_of_the_machine_at_its_address() {
    let mut world = World::new();
    let verdict = world.scan(&[(at(7), shown(3, Some('a')))]);
    assert_eq!(outcome(&verdict.machines, &[at(7)]).0, Outcome::Host);
    assert_eq!(outcome(&verdict.machines, &[at(8)]), (Outcome::NoAnswer, None));
}

proptest! {
    #[test]
    fn no_report_is_kept_longer_than_the_definition_allows(
        texts in prop::collection::vec(".{0,300}", 4), macs in prop::collection::vec(".{0,40}", 0..40), bmc in prop::collection::vec(any::<u8>(), 0..12)
    ) {
        let machine = MachineEvidence {
            manufacturer: Some(texts[0].clone()), system_uuid: Some(texts[1].clone()), serial_number: Some(texts[2].clone()),
            macs, disks: Vec::new(),
        };
        let mut given = Sighting { machine, ..report(1, &bmc) };
        given.bmc.said = vec![texts[3].clone(); 20];
        if let Ok(one) = Sighted::of(&given) {
            let row = one.row(Outcome::NoBmc, &texts[3], now(0));
            let lengths = [Some(&row.identity), row.uuid.as_ref(), row.serial_number.as_ref()];
            prop_assert!(lengths.into_iter().flatten().all(|text| text.chars().count() <= 128));
            prop_assert!(row.mac_addresses.len() <= 8 && row.mac_addresses.iter().all(|mac| mac.chars().count() <= 32));
            prop_assert!(row.bmc_addresses.len() <= 4 && row.message.chars().count() <= 512);
        }
    }
}
