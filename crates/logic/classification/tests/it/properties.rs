//! Whatever happens in whatever order, the board says what a board says that is told the end alone; and whatever stands in a class or in facts, nothing
//! panics.

use std::collections::BTreeMap;

use api::metal3::{ErrorType, HardwareCharacteristics};
use classification::{Board, Class, Facts, HostError, judge, matches};
use inventory::HardwareDetails;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kit::{class, data, failed, host, object};

#[derive(Clone, Debug)]
enum Act {
    Host(usize, Option<i64>, Option<usize>),
    NoHost(usize),
    Class(usize, i64, i64, bool),
    NoClass(usize),
}

const ERRORS: [&str; 3] = ["inspection error", "provisioning error", "servicing error"];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..6_usize, proptest::option::of(0..8_i64), proptest::option::of(0..3_usize)).prop_map(|(h, c, e)| Act::Host(h, c, e)),
        1 => (0..6_usize).prop_map(Act::NoHost),
        3 => (0..4_usize, 0..6_i64, 1..9_i64, any::<bool>()).prop_map(|(c, least, most, going)| Act::Class(c, least, most, going && least == 0)),
        1 => (0..4_usize).prop_map(Act::NoClass),
    ]
}

fn make(number: usize, least: i64, most: i64, is_going: bool) -> Class {
    let mut object = object(&format!("c{number}"), &json!({ "cpu": { "minimumCount": least, "maximumCount": most } }));
    if is_going {
        object.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    }
    Class::of(&object)
}

fn place(board: &mut Board, number: usize, count: Option<i64>, error: Option<usize>) {
    let of = host(&error.map_or(Value::Null, |kind| failed(ERRORS[kind])));
    let facts = count.map(|count| data(&json!({ "cpu": { "count": count } })));
    board.put_host(
        ("n", &format!("h{number}")),
        "uid",
        Facts::of(&of, facts.as_ref()),
        HostError::of(of.status.as_ref()),
    );
}

proptest! {
    #[test]
    fn the_board_says_what_one_says_that_is_told_the_end_alone(acts in proptest::collection::vec(act(), 1..60)) {
        let mut board = Board::default();
        let mut hosts: BTreeMap<usize, (Option<i64>, Option<usize>)> = BTreeMap::new();
        let mut classes: BTreeMap<usize, (i64, i64, bool)> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Host(number, count, error) => {
                    place(&mut board, number, count, error);
                    hosts.insert(number, (count, error));
                }
                Act::NoHost(number) => {
                    board.remove_host("n", &format!("h{number}"));
                    hosts.remove(&number);
                }
                Act::Class(number, least, most, going) => {
                    board.put_class("n", make(number, least, most, going));
                    classes.insert(number, (least, most, going));
                }
                Act::NoClass(number) => {
                    board.remove_class("n", &format!("c{number}"));
                    classes.remove(&number);
                }
            }
        }
        let mut other = Board::default();
        for (number, (count, error)) in &hosts {
            place(&mut other, *number, *count, *error);
            // What classes that are gone have left is written once.
            board.settled("n", &format!("h{number}"));
        }
        for (number, (least, most, going)) in &classes {
            other.put_class("n", make(*number, *least, *most, *going));
        }
        for number in hosts.keys() {
            let name = format!("h{number}");
            prop_assert_eq!(board.labels("n", &name), other.labels("n", &name));
        }
        for number in classes.keys() {
            let (name, counts) = (format!("c{number}"), board.counts("n", &format!("c{number}")));
            prop_assert_eq!(&counts, &other.counts("n", &name));
            prop_assert_eq!(board.unmatched("n", &name).count() + counts.matched, counts.hosts);
            prop_assert!(counts.matched + counts.unmatched <= counts.hosts && counts.unmatched + counts.errors <= counts.hosts);
            prop_assert!(counts.by_type.values().sum::<usize>() == counts.errors && !counts.by_type.contains_key(&ErrorType::Registration));
        }
    }

    /// Whoever asks for less gets no fewer hosts.
    #[test]
    fn a_wider_range_takes_whatever_a_narrower_one_takes(least in 1..40_i64, more in 0..40_i64, most in 1..80_i64, count in 0..80_i64) {
        let found: HardwareDetails = serde_json::from_value(json!({ "cpu": { "count": count }, "ramMebibytes": count * 700 })).unwrap();
        let range = |least: i64, most: i64| class("c", &json!({ "cpu": { "minimumCount": least, "maximumCount": most },
            "ram": { "minimumSizeGB": least, "maximumSizeGB": most } }));
        prop_assert!(!range(least + more, most).takes(&found) || range(least, most + more).takes(&found));
    }

    /// Texts of hosts and of classes are anybody's.
    #[test]
    fn whatever_stands_there_is_judged_and_told_in_clean_words(
        texts in proptest::collection::vec(any::<String>(), 10), numbers in proptest::collection::vec(any::<i64>(), 10), clock in any::<u32>(),
    ) {
        let [a, b, c, d, e, f, g, h, i, j] = texts.as_slice() else { unreachable!() };
        let n = &numbers;
        let wanted: HardwareCharacteristics = serde_json::from_value(json!({
            "cpu": { "architecture": a, "minimumCount": n[0], "maximumCount": n[1], "minimumSpeedMHz": n[2] },
            "disk": { "diskSelector": [{ "hctl": b }], "minimumIndividualSizeGB": n[3], "maximumIndividualSizeGB": n[4] },
            "ram": { "minimumSizeGB": n[5], "maximumSizeGB": n[6] }, "nic": { "nicSelector": { "vendor": [c] } },
            "systemVendor": { "manufacturer": d, "productName": e }, "firmware": { "bios": { "minorVersion": f, "majorVersion": g, "vendor": h } },
        })).unwrap();
        let found: HardwareDetails = serde_json::from_value(json!({
            "cpu": { "arch": i, "count": n[7], "clockMegahertz": f64::from(clock) }, "ramMebibytes": n[8], "storage": [{ "hctl": b, "name": j, "sizeBytes": n[9] }],
            "nics": [{ "model": j }], "systemVendor": { "manufacturer": j, "productName": i }, "firmware": { "bios": { "version": j, "vendor": i } },
        })).unwrap();
        let all = judge(&wanted, &found);
        prop_assert_eq!(all.is_empty(), matches(&wanted, &found));
        let told = classification::reason(Some(&all));
        prop_assert!(told.chars().all(terms::is_printable) && told.chars().count() <= 201, "{}", told);
    }
}
