//! Upstream kinds that this server does not act on: each object gets one Event that says so.
//!
//! Most are not served by this version at all. No provisioner sets up switches and their ports; a BareMetalSwitch also gets a false condition
//! Valid, where upstream reports whether it is used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::kube_errors::{api_message, is_terminating};

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
/// How soon one that met another is.
const MET: Duration = Duration::from_secs(1);
/// The Event's reason.
const REASON: &str = "NotServed";
/// Reason of a BareMetalSwitch's condition Valid, and of the Event beside it.
const NO_SWITCH: &str = "SwitchesNotSupported";
/// Reason of the Event of an image that cannot go.
const KEPT: &str = "FinalizerNotRemoved";
/// Longest text of an Event, bytes.
const MAX_NOTE: usize = 1024;
/// How often an image that changes meanwhile is tried again soon.
const MEETINGS: u32 = 5;
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
    let going = Going::default();
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
                    // One that is not deleted may have come in the place of one that was.
                    if kind.kind == BOOT_IMAGE {
                        going.release(&teller, &kind, object);
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

/// Says of an object, once, that nobody does anything for it.
async fn say(teller: &Teller, kind: &ApiResource, object: &Metadata) {
    let of_switches = OF_SWITCHES.iter().any(|(name, _)| *name == kind.kind);
    let (reason, note) = if of_switches {
        (NO_SWITCH, format!("Nothing is done for this {}: {NO_SWITCHES}", kind.kind))
    } else {
        let what = "this version of Metamorph does not serve";
        (REASON, format!("Nothing is done for this {0}: {what} {0}, and what it asks for has no effect", kind.kind))
    };
    let topic = format!("{}/{}", kind.kind, object.uid().unwrap_or_default());
    publish(teller, kind, object, &topic, reason, note).await;
}

/// Publishes one Event per object and topic: its name derives from both, so a second one is refused.
async fn publish(teller: &Teller, kind: &ApiResource, object: &Metadata, topic: &str, reason: &str, mut note: String) {
    note.truncate(note.floor_char_boundary(MAX_NOTE));
    let Some(namespace) = object.namespace() else { return };
    let name = object.name_any();
    let digest = hex::encode(Sha256::digest(topic));
    let end = name.floor_char_boundary(MAX_NAME);
    let (short, tail) = (name.get(..end).unwrap_or_default(), digest.get(..16).unwrap_or_default());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{short}.{tail}")),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(teller.clock.now())),
        note: Some(note.clone()),
        reason: Some(reason.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: object.uid(),
            resource_version: object.resource_version(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some("metamorph".to_owned()),
        reporting_instance: Some("metamorph".to_owned()),
        type_: Some("Warning".to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(teller.client.clone(), &namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => tracing::warn!(kind = %kind.kind, namespace, name, "{note}"),
        Err(kube::Error::Api(e)) if e.code == 409 => {}
        // It takes no new objects.
        Err(error) if is_terminating(&error) => {}
        Err(error) => tracing::warn!(kind = %kind.kind, namespace, name, %error, "publish an Event"),
    }
}

/// Namespace and name of an image.
type Place = (String, String);

/// The images that are being let go, as they were seen last: one is not let go twice at once, however often it changes.
#[derive(Clone, Default)]
struct Going(Arc<Mutex<HashMap<Place, Metadata>>>);

impl Going {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Metadata>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a PreprovisioningImage go that baremetal-operator has made for one of its hosts: it goes with the host, and the finalizer that says so is removed by
    /// whoever looks after the host. Another one, of whoever made the image, is that one's.
    fn release(&self, teller: &Teller, kind: &ApiResource, image: Metadata) {
        let place = (image.namespace().unwrap_or_default(), image.name_any());
        let is_held = left_of(&image).is_some();
        match self.lock().entry(place.clone()) {
            Entry::Occupied(mut seen) => {
                seen.insert(image);
                return;
            }
            Entry::Vacant(new) if is_held => drop(new.insert(image)),
            Entry::Vacant(_) => return,
        }
        let (going, teller, kind) = (self.clone(), teller.clone(), kind.clone());
        tokio::spawn(async move {
            loop {
                let last = release(&teller, &kind, || going.lock().get(&place).cloned()).await;
                let mut all = going.lock();
                // Another one of that name may have come meanwhile.
                let is_new = |seen: &Metadata| left_of(seen).is_some() && Some(version_of(seen)) != last;
                if !(teller.may_act)() || !all.get(&place).is_some_and(is_new) {
                    all.remove(&place);
                    return;
                }
            }
        });
    }
}

/// The finalizers of an image that is deleted but for baremetal-operator's; `None` if it does not have that.
fn left_of(image: &Metadata) -> Option<Vec<String>> {
    let held = image.finalizers();
    let is_held = image.metadata.deletion_timestamp.is_some() && held.iter().any(|name| name == finalizer::BOOT_IMAGE);
    is_held.then(|| held.iter().filter(|name| *name != finalizer::BOOT_IMAGE).cloned().collect())
}

/// An object's uid and version.
fn version_of(object: &Metadata) -> (Option<String>, Option<String>) {
    (object.uid(), object.resource_version())
}

/// Lets go, and returns of which version at last.
async fn release(
    teller: &Teller,
    kind: &ApiResource,
    newest: impl Fn() -> Option<Metadata>,
) -> Option<(Option<String>, Option<String>)> {
    let (mut met, mut last) = (0, None);
    while let Some(image) = newest().filter(|_| (teller.may_act)()) {
        let (Some(left), Some(namespace)) = (left_of(&image), image.namespace()) else { return last };
        last = Some(version_of(&image));
        let patch = json!({
            "metadata": { "uid": image.uid(), "resourceVersion": image.resource_version(), "finalizers": left },
        });
        let api: Api<DynamicObject> = Api::namespaced_with(teller.client.clone(), &namespace, kind);
        match api.patch_metadata(&image.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return last,
            Err(kube::Error::Api(error)) if error.code == 404 => return last,
            // It has changed, or another one is there, which the watch is about to report.
            Err(kube::Error::Api(error)) if error.code == 409 && met < MEETINGS => {
                met += 1;
                tokio::time::sleep(MET).await;
            }
            // Without the right to it, for instance, which somebody may give: nothing else wakes it.
            Err(error) => {
                met = 0;
                let (name, why) = (image.name_any(), api_message(&error));
                tracing::warn!(kind = %kind.kind, namespace, name, "remove its host's finalizer: {why}");
                let advice = match &error {
                    kube::Error::Api(error) if error.code == 403 => " — apply the rights that `metamorph rbac` prints",
                    _ => "",
                };
                let note = format!(
                    "The {} is deleted, and keeps the finalizer {}{advice}; it is tried again each minute: {why}",
                    kind.kind,
                    finalizer::BOOT_IMAGE
                );
                let topic = format!("{}/{}/{KEPT}", kind.kind, image.uid().unwrap_or_default());
                publish(teller, kind, &image, &topic, KEPT, note).await;
                tokio::time::sleep(AGAIN).await;
                // That it is gone is told to nobody, and who may not change it is refused all the same.
                if is_gone(&api, &image).await {
                    return last;
                }
            }
        }
    }
    last
}

/// Whether it is not there any more, or another one in its place.
async fn is_gone(api: &Api<DynamicObject>, object: &Metadata) -> bool {
    let named = ListParams::default().fields(&format!("metadata.name={}", object.name_any()));
    let there = api.list_metadata(&named).await;
    there.is_ok_and(|there| there.items.iter().all(|found| found.uid() != object.uid()))
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

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }
    }

    /// The notes of the Events, and the versions of the images that were patched.
    #[derive(Default)]
    struct Sent {
        notes: Vec<String>,
        patched: Vec<String>,
        /// No image is there any more: until then a list is refused.
        is_empty: bool,
    }

    /// An API server that answers patches with these statuses, the last of them for ever.
    fn teller(answers: &'static [u16]) -> (Teller, Arc<Mutex<Sent>>) {
        let sent = Arc::new(Mutex::new(Sent::default()));
        let seen = Arc::clone(&sent);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
                let mut seen = seen.lock().unwrap();
                let code = match parts.method {
                    Method::PATCH => {
                        seen.patched.push(body["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
                        answers[seen.patched.len().min(answers.len()) - 1]
                    }
                    Method::GET if seen.is_empty => 200,
                    Method::GET => 403,
                    _ => {
                        seen.notes.push(body["note"].as_str().unwrap().to_owned());
                        201
                    }
                };
                let answer = match code {
                    200 if parts.method == Method::GET => json!({"metadata": {}, "items": []}),
                    200 | 201 => json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}),
                    _ => json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                        "message": format!("no {}", "right ".repeat(400)), "reason": "R"}),
                };
                let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(answer.unwrap())
            }
        });
        let client = Client::new(service, "n");
        (Teller { client, namespace: None, clock: Arc::new(Fixed), may_act: Arc::new(|| true) }, sent)
    }

    fn image(uid: &str, version: &str, is_deleted: bool) -> Metadata {
        let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "x".repeat(250), "namespace": "n", "uid": uid, "resourceVersion": version,
            "deletionTimestamp": deleted, "finalizers": [finalizer::BOOT_IMAGE]});
        let image = json!({"apiVersion": "metal3.io/v1alpha1", "kind": BOOT_IMAGE, "metadata": metadata});
        serde_json::from_value(image).unwrap()
    }

    fn kind() -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("metal3.io", "v1alpha1", BOOT_IMAGE), KINDS[0].1)
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_may_not_be_let_go_is_told_of_and_goes_when_it_may() {
        let (teller, sent) = teller(&[409, 403, 403, 200]);
        let (going, kind) = (Going::default(), kind());
        going.release(&teller, &kind, image("u", "1", true));
        // It changes all the while.
        for version in 2..=100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            going.release(&teller, &kind, image("u", &version.to_string(), true));
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let seen = sent.lock().unwrap();
        assert_eq!(seen.patched.len(), 4, "by one at a time: {:?}", seen.patched);
        assert!(going.lock().is_empty());
        let note = &seen.notes[0];
        assert!(note.contains("keeps the finalizer") && note.contains("`metamorph rbac`") && note.len() <= MAX_NOTE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_is_never_let_go_is_tried_each_minute_and_given_up_when_another_is_there() {
        let (teller, sent) = teller(&[409]);
        let (going, kind) = (Going::default(), kind());
        going.release(&teller, &kind, image("u", "1", true));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let tries = sent.lock().unwrap().patched.len();
        assert!((50..400).contains(&tries) && !sent.lock().unwrap().notes.is_empty(), "{tries}");
        going.release(&teller, &kind, image("v", "7", false));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(going.lock().is_empty());
        let tries = sent.lock().unwrap().patched.len();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(sent.lock().unwrap().patched.len(), tries);
    }

    /// Who may not change it is refused also when it is gone.
    #[tokio::test(start_paused = true)]
    async fn an_image_that_may_not_be_let_go_is_forgotten_when_somebody_else_has_done_so() {
        let (teller, sent) = teller(&[403]);
        let (going, kind) = (Going::default(), kind());
        going.release(&teller, &kind, image("u", "1", true));
        tokio::time::sleep(Duration::from_secs(3590)).await;
        assert_eq!(sent.lock().unwrap().patched.len(), 60);
        sent.lock().unwrap().is_empty = true;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let seen = sent.lock().unwrap();
        assert_eq!((seen.patched.len(), seen.notes.len()), (60, 60));
        assert!(going.lock().is_empty());
    }
}
