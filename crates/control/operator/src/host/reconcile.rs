//! One reconcile: fetch, decide, act, write; again until there is nothing to do but wait.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState as State, annotation, finalizer};
use host_lifecycle::{Action as Act, Change, Next, Step, conclude, decide};
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Resource as _, ResourceExt};
use provisioner::{HostKey, Record};
use tracing::Instrument as _;

use super::choice::choose;
use super::context::Context;
use super::error::ReconcileError;
use super::fetched::{Fetched, has_news};
use super::looks::{Due, Seen};
use super::machine::KubeMachine;
use super::secrets::{FoundCredentials, HostSecrets};
use super::write::Applied;
use super::{facts, trouble, work, write};
use crate::calls::Begun;
use crate::events::Said;
use crate::kube_errors::api_message;

/// Most steps in one reconcile; more means that the decisions lead nowhere, and other hosts must have their turn.
const MAX_STEPS: usize = 24;
/// How soon a correction of an object that cannot be read is seen.
const CORRECTED_WITHIN: Duration = Duration::from_secs(10);

/// How often an answer is evaluated again because another client has changed the host meanwhile.
const MAX_CONFLICTS: usize = 8;

/// What a look at the host would be made from, if that is known without a call.
fn seen_now(context: &Context, key: &ObjectRef<BareMetalHost>) -> Option<Seen> {
    let host = context.hosts.known(key)??;
    let namespace = host.namespace().unwrap_or_default();
    let hardware_data = context.hardware_data.known(&ObjectRef::new(&key.name).within(&namespace))?;
    let secret = match host.spec.bmc.as_ref().map(|bmc| bmc.credentials_name.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => Some(context.bodies.known(&namespace, name)?.identity()),
        None => None,
    };
    Some(Seen {
        host: host.resource_version(),
        hardware_data: hardware_data.and_then(|data| data.resource_version()),
        beside: context.beside.versions(&host)?,
        secret,
        news: has_news(context, &facts::key(&host)),
    })
}

/// Reads the BMC's Secret if its version has changed: user and password may well be the same.
async fn read_login(context: &Context, host: &BareMetalHost) {
    let namespace = host.namespace().unwrap_or_default();
    let Some(name) = host.spec.bmc.as_ref().map(|bmc| &bmc.credentials_name).filter(|name| !name.is_empty()) else {
        return;
    };
    if context.bodies.known(&namespace, name).is_none() {
        let api = Api::namespaced(context.client.clone(), &namespace);
        // If this fails, so does the look, which reports it.
        let _ = context.bodies.get(&api, &namespace, name).await;
    }
}

/// The span in which a host is worked on: each line that is logged in it names the host.
pub fn span(namespace: &str, name: &str) -> tracing::Span {
    // As high as any level that is logged at.
    tracing::error_span!("host", namespace, name)
}

/// Reconciles the host that `object` names, as far as there is anything new or due.
pub async fn reconcile(object: Arc<BareMetalHost>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let span = span(&object.namespace().unwrap_or_default(), &object.name_any());
    // Boxed: the runtime moves what it runs, whole, when it begins and when it has ended.
    Box::pin(look(object, context)).instrument(span).await
}

async fn look(object: Arc<BareMetalHost>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    context.metrics.reconciling(&object);
    if context.hosts.marks().hold(object.as_ref()) {
        // What could be read of it is nothing to act on; its Event says so. A correction of its status alone wakes nobody.
        context.metrics.reconciled(false);
        return Ok(Action::requeue(CORRECTED_WITHIN));
    }
    context.begin().await;
    let (uid, key) = (object.uid().unwrap_or_default(), ObjectRef::from_obj(object.as_ref()));
    if context.looks.has(&uid) {
        read_login(&context, &object).await;
    }
    if let Some(due) = context.looks.rests(&key, &uid, || seen_now(&context, &key)) {
        context.metrics.reconciled(due != Due::WithAChange);
        return Ok(match due {
            Due::In(time) => Action::requeue(time),
            Due::WithAChange => Action::await_change(),
        });
    }
    context.rests.begin_look(&uid);
    let begun = context.calls.begin().await;
    match go_on(&object, &context, begun).await {
        Ok(Some((after, seen))) => {
            // Anything written since, by any client, gets another look.
            let unchanged = seen.filter(|seen| seen_now(&context, &key).as_ref() == Some(seen));
            let after = context.looks.ended(&uid, unchanged, after);
            context.metrics.reconciled(after.is_some());
            context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            context.rests.rest(&uid, after.is_none());
            Ok(after.map_or_else(Action::await_change, Action::requeue))
        }
        Ok(None) => {
            context.looks.forget(&uid, true);
            context.metrics.reconciled(false);
            context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            Ok(Action::await_change())
        }
        Err(error) => {
            context.looks.forget(&uid, false);
            let again = context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&uid);
            if again {
                // One failure may be an accident; from the second on, users must see the reason.
                trouble::report(&context, &object, &error).await;
                context.hosts.doubt(&key);
            }
            Err(error)
        }
    }
}

/// Drops all that is kept of a deleted host, released or not.
pub fn forget(context: &Context, object: &BareMetalHost) {
    let uid = object.uid().unwrap_or_default();
    context.histories.forget(&uid);
    context.health.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
    context.machines.forget(&uid);
    context.metrics.forget(object);
    context.rests.forget(&uid);
    context.looks.forget(&uid, true);
    context.turns.forget(&uid);
    context.brake.forget(&uid);
    context.heard.forget(&uid);
    context.hosts.forget(&ObjectRef::from_obj(object));
    context.beside.forget(&uid, &object.namespace().unwrap_or_default(), &object.name_any());
    context.hardware_data.forget(&ObjectRef::new(&object.name_any()).within(&object.namespace().unwrap_or_default()));
    let key = HostKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any(), uid };
    context.registry.iter().for_each(|provisioner| provisioner.forget(&key));
}

/// How a look ended: when the next one is due, unless only a change triggers it; and what the last step was made from.
type End = (Option<Duration>, Option<Seen>);

/// Step by step, until there is nothing to do but wait; `None` if the host is gone.
async fn go_on(
    object: &BareMetalHost,
    context: &Context,
    mut begun: Option<Begun<'_>>,
) -> Result<Option<End>, ReconcileError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    for _ in 0..MAX_STEPS {
        let Some(fetched) = Box::pin(Fetched::read(context, &namespace, &name)).await? else {
            forget(context, object);
            return Ok(None);
        };
        if object.uid().is_some() && fetched.host.uid() != object.uid() {
            // Another host has taken the name before this process saw the deletion of the first.
            forget(context, object);
        }
        let seen = fetched.seen(context);
        // Boxed, as its parts are: of a thousand looks under way, each takes what it is at, and not what it might come to.
        match Box::pin(step(context, fetched, &mut begun)).await? {
            Next::Now => {}
            Next::After(time) => return Ok(Some((Some(time), Some(seen)))),
            Next::Wait => return Ok(Some((None, Some(seen)))),
            Next::Gone => {
                forget(context, object);
                return Ok(None);
            }
        }
    }
    Ok(Some((Some(Duration::from_secs(1)), None)))
}

/// Whether an agent's report may be what the call is made for.
const fn boots_agent(action: &Act) -> bool {
    matches!(
        action,
        Act::Inspect { .. } | Act::Provision | Act::Deprovision { .. } | Act::Erase { .. } | Act::RunSteps { .. }
    )
}

/// One decision, its provisioner call if it needs one, and what follows from the answer.
async fn step(
    context: &Context,
    mut fetched: Box<Fetched>,
    begun: &mut Option<Begun<'_>>,
) -> Result<Next, ReconcileError> {
    Box::pin(lets_go(context, &fetched.host)).await;
    Box::pin(is_paused(context, &fetched.host)).await;
    let view = fetched.view(context);
    context.metrics.credentials(&view.credentials);
    let decided = decide(&view);
    if let Some(change) = context.brake.hold(context, &fetched, &decided).await? {
        return Ok(match Box::pin(write::apply(context, &fetched, Box::new(change))).await? {
            Applied::Written(next) => next,
            Applied::Conflict => Next::Now,
        });
    }
    let action = match decided {
        Step::Change(change) => {
            if change.next != Next::Gone && change.is_empty(fetched.host.status.as_ref()) {
                listen(context, &fetched.host).await;
            }
            let change = Box::pin(ahead(context, &fetched, change)).await?;
            return Ok(match Box::pin(write::apply(context, &fetched, change)).await? {
                Applied::Written(next) => next,
                Applied::Conflict => Next::Now,
            });
        }
        Step::Act(action) => action,
    };
    if Box::pin(claims(context, &mut fetched, &action)).await? {
        // The claim has changed the Secret's resourceVersion, which the decision depends on.
        return Ok(Next::Now);
    }
    if boots_agent(&action)
        && let Some(provisioner) = fetched.provisioner()
    {
        provisioner.acknowledge_news(fetched.key());
    }
    if matches!(action, Act::Register { .. })
        && let Some(chosen) = fetched.provisioner()
    {
        // One that it was asked for before has nothing to do with it any more, and wakes it no longer.
        let others = context.registry.iter().filter(|other| other.name() != chosen.name());
        others.for_each(|other| other.forget(fetched.key()));
    }
    // The machine may take its time, which holds up no look at another.
    drop(begun.take());
    let answer = Box::pin(work::act(context, &fetched, &action)).await;
    fetched.hear(context);
    let outcome = answer.as_ref().ok().and_then(Option::as_ref);
    context.brake.switched(&fetched.host.uid().unwrap_or_default(), &action, outcome);
    let Some(outcome) = answer? else { return Ok(Next::Now) };
    context.brake.answered(context, &fetched.host, &action, &outcome);
    if action == Act::RefreshFacts {
        let (uid, now) = (fetched.host.uid().unwrap_or_default(), context.settings.clock.now());
        context.beside.was_read(&uid, &mut fetched.beside, now);
    }
    if matches!(action, Act::CheckMedia { .. } | Act::LookAtMedia | Act::AttachMedia { .. } | Act::DetachMedia) {
        let (uid, now) = (fetched.host.uid().unwrap_or_default(), context.settings.clock.now());
        context.beside.media_was_seen(&uid, &mut fetched.beside, now);
    }
    let (namespace, name, uid) = (fetched.host.namespace(), fetched.host.name_any(), fetched.host.uid());
    for _ in 0..MAX_CONFLICTS {
        let change = Box::new(conclude(&fetched.view(context), &action, outcome.clone()));
        context.brake.concluded(&fetched.host, &change);
        if let Some(architecture) = &change.set_architecture
            && let Some(written) = write::architecture(context, &fetched, architecture).await?
        {
            // A change of the spec makes a new generation, which the status has to refer to.
            fetched.host = Arc::new(written);
            continue;
        }
        let change = Box::pin(ahead(context, &fetched, change)).await?;
        if let Applied::Written(next) = Box::pin(apply_answer(context, &fetched, change)).await? {
            return Ok(next);
        }
        // The answer is still true: evaluate it for the host as it is now, unless another has taken its name.
        match Fetched::read(context, namespace.as_deref().unwrap_or_default(), &name).await? {
            Some(newer) if newer.host.uid() == uid && newer.asks_the_same_bmc(&fetched) => fetched = newer,
            _ => return Ok(Next::Now),
        }
    }
    Ok(Next::After(Duration::from_secs(1)))
}

/// Writes what follows from an answer. A reboot that is used up with it is none of the provisioner's any more.
async fn apply_answer(context: &Context, fetched: &Fetched, change: Box<Change>) -> Result<Applied, ReconcileError> {
    let ends_reboot = change.remove_annotations.iter().any(|key| key == annotation::REBOOT);
    let applied = Box::pin(write::apply(context, fetched, change)).await?;
    if ends_reboot
        && matches!(applied, Applied::Written(_))
        && let Some(provisioner) = fetched.provisioner()
    {
        provisioner.restart_is_noted(fetched.key());
    }
    Ok(applied)
}

/// The change with the moves that follow from it alone, so that states through which a host only passes cost no write. A step that calls the
/// machine, has to wait, or writes more than the status is decided again after this write.
async fn ahead(context: &Context, fetched: &Fetched, mut change: Box<Change>) -> Result<Box<Change>, ReconcileError> {
    let mut then = None;
    for _ in 0..MAX_STEPS {
        // Objects written beside the host have to be read again.
        if change.next != Next::Now || change.add_finalizer || !change.children.is_empty() {
            break;
        }
        let then = then.get_or_insert_with(|| Box::new(fetched.clone()));
        then.becomes(&change);
        let decided = decide(&then.view(context));
        if context.brake.hold(context, then, &decided).await?.is_some() {
            break;
        }
        let Step::Change(next) = decided else { break };
        if !next.is_move() {
            break;
        }
        change.status = next.status;
        change.events.extend(next.events);
        change.next = next.next;
    }
    Ok(change)
}

/// Prepares to hear the agent of a host that only waits, after a restart of this process perhaps for hours.
async fn listen(context: &Context, host: &Arc<BareMetalHost>) {
    let uid = host.uid().unwrap_or_default();
    if host.state() == State::None || context.machines.has(&uid) {
        return;
    }
    // The next look tries again; nothing else waits for this.
    let Ok(Ok(provisioner)) = choose(context, host).await else { return };
    let machine = KubeMachine::new(context, host, Arc::clone(&provisioner));
    if let Err(error) = machine.load().await {
        tracing::warn!(host = %host.name_any(), error = %api_message(&error), "read the host's record");
        return;
    }
    machine.seal().await;
    provisioner.expect(&facts::key(host), &machine.current());
}

/// Lets go of the Secret that the host named before it named another. A refusal is no reason to do nothing else for the host.
async fn lets_go(context: &Context, host: &BareMetalHost) {
    if host.annotation(annotation::PAUSED).is_some() || !(context.settings.may_act)() {
        return;
    }
    if let Err(error) = HostSecrets::new(context, host).release_former().await {
        tracing::warn!(host = %host.name_any(), error = %api_message(&error), "let go of the Secret that the host has named before");
    }
}

/// Notes that a host is paused, and says so once of one that is being deleted: its status, which would say so, is left alone as well.
async fn is_paused(context: &Context, host: &BareMetalHost) {
    if host.annotation(annotation::PAUSED).is_some() {
        context.heard.waits(&host.uid().unwrap_or_default(), host.state());
    }
    let since = host.metadata.deletion_timestamp.as_ref().filter(|_| host.has_finalizer(finalizer::HOST));
    let Some(since) = since.filter(|_| host.annotation(annotation::PAUSED).is_some()) else { return };
    if !(context.settings.may_act)() {
        return;
    }
    let key = annotation::PAUSED;
    let note = format!("The host is paused, and its deletion waits until the annotation {key} is removed");
    let said = Said { reason: "DeletionWaits".to_owned(), note, warning: true };
    if let Err(error) = context.recorder.publish_once(&said, &host.object_ref(&()), &since.0.to_string()).await {
        tracing::warn!(error = %api_message(&error), "say in an Event that the host is paused");
    }
}

/// Claims the BMC's Secret before its first use, and one that has lost its finalizer since. Returns whether the Secret was written.
async fn claims(context: &Context, fetched: &mut Fetched, action: &Act) -> Result<bool, ReconcileError> {
    if !fetched.host.is_deleting()
        && let Err(error) = HostSecrets::new(context, &fetched.host).hold_network().await
    {
        // Work that needs it reports what is wrong with it.
        tracing::warn!(host = %fetched.host.name_any(), error = %api_message(&error), "hold the Secret with the network of the host's agent");
    }
    let FoundCredentials::Present(found) = &fetched.credentials else { return Ok(false) };
    if fetched.host.is_deleting() && !matches!(action, Act::Register { .. }) {
        return Ok(false);
    }
    let secrets = HostSecrets::new(context, &fetched.host);
    if !secrets.owns(found.metadata()) {
        // One that was claimed before a process was killed may stand nowhere else.
        if let Err(error) = secrets.release_others().await {
            tracing::warn!(host = %fetched.host.name_any(), error = %api_message(&error), "let go of Secrets that the host has named before");
        }
    }
    secrets.claim(found.metadata()).await.map_err(ReconcileError::api("claim the BMC's Secret"))
}
