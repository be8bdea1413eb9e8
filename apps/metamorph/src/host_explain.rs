//! `host explain`: why a host is as it is, from its objects alone: BareMetalHost, HostOperations and HostDiagnosis. No machine is called.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::metal3::BareMetalHost;
use api::metamorph::{DiagnosedCause, HostDiagnosis, HostOperation, OperationPhase};
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use terms::is_printable;

use crate::cli::HostExplain;
use crate::{client, say};

/// Operations that are shown, the newest first.
const MOST_OPERATIONS: usize = 3;

/// Prints it.
pub async fn run(options: HostExplain) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
    let name = &options.name;
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), &namespace);
    let host = hosts.get_opt(name).await.context("read the host")?;
    let host = host.ok_or_else(|| anyhow!("there is no BareMetalHost {name} in the namespace {namespace}"))?;
    let diagnoses: Api<HostDiagnosis> = Api::namespaced(client.clone(), &namespace);
    let diagnosis = diagnoses.get_opt(name).await.context("read the host's HostDiagnosis")?;
    let diagnosis = diagnosis.filter(|diagnosis| diagnosis.spec.host.uid == host.uid());
    if options.rma {
        return say::out(&ticket(&host, diagnosis.as_ref()));
    }
    let operations: Api<HostOperation> = Api::namespaced(client, &namespace);
    let listed = operations.list(&ListParams::default()).await.context("list the operations")?.items;
    let mut of_host: Vec<HostOperation> =
        listed.into_iter().filter(|operation| operation.spec.host.name == *name).collect();
    of_host.sort_by_key(|operation| std::cmp::Reverse(operation.creation_timestamp().map(|time| time.0)));
    say::out(&text(&host, &of_host, diagnosis.as_ref(), Timestamp::now()))
}

/// What is printable, on lines of its own.
fn plain(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// The whole answer.
fn text(
    host: &BareMetalHost,
    operations: &[HostOperation],
    diagnosis: Option<&HostDiagnosis>,
    now: Timestamp,
) -> String {
    let mut out = String::new();
    let status = host.status.clone().unwrap_or_default();
    let _ = writeln!(out, "Host        {}/{}", host.namespace().unwrap_or_default(), host.name_any());
    let state = host.state();
    let _ = write!(out, "State       {}", if state.as_str().is_empty() { "none" } else { state.as_str() });
    if let Some((since, budget)) = host_lifecycle::spent(host) {
        let passed = Duration::try_from(now.duration_since(since).max(SignedDuration::ZERO)).unwrap_or_default();
        let left = match budget.checked_sub(passed) {
            Some(left) => format!("{} of its time are left", duration(left.as_secs())),
            None => format!("it takes longer than the {} that are given to it", duration(budget.as_secs())),
        };
        let _ = write!(out, " for {}; {left}", duration(passed.as_secs()));
    }
    out.push('\n');
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
    if let Some(waits) =
        status.conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status != "True")
    {
        let _ = writeln!(out, "Waits for   {}: {}", waits.reason, plain(&waits.message));
    }
    for operation in operations.iter().take(MOST_OPERATIONS) {
        one(&mut out, operation);
    }
    causes(&mut out, diagnosis);
    let _ = writeln!(out, "Next        {}", next(&status, operations, diagnosis));
    out
}

fn one(out: &mut String, operation: &HostOperation) {
    let status = operation.status.clone().unwrap_or_default();
    let _ = writeln!(
        out,
        "Operation   {}: {:?} {}, {} calls to the BMC",
        operation.name_any(),
        status.phase,
        status.progress.as_deref().unwrap_or_default(),
        status.bmc_calls
    );
    for step in &status.steps {
        let calls = step.bmc_calls.map(|calls| format!(", {calls} calls")).unwrap_or_default();
        let bytes = step.bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
        let said = step.error.as_ref().map(|error| &error.message).or(step.message.as_ref());
        let said = said.map(|said| format!(": {}", plain(said))).unwrap_or_default();
        let _ = writeln!(out, "            {} {:?}{calls}{bytes}{said}", step.name, step.phase);
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
    let _ = writeln!(
        out,
        "Diagnosis   {:?} at {when}, {} calls to the BMC, {} bytes",
        status.phase, status.bmc_calls, status.bytes
    );
    for cause in &status.causes {
        let background = if cause.background { ", in the background" } else { "" };
        let _ =
            writeln!(out, "  {} {}{}: {}{background}", cause.certainty, cause.code, part(cause), plain(&cause.meaning));
        let _ = writeln!(out, "      {} puts it right: {}", cause.fixer, plain(&cause.advice));
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
    status: &api::metal3::BareMetalHostStatus,
    operations: &[HostOperation],
    diagnosis: Option<&HostDiagnosis>,
) -> String {
    let found = diagnosis.and_then(|diagnosis| diagnosis.status.as_ref());
    let first = found.and_then(|found| found.causes.first()).filter(|cause| !cause.background);
    let running = operations
        .first()
        .and_then(|operation| operation.status.as_ref())
        .filter(|status| status.phase == OperationPhase::Running);
    match (status.error_type, first, running) {
        (Some(_), Some(first), _) => format!("{}: {}", first.fixer, plain(&first.advice)),
        (Some(_), None, _) if found.is_none() => {
            "create a HostOperation of the type Diagnose, or put the label error-detect=true on the host".to_owned()
        }
        (Some(_), None, _) => "see the machine's console; the diagnosis has found no cause".to_owned(),
        (None, _, Some(running)) => {
            format!("wait for the step {}", running.current_step.as_deref().unwrap_or("under way"))
        }
        (None, ..) => "nothing: the host shows no error".to_owned(),
    }
}

/// The text for whoever replaces parts.
fn ticket(host: &BareMetalHost, diagnosis: Option<&HostDiagnosis>) -> String {
    let mut out = String::new();
    let parts = diagnosis.and_then(|diagnosis| diagnosis.status.as_ref()).map(|status| {
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
    for cause in parts {
        let _ = writeln!(out, "\nFault         {} ({}, {})", plain(&cause.meaning), cause.code, cause.certainty);
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

    fn diagnosis() -> HostDiagnosis {
        serde_json::from_value(json!({
            "metadata": { "name": "h" }, "spec": { "host": { "name": "h", "uid": "u" } },
            "status": { "phase": "Found", "bmcCalls": 12, "causes": [{
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
        let said = text(&host(), &[], Some(&diagnosis()), now);
        for words in [
            "inspecting for 20 min 0 s; 40 min 0 s of its time are left",
            "inspection error (2 in a row)",
            "Certain MemoryFailed (Memory DIMM A1): A memory module has failed",
            "- Memory DIMM A1: Health Critical",
            "not read: logs (HTTP 500)",
            "Next        Hardware: replace Memory DIMM A1",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(!said.contains('\u{1b}'));
        let without = text(&host(), &[], None, now);
        assert!(without.contains("Diagnosis   none was made") && without.contains("type Diagnose"), "{without}");
    }

    #[test]
    fn a_ticket_names_the_part_and_there_is_none_without_one() {
        let said = ticket(&host(), Some(&diagnosis()));
        for words in ["Part          Memory DIMM A1", "PN-7", "SN-9", "Evidence      Memory DIMM A1: Health Critical"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        assert!(ticket(&host(), None).starts_with("No part"));
    }
}
