//! Classes, counters, labels and what is shown.

use api::metal3::{ErrorType, REPORTED_BY, label};
use classification::{Board, Class, Facts, Fault, HostError, Trouble, status, unmatched};
use serde_json::{Value, json};

use crate::kit::{class, data, failed, host, object};

fn cores(count: i64) -> Value {
    json!({ "cpu": { "count": count } })
}

fn put(board: &mut Board, name: &str, hardware: &Value) {
    let (host, data) = (host(&json!(null)), data(hardware));
    board.put_host(("n", name), "uid", Facts::of(&host, Some(&data)), None);
}

#[test]
fn the_label_is_the_classes_name_with_the_value_that_its_own_label_names() {
    let mut sample = object("sample", &json!({ "cpu": { "minimumCount": 2 } }));
    let named = |object: &_| {
        let class = Class::of(object);
        (class.key, class.value)
    };
    assert_eq!(named(&sample), ("hardwareclassification.metal3.io/sample".into(), "matches".into()));
    for (value, is) in [("alternate-value", "alternate-value"), ("", "matches")] {
        sample.metadata.labels = Some([("sample".to_owned(), value.to_owned())].into());
        assert_eq!(named(&sample).1, is);
    }
}

#[test]
fn a_class_that_asks_for_nothing_or_cannot_be_a_label_matches_nobody_and_says_why() {
    let asks = json!({ "cpu": { "minimumCount": 1 } });
    let many: Vec<Value> = (0..65).map(|_| json!({ "hctl": "0:0:N:0" })).collect();
    for (name, wanted, fault, kind) in [
        ("a", json!({}), Fault::Empty, "Empty Profile Error"),
        ("a", json!({ "cpu": {}, "firmware": { "bios": {} } }), Fault::Empty, "Empty Profile Error"),
        ("a", json!({ "nic": { "nicSelector": { "vendor": [] } } }), Fault::Empty, "Empty Profile Error"),
        (&*"a".repeat(64), asks.clone(), Fault::LongName, "label update error"),
        (
            "a",
            json!({ "disk": { "diskSelector": many } }),
            Fault::TooLarge("disk.diskSelector"),
            "Profile Too Large Error",
        ),
        (
            "a",
            json!({ "systemVendor": { "productName": "x".repeat(257) } }),
            Fault::TooLarge("systemVendor.productName"),
            "Profile Too Large Error",
        ),
    ] {
        let class = class(name, &wanted);
        assert_eq!(class.fault, Some(fault), "{wanted}");
        assert!(!class.takes(&serde_json::from_value(cores(8)).unwrap()));
        let mut board = Board::default();
        board.put_class("n", class.clone());
        put(&mut board, "h", &cores(8));
        let shown = status(&class, &board.counts("n", name), None);
        assert_eq!((shown.error_type.as_deref(), shown.matched_count), (Some(kind), Some(0)));
        assert!(!shown.error_message.unwrap().is_empty());
        assert_eq!(unmatched(&class, board.unmatched("n", name), 1), None, "the status says it");
        let of_class = board.labels("n", "h").into_iter().filter(|(key, _)| *key == class.key).collect::<Vec<_>>();
        assert!(
            of_class.iter().all(|(_, value)| value.is_none())
                && of_class.len() == usize::from(fault != Fault::LongName)
        );
    }
    assert_eq!(class(&"a".repeat(63), &asks).fault, None);
}

#[test]
fn what_can_hold_for_no_host_or_has_no_effect_is_remarked() {
    for (wanted, words) in [
        (json!({ "cpu": { "minimumCount": 5, "maximumCount": 3 } }), "cpu.minimumCount is above maximumCount"),
        (json!({ "ram": { "minimumSizeGB": 5, "maximumSizeGB": 3 } }), "ram.minimumSizeGB is above"),
        (json!({ "firmware": { "bios": { "minorVersion": "1.10", "majorVersion": "1.9" } } }), "minorVersion is above"),
        (json!({ "firmware": { "bios": { "minorVersion": "1.10" } } }), "count only together"),
        (json!({ "disk": { "diskSelector": [{ "hctl": "0:0:1:0" }] } }), "write N for each number above 0"),
    ] {
        let class = class("a", &wanted);
        let shown = status(&class, &Board::default().counts("n", "a"), None);
        assert_eq!(shown.error_type, None, "{wanted}");
        assert!(shown.error_message.unwrap().contains(words), "{wanted}");
    }
    assert_eq!(class("a", &json!({ "cpu": { "minimumCount": 3, "maximumCount": 3 } })).remark(), None);
}

#[test]
fn errors_are_counted_whatever_is_known_of_the_hardware() {
    let mut board = Board::default();
    board.put_class("n", class("a", &json!({ "cpu": { "minimumCount": 4 } })));
    let kinds = [
        "registration error",
        "inspection error",
        "preparation error",
        "provisioning error",
        "power management error",
        "provisioned registration error",
        "servicing error",
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let host = host(&failed(kind));
        let facts = data(&cores(8));
        // Half of them have been inspected, and match.
        let facts = Facts::of(&host, Some(&facts).filter(|_| number % 2 == 0));
        board.put_host(("n", &format!("h{number}")), "uid", facts, HostError::of(host.status.as_ref()));
        let wanted = kind.replace(' ', "-");
        assert_eq!(board.labels("n", &format!("h{number}"))[label::CLASS_ERROR], Some(wanted));
    }
    put(&mut board, "small", &cores(2));
    put(&mut board, "large", &cores(16));
    let shown = status(board.class("n", "a").unwrap(), &board.counts("n", "a"), None);
    assert_eq!(
        serde_json::to_value(&shown).unwrap(),
        json!({ "profileMatchStatus": "matched", "matchedCount": 5, "unmatchedCount": 1, "errorHosts": 7, "detachErrorHosts": 0,
            "registrationErrorHosts": 1, "introspectionErrorHosts": 1, "preparationErrorHosts": 1, "provisioningErrorHosts": 1,
            "powerMgmtErrorHosts": 1, "provisionedRegistrationErrorHosts": 1 })
    );
    // Recovered: the label goes, the counter falls.
    board.put_host(("n", "h0"), "uid", None, None);
    assert_eq!(board.labels("n", "h0")[label::CLASS_ERROR], None);
    assert_eq!(board.counts("n", "a").by_type.get(&ErrorType::Registration), None);
}

#[test]
fn a_class_that_goes_takes_its_labels_along_and_the_last_one_those_of_errors() {
    let mut board = Board::default();
    let (a, b) = (json!({ "cpu": { "minimumCount": 4 } }), json!({ "cpu": { "minimumCount": 2 } }));
    board.put_class("n", class("a", &a));
    board.put_class("n", class("b", &b));
    let ill = host(&failed("inspection error"));
    board.put_host(("n", "h"), "uid", Facts::of(&ill, Some(&data(&cores(8)))), HostError::of(ill.status.as_ref()));
    let values = |board: &Board| board.labels("n", "h").into_values().collect::<Vec<_>>();
    let (matches, error) = (Some("matches".to_owned()), Some("inspection-error".to_owned()));
    assert_eq!(values(&board), [error.clone(), matches.clone(), matches.clone()]);
    board.take_hosts();
    let mut going = object("a", &a);
    going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    board.put_class("n", Class::of(&going));
    assert_eq!(values(&board), [error.clone(), None, matches.clone()]);
    assert_eq!(board.take_hosts().len(), 1);
    board.remove_class("n", "a");
    assert_eq!(values(&board), [error, matches]);
    // One whose finalizer somebody has removed is missed when it is gone.
    board.remove_class("n", "b");
    assert_eq!(values(&board), [None, None]);
    assert_eq!(board.take_hosts().len(), 1);
    board.settled("n", "h");
    assert!(board.labels("n", "h").is_empty(), "where nobody classifies, labels are nobody's");
}

#[test]
fn only_pairs_that_a_change_concerns_are_judged() {
    let mut board = Board::default();
    for number in 0..20 {
        board.put_class("n", class(&format!("c{number}"), &json!({ "cpu": { "minimumCount": number + 1 } })));
    }
    for number in 0..100 {
        put(&mut board, &format!("h{number}"), &cores(number % 25));
    }
    assert_eq!(board.judgements(), 2000);
    let judged = |board: &mut Board, act: &mut dyn FnMut(&mut Board)| {
        board.take_hosts();
        board.take_classes();
        let before = board.judgements();
        act(board);
        (board.judgements() - before, board.take_hosts().len(), board.take_classes().len())
    };
    // The same facts in another object: nothing.
    assert_eq!(judged(&mut board, &mut |board| put(board, "h7", &cores(7))), (0, 0, 0));
    assert_eq!(judged(&mut board, &mut |board| put(board, "h7", &cores(8))), (20, 1, 20));
    // An error is no matter of the hardware.
    let ill = host(&failed("provisioning error"));
    let error = HostError::of(ill.status.as_ref());
    let mut fail =
        |board: &mut Board| board.put_host(("n", "h7"), "uid", Facts::of(&ill, Some(&data(&cores(8)))), error);
    assert_eq!(judged(&mut board, &mut fail), (0, 1, 20));
    let mut same = |board: &mut Board| board.put_class("n", class("c3", &json!({ "cpu": { "minimumCount": 4 } })));
    assert_eq!(judged(&mut board, &mut same), (0, 0, 1));
    let mut other = |board: &mut Board| board.put_class("n", class("c3", &json!({ "cpu": { "minimumCount": 5 } })));
    assert_eq!(judged(&mut board, &mut other).0, 100);
    assert_eq!(judged(&mut board, &mut |board| board.remove_host("n", "h7")).0, 0);
    let mut elsewhere = |board: &mut Board| board.put_class("m", class("c3", &json!({ "cpu": { "minimumCount": 5 } })));
    assert_eq!(judged(&mut board, &mut elsewhere), (0, 0, 1), "hosts of other namespaces are no matter of it");
}

#[test]
fn why_hosts_do_not_match_is_shown_of_some_and_counted_of_all() {
    let class = class("a", &json!({ "cpu": { "minimumCount": 4 }, "ram": { "minimumSizeGB": 8 } }));
    let mut board = Board::default();
    board.put_class("n", class.clone());
    board.put_host(("n", "bare"), "uid", None, None);
    put(&mut board, "fits", &json!({ "cpu": { "count": 4 }, "ramMebibytes": 8192 }));
    put(&mut board, "small", &cores(2));
    let show = |board: &Board| {
        let counts = board.counts("n", "a");
        unmatched(&class, board.unmatched("n", "a"), counts.hosts - counts.matched)
            .map(|text| (text.len(), serde_json::from_str::<Value>(&text).unwrap()))
    };
    let (_, shown) = show(&board).unwrap();
    assert_eq!(
        shown,
        json!({ "bare": "nothing is known of its hardware: it has not been inspected",
            "small": "cpu.minimumCount: at least 4 wanted, 2 found; ram.minimumSizeGB: at least 8192 MiB wanted, nothing found" })
    );
    for number in 0..500 {
        put(&mut board, &format!("{}{number}", "h".repeat(60)), &cores(1));
    }
    let (length, shown) = show(&board).unwrap();
    assert_eq!(shown["…"], "and 486 more");
    assert!(length < 6 * 1024, "{length}");
    board.remove_host("n", "bare");
    board.remove_host("n", "small");
    (0..500).for_each(|number| board.remove_host("n", &format!("{}{number}", "h".repeat(60))));
    assert_eq!(show(&board), None);
}

#[test]
fn labels_that_could_not_be_written_are_told_in_upstreams_words() {
    let class = class("a", &json!({ "cpu": { "minimumCount": 4 } }));
    let counts = Board::default().counts("n", "a");
    for (is_removal, kind, words) in [
        (false, "label update error", "Failed to update labels of BareMetalHost h: no"),
        (true, "label delete error", "Failed to remove the label of BareMetalHost h: no"),
    ] {
        let trouble = Trouble { is_removal, host: "h".into(), why: "no".into() };
        let shown = status(&class, &counts, Some(&trouble));
        assert_eq!((shown.error_type.as_deref(), shown.error_message.as_deref()), (Some(kind), Some(words)));
        assert_eq!(shown.profile_match_status.as_deref(), Some("No BareMetalHosts Found"));
    }
}

#[test]
fn a_host_of_the_same_name_is_another_one() {
    let mut board = Board::default();
    board.put_class("n", class("a", &json!({ "cpu": { "minimumCount": 4 } })));
    put(&mut board, "h", &cores(8));
    assert_eq!((board.uid("n", "h"), board.counts("n", "a").matched), (Some("uid"), 1));
    board.put_host(("n", "h"), "another", None, None);
    assert_eq!((board.uid("n", "h"), board.counts("n", "a").matched), (Some("another"), 0));
    assert_eq!(board.labels("n", "h")[&format!("{}a", label::CLASS_PREFIX)], None);
}

#[test]
fn what_a_machine_has_told_of_itself_counts_only_before_its_host_has_bmc_details() {
    let told = |name: &str| {
        let mut data = data(&cores(8)).as_ref().clone();
        data.metadata.annotations = Some([(name.to_owned(), "rack".to_owned())].into());
        std::sync::Arc::new(data)
    };
    let waits = host(&json!({}));
    let mut managed = waits.as_ref().clone();
    managed.spec.bmc =
        Some(serde_json::from_value(json!({ "address": "redfish://192.0.2.7", "credentialsName": "s" })).unwrap());
    let managed = std::sync::Arc::new(managed);
    let is_known = |host, name| Facts::of(host, Some(&told(name))).is_some();
    assert!(is_known(&waits, REPORTED_BY) && !is_known(&managed, REPORTED_BY) && is_known(&managed, "other"));
}
