//! What the host's BMC itself can read, which no other place can tell: the server is asked for it by a HostOperation, and its end is a line of the report.
//!
//! This is the one thing that a doctor writes, and only where it is asked for.

use std::time::Duration;

use api::metal3::BareMetalHost;
use api::metamorph::{
    DiagnoseOptions, HostOperation, HostOperationStatus, OperationPhase, OperationType, TestMediumResult,
};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use terms::clean;
use tokio::time::{Instant, sleep, timeout};

use super::report::{Report, View};
use crate::{host_request, probe, say, stop};

/// How long it is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How soon it is looked at again.
    every: Duration,
    /// How long a server may take to take it; then it is taken back, so that nothing is done at a later time.
    taken_within: Duration,
    /// How long it may take: a BMC may take ten minutes to say that it has put a medium in.
    longest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (every, taken_within) = (Duration::from_secs(2), Duration::from_secs(60));
        Self { every, taken_within, longest: Duration::from_secs(15 * 60) }
    }
}

/// Longest text of others, characters.
const MAX_TEXT: usize = 500;
/// What to do where the BMC does not read.
const LOOK: &str = "see whether the BMC's network reaches that address and port, and whether --media-host or --media-url names what it reaches";

/// Asks for it, waits for its end and says what was found.
pub async fn of_host(report: &mut Report, client: &Client, namespace: &str, name: &str, allow_in_use: bool) {
    let what = format!("test medium of {namespace}/{name}");
    let requests: Api<HostOperation> = Api::namespaced(client.clone(), namespace);
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
    let uid = match timeout(probe::LONGEST, host_request::uid_of(&hosts, name)).await {
        Ok(Ok(Some(uid))) => uid,
        Ok(Ok(None)) => return report.skip(View::Bmc, &what, "there is no such host"),
        _ => return report.skip(View::Bmc, &what, "the host cannot be read"),
    };
    let made = match made(&requests, (name, uid), allow_in_use).await {
        Ok(made) => made,
        Err(why) => return report.skip(View::Bmc, &what, &why),
    };
    let stopped = tokio::select! {
        () = followed(report, &what, &requests, &made, Patience::default()) => false,
        _ = stop::stop_signal() => true,
    };
    if stopped {
        let text = format!("stopped{}", taken_back(&requests, &made).await);
        report.skip(View::Bmc, &what, &text);
    }
}

/// Waits for its end, and says what was found. What is waited for is told beside the report.
async fn followed(
    report: &mut Report,
    what: &str,
    requests: &Api<HostOperation>,
    made: &HostOperation,
    patience: Patience,
) {
    let asked = made.name_any();
    let started = Instant::now();
    let mut is_taken = false;
    let mut told = String::new();
    loop {
        let waits = match timeout(probe::LONGEST, requests.get_opt(&asked)).await {
            Ok(Ok(Some(read))) if read.uid() == made.uid() => {
                let status = read.status.unwrap_or_default();
                if status.phase.is_final() {
                    return ended(report, what, &asked, &status);
                }
                is_taken |= status.phase == OperationPhase::Running;
                if is_taken {
                    clean(status.message.as_deref().unwrap_or_default(), MAX_TEXT)
                } else {
                    format!("waiting for a server to take the HostOperation {asked}")
                }
            }
            Ok(Ok(_)) => {
                return report.skip(View::Bmc, what, &format!("somebody has deleted the HostOperation {asked}"));
            }
            Ok(Err(kube::Error::Api(refused))) if refused.code == 403 => {
                let text = "you have no right to read hostoperations.metamorph.metal3.io, and cannot see how it ends";
                return report.skip(View::Bmc, what, &format!("{text}{}", taken_back(requests, made).await));
            }
            // What cannot be read now may be soon.
            Ok(Err(_)) | Err(_) => "the Kubernetes API does not answer".to_owned(),
        };
        if waits != told {
            say::note(&format!("{what}: {waits}"));
            told = waits;
        }
        if !is_taken && started.elapsed() >= patience.taken_within {
            let taken_back = taken_back(requests, made).await;
            let seconds = patience.taken_within.as_secs();
            let text = format!("no server has taken the HostOperation {asked} within {seconds} s{taken_back}");
            return report.skip(View::Bmc, what, &text);
        }
        if started.elapsed() >= patience.longest {
            let text = format!("no end within {} minutes: {told}", patience.longest.as_secs() / 60);
            return report.warn(View::Bmc, what, &text, &format!("the HostOperation {asked} tells how it goes on"));
        }
        sleep(patience.every).await;
    }
}

/// The HostOperation, made; or why there is none.
async fn made(
    requests: &Api<HostOperation>,
    (name, uid): (&str, String),
    allow_in_use: bool,
) -> Result<HostOperation, String> {
    let mut request = host_request::new(name, Some(uid), OperationType::Diagnose, "doctor");
    request.spec.diagnose = Some(DiagnoseOptions { test_medium: true, allow_in_use });
    match timeout(probe::LONGEST, requests.create(&PostParams::default(), &request)).await {
        Ok(Ok(made)) if made.spec.diagnose == request.spec.diagnose => Ok(made),
        Ok(Ok(made)) => {
            let taken_back = taken_back(requests, &made).await;
            Err(format!(
                "the definition of HostOperations there knows no test medium: apply that of this version (metamorph crds){taken_back}"
            ))
        }
        Ok(Err(kube::Error::Api(refused))) if refused.code == 403 => {
            Err("you have no right to create hostoperations.metamorph.metal3.io".to_owned())
        }
        Ok(Err(error)) => Err(clean(&format!("a HostOperation cannot be created: {error}"), MAX_TEXT)),
        Err(_) => Err(format!("no answer to a new HostOperation within {} s", probe::LONGEST.as_secs())),
    }
}

/// Deletes it, and says so.
async fn taken_back(requests: &Api<HostOperation>, made: &HostOperation) -> String {
    let own = Preconditions { uid: made.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(own), ..DeleteParams::default() };
    match timeout(probe::LONGEST, requests.delete(&made.name_any(), &params)).await {
        Ok(Ok(_)) => "; it was deleted again".to_owned(),
        _ => format!("; the HostOperation {} is still there: delete it", made.name_any()),
    }
}

/// How it ended.
fn ended(report: &mut Report, what: &str, asked: &str, status: &HostOperationStatus) {
    let said = clean(status.message.as_deref().unwrap_or("without a word"), MAX_TEXT);
    let next = status.error.as_ref().and_then(|error| error.advice.as_deref());
    let next = clean(next.unwrap_or("see the HostOperation"), MAX_TEXT);
    match (status.phase, status.test_medium.as_ref()) {
        (OperationPhase::Succeeded, Some(test)) => match test.result {
            TestMediumResult::Read => report.ok(View::Bmc, what, &said),
            TestMediumResult::NotRead => report.warn(View::Bmc, what, &said, LOOK),
            TestMediumResult::Refused if test.requests == 0 => report.fail(View::Bmc, what, &said, LOOK),
            TestMediumResult::Refused => report.warn(View::Bmc, what, &said, "see the BMC's own words"),
            TestMediumResult::Interrupted => report.skip(View::Bmc, what, &said),
        },
        (OperationPhase::Succeeded, None) => {
            report.skip(View::Bmc, what, "the server knows no test medium: it is of an earlier version");
        }
        _ => match status.error.as_ref().map(|error| error.cause.as_str()) {
            // It was not made, for a reason that is no fault.
            Some("NotNow" | "NotServed" | "HostNotFound" | "HostGone" | "Expired" | "ClocksDiffer") => {
                report.skip(View::Bmc, what, &format!("{said} — {next}"));
            }
            _ => report.warn(View::Bmc, what, &format!("it was not made: {said} (HostOperation {asked})"), &next),
        },
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    use super::*;
    use crate::{client, server};

    #[tokio::test]
    async fn the_servers_answer_is_a_line_of_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let server = server::open_api(folder.path()).await.unwrap();
        for definition in ::api::crds::all().unwrap() {
            server.apply_crd_yaml(&definition).await.unwrap();
        }
        let client = client::of_served(&server);
        let hosts = Api::<BareMetalHost>::default_namespaced(client.clone());
        let host = json!({ "metadata": { "name": "h" }, "spec": { "online": true } });
        let host = hosts.create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
        let uid = || host.uid().unwrap();
        let requests: Api<HostOperation> = Api::default_namespaced(client.clone());
        let rows = [
            (
                "Succeeded",
                json!({ "testMedium": { "result": "Read", "from": "192.0.2.7", "requests": 2, "bytes": 9 } }),
                "ok      ",
            ),
            ("Succeeded", json!({ "testMedium": { "result": "NotRead" } }), "warning "),
            ("Succeeded", json!({ "testMedium": { "result": "Refused" } }), "failed  "),
            ("Succeeded", json!({ "testMedium": { "result": "Refused", "requests": 1 } }), "warning "),
            ("Succeeded", json!({}), "skipped "),
            ("Failed", json!({ "error": { "cause": "NotNow", "message": "m", "advice": "later" } }), "skipped "),
            ("Failed", json!({ "error": { "cause": "BmcUnreachable", "message": "m" } }), "warning "),
        ];
        for (phase, mut status, level) in rows {
            (status["phase"], status["message"]) = (json!(phase), json!("what the server says"));
            let asked = made(&requests, ("h", uid()), true).await.unwrap();
            let change = Patch::Merge(json!({ "status": status }));
            requests.patch_status(&asked.name_any(), &PatchParams::default(), &change).await.unwrap();
            let mut report = Report::default();
            followed(&mut report, "test medium", &requests, &asked, Patience::default()).await;
            let text = report.text();
            assert!(text.starts_with(level) && text.contains("test medium: "), "{level}: {text}");
            assert_eq!(report.failed(), level == "failed  ", "{text}");
            let spec = &asked.spec;
            assert_eq!((spec.operation, spec.host.name.as_str()), (OperationType::Diagnose, "h"));
            assert_eq!(spec.diagnose, Some(DiagnoseOptions { test_medium: true, allow_in_use: true }));
            requests.delete(&asked.name_any(), &DeleteParams::default()).await.unwrap();
        }
        let asked = made(&requests, ("h", uid()), false).await.unwrap();
        let mut report = Report::default();
        let patience = Patience { taken_within: Duration::ZERO, ..Patience::default() };
        followed(&mut report, "test medium", &requests, &asked, patience).await;
        let text = report.text();
        assert!(text.contains("no server has taken") && text.contains("it was deleted again"), "{text}");
        assert!(requests.get_opt(&asked.name_any()).await.unwrap().is_none(), "an old word takes no effect later");
        let change = Patch::Merge(json!({ "status": { "phase": "Running", "message": "waiting for the BMC" } }));
        let asked = made(&requests, ("h", uid()), false).await.unwrap();
        requests.patch_status(&asked.name_any(), &PatchParams::default(), &change).await.unwrap();
        let mut report = Report::default();
        let patience = Patience { longest: Duration::ZERO, ..Patience::default() };
        followed(&mut report, "test medium", &requests, &asked, patience).await;
        let text = report.text();
        assert!(text.starts_with("warning") && text.contains("waiting for the BMC"), "{text}");
        let nobody = Client::new(server.caller(apiserver::Identity::user("nobody", &[])), "default");
        let mut report = Report::default();
        of_host(&mut report, &nobody, "default", "h", false).await;
        assert!(report.text().contains("the host cannot be read"), "{}", report.text());
        let nobody: Api<HostOperation> = Api::default_namespaced(nobody);
        let why = made(&nobody, ("h", uid()), false).await.unwrap_err();
        assert!(why.contains("no right to create hostoperations"), "{why}");
        let asked = made(&requests, ("h", uid()), false).await.unwrap();
        let mut report = Report::default();
        followed(&mut report, "test medium", &nobody, &asked, Patience::default()).await;
        assert!(report.text().contains("no right to read hostoperations"), "{}", report.text());
        server.shutdown().await;
    }
}
