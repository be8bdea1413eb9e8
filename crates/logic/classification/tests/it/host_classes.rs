//! HostClasses: what is accepted, how hosts come out, what is written, and that a change is judged by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Time;
use api::metal3::{BareMetalHost, annotation};
use api::metamorph::{HostClass, HostClassStatus, RuleVerdict};
use classification::Facts;
use classification::host_class::{Board, COST_LIMIT, Class, MAX_CLASSES, review};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kit::data;

fn object(name: &str, rules: &[&str], result: &Value) -> HostClass {
    let rules: Vec<Value> =
        (0..).zip(rules).map(|(n, rule)| json!({ "name": format!("r{n}"), "expression": rule })).collect();
    serde_json::from_value(
        json!({ "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "generation": 1 },
        "spec": { "rules": rules, "result": result } }),
    )
    .unwrap()
}

fn class(name: &str, rules: &[&str], result: &Value) -> Class {
    Class::of(&object(name, rules, result), None)
}

fn preview(name: &str, rules: &[&str], result: &Value) -> Class {
    let mut object = object(name, rules, result);
    object.spec.mode = api::metamorph::HostClassMode::Preview;
    Class::of(&object, None)
}

fn host(name: &str, metadata: &Value, status: &Value) -> Arc<BareMetalHost> {
    let mut all = json!({ "name": name, "namespace": "n", "uid": format!("uid-{name}") });
    all.as_object_mut().unwrap().extend(metadata.as_object().cloned().unwrap_or_default());
    Arc::new(serde_json::from_value(json!({ "metadata": all, "status": status })).unwrap())
}

fn facts(hardware: &Value) -> Option<Facts> {
    Some(Facts::Data(data(hardware)))
}

fn now() -> Time {
    serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap()
}

fn status(board: &Board, name: &str) -> HostClassStatus {
    board.status("n", name, (None, None), &now()).unwrap()
}

fn judge(board: &mut Board) {
    while board.judge(COST_LIMIT) {}
    for (namespace, host) in board.take_hosts() {
        board.refresh(&namespace, &host);
    }
}

/// The host as it is when the plan for it has been written.
fn write(board: &Board, host: &Arc<BareMetalHost>) -> Option<Arc<BareMetalHost>> {
    let plan = board.plan("n", host)?;
    let text = plan.ledger.text();
    if plan.changes.is_empty() && host.annotation(annotation::HOST_CLASSES) == text.as_deref() {
        return None;
    }
    let mut written = BareMetalHost::clone(host);
    let labels = written.metadata.labels.get_or_insert_default();
    for (key, value) in plan.changes {
        match value {
            Some(value) => drop(labels.insert(key, value)),
            None => drop(labels.remove(&key)),
        }
    }
    let annotations = written.metadata.annotations.get_or_insert_default();
    match text {
        Some(text) => drop(annotations.insert(annotation::HOST_CLASSES.to_owned(), text)),
        None => drop(annotations.remove(annotation::HOST_CLASSES)),
    }
    Some(Arc::new(written))
}

fn denied(rules: &[&str], result: &Value) -> String {
    let new = serde_json::to_value(object("c", rules, result)).unwrap();
    review(&new, None).denials.join(" | ")
}

#[test]
fn what_is_refused_is_told_with_rule_place_and_cost() {
    let none = json!({});
    for (rules, result, words) in [
        // Those of examples/host-class.yaml and of docs/classification.md.
        (
            vec![
                "host.bootMode != 'legacy'",
                "hardware.nics.filter(n, has(n.speedGbps) && n.speedGbps >= 25).size() >= 2",
                "hardware.storage.size() >= 4 && hardware.storage.all(d, !d.rotational)",
                "hardware.nics.exists(n, has(n.lldp) && n.lldp.switchSystemName.startsWith('front-'))",
                "firmware.components.exists(c, c.component == 'bios' && c.version == '2.19.1')",
                "hardware.?cpu.?count.orValue(0) > 0",
            ],
            json!({ "flavor": "storage", "role": "ceph", "labels": { "example.com/rack-side": "front" } }),
            "",
        ),
        (vec!["hardware.ramMebibytes >= 1024"], none.clone(), ""),
        (vec!["hardware.nics.exists(n, has(n.lldp) && n.lldp.switchSystemName == 'tor-1')"], none.clone(), ""),
        (vec!["has(diagnosis.code) && 'FanFailed' in diagnosis.codes"], none.clone(), ""),
        (vec!["host.labels['rack'] == '7' && host.bootMode == 'UEFI'"], none.clone(), ""),
        (vec!["hardware.storage.filter(d, d.type == 'NVME').size() >= 2"], none.clone(), ""),
        (vec!["hardware.systemVendor.productName.matches('^PowerEdge R7[0-9]+')"], none.clone(), ""),
        (vec!["true", "hardware.cpu.cuont > 3"], none.clone(), "rule r1: line 1, column 13: undefined field 'cuont'"),
        (vec!["\n  hardware.cpu.count > 'x'"], none.clone(), "rule r0: line 2, column 22: found no matching overload"),
        (vec!["hardware.cpu.count"], none.clone(), "rule r0: it yields int"),
        (vec!["hardware.cpu.count >"], none.clone(), "rule r0: line 1, column 21: "),
        (vec!["machine.cpu == 1"], none.clone(), "rule r0: line 1, column 1: undeclared reference to 'machine'"),
        (vec!["host.name.matches(host.labels['p'])"], none.clone(), "rule r0: it computes a regular expression"),
        (vec!["host.name.matches('((a{200}){200}){20}')"], none.clone(), "rule r0: "),
        (vec!["host.name.matches('(a{90}){50}')"], none.clone(), "takes more than 64 KiB"),
        (
            vec!["hardware.nics.all(a, hardware.nics.all(b, hardware.nics.all(c, a.mac == b.mac || b.mac == c.mac)))"],
            none.clone(),
            "rule r0 may cost ",
        ),
        (
            vec!["true"],
            json!({ "labels": { "kubernetes.io/arch": "x" } }),
            "spec.result.labels[kubernetes.io/arch]: labels of kubernetes.io are those of Kubernetes",
        ),
        (vec!["true"], json!({ "labels": { "metal3.io/a": "x" } }), "those of Metal³"),
        (vec!["true"], json!({ "labels": { "a": "b c" } }), "spec.result.labels[a]: "),
        (
            vec!["true"],
            json!({ "labels": { (format!("{}.example.com/a", ["a"; 60].join("."))): "x".repeat(63), (format!("{}.example.com/b", ["a"; 60].join("."))): "x".repeat(63),
                (format!("{}.example.com/c", ["a"; 60].join("."))): "x".repeat(63) } }),
            "bytes with their keys, flavor and role included: 512 are accepted",
        ),
        (vec!["true"], json!({ "flavor": "a/b" }), "spec.result.flavor: "),
        (vec!["true"], json!({ "role": "" }), "spec.result.role: it is empty"),
        (vec![], none.clone(), "it has 0 rules"),
    ] {
        let said = denied(&rules, &result);
        if words.is_empty() {
            assert_eq!(said, "", "{rules:?}");
        } else {
            assert!(said.contains(words), "{rules:?}: {said}");
        }
    }
    let cost = denied(&["hardware.nics.all(a, hardware.nics.all(b, hardware.nics.all(c, a.mac == c.mac)))"], &none);
    assert!(cost.contains("all rules of a class 250000 at most"), "{cost}");
    let many: Vec<String> = (0..9).map(|n| format!("host.name.matches('p{n}')")).collect();
    assert!(denied(&[&many.join(" || ")], &none).contains("9 regular expressions, 8 are accepted"));
    let nested = "hardware.nics.all(a, hardware.nics.all(b, a.speedGbps == b.speedGbps))";
    assert!(denied(&[nested], &none).is_empty());
    assert!(denied(&[nested; 16], &none).contains("its rules may cost "));
}

#[test]
fn a_class_that_is_stored_with_a_fault_can_be_labelled_and_deleted() {
    let mut new = serde_json::to_value(object("c", &["hardware.nonsense"], &json!({}))).unwrap();
    assert!(!review(&new, None).denials.is_empty());
    let old = new.clone();
    new["metadata"]["labels"] = json!({ "a": "b" });
    assert!(review(&new, Some(&old)).denials.is_empty());
    new["spec"]["rules"][0]["expression"] = json!("hardware.other");
    assert!(!review(&new, Some(&old)).denials.is_empty());
    new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(review(&new, Some(&old)).denials.is_empty());
    let mut unclear = serde_json::to_value(object("c", &["true"], &json!({ "role": "x" }))).unwrap();
    let plain = unclear.clone();
    unclear["metadata"]["labels"] = json!({ "error-detect": "yes" });
    for old in [None, Some(&plain)] {
        let found = review(&unclear, old);
        assert!(found.denials.is_empty() && found.warnings.len() == 1, "{found:?}");
        assert!(found.warnings[0].contains("label error-detect: \"yes\" counts as not set"), "{found:?}");
    }
    assert_eq!(review(&unclear, Some(&unclear)).warnings, [""; 0]);
    let mut detecting = serde_json::to_value(object("c", &["!has(diagnosis.code)"], &json!({ "role": "x" }))).unwrap();
    assert!(review(&detecting, None).denials.is_empty());
    detecting["metadata"]["labels"] = json!({ "error-detect": "true" });
    assert!(review(&detecting, None).denials[0].contains("each would undo the other"));
    let empty = serde_json::to_value(object("c", &["true"], &json!({}))).unwrap();
    assert!(review(&empty, None).warnings[0].contains("gives hosts no label"));
}

#[test]
fn hosts_are_told_apart_by_gpus_tpm_and_nodes_and_earlier_inspections_tell_nothing() {
    let mut board = Board::default();
    let inspected = |gpus: usize| {
        let pci: Vec<String> =
            (0..gpus).map(|at| format!("0000:3{at}:00.0 030200 10de:2330 10de:16c1 - {}", at % 2)).collect();
        let devices = json!({ "pci": pci, "tpm": { "present": true, "version": "2.0", "manufacturer": "IFX" },
            "numa": [{ "node": 0, "cpus": "0-15", "memoryMebibytes": 65536 }, { "node": 1, "cpus": "16-31" }],
            "started": { "uefi": true, "secureBoot": false } });
        let annotation = json!({ (api::metal3::DEVICES): devices.to_string() });
        let object = json!({ "metadata": { "name": "h", "annotations": annotation }, "spec": { "hardware": { "ramMebibytes": 1 } } });
        Some(Facts::Data(Arc::new(serde_json::from_value(object).unwrap())))
    };
    for (name, facts) in [("many", inspected(4)), ("none", inspected(0)), ("old", facts(&json!({ "ramMebibytes": 1 })))]
    {
        board.put_host("n", &host(name, &json!({}), &Value::Null), facts, None);
    }
    for (name, rule) in [
        ("gpus", "hardware.gpus.filter(g, g.vendorID == '10de' && g.deviceID == '2330').size() >= 4"),
        ("without", "hardware.gpus.size() == 0"),
        ("pci", "hardware.pci.exists(d, d.class.startsWith('0302') && d.numaNode == 1)"),
        ("tpm", "hardware.tpm.present && hardware.tpm.version == '2.0' && hardware.tpm.manufacturer == 'IFX'"),
        (
            "numa",
            "hardware.numa.size() == 2 && hardware.numa.all(n, n.cpuCount == 16) && hardware.numa.all(n, n.gpus == 2)",
        ),
        ("started", "hardware.started.uefi && !hardware.started.secureBoot"),
        ("asked", "hardware.?gpus.orValue([]).size() == 0"),
    ] {
        assert_eq!(denied(&[rule], &json!({ "role": "x" })), "", "{name}");
        board.put_class("n", class(name, &[rule], &json!({ "role": "x" })));
    }
    judge(&mut board);
    for (class, of) in [
        ("gpus", vec!["many"]),
        ("without", vec!["none"]),
        ("pci", vec!["many"]),
        ("tpm", vec!["many", "none"]),
        ("numa", vec!["many"]),
        ("started", vec!["many", "none"]),
        ("asked", vec!["none", "old"]),
    ] {
        let found = status(&board, class);
        let mut names = found.hosts.clone();
        names.sort();
        assert_eq!(names, of, "{class}");
        let old = found.unmatched.iter().find(|one| one.name == "old").map(|one| (one.verdict, one.reason.as_str()));
        if class == "without" {
            let reason = "hardware.gpus is not known; an inspection of this version with an agent tells it";
            assert_eq!(old, Some((RuleVerdict::NotKnown, reason)));
        } else {
            assert!(old.is_none_or(|(verdict, _)| verdict == RuleVerdict::NotKnown), "{class}: {old:?}");
        }
    }
    let text = denied(&["hardware.gpus.exists(g, g.memory > 1)"], &json!({}));
    assert!(text.contains("memory"), "{text}");
    // Three lists within each other are too dear.
    let dear = "hardware.pci.all(a, hardware.pci.all(b, hardware.pci.exists(c, c.address == a.address + b.address)))";
    assert!(denied(&[dear], &json!({})).contains("cost"), "{}", denied(&[dear], &json!({})));
}

#[test]
fn what_is_not_known_is_never_false_in_silence() {
    let mut board = Board::default();
    let found = json!({ "cpu": { "count": 8 }, "ramMebibytes": 2048, "storage": [{ "name": "/dev/sda" }] });
    board.put_host("n", &host("a", &json!({ "labels": { "rack": "7" } }), &Value::Null), facts(&found), None);
    board.put_host("n", &host("b", &json!({}), &Value::Null), None, None);
    for (name, rules) in [
        ("false", vec!["hardware.ramMebibytes > 4096"]),
        ("absent", vec!["hardware.systemVendor.manufacturer == 'Dell'"]),
        ("asked", vec!["has(hardware.systemVendor)"]),
        ("both", vec!["hardware.systemVendor.manufacturer == 'Dell'", "hardware.cpu.count > 64"]),
        ("within", vec!["hardware.storage.exists(d, d.rotational)"]),
        ("guarded", vec!["has(hardware.hostname) || hardware.storage.all(d, !d.rotational)"]),
        ("failed", vec!["hardware.storage[3].name == 'x'"]),
        ("label", vec!["host.labels['room'] == 'x'"]),
        ("is", vec!["hardware.cpu.count >= 8 && host.labels.rack == '7'"]),
    ] {
        board.put_class("n", class(name, &rules, &json!({ "role": "x" })));
    }
    judge(&mut board);
    let of = |class: &str, host: &str| {
        let status = status(&board, class);
        status.unmatched.into_iter().find(|one| one.name == host).map(|one| (one.verdict, one.reason))
    };
    let (falsehood, unknown, failed) = (RuleVerdict::False, RuleVerdict::NotKnown, RuleVerdict::Failed);
    assert_eq!(of("false", "a"), Some((falsehood, "hardware.ramMebibytes is 2048".to_owned())));
    let (verdict, reason) = of("false", "b").unwrap();
    assert_eq!(verdict, unknown);
    assert_eq!(reason, "hardware.ramMebibytes is not known; the host has not been inspected");
    assert_eq!(of("absent", "a"), Some((unknown, "hardware.systemVendor.manufacturer is not known".to_owned())));
    assert_eq!(of("asked", "a"), Some((falsehood, "hardware.systemVendor is not known".to_owned())));
    assert_eq!(of("both", "a"), Some((falsehood, "hardware.cpu.count is 8".to_owned())), "false decides");
    assert_eq!(of("within", "a"), Some((unknown, "rotational is not known of an entry".to_owned())));
    // What the rule has asked for is not what was missing.
    assert_eq!(of("guarded", "a"), Some((unknown, "rotational is not known of an entry".to_owned())));
    assert_eq!(of("failed", "a").unwrap().0, failed);
    assert_eq!(of("label", "a"), Some((unknown, "host.labels.room is not there".to_owned())));
    assert_eq!(of("is", "a"), None);
    let counts = status(&board, "both");
    assert_eq!((counts.matched_count, counts.unmatched_count, counts.unknown_count), (0, 2, 1));
    let is = status(&board, "is");
    assert_eq!((is.hosts, is.matched_count, is.observed_generation), (vec!["a".to_owned()], 1, Some(1)));
}

#[test]
fn versions_of_firmware_are_known_where_they_have_been_read() {
    let mut board = Board::default();
    let read: api::metal3::HostFirmwareComponents = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": { "updates": [] },
        "status": { "components": [{ "component": "bios", "initialVersion": "1.0", "currentVersion": "2.10" }, { "component": "bmc", "initialVersion": "7.1" }] } }))
    .unwrap();
    let place = |board: &mut Board, name: &str, firmware| {
        board.put_host("n", &host(name, &json!({}), &Value::Null), None, firmware)
    };
    place(&mut board, "a", Some(&read));
    place(&mut board, "b", None);
    let rule = "firmware.components.exists(c, c.component == 'bios' && semver(c.version, true).isGreaterThan(semver('2.9.0')))";
    board.put_class("n", class("c", &[rule], &json!({ "role": "x" })));
    judge(&mut board);
    let now = status(&board, "c");
    assert_eq!((now.hosts.as_slice(), now.unknown_count), (&["a".to_owned()][..], 1));
    assert_eq!(now.unmatched[0].reason, "firmware.components is not known");
    place(&mut board, "b", Some(&read));
    judge(&mut board);
    assert_eq!((status(&board, "c").matched_count, board.judgements()), (2, 3));
}

#[test]
fn hosts_in_error_are_listed_with_the_cause_that_was_diagnosed() {
    let mut board = Board::default();
    let failed = json!({ "operationalStatus": "error", "errorType": "provisioning error", "errorMessage": "x",
        "provisioning": { "ID": "", "state": "provisioning", "image": { "url": "" } } });
    let summary = json!({ "phase": "Found", "code": "DriveFailed", "others": ["FanFailed"], "component": { "kind": "Drive", "slot": "3" } });
    let annotated = json!({ "annotations": { (annotation::DIAGNOSIS): summary.to_string() } });
    board.put_host("n", &host("a", &annotated, &failed), facts(&json!({ "ramMebibytes": 1 })), None);
    board.put_host(
        "n",
        &host("b", &json!({ "annotations": { (annotation::DIAGNOSIS): "nonsense" } }), &failed),
        None,
        None,
    );
    board.put_class("n", class("ill", &["has(host.errorType)"], &json!({ "role": "repair" })));
    board.put_class(
        "n",
        class("drive", &["'FanFailed' in diagnosis.codes && diagnosis.component.slot == '3'"], &json!({})),
    );
    judge(&mut board);
    let ill = status(&board, "ill");
    assert_eq!((ill.matched_count, ill.errored_count), (2, 2));
    assert_eq!(
        (ill.errored[0].error_type.as_deref(), ill.errored[0].cause.as_deref()),
        (Some("provisioning error"), Some("DriveFailed"))
    );
    assert_eq!(ill.errored[1].cause, None);
    assert_eq!(status(&board, "drive").hosts, ["a"]);
}

#[test]
fn a_preview_writes_nothing_and_lists_what_would_change() {
    let mut board = Board::default();
    let (small, large) = (json!({ "cpu": { "count": 4 } }), json!({ "cpu": { "count": 64 } }));
    let mut hosts = [host("a", &json!({}), &Value::Null), host("b", &json!({}), &Value::Null)];
    board.put_host("n", &hosts[0], facts(&small), None);
    board.put_host("n", &hosts[1], facts(&large), None);
    let result = json!({ "flavor": "large", "labels": { "example.com/large": "true" } });
    board.put_class("n", class("c", &["hardware.cpu.count > 32"], &result));
    judge(&mut board);
    hosts[1] = write(&board, &hosts[1]).expect("it gets labels");
    assert!(write(&board, &hosts[0]).is_none());
    board.put_host("n", &hosts[1], facts(&large), None);
    judge(&mut board);
    assert!(write(&board, &hosts[1]).is_none(), "it has them");
    // Another rule, first as a preview.
    board.put_class("n", preview("c", &["hardware.cpu.count < 8"], &result));
    judge(&mut board);
    assert!(hosts.iter().all(|host| write(&board, host).is_none()));
    let shown = status(&board, "c");
    assert_eq!((shown.preview_count, shown.preview[0].name.as_str(), shown.preview[1].name.as_str()), (2, "a", "b"));
    assert_eq!(shown.preview[0].gains["metamorph.metal3.io/flavor"], "large");
    assert_eq!(shown.preview[1].loses, ["example.com/large", "metamorph.metal3.io/flavor"]);
    assert!(shown.conditions.iter().any(|condition| condition.kind == "Applied" && condition.reason == "Preview"));
    // A class that has a fault leaves its labels; one that is gone takes them along.
    board.put_class("n", class("c", &["nonsense"], &result));
    judge(&mut board);
    assert!(hosts.iter().all(|host| write(&board, host).is_none()));
    board.remove_class("n", "c");
    judge(&mut board);
    let after = write(&board, &hosts[1]).unwrap();
    assert_eq!(
        (after.metadata.labels.clone().unwrap_or_default().len(), after.annotation(annotation::HOST_CLASSES)),
        (0, None)
    );
}

#[test]
fn a_preview_tells_which_labels_hosts_would_not_get() {
    let mut board = Board::default();
    let one = host("a", &json!({ "labels": { "size": "mine" } }), &Value::Null);
    board.put_host("n", &one, facts(&json!({ "ramMebibytes": 1 })), None);
    board.put_class("n", preview("c", &["hardware.ramMebibytes > 0"], &json!({ "labels": { "size": "small" } })));
    judge(&mut board);
    let shown = status(&board, "c");
    assert_eq!((shown.preview_count, shown.conflict_count, shown.conflicts[0].found.as_str()), (0, 1, "mine"));
    let applied = shown.conditions.iter().find(|condition| condition.kind == "Applied").unwrap();
    assert!(applied.reason == "Preview" && applied.message.contains("1 hosts would not get a label"), "{applied:?}");
    assert!(write(&board, &one).is_none());
}

/// Whoever asks has a turn after each part, however much rules cost and however many hosts and classes there are.
#[test]
fn a_part_costs_what_it_may_and_one_pair_at_most_and_nothing_is_judged_twice() {
    let rule = "hardware.nics.all(a, hardware.nics.all(b, a.speedGbps == b.speedGbps))";
    let nics: Vec<Value> = (0..60).map(|n| json!({ "name": format!("eth{n}"), "speedGbps": 10 })).collect();
    let found = facts(&json!({ "nics": nics }));
    let fill = |board: &mut Board| {
        for number in 0..3 {
            board.put_class(
                "n",
                class(&format!("c{number}"), &[rule], &json!({ "labels": { (format!("l{number}")): "x" } })),
            );
        }
        for number in 0..5 {
            board.put_host("n", &host(&format!("h{number}"), &json!({}), &Value::Null), found.clone(), None);
        }
    };
    let (mut parted, mut whole) = (Board::default(), Board::default());
    fill(&mut parted);
    fill(&mut whole);
    let mut before = 0;
    while parted.judge(1) {
        assert_eq!(parted.judgements(), before + 1, "one pair costs more than the part may");
        before = parted.judgements();
        // A change between two parts: the pairs that are left of the host are judged, and all of it anew.
        if before == 1 {
            parted.put_host("n", &host("h4", &json!({ "labels": { "a": "b" } }), &Value::Null), found.clone(), None);
        }
    }
    assert_eq!(parted.judgements(), 15);
    whole.put_host("n", &host("h4", &json!({ "labels": { "a": "b" } }), &Value::Null), found.clone(), None);
    judge(&mut parted);
    judge(&mut whole);
    for number in 0..3 {
        let name = format!("c{number}");
        assert_eq!((status(&parted, &name), status(&parted, &name).matched_count), (status(&whole, &name), 5));
    }
}

/// Otherwise a class would follow from itself: its label would come and go for ever.
#[test]
fn rules_do_not_see_what_classes_have_given() {
    let mut board = Board::default();
    let mut one = host(
        "a",
        &json!({ "labels": { "rack": "7", "metamorph.metal3.io/error-type": "InspectionError" } }),
        &Value::Null,
    );
    board.put_class(
        "n",
        class("c", &["host.labels.size() == 1 && !('spare' in host.labels)"], &json!({ "labels": { "spare": "yes" } })),
    );
    board.put_host("n", &one, None, None);
    judge(&mut board);
    one = write(&board, &one).expect("it is of the class");
    board.put_host("n", &one, None, None);
    judge(&mut board);
    assert!(write(&board, &one).is_none() && status(&board, "c").matched_count == 1);
    // What somebody writes there is theirs, and seen.
    let mut theirs = BareMetalHost::clone(&one);
    theirs.metadata.labels.as_mut().unwrap().insert("spare".to_owned(), "no".to_owned());
    let theirs = Arc::new(theirs);
    board.put_host("n", &theirs, None, None);
    judge(&mut board);
    assert_eq!(status(&board, "c").matched_count, 0);
    let after = write(&board, &theirs).expect("it is not ours any more");
    assert_eq!(after.metadata.labels.as_ref().unwrap()["spare"], "no");
}

#[test]
fn ten_thousand_hosts_are_judged_once_and_a_change_by_itself() {
    let mut board = Board::default();
    for number in 0..5 {
        let rule = format!("hardware.cpu.count > {}", number * 8);
        board.put_class(
            "n",
            class(&format!("c{number}"), &[&rule], &json!({ "labels": { (format!("l{number}")): "x" } })),
        );
    }
    let found = |number: i64| facts(&json!({ "cpu": { "count": number % 200 } }));
    for number in 0..10_000 {
        board.put_host("n", &host(&format!("h{number}"), &json!({}), &Value::Null), found(number), None);
    }
    assert_eq!(board.judgements(), 0, "nothing is judged before it is asked for");
    let mut parts = 1;
    while board.judge(500_000) {
        parts += 1;
    }
    assert_eq!(board.judgements(), 50_000);
    assert!(parts > 1, "it can be interrupted");
    judge(&mut board);
    board.take_classes();
    // The same again.
    board.put_host("n", &host("h7", &json!({}), &Value::Null), found(7), None);
    let same = class("c3", &["hardware.cpu.count > 24"], &json!({ "labels": { "l3": "x" } }));
    board.put_class("n", same);
    judge(&mut board);
    assert_eq!(board.judgements(), 50_000);
    board.put_host("n", &host("h7", &json!({}), &Value::Null), found(8), None);
    while board.judge(COST_LIMIT) {}
    assert_eq!((board.judgements(), board.take_hosts().len()), (50_005, 1));
    board.put_class("n", class("c3", &["hardware.cpu.count > 25"], &json!({ "labels": { "l3": "x" } })));
    judge(&mut board);
    assert_eq!(board.judgements(), 60_005);
    let status = status(&board, "c0");
    assert_eq!((status.hosts.len(), status.unmatched.len()), (256, 32), "lists are bounded");
    assert_eq!(status.matched_count + status.unmatched_count, 10_000);
}

/// The eldest have a place, those that have a fault of their own take none, and one that comes to a place is judged by.
#[test]
fn a_namespace_has_places_for_so_many_classes() {
    let mut board = Board::default();
    board.put_host("n", &host("a", &json!({}), &Value::Null), facts(&json!({ "cpu": { "count": 4 } })), None);
    let named = |number: usize| format!("c{number:03}");
    board.put_class("n", class("a-faulty-one", &["nonsense"], &json!({ "role": "x" })));
    for number in 0..MAX_CLASSES + 2 {
        let label = json!({ "labels": { (named(number)): "x" } });
        board.put_class("n", class(&named(number), &["hardware.cpu.count > 1"], &label));
    }
    judge(&mut board);
    let judged = board.judgements();
    let reason = |board: &Board, class: &str| status(board, class).conditions[0].reason.clone();
    assert_eq!(reason(&board, "a-faulty-one"), "InvalidRule");
    assert_eq!(reason(&board, &named(MAX_CLASSES - 1)), "RulesAccepted");
    assert_eq!(reason(&board, &named(MAX_CLASSES)), "TooManyClasses");
    let labels = |board: &Board| board.plan("n", &host("a", &json!({}), &Value::Null)).unwrap().changes.len();
    assert_eq!(labels(&board), MAX_CLASSES);
    board.remove_class("n", &named(7));
    judge(&mut board);
    assert_eq!((labels(&board), board.judgements()), (MAX_CLASSES, judged + 1));
    assert_eq!(reason(&board, &named(MAX_CLASSES)), "RulesAccepted");
    assert_eq!(reason(&board, &named(MAX_CLASSES + 1)), "TooManyClasses");
    // The same class again, as after a write of its status, changes nothing.
    board.take_classes();
    let label = json!({ "labels": { (named(MAX_CLASSES + 1)): "x" } });
    board.put_class("n", class(&named(MAX_CLASSES + 1), &["hardware.cpu.count > 1"], &label));
    assert!(!board.has_work());
}

#[derive(Clone, Debug)]
enum Act {
    Host(usize, Option<i64>, usize),
    NoHost(usize),
    Class(usize, i64, usize, bool),
    NoClass(usize),
    Write(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..4_usize, proptest::option::of(0..8_i64), 0..4_usize).prop_map(|(h, c, l)| Act::Host(h, c, l)),
        1 => (0..4_usize).prop_map(Act::NoHost),
        4 => (0..4_usize, 0..8_i64, 0..4_usize, any::<bool>()).prop_map(|(c, n, l, p)| Act::Class(c, n, l, p)),
        1 => (0..4_usize).prop_map(Act::NoClass),
        4 => (0..4_usize).prop_map(Act::Write),
    ]
}

fn made(number: usize, least: i64, label: usize, is_preview: bool) -> Class {
    let rule = if least == 7 { "nonsense".to_owned() } else { format!("hardware.cpu.count > {least}") };
    let result = json!({ "labels": { (format!("l{}", label % 2)): format!("v{label}") } });
    let name = format!("c{number}");
    if is_preview { preview(&name, &[&rule], &result) } else { class(&name, &[&rule], &result) }
}

proptest! {
    /// Whatever happens in whatever order, the board says what one says that is told the end alone, and what is written is written once.
    #[test]
    fn a_change_leads_to_what_a_start_leads_to(acts in proptest::collection::vec(act(), 1..50)) {
        let mut board = Board::default();
        let mut hosts: BTreeMap<usize, (Arc<BareMetalHost>, Option<i64>)> = BTreeMap::new();
        let mut classes: BTreeMap<usize, (i64, usize, bool)> = BTreeMap::new();
        let found = |count: Option<i64>| count.and_then(|count| facts(&json!({ "cpu": { "count": count } })));
        for act in acts {
            match act {
                Act::Host(number, count, label) => {
                    // Somebody writes a label of their own, beside what is there.
                    let mut one = hosts.get(&number).map_or_else(
                        || BareMetalHost::clone(&host(&format!("h{number}"), &json!({}), &Value::Null)),
                        |(one, _)| BareMetalHost::clone(one),
                    );
                    if label > 1 {
                        one.metadata.labels.get_or_insert_default().insert(format!("l{}", label % 2), "theirs".to_owned());
                    }
                    let one = Arc::new(one);
                    board.put_host("n", &one, found(count), None);
                    hosts.insert(number, (one, count));
                }
                Act::NoHost(number) => {
                    board.remove_host("n", &format!("h{number}"));
                    hosts.remove(&number);
                }
                Act::Class(number, least, label, is_preview) => {
                    board.put_class("n", made(number, least, label, is_preview));
                    classes.insert(number, (least, label, is_preview));
                }
                Act::NoClass(number) => {
                    board.remove_class("n", &format!("c{number}"));
                    classes.remove(&number);
                }
                Act::Write(number) => {
                    judge(&mut board);
                    let Some((one, count)) = hosts.get_mut(&number) else { continue };
                    let Some(written) = write(&board, one) else { continue };
                    prop_assert!(write(&board, &written).is_none(), "what is written is written once");
                    let theirs = |host: &BareMetalHost| host.metadata.labels.iter().flatten().filter(|(_, v)| *v == "theirs").count();
                    prop_assert_eq!(theirs(one), theirs(&written), "what is somebody else's stays");
                    board.put_host("n", &written, found(*count), None);
                    *one = written;
                }
            }
        }
        judge(&mut board);
        let mut other = Board::default();
        for (one, count) in hosts.values() {
            other.put_host("n", one, found(*count), None);
        }
        for (number, (least, label, is_preview)) in &classes {
            other.put_class("n", made(*number, *least, *label, *is_preview));
        }
        judge(&mut other);
        for (one, _) in hosts.values() {
            prop_assert_eq!(board.plan("n", one), other.plan("n", one));
        }
        for number in classes.keys() {
            let name = format!("c{number}");
            let now = status(&board, &name);
            prop_assert_eq!(&now, &status(&other, &name));
            let fault = now.conditions.iter().any(|condition| condition.kind == "Accepted" && condition.status == "False");
            prop_assert!(fault || now.matched_count + now.unmatched_count == i64::try_from(hosts.len()).unwrap());
            prop_assert!(fault || now.unmatched.len() == usize::try_from(now.unmatched_count).unwrap());
        }
    }

    /// Rules and hosts are anybody's.
    #[test]
    fn whatever_stands_there_is_refused_or_judged_in_clean_words(text in any::<String>(), part in "[ -~]{0,80}", n in any::<i64>()) {
        for expression in [text.clone(), part.clone(), format!("host.name == '{part}'"), format!("hardware.hostname.matches('{part}')")] {
            let said = denied(&[&expression], &json!({ "labels": { text.clone(): part.clone() } }));
            prop_assert!(said.chars().all(|c| !c.is_control()) && said.len() < 64 << 10);
            let mut board = Board::default();
            board.put_class("n", class("c", &[&expression], &json!({ "role": "x" })));
            let found = json!({ "hostname": text, "ramMebibytes": n, "systemVendor": { "serialNumber": part } });
            board.put_host("n", &host("h", &json!({ "labels": { text.clone(): part.clone() } }), &Value::Null), facts(&found), None);
            judge(&mut board);
            let status = status(&board, "c");
            for one in &status.unmatched {
                prop_assert!(one.reason.chars().count() <= 256 && one.reason.chars().all(|c| !c.is_control()), "{one:?}");
            }
        }
    }
}
