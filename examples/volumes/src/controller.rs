//! The controller: fetch, decide, ask, write. What it asks of provisioners is all that it knows of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::{SelectAll, StreamExt as _};
use kube::api::{Api, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{Controller, Predicate as _, WatchStreamExt as _, predicates, watcher};
use kube::{Client, ResourceExt as _};
use provisioner::{Context, MayAct, Now, ObjectKey, Outcome, Provides, Record, Registry, Verdict};
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::decide::{Again, Next, conclude, next, unserved};
use crate::kind::{FINALIZER, Phase, StorageVolume, StorageVolumeStatus};
use crate::record::StatusRecord;
use crate::volume::{Volume, VolumeAnswer, VolumeCall, VolumeFacts};

/// The provisioners of volumes that a server has.
pub type Provisioners = Registry<dyn Provides<Volume>>;

/// When is looked again after the Kubernetes API has failed, or something else has changed the object.
const PAUSE: Duration = Duration::from_secs(2);
/// When is looked again for a provisioner that is not in the list.
const UNLISTED: Duration = Duration::from_secs(60);
/// Most changes of one look.
const MAX_STEPS: usize = 8;

struct All {
    client: Client,
    provisioners: Provisioners,
    now: Now,
    may_act: MayAct,
}

/// A look that did not come to its end.
#[derive(Debug, thiserror::Error)]
#[error("look at a StorageVolume")]
pub struct LookError(#[source] Box<kube::Error>);

impl From<kube::Error> for LookError {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

/// No call acts any more once the controller is gone, whoever still holds it.
struct Acting(Arc<AtomicBool>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Runs until `shutdown` resolves; looks under way are completed.
pub async fn run(
    client: Client,
    provisioners: Provisioners,
    now: Now,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let acting = Acting(Arc::new(AtomicBool::new(true)));
    let acts = Arc::clone(&acting.0);
    let may_act: MayAct = Arc::new(move || acts.load(Ordering::SeqCst));
    let (reader, writer) = store();
    let deletion = |volume: &StorageVolume| Some(u64::from(volume.metadata.deletion_timestamp.is_some()));
    // Of what it writes itself, the status, no event is another look: what is under way is looked at when that says.
    let wanted = predicates::generation.combine(predicates::finalizers).combine(deletion);
    let volumes = watcher(Api::<StorageVolume>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(wanted, Default::default());
    let wakes = |one: &Arc<dyn Provides<Volume>>| UnboundedReceiverStream::new(one.subscribe());
    let woken: SelectAll<_> = provisioners.iter().map(wakes).collect();
    let woken = woken.map(|woken| ObjectRef::new(&woken.key.name).within(&woken.key.namespace));
    let all = Arc::new(All { client, provisioners, now, may_act });
    Controller::for_stream(volumes, reader)
        .reconcile_on(woken)
        .graceful_shutdown_on(shutdown)
        .run(look, on_error, Arc::clone(&all))
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "look at a StorageVolume");
            }
        })
        .await;
    drop(acting);
    futures::future::join_all(all.provisioners.iter().map(|one| one.close())).await;
}

#[allow(clippy::needless_pass_by_value)] // The shape that kube's controller wants.
fn on_error(volume: Arc<StorageVolume>, error: &LookError, _: Arc<All>) -> Action {
    tracing::info!(volume = %volume.name_any(), error = error as &dyn std::error::Error, "it is looked at again");
    Action::requeue(PAUSE)
}

async fn look(shown: Arc<StorageVolume>, all: Arc<All>) -> Result<Action, LookError> {
    let api: Api<StorageVolume> = Api::namespaced(all.client.clone(), &shown.namespace().unwrap_or_default());
    for _ in 0..MAX_STEPS {
        let Some(volume) = api.get_opt(&shown.name_any()).await? else { return Ok(Action::await_change()) };
        match next(&volume) {
            Next::Rest => return Ok(Action::await_change()),
            Next::Hold => hold(&api, volume, true).await?,
            Next::LetGo => hold(&api, volume, false).await?,
            Next::Choose(name) => {
                let before = volume.status.clone().unwrap_or_default();
                let chosen = match all.provisioners.choose(name.as_deref()) {
                    Ok(chosen) => chosen.name().to_owned(),
                    Err(error) => {
                        let status = StorageVolumeStatus { phase: Phase::Failed, message: error.to_string(), ..before };
                        show(&api, volume, status).await?;
                        return Ok(Action::requeue(UNLISTED));
                    }
                };
                show(&api, volume, StorageVolumeStatus { provisioner: chosen, ..before }).await?;
            }
            Next::Ask(call) => {
                if let Some(action) = ask(&api, &all, volume, call).await? {
                    return Ok(action);
                }
            }
        }
    }
    Ok(Action::requeue(PAUSE))
}

/// Asks its provisioner, and writes what that says; `None` if there is more to do at once.
async fn ask(
    api: &Api<StorageVolume>,
    all: &All,
    volume: StorageVolume,
    call: VolumeCall,
) -> Result<Option<Action>, LookError> {
    let before = volume.status.clone().unwrap_or_default();
    let is_leaving = volume.metadata.deletion_timestamp.is_some();
    let provisioner = match all.provisioners.choose(Some(&before.provisioner)) {
        Ok(provisioner) => Arc::clone(provisioner),
        Err(error) => {
            let held = if is_leaving { "the deletion waits: " } else { "" };
            let status = StorageVolumeStatus { phase: Phase::Failed, message: format!("{held}{error}"), ..before };
            show(api, volume, status).await?;
            return Ok(Some(Action::requeue(UNLISTED)));
        }
    };
    let key = ObjectKey {
        namespace: volume.namespace().unwrap_or_default(),
        name: volume.name_any(),
        uid: volume.uid().unwrap_or_default(),
    };
    let facts = VolumeFacts { key: key.clone(), id: before.id.clone(), deleting: is_leaving };
    let capabilities = provisioner.capabilities(&facts);
    if let Some(message) = unserved(&call, &capabilities) {
        show(api, volume, StorageVolumeStatus { phase: Phase::Failed, message, ..before }).await?;
        return Ok(Some(Action::await_change()));
    }
    let record = Arc::new(StatusRecord::new(api.clone(), volume, Arc::clone(&all.may_act)));
    let context = Context {
        facts: Arc::new(facts),
        record: Arc::clone(&record) as Arc<dyn Record>,
        now: Arc::clone(&all.now),
        may_act: Arc::clone(&all.may_act),
    };
    let outcome: Outcome<VolumeAnswer> = provisioner.ask(context, call).await;
    log(&key, &outcome);
    let found = record.latest();
    let (status, again) = conclude(&found.status.clone().unwrap_or_default(), is_leaving, &outcome);
    if again == Again::Gone {
        hold(api, found, false).await?;
        provisioner.forget(&key);
        return Ok(Some(Action::await_change()));
    }
    show(api, found, status).await?;
    Ok(match again {
        Again::After(time) => Some(Action::requeue(time)),
        // Its size may have been raised meanwhile, or it was adopted and is smaller.
        Again::OnChange if matches!(outcome, Ok(Verdict::Done(_))) => None,
        _ => Some(Action::await_change()),
    })
}

fn log(key: &ObjectKey, outcome: &Outcome<VolumeAnswer>) {
    if let Err(failure) = outcome {
        tracing::info!(namespace = %key.namespace, volume = %key.name, cause = failure.cause.as_str(), "{failure}");
    }
}

/// Sets the finalizer of this version of the object, or takes it away.
async fn hold(api: &Api<StorageVolume>, mut volume: StorageVolume, holds: bool) -> Result<(), LookError> {
    let finalizers = volume.finalizers_mut();
    finalizers.retain(|one| one != FINALIZER);
    if holds {
        finalizers.push(FINALIZER.to_owned());
    }
    api.replace(&volume.name_any(), &PostParams::default(), &volume).await?;
    Ok(())
}

/// Writes the status of this version of the object, if it says something else.
async fn show(
    api: &Api<StorageVolume>,
    mut volume: StorageVolume,
    status: StorageVolumeStatus,
) -> Result<(), LookError> {
    if volume.status.as_ref() != Some(&status) {
        volume.status = Some(status);
        api.replace_status(&volume.name_any(), &PostParams::default(), &volume).await?;
    }
    Ok(())
}
