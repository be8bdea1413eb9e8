//! Faults, from the machine to the cause that the host tells: each row of `tests/faults.toml` is set in a real simulated BMC, on the way to it, or in what the agent meets; the host is brought to its phase
//! by the controllers, fails by itself there, and is diagnosed by itself. Then the row's evidence is taken away, and nobody claims the cause any more.
//!
//! What each row has come to stands in `tests/faults.txt`, for people; `FAULTS=write` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use api::metamorph::{HostDiagnosis, HostDiagnosisStatus, HostOperation};
use futures::FutureExt as _;
use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use operator::Detect;
use scenarios::Site;
use scenarios::plant::Trouble;
use scenarios::plant::lab::{Bench, Lab, Way};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::requests::{ask, ended};

/// Longest wait for the next thing that is to happen to a host, seconds.
const LONGEST: u32 = 6 * 3600;
/// Rows that there must be.
const ROWS: usize = 60;
/// Hosts of one run.
const TOGETHER: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    fault: Vec<Row>,
}

/// Where a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    /// In the simulated machine.
    Simulator,
    /// In what the BMC shows and answers.
    BmcTree,
    /// On the way to the BMC.
    Network,
    /// Where the agent runs.
    Agent,
    /// At the image's server, as the agent meets it.
    ImageServer,
    /// In the host's own objects.
    Host,
}

/// What the host is at when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    /// It is registered for the first time.
    Registration,
    /// Its machine boots the agent for the first time.
    Inspection,
    /// The machine is prepared for an image.
    Preparation,
    /// An image is written.
    Provisioning,
    /// The machine, off till then, is to be on.
    Power,
}

impl Phase {
    const fn error(self) -> &'static str {
        match self {
            Self::Registration => "registration error",
            Self::Inspection => "inspection error",
            Self::Preparation => "preparation error",
            Self::Provisioning => "provisioning error",
            Self::Power => "power management error",
        }
    }
}

/// One row.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Row {
    /// Name of host and machine.
    id: String,
    /// The fault, a sentence.
    fault: String,
    place: Place,
    phase: Phase,
    /// The host's error, where it is not the phase's.
    #[serde(default)]
    error: Option<String>,
    /// The machine's maker.
    #[serde(default)]
    maker: Option<String>,
    /// Settings of the simulated BMC; `ailments` among them.
    #[serde(default)]
    settings: Value,
    /// Rules of the simulated BMC; `{id}` is the system's id, `{now}` the time in five seconds.
    #[serde(default)]
    rules: Vec<Value>,
    /// What becomes of connections to the BMC.
    #[serde(default)]
    way: Option<Way>,
    /// What happens on the machine.
    #[serde(default)]
    trouble: Trouble,
    /// The BMC's password, if it is not the host's.
    #[serde(default)]
    password: Option<String>,
    /// Whose system is on the disk.
    #[serde(default)]
    owner: Option<String>,
    /// Fields of the host's `spec`; `{ip}` is the BMC's address.
    #[serde(default)]
    spec: Value,
    /// The host's Secret is not there.
    #[serde(default)]
    no_secret: bool,
    /// Seconds for which the fault is there before the machine is prepared.
    #[serde(default)]
    lasts: u64,
    /// What comes first.
    code: String,
    fixer: String,
    /// Kind and place, as `Memory DIMM 1`; empty for none.
    #[serde(default)]
    component: String,
    /// Words of it.
    advice: String,
    #[serde(default = "likely")]
    certainty: String,
    /// Its evidence: fields of the evidence, `operation` for what the host's HostOperations tell, `message` for the host's own words.
    without: Vec<String>,
    /// It is read over sockets, too (`tests/e2e/tests/it/diagnosis.rs`).
    #[serde(default)]
    #[allow(dead_code, reason = "it is for another test")]
    sockets: bool,
}

fn likely() -> String {
    "Likely".to_owned()
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults.toml")).unwrap();
    let matrix: Matrix = toml::from_str(&text).unwrap();
    matrix.fault
}

fn is(state: State) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.state() == state
}

async fn patch(site: &Site, name: &str, change: Value) {
    site.hosts().patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
}

/// Sets the row's fault.
async fn set(site: &Site, bench: &Bench, row: &Row) {
    if row.settings.is_object() {
        bench.bmc.change_settings(&row.settings).await.unwrap();
    }
    // What is written down is later than what the host last did, to the second.
    let now = (clock::Clock::now(site.clock().as_ref()) + Duration::from_secs(5)).to_string();
    for rule in &row.rules {
        let text = rule.to_string().replace("{id}", &row.id).replace("{now}", &now);
        bench.bmc.faults.add(serde_json::from_str(&text).unwrap()).unwrap();
    }
    bench.trouble(row.trouble.clone());
    if let Some(password) = &row.password {
        bench.bmc.account.lock().unwrap().1.clone_from(password);
    }
    if let Some(owner) = &row.owner {
        bench.belongs_to(owner);
    }
    bench.way(row.way);
}

/// Brings the host to its phase, with the fault.
async fn brought(site: &Site, bench: &Bench, row: &Row) {
    let mut spec = bench.spec(&row.id);
    let given = row.spec.to_string().replace("{ip}", &bench.origin());
    let given: Value = serde_json::from_str(&given).unwrap();
    for (field, value) in given.as_object().into_iter().flatten() {
        if field == "image" {
            continue;
        }
        match (spec.get_mut(field), value) {
            (Some(Value::Object(fields)), Value::Object(more)) => fields.extend(more.clone()),
            _ => spec[field] = value.clone(),
        }
    }
    if row.phase == Phase::Power {
        spec["online"] = json!(false);
    }
    if row.phase == Phase::Registration {
        set(site, bench, row).await;
    }
    if row.no_secret {
        site.create_without_secret(&row.id, spec).await;
    } else {
        site.create_with(&row.id, json!({}), spec).await;
    }
    match row.phase {
        Phase::Registration => {}
        Phase::Inspection => {
            site.wait(&row.id, LONGEST, is(State::Inspecting)).await;
            set(site, bench, row).await;
        }
        // An image that is wished has the machine prepared first.
        Phase::Preparation | Phase::Provisioning => {
            site.wait(&row.id, LONGEST, is(State::Available)).await;
            // The clocks of BMC and server are compared to the second.
            sleep(Duration::from_secs(5)).await;
            set(site, bench, row).await;
            sleep(Duration::from_secs(row.lasts)).await;
            let mut image = json!({ "url": "http://192.0.2.8/i", "checksum": "0".repeat(64), "checksumType": "sha256", "format": "raw" });
            for (field, value) in given["image"].as_object().into_iter().flatten() {
                image[field] = value.clone();
            }
            patch(site, &row.id, json!({ "spec": { "image": image } })).await;
        }
        Phase::Power => {
            let off = |host: &BareMetalHost| {
                host.state() == State::Available && host.status.as_ref().is_some_and(|status| !status.powered_on)
            };
            site.wait(&row.id, LONGEST, off).await;
            sleep(Duration::from_secs(5)).await;
            set(site, bench, row).await;
            patch(site, &row.id, json!({ "spec": { "online": true } })).await;
        }
    }
}

/// Whether the host's message tells a cause.
fn tells(host: &BareMetalHost) -> bool {
    host.status.as_ref().is_some_and(|status| status.error_message.contains(" — Cause: "))
}

/// The diagnosis of the host, once it is in error.
async fn diagnosed(site: &Site, row: &Row) -> (BareMetalHost, HostDiagnosisStatus) {
    let error = row.error.as_deref().unwrap_or(row.phase.error());
    let shown = |host: &BareMetalHost| {
        let kind = host.status.as_ref().and_then(|status| status.error_type);
        kind.is_some_and(|kind| kind.as_str() == error)
            && host.annotation(annotation::DIAGNOSIS).is_some()
            && tells(host)
    };
    let host = site.wait(&row.id, LONGEST, shown).await;
    let diagnoses: Api<HostDiagnosis> = Api::default_namespaced(site.observer());
    (host, diagnoses.get(&row.id).await.unwrap().status.unwrap())
}

/// The diagnosis without the row's evidence.
async fn without(site: &Site, bench: &Bench, row: &Row) -> HostDiagnosisStatus {
    bench.hide(
        &row.without
            .iter()
            .filter(|source| !matches!(source.as_str(), "operation" | "message"))
            .cloned()
            .collect::<Vec<_>>(),
    );
    if row.without.iter().any(|source| source == "operation") {
        let operations: Api<HostOperation> = Api::default_namespaced(site.observer());
        for operation in operations.list(&ListParams::default()).await.unwrap() {
            if operation.spec.host.name == row.id {
                operations.delete(&operation.name_any(), &DeleteParams::default()).await.unwrap();
            }
        }
    }
    if row.without.iter().any(|source| source == "message") {
        let change = json!({ "status": { "errorMessage": "it did not work" } });
        site.hosts().patch_status(&row.id, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
    let name = format!("{}-again", row.id);
    ask(site, &name, json!({ "type": "Diagnose", "host": { "name": row.id } })).await;
    ended(site, &name).await;
    let diagnoses: Api<HostDiagnosis> = Api::default_namespaced(site.observer());
    diagnoses.get(&row.id).await.unwrap().status.unwrap()
}

/// What has become of a row: its transcript, and what is wrong with it.
struct Told {
    text: String,
    wrong: Vec<String>,
}

fn part(cause: &api::metamorph::DiagnosedCause) -> String {
    cause.component.as_ref().map(|part| format!("{} {}", part.kind, part.slot)).unwrap_or_default()
}

async fn told(site: &Site, bench: Arc<Bench>, row: Row) -> Told {
    brought(site, &bench, &row).await;
    let (host, found) = diagnosed(site, &row).await;
    let seen = bench.seen();
    let mut wrong = Vec::new();
    let first = found.causes.first().filter(|cause| !cause.background);
    let got = first.map(|cause| (cause.code.as_str(), cause.fixer.as_str(), part(cause), cause.certainty.as_str()));
    let wanted = (row.code.as_str(), row.fixer.as_str(), row.component.clone(), row.certainty.as_str());
    if got.as_ref() != Some(&wanted) || !first.is_some_and(|cause| cause.advice.contains(&row.advice)) {
        wrong.push(format!(
            "{}: {got:?} and not {wanted:?} with {:?}\n{found:#?}\n{:#?}",
            row.id, row.advice, host.status
        ));
    }
    let less = without(site, &bench, &row).await;
    let left = less.causes.first().filter(|cause| !cause.background);
    let is_unsure =
        left.is_none_or(|left| left.certainty == "Possible" && (row.certainty != "Possible" || left.code != row.code));
    if !is_unsure {
        wrong.push(format!("{}: without {:?}: {less:#?}", row.id, row.without));
    }
    Told { text: transcript(&row, &host, &found, &less, seen.as_ref()), wrong }
}

fn transcript(
    row: &Row,
    host: &BareMetalHost,
    found: &HostDiagnosisStatus,
    less: &HostDiagnosisStatus,
    seen: Option<&diagnosis::Evidence>,
) -> String {
    let mut text = String::new();
    let status = host.status.as_ref().unwrap();
    let _ = writeln!(text, "== {}: {} ==", row.id, row.fault);
    let _ = writeln!(
        text,
        "{:?}, in the {}: {}",
        row.place,
        row.phase.error().trim_end_matches(" error"),
        status.error_message
    );
    let spent = seen.map(|seen| format!(" by {} calls", seen.spent.calls)).unwrap_or_default();
    let _ = writeln!(text, "read{spent}: {}", found.read.join(", "));
    let unread: Vec<String> = found.not_read.iter().map(|one| format!("{} ({})", one.what, one.why)).collect();
    let _ = writeln!(text, "not read: {}", unread.join(", "));
    for (number, cause) in found.causes.iter().enumerate() {
        let rank = if cause.background { "-".to_owned() } else { (number + 1).to_string() };
        let part =
            Some(part(cause)).filter(|part| !part.is_empty()).map(|part| format!(" of {part}")).unwrap_or_default();
        let _ =
            writeln!(text, "{rank}. {} {}{part} ({}, {})", cause.certainty, cause.code, cause.fixer, cause.severity);
        if !cause.background {
            for line in &cause.evidence {
                let _ = writeln!(text, "     {line}");
            }
            let _ = writeln!(text, "   → {}", cause.advice);
        }
    }
    let left = less.causes.first().filter(|cause| !cause.background);
    let left = left.map_or_else(|| "no cause".to_owned(), |left| format!("{} {}", left.certainty, left.code));
    let _ = writeln!(text, "without {}: {left}", row.without.join(", "));
    text
}

#[test]
fn each_fault_is_found_and_not_claimed_without_its_evidence() {
    let only = std::env::var("FAULT").ok();
    let rows: Vec<Row> =
        rows().into_iter().filter(|row| only.as_ref().is_none_or(|only| row.id.contains(only.as_str()))).collect();
    let mut all = BTreeMap::new();
    let mut wrong = Vec::new();
    let began = std::time::Instant::now();
    let mut phases: BTreeMap<Phase, Vec<Row>> = BTreeMap::new();
    for row in rows {
        phases.entry(row.phase).or_default().push(row);
    }
    for rows in phases.into_values() {
        for rows in rows.chunks(TOGETHER) {
            let told = scenarios::run(90, async |site| {
                let lab = Lab::new(&site);
                let benches: Vec<Arc<Bench>> =
                    rows.iter().map(|row| lab.bench(&row.id, row.maker.as_deref())).collect();
                let _server = lab.serve(&site, Detect::All);
                let site = &site;
                let all = rows.iter().zip(benches).map(|(row, bench)| async move {
                    let told = AssertUnwindSafe(told(site, bench, row.clone())).catch_unwind().await;
                    told.unwrap_or_else(|_| Told {
                        text: String::new(),
                        wrong: vec![format!("{}: see the panic", row.id)],
                    })
                });
                join_all(all).await
            });
            for (row, told) in rows.iter().zip(told) {
                all.insert(row.id.clone(), told.text);
                wrong.extend(told.wrong);
            }
        }
    }
    println!("{} rows: {:.1} s", all.len(), began.elapsed().as_secs_f64());
    assert!(wrong.is_empty(), "{}\n{} wrong", wrong.join("\n\n"), wrong.len());
    if only.is_some() {
        return;
    }
    let text = self::rows().iter().map(|row| all[&row.id].as_str()).collect::<Vec<_>>().join("\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults.txt");
    if std::env::var("FAULTS").is_ok_and(|value| value == "write") {
        std::fs::write(path, &text).unwrap();
    }
    let before = std::fs::read_to_string(path).unwrap_or_default();
    let differs = before.lines().zip(text.lines()).find(|(before, now)| before != now);
    assert!(before == text, "FAULTS=write writes {path} anew: {differs:?}");
}

#[test]
fn the_matrix_has_a_code_of_its_own_for_each_fault_at_each_place() {
    let rows = rows();
    assert!(rows.len() >= ROWS, "{}", rows.len());
    let (mut ids, mut places, mut phases) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut codes: BTreeMap<&str, &str> = BTreeMap::new();
    for row in &rows {
        assert!(ids.insert(&row.id), "{} is there twice", row.id);
        assert!(!row.without.is_empty() && row.fault.len() > 10, "{}", row.id);
        places.insert(row.place);
        phases.insert(row.phase);
        if let Some(other) = codes.insert(&row.code, &row.fault) {
            assert_eq!(other, row.fault, "{}: another fault has its code {}", row.id, row.code);
        }
    }
    assert!(
        codes.len() >= ROWS && places.len() == 6 && phases.len() == 5,
        "{} codes at {places:?} in {phases:?}",
        codes.len()
    );
}
