//! Which subscriptions to look at when hosts and Secrets change.

use std::collections::HashMap;
use std::sync::Arc;

use api::metal3::{BMCEventSubscription, BareMetalHost, Bmc, OperationalStatus, annotation};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedSender;

use super::All;
use crate::news::Novelty;

type Key = ObjectRef<BMCEventSubscription>;

/// The parts of a host that matter to subscriptions.
#[derive(PartialEq)]
struct Glimpse {
    uid: Option<String>,
    bmc: Option<Bmc>,
    registered: bool,
    detached: bool,
    paused: bool,
    /// It is to be detached, or deleted.
    leaves: bool,
}

fn glimpse(host: &BareMetalHost) -> Glimpse {
    let status = host.status.as_ref();
    Glimpse {
        uid: host.uid(),
        bmc: host.spec.bmc.clone(),
        registered: status.is_some_and(|status| !status.provisioning.id.is_empty()),
        detached: status.is_some_and(|status| status.operational_status == OperationalStatus::Detached),
        paused: host.annotation(annotation::PAUSED).is_some(),
        leaves: host.annotation(annotation::DETACHED).is_some() || host.is_deleting(),
    }
}

/// Enqueues the subscriptions that news about hosts and Secrets concern, for as long as the controller runs.
pub async fn forward(all: Arc<All>, woken: UnboundedSender<Key>) {
    let mut news = all.host.news.listen();
    let mut seen: HashMap<ObjectRef<BareMetalHost>, Glimpse> = HashMap::new();
    while let Some(novelty) = news.recv().await {
        match novelty {
            Novelty::Host(host) => {
                let (key, new) = (ObjectRef::from_obj(host.as_ref()), glimpse(&host));
                if seen.get(&key) != Some(&new) {
                    of_host(&all, &host, &woken);
                    seen.insert(key, new);
                }
            }
            Novelty::HostGone(host) => {
                seen.remove(&ObjectRef::from_obj(host.as_ref()));
                of_host(&all, &host, &woken);
            }
            Novelty::Secret(namespace, name) => of_secret(&all, &namespace, &name, &woken),
            Novelty::Facts(..) | Novelty::FactsListed | Novelty::Listed => {}
        }
    }
}

fn of_host(all: &All, host: &BareMetalHost, woken: &UnboundedSender<Key>) {
    let name = host.name_any();
    let of_host =
        |object: &BMCEventSubscription| object.namespace() == host.namespace() && object.spec.host_name == name;
    all.shown.state().iter().filter(|object| of_host(object)).for_each(|object| wake(object, woken));
}

/// Subscriptions that wait for the Secret.
fn of_secret(all: &All, namespace: &str, name: &str, woken: &UnboundedSender<Key>) {
    let waits = |object: &BMCEventSubscription| {
        let named = object.spec.http_headers_ref.as_ref().and_then(|named| named.name.as_deref());
        let made = object.status.as_ref().is_some_and(|status| !status.subscription_id.is_empty());
        object.namespace().as_deref() == Some(namespace) && named == Some(name) && !made
    };
    all.shown.state().iter().filter(|object| waits(object)).for_each(|object| wake(object, woken));
}

fn wake(object: &BMCEventSubscription, woken: &UnboundedSender<Key>) {
    // This fails only once the controller has ended.
    let _ = woken.send(ObjectRef::from_obj(object));
}
