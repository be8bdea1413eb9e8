//! How vendors write, broken clocks, and what is no cause.

use diagnosis::{Cause, Certainty, Code, Verdict, diagnose};
use serde_json::{Value, json};

use crate::kit::evidence;

fn found(verdict: &Verdict, code: Code) -> Option<&Cause> {
    verdict.causes.iter().find(|cause| cause.code == code)
}

fn entries(entries: &Value) -> Value {
    json!({ "logs": { "read": { "entries": entries } } })
}

#[test]
fn a_log_full_of_corrected_errors_is_no_cause_of_a_silent_agent() {
    let verdict = diagnose(&evidence("inspection", &json!({})));
    assert_eq!(verdict.first().unwrap().code, Code::AgentSilent);
    let memory = found(&verdict, Code::MemoryCorrectable).unwrap();
    assert_eq!((memory.background, memory.certainty, memory.count), (true, Certainty::Possible, 64));
    assert_eq!(memory.component.as_ref().unwrap().slot, "DIMMB1");
    assert_eq!(memory.evidence.len(), diagnosis::MAX_EVIDENCE);
}

#[test]
fn the_same_entry_is_a_cause_when_it_is_new_and_background_when_it_is_old_or_nobody_knows() {
    let at = |created: Value, skew: Value| {
        let entry = json!({ "log": "Sel", "id": "1", "created": created, "severity": "Critical", "messageId": "MEM0001", "text": "Multi-bit memory error on DIMM A1" });
        let mut change = entries(&json!([entry]));
        change["manager"] = json!({ "read": { "clockSkewSeconds": skew } });
        let verdict = diagnose(&evidence("inspection", &change));
        let memory = found(&verdict, Code::MemoryUncorrectable).unwrap();
        assert_eq!(memory.component.as_ref().unwrap().serial.as_deref(), Some("SA1"), "the module, not DIMM A10");
        assert_eq!(memory.background, memory.certainty == Certainty::Possible);
        memory.certainty
    };
    assert_eq!(at(json!("2026-03-01T11:50:00Z"), json!(0)), Certainty::Likely);
    assert_eq!(
        at(json!("2026-03-01T10:50:00Z"), json!(0)),
        Certainty::Possible,
        "before the host was last seen to work"
    );
    assert_eq!(at(json!("2026-03-01T10:50:00Z"), json!(-3600)), Certainty::Likely, "its clock is an hour behind");
    assert_eq!(at(json!("2026-03-01T11:50:00Z"), json!(7200)), Certainty::Possible, "its clock is two hours ahead");
    for broken in
        [json!(null), json!("1970-01-01T00:00:10Z"), json!("2000-01-01T00:00:00Z"), json!("2099-12-31T00:00:00Z")]
    {
        assert_eq!(at(broken, json!(0)), Certainty::Possible, "no time");
    }
    assert_eq!(at(json!("2026-03-01T11:50:00Z"), json!(null)), Certainty::Possible, "nobody knows its clock");
}

#[test]
fn what_is_over_or_only_told_is_no_cause() {
    let entry = |severity: &str, text: &str, resolved: bool| json!({ "log": "IML", "id": "1", "created": "2026-03-01T11:50:00Z", "severity": severity, "text": text, "resolved": resolved });
    for (severity, text, resolved) in [
        ("OK", "Power supply 1 is operating normally after it had failed", false),
        ("Repaired", "System Fan Failure (Fan 3)", false),
        ("Critical", "System Fan Failure (Fan 3)", true),
        ("OK", "Fan 3 failed self-test scheduled", false),
        ("Informational", "Uncorrectable ECC logging enabled", false),
    ] {
        let verdict = diagnose(&evidence("power", &entries(&json!([entry(severity, text, resolved)]))));
        assert!(verdict.first().is_none(), "{text}: {verdict:#?}");
    }
}

#[test]
fn a_failed_supply_is_no_cause_while_the_machine_is_on() {
    let supply = json!({ "parts": { "read": [{ "kind": "PowerSupply", "slot": "PSU 1", "health": "Critical", "inputGood": false }] } });
    let verdict = diagnose(&evidence("inspection", &supply));
    assert_eq!(verdict.first().unwrap().code, Code::AgentSilent);
    assert!(found(&verdict, Code::PowerSupplyFailed).unwrap().background);
    let mut off = supply;
    off["power"] = json!({ "read": { "state": "Off" } });
    assert_eq!(diagnose(&evidence("inspection", &off)).first().unwrap().code, Code::PowerInputLost);
}

#[test]
fn an_entry_that_names_only_its_id_is_told_in_the_words_of_its_registry() {
    let change = json!({ "logs": { "read": {
        "entries": [{ "log": "Lclog", "id": "7", "created": "2026-03-01T11:50:00Z", "messageId": "IDRAC.2.8.PSU0001", "args": ["2"] }],
        "registry": { "IDRAC.2.8.PSU0001": { "text": "Power supply PSU %1 failed.", "severity": "Critical", "resolution": "Remove and reinstall it." } },
    } } });
    let verdict = diagnose(&evidence("power", &change));
    let first = verdict.first().unwrap();
    assert_eq!(
        (first.code, first.component.as_ref().unwrap().serial.as_deref()),
        (Code::PowerSupplyFailed, Some("P2"))
    );
    assert!(
        first.evidence[0].contains("Power supply PSU 2 failed.") && first.advice.contains("Remove and reinstall it.")
    );
}

#[test]
fn a_controller_is_no_drive_and_a_module_that_is_there_is_not_missing() {
    let first = |phase: &str, id: &str, text: &str| {
        let entry = json!({ "log": "IML", "id": "1", "created": "2026-03-01T11:50:00Z", "severity": "Critical", "messageId": id, "text": text });
        diagnose(&evidence(phase, &entries(&json!([entry])))).first().map(|first| first.code)
    };
    let disks = |text| first("provisioning", "", text);
    assert_eq!(disks("Drive Array Controller Failure (Slot 0)"), Some(Code::StorageControllerFailed));
    assert_eq!(disks("Drive Array Device Failure (Slot 0, Bus 2, Bay 3)"), Some(Code::DriveFailed));
    assert_eq!(disks("Disk 1 in Backplane 1 of Integrated RAID Controller 1 has failed."), Some(Code::DriveFailed));
    let memory = |id| first("inspection", id, "DIMM_A2");
    assert_eq!(memory("MEM0022"), Some(Code::MemoryMissing), "presence has ended");
    assert_ne!(memory("MEM0006"), Some(Code::MemoryMissing), "it is present");
    assert_ne!(memory("MEM8000"), Some(Code::MemoryMissing), "corrected errors are not counted any more");
    assert_eq!(memory("MEM0004"), Some(Code::MemoryFailed), "it was disabled");
}

#[test]
fn more_of_the_same_makes_one_cause_and_a_surer_one() {
    let change = json!({
        "boot": { "read": { "progress": { "lastState": "MemoryInitializationStarted", "unchangedSeconds": 900 } } },
        "parts": { "read": [{ "kind": "Memory", "slot": "DIMM B2", "serial": "S9", "partNumber": "PN", "health": "Critical", "uncorrectableErrors": 3 }] },
    });
    let verdict = diagnose(&evidence("inspection", &change));
    let codes: Vec<_> =
        verdict.causes.iter().filter(|cause| !cause.background).map(|cause| (cause.code, cause.certainty)).collect();
    assert_eq!(
        codes[..2],
        [(Code::MemoryFailed, Certainty::Certain), (Code::MemoryUncorrectable, Certainty::Certain)],
        "{codes:?}"
    );
    assert!(codes.contains(&(Code::StuckInMemoryInit, Certainty::Likely)));
}

#[test]
fn no_cause_says_what_was_read_and_what_was_not() {
    let change = json!({ "failure": { "kind": "Registration", "cause": null }, "boot": { "notAvailable": "the BMC shows no BootProgress" },
        "logs": { "failed": "HTTP 500" }, "skipped": [{ "what": "page 2 of Sel", "why": "the time was over" }] });
    let verdict = diagnose(&evidence("registration", &change));
    assert!(verdict.first().is_none());
    assert!(verdict.read.contains(&"parts".to_owned()) && !verdict.read.contains(&"logs".to_owned()));
    let why = |what: &str| verdict.not_read.iter().find(|unread| unread.what == what).unwrap().why.clone();
    assert_eq!(why("boot progress"), "not available: the BMC shows no BootProgress");
    assert_eq!(why("logs"), "could not be read: HTTP 500");
    assert_eq!(why("page 2 of Sel"), "the time was over");
    assert!(verdict.line().starts_with("No cause was found in access"), "{}", verdict.line());
}

/// A server sends the name that a BMC offers for its virtual CD, and the BMC shows it until the start has ended.
#[test]
fn another_name_of_a_virtual_cd_is_no_other_target() {
    let shown = |target: &str, enabled: &str| {
        let order = json!({ "target": target, "enabled": enabled });
        let read = json!({ "progress": { "lastState": "SystemHardwareInitializationComplete" }, "bootOverride": order, "wantedTarget": "Cd" });
        let found = diagnose(&evidence("inspection", &json!({ "boot": { "read": read } })));
        found.causes.iter().any(|cause| cause.code == Code::BootOverrideIgnored)
    };
    for name in ["Cd", "UsbCd", "CD/DVD", "Usb", "None"] {
        assert!(!shown(name, "Once"), "{name}");
    }
    assert!(shown("Hdd", "Once"));
    assert!(!shown("Hdd", "Disabled"), "what is left of an earlier order is not in force");
}

/// The clock of a BMC may be of any year.
#[test]
fn a_task_that_ended_after_it_was_read_is_no_new_one() {
    let certain = |ended: &str| {
        let task = json!({ "id": "1", "name": "Update", "kind": "firmware", "state": "Exception", "ended": ended });
        let found = diagnose(&evidence("servicing", &json!({ "tasks": { "read": [task] } })));
        found
            .first()
            .is_some_and(|first| first.code == Code::FirmwareUpdateFailed && first.certainty == Certainty::Certain)
    };
    assert!(certain("2026-03-01T11:30:00Z"));
    for ended in ["2026-03-01T10:30:00Z", "2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z"] {
        assert!(!certain(ended), "{ended}");
    }
}
