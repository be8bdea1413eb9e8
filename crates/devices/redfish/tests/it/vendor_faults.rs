//! Faults on the recorded trees of makers, in the words of each maker's own log: each row of `tests/vendor_faults.json` is an entry as that maker writes it, at a time of the recorded BMC's own clock. With
//! it the cause is found, and without it not claimed.

use std::collections::BTreeSet;
use std::sync::Arc;

use bmc::{Bmc as _, EvidenceBudget};
use diagnosis::{Certainty, Evidence, FailureFacts, FailureType, Verdict, diagnose};
use jiff::{SignedDuration, Timestamp};
use redfish::RedfishBmc;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kit::{Bmc, rig, tree};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Row {
    fault: String,
    tree: String,
    /// The host's error.
    kind: FailureType,
    /// Fields of the log's newest entry; all others are as recorded.
    #[serde(default)]
    entry: Value,
    /// Fields of its maker's part.
    #[serde(default)]
    oem: Value,
    /// Entries that are recorded themselves.
    #[serde(default)]
    recorded: Vec<String>,
    /// When the host was last seen to work, hours before.
    #[serde(default = "an_hour")]
    good_hours: i64,
    code: String,
    fixer: String,
    /// Words of the part's place; empty if the entry does not say it.
    part: String,
    advice: String,
}

const fn an_hour() -> i64 {
    1
}

struct Maker {
    system: &'static str,
    manager: &'static str,
    log: &'static str,
    /// The maker's part of an entry.
    oem: &'static str,
    /// What it says of an entry about hardware that was written at this time.
    of_hardware: fn(&str) -> Value,
}

fn maker(tree: &str) -> Maker {
    match tree {
        "dell-r750" => Maker {
            system: "/redfish/v1/Systems/System.Embedded.1",
            manager: "/redfish/v1/Managers/iDRAC.Embedded.1",
            log: "/redfish/v1/Managers/iDRAC.Embedded.1/LogServices/Lclog/Entries",
            oem: "Dell",
            of_hardware: |_| json!({ "Category": "System Health" }),
        },
        "hpe" => Maker {
            system: "/redfish/v1/Systems/1",
            manager: "/redfish/v1/Managers/1",
            log: "/redfish/v1/Systems/1/LogServices/IML/Entries",
            oem: "Hpe",
            of_hardware: |now| json!({ "Categories": ["Hardware"], "Repaired": false, "Updated": now, "RecommendedAction": "Replace what the entry names." }),
        },
        "supermicro-x10" => Maker {
            system: "/redfish/v1/Systems/1",
            manager: "/redfish/v1/Managers/1",
            log: "/redfish/v1/Systems/1/LogServices/Log1/Entries",
            oem: "Supermicro",
            of_hardware: |_| json!({}),
        },
        other => panic!("{other} is not recorded"),
    }
}

fn put(into: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        into[name] = value.clone();
    }
}

/// The recorded tree, with the row's entry or without it.
fn recorded(row: &Row, with: bool) -> Arc<Bmc> {
    let bmc = Bmc::new(&row.tree);
    bmc.set(|inner| inner.resources.extend(tree(&format!("{}-parts", row.tree))));
    let maker = maker(&row.tree);
    let now = bmc.resource(maker.manager)["DateTime"].as_str().unwrap().to_owned();
    bmc.edit(maker.log, |log| {
        let members = log["Members"].as_array_mut().unwrap();
        if !with {
            members.retain(|entry| !row.recorded.iter().any(|id| entry["Id"] == **id));
        } else if row.entry.is_object() {
            // Which entry it is like: the last one that its maker has written about hardware.
            let mut entry = members.iter().rev().find(|entry| entry["Oem"][maker.oem].is_object()).unwrap().clone();
            put(
                &mut entry,
                &json!({ "Id": "99999", "Created": now, "@odata.id": format!("{}/99999", maker.log), "Links": {} }),
            );
            put(&mut entry["Oem"][maker.oem], &(maker.of_hardware)(&now));
            put(&mut entry, &row.entry);
            put(&mut entry["Oem"][maker.oem], &row.oem);
            // Dell's newest entry stands first, those of others last.
            members.insert(if maker.oem == "Dell" { 0 } else { members.len() }, entry);
        }
        log["Members@odata.count"] = json!(log["Members"].as_array().unwrap().len());
    });
    bmc
}

async fn judged(row: &Row, with: bool) -> (Evidence, Verdict) {
    // By another clock than the BMC's, which is of its own year.
    let now: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
    let connected = RedfishBmc::new(rig(&recorded(row, with), maker(&row.tree).system).client);
    let mut evidence = connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now)).await;
    evidence.failure = Some(FailureFacts {
        kind: row.kind,
        since: Some(now),
        last_good: Some(now - SignedDuration::from_hours(row.good_hours)),
        ..FailureFacts::default()
    });
    let verdict = diagnose(&evidence);
    (evidence, verdict)
}

#[tokio::test]
async fn what_makers_write_is_the_first_cause_and_without_it_nobody_claims_it() {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vendor_faults.json")).unwrap();
    let rows: Vec<Row> = serde_json::from_slice(&text).unwrap();
    let makers: BTreeSet<&str> = rows.iter().map(|row| row.tree.as_str()).collect();
    assert!(rows.len() >= 10 && makers.len() == 3, "{} rows of {makers:?}", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let (evidence, verdict) = judged(row, true).await;
        let first = verdict.first();
        let part = first.and_then(|cause| cause.component.as_ref()).map_or("", |part| part.slot.as_str());
        let is_it = first.is_some_and(|first| {
            first.code.as_str() == row.code
                && first.fixer.as_str() == row.fixer
                && first.certainty > Certainty::Possible
                && first.advice.contains(&row.advice)
                && part.contains(&row.part)
        });
        if !is_it {
            let entries = evidence.logs.read().map(|logs| logs.entries.iter().take(2).cloned().collect::<Vec<_>>());
            wrong.push(format!("{}: {first:#?}, not {} of {:?}\n{entries:#?}", row.fault, row.code, row.part));
        }
        let (_, verdict) = judged(row, false).await;
        // The recorded machine may have a fault of its own, as ports without a cable.
        let claims = |cause: &&diagnosis::Cause| {
            cause.code.as_str() == row.code && !cause.background && cause.certainty > Certainty::Possible
        };
        if let Some(claimed) = verdict.causes.iter().find(claims) {
            wrong.push(format!("{}: without it {claimed:#?}", row.fault));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
