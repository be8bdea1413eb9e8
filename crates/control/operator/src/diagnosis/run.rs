//! One diagnosis: what the host's provisioner has read is judged, and written down.

use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalHost, annotation, detection_fault, label};
use api::metamorph::{HostDiagnosis, HostDiagnosisSpec, HostOperation, HostReference, UnreadSource};
use diagnosis::{Evidence, FailureFacts, FailureType, Reading, TestMedium, Unread};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt as _};
use provisioner::{Answer, Call, EvidenceBudget, Verdict};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::report;
use crate::error_cause::without_cause;
use crate::events::Said;
use crate::host::asked::{Asked, asked_of};
use crate::host::cause;
use crate::host::failing::{error_type, failure_of, since};
use crate::host::{Context, LookError, host_label};

/// Pause before a host is asked again that was busy.
const BUSY: Duration = Duration::from_secs(15);
/// How often it is asked again; then another look follows.
const TRIES: usize = 8;
/// How often what was read is written when others write to the object at the same time.
const WRITES: usize = 3;

/// Why a host is diagnosed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// It shows an error.
    Error,
    /// A state takes longer than its budget.
    TimeBudget,
    /// Its machine has a fault, and the host none.
    Fault,
    /// Somebody asks.
    Request,
}

impl Trigger {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::TimeBudget => "TimeBudget",
            Self::Fault => "Fault",
            Self::Request => "Request",
        }
    }
}

/// What has become of a diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Diagnosed {
    /// It was made: its first cause in a line, or that there is none.
    Found(String),
    /// The host's BMC is busy; a sentence.
    Busy(String),
    /// The host is gone.
    Gone,
    /// Its HostDiagnosis cannot be written; why, a sentence. The BMC is not read for nothing.
    Unwritable(String),
}

/// What the host itself is to carry: of each, `None` leaves it, and `Some(None)` removes it.
pub(super) struct Mark<'a> {
    pub kind: Option<Option<&'a str>>,
    pub summary: Option<Option<String>>,
}

/// Identity of the host's error: its type, its words, and since when; of a host without an error, its state, since when it is in it, and the fault of its machine.
pub(super) fn digest(host: &BareMetalHost) -> String {
    let status = host.status.as_ref();
    let kind = error_type(host).map(|kind| kind.as_str()).unwrap_or_default();
    let message = status.map(|status| without_cause(&status.error_message)).unwrap_or_default();
    let since = if kind.is_empty() { host_lifecycle::spent(host).map(|(since, _)| since) } else { since(host) };
    let mut text = format!("{}\n{kind}\n{message}\n{since:?}", host.state().as_str());
    if kind.is_empty()
        && let Some((since, reason)) = super::fault(host)
    {
        text = format!("{text}\n{since} {reason}");
    }
    hex::encode(Sha256::digest(text).get(..12).unwrap_or_default())
}

/// What the host says of its failure, with the contract's cause, which stands in the host's newest HostOperation that failed. Calls that are no operation, as to
/// register it, have none: their cause is known as long as this process has made the last one.
async fn failure(context: &Context, host: &BareMetalHost) -> Result<FailureFacts, LookError> {
    let told = failure_of(host);
    let api: Api<HostOperation> = Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default());
    let selector = format!("{}={}", label::HOST, host_label(&host.name_any()));
    let listed = api.list(&ListParams::default().labels(&selector)).await;
    let operations = listed.map_err(LookError::of("list the host's operations"))?.items;
    let is_own = |operation: &HostOperation| operation.spec.host.uid.is_none() || operation.spec.host.uid == host.uid();
    let own = operations.into_iter().filter(is_own);
    let newest = own.max_by_key(|operation| operation.creation_timestamp().map(|time| time.0));
    let error = newest.filter(|_| told.kind != FailureType::None).and_then(|newest| newest.status?.error);
    // The newest operation may be of long ago, and have failed for another reason than the host shows now.
    let error = error.filter(|error| !error.message.is_empty() && told.message.contains(&error.message));
    let last = || {
        context.rests.cause_of(&host.uid().unwrap_or_default(), &told.message).map(|cause| cause.as_str().to_owned())
    };
    let cause = error.map(|error| error.cause).or_else(|| last().filter(|_| told.kind != FailureType::None));
    Ok(FailureFacts { cause, ..told })
}

/// Evidence where the machine was not read.
fn unread(context: &Context, access: Reading<diagnosis::Access>) -> Evidence {
    let why = access.unread().unwrap_or_default();
    let skipped = vec![Unread { what: "the machine and its BMC".to_owned(), why }];
    Evidence { taken: Some(context.settings.clock.now()), access, skipped, ..Evidence::default() }
}

/// Diagnoses the host, and writes down what was found; `tested` is how a test of what its BMC can read has ended, if there was one.
///
/// # Errors
/// When the Kubernetes API fails, the host has changed, or another process acts.
pub(crate) async fn diagnose(
    context: &Context,
    host: &BareMetalHost,
    trigger: Trigger,
    tested: Option<TestMedium>,
) -> Result<Diagnosed, LookError> {
    let started = context.settings.clock.now();
    // Before anything is read: a BMC is not called for what nobody can be told.
    if let Err(why) = object(context, host).await? {
        return Ok(Diagnosed::Unwritable(why));
    }
    let facts = failure(context, host).await?;
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let uid = host.uid();
    let budget = EvidenceBudget::default();
    let mut tries = 0;
    let evidence = loop {
        let asked = {
            // Whoever waits here keeps no BMC from anybody.
            let _place = context.diagnoses.acquire().await;
            let call = Call::Diagnose(budget);
            asked_of(context, (&namespace, &name, uid.as_deref()), |served| served.diagnose, call).await?
        };
        break match asked {
            Asked::NoHost => return Ok(Diagnosed::Gone),
            Asked::Answered(Verdict::Done(Answer::Evidence(evidence))) => *evidence,
            Asked::Answered(Verdict::Done(_)) => {
                unread(context, Reading::Failed("the provisioner answers what was not asked".to_owned()))
            }
            Asked::Detached => {
                unread(context, Reading::Skipped("the host is detached: its BMC is not called".to_owned()))
            }
            Asked::Unserved => {
                unread(context, Reading::NotAvailable("the host's provisioner gives no evidence".to_owned()))
            }
            Asked::NotYet(why) | Asked::Unregistered(why) => unread(context, Reading::Skipped(why)),
            Asked::Failed(failure) => unread(context, Reading::Failed(failure.text())),
            Asked::Busy(why) if tries >= TRIES => return Ok(Diagnosed::Busy(why)),
            Asked::Answered(_) if tries >= TRIES => {
                return Ok(Diagnosed::Busy("the host's provisioner has no answer yet".to_owned()));
            }
            Asked::Busy(_) | Asked::Answered(_) => {
                tries += 1;
                tokio::time::sleep(BUSY).await;
                continue;
            }
        };
    };
    let mut evidence = Evidence { failure: Some(facts), ..evidence };
    if let Some(tested) = tested {
        evidence.ours.test = Reading::Read(tested);
    }
    let verdict = diagnosis::diagnose(&evidence);
    let line = verdict.line();
    // Somebody may have acknowledged a cause meanwhile: what was read is written to the newer object.
    for _ in 0..WRITES {
        match write(context, host, (trigger, started), &verdict).await {
            Err(LookError::Moved) => {}
            Err(LookError::Api { attempt, source }) if is_refusal(&source) => {
                return Ok(Diagnosed::Unwritable(format!("{attempt} (Kubernetes API): {source}")));
            }
            other => return other.map(|why| why.map_or(Diagnosed::Found(line), Diagnosed::Unwritable)),
        }
    }
    Err(LookError::Moved)
}

/// Whether the API will say the same again.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400..=499) && !matches!(status.code, 408 | 409 | 429))
}

/// The host's HostDiagnosis, made if there is none; or why there can be none.
async fn object(context: &Context, host: &BareMetalHost) -> Result<Result<HostDiagnosis, String>, LookError> {
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let api: Api<HostDiagnosis> = Api::namespaced(context.client.clone(), &namespace);
    let refused = |what: &str, error: &kube::Error| {
        format!(
            "{what} the HostDiagnosis {name} (Kubernetes API): {error}; are the definitions of this version applied (metamorph crds), and its rights?"
        )
    };
    match api.get_opt(&name).await {
        // A host of this name that is gone has left it. Kubernetes removes it if it names that host as its owner.
        Ok(Some(read)) if read.spec.host.uid.is_some() && read.spec.host.uid != host.uid() => Ok(Err(format!(
            "the HostDiagnosis {name} is about another host of that name (spec.host.uid): delete it if nobody needs it"
        ))),
        Ok(Some(read)) => Ok(Ok(read)),
        Ok(None) => match api.create(&PostParams::default(), &new(host)).await {
            Ok(made) => Ok(Ok(made)),
            Err(error) if is_refusal(&error) => Ok(Err(refused("create", &error))),
            Err(error) => Err(LookError::of("create the HostDiagnosis")(error)),
        },
        Err(error) if is_refusal(&error) => Ok(Err(refused("read", &error))),
        Err(error) => Err(LookError::of("read the HostDiagnosis")(error)),
    }
}

/// Writes it down, or says why that cannot be done.
async fn write(
    context: &Context,
    host: &BareMetalHost,
    (trigger, started): (Trigger, Timestamp),
    verdict: &diagnosis::Verdict,
) -> Result<Option<String>, LookError> {
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    let api: Api<HostDiagnosis> = Api::namespaced(context.client.clone(), &namespace);
    let object = match object(context, host).await? {
        Ok(object) => object,
        Err(why) => return Ok(Some(why)),
    };
    let now = context.settings.clock.now();
    let before = object.status.clone().unwrap_or_default();
    let mut status = report::status(verdict, &before, &object.spec, now);
    if let Some(why) = detection_fault(host.metadata.labels.as_ref()) {
        // There are no more rows than the definition has room for.
        status.not_read.truncate(diagnosis::MAX_SOURCES - 1);
        let what = "what the host's own label says of diagnoses".to_owned();
        status.not_read.push(UnreadSource { what, why });
    }
    status.trigger = trigger.as_str().to_owned();
    status.error_type = error_type(host).map(|kind| kind.as_str().to_owned());
    status.error_digest = digest(host);
    status.start_time = Some(whole(started));
    status.finish_time = Some(whole(now));
    let known = status.causes.first().is_some_and(|first| first.acknowledged_until.is_some());
    let summary = report::summary(&status, &name, &cause::of_error(host));
    let note = status.message.clone();
    let object = HostDiagnosis { status: Some(status), ..object };
    let written = api.replace_status(&name, &PostParams::default(), &object).await;
    match written {
        Ok(_) => {}
        // Somebody has written to it meanwhile.
        Err(kube::Error::Api(status)) if status.code == 409 => return Err(LookError::Moved),
        // The BMC has been read for it, and is not read again at once.
        Err(error) => {
            return Ok(Some(format!("write the status of the HostDiagnosis {name} (Kubernetes API): {error}")));
        }
    }
    if error_type(host).is_some() || trigger == Trigger::Fault {
        mark(context, host, &Mark { kind: None, summary: Some(Some(summary)) }).await?;
    }
    if !known {
        let found = verdict.first().is_some();
        let reason = if found { "CauseFound" } else { "NoCauseFound" };
        let said = Said { reason: reason.to_owned(), note, warning: found };
        if let Err(error) = context.recorder.publish(&said, &host.object_ref(&())).await {
            tracing::warn!(host = %name, reason, %error, "publish an Event");
        }
    }
    Ok(None)
}

/// Tells the host again what its HostDiagnosis says of this very error: it had recovered for as long as it was tried again.
pub(super) async fn tell_again(context: &Context, host: &BareMetalHost, digest: &str) -> Result<(), LookError> {
    if error_type(host).is_none() || host.annotation(annotation::DIAGNOSIS).is_some() {
        return Ok(());
    }
    let name = host.name_any();
    let api: Api<HostDiagnosis> = Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default());
    let read = api.get_opt(&name).await.map_err(LookError::of("read the HostDiagnosis"))?;
    let status = read.filter(|read| read.spec.host.uid == host.uid()).and_then(|read| read.status);
    let Some(status) = status.filter(|status| status.error_digest == digest) else { return Ok(()) };
    let summary = report::summary(&status, &name, &cause::of_error(host));
    mark(context, host, &Mark { kind: None, summary: Some(Some(summary)) }).await
}

/// A time as objects hold it, of whole seconds.
fn whole(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn new(host: &BareMetalHost) -> HostDiagnosis {
    let spec =
        HostDiagnosisSpec { host: HostReference { name: host.name_any(), uid: host.uid() }, acknowledged: Vec::new() };
    let mut new = HostDiagnosis::new(&host.name_any(), spec);
    new.metadata.namespace = host.namespace();
    new.metadata.owner_references = Some(vec![OwnerReference {
        api_version: BareMetalHost::api_version(&()).into_owned(),
        kind: BareMetalHost::kind(&()).into_owned(),
        name: host.name_any(),
        uid: host.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    new
}

/// Writes the host's label and annotation: keys that nobody else writes, so that any version of this very host will do.
pub(super) async fn mark(context: &Context, host: &BareMetalHost, mark: &Mark<'_>) -> Result<(), LookError> {
    let mut change = json!({ "metadata": { "uid": host.uid() } });
    let mut put = |field: &str, key: &str, value: Value| {
        if let Some(fields) = change.pointer_mut("/metadata").and_then(Value::as_object_mut) {
            fields.insert(field.to_owned(), json!({ key: value }));
        }
    };
    if let Some(kind) = mark.kind {
        put("labels", label::ERROR_TYPE, json!(kind));
    }
    if let Some(summary) = &mark.summary {
        put("annotations", annotation::DIAGNOSIS, json!(summary));
    }
    let api: Api<BareMetalHost> = Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default());
    let (name, params) = (host.name_any(), PatchParams::default());
    let call = async { api.patch(&name, &params, &Patch::Merge(change)).await };
    let written = context.hosts.writing(&ObjectRef::from_obj(host), call).await;
    written.map(|_| ()).map_err(LookError::of("write the host's label and annotation"))
}
