//! The rule, row by row, as data.

use inventory::{BmcPin, MachineEvidence};
use machine_identity::{Common, Finding, across, compare, fingerprint, fingerprint_of_bmc, holds, survivors};
use proptest::prelude::*;

const U1: &str = "4C4C4544-0047-3710-8051-B4C04F4A3132";
const U1_SWAPPED: &str = "44454c4c-4700-1037-8051-b4c04f4a3132";
const U1_REVERSED: &str = "32314a4f-c0b4-5180-1037-470044454c4c";
const U2: &str = "39343550-3330-4D32-3244-324A30304C34";
const BLANK: &str = "03000200-0400-0500-0006-000700080009";
const M1: &str = "00:1b:21:aa:bb:01";
const M2: &str = "00:1b:21:aa:bb:02";
const M3: &str = "00:1b:21:aa:bb:03";
const MADE_UP: &str = "52:54:00:12:34:56";

fn machine(uuid: &str, serial: &str, macs: &[&str]) -> MachineEvidence {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    MachineEvidence {
        system_uuid: text(uuid),
        serial_number: text(serial),
        macs: macs.iter().map(|mac| (*mac).to_owned()).collect(),
        ..MachineEvidence::default()
    }
}

/// What a row comes to.
#[derive(Debug, PartialEq)]
enum Row {
    Match,
    /// It matches, though this many things differ.
    Drift(usize),
    Mismatch,
    Unknown,
}

type Shown<'a> = (&'a str, &'a str, &'a [&'a str]);

#[test]
fn every_row() {
    use Row::{Drift, Match, Mismatch, Unknown};
    let rows: &[(Shown<'_>, Shown<'_>, Row)] = &[
        // UUID or serial equal, and neither different
        ((U1, "S1", &[]), (U1, "S1", &[]), Match),
        ((U1, "S1", &[]), (U1_SWAPPED, "s1 ", &[]), Match),
        ((U1, "S1", &[]), (U1_REVERSED, "S1", &[]), Match),
        ((U1, "", &[]), (U1, "S1", &[]), Match),
        ((U1, "S1", &[]), ("", "S1", &[]), Match),
        ((U1, "To be filled by O.E.M.", &[]), (U1, "Default string", &[]), Match),
        ((U1, "S1", &[M1]), (U1, "S1", &[M1]), Match),
        // all cards exchanged: drift, no other machine
        ((U1, "S1", &[M1]), (U1, "S1", &[M2]), Drift(1)),
        // one different, none equal
        ((U1, "S1", &[]), (U2, "S2", &[]), Mismatch),
        ((U1, "", &[]), (U2, "", &[]), Mismatch),
        (("", "S1", &[]), ("", "S2", &[]), Mismatch),
        ((U1, "S1", &[M1]), (U2, "S2", &[M1]), Mismatch),
        ((U1, "", &[]), (U2, "S1", &[]), Mismatch),
        // one equal, one different: the MACs decide
        ((U1, "S1", &[M1, M2]), (U2, "S1", &[M2, M3]), Drift(1)),
        ((U1, "S1", &[M1]), (U1, "S2", &[M1]), Drift(1)),
        ((U1, "S1", &[M1]), (U2, "S1", &[M3]), Mismatch),
        ((U1, "S1", &[M1]), (U2, "S1", &[]), Unknown),
        ((U1, "S1", &[]), (U2, "S1", &[M1]), Unknown),
        // neither is to be seen in both: the MACs decide
        ((U1, "", &[M1]), ("", "S1", &[M1]), Match),
        (("", "", &[M1]), ("", "", &[M1, M2]), Match),
        (("", "", &[M1]), ("", "", &["00-1B-21-AA-BB-01"]), Match),
        (("", "", &[M1]), ("", "", &[M2]), Mismatch),
        ((BLANK, "None", &[M1]), (BLANK, "None", &[M2]), Mismatch),
        (("", "", &[M1]), ("", "", &[]), Unknown),
        (("", "", &[]), ("", "", &[]), Unknown),
        ((U1, "S1", &[]), ("", "", &[]), Unknown),
        // what is no evidence decides nothing
        ((BLANK, "0123456789", &[]), (BLANK, "0123456789", &[]), Unknown),
        (("", "", &[MADE_UP]), ("", "", &[MADE_UP]), Unknown),
        (("", "", &[MADE_UP]), ("", "", &["52:54:00:00:00:01"]), Unknown),
    ];
    for (recorded, seen, row) in rows {
        let finding =
            compare(&machine(recorded.0, recorded.1, recorded.2), &machine(seen.0, seen.1, seen.2), &Common::default());
        let found = match finding {
            Finding::Match { drift } if drift.is_empty() => Match,
            Finding::Match { drift } => Drift(drift.len()),
            Finding::Mismatch { differences } => {
                assert!(!differences.is_empty());
                Mismatch
            }
            Finding::Unknown => Unknown,
        };
        assert_eq!(found, *row, "{recorded:?} then {seen:?}");
    }
}

#[test]
fn what_two_machines_with_different_cards_show_is_no_evidence() {
    let shared = [machine(U1, "S1", &[M1]), machine(U1, "S2", &[M2])];
    let common = Common::of(&shared);
    assert_eq!(compare(&machine(U1, "", &[]), &machine(U1, "", &[]), &common), Finding::Unknown);
    assert!(matches!(compare(&shared[0], &shared[1], &common), Finding::Mismatch { .. }));
    assert!(matches!(compare(&shared[0], &shared[0], &common), Finding::Match { .. }));
    // The same machine twice, or one that shows no card, makes nothing common.
    for harmless in [machine(U1, "S1", &[M1, M3]), machine(U1, "S1", &[])] {
        let common = Common::of([&shared[0], &harmless]);
        assert!(matches!(compare(&shared[0], &shared[0], &common), Finding::Match { .. }), "{harmless:?}");
    }
}

#[test]
fn across_sources_equality_alone_counts_and_serials_by_makers() {
    let of =
        |maker: &str, machine: MachineEvidence| MachineEvidence { manufacturer: Some(maker.to_owned()), ..machine };
    let none = Common::default();
    assert!(across(&machine(U1, "", &[]), &machine(U1_SWAPPED, "", &[]), &none));
    assert!(across(&machine("", "", &[M1]), &machine(U2, "S2", &[M1]), &none));
    assert!(across(&of("Dell Inc.", machine("", "TAG", &[])), &of("Dell Inc.", machine("", "tag", &[])), &none));
    assert!(!across(&of("Supermicro", machine("", "S1", &[])), &of("Supermicro", machine("", "S1", &[])), &none));
    assert!(!across(&machine(U1, "", &[]), &machine(U2, "", &[]), &none));
}

#[test]
fn a_bmc_is_known_by_one_part_of_its_pin() {
    let pin = |uuid: Option<&str>, key: Option<&str>| BmcPin {
        service_uuid: uuid.map(ToOwned::to_owned),
        key_sha256: key.map(ToOwned::to_owned),
    };
    for (recorded, seen, same) in [
        (pin(None, None), pin(Some(U1), Some("aa")), true),
        (pin(Some(U1), Some("aa")), pin(Some(U1), Some("aa")), true),
        (pin(Some(U1), Some("aa")), pin(Some(U1_SWAPPED), Some("bb")), true),
        (pin(Some(U1), Some("aa")), pin(Some(U2), Some("AA")), true),
        (pin(Some(U1), Some("aa")), pin(Some(U2), Some("bb")), false),
        (pin(Some(U1), None), pin(None, Some("aa")), false),
        (pin(Some(U1), None), pin(None, None), false),
        // Every BMC of the kind shows it.
        (pin(Some(BLANK), None), pin(Some(BLANK), None), true),
    ] {
        assert_eq!(holds(&recorded, &seen), same, "{recorded:?} then {seen:?}");
        if !same {
            assert_ne!(fingerprint_of_bmc(&recorded), fingerprint_of_bmc(&seen));
        }
    }
}

#[test]
fn a_new_mainboard_keeps_what_a_new_machine_does_not() {
    let disks = |machine: MachineEvidence, disks: &[&str]| MachineEvidence {
        disks: disks.iter().map(|disk| (*disk).to_owned()).collect(),
        ..machine
    };
    let before = disks(machine(U1, "S1", &[M1, M2]), &["wd-1", "wd-2"]);
    let board = disks(machine(U2, "S2", &[M3]), &["WD-1", "WD-2"]);
    assert_eq!(
        survivors(&before, &board).to_string(),
        "0 of 2 MAC addresses and 2 of 2 serial numbers and WWNs of disks recorded are there"
    );
    let other = disks(machine(U2, "S2", &[M3]), &["WD-9"]);
    assert_eq!(
        survivors(&before, &other).to_string(),
        "0 of 2 MAC addresses and 0 of 2 serial numbers and WWNs of disks recorded are there"
    );
}

#[test]
fn a_fingerprint_is_of_the_machine_and_not_of_how_it_is_written() {
    let one = fingerprint(&machine(U1, "S1", &[M1]));
    assert_eq!(one.len(), 19, "{one}");
    assert_eq!(fingerprint(&machine(U1_REVERSED, " s1", &[])), one);
    assert_ne!(fingerprint(&machine(U2, "S1", &[M1])), one);
    let by_cards = fingerprint(&machine(BLANK, "None", &[M1, M2]));
    assert_eq!(fingerprint(&machine("", "", &["00-1B-21-AA-BB-02", M1])), by_cards);
    assert_ne!(fingerprint(&machine("", "", &[M1])), by_cards);
}

fn any_machine() -> impl Strategy<Value = MachineEvidence> {
    let uuid = prop_oneof![Just(""), Just(U1), Just(U2), Just(BLANK), Just(U1_SWAPPED)];
    let serial = prop_oneof![Just(""), Just("S1"), Just("S2"), Just("None")];
    let macs = prop::collection::vec(prop_oneof![Just(M1), Just(M2), Just(M3), Just(MADE_UP)], 0..3);
    (uuid, serial, macs).prop_map(|(uuid, serial, macs)| machine(uuid, serial, &macs))
}

proptest! {
    /// Which of the two was recorded does not matter, and no machine is another than itself.
    #[test]
    fn the_rule_is_symmetric_and_reflexive(a in any_machine(), b in any_machine()) {
        let kind = |finding| match finding {
            Finding::Match { .. } => 'm',
            Finding::Mismatch { .. } => 'x',
            Finding::Unknown => '?',
        };
        let none = Common::default();
        prop_assert_eq!(kind(compare(&a, &b, &none)), kind(compare(&b, &a, &none)));
        prop_assert_ne!(kind(compare(&a, &a, &none)), 'x');
    }

    /// A value that everybody shows can neither make a match nor a mismatch on its own.
    #[test]
    fn what_is_not_shown_decides_nothing(a in any_machine()) {
        prop_assert_eq!(compare(&a, &MachineEvidence::default(), &Common::default()), Finding::Unknown);
    }
}
