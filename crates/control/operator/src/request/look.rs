//! One look at a request: as far as it goes without waiting for the host.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, SecretReference, annotation};
use api::metamorph::{HostOperation, HostOperationStatus, OperationPhase, OperationType};
use host_lifecycle::{
    Collected, RequestStep, RequestView, asks_for_test, conclude_collection, decide_request, is_live, is_request,
    is_unasked, mark, named,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt as _};
use provisioner::{Answer, Call, Cause, LocateRequest, Verdict};
use serde_json::json;

use super::testing::{Tested, report, test_medium};
use super::{All, api};
use crate::diagnosis::{Diagnosed, NATIVE, Trigger, diagnose};
use crate::events::Said;
use crate::host::asked::{Asked, asked, asked_of};
use crate::host::freeze::frozen;
use crate::host::{LookError, ReconcileError, capabilities_of};

/// How soon a request that waits for its host is looked at again, in case no event tells of it.
const AGAIN: Duration = Duration::from_secs(60);
/// How soon a host is asked again that was busy.
const BUSY: Duration = Duration::from_secs(15);
/// How soon whether a BMC has read a test medium.
const TESTED: Duration = Duration::from_secs(3);
/// Most steps of one look: more would go round in circles.
const MOST_STEPS: usize = 6;

/// Looks at the request.
pub async fn look(seen: Arc<HostOperation>, all: Arc<All>) -> Result<Action, LookError> {
    if all.unreadable.hold(seen.as_ref()) || !is_request(&seen) {
        return Ok(Action::await_change());
    }
    let key = ObjectRef::<BareMetalHost>::new(&seen.spec.host.name).within(&seen.namespace().unwrap_or_default());
    let ended = seen.status.as_ref().is_some_and(|status| status.phase.is_final());
    let is_left = |host: &BareMetalHost| host.annotation(annotation::REQUEST).is_none();
    if ended && all.host.hosts.cached(&key).is_some_and(|host| host.is_none_or(|host| is_left(&host))) {
        return Ok(Action::await_change());
    }
    // A restarted server takes no word for new of which it has not seen the hosts.
    all.host.begin().await;
    let (namespace, name) = (seen.namespace().unwrap_or_default(), seen.name_any());
    let requests = api(&all, &namespace);
    let hosts: Api<BareMetalHost> = Api::namespaced(all.host.client.clone(), &namespace);
    for _ in 0..MOST_STEPS {
        if !(all.host.settings.may_act)() {
            return Err(ReconcileError::NotLeading.into());
        }
        let read = requests.get_opt(&name).await.map_err(LookError::of("read the HostOperation"))?;
        let Some(request) = read.filter(|request| request.uid() == seen.uid()) else {
            return Ok(Action::await_change());
        };
        if request.metadata.deletion_timestamp.is_some() || !is_request(&request) {
            return Ok(Action::await_change());
        }
        // What no object can be called is not asked for.
        let host = match named(&format!("{}/-", request.spec.host.name)) {
            None => None,
            Some((name, _)) => hosts.get_opt(name).await.map_err(LookError::of("read the host"))?,
        };
        let other = match request.spec.operation {
            operation if is_unasked(operation) => calls(&all, &request),
            _ => other(&requests, &request, host.as_ref()).await?,
        };
        let lacking = lacking(&all, &request, host.as_ref()).await?;
        let now = all.host.settings.clock.now();
        let unserved = unserved(&all, &request, host.as_ref()).await?;
        let (other, lacking, unserved) = (other.as_deref(), lacking.as_deref(), unserved.as_deref());
        let view = RequestView { request: &request, host: host.as_ref(), other, lacking, unserved, now };
        match decide_request(&view) {
            RequestStep::Nothing => {
                let open = request.status.as_ref().is_none_or(|status| !status.phase.is_final());
                return Ok(if open { Action::requeue(AGAIN) } else { Action::await_change() });
            }
            RequestStep::Take => take(&requests, &request).await?,
            RequestStep::Collect => {
                let pace = if asks_for_test(&request) { TESTED } else { BUSY };
                if let Err(left) = all.turns.take(request.uid().unwrap_or_default(), pace) {
                    return Ok(Action::requeue(left));
                }
                match collect(&all, &view).await? {
                    RequestStep::Status(status) => {
                        let is_final = status.phase.is_final();
                        put(&all, &requests, &request, *status).await?;
                        if !is_final {
                            return Ok(Action::requeue(pace));
                        }
                    }
                    _ => return Ok(Action::requeue(pace)),
                }
            }
            RequestStep::Status(status) => put(&all, &requests, &request, *status).await?,
            RequestStep::Annotate(annotations) => {
                let Some(host) = host else { return Err(LookError::Moved) };
                annotate(&all, &hosts, &host, &annotations).await?;
            }
        }
    }
    Ok(Action::requeue(AGAIN))
}

/// Another request for the like that has been taken: a BMC is not kept busy by many at once, and its light is not switched by two at once.
fn calls(all: &All, request: &HostOperation) -> Option<String> {
    let is_light = |operation| operation == OperationType::Locate;
    let others = all.shown.state().into_iter().filter(|other| {
        is_unasked(other.spec.operation)
            && is_light(other.spec.operation) == is_light(request.spec.operation)
            && other.namespace() == request.namespace()
            && other.spec.host.name == request.spec.host.name
            && other.uid() != request.uid()
            && other.metadata.deletion_timestamp.is_none()
            && other.status.as_ref().is_some_and(|status| status.phase == OperationPhase::Running)
    });
    others.map(|other| other.name_any()).next()
}

/// The request that the host's annotation names, if it is another one and alive.
async fn other(
    requests: &Api<HostOperation>,
    request: &HostOperation,
    host: Option<&BareMetalHost>,
) -> Result<Option<String>, LookError> {
    let value = host.and_then(|host| host.annotation(annotation::REQUEST));
    let Some((name, named)) = value.and_then(named).filter(|(_, named)| *named != mark(request)) else {
        return Ok(None);
    };
    let found = requests.get_opt(name).await;
    let found = found.map_err(LookError::of("read the HostOperation that the host's annotation names"))?;
    Ok(found.filter(|other| is_live(other) && mark(other) == named).map(|other| other.name_any()))
}

/// What a new rebuild would lack after the host's disks have been wiped: Secrets that its spec names. One that may not be read is not known to be missing.
async fn lacking(
    all: &All,
    request: &HostOperation,
    host: Option<&BareMetalHost>,
) -> Result<Option<String>, LookError> {
    let is_new = request.status.as_ref().is_none_or(|status| status.phase == OperationPhase::Pending);
    let Some(host) = host.filter(|_| is_new && request.spec.operation == OperationType::Rebuild) else {
        return Ok(None);
    };
    let spec = &host.spec;
    let own = host.namespace().unwrap_or_default();
    let named_by = |secret: &Option<SecretReference>| {
        let secret = secret.as_ref()?;
        Some((secret.name.clone()?, secret.namespace.clone().filter(|namespace| !namespace.is_empty())))
    };
    let plain = |name: Option<&String>| name.map(|name| (name.clone(), None));
    let pull = spec.image.as_ref().and_then(|image| image.oci_auth_secret_name.as_ref());
    let fields = [
        ("userData", named_by(&spec.user_data)),
        ("networkData", named_by(&spec.network_data)),
        ("metaData", named_by(&spec.meta_data)),
        ("preprovisioningNetworkDataName", plain(spec.preprovisioning_network_data_name.as_ref())),
        ("image.ociAuthSecretName", plain(pull)),
    ];
    let secrets: Api<Secret> = Api::namespaced(all.host.client.clone(), &own);
    for (field, secret) in fields {
        let Some((name, namespace)) = secret.filter(|(name, _)| !name.is_empty()) else { continue };
        // As in provisioning; whether there is one elsewhere is nobody's business here.
        if namespace.is_some_and(|namespace| namespace != own) {
            return Ok(Some(format!("spec.{field} names another namespace than the host's, which is not allowed")));
        }
        let missing = match named(&format!("{name}/-")) {
            None => true,
            Some((name, _)) => match secrets.get_metadata_opt(name).await {
                Err(kube::Error::Api(status)) if status.code == 403 => false,
                found => found.map_err(LookError::of("look for a Secret that the host names"))?.is_none(),
            },
        };
        if missing {
            return Ok(Some(format!("the Secret that spec.{field} names is missing")));
        }
    }
    Ok(None)
}

/// Why a new erasure, new steps or a test medium are nothing for the host's provisioner. A host that has none is refused for its state, not for that.
async fn unserved(
    all: &All,
    request: &HostOperation,
    host: Option<&BareMetalHost>,
) -> Result<Option<String>, LookError> {
    let is_new = request.status.as_ref().is_none_or(|status| status.phase == OperationPhase::Pending);
    let asks = matches!(request.spec.operation, OperationType::Erase | OperationType::Steps) || asks_for_test(request);
    let Some(host) = host.filter(|_| is_new && asks) else {
        return Ok(None);
    };
    let Some((name, capabilities)) = capabilities_of(&all.host, host).await? else { return Ok(None) };
    let is_native = name == NATIVE;
    let (served, what) = match request.spec.operation {
        OperationType::Diagnose => (
            capabilities.test_medium,
            "has no test medium: it tells of no virtual drive that it could put one into, nor of who reads what it serves",
        ),
        OperationType::Steps if is_native => (
            capabilities.steps,
            "has no steps of hardware managers by name while its machines boot Metamorph's own agent: give --agent-image an image with ironic-python-agent (metamorph agent-image build --flavor ipa), which all of \
             this server's machines boot then",
        ),
        OperationType::Steps => (capabilities.steps, "has no steps of hardware managers by name"),
        _ if is_native => (
            capabilities.erase,
            "does not erase disks while its machines boot ironic-python-agent: give --agent-image an image with Metamorph's own agent",
        ),
        _ => (capabilities.erase, "does not erase disks"),
    };
    Ok((!served).then(|| format!("the provisioner of the host, \"{name}\", {what}")))
}

/// The provisioner of a host is being called for one request.
struct Reading<'a>(&'a All, (String, String));

impl<'a> Reading<'a> {
    fn begin(all: &'a All, namespace: &str, name: &str) -> Option<Self> {
        let host = (namespace.to_owned(), name.to_owned());
        let mut reading = all.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.insert(host.clone()).then(|| Self(all, host))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// Calls the host's provisioner for it, and says what is to be written. Whoever is killed in between calls it again: nothing is changed by that.
async fn collect(all: &All, view: &RequestView<'_>) -> Result<RequestStep, LookError> {
    let Some(host) = view.host else { return Ok(conclude_collection(view, Collected::Gone)) };
    let (namespace, name) = (host.namespace().unwrap_or_default(), host.name_any());
    // Of a light nothing is recorded, and it is the writes of the record that a freeze holds back.
    let is_light = view.request.spec.operation == OperationType::Locate;
    let held = match is_light {
        true => frozen(&all.host.client, &namespace).await.map_err(LookError::of("read the host's namespace"))?,
        false => None,
    };
    if let Some(why) = held {
        return Ok(conclude_collection(view, Collected::NotNow(why)));
    }
    // Requests that are made together are all taken.
    let Some(_reading) = Reading::begin(all, &namespace, &name) else { return Ok(RequestStep::Nothing) };
    if view.request.spec.operation == OperationType::Diagnose {
        let tested = match asks_for_test(view.request) {
            false => None,
            true => match test_medium(all, view, host).await? {
                Tested::Ended(tested) => Some(*tested),
                Tested::Step(step) => return Ok(step),
            },
        };
        let collected = match diagnose(&all.host, host, Trigger::Request, tested.clone()).await? {
            Diagnosed::Found(found) => match tested {
                None => Collected::Diagnosed(found),
                Some(tested) => Collected::Tested { report: report(&tested), tested: tested.sentence(), found },
            },
            Diagnosed::Busy(why) => Collected::Busy(why),
            Diagnosed::Gone => Collected::Gone,
            Diagnosed::Unwritable(message) => {
                Collected::Failed { cause: Cause::RecordUnavailable.as_str().to_owned(), message, advice: None }
            }
        };
        let now = all.host.settings.clock.now();
        return Ok(conclude_collection(&RequestView { now, ..*view }, collected));
    }
    let locate = view.request.spec.locate.filter(|_| view.request.spec.operation == OperationType::Locate);
    let asked = match locate {
        Some(locate) => {
            let (uid, call) = (host.uid(), Call::Locate(LocateRequest { lit: locate.lit }));
            asked_of(&all.host, (&namespace, &name, uid.as_deref()), |served| served.locate, call).await?
        }
        None => asked(&all.host, (&namespace, &name), |served| served.logs, Call::CollectLogs).await?,
    };
    let now = all.host.settings.clock.now();
    let collected = match asked {
        Asked::NoHost => Collected::Gone,
        Asked::Detached => Collected::NotNow(format!("the host {name} is detached: its BMC is not called")),
        Asked::NotYet(why) | Asked::Unregistered(why) => Collected::NotNow(why),
        Asked::Busy(why) => Collected::Busy(why),
        Asked::Unserved => {
            let provisioner = capabilities_of(&all.host, host).await?.map_or("none", |(name, _)| name);
            Collected::Unserved(provisioner.to_owned())
        }
        Asked::Failed(failure) => Collected::Failed {
            cause: failure.cause.as_str().to_owned(),
            message: failure.message.clone(),
            advice: failure.what_to_do().map(ToOwned::to_owned),
        },
        Asked::Answered(Verdict::Done(Answer::Logs(logs))) if locate.is_none() => Collected::Logs(logs),
        Asked::Answered(Verdict::Done(Answer::Located(which))) if locate.is_some() => Collected::Located(which),
        Asked::Answered(Verdict::Done(_)) => Collected::Failed {
            cause: Cause::Internal.as_str().to_owned(),
            message: "the provisioner answers what was not asked".to_owned(),
            advice: None,
        },
        Asked::Answered(_) => Collected::Busy(format!("the provisioner of the host {name} has no answer yet")),
    };
    // A host that was declared again meanwhile has another machine.
    let hosts: Api<BareMetalHost> = Api::namespaced(all.host.client.clone(), &namespace);
    let read = hosts.get_metadata_opt(&name).await.map_err(LookError::of("read the host"))?;
    let is_same = read.is_some_and(|read| read.uid() == host.uid());
    let collected = if is_same { collected } else { Collected::Gone };
    Ok(conclude_collection(&RequestView { now, ..*view }, collected))
}

/// Notes on the request itself that it is taken.
async fn take(requests: &Api<HostOperation>, request: &HostOperation) -> Result<(), LookError> {
    let meta = &request.metadata;
    let change = json!({ "metadata": {
        "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": { (annotation::TAKEN): "" }
    } });
    let written = requests.patch(&request.name_any(), &PatchParams::default(), &Patch::Merge(change)).await;
    written.map(|_| ()).map_err(LookError::of("write the annotation of the HostOperation"))
}

/// Writes the annotations to the version of the host that was read.
async fn annotate(
    all: &All,
    hosts: &Api<BareMetalHost>,
    host: &BareMetalHost,
    annotations: &BTreeMap<&'static str, Option<String>>,
) -> Result<(), LookError> {
    let meta = &host.metadata;
    let change = json!({ "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": annotations } });
    let name = host.name_any();
    let params = PatchParams::default();
    let call = async { hosts.patch(&name, &params, &Patch::Merge(change)).await };
    let written = all.host.hosts.writing(&ObjectRef::from_obj(host), call).await;
    written.map(|_| ()).map_err(LookError::of("write the host's annotations"))
}

/// Writes the status to the version of the request that was read. Its end is told by an Event, too.
async fn put(
    all: &All,
    requests: &Api<HostOperation>,
    request: &HostOperation,
    status: HostOperationStatus,
) -> Result<(), LookError> {
    let said = status.phase.is_final().then(|| {
        let advice = status.error.as_ref().and_then(|error| error.advice.as_deref());
        let advice = advice.map(|advice| format!(" — {advice}")).unwrap_or_default();
        let note = format!("{}{advice}", status.message.as_deref().unwrap_or_default());
        let warning = status.error.is_some();
        Said { reason: if warning { "RequestFailed" } else { "RequestSucceeded" }.to_owned(), note, warning }
    });
    let object = HostOperation { status: Some(status), ..request.clone() };
    let written = requests.replace_status(&request.name_any(), &PostParams::default(), &object).await;
    written.map_err(LookError::of("write the status of the HostOperation"))?;
    if let Some(said) = said
        && let Err(error) = all.host.recorder.publish(&said, &request.object_ref(&())).await
    {
        tracing::warn!(request = %request.name_any(), reason = said.reason, %error, "publish an Event");
    }
    Ok(())
}
