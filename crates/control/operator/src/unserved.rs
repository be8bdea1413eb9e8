//! Kinds of upstream that are installed beside ours and that nobody looks after yet: whoever makes an object of one is told so, by one Event.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use sha2::{Digest, Sha256};

/// Kinds of `metal3.io/v1alpha1`, with their plurals.
pub const KINDS: [(&str, &str); 11] = [
    ("BMCEventSubscription", "bmceventsubscriptions"),
    ("BareMetalSwitch", "baremetalswitches"),
    ("DataImage", "dataimages"),
    ("FirmwareSchema", "firmwareschemas"),
    ("HostClaim", "hostclaims"),
    ("HostDeployPolicy", "hostdeploypolicies"),
    ("HostFirmwareComponents", "hostfirmwarecomponents"),
    ("HostFirmwareSettings", "hostfirmwaresettings"),
    ("HostNetworkAttachment", "hostnetworkattachments"),
    ("HostUpdatePolicy", "hostupdatepolicies"),
    ("PreprovisioningImage", "preprovisioningimages"),
];
/// How soon a kind that is not installed is looked for again.
const ABSENT: Duration = Duration::from_secs(600);
/// The Event's reason.
const REASON: &str = "NotServed";
/// Longest name of an object that goes into the Event's name, bytes.
const MAX_NAME: usize = 200;

type Metadata = PartialObjectMeta<DynamicObject>;

/// Tells of objects of these kinds, in one namespace or all; never ends by itself.
pub async fn tell(client: Client, namespace: Option<String>) {
    let kinds = KINDS.map(|(kind, plural)| {
        let kind = GroupVersionKind::gvk("metal3.io", "v1alpha1", kind);
        follow(client.clone(), namespace.clone(), ApiResource::from_gvk_with_plural(&kind, plural))
    });
    futures::future::join_all(kinds).await;
}

async fn follow(client: Client, namespace: Option<String>, kind: ApiResource) {
    loop {
        let api: Api<Metadata> = match &namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        // A kind that is not installed has no objects; asking for it all the time would help nobody.
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
                Ok(object) => say(&client, &kind, &object).await,
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

/// One Event an object: its name is made of the object's, so that the second is refused.
async fn say(client: &Client, kind: &ApiResource, object: &Metadata) {
    let Some(namespace) = object.namespace() else { return };
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    let digest = hex::encode(Sha256::digest(format!("{}/{uid}", kind.kind)));
    let end = name.floor_char_boundary(MAX_NAME);
    let (short, tail) = (name.get(..end).unwrap_or_default(), digest.get(..16).unwrap_or_default());
    let now = Timestamp::now();
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{short}.{tail}")),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(format!(
            "Nothing is done for this {0}: this version of Metamorph does not serve {0}, and what it asks for has no effect",
            kind.kind
        )),
        reason: Some(REASON.to_owned()),
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
