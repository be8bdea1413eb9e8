//! Laws of all verdicts, whatever the evidence.

use std::collections::BTreeMap;

use diagnosis::{Certainty, Code, Evidence, MAX_BYTES, MAX_CAUSES, Reading, diagnose};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::kit::{base, merge};

const WORDS: [&str; 18] = [
    "Uncorrectable ECC @DIMMB1",
    "MEM0001",
    "fan failed",
    "\u{1b}[31mred\u{202e}",
    "<script>alert(1)</script>",
    "link down nic",
    "Critical",
    "Off",
    "MemoryInitializationStarted",
    "secret not found",
    "certificate",
    "PSU0003",
    "OSRunning",
    "Exception",
    "DIMM A1",
    "",
    "virtual media unable",
    "AgentSilent",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,20}",
        1 => any::<String>().prop_map(|text| text.repeat(40)),
    ]
}

fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("1970-01-01T00:00:00Z")),
        Just(json!("9999-12-30T22:00:00Z")),
        (0..7200_i64)
            .prop_map(|second| json!(jiff::Timestamp::from_second(1_772_362_800 + second).unwrap().to_string())),
    ]
}

prop_compose! {
    fn entry()(created in time(), id in word(), text in word(), severity in word(), log in word(), resolved in any::<Option<bool>>()) -> Value {
        json!({ "log": log, "id": id, "created": created, "written": "x", "severity": severity, "messageId": id, "text": text, "args": [text], "resolved": resolved })
    }
}

prop_compose! {
    fn part()(
        kind in prop::sample::select(vec!["Memory", "Processor", "Drive", "PowerSupply", "Fan", "Temperature", "NetworkPort", "PcieDevice", "Volume", "Manager"]),
        slot in word(), health in prop::sample::select(vec![json!(null), json!("OK"), json!("Warning"), json!("Critical")]),
        link in word(), errors in any::<Option<u64>>(), input in any::<Option<bool>>(), state in word(),
    ) -> Value {
        json!({ "kind": kind, "slot": slot, "health": health, "link": link, "uncorrectableErrors": errors, "inputGood": input, "raidState": state,
            "conditions": [{ "id": slot, "text": state, "resolution": link }] })
    }
}

fn phase() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["registration", "inspection", "provisioning", "preparation", "servicing", "power"])
}

prop_compose! {
    fn any_evidence()(
        phase in phase(), entries in prop::collection::vec(entry(), 0..12), parts in prop::collection::vec(part(), 0..8),
        words in prop::collection::vec(word(), 8), seconds in any::<u64>(), skew in any::<i64>(), status in any::<u16>(), at in time(), first in time(),
        limits in prop::collection::vec(any::<bool>(), 4),
    ) -> Evidence {
        let change = json!({
            "failure": { "message": words[0], "cause": words[1] },
            "access": { "read": { "answers": [{ "call": words[2], "status": status, "messages": [{ "id": words[3], "text": words[4] }] }] } },
            "power": { "read": { "state": words[5], "intrusion": words[6], "blocked": if limits[3] { json!(words[6]) } else { Value::Null },
                "orders": [{ "reset": words[3], "status": status, "notFollowedSeconds": seconds }] } },
            "boot": { "read": { "wantedTarget": "Cd", "progress": { "lastState": words[7], "unchangedSeconds": seconds } } },
            "media": { "read": { "slots": [{ "id": "1", "inserted": limits[0], "ours": limits[1], "message": words[4] }] } },
            "parts": { "read": parts }, "logs": { "read": { "entries": entries } },
            "manager": { "read": { "clockSkewSeconds": if limits[2] { skew } else { 5 } } },
            "tasks": { "read": [{ "kind": "bios", "state": words[2], "ended": at }] },
            "ours": { "medium": { "read": { "inserted": at, "first": first, "last": first, "size": seconds } },
                "agent": { "read": { "heard": first, "lines": words } }, "smart": { "read": [{ "name": words[0], "passed": limits[0] }] } },
            "differences": { "read": [{ "kind": "Memory", "slot": words[1], "was": words[2] }] },
        });
        let mut value = base(phase);
        merge(&mut value, &change);
        serde_json::from_value(value).expect("evidence")
    }
}

/// The surest word on each code.
fn certainties(evidence: &Evidence) -> BTreeMap<Code, Certainty> {
    let mut all = BTreeMap::new();
    for cause in diagnose(evidence).causes {
        let known = all.entry(cause.code).or_insert(cause.certainty);
        *known = cause.certainty.max(*known);
    }
    all
}

/// The same evidence without one of its sources.
fn without(evidence: &Evidence, which: usize) -> Evidence {
    let mut less = evidence.clone();
    match which {
        0 => less.failure = None,
        1 => less.access = Reading::default(),
        2 => less.power = Reading::default(),
        3 => less.boot = Reading::default(),
        4 => less.media = Reading::default(),
        5 => less.parts = Reading::default(),
        6 => less.tasks = Reading::default(),
        7 => less.logs = Reading::default(),
        8 => less.manager = Reading::default(),
        9 => less.ours.medium = Reading::default(),
        10 => less.ours.agent = Reading::default(),
        11 => less.ours.smart = Reading::default(),
        12 => less.differences = Reading::default(),
        13 => less.taken = None,
        _ => {
            if let Some(failure) = &mut less.failure {
                failure.last_good = None;
            }
        }
    }
    less
}

proptest! {
    #[test]
    fn a_verdict_is_bounded_clean_and_the_same_for_the_same_evidence(evidence in any_evidence()) {
        let verdict = diagnose(&evidence);
        prop_assert_eq!(&verdict, &diagnose(&evidence));
        let text = serde_json::to_string(&verdict).unwrap();
        prop_assert!(text.len() <= MAX_BYTES && verdict.causes.len() <= MAX_CAUSES);
        for cause in &verdict.causes {
            let texts = cause.evidence.iter().chain([&cause.advice]).chain(cause.component.iter().map(|part| &part.slot));
            for text in texts {
                prop_assert!(text.chars().all(terms::is_printable) && text.chars().count() <= 300, "{text:?}");
            }
            prop_assert!(!cause.background || cause.certainty == Certainty::Possible);
        }
        let background = verdict.causes.iter().skip_while(|cause| !cause.background);
        prop_assert!(background.clone().all(|cause| cause.background));
    }

    #[test]
    fn the_order_of_lists_says_nothing(evidence in any_evidence(), turn in 0_usize..12) {
        let mut other = evidence.clone();
        if let Reading::Read(logs) = &mut other.logs {
            let turn = turn.min(logs.entries.len());
            logs.entries.rotate_left(turn);
            logs.entries.reverse();
        }
        if let Reading::Read(parts) = &mut other.parts {
            parts.reverse();
        }
        prop_assert_eq!(diagnose(&evidence), diagnose(&other));
    }

    #[test]
    fn less_evidence_makes_nothing_surer(evidence in any_evidence(), which in 0_usize..15) {
        let (more, less) = (certainties(&evidence), certainties(&without(&evidence, which)));
        for (code, certainty) in less {
            // Causes beyond the bound are not told: what is told in their place is no surer than they were.
            let before = more.get(&code).copied().unwrap_or(Certainty::Possible);
            prop_assert!(certainty <= before || more.len() >= MAX_CAUSES, "{code:?}: {certainty:?} without source {which}, {before:?} with it");
        }
    }

    #[test]
    fn a_log_entry_less_makes_nothing_surer(evidence in any_evidence()) {
        let mut less = evidence.clone();
        if let Reading::Read(logs) = &mut less.logs {
            logs.entries.pop();
        }
        let more = certainties(&evidence);
        for (code, certainty) in certainties(&less) {
            prop_assert!(certainty <= more.get(&code).copied().unwrap_or(Certainty::Possible) || more.len() >= MAX_CAUSES, "{code:?}");
        }
    }
}
