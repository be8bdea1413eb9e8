//! Upstream kinds that this server does not act on: each object gets one Event that says so.
//!
//! Most are not served by this version at all. No provisioner sets up switches and their ports; a BareMetalSwitch also gets a false condition
//! Valid, where upstream reports whether it is used.

use std::sync::Arc;
use std::time::Duration;

use api::Time;
use api::metal3::{BareMetalSwitch, finalizer};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use provisioner::MayAct;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::Clock;

/// Kinds of `metal3.io/v1alpha1` that this version does not serve, with their plurals.
pub const KINDS: [(&str, &str); 1] = [(BOOT_IMAGE, "preprovisioningimages")];
const BOOT_IMAGE: &str = "PreprovisioningImage";
/// Kinds that ask for what no provisioner does, with their plurals.
pub const OF_SWITCHES: [(&str, &str); 2] =
    [("BareMetalSwitch", "baremetalswitches"), ("HostNetworkAttachment", "hostnetworkattachments")];
/// The message of their Event.
const NO_SWITCHES: &str =
    "no provisioner of this server sets up switches: ports stay as they are, and have to be set up by other means";
/// How soon a kind that is not installed is looked for again.
const ABSENT: Duration = Duration::from_secs(600);
/// How soon a write that was refused is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// The Event's reason.
const REASON: &str = "NotServed";
/// Reason of a BareMetalSwitch's condition Valid, and of the Event beside it.
const NO_SWITCH: &str = "SwitchesNotSupported";
/// Longest name of an object that goes into the Event's name, bytes.
const MAX_NAME: usize = 200;

type Metadata = PartialObjectMeta<DynamicObject>;

/// Publishes the Events.
#[derive(Clone)]
pub struct Teller {
    /// The API.
    pub client: Client,
    /// The namespace that is looked after; all if `None`.
    pub namespace: Option<String>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether this process acts.
    pub may_act: MayAct,
}

/// Publishes an Event for each object of these kinds, in one namespace or all; never returns.
pub async fn tell(teller: Teller) {
    let kinds = KINDS.iter().chain(&OF_SWITCHES).map(|(kind, plural)| {
        let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", kind);
        follow(teller.clone(), ApiResource::from_gvk_with_plural(&kind, plural))
    });
    futures::future::join_all(kinds).await;
}

async fn follow(teller: Teller, kind: ApiResource) {
    let client = &teller.client;
    loop {
        let api: Api<Metadata> = match &teller.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        // A kind that is not installed has no objects to watch: look for it again later.
        let absent =
            matches!(&api.list(&ListParams::default().limit(1)).await, Err(kube::Error::Api(e)) if e.code == 404);
        if absent {
            tokio::time::sleep(ABSENT).await;
            continue;
        }
        let seen = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        let mut seen = std::pin::pin!(seen);
        while let Some(found) = seen.next().await {
            match found {
                // The next leader's watch lists all of them again.
                Ok(_) if !(teller.may_act)() => {}
                Ok(object) => {
                    say(&teller, &kind, &object).await;
                    let is_going = object.metadata.deletion_timestamp.is_some();
                    if kind.kind == BOOT_IMAGE && is_going {
                        tokio::spawn(release(teller.clone(), kind.clone(), object));
                    } else if kind.kind == "BareMetalSwitch" && !is_going {
                        condition(&teller, &object).await;
                    }
                }
                Err(error) => {
                    tracing::debug!(kind = %kind.kind, error = &error as &dyn std::error::Error, "watch");
                    if not_there(&error) {
                        break;
                    }
                }
            }
        }
    }
}

fn not_there(error: &watcher::Error) -> bool {
    let source = match error {
        watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source) => source,
        _ => return false,
    };
    matches!(source, kube::Error::Api(e) if e.code == 404)
}

/// Publishes one Event per object: its name derives from the object's name and uid, so a second one is refused.
async fn say(teller: &Teller, kind: &ApiResource, object: &Metadata) {
    let client = &teller.client;
    let Some(namespace) = object.namespace() else { return };
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    let digest = hex::encode(Sha256::digest(format!("{}/{uid}", kind.kind)));
    let end = name.floor_char_boundary(MAX_NAME);
    let (short, tail) = (name.get(..end).unwrap_or_default(), digest.get(..16).unwrap_or_default());
    let now = teller.clock.now();
    let of_switches = OF_SWITCHES.iter().any(|(name, _)| *name == kind.kind);
    let (reason, note) = if of_switches {
        (NO_SWITCH, format!("Nothing is done for this {}: {NO_SWITCHES}", kind.kind))
    } else {
        let what = "this version of Metamorph does not serve";
        (REASON, format!("Nothing is done for this {0}: {what} {0}, and what it asks for has no effect", kind.kind))
    };
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{short}.{tail}")),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note),
        reason: Some(reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(uid),
            resource_version: object.resource_version(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("metamorph".to_owned()),
        reporting_instance: Some("metamorph".to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => tracing::warn!(kind = %kind.kind, namespace, name, "nobody serves this kind"),
        Err(kube::Error::Api(e)) if e.code == 409 => {}
        Err(error) => tracing::warn!(kind = %kind.kind, namespace, name, %error, "publish an Event"),
    }
}

/// Lets a PreprovisioningImage go that baremetal-operator has made for one of its hosts: it goes with the host, and the finalizer that says so is removed by whoever
/// looks after the host. Another one, of whoever made the image, is that one's.
async fn release(teller: Teller, kind: ApiResource, object: Metadata) {
    let held = object.finalizers();
    if !held.iter().any(|name| name == finalizer::BOOT_IMAGE) {
        return;
    }
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let left: Vec<&String> = held.iter().filter(|name| *name != finalizer::BOOT_IMAGE).collect();
    let version = object.resource_version().unwrap_or_default();
    let patch = json!({ "metadata": { "uid": object.uid(), "resourceVersion": version, "finalizers": left } });
    let api: Api<DynamicObject> = Api::namespaced_with(teller.client.clone(), &namespace, &kind);
    while (teller.may_act)() {
        match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return,
            // Changed or gone meanwhile: the watch reports it.
            Err(kube::Error::Api(error)) if error.code == 409 || error.code == 404 => return,
            // Without the right to it, for instance, which somebody may give: nothing else wakes it.
            Err(error) => tracing::warn!(kind = %kind.kind, namespace, name, %error, "remove its host's finalizer"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sets a switch's condition Valid to false, once per generation.
async fn condition(teller: &Teller, object: &Metadata) {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<BareMetalSwitch> = Api::namespaced(teller.client.clone(), &namespace);
    let written = async {
        let Some(switch) = api.get_opt(&name).await? else { return Ok(()) };
        let all = switch.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let old = switch.status.iter().flat_map(|status| &status.conditions).find(|found| found.type_ == "Valid");
        if old.is_some_and(|old| old.reason == NO_SWITCH && old.observed_generation == switch.metadata.generation) {
            return Ok(());
        }
        let since = old.filter(|old| old.status == "False").map(|old| old.last_transition_time.clone());
        let valid = Condition {
            last_transition_time: since.unwrap_or_else(|| Time(teller.clock.now())),
            message: format!("This switch is not used: {NO_SWITCHES}"),
            observed_generation: switch.metadata.generation,
            reason: NO_SWITCH.to_owned(),
            status: "False".to_owned(),
            type_: "Valid".to_owned(),
        };
        // A merge patch replaces lists as a whole: carry over the other conditions.
        let others = all.into_iter().filter(|condition| condition.type_ != "Valid");
        let conditions: Vec<Condition> = others.chain([valid]).collect();
        let patch = json!({
            "metadata": { "uid": switch.metadata.uid, "resourceVersion": switch.metadata.resource_version },
            "status": { "conditions": conditions },
        });
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ())
    };
    match written.await {
        Ok(()) => {}
        // Changed or deleted meanwhile: the watch reports it.
        Err(kube::Error::Api(error)) if error.code == 409 || error.code == 404 => {}
        Err(error) => tracing::warn!(namespace, name, %error, "write the status of a BareMetalSwitch"),
    }
}
