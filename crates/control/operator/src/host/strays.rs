//! Objects beside hosts whose name is no host's, mistyped as a rule: nobody acts on them, and an Event says so.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::metal3::BareMetalHost;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Duration, Instant, sleep_until};

use super::context::Context;
use crate::events::Said;

/// Time in which the host may come: whoever applies a folder, or moves a namespace, may have its host last. Also the time between two looks for it
/// afterwards, which cost no call.
const PATIENCE: Duration = Duration::from_secs(60);
/// Reasons of the Events.
const NO_HOST: &str = "NoSuchHost";
const FOUND: &str = "HostFound";

/// An object without a host.
pub struct Stray {
    about: ObjectReference,
    generation: Option<i64>,
}

/// The host that an object is beside; if the watch shows none of that name, the object is looked at again by [`tell`].
pub fn host_of<K: Resource<DynamicType = ()>>(
    context: &Context,
    strays: &UnboundedSender<Stray>,
    object: &K,
) -> Option<ObjectRef<BareMetalHost>> {
    let host = ObjectRef::new(&object.name_any()).within(&object.namespace()?);
    let is_there = context.hosts.store().is_some_and(|hosts| hosts.get(&host).is_some());
    if !is_there && object.meta().deletion_timestamp.is_none() {
        let about = ObjectReference { resource_version: None, ..object.object_ref(&()) };
        // This fails only once the controller has ended.
        let _ = strays.send(Stray { about, generation: object.meta().generation });
    }
    Some(host)
}

/// When a stray is looked at next.
struct Due {
    at: Instant,
    stray: Stray,
    told: bool,
}

/// Says once of each such object and generation that there is no host of its name, and then when there is one. Never returns.
pub async fn tell(context: Arc<Context>, mut strays: UnboundedReceiver<Stray>) {
    // All wait for the same time: the first is the next.
    let mut queue: VecDeque<Due> = VecDeque::new();
    let mut generations: HashMap<String, Option<i64>> = HashMap::new();
    loop {
        let next = queue.front().map(|due| due.at);
        tokio::select! {
            stray = strays.recv() => {
                let Some(stray) = stray else { return };
                let uid = stray.about.uid.clone().unwrap_or_default();
                if generations.insert(uid, stray.generation) != Some(stray.generation) {
                    queue.push_back(Due { at: Instant::now() + PATIENCE, stray, told: false });
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let Some(due) = queue.pop_front() else { continue };
                let uid = due.stray.about.uid.clone().unwrap_or_default();
                if generations.get(&uid) != Some(&due.stray.generation) {
                    continue;
                }
                match look(&context, &due).await {
                    Some(told) => queue.push_back(Due { at: Instant::now() + PATIENCE, told, ..due }),
                    None => drop(generations.remove(&uid)),
                }
            }
        }
    }
}

/// Whether it is told by now; `None` if there is nothing more to be told.
async fn look(context: &Context, due: &Due) -> Option<bool> {
    let Due { stray, told, .. } = due;
    if !(context.settings.may_act)() || !context.hosts.in_step.get() {
        return Some(*told);
    }
    if !is_there(context, &stray.about) {
        return None;
    }
    let about = &stray.about;
    let (kind, name) = (about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default());
    let namespace = about.namespace.as_deref().unwrap_or_default();
    let host = ObjectRef::<BareMetalHost>::new(name).within(namespace);
    let has_host = context.hosts.store().is_some_and(|hosts| hosts.get(&host).is_some());
    let (reason, note) = match (has_host, told) {
        (true, false) => return None,
        (false, true) => return Some(true),
        (true, true) => (FOUND, format!("The BareMetalHost \"{name}\" is there now, and this {kind} is acted on")),
        (false, false) => (
            NO_HOST,
            format!(
                "Nothing is done for this {kind}: no BareMetalHost of namespace \"{namespace}\" has its name, \"{name}\" — give it the name of its \
                 host, or create that host"
            ),
        ),
    };
    let said = Said { reason: reason.to_owned(), note, warning: !has_host };
    let generation = stray.generation.unwrap_or_default();
    if let Err(error) = context.recorder.publish_once(&said, about, &generation.to_string()).await {
        tracing::warn!(kind, namespace, name, reason, %error, "publish an Event");
    }
    (!has_host).then_some(true)
}

/// Whether the watch still shows the object.
fn is_there(context: &Context, about: &ObjectReference) -> bool {
    fn has<K>(store: Option<&Store<K>>, about: &ObjectReference) -> bool
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + 'static,
    {
        let name = ObjectRef::new(about.name.as_deref().unwrap_or_default());
        let name = name.within(about.namespace.as_deref().unwrap_or_default());
        let found = store.and_then(|store| store.get(&name));
        found.is_some_and(|found| found.uid() == about.uid && found.meta().deletion_timestamp.is_none())
    }
    let beside = &context.beside;
    match about.kind.as_deref() {
        Some("HostFirmwareSettings") => has(beside.settings.store(), about),
        Some("HostFirmwareComponents") => has(beside.components.store(), about),
        Some("HostUpdatePolicy") => has(beside.policies.store(), about),
        _ => has(beside.data_images.store(), about),
    }
}
