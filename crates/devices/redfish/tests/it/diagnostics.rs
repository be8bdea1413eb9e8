//! Evidence of what is wrong: on recorded trees of makers, on a BMC that lets nobody in, and on one that is hostile.

use std::sync::Arc;
use std::time::Duration;

use bmc::{Bmc as _, EvidenceBudget};
use diagnosis::{Contact, Evidence, LogEntry, Part, PartKind, Reading};
use jiff::Timestamp;
use proptest::prelude::*;
use redfish::{RedfishBmc, TransportError};
use serde_json::{Value, json};
use terms::HealthLevel;

use crate::kit::{Bmc, Odd, PASSWORD, SESSIONS, SYSTEM, error_body, odd, rig, rig_with, tree};

const DELL: &str = "/redfish/v1/Systems/System.Embedded.1";
const LIST: &str = "/redfish/v1/Systems/437XR1138R2/LogServices";
const LOG: &str = "/redfish/v1/Systems/437XR1138R2/LogServices/SEL";
const ENTRIES: &str = "/redfish/v1/Systems/437XR1138R2/LogServices/SEL/Entries";

fn now() -> Timestamp {
    "2026-11-26T12:00:00Z".parse().unwrap()
}

/// A recorded tree with more of its resources.
fn recorded(set: &str) -> Arc<Bmc> {
    let bmc = Bmc::new(set);
    bmc.set(|inner| inner.resources.extend(tree(&format!("{set}-parts"))));
    bmc
}

async fn look(bmc: &Arc<Bmc>, system: &str) -> Evidence {
    let connected = RedfishBmc::new(rig(bmc, system).client);
    connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await
}

fn parts(evidence: &Evidence, kind: PartKind) -> Vec<&Part> {
    let all = evidence.parts.read().unwrap_or_else(|| panic!("{:?}", evidence.parts));
    all.iter().filter(|part| part.kind == kind).collect()
}

fn entries(evidence: &Evidence) -> &[LogEntry] {
    &evidence.logs.read().unwrap_or_else(|| panic!("{:?}", evidence.logs)).entries
}

fn with_log(entries: Value) -> Arc<Bmc> {
    let bmc = Bmc::generic();
    bmc.set(|inner| {
        inner.resources.insert(LIST.into(), json!({"@odata.id": LIST, "Members": [{"@odata.id": LOG}]}));
        inner.resources.insert(LOG.into(), json!({"@odata.id": LOG, "Entries": {"@odata.id": ENTRIES}}));
        inner.resources.insert(ENTRIES.into(), entries);
    });
    bmc
}

fn entry(n: usize, severity: &str, text: &str) -> Value {
    json!({
        "@odata.id": format!("{ENTRIES}/{n}"), "Id": n.to_string(), "Created": format!("2026-01-{:02}T00:00:00Z", n % 28 + 1),
        "Severity": severity, "Message": text,
    })
}

#[tokio::test]
async fn of_a_dell_supplies_fans_modules_and_the_log_without_users_are_read() {
    let bmc = recorded("dell-r750");
    let evidence = look(&bmc, DELL).await;
    let access = evidence.access.read().unwrap();
    assert_eq!(access.connection.read().unwrap().contact, Contact::Answered);
    assert_eq!(access.address, "192.0.2.7");
    let root = access.root.read().unwrap();
    assert_eq!(root.vendor.as_deref(), Some("Dell"));
    assert_eq!((root.virtual_media, root.system_known), (Some(true), Some(true)));
    let supplies = parts(&evidence, PartKind::PowerSupply);
    assert_eq!(supplies.len(), 2, "{supplies:?}");
    assert!(supplies.iter().all(|part| part.serial.is_some() && part.part_number.is_some()), "{supplies:?}");
    assert_eq!(parts(&evidence, PartKind::Fan).len(), 2);
    assert!(parts(&evidence, PartKind::Memory).iter().any(|part| part.slot == "DIMM A2" && part.serial.is_some()));
    assert_eq!(parts(&evidence, PartKind::Drive).len(), 3);
    let power = evidence.power.read().unwrap();
    assert!(power.allowable_resets.contains(&"ForceOff".to_owned()), "{power:?}");
    let log = entries(&evidence);
    assert!(!log.is_empty() && log.iter().all(|entry| entry.message_id.as_deref() != Some("IDRAC.2.7.USR0030")));
    let text = serde_json::to_string(&evidence).unwrap();
    assert!(
        !text.contains("10.180.248.29") && !text.contains("Successfully logged in"),
        "no users and their addresses"
    );
    assert!(log.iter().any(|entry| entry.created.is_some() && entry.written.starts_with("2024-")));
    assert!(evidence.spent.calls <= 40, "{:?}", evidence.spent);
    let methods: Vec<String> = bmc.take_log();
    let others: Vec<&String> =
        methods.iter().filter(|line| !line.starts_with("GET ") && **line != format!("POST {SESSIONS}")).collect();
    assert_eq!(others, Vec::<&String>::new(), "it reads alone");
}

#[tokio::test]
async fn of_an_hpe_the_log_says_what_is_repaired_and_what_to_do() {
    let evidence = look(&recorded("hpe"), "/redfish/v1/Systems/1").await;
    let log = entries(&evidence);
    let dimm = log.iter().find(|entry| entry.text.starts_with("DIMM Failure")).unwrap();
    assert_eq!(dimm.severity.as_deref(), Some("Critical"));
    assert!(dimm.resolution.is_some(), "{dimm:?}");
    let repaired: Vec<&LogEntry> = log.iter().filter(|entry| entry.resolved == Some(true)).collect();
    assert!(!repaired.is_empty(), "{log:?}");
    assert!(log.iter().all(|entry| !entry.text.contains("System Administrator")), "no users");
    assert!(evidence.boot.read().unwrap().post_state.is_some());
    let temperatures = parts(&evidence, PartKind::Temperature);
    assert!(!temperatures.is_empty(), "{:?}", evidence.skipped);
    assert!(temperatures.iter().any(|part| part.reading.is_some() && part.critical_at.is_some()), "{temperatures:?}");
    assert!(parts(&evidence, PartKind::PowerSupply).len() >= 2);
    assert!(evidence.spent.calls <= 40);
}

#[tokio::test]
async fn of_a_supermicro_the_part_stands_behind_an_at_sign() {
    let evidence = look(&recorded("supermicro-x10"), "/redfish/v1/Systems/1").await;
    let log = entries(&evidence);
    assert_eq!(log.len(), 65);
    let noise = log.iter().filter(|entry| entry.component.as_deref() == Some("DIMMB1")).count();
    assert_eq!(noise, 64, "as recorded");
    assert!(log.iter().all(|entry| entry.args.is_empty() && entry.severity.is_none()));
    assert!(log.iter().any(|entry| entry.sensor_type.as_deref() == Some("Memory")));
    assert!(!parts(&evidence, PartKind::Fan).is_empty() && !parts(&evidence, PartKind::Temperature).is_empty());
}

#[tokio::test]
async fn a_bmc_that_cannot_be_reached_is_told_apart_by_how() {
    let fail = |error| Odd::Fail(error);
    for (answer, contact) in [
        (fail(TransportError::Connect { detail: "Connection refused (os error 111)".into() }), Contact::Refused),
        (fail(TransportError::Timeout { seconds: 10 }), Contact::TimedOut),
        (fail(TransportError::Certificate { detail: "it has expired".into() }), Contact::Expired),
        (fail(TransportError::Protocol { detail: "invalid HTTP version parsed".into() }), Contact::NoHttp),
        (odd(404, Value::Null), Contact::NoRedfish),
        (odd(200, json!({"hello": "printer"})), Contact::NoRedfish),
    ] {
        let bmc = Bmc::generic();
        bmc.script("GET", "/redfish/v1/", answer);
        let evidence = look(&bmc, SYSTEM).await;
        let access = evidence.access.read().unwrap();
        assert_eq!(access.connection.read().unwrap().contact, contact);
        assert!(
            matches!(&evidence.parts, Reading::Skipped(why) if why == "the BMC cannot be reached"),
            "{:?}",
            evidence.parts
        );
        assert_eq!(bmc.take_log().len(), 1, "one request, and no password to whoever answers there");
    }
}

#[tokio::test]
async fn a_bmc_that_starts_is_not_waited_for() {
    let bmc = Bmc::generic();
    bmc.script("GET", "/redfish/v1/", odd(503, error_body("ServiceTemporarilyUnavailable", "Starting.")));
    let rig = rig(&bmc, SYSTEM);
    let waits = Arc::clone(&rig.waits);
    let evidence = RedfishBmc::new(rig.client).diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await;
    let access = evidence.access.read().unwrap();
    assert_eq!(access.connection.read().unwrap().status, Some(503));
    assert_eq!(access.answers[0].messages[0].id, "Base.1.8.ServiceTemporarilyUnavailable");
    assert!(waits.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_a_refused_sign_in_was_answered_is_evidence_and_made_once() {
    let bmc = Bmc::generic();
    let evidence = RedfishBmc::new(rig_with(&bmc, SYSTEM, "wrong-horse").client)
        .diagnostics()
        .unwrap()
        .evidence(&EvidenceBudget::at(now()))
        .await;
    let access = evidence.access.read().unwrap();
    let refused = &access.answers[0];
    assert_eq!((refused.call.as_str(), refused.status), (format!("POST {SESSIONS}").as_str(), Some(401)));
    assert_eq!(refused.messages[0].id, "ResourceAtUriUnauthorized");
    assert!(matches!(&evidence.logs, Reading::Skipped(why) if why.contains("does not let")));
    let tries = bmc.take_log().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(tries, 1, "an account is not locked by a diagnosis");
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.session_limit = 0);
    let access = look(&bmc, SYSTEM).await.access.read().unwrap().clone();
    assert_eq!(
        (access.answers[0].status, access.answers[0].messages[0].id.as_str()),
        (Some(503), "SessionLimitExceeded")
    );
}

#[tokio::test]
async fn a_call_that_fails_costs_its_source_alone() {
    let bmc = Bmc::generic();
    bmc.script("GET", "/Memory", odd(500, error_body("InternalError", "Oops.")));
    bmc.script("GET", "/Memory", odd(500, error_body("InternalError", "Oops.")));
    let evidence = look(&bmc, SYSTEM).await;
    assert!(parts(&evidence, PartKind::Memory).is_empty());
    assert!(!parts(&evidence, PartKind::Processor).is_empty());
    assert!(
        evidence.skipped.iter().any(|left| left.what == "Memory" && left.why.contains("500")),
        "{:?}",
        evidence.skipped
    );
    assert!(matches!(evidence.logs, Reading::NotAvailable(_)), "{:?}", evidence.logs);
    // The next look shows what failed before it, by the ledger.
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    let budget = EvidenceBudget::at(now());
    bmc.script("GET", "/Memory", odd(500, Value::Null));
    connected.diagnostics().unwrap().evidence(&budget).await;
    let again = connected.diagnostics().unwrap().evidence(&budget).await;
    let failed = again.ours.calls.read().unwrap();
    assert!(failed.iter().any(|call| call.status == Some(500) && call.call.ends_with("/Memory")), "{failed:?}");
}

#[tokio::test]
async fn what_the_budget_does_not_cover_is_listed() {
    for calls in [1, 2, 3, 5, 8, 13, 21] {
        let bmc = recorded("dell-r750");
        let connected = RedfishBmc::new(rig(&bmc, DELL).client);
        let budget = EvidenceBudget { calls, ..EvidenceBudget::at(now()) };
        let evidence = connected.diagnostics().unwrap().evidence(&budget).await;
        let asked = bmc.take_log().iter().filter(|line| line.starts_with("GET")).count();
        assert!(asked <= calls as usize, "{asked} of {calls}");
        assert_eq!(evidence.spent.calls as usize, asked);
        let text = serde_json::to_string(&evidence).unwrap();
        assert!(text.contains("the budget of calls"), "{text}");
    }
}

#[tokio::test]
async fn others_that_wait_for_the_bmc_go_between() {
    let mut bmc = Arc::into_inner(recorded("dell-r750")).unwrap();
    bmc.latency = Duration::from_millis(5);
    let bmc = Arc::new(bmc);
    let connected = RedfishBmc::new(rig(&bmc, DELL).client);
    connected.begin(&[]).await.unwrap();
    bmc.take_log();
    let (evidence, ()) =
        tokio::join!(async { connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await }, async {
            tokio::time::sleep(Duration::from_millis(12)).await;
            connected.power().change(bmc::PowerAction::HardOff).await.unwrap();
        });
    let log = bmc.take_log();
    let at = log.iter().position(|line| line.contains("ComputerSystem.Reset")).unwrap();
    assert!(at < 8, "{at} of {}: {log:?}", log.len());
    assert!(evidence.parts.read().is_some());
    assert_eq!(bmc.most_in_flight.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn logs_without_end_are_read_in_two_pages() {
    let page: Vec<Value> = (1..4).map(|n| entry(n, "Critical", "again")).collect();
    // It leads to itself.
    let bmc = with_log(json!({"Members": page, "Members@odata.count": 100_000, "Members@odata.nextLink": ENTRIES}));
    let evidence = look(&bmc, SYSTEM).await;
    let asked: Vec<String> = bmc.take_log().into_iter().filter(|line| line.contains("/Entries")).collect();
    assert_eq!(asked, [format!("GET {ENTRIES}"), format!("GET {ENTRIES}?$skip=99936")]);
    assert_eq!(entries(&evidence).len(), 3, "none counts twice");
    assert!(
        evidence.skipped.iter().any(|left| left.what == "log sel" || left.what == "log SEL"),
        "{:?}",
        evidence.skipped
    );
}

#[tokio::test]
async fn texts_of_a_bmc_are_one_clean_line_without_secrets() {
    let text = format!("\u{1b}[2J<script>%s\r\nmounted https://u:p@192.0.2.9:80/media/s3cret.iso by {PASSWORD}");
    let bmc = with_log(json!({"Members": [entry(1, "Critical", &text), entry(2, "Critical", &"x".repeat(2 << 20))]}));
    let evidence = look(&bmc, SYSTEM).await;
    let found = entries(&evidence).iter().find(|entry| entry.id == "1").unwrap();
    assert_eq!(found.text, "[2J<script>%s mounted https://192.0.2.9:80/… by [hidden]");
    assert!(entries(&evidence).iter().all(|entry| entry.text.chars().count() <= 301));
    let json = serde_json::to_string(&evidence).unwrap();
    assert!(!json.contains("s3cret") && !json.contains(PASSWORD) && !json.contains('\u{1b}'));
}

#[tokio::test]
async fn texts_of_messages_come_from_the_registry_that_entries_name_and_no_other() {
    let mut bare = entry(1, "Critical", "");
    bare["MessageId"] = "Contoso.1.2.PartBroken".into();
    let mut other = entry(2, "OK", "All is well.");
    other["MessageId"] = "Fine.1.0.Well".into();
    let bmc = with_log(json!({"Members": [bare, other]}));
    let (list, file, registry) =
        ("/redfish/v1/Registries", "/redfish/v1/Registries/Contoso.1.2", "/redfish/v1/RegistryStore/contoso.json");
    bmc.set(|inner| {
        let members =
            json!({"@odata.id": list, "Members": [{"@odata.id": "/redfish/v1/Registries/Fine"}, {"@odata.id": file}]});
        inner.resources.insert(list.into(), members);
        inner
            .resources
            .insert(file.into(), json!({"@odata.id": file, "Location": [{"Language": "en", "Uri": registry}]}));
        let message = json!({"Message": "Part %1 is broken.", "Severity": "Critical", "Resolution": "Replace it."});
        inner.resources.insert(registry.into(), json!({"@odata.id": registry, "Messages": {"PartBroken": message}}));
    });
    bmc.edit("/redfish/v1", |root| root["Registries"] = json!({"@odata.id": list}));
    let evidence = look(&bmc, SYSTEM).await;
    let texts = &evidence.logs.read().unwrap().registry;
    assert_eq!(texts["Contoso.1.2.PartBroken"].resolution.as_deref(), Some("Replace it."));
    assert_eq!(texts.len(), 1);
    let asked = bmc.take_log().iter().filter(|line| line.contains("/Registr")).count();
    assert_eq!(asked, 3, "the list, one file, one registry");
    // A registry that is not there is left out, and said to be.
    bmc.set(|inner| {
        inner.resources.remove(registry);
    });
    let evidence = look(&bmc, SYSTEM).await;
    assert!(evidence.skipped.iter().any(|left| left.what.contains("Contoso")), "{:?}", evidence.skipped);
}

#[tokio::test]
async fn a_clock_and_parts_that_are_unwell_are_read_as_they_are() {
    let bmc = Bmc::generic();
    bmc.edit("/redfish/v1/Managers/BMC", |manager| manager["DateTime"] = "1970-01-01T00:10:00Z".into());
    bmc.edit(SYSTEM, |system| system["Status"] = json!({"Health": "OK", "HealthRollup": "Critical"}));
    bmc.edit(&format!("{SYSTEM}/Memory/DIMM1"), |dimm| {
        dimm["Status"] = json!({"Health": "Critical", "State": "Disabled",
            "Conditions": [{"MessageId": "X.1.0.Broken", "Message": "It is broken.", "Severity": "Critical"}]});
    });
    let evidence = look(&bmc, SYSTEM).await;
    let skew = evidence.manager.read().unwrap().clock_skew_seconds.unwrap();
    assert!(skew < -1_700_000_000, "{skew}");
    let memory = parts(&evidence, PartKind::Memory);
    let sick = memory.iter().find(|part| part.health == Some(HealthLevel::Critical)).unwrap();
    assert_eq!((sick.slot.as_str(), sick.conditions[0].id.as_str()), ("DIMM 1", "X.1.0.Broken"));
    assert_eq!(parts(&evidence, PartKind::System)[0].health, Some(HealthLevel::Critical));
    assert!(memory.iter().any(|part| part.state.as_deref() == Some("Absent") && part.health.is_none()));
}

/// Values that a hostile BMC may put anywhere.
fn junk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        ".{0,40}".prop_map(Value::from),
        Just(json!("/redfish/v1")),
        Just(json!({"@odata.id": "/redfish/v1/Systems/437XR1138R2"})),
        Just(json!([{"@odata.id": "/redfish/v1/Systems"}])),
        Just(json!("x".repeat(100_000))),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(FIELDS.to_vec()), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}

const FIELDS: [&str; 16] = [
    "Members",
    "@odata.id",
    "Status",
    "Health",
    "Links",
    "Chassis",
    "Drives",
    "Entries",
    "Message",
    "Created",
    "Boot",
    "BootProgress",
    "Oem",
    "Location",
    "Conditions",
    "DateTime",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_in_resources_the_look_ends_within_its_budget(
        changes in prop::collection::vec((0..64_usize, prop::sample::select(FIELDS.to_vec()), junk()), 1..12)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bmc = Bmc::generic();
            bmc.set(|inner| {
                let paths: Vec<String> = inner.resources.keys().cloned().collect();
                for (at, field, value) in &changes {
                    let path = &paths[at % paths.len()];
                    if path != "/redfish/v1" {
                        inner.resources.get_mut(path).unwrap()[*field] = value.clone();
                    }
                }
            });
            let evidence = look(&bmc, SYSTEM).await;
            prop_assert!(bmc.take_log().len() <= 45);
            let text = serde_json::to_string(&evidence).unwrap();
            let is_clean = !text.contains('\u{1b}') && text.len() < 2 << 20;
            prop_assert!(is_clean);
            Ok(())
        })?;
    }
}

fn refused() -> Odd {
    odd(401, error_body("ResourceAtUriUnauthorized", "Wrong user or password."))
}

fn sign_ins(log: &[String]) -> usize {
    log.iter().filter(|line| line.starts_with("POST")).count()
}

#[tokio::test]
async fn a_password_that_is_refused_is_sent_once_a_look_and_not_again_by_the_next() {
    let bmc = Bmc::generic();
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    // Somebody sets another password: the sessions end, and the old one is refused.
    bmc.set(|inner| inner.revoked.push("token-1".into()));
    for _ in 0..8 {
        bmc.script("POST", SESSIONS, refused());
    }
    bmc.take_log();
    for (look, tries) in [(1, 1), (2, 0)] {
        let evidence = connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await;
        let log = bmc.take_log();
        assert_eq!(sign_ins(&log), tries, "look {look}: {log:?}");
        let answers = &evidence.access.read().unwrap().answers;
        assert!(answers.iter().any(|answer| answer.sign_in && answer.status == Some(401)), "look {look}: {answers:?}");
        assert!(log.len() <= 4, "look {look}: nothing more is asked: {log:?}");
    }
}

#[tokio::test]
async fn a_session_that_has_ended_is_renewed_and_is_no_wrong_password() {
    let bmc = Bmc::generic();
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    bmc.set(|inner| inner.revoked.push("token-1".into()));
    bmc.take_log();
    let evidence = connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await;
    assert_eq!(sign_ins(&bmc.take_log()), 1);
    let answers = &evidence.access.read().unwrap().answers;
    assert!(answers.iter().all(|answer| answer.status != Some(401)), "{answers:?}");
    assert!(!parts(&evidence, PartKind::Memory).is_empty());
}

#[tokio::test]
async fn a_password_with_each_request_stops_at_its_first_refusal() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.no_sessions = true);
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    bmc.set(|inner| inner.refuse_basic = true);
    bmc.take_seen();
    let evidence = connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await;
    let sent = bmc.take_seen().iter().filter(|seen| seen.auth == "basic").count();
    assert_eq!(sent, 1);
    let answers = &evidence.access.read().unwrap().answers;
    assert!(answers[0].sign_in && answers[0].status == Some(401), "{answers:?}");
}

#[tokio::test]
async fn a_password_with_each_request_is_sent_to_no_other_bmc() {
    let bmc = Bmc::generic();
    bmc.set(|inner| inner.no_sessions = true);
    let connected = RedfishBmc::new(rig(&bmc, SYSTEM).client);
    connected.begin(&[]).await.unwrap();
    bmc.edit("/redfish/v1", |root| root["UUID"] = "00000000-1111-2222-3333-444444444444".into());
    bmc.take_seen();
    let evidence = connected.diagnostics().unwrap().evidence(&EvidenceBudget::at(now())).await;
    let seen = bmc.take_seen();
    assert!(seen.iter().all(|seen| seen.auth == "none"), "{seen:?}");
    let access = evidence.access.read().unwrap();
    assert_eq!(access.connection.read().unwrap().contact, Contact::NotThePinned);
    assert!(evidence.parts.read().is_none());
}

#[tokio::test]
async fn a_bmc_that_repeats_the_password_or_a_path_to_a_medium_has_them_told_to_nobody() {
    let echo = format!("the value {PASSWORD} for Password is wrong");
    let said = json!({"MessageId": format!("Base.1.8.{PASSWORD}"), "Message": echo, "MessageArgs": [PASSWORD], "Severity": PASSWORD,
        "Resolution": format!("do not use {PASSWORD}")});
    let bmc = Bmc::generic();
    bmc.script("POST", SESSIONS, odd(403, json!({"error": {"@Message.ExtendedInfo": [said]}})));
    let evidence = look(&bmc, SYSTEM).await;
    let access = evidence.access.read().unwrap();
    assert_eq!(access.answers[0].status, Some(403));
    assert!(!serde_json::to_string(&evidence).unwrap().contains(PASSWORD), "{access:?}");
    let texts = [
        "GET /shard/0/media/s3cret failed",
        "mounted //192.0.2.1/shard/0/media/s3cret.iso.",
        "url=http%3A%2F%2F192.0.2.1%2Fmedia%2Fs3cret",
        "The file s3cret.iso is in use",
    ];
    let entries: Vec<Value> = (1..).zip(texts).map(|(n, text)| entry(n, "Critical", text)).collect();
    let evidence = look(&with_log(json!({"Members": entries})), SYSTEM).await;
    let text = serde_json::to_string(&evidence).unwrap();
    assert!(text.contains("is in use") && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn what_whoever_answers_says_without_a_password_is_bounded_before_it_is_read() {
    let bmc = Bmc::generic();
    let root = json!({"RedfishVersion": "1.8.0", "Systems": {}, "x": vec![json!({"": 0}); 100_001]});
    bmc.script("GET", "/redfish/v1/", odd(200, root));
    let evidence = look(&bmc, SYSTEM).await;
    assert_eq!(evidence.access.read().unwrap().connection.read().unwrap().contact, Contact::NoRedfish);
}

#[tokio::test]
async fn options_and_disks_that_were_not_shown_are_not_taken_for_missing() {
    let (options, option) = (format!("{SYSTEM}/BootOptions"), format!("{SYSTEM}/BootOptions/1"));
    let with = |members: Value, expands: bool| {
        let bmc = Bmc::generic();
        bmc.set(|inner| {
            inner.resources.insert(options.clone(), json!({"@odata.id": options, "Members": members}));
            inner.resources.insert(option.clone(), json!({"@odata.id": option, "Id": "1", "DisplayName": "Disk"}));
        });
        bmc.edit(SYSTEM, |system| system["Boot"]["BootOptions"] = json!({"@odata.id": options}));
        if !expands {
            bmc.edit("/redfish/v1", |root| root["ProtocolFeaturesSupported"] = json!({}));
        }
        bmc
    };
    let link = json!([{"@odata.id": option}]);
    for (members, expands, known) in [
        (link.clone(), true, Some(vec!["Disk".to_owned()])),
        (link, false, None),
        (json!([]), false, None),
        (json!([]), true, Some(Vec::new())),
        (Value::Null, true, None),
        (json!([{"@odata.id": "/redfish/v1/Nowhere"}]), true, None),
    ] {
        let evidence = look(&with(members.clone(), expands), SYSTEM).await;
        assert_eq!(evidence.boot.read().unwrap().options, known, "{members} {expands}");
    }
    let drives = |count: usize| {
        let bmc = Bmc::generic();
        let (list, storage) = (format!("{SYSTEM}/Storage"), format!("{SYSTEM}/Storage/1"));
        bmc.set(|inner| {
            let links: Vec<Value> = (0..count).map(|n| json!({"@odata.id": format!("{storage}/Drives/{n}")})).collect();
            for link in &links {
                let path = link["@odata.id"].as_str().unwrap().to_owned();
                inner.resources.insert(path.clone(), json!({"@odata.id": path, "SerialNumber": path}));
            }
            inner.resources.insert(list.clone(), json!({"@odata.id": list, "Members": [{"@odata.id": storage}]}));
            let status = json!({"Health": "OK"});
            inner
                .resources
                .insert(storage.clone(), json!({"@odata.id": storage, "Id": "1", "Status": status, "Drives": links}));
        });
        bmc.edit(SYSTEM, |system| system["Storage"] = json!({"@odata.id": list}));
        bmc
    };
    for (count, whole) in [(3, true), (10, false)] {
        let evidence = look(&drives(count), SYSTEM).await;
        assert_eq!(evidence.whole.contains(&PartKind::Drive), whole, "{count}: {:?}", evidence.skipped);
    }
}
