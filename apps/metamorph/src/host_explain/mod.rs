//! `host explain`: why a host is as it is, from its objects alone: BareMetalHost, HostOperations, HostDiagnosis, and of its Secret the metadata. No machine is called.

mod changes;
pub mod current;
mod times;

use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use api::metal3::{
    BareMetalHost, BareMetalHostStatus, OperationMetric, OperationalStatus, ProvisioningState as State, annotation,
    detection_fault, finalizer,
};
use api::metamorph::{
    DiagnosedCause, HostDiagnosis, HostDiagnosisStatus, HostOperation, OperationPhase, OperationType,
};
use bmc::EvidenceBudget;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, ResourceExt as _};
use operator::without_cause;

use crate::report_args::HostExplain;
use crate::{client, say};
use current::{advises, is_of_now};
use times::duration;

/// The kinds beside the host, as rights name them.
const DIAGNOSES: &str = "hostdiagnoses.metamorph.metal3.io";
const OPERATIONS: &str = "hostoperations.metamorph.metal3.io";
/// Operations that are shown, the newest first.
const MOST_OPERATIONS: usize = 3;
/// Steps of an operation that are shown.
const MOST_STEPS: usize = 32;
/// Longest text of others that is shown in one place, characters.
const MAX_TEXT: usize = 2000;

/// Prints it.
pub async fn run(options: HostExplain) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let (text, ticket) = explained(&client, &namespace, &options.name).await?;
    say::out(if options.rma { &ticket } else { &text })
}

/// The answer for people, and the text for a ticket.
pub async fn explained(client: &kube::Client, namespace: &str, name: &str) -> anyhow::Result<(String, String)> {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
    let host = hosts.get_opt(name).await.context("read the host")?;
    let host = host.ok_or_else(|| anyhow!("there is no BareMetalHost {name} in the namespace {namespace}"))?;
    let diagnoses: Api<HostDiagnosis> = Api::namespaced(client.clone(), namespace);
    let mut beside = Beside::default();
    let diagnosis = match diagnoses.get(name).await {
        Ok(diagnosis) => Some(diagnosis).filter(|diagnosis| diagnosis.spec.host.uid == host.uid()),
        Err(error) if client::is_no_object(&error) => None,
        Err(error) => {
            let error = anyhow::Error::new(error).context("read the host's HostDiagnosis");
            beside.no_diagnosis = Some(client::not_read(&error, "get", DIAGNOSES, Some(namespace)).ok_or(error)?);
            None
        }
    };
    let mut of_host: Vec<HostOperation> = Vec::new();
    let listed = client::each(client, Some(namespace), "operations", |operation: HostOperation| {
        if is_of(&operation, &host) {
            of_host.push(operation);
        }
    });
    if let Err(error) = listed.await {
        beside.no_operations = Some(client::not_read(&error, "list", OPERATIONS, Some(namespace)).ok_or(error)?);
    }
    beside.warnings = switches(client, &host, namespace).await;
    // The newest first; of those of one second the one with the higher number.
    of_host.sort_by_key(|operation| {
        std::cmp::Reverse((operation.creation_timestamp().map(|time| time.0), operation.name_any()))
    });
    let now = Timestamp::now();
    let mut out = text(&host, &of_host, diagnosis.as_ref(), &beside, now);
    if let Some(then) = changes::last_worked(&host, &of_host) {
        let mut lines = changes::since("BareMetalHost", &host.metadata, then);
        lines.extend(of_secret(client, &host, then).await);
        changed(&mut out, then, &lines);
    }
    let ticket = match &beside.no_diagnosis {
        Some(why) => format!("The HostDiagnosis of the host {} is not read: {why}.\n", host.name_any()),
        None => ticket(&host, diagnosis.as_ref(), now),
    };
    Ok((out, ticket))
}

/// What is said beside what the objects tell.
#[derive(Default)]
struct Beside {
    /// Why the HostDiagnosis was not read.
    no_diagnosis: Option<String>,
    /// Why the HostOperations were not read.
    no_operations: Option<String>,
    /// What is wrong with what switches diagnoses.
    warnings: Vec<String>,
}

/// What of the labels that switch the diagnosis counts for nothing.
async fn switches(client: &kube::Client, host: &BareMetalHost, namespace: &str) -> Vec<String> {
    let of_host = detection_fault(host.metadata.labels.as_ref()).map(|fault| format!("of the host, the {fault}"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let of_namespace = match namespaces.get_metadata_opt(namespace).await {
        Ok(read) => read
            .and_then(|read| detection_fault(read.metadata.labels.as_ref()))
            .map(|fault| format!("of the namespace, the {fault}")),
        Err(kube::Error::Api(refused)) if refused.code == 403 => Some(format!(
            "the labels of the namespace are not read: you have no right to: it needs the verb get on namespaces for {namespace}"
        )),
        Err(error) => Some(format!("the labels of the namespace are not read: {}", plain(&error.to_string()))),
    };
    of_host.into_iter().chain(of_namespace).collect()
}

/// Whether an operation is of this host, and not of one that bore its name before.
fn is_of(operation: &HostOperation, host: &BareMetalHost) -> bool {
    let asked = &operation.spec.host;
    asked.name == host.name_any() && (asked.uid.is_none() || asked.uid == host.uid())
}

/// What has changed of the Secret with the BMC's credentials: its metadata alone are asked for.
async fn of_secret(client: &kube::Client, host: &BareMetalHost, then: Timestamp) -> Vec<String> {
    let name = host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str()).filter(|name| !name.is_empty());
    let Some(name) = name else { return Vec::new() };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &host.namespace().unwrap_or_default());
    match secrets.get_metadata_opt(name).await {
        Ok(Some(secret)) => changes::since(&format!("Secret {}", plain(name)), &secret.metadata, then),
        Ok(None) => vec![format!("Secret {}: it is not there", plain(name))],
        Err(kube::Error::Api(refused)) if refused.code == 403 => {
            vec![format!("Secret {}: you have no right to read when it was changed", plain(name))]
        }
        Err(error) => vec![format!("Secret {}: it cannot be read: {}", plain(name), plain(&error.to_string()))],
    }
}

fn changed(out: &mut String, then: Timestamp, lines: &[String]) {
    let _ = write!(out, "Changed     since it last worked, at {then}: ");
    if lines.is_empty() {
        out.push_str("nothing that the objects tell of\n");
        return;
    }
    out.push('\n');
    for line in lines {
        let _ = writeln!(out, "            {line}");
    }
}

/// What is printable, on one line.
fn plain(text: &str) -> String {
    terms::clean(text, MAX_TEXT)
}

/// The whole answer.
fn text(
    host: &BareMetalHost,
    operations: &[HostOperation],
    diagnosis: Option<&HostDiagnosis>,
    beside: &Beside,
    now: Timestamp,
) -> String {
    let mut out = String::new();
    let status = host.status.clone().unwrap_or_default();
    let _ = writeln!(out, "Host        {}/{}", host.namespace().unwrap_or_default(), host.name_any());
    out.push_str(&state(host, &status, now));
    match status.error_type {
        Some(kind) => {
            let _ = writeln!(
                out,
                "Error       {} ({} in a row): {}",
                kind.as_str(),
                status.error_count,
                plain(&status.error_message)
            );
        }
        None => out.push_str("Error       none\n"),
    }
    let waits = waits(host, &status);
    for waits in &waits {
        let _ = writeln!(out, "Waits for   {waits}");
    }
    for warning in &beside.warnings {
        let _ = writeln!(out, "Warning     {}", plain(warning));
    }
    if let Some(why) = &beside.no_operations {
        let _ = writeln!(out, "Operation   not read: {}", plain(why));
    }
    for operation in operations.iter().take(MOST_OPERATIONS) {
        one(&mut out, operation, asked(&status, operations, operation), now);
    }
    match &beside.no_diagnosis {
        Some(why) => {
            let _ = writeln!(out, "Diagnosis   not read: {}", plain(why));
        }
        None => causes(&mut out, diagnosis),
    }
    let _ = writeln!(out, "Next        {}", next((host, &status), operations, diagnosis, beside, (&waits, now)));
    out
}

/// The state, since when, and what of its time is left.
fn state(host: &BareMetalHost, status: &BareMetalHostStatus, now: Timestamp) -> String {
    let state = host.state();
    let mut out = format!("State       {}", if state.as_str().is_empty() { "none" } else { state.as_str() });
    if let Some((since, budget)) = host_lifecycle::spent(host) {
        let (passed, budget) = (times::seconds(since, now), budget.as_secs());
        let left = match budget.checked_sub(passed) {
            Some(left) => format!("{} of its time are left", duration(left)),
            None => format!("it takes longer than the {} that are given to it", duration(budget)),
        };
        let _ = write!(out, " for {}, since {since}; {left}", duration(passed));
    } else if let Some(since) = came_to(state, status) {
        let _ = write!(out, " for {}, since {since}; it has no time limit", duration(times::seconds(since, now)));
    }
    out.push('\n');
    out
}

/// When a host came into a state at rest, as far as its history tells.
fn came_to(state: State, status: &BareMetalHostStatus) -> Option<Timestamp> {
    let history = &status.operation_history;
    let end = |metric: &OperationMetric| metric.end.as_ref().map(|time| time.0);
    match state {
        State::Available | State::Ready => [&history.inspect, &history.deprovision].into_iter().filter_map(end).max(),
        State::Provisioned => end(&history.provision),
        State::ExternallyProvisioned => end(&history.register),
        _ => None,
    }
}

/// What holds it up, each in a line.
fn waits(host: &BareMetalHost, status: &BareMetalHostStatus) -> Vec<String> {
    let mut waits = Vec::new();
    if let Some(by) = host.annotation(annotation::PAUSED) {
        let by = if by == annotation::PAUSED_BY_CLAIM { "its HostClaim is paused" } else { "somebody" };
        waits.push(format!("the end of its pause ({by}; annotation {})", annotation::PAUSED));
    }
    if host.annotation(annotation::DETACHED).is_some() {
        waits.push(format!("whoever has it now: it is detached (annotation {})", annotation::DETACHED));
    }
    if host.spec.bmc.is_none() && host.annotation(annotation::DISCOVERED_BY).is_some() {
        let word = format!("{}=true", annotation::APPROVE);
        waits.push(format!(
            "approval: it was discovered, and its BMC is not called (annotation {word}; Events NotApproved say what is in the way)"
        ));
    }
    if host.is_deleting() {
        let others = host.metadata.finalizers.iter().flatten().filter(|name| *name != finalizer::HOST);
        let others: Vec<String> = others.take(MOST_OPERATIONS).map(|name| plain(name)).collect();
        if !others.is_empty() {
            waits.push(format!("others, who keep it from being deleted by finalizers: {}", others.join(", ")));
        }
    }
    if status.operational_status == OperationalStatus::Delayed {
        waits.push("its turn: it is delayed".to_owned());
    }
    let is_error = |said: &str| status.error_type.is_some() && said == without_cause(&status.error_message);
    let told = status.conditions.iter().filter(|condition| {
        (condition.type_ == "Ready" && condition.status != "True" && !is_error(&condition.message))
            || (condition.type_ == "Progressing" && condition.status == "True")
    });
    let mut told: Vec<String> =
        told.map(|condition| format!("{}: {}", plain(&condition.reason), plain(&condition.message))).collect();
    told.dedup();
    waits.extend(told);
    waits
}

/// When the host began to want what the operation does. `None` where that is not known, as of an attempt after others.
fn asked(status: &BareMetalHostStatus, operations: &[HostOperation], operation: &HostOperation) -> Option<Timestamp> {
    let begun = |operation: &HostOperation| Some(operation.status.as_ref()?.start_time.as_ref()?.0);
    let history = &status.operation_history;
    let metric = match operation.spec.operation {
        OperationType::Inspect => &history.inspect,
        OperationType::Provision => &history.provision,
        OperationType::Deprovision | OperationType::Erase | OperationType::Steps => &history.deprovision,
        _ => return None,
    };
    let asked = metric.start.as_ref()?.0;
    let begin = begun(operation)?;
    let before = operations.iter().filter(|other| other.spec.operation == operation.spec.operation);
    let mut attempts = before.filter_map(begun).filter(|other| (asked..begin).contains(other));
    attempts.next().is_none().then_some(asked)
}

fn one(out: &mut String, operation: &HostOperation, asked: Option<Timestamp>, now: Timestamp) {
    let status = operation.status.clone().unwrap_or_default();
    let bytes: i64 = status.steps.iter().filter_map(|step| step.bytes).fold(0, i64::saturating_add);
    let bytes = if bytes > 0 { format!(", {bytes} bytes") } else { String::new() };
    let _ = writeln!(
        out,
        "Operation   {}: {:?} {}, {} calls to the BMC{bytes}",
        plain(&operation.name_any()),
        status.phase,
        plain(status.progress.as_deref().unwrap_or_default()),
        status.bmc_calls
    );
    if let Some(line) = times::line(&status, asked, now) {
        let _ = writeln!(out, "            {line}");
    }
    if let Some(error) = &status.error {
        let _ = writeln!(out, "            {}: {}", plain(&error.cause), plain(&error.message));
    }
    for step in status.steps.iter().take(MOST_STEPS) {
        let end = status.end_time.as_ref().map_or(now, |time| time.0);
        let took = times::of_step(step, end).map(|took| format!(", {}", duration(took))).unwrap_or_default();
        let attempt = step.attempt.filter(|attempt| *attempt > 1).map(|n| format!(", attempt {n}")).unwrap_or_default();
        let calls = step.bmc_calls.map(|calls| format!(", {calls} calls")).unwrap_or_default();
        let bytes = step.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
        let said = step.error.as_ref().map(|error| &error.message).or(step.message.as_ref());
        let said = said.map(|said| format!(": {}", plain(said))).unwrap_or_default();
        let _ = writeln!(out, "            {} {:?}{took}{attempt}{calls}{bytes}{said}", plain(&step.name), step.phase);
    }
}

fn part(cause: &DiagnosedCause) -> String {
    cause.component.as_ref().map(|part| format!(" ({} {})", plain(&part.kind), plain(&part.slot))).unwrap_or_default()
}

fn causes(out: &mut String, diagnosis: Option<&HostDiagnosis>) {
    let Some(status) = diagnosis.and_then(|diagnosis| diagnosis.status.as_ref()) else {
        out.push_str("Diagnosis   none was made\n");
        return;
    };
    let when = status.finish_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let took = match (&status.start_time, &status.finish_time) {
        (Some(start), Some(end)) => format!(", in {}", duration(times::seconds(start.0, end.0))),
        _ => String::new(),
    };
    let budget = EvidenceBudget::at(Timestamp::UNIX_EPOCH);
    let _ = writeln!(
        out,
        "Diagnosis   {:?} at {when}{took}, {} calls to the BMC, {} bytes (the BMC is read for {} at most, with {} calls and {} bytes)",
        status.phase,
        status.bmc_calls,
        status.bytes,
        duration(budget.time.as_secs()),
        budget.calls,
        budget.bytes
    );
    for cause in &status.causes {
        let background = if cause.background { ", in the background" } else { "" };
        let _ = writeln!(
            out,
            "  {} {}{}: {}{background}",
            plain(&cause.certainty),
            plain(&cause.code),
            part(cause),
            plain(&cause.meaning)
        );
        let _ = writeln!(out, "      {} puts it right: {}", plain(&cause.fixer), plain(&cause.advice));
        for evidence in &cause.evidence {
            let _ = writeln!(out, "      - {}", plain(evidence));
        }
    }
    for unread in &status.not_read {
        let _ = writeln!(out, "  not read: {} ({})", plain(&unread.what), plain(&unread.why));
    }
}

/// What to do next, a sentence.
fn next(
    (host, status): (&BareMetalHost, &BareMetalHostStatus),
    operations: &[HostOperation],
    diagnosis: Option<&HostDiagnosis>,
    beside: &Beside,
    (waits, now): (&[String], Timestamp),
) -> String {
    if status.error_type.is_some() && beside.no_diagnosis.is_some() {
        return "have somebody look who may read the HostDiagnosis: the cause stands there".to_owned();
    }
    let found = diagnosis.and_then(|diagnosis| diagnosis.status.as_ref());
    if let Some(earlier) = found.filter(|found| status.error_type.is_some() && !is_of_now(host, found, now)) {
        let of = earlier.error_type.as_deref().filter(|error| !error.is_empty()).unwrap_or("no error");
        let when = earlier.finish_time.as_ref().map(|time| format!(", {}", time.0)).unwrap_or_default();
        return format!(
            "the last diagnosis is of an earlier state ({}{when}): create a HostOperation of the type Diagnose",
            plain(of)
        );
    }
    let first = found.and_then(|found| found.causes.first()).filter(|cause| !cause.background);
    let running = operations
        .first()
        .and_then(|operation| operation.status.as_ref())
        .filter(|status| status.phase == OperationPhase::Running);
    let first = first.filter(|_| found.is_some_and(|found| advises(host, found, now)));
    match (status.error_type, first, running) {
        (_, Some(first), _) => format!("{}: {}", plain(&first.fixer), plain(&first.advice)),
        (Some(_), None, _) if found.is_none() => {
            "create a HostOperation of the type Diagnose, or put the label error-detect=true on the host".to_owned()
        }
        (Some(_), None, _) => "see the machine's console; the diagnosis has found no cause".to_owned(),
        (None, _, Some(running)) => {
            format!("wait for the step {}", plain(running.current_step.as_deref().unwrap_or("under way")))
        }
        (None, ..) => waits.first().map_or_else(
            || "nothing: the host shows no error".to_owned(),
            |first| format!("see to what it waits for: {first}"),
        ),
    }
}

/// The text for whoever replaces parts.
fn ticket(host: &BareMetalHost, diagnosis: Option<&HostDiagnosis>, now: Timestamp) -> String {
    let mut out = String::new();
    let of_now = |found: &&HostDiagnosisStatus| is_of_now(host, found, now);
    let found = diagnosis.and_then(|diagnosis| diagnosis.status.as_ref());
    if let Some(earlier) = found.filter(|found| !of_now(found)) {
        let when = earlier.finish_time.as_ref().map(|time| format!(" at {}", time.0)).unwrap_or_default();
        return format!(
            "The last diagnosis of the host {}{when} is of an earlier state: create a HostOperation of the type Diagnose.\n",
            host.name_any()
        );
    }
    let parts = found.map(|status| {
        status.causes.iter().filter(|cause| cause.fixer == "Hardware" && !cause.background).collect::<Vec<_>>()
    });
    let parts = parts.unwrap_or_default();
    if parts.is_empty() {
        return format!("No part of the host {} was found to be broken.\n", host.name_any());
    }
    let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
    let _ = writeln!(out, "Machine       {}/{}", host.namespace().unwrap_or_default(), host.name_any());
    if let Some(vendor) = hardware.and_then(|hardware| hardware.system_vendor.as_ref()) {
        let _ = writeln!(
            out,
            "System        {} {}, serial number {}",
            plain(vendor.manufacturer.as_deref().unwrap_or("?")),
            plain(vendor.product_name.as_deref().unwrap_or("?")),
            plain(vendor.serial_number.as_deref().unwrap_or("?"))
        );
    }
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let _ = writeln!(out, "At the rack   metamorph host locate -n {namespace} {name} --on (--off puts the light out)");
    for cause in parts {
        let _ = writeln!(
            out,
            "\nFault         {} ({}, {})",
            plain(&cause.meaning),
            plain(&cause.code),
            plain(&cause.certainty)
        );
        if let Some(part) = &cause.component {
            let _ = writeln!(out, "Part          {} {}", plain(&part.kind), plain(&part.slot));
            let _ = writeln!(out, "Part number   {}", plain(part.part_number.as_deref().unwrap_or("not known")));
            let _ = writeln!(out, "Serial number {}", plain(part.serial.as_deref().unwrap_or("not known")));
        }
        let times = [&cause.first_seen, &cause.last_seen]
            .map(|time| time.as_ref().map_or_else(|| "?".to_owned(), |time| time.0.to_string()));
        let _ = writeln!(out, "Seen          {} times, from {} to {}", cause.count, times[0], times[1]);
        for evidence in &cause.evidence {
            let _ = writeln!(out, "Evidence      {}", plain(evidence));
        }
        let _ = writeln!(out, "To do         {}", plain(&cause.advice));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn host() -> BareMetalHost {
        serde_json::from_value(json!({
            "metadata": { "name": "h", "namespace": "n", "uid": "u" },
            "status": {
                "errorType": "inspection error", "errorMessage": "the agent \u{1b}[2Jis silent", "errorCount": 2, "operationalStatus": "error", "poweredOn": true,
                "provisioning": { "state": "inspecting", "ID": "x" },
                "operationHistory": { "inspect": { "start": "2026-03-01T11:00:00Z" } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn an_operation_of_an_earlier_host_of_that_name_is_not_meant() {
        for (host_of, expected) in [
            (json!({ "name": "h", "uid": "u" }), true),
            (json!({ "name": "h" }), true),
            (json!({ "name": "h", "uid": "earlier" }), false),
            (json!({ "name": "other", "uid": "u" }), false),
        ] {
            let operation = json!({ "metadata": { "name": "o" }, "spec": { "host": host_of, "type": "Provision" } });
            let operation: HostOperation = serde_json::from_value(operation).unwrap();
            assert_eq!(is_of(&operation, &host()), expected, "{operation:?}");
        }
    }

    fn diagnosis() -> HostDiagnosis {
        serde_json::from_value(json!({
            "metadata": { "name": "h" }, "spec": { "host": { "name": "h", "uid": "u" } },
            "status": { "phase": "Found", "errorType": "inspection error", "bmcCalls": 12, "causes": [{
                "code": "MemoryFailed", "meaning": "A memory module has failed", "rule": "r", "fixer": "Hardware", "certainty": "Certain", "severity": "Critical",
                "component": { "kind": "Memory", "slot": "DIMM A1", "partNumber": "PN-7", "serial": "SN-9" },
                "fingerprint": "f", "evidence": ["Memory DIMM A1: Health Critical"], "advice": "replace Memory DIMM A1",
            }], "notRead": [{ "what": "logs", "why": "HTTP 500" }] },
        }))
        .unwrap()
    }

    #[test]
    fn it_says_state_error_cause_and_what_is_next_without_control_characters() {
        let now: Timestamp = "2026-03-01T11:20:00Z".parse().unwrap();
        let said = text(&host(), &[], Some(&diagnosis()), &Beside::default(), now);
        for words in [
            "inspecting for 20 min 0 s, since 2026-03-01T11:00:00Z; 40 min 0 s of its time are left",
            "inspection error (2 in a row)",
            "Certain MemoryFailed (Memory DIMM A1): A memory module has failed",
            "- Memory DIMM A1: Health Critical",
            "not read: logs (HTTP 500)",
            "Next        Hardware: replace Memory DIMM A1",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains('\u{1b}'));
        let without = text(&host(), &[], None, &Beside::default(), now);
        assert!(without.contains("Diagnosis   none was made") && without.contains("type Diagnose"), "{without}");
    }

    #[test]
    fn an_operation_says_where_its_time_went_and_what_it_waits_for() {
        let mut host = host();
        host.metadata.annotations = Some([(annotation::PAUSED.to_owned(), String::new())].into());
        let operation: HostOperation = serde_json::from_value(json!({
            "metadata": { "name": "h-001-inspect" }, "spec": { "type": "Inspect", "host": { "name": "h" } },
            "status": {
                "phase": "Running", "progress": "0/2", "bmcCalls": 7, "startTime": "2026-03-01T11:02:00Z",
                "steps": [
                    { "name": "boot-agent", "phase": "Running", "startTime": "2026-03-01T11:03:00Z", "attempt": 2, "message": "it \u{1b}[2Jboots" },
                    { "name": "collect-inventory" },
                ],
            },
        }))
        .unwrap();
        let now: Timestamp = "2026-03-01T11:20:00Z".parse().unwrap();
        let said = text(&host, &[operation], None, &Beside::default(), now);
        for words in [
            "18 min 0 s since 2026-03-01T11:02:00Z, after 2 min 0 s in the queue: medium and agent's boot 17 min 0 s, not known 1 min 0 s (",
            "boot-agent Running, 17 min 0 s, attempt 2: it [2Jboots",
            "Waits for   the end of its pause (somebody; annotation baremetalhost.metal3.io/paused)",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains('\u{1b}'));
    }

    #[test]
    fn a_ticket_names_the_part_and_there_is_none_without_one() {
        let said = ticket(&host(), Some(&diagnosis()), Timestamp::UNIX_EPOCH);
        for words in [
            "At the rack   metamorph host locate -n n h --on ",
            "Part          Memory DIMM A1",
            "PN-7",
            "SN-9",
            "Evidence      Memory DIMM A1: Health Critical",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(ticket(&host(), None, Timestamp::UNIX_EPOCH).starts_with("No part"));
    }

    #[test]
    fn a_diagnosis_of_an_earlier_error_is_no_cause_of_this_one_and_no_ticket() {
        let now: Timestamp = "2026-03-01T11:20:00Z".parse().unwrap();
        let (mut another, mut healthy) = (host(), host());
        another.status.as_mut().unwrap().error_type = Some(api::metal3::ErrorType::Registration);
        let status = healthy.status.as_mut().unwrap();
        (status.error_type, status.error_message) = (None, String::new());
        for host in [another, healthy] {
            let said = text(&host, &[], Some(&diagnosis()), &Beside::default(), now);
            assert!(!said.contains("Next        Hardware"), "{said}");
            let ticket = ticket(&host, Some(&diagnosis()), now);
            assert!(ticket.contains("of an earlier state") && !ticket.contains("SN-9"), "{ticket}");
        }
    }

    #[test]
    fn a_fault_of_a_healthy_looking_host_is_what_is_next_as_long_as_it_lasts() {
        let now: Timestamp = "2026-03-01T11:20:00Z".parse().unwrap();
        let mut found = diagnosis();
        let status = found.status.as_mut().unwrap();
        (status.error_type, status.trigger) = (None, "Fault".to_owned());
        let with = |healthy: &str| -> BareMetalHost {
            serde_json::from_value(json!({
                "metadata": { "name": "h", "namespace": "n", "uid": "u" },
                "status": { "errorMessage": "", "errorCount": 0, "operationalStatus": "OK", "poweredOn": true, "provisioning": { "state": "provisioned", "ID": "x" },
                    "conditions": [{ "type": "Healthy", "status": healthy, "reason": "x", "message": "y", "lastTransitionTime": "2026-03-01T11:00:00Z" }] },
            }))
            .unwrap()
        };
        let said = text(&with("False"), &[], Some(&found), &Beside::default(), now);
        assert!(said.contains("Next        Hardware: replace Memory DIMM A1"), "{said}");
        assert!(said.contains("the BMC is read for 1 min 30 s at most, with 40 calls"), "{said}");
        let said = text(&with("True"), &[], Some(&found), &Beside::default(), now);
        assert!(said.contains("Next        nothing: the host shows no error"), "{said}");
    }

    #[tokio::test]
    async fn whoever_may_not_read_a_kind_is_told_which_right_is_missing_and_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let server = crate::server::open_api(folder.path()).await.unwrap();
        for definition in api::crds::all().unwrap() {
            server.apply_crd_yaml(&definition).await.unwrap();
        }
        let client = client::of_served(&server);
        let create = async |kind: &str, path: &str, body: serde_json::Value| {
            let body = body.to_string().into_bytes();
            let request = axum::http::Request::post(path).header("content-type", "application/json").body(body);
            client
                .request::<serde_json::Value>(request.unwrap())
                .await
                .unwrap_or_else(|error| panic!("{kind}: {error}"));
        };
        let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": "h", "labels": { "error-detect": "yes" } }, "spec": { "online": true } });
        create("host", "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts", host).await;
        let role = json!({ "metadata": { "name": "hosts" },
            "rules": [{ "apiGroups": ["metal3.io"], "resources": ["baremetalhosts"], "verbs": ["get", "list"] }] });
        create("role", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
        let binding = json!({ "metadata": { "name": "hosts" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "hosts" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody" }] });
        create("binding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        let somebody = kube::Client::new(server.caller(apiserver::Identity::user("somebody", &[])), "default");
        let (said, ticket) = explained(&somebody, "default", "h").await.unwrap();
        for words in [
            "Diagnosis   not read: you have no right to: it needs the verb get on hostdiagnoses.metamorph.metal3.io in the namespace default",
            "Operation   not read: you have no right to: it needs the verb list on hostoperations.metamorph.metal3.io in the namespace default",
            "Warning     of the host, the label error-detect: \"yes\" counts as not set",
            "it needs the verb get on namespaces for default",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(ticket.contains("is not read: you have no right"), "{ticket}");
        let (said, _) = explained(&client, "default", "h").await.unwrap();
        assert!(said.contains("Diagnosis   none was made") && !said.contains("not read"), "{said}");
        let text = crate::host_causes::collected(&somebody, Some("default")).await.unwrap();
        assert!(
            text.contains("HostDiagnoses are not read: you have no right to: it needs the verb list on hostdiagnoses"),
            "{text}"
        );
        server.shutdown().await;
    }
}
