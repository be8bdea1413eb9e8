//! The controller of BareMetalHosts.
//!
//! A host is reconciled when its spec, annotations or finalizers change, when a Secret it names changes, when its provisioner
//! has news, and when a time that the last decision named has come. A reconcile goes on step by step until there is nothing to
//! do but wait, so that a transition costs one write and no round trip through the watch.

pub(crate) mod asked;
mod begun;
mod beside;
mod bodies;
mod brake;
pub(crate) mod cause;
mod choice;
mod context;
mod emptied;
mod error;
mod facts;
pub(crate) mod failing;
mod fetched;
pub(crate) mod freeze;
mod heard;
mod history;
mod index;
mod kept;
mod leaving;
mod looks;
mod machine;
mod media;
pub(crate) mod objects;
mod observer;
mod orphans;
mod owned;
pub(crate) mod readable;
mod reconcile;
mod record;
mod records;
mod rests;
mod schema_owners;
mod seal;
mod secrets;
mod sources;
mod step;
mod strays;
mod trouble;
mod turns;
mod versions;
mod wanted;
mod work;
mod write;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, DataImage};
use api::metamorph::MachineRecord;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::controller::{self, Action, Config};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{Controller, Predicate, WatchStreamExt, predicates, watcher};
use kube::{Client, ResourceExt};
use provisioner::{Registry, WakeUp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::calls::Calls;
use crate::events::Recorder;
use crate::metrics::{self, Metrics};
use crate::news::News;
use crate::shutdown::Shutdown;
use begun::Brake;
use beside::Beside;
use bodies::Bodies;
pub(crate) use choice::capabilities_of;
pub(crate) use context::Context;
pub use context::{HostSettings, RecordReader};
pub(crate) use error::{LookError, ReconcileError};
pub(crate) use facts::facts;
use history::Histories;
pub(crate) use history::host_label;
use objects::Objects;
pub(crate) use objects::scoped;
pub use observer::Observer;
use records::{Common, Records};
pub use rests::Rest;
use rests::Rests;
pub use seal::SealKeys;
use seal::Seals;
pub use sources::ImageDefaults;
use step::Watch;

/// Most diagnoses at once: each reads one BMC.
const DIAGNOSES: usize = 20;

/// Pause after a failed reconcile; doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The controller.
pub struct HostController {
    context: Arc<Context>,
}

impl HostController {
    /// A controller over this API and these provisioners. Of the calls that it makes, and the controllers beside it, few are under way at once. It needs a runtime.
    #[must_use]
    pub fn new(client: Client, registry: Registry, settings: HostSettings) -> Self {
        let (client, calls) = Calls::over(client);
        let recorder = Recorder::new(client.clone(), Arc::clone(&settings.clock));
        let metrics = Arc::new(Metrics::default());
        let of_machines = Arc::new(Common {
            client: client.clone(),
            known: Arc::default(),
            records: Arc::default(),
            recorder: recorder.clone(),
            definitions: Arc::default(),
            clock: Arc::clone(&settings.clock),
            seals: Arc::new(Seals::new(settings.seal_keys.clone())),
            may_act: Arc::clone(&settings.may_act),
        });
        Self {
            context: Arc::new(Context {
                client,
                calls,
                registry,
                settings,
                histories: Histories::new(Arc::clone(&metrics)),
                machines: Records::default(),
                versions: versions::Versions::default(),
                recorder,
                definitions: Arc::clone(&of_machines.definitions),
                hosts: Arc::clone(&of_machines.known),
                hardware_data: Objects::default(),
                records: Arc::clone(&of_machines.records),
                seals: Arc::clone(&of_machines.seals),
                of_machines,
                beside: Beside::default(),
                turns: turns::Turns::default(),
                bodies: Bodies::default(),
                documents: Default::default(),
                index: index::Index::default(),
                looks: looks::Looks::default(),
                brake: Brake::default(),
                metrics,
                news: News::default(),
                watch: Watch::default(),
                rests: Rests::default(),
                begun: tokio::sync::OnceCell::new(),
                health: Mutex::default(),
                listening: Mutex::default(),
                pokes: looks::Pokes::default(),
                diagnoses: tokio::sync::Semaphore::new(DIAGNOSES),
                detecting: Mutex::new(Some(Default::default())),
                detecting_classes: Mutex::new(Some(Default::default())),
                stumbles: Mutex::default(),
                heard: heard::AllHeard::default(),
            }),
        }
    }

    /// What it works with, for controllers beside it.
    pub(crate) fn context(&self) -> Arc<Context> {
        Arc::clone(&self.context)
    }

    /// What is to be seen of the controller from outside.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer { context: Arc::clone(&self.context) }
    }

    /// Runs until `shutdown` resolves; reconciles under way are completed.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let context = self.context;
        let client = context.client.clone();
        let namespace = context.settings.namespace.as_deref();
        let (reader, writer) = store();
        context.hosts.set_store(reader.clone());
        let wanted =
            predicates::generation.combine(predicates::annotations).combine(predicates::finalizers).combine(deletion);
        let (orphans, orphaned) = mpsc::unbounded_channel();
        let stream = objects::follow::<BareMetalHost>(&client, namespace, &context.recorder, context.hosts.marks())
            .reflect(writer)
            .inspect(watched(Arc::clone(&context), orphans.clone()))
            .applied_objects()
            .predicate_filter(wanted, Default::default());
        let mut beside = JoinSet::new();
        beside.spawn(orphans::release_orphans(Arc::clone(&context), orphaned));
        let told = |context: &Context, event: &_| context.news.of_facts(event, false);
        show_and_tell(&context, &mut beside, |context| &context.hardware_data, told);
        show_and_tell(&context, &mut beside, |context| context.records.as_ref(), shared);
        let (definitions, looker, watched_namespace) =
            (Arc::clone(&context.definitions), client.clone(), context.settings.namespace.clone());
        beside.spawn(async move { definitions.keep(&looker, watched_namespace.as_deref()).await });
        beside.spawn(crate::unserved::tell(crate::unserved::Teller {
            client: client.clone(),
            namespace: context.settings.namespace.clone(),
            clock: Arc::clone(&context.settings.clock),
            may_act: Arc::clone(&context.settings.may_act),
        }));
        let secret_events = secrets(&context, &mut beside);
        let users = Arc::clone(&context);
        show(&context, &mut beside, |context| &context.beside.schemas);
        let settings = changes(&context, |context| &context.beside.settings);
        let versions = |context: &Context, event: &_, has_gone| context.news.of_facts(event, has_gone);
        let components = changes_told(&context, |context| &context.beside.components, versions);
        let policies = changes(&context, |context| &context.beside.policies);
        let data_images = changes(&context, |context| &context.beside.data_images);
        let (stray, strayed) = mpsc::unbounded_channel();
        beside.spawn(strays::tell(Arc::clone(&context), strayed));
        let [of_settings, of_components, of_policies, of_images] =
            std::array::from_fn(|_| (Arc::clone(&context), stray.clone()));
        let config = Config::default().concurrency(0);
        Controller::for_stream(stream, reader)
            .with_config(config)
            .watches_stream(secret_events, move |secret| {
                let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
                let data = users.index.takes_data(&namespace, &name);
                // Whether user and password have changed is seen when they are read.
                data.iter().for_each(|host| users.looks.wake(host));
                data.into_iter().chain(users.index.signs_in(&namespace, &name))
            })
            .watches_stream(settings, move |object| strays::host_of(&of_settings.0, &of_settings.1, &object))
            .watches_stream(components, move |object| strays::host_of(&of_components.0, &of_components.1, &object))
            .watches_stream(policies, move |object| strays::host_of(&of_policies.0, &of_policies.1, &object))
            .watches_stream(data_images, move |image| {
                let host = ObjectRef::new(&image.name_any()).within(&image.namespace().unwrap_or_default());
                let is_there = of_images.0.hosts.store().is_some_and(|hosts| hosts.get(&host).is_some());
                if media::is_held(&image) && (image.metadata.deletion_timestamp.is_some() || !is_there) {
                    // This fails only once the controller has ended.
                    let _ = orphans.send(ObjectRef::from_obj(&image));
                }
                strays::host_of(&of_images.0, &of_images.1, &image)
            })
            .reconcile_on(wake_stream(&context))
            .reconcile_on(UnboundedReceiverStream::new(context.pokes.taken()))
            .graceful_shutdown_on(shutdown)
            .run(reconcile::reconcile, on_error, context)
            .for_each(|result| async move {
                // What has failed for a host is logged with its name, by `on_error`.
                if let Err(error) = result
                    && !matches!(error, controller::Error::ReconcilerFailed(..))
                {
                    tracing::debug!(%error, "what is to be looked at");
                }
            })
            .await;
        drop(beside);
    }
}

/// Has what is known of a host's record be the watch's own copy.
fn shared(context: &Context, event: &Result<watcher::Event<MachineRecord>, watcher::Error>) {
    if let Ok(watcher::Event::Apply(record)) = event
        && let Some(Some(watched)) = context.records.watched(&ObjectRef::from_obj(record))
    {
        context.machines.share(&watched);
    }
}

/// Watches the metadata of the Secrets, and returns the changed ones.
fn secrets(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
) -> impl futures::Stream<Item = Result<PartialObjectMeta<Secret>, watcher::Error>> + Send + use<> {
    let (reader, writer) = store();
    context.bodies.set_store(reader);
    let (leaving, left) = mpsc::unbounded_channel();
    tasks.spawn(leaving::tell(Arc::clone(context), left));
    let (namespace, of_secrets) = (context.settings.namespace.as_deref(), Arc::clone(context));
    objects::follow::<PartialObjectMeta<Secret>>(&context.client, namespace, &context.recorder, &Arc::default())
        .reflect(writer)
        .inspect(move |event| {
            of_secrets.bodies.on(event);
            of_secrets.news.of_secret(event);
            if let Err(error) = event {
                tracing::warn!(%error, "watch the Secrets");
            }
        })
        .touched_objects()
        .inspect_ok(move |secret| {
            if leaving::waits_for_a_host(secret) {
                // This fails only once the controller has ended.
                let _ = leaving.send(ObjectRef::from_obj(secret));
            }
        })
}

/// Watches the objects of a kind beside the controller.
fn show<K: objects::Followed>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    of: impl Fn(&Context) -> &Objects<K> + Send + 'static,
) {
    show_and_tell(context, tasks, of, |_, _| {});
}

/// The same, and tells others of each event.
fn show_and_tell<K: objects::Followed>(
    context: &Arc<Context>,
    tasks: &mut JoinSet<()>,
    of: impl Fn(&Context) -> &Objects<K> + Send + 'static,
    told: impl Fn(&Context, &Result<watcher::Event<K>, watcher::Error>) + Send + 'static,
) {
    let (reader, writer) = store();
    of(context).set_store(reader);
    let context = Arc::clone(context);
    let (namespace, marks) = (context.settings.namespace.as_deref(), of(&context).marks());
    let events = objects::follow::<K>(&context.client, namespace, &context.recorder, marks);
    tasks.spawn(events.reflect(writer).for_each(move |event| {
        of(&context).on(&event);
        told(&context, &event);
        if let Err(error) = event {
            tracing::warn!(%error, "watch the {}", K::plural(&()));
        }
        std::future::ready(())
    }));
}

/// Watches the objects of a kind beside hosts, and returns the changed ones.
fn changes<K: objects::Followed>(
    context: &Arc<Context>,
    of: impl Fn(&Context) -> &Objects<K> + Send + 'static,
) -> impl futures::Stream<Item = Result<K, watcher::Error>> + Send + 'static {
    changes_told(context, of, |_, _, _| {})
}

/// The same, and tells of each event when the store has it, and whether the watch has just found that the kind is not installed.
fn changes_told<K>(
    context: &Arc<Context>,
    of: impl Fn(&Context) -> &Objects<K> + Send + 'static,
    told: impl Fn(&Context, &Result<watcher::Event<K>, watcher::Error>, bool) + Send + 'static,
) -> impl futures::Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let (reader, writer) = store();
    of(context).set_store(reader);
    let context = Arc::clone(context);
    let (namespace, marks) = (context.settings.namespace.as_deref(), of(&context).marks());
    let events = objects::follow::<K>(&context.client, namespace, &context.recorder, marks);
    let on_event = move |event: &Result<watcher::Event<K>, watcher::Error>| {
        let was_absent = of(&context).is_absent();
        of(&context).on(event);
        if let Err(error) = event
            && !was_absent
        {
            tracing::warn!(%error, "watch the {}", K::plural(&()));
        }
        let has_gone = !was_absent && of(&context).is_absent();
        told(&context, event, has_gone);
    };
    events.reflect(writer).inspect(on_event).touched_objects()
}

/// Changes when deletion is asked for.
fn deletion(host: &BareMetalHost) -> Option<u64> {
    Some(u64::from(host.is_deleting()))
}

/// The wake-ups of all provisioners as one stream. Ended subscriptions are renewed.
fn wake_stream(context: &Arc<Context>) -> impl futures::Stream<Item = ObjectRef<BareMetalHost>> + Send + use<> {
    let (sender, receiver) = mpsc::unbounded_channel::<WakeUp>();
    for provisioner in context.registry.iter() {
        let (sender, provisioner) = (sender.clone(), Arc::clone(provisioner));
        tokio::spawn(async move {
            loop {
                let mut wake_ups = provisioner.subscribe();
                while let Some(wake_up) = wake_ups.recv().await {
                    if sender.send(wake_up).is_err() {
                        return;
                    }
                }
                if sender.is_closed() {
                    return;
                }
                tokio::time::sleep(FIRST_PAUSE).await;
            }
        });
    }
    let context = Arc::clone(context);
    // The stream holds a sender, so that it does not end when there are no provisioners.
    UnboundedReceiverStream::new(receiver).map(move |WakeUp { key }| {
        let _keep = &sender;
        let host = ObjectRef::new(&key.name).within(&key.namespace);
        context.looks.wake(&host);
        host
    })
}

/// Handles each event of the watch of hosts, and logs when the watch begins to fail: without it, nothing is done to any host.
fn watched(
    context: Arc<Context>,
    orphans: mpsc::UnboundedSender<ObjectRef<DataImage>>,
) -> impl FnMut(&Result<watcher::Event<BareMetalHost>, watcher::Error>) {
    move |event| {
        context.hosts.on(event);
        context.news.of_host(event, context.hosts.store());
        if let Ok(event) = event {
            context.index.on(event, &context.registry);
        }
        // A host whose finalizers another client has removed gets no further look.
        if let Ok(watcher::Event::Delete(host)) = event {
            reconcile::forget(&context, host);
            let _ = orphans.send(ObjectRef::new(&host.name_any()).within(&host.namespace().unwrap_or_default()));
        }
        note(&context, event);
    }
}

fn note(context: &Context, event: &Result<watcher::Event<BareMetalHost>, watcher::Error>) {
    match event {
        // A list is complete when its last part has come.
        Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
        Ok(_) => {
            if context.watch.works() {
                tracing::info!("the BareMetalHosts are watched");
            }
        }
        Err(error) => {
            context.metrics.watch_failed();
            if context.watch.fails() {
                let advice = if metrics::is_not_found(error) {
                    "are the definitions installed (metamorph crds | kubectl apply -f -)?"
                } else {
                    "it is tried again; nothing is done to any host meanwhile"
                };
                tracing::warn!(error = error as &dyn std::error::Error, "watch the BareMetalHosts — {advice}");
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape that kube's controller wants.
fn on_error(host: Arc<BareMetalHost>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let _span = reconcile::span(&host.namespace().unwrap_or_default(), &host.name_any()).entered();
    tracing::warn!(error = error as &dyn std::error::Error, "reconcile");
    context.metrics.stumbled();
    let mut stumbles = context.stumbles.lock().unwrap_or_else(PoisonError::into_inner);
    let count = stumbles.entry(host.uid().unwrap_or_default()).or_default();
    *count = count.saturating_add(1);
    Action::requeue(pause(*count))
}

/// Pause after that many failures in a row, so that not all hosts query an overloaded or absent API every second.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses: Vec<_> = [1, 2, 3, 7, 8, 100, u32::MAX].map(|n| pause(n).as_millis()).into();
        assert_eq!(pauses, [500, 1000, 2000, 32_000, 60_000, 60_000, 60_000]);
    }
}
