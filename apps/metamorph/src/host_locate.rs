//! `host locate`: has the light of a server switched by which it is found at its rack. It creates a HostOperation with the caller's rights, and waits for what comes of it: the
//! server that looks after the host calls the BMC, nothing here does.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::metal3::BareMetalHost;
use api::metamorph::{HostOperation, HostOperationStatus, LocateOptions, OperationPhase, OperationType};
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use terms::clean;

use crate::report_args::HostLocate;
use crate::{client, host_request, say, stop};

/// Longest text of a status that is shown, characters.
const MAX_TEXT: usize = 1100;

/// Asks, waits, and prints what was done.
pub async fn run(options: HostLocate) -> anyhow::Result<()> {
    let client = client::connect(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let (name, lit) = (options.name.as_str(), options.on);
    let requests: Api<HostOperation> = Api::namespaced(client.clone(), &namespace);
    let request = request(name, uid(&client, &namespace, name).await?, lit);
    let made = requests.create(&PostParams::default(), &request).await;
    let made = made.with_context(|| format!("create a HostOperation for the host \"{name}\""))?.name_any();
    // One that is deleted has ended, too.
    let has_ended = |request: Option<&HostOperation>| request.is_none_or(|request| phase(request).is_final());
    let within = Duration::from_secs(options.timeout);
    let ended = tokio::select! {
        ended = tokio::time::timeout(within, await_condition(requests.clone(), &made, has_ended)) => ended,
        signal = stop::stop_signal() => {
            signal?;
            return Err(anyhow!("stopped: {}", left(&made, &namespace)));
        }
    };
    let Ok(ended) = ended else {
        let now = requests.get_opt(&made).await.with_context(|| format!("read the HostOperation {made}"))?;
        return Err(anyhow!("{}; {}", standing(now.as_ref(), options.timeout), left(&made, &namespace)));
    };
    let ended = ended.with_context(|| format!("wait for the HostOperation {made}: {}", left(&made, &namespace)))?;
    let Some(ended) = ended else { return Err(anyhow!("{}", standing(None, options.timeout))) };
    let status = ended.status.unwrap_or_default();
    say::out(&format!("{}: {}\n", clean(name, MAX_TEXT), done(&status)?))
}

/// uid of the host, so that one of the same name that is made later is not meant.
async fn uid(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<String>> {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), namespace);
    let found = host_request::uid_of(&hosts, name).await.with_context(|| format!("read the host \"{name}\""))?;
    let missing = || {
        anyhow!(
            "there is no host \"{name}\" in namespace \"{namespace}\": \"metamorph host list\" shows those that there are"
        )
    };
    found.ok_or_else(missing).map(Some)
}

fn request(name: &str, uid: Option<String>, lit: bool) -> HostOperation {
    let mut request = host_request::new(name, uid, OperationType::Locate, "locate");
    request.spec.locate = Some(LocateOptions { lit });
    request
}

fn phase(request: &HostOperation) -> OperationPhase {
    request.status.as_ref().map(|status| status.phase).unwrap_or_default()
}

/// What was done.
///
/// # Errors
/// If it was not, why, and what to do.
fn done(status: &HostOperationStatus) -> anyhow::Result<String> {
    let message = clean(status.message.as_deref().unwrap_or_default(), MAX_TEXT);
    if status.phase == OperationPhase::Succeeded {
        return Ok(message);
    }
    let error = status.error.clone().unwrap_or_default();
    let advice = error.advice.map(|advice| format!(" — {}", clean(&advice, MAX_TEXT))).unwrap_or_default();
    Err(anyhow!("the light was not switched ({}): {message}{advice}", clean(&error.cause, MAX_TEXT)))
}

/// How a request stands that has not ended in time.
fn standing(request: Option<&HostOperation>, seconds: u64) -> String {
    match request.map(|request| (phase(request), request.status.as_ref().and_then(|status| status.message.clone()))) {
        None => "the request was deleted before it was done".to_owned(),
        Some((OperationPhase::Pending, _)) => {
            format!(
                "nobody has seen to the request within {seconds} s: does a server run that looks after this host? \"metamorph doctor\" tells"
            )
        }
        Some((_, message)) => {
            let message = message.map(|message| format!(": {}", clean(&message, MAX_TEXT))).unwrap_or_default();
            format!("it is not done within {seconds} s{message}")
        }
    }
}

/// What remains of a request that is not waited for any more.
fn left(request: &str, namespace: &str) -> String {
    format!(
        "it may be done for an hour yet: \"kubectl -n {namespace} get hostoperation {request}\" shows it, deleting it withdraws it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn a_request_names_the_host_that_was_read_and_says_whether_the_light_is_to_be_lit() {
        let long = "n".repeat(240);
        let made = request(&long, Some("u-1".to_owned()), true);
        assert_eq!(made.metadata.generate_name.as_deref().map(str::len), Some(200 + "-locate-".len()));
        let spec = serde_json::to_value(&made.spec).unwrap();
        assert_eq!(
            spec,
            json!({ "type": "Locate", "host": { "name": long, "uid": "u-1" }, "locate": { "lit": true } })
        );
        assert_eq!(request("n", None, false).spec.locate.map(|locate| locate.lit), Some(false));
    }

    #[test]
    fn what_was_done_is_printed_and_a_refusal_is_an_error_with_its_advice() {
        let status = |value: serde_json::Value| serde_json::from_value::<HostOperationStatus>(value).unwrap();
        let well = status(json!({ "phase": "Succeeded", "bmcCalls": 0, "message": "the light is on\u{1b}[2J" }));
        assert_eq!(done(&well).unwrap(), "the light is on [2J");
        let error = json!({ "cause": "NotServed", "message": "m", "advice": "look at the BMC" });
        let refused = status(json!({ "phase": "Failed", "bmcCalls": 0, "message": "it has none", "error": error }));
        let text = done(&refused).unwrap_err().to_string();
        assert_eq!(text, "the light was not switched (NotServed): it has none — look at the BMC");
    }

    #[test]
    fn a_request_that_has_not_ended_in_time_is_told_as_it_stands() {
        let mut made = request("n", None, true);
        assert!(standing(None, 5).contains("deleted"));
        assert!(standing(Some(&made), 5).contains("nobody has seen to the request within 5 s"));
        let running = json!({ "phase": "Running", "bmcCalls": 0, "message": "the BMC of the host n is busy" });
        made.status = Some(serde_json::from_value(running).unwrap());
        assert_eq!(standing(Some(&made), 5), "it is not done within 5 s: the BMC of the host n is busy");
    }
}
