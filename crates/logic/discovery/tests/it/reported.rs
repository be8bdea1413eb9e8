//! What machines report that have booted a medium.

use std::collections::BTreeSet;

use agent_protocol::{BmcClaim, LanChannel, RedfishInterface, Sighting};
use api::Time;
use api::metamorph::{
    DiscoveredMachine, DiscoveryPhase as Phase, MAX_REPORTS, ReportOutcome as Outcome, ReportedMachine,
};
use discovery::{Claim, Declared, Sighted, as_listed, check, claim, listed, outcome, without_refused};
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

/// The machine at a place, as it is listed.
fn listed_at(world: &World, n: u8) -> DiscoveredMachine {
    world.before.iter().find(|machine| machine.address == at(n).address()).unwrap().clone()
}

#[test]
fn two_machines_that_tell_one_bmc_contest_it_whatever_identity_they_show() {
    let mut world = World::new();
    world.scan(&[(at(7), shown(3, Some('a')))]);
    let own = sighted(1, &[7]);
    // It repeats the identity, the BMC and all that a stranger may know, and tells other parts.
    let mut repeats = report(1, &[7]);
    repeats.hardware.ram_mebibytes = Some(1);
    let repeats = Sighted::of(&repeats).unwrap();
    assert!(repeats.identity == own.identity && repeats.digest != own.digest);
    let mut machine = listed_at(&world, 7);
    let mut says = |of: &Sighted, second| claim(&mut machine, &of.digest, &now(second));
    assert_eq!([says(&own, 0), says(&own, 5), says(&repeats, 6)], [Claim::New, Claim::Same, Claim::Contested]);
    assert_eq!([says(&own, 7), says(&repeats, 8)], [Claim::Contested; 2]);
    // Invented ones make nobody forget it.
    for n in 0..500 {
        assert_eq!(says(&sighted(1000 + n, &[7]), 9), Claim::Contested);
    }
    assert_eq!(says(&own, 3600), Claim::Contested);
    assert_eq!(machine.claimants.len(), 2);
    assert!(machine.message.contains("more than one machine"), "{}", machine.message);
    // The next scan keeps and shows it; the one that is alone for a day is believed, and so is a board that was replaced.
    world.before = vec![machine];
    let verdict = world.scan(&[(at(7), shown(3, Some('a')))]);
    assert_eq!(verdict.machines[0].claimants.len(), 2);
    let mut machine = listed_at(&world, 7);
    assert_eq!(claim(&mut machine, &own.digest, &now(25 * 3600)), Claim::Same);
    assert_eq!(claim(&mut machine, &repeats.digest, &now(51 * 3600)), Claim::New);
}

#[test]
fn a_machine_says_the_same_of_itself_whenever_it_boots() {
    let with = |name: &str, ip: &str, disk: &str, turned: bool| {
        let mut one = report(1, &[7]);
        let nic = |n: u32| inventory::Nic {
            mac: Some(format!("00:1b:21:00:00:{n:02x}")),
            name: Some(name.into()),
            ip: Some(ip.into()),
            ..Default::default()
        };
        let storage = |serial: &str| inventory::Storage {
            name: Some(disk.into()),
            serial_number: Some(serial.into()),
            ..Default::default()
        };
        (one.hardware.nics, one.hardware.storage) = (vec![nic(1), nic(2)], vec![storage("A"), storage("B")]);
        one.hardware.hostname = Some(name.into());
        let clock_megahertz = Some(if turned { 2100.5 } else { 3300.25 });
        let cpu = inventory::Cpu { model: Some("Fast".into()), clock_megahertz, ..Default::default() };
        (one.hardware.cpu, one.hardware.ram_mebibytes) = (Some(cpu), Some(31_900 + i64::from(turned)));
        if turned {
            one.hardware.nics.reverse();
            one.hardware.storage.reverse();
        }
        Sighted::of(&one).unwrap().digest
    };
    assert_eq!(with("eno1", "192.0.2.1", "/dev/sda", false), with("eth0", "192.0.2.2", "/dev/sdb", true));
    assert_ne!(with("eno1", "192.0.2.1", "/dev/sda", false), sighted(1, &[7]).digest);
}

#[test]
fn a_machine_is_told_the_same_whether_it_is_known_or_not() {
    let mut of_service = report(1, &[7]);
    of_service.bmc.redfish = Some(RedfishInterface { service_uuid: Some(uuid(3)), ..RedfishInterface::default() });
    let of_service = Sighted::of(&of_service).unwrap();
    let told = |of: &Sighted, outcome| of.told(outcome, "the secret host");
    for of in [&sighted(1, &[7]), &of_service] {
        let last = told(of, Outcome::Known);
        assert!(last.1 && !last.0.contains("secret"), "{last:?}");
        for outcome in [Outcome::Host, Outcome::Denied, Outcome::Contradiction] {
            assert_eq!(told(of, outcome), last);
        }
        assert!(!told(of, Outcome::NotYet).1 && !told(of, Outcome::NotYet).0.contains("secret"));
        assert!(!told(of, Outcome::NoAnswer).1);
    }
    // What repeats its own words is told, unless it tells which services are known.
    assert_eq!(told(&sighted(1, &[7]), Outcome::NoBmc), ("the secret host".to_owned(), true));
    assert_eq!(told(&of_service, Outcome::NoBmc), told(&of_service, Outcome::Known));
}

#[test]
fn a_flood_of_reports_displaces_no_machine_that_has_a_host() {
    let mut own = sighted(1, &[7]).row(Outcome::Host, "", now(0));
    own.host = Some("rack7-1".into());
    let mut rows = vec![own.clone()];
    for n in 2..600 {
        let mut other = own.clone();
        // Most of them contest it, and one repeats its identity.
        (other.identity, other.outcome, other.last_seen) = (format!("{n}"), Outcome::Contradiction, Some(now(n)));
        if n == 300 {
            (other.identity, other.digest) = (own.identity.clone(), "another".into());
        }
        rows = listed(&rows, other);
        assert!(rows.len() <= MAX_REPORTS);
    }
    assert!(rows.contains(&own));
    assert_eq!(rows.last().unwrap().identity, "599");
}

#[test]
fn what_says_the_same_again_changes_no_row_for_an_hour() {
    let row = |second| sighted(1, &[7]).row(Outcome::Host, "its host", now(second));
    let rows = listed(&listed(&[], row(0)), sighted(2, &[8]).row(Outcome::Host, "", now(1)));
    assert_eq!(listed(&rows, row(300)), rows);
    let later = listed(&rows, row(3600));
    assert_eq!((later.len(), later[1].last_seen.clone()), (2, Some(now(3600))));
    let other = listed(&rows, sighted(1, &[7]).row(Outcome::NoAnswer, "", now(300)));
    assert_eq!((other.len(), other[1].outcome), (2, Outcome::NoAnswer));
    // A row from before digests were kept, or that a definition from then has stored, is no other machine's.
    let old: Vec<_> = rows.iter().cloned().map(|row| ReportedMachine { digest: String::new(), ..row }).collect();
    assert_eq!(listed(&old, row(300)).len(), 2);
    // So it is with machines, whose order stays.
    let mut world = World::new();
    world.scan(&[(at(1), shown(1, None)), (at(2), shown(2, None))]);
    let machines: Vec<DiscoveredMachine> = world.before.iter().rev().cloned().collect();
    assert_eq!(as_listed(&world.before, machines.clone()), world.before);
    let later = |mut one: DiscoveredMachine| {
        one.last_seen = one.last_seen.map(|seen| Time(seen.0 + jiff::SignedDuration::from_secs(60)));
        one
    };
    assert_eq!(as_listed(&world.before, machines.into_iter().map(later).collect()), world.before);
}

#[test]
fn the_rows_that_the_api_refuses_are_left_out_and_no_others() {
    let mut world = World::new();
    world.scan(&[(at(1), shown(1, None)), (at(2), shown(2, None))]);
    let before = vec![sighted(1, &[7]).row(Outcome::Host, "", now(0))];
    let mut status = api::metamorph::HostDiscoveryStatus { machines: world.before, ..Default::default() };
    status.reports = (1..4).map(|n| sighted(n, &[7]).row(Outcome::Host, "", now(0))).collect();
    let taken = |fields: &[&str]| without_refused(&status, &before, fields);
    let left = |fields: &[&str]| taken(fields).map(|taken| (taken.status.reports.len(), taken.reports.len()));
    assert_eq!(left(&["status.reports[1].uuid", "<nil>", "status.reports[1].identity"]), Some((2, 1)));
    assert_eq!(taken(&["status.reports[1].uuid"]).unwrap().reports, [status.reports[1].clone()]);
    assert_eq!(left(&[]), Some((1, 2)), "those that are new");
    // What is no row, or must be remembered, is no row that could be left out.
    assert_eq!(left(&["status.reports[1].uuid", "status.conditions"]), None);
    assert_eq!(left(&["status.machines[1].vendor"]), None);
    status.machines[1].host_uid = None;
    let taken = without_refused(&status, &before, &["status.machines[1].vendor"]).unwrap();
    assert_eq!((taken.status.machines.len(), taken.status.reports.len(), taken.machines.len()), (1, 3, 1));
}

#[test]
fn what_rules_approve_is_found_again_in_what_is_listed() {
    let mut world = World::new();
    world.spec.approval = api::metamorph::DiscoveryApproval::Automatic;
    world.spec.allow = vec!["product == 'Server'".into()];
    world.scan(&[(at(1), shown(1, Some('a'))), (at(2), shown(2, Some('b')))]);
    let names: Vec<String> = world.hosts.iter().map(|host| host.name.clone()).collect();
    assert_eq!(world.awaiting(), names);
    // Somebody has refused one; the other one's UUID is shown elsewhere, too.
    world.hosts[1].discovered.as_mut().unwrap().is_refused = true;
    assert_eq!(world.awaiting(), names[..1]);
    world.scan(&[(at(1), shown(1, Some('a'))), (at(2), shown(2, Some('b'))), (at(3), shown(1, Some('c')))]);
    assert_eq!(world.awaiting(), Vec::<String>::new());
    world.spec.approval = api::metamorph::DiscoveryApproval::Manual;
    world.hosts[1].discovered.as_mut().unwrap().is_refused = false;
    assert_eq!(world.awaiting(), Vec::<String>::new());
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
