//! What a BMC's log calls critical: on recorded trees, in the orders and forms that logs have, and within bounds.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bmc::{Bmc as _, LogEntry};
use redfish::RedfishBmc;
use serde_json::{Value, json};

use crate::kit::{Bmc, PASSWORD, SYSTEM, dropped, odd, rig};

const LIST: &str = "/redfish/v1/Systems/437XR1138R2/LogServices";
const LOG: &str = "/redfish/v1/Systems/437XR1138R2/LogServices/SEL";
const ENTRIES: &str = "/redfish/v1/Systems/437XR1138R2/LogServices/SEL/Entries";

async fn newest(bmc: &Arc<Bmc>, system: &str, most: usize) -> Vec<LogEntry> {
    let connected = RedfishBmc::new(rig(bmc, system).client);
    connected.begin(&[]).await.unwrap();
    bmc.take_log();
    connected.logs().unwrap().newest_critical(most).await.unwrap()
}

fn entry(n: usize, severity: &str) -> Value {
    json!({
        "@odata.id": format!("{ENTRIES}/{n}"), "Created": format!("2026-01-{:02}T00:00:00Z", n % 28 + 1),
        "Severity": severity, "Message": format!("entry {n}"),
    })
}

/// A BMC whose only log is this.
fn with_log(entries: Value) -> Arc<Bmc> {
    let bmc = Bmc::generic();
    bmc.set(|inner| {
        inner.resources.insert(LIST.into(), json!({"@odata.id": LIST, "Members": [{"@odata.id": LOG}]}));
        inner.resources.insert(LOG.into(), json!({"@odata.id": LOG, "Entries": {"@odata.id": ENTRIES}}));
        inner.resources.insert(ENTRIES.into(), entries);
    });
    bmc
}

fn messages(entries: &[LogEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.message.as_str()).collect()
}

#[tokio::test]
async fn recorded_logs_are_read_where_they_stand() {
    // iDRAC keeps them at the manager; two of the three logs that it lists are not in the tree.
    let dell = newest(&Bmc::new("dell-r750"), "/redfish/v1/Systems/System.Embedded.1", 4).await;
    assert_eq!(messages(&dell), ["The requested SecureBoot Certificate Export operation cannot be completed."]);
    assert_eq!(dell[0].created.as_deref(), Some("2024-08-08T18:47:42-05:00"));
    // iLO writes the oldest first.
    let hpe = newest(&Bmc::new("hpe"), "/redfish/v1/Systems/1", 2).await;
    assert_eq!(hpe.len(), 2);
    assert!(hpe.iter().any(|entry| entry.message.starts_with("DIMM Failure")), "{hpe:?}");
    assert!(hpe.iter().all(|entry| entry.created.as_deref() == Some("2025-05-28T08:01:01Z")), "{hpe:?}");
    // A link to logs that are not there is no error.
    assert!(newest(&Bmc::new("supermicro-x10"), "/redfish/v1/Systems/1", 2).await.is_empty());
}

#[tokio::test]
async fn a_password_is_told_in_no_form() {
    let json: String = PASSWORD.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let percent: String = PASSWORD.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let html: String = PASSWORD.chars().map(|c| format!("&#{};", u32::from(c))).collect();
    let pair = STANDARD.encode(format!("root:{PASSWORD}"));
    for form in [json, percent, html, STANDARD.encode(PASSWORD), pair] {
        let mut wrong = entry(1, "Critical");
        wrong["Message"] = json!(format!("wrong: {form} was tried"));
        let found = newest(&with_log(json!({"Members": [wrong]})), SYSTEM, 1).await;
        assert_eq!(messages(&found), ["wrong: [hidden] was tried"]);
        let bmc = Bmc::generic();
        bmc.script("GET", SYSTEM, odd(400, json!({"error": {"message": format!("wrong: {form} was tried")}})));
        let error = rig(&bmc, SYSTEM).client.power_state().await.unwrap_err().to_string();
        assert!(error.contains("wrong: [hidden] was tried"), "{error}");
    }
}

/// The token of the session is as good as the password for as long as the session lasts.
#[tokio::test]
async fn a_token_is_told_in_no_form() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.power_state().await.unwrap();
    let token = "token-1";
    bmc.set(|inner| assert!(inner.sessions.values().any(|(given, _)| given == token)));
    for form in [token.to_owned(), token.replace('-', "%2D"), STANDARD.encode(token)] {
        bmc.script("GET", SYSTEM, odd(400, json!({"error": {"message": format!("bad: {form} was shown")}})));
        let error = rig.client.power_state().await.unwrap_err().to_string();
        assert!(error.contains("bad: [hidden] was shown"), "{error}");
    }
}

#[tokio::test]
async fn only_what_is_critical_and_unresolved_the_newest_first() {
    let mut resolved = entry(9, "Critical");
    resolved["Resolved"] = true.into();
    let mut newer_word = entry(5, "");
    newer_word["Severity"] = Value::Null;
    newer_word["MessageSeverity"] = "critical".into();
    let odd_ones = [json!(7), Value::Null, json!({"Severity": "Critical"}), json!({"Severity": 1, "Message": "x"})];
    let mut all = vec![entry(3, "Critical"), entry(4, "Warning"), newer_word, resolved, entry(6, "OK")];
    all.extend(odd_ones);
    let bmc = with_log(json!({"Members": all}));
    assert_eq!(messages(&newest(&bmc, SYSTEM, 16).await), ["entry 5", "entry 3"]);
    assert_eq!(messages(&newest(&bmc, SYSTEM, 1).await), ["entry 5"]);
    assert!(newest(&with_log(json!({"Members": "none"})), SYSTEM, 16).await.is_empty());
}

/// A long log that begins with its oldest entries is not walked through.
#[tokio::test]
async fn of_a_long_log_the_end_with_the_newest_is_read() {
    let page: Vec<Value> = (1..4).map(|n| entry(n, "Critical")).collect();
    let next = format!("{ENTRIES}?$skip=3");
    let bmc = with_log(json!({"Members": page, "Members@odata.count": 1000, "Members@odata.nextLink": next}));
    newest(&bmc, SYSTEM, 16).await;
    let pages: Vec<String> = bmc.take_log().into_iter().filter(|line| line.contains("$skip")).collect();
    assert_eq!(pages, [format!("GET {ENTRIES}?$skip=950")]);
    // The newest first: what follows is older.
    let page: Vec<Value> = (1..4).rev().map(|n| entry(n, "Critical")).collect();
    let bmc = with_log(json!({"Members": page, "Members@odata.count": 1000, "Members@odata.nextLink": next}));
    assert_eq!(messages(&newest(&bmc, SYSTEM, 16).await), ["entry 3", "entry 2", "entry 1"]);
    assert!(bmc.take_log().iter().all(|line| !line.contains("$skip")));
}

#[tokio::test]
async fn entries_that_are_listed_as_links_are_read_at_both_ends() {
    let links: Vec<Value> = (1..100).map(|n| json!({"@odata.id": format!("{ENTRIES}/{n}")})).collect();
    let bmc = with_log(json!({"Members": links}));
    bmc.set(|inner| {
        for n in 1..100 {
            inner.resources.insert(format!("{ENTRIES}/{n}"), entry(n, "Critical"));
        }
    });
    assert_eq!(newest(&bmc, SYSTEM, 16).await.len(), 4);
    assert!(bmc.take_log().len() <= 12);
}

/// However much there is: requests, entries and texts are bounded, and a password that stands there is not told.
#[tokio::test]
async fn a_hostile_log_is_bounded() {
    let long = format!("{PASSWORD} was tried\n{}", "x".repeat(100_000));
    let many: Vec<Value> = (0..1500)
        .map(|n| json!({"Severity": "Critical", "Created": format!("{n:05}"), "Message": format!("{n} {long}").get(..2000)}))
        .collect();
    let bmc = with_log(json!({"Members": many, "Members@odata.count": u64::MAX, "Members@odata.nextLink": ENTRIES}));
    let logs: Vec<Value> = (0..500).map(|n| json!({"@odata.id": format!("{LIST}/Log{n}")})).collect();
    bmc.edit(LIST, |list| list["Members"].as_array_mut().unwrap().extend(logs));
    let found = newest(&bmc, SYSTEM, usize::MAX).await;
    assert_eq!(found.len(), bmc::MAX_LOG_ENTRIES);
    for entry in &found {
        assert!(entry.message.chars().count() <= 400 && !entry.message.contains(PASSWORD), "{}", entry.message.len());
        assert!(!entry.message.contains('\n'));
    }
    assert!(bmc.take_log().len() <= 12);
    // One that is too large to be read is left out.
    let bmc = with_log(json!({"Members": [entry(1, "Critical")]}));
    let large = format!("{LIST}/Event");
    bmc.edit(LIST, |list| list["Members"].as_array_mut().unwrap().insert(0, json!({"@odata.id": large})));
    let padding = "x".repeat(redfish::MAX_BODY);
    bmc.set(|inner| drop(inner.resources.insert(large.clone(), json!({"@odata.id": large, "Padding": padding}))));
    assert_eq!(messages(&newest(&bmc, SYSTEM, 16).await), ["entry 1"]);
}

#[tokio::test]
async fn a_log_that_is_refused_hides_no_other_and_a_lost_bmc_is_an_error() {
    let bmc = with_log(json!({"Members": [entry(1, "Critical")]}));
    bmc.script("GET", "/Managers/BMC", odd(403, json!({})));
    assert_eq!(messages(&newest(&bmc, SYSTEM, 16).await), ["entry 1"]);
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    for _ in 0..8 {
        bmc.script("GET", "/SEL/Entries", dropped());
    }
    assert!(connected.logs().unwrap().newest_critical(1).await.is_err());
}

async fn all(bmc: &Arc<Bmc>, system: &str) -> Vec<bmc::BmcLog> {
    let connected = RedfishBmc::new(rig(bmc, system).client);
    connected.begin(&[]).await.unwrap();
    bmc.take_log();
    connected.logs().unwrap().all().await.unwrap()
}

#[tokio::test]
async fn all_of_a_log_is_for_people_and_who_has_signed_in_is_not_in_it() {
    let logs = all(&Bmc::new("dell-r750"), "/redfish/v1/Systems/System.Embedded.1").await;
    let names: Vec<(&str, bool)> = logs.iter().map(|log| (log.name.as_str(), log.unread.is_some())).collect();
    assert_eq!(names, [("sel", true), ("faultlist", true), ("lclog", false)], "two are not in the recorded tree");
    let lifecycle = &logs[2];
    // Five are recorded, of which four tell who has used the BMC, and from where.
    assert_eq!((lifecycle.entries.len(), lifecycle.more), (1, Some(0)), "{lifecycle:#?}");
    assert_eq!(lifecycle.entries[0].severity.as_deref(), Some("Critical"));
    assert!(!format!("{lifecycle:?}").contains("logged in"), "{lifecycle:#?}");
    assert!(!format!("{lifecycle:?}").contains("10.180."), "{lifecycle:#?}");
    // iLO's log of the BMC itself stands beside that of the machine.
    let logs = all(&Bmc::new("hpe"), "/redfish/v1/Systems/1").await;
    let iml = logs.iter().find(|log| log.name == "iml").unwrap();
    assert!(iml.entries.len() > 10 && iml.entries.is_sorted_by(|a, b| a.created >= b.created), "{iml:#?}");
}

#[tokio::test]
async fn a_log_that_is_collected_is_bounded_in_entries_texts_and_calls() {
    let many: Vec<Value> = (0..1500)
        .map(|n| json!({"Severity": "x".repeat(500), "Created": format!("{n:05}"), "Message": format!("{n} {PASSWORD} {}", "y".repeat(400))}))
        .collect();
    let bmc = with_log(json!({"Members": many, "Members@odata.count": 5000, "Members@odata.nextLink": ENTRIES}));
    let found = all(&bmc, SYSTEM).await;
    let log = found.iter().find(|log| log.name == "sel").unwrap();
    assert_eq!(log.entries.len(), bmc::MAX_COLLECTED);
    assert!(log.more.is_some_and(|more| more > 3000), "{:?}", log.more);
    for entry in &log.entries {
        assert!(entry.message.chars().count() <= 400 && !entry.message.contains(PASSWORD), "{}", entry.message);
        assert!(entry.severity.as_ref().is_some_and(|severity| severity.chars().count() <= 17));
    }
    assert!(bmc.take_log().iter().any(|line| line.ends_with("$skip=4744")));
    // Only links: as many as are worth a call each.
    let links: Vec<Value> = (1..100).map(|n| json!({"@odata.id": format!("{ENTRIES}/{n}")})).collect();
    let bmc = with_log(json!({"Members": links}));
    bmc.set(|inner| {
        for n in 1..100 {
            inner.resources.insert(format!("{ENTRIES}/{n}"), entry(n, "OK"));
        }
    });
    let found = all(&bmc, SYSTEM).await;
    assert_eq!(found.iter().find(|log| log.name == "sel").unwrap().entries.len(), 16);
    assert!(bmc.take_log().len() <= 26, "{:?}", bmc.take_log());
}
