//! One reconcile: fetch, decide, act, write; again until there is nothing to do but wait.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::metal3::{BareMetalHost, HardwareData, HardwareDataSpec, ProvisioningState as State};
use host_lifecycle::{Action as Act, Change, Next, Step, View, conclude, decide};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use provisioner::{HostKey, Provisioner, Record};

use super::choice::{Choice, choose};
use super::machine::KubeMachine;
use super::secrets::{FoundCredentials, HostSecrets};
use super::write::Applied;
use super::{Context, ReconcileError, trouble, work, write};

/// Most steps in one reconcile; more means that a decision does not lead anywhere, and other hosts must have their turn.
const MAX_STEPS: usize = 24;

/// How often an answer is concluded from anew because somebody else has moved the host on meanwhile.
const MAX_CONFLICTS: usize = 8;

/// Everything that was read of a host.
#[derive(Clone)]
pub struct Fetched {
    pub host: BareMetalHost,
    pub hardware_data: Option<HardwareData>,
    pub credentials: FoundCredentials,
    /// Other versions of the BMC's Secret that held the same user and password.
    same_versions: Vec<String>,
    /// The host's provisioner.
    pub choice: Choice,
    /// The server's settings, with what that provisioner serves for this host.
    settings: host_lifecycle::Settings,
}

impl Fetched {
    /// Reads the host and what belongs to it; `None` if it is gone.
    async fn read(context: &Context, namespace: &str, name: &str) -> Result<Option<Self>, ReconcileError> {
        let hosts: Api<BareMetalHost> = Api::namespaced(context.client.clone(), namespace);
        let Some(host) = hosts.get_opt(name).await.map_err(ReconcileError::api("read the host"))? else {
            return Ok(None);
        };
        let data: Api<HardwareData> = Api::namespaced(context.client.clone(), namespace);
        let hardware_data = data.get_opt(name).await.map_err(ReconcileError::api("read the HardwareData"))?;
        let secrets = HostSecrets::new(&context.client, &host);
        let credentials = secrets.credentials().await.map_err(ReconcileError::api("read the BMC's Secret"))?;
        let same_versions = match &credentials {
            FoundCredentials::Present(found) => {
                let Secret { metadata, .. } = &found.secret;
                let version = metadata.resource_version.as_deref().unwrap_or_default();
                context.versions.note(metadata.uid.as_deref().unwrap_or_default(), version, &found.content)
            }
            _ => Vec::new(),
        };
        let choice = choose(context, &host).await?;
        let mut settings = context.settings.lifecycle.clone();
        if let Ok(provisioner) = &choice {
            settings.served = provisioner.capabilities(&work::facts(&host, hardware_data.as_ref()));
        }
        Ok(Some(Self { host, hardware_data, credentials, same_versions, choice, settings }))
    }

    /// Whether an answer that a BMC gave to one is an answer to the other.
    fn asks_the_same_bmc(&self, other: &Self) -> bool {
        let secret = |fetched: &Self| match &fetched.credentials {
            FoundCredentials::Present(found) => Some((found.secret.metadata.uid.clone(), found.content)),
            _ => None,
        };
        self.host.spec.bmc == other.host.spec.bmc && secret(self) == secret(other)
    }

    /// As it is when the change has been written.
    fn becomes(&mut self, change: &Change) {
        self.host.status = Some(change.status.clone());
        if let Some(architecture) = &change.set_architecture {
            self.host.spec.architecture = Some(architecture.clone());
        }
        for key in &change.remove_annotations {
            self.host.annotations_mut().remove(key);
        }
        if let Some(hardware) = &change.hardware_data {
            let spec = HardwareDataSpec { hardware: Some((**hardware).clone()) };
            self.hardware_data = Some(HardwareData::new(&self.host.name_any(), spec));
        }
    }

    fn key(&self) -> HostKey {
        work::key(&self.host)
    }

    fn provisioner(&self) -> Option<&Arc<dyn Provisioner>> {
        self.choice.as_ref().ok()
    }

    /// The view that decisions are made from.
    fn view<'a>(&'a self, context: &'a Context) -> View<'a> {
        let credentials = match &self.credentials {
            FoundCredentials::NotNeeded => host_lifecycle::Credentials::NotNeeded,
            FoundCredentials::Missing { name } => host_lifecycle::Credentials::Missing { name },
            FoundCredentials::Forbidden { name } => host_lifecycle::Credentials::Forbidden { name },
            FoundCredentials::Invalid { name, what } => {
                host_lifecycle::Credentials::Invalid { name, what: what.clone() }
            }
            FoundCredentials::Present(found) => host_lifecycle::Credentials::Present {
                name: found.secret.metadata.name.as_deref().unwrap_or_default(),
                namespace: found.secret.metadata.namespace.as_deref().unwrap_or_default(),
                resource_version: found.secret.metadata.resource_version.as_deref().unwrap_or_default(),
                same: &self.same_versions,
            },
        };
        View {
            host: &self.host,
            hardware_data: self.hardware_data.as_ref().and_then(|d| d.spec.hardware.as_ref()),
            credentials,
            news: self.provisioner().is_some_and(|provisioner| provisioner.has_news(&self.key())),
            settings: &self.settings,
            now: context.settings.clock.now(),
        }
    }
}

/// Reconciles the host that `object` names; its content is read afresh.
pub async fn reconcile(object: Arc<BareMetalHost>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    context.metrics.reconciling(&object);
    let uid = object.uid().unwrap_or_default();
    context.rests.stir(&uid);
    match go_on(&object, &context).await {
        Ok(rest) => {
            let action = rest.clone().unwrap_or_else(Action::await_change);
            context.metrics.reconciled(action != Action::await_change());
            context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
            if rest.is_some() {
                context.rests.rest(&uid, action == Action::await_change());
            }
            Ok(action)
        }
        Err(error) => {
            let again = context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&uid);
            if again {
                // Once may be an accident. Twice, and whoever waits for the host must see why.
                trouble::report(&context, &object, &error).await;
            }
            Err(error)
        }
    }
}

/// The host is gone: nothing of it is kept, whether it could be released or not.
fn forget(context: &Context, object: &BareMetalHost) {
    let uid = object.uid().unwrap_or_default();
    context.histories.forget(&uid);
    context.machines.forget(&uid);
    context.metrics.forget(object);
    context.rests.forget(&uid);
    let key = HostKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any(), uid };
    context.registry.iter().for_each(|provisioner| provisioner.forget(&key));
}

/// Step by step, until there is nothing to do but wait; `None` if the host is gone.
async fn go_on(object: &BareMetalHost, context: &Context) -> Result<Option<Action>, ReconcileError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    for _ in 0..MAX_STEPS {
        let Some(fetched) = Fetched::read(context, &namespace, &name).await? else {
            forget(context, object);
            return Ok(None);
        };
        if object.uid().is_some() && fetched.host.uid() != object.uid() {
            // Another host has taken the name before this process saw the first one go.
            forget(context, object);
        }
        match step(context, fetched).await? {
            Next::Now => {}
            Next::After(time) => return Ok(Some(Action::requeue(time))),
            Next::Wait => return Ok(Some(Action::await_change())),
            Next::Gone => {
                forget(context, object);
                return Ok(None);
            }
        }
    }
    Ok(Some(Action::requeue(Duration::from_secs(1))))
}

/// One decision, its provisioner call if it needs one, and what follows from the answer.
async fn step(context: &Context, mut fetched: Fetched) -> Result<Next, ReconcileError> {
    let view = fetched.view(context);
    context.metrics.credentials(&view.credentials);
    let decided = decide(&view);
    if let Some(change) = context.brake.hold(context, &fetched, &decided).await? {
        return Ok(match write::apply(context, &fetched, change).await? {
            Applied::Written(next) => next,
            Applied::Conflict => Next::Now,
        });
    }
    let action = match decided {
        Step::Change(change) => {
            if change.next != Next::Gone && change.is_empty(fetched.host.status.as_ref()) {
                listen(context, &fetched.host).await;
            }
            let change = ahead(context, &fetched, *change).await?;
            return Ok(match write::apply(context, &fetched, change).await? {
                Applied::Written(next) => next,
                Applied::Conflict => Next::Now,
            });
        }
        Step::Act(action) => action,
    };
    if claims(context, &mut fetched, &action).await? {
        // The claim has changed the Secret's resourceVersion, which the decision depends on.
        return Ok(Next::Now);
    }
    if matches!(action, Act::Inspect { .. } | Act::Provision | Act::Deprovision { .. })
        && let Some(provisioner) = fetched.provisioner()
    {
        provisioner.heard(&fetched.key());
    }
    let outcome = work::act(context, &fetched, &action).await?;
    let (namespace, name, uid) = (fetched.host.namespace(), fetched.host.name_any(), fetched.host.uid());
    for _ in 0..MAX_CONFLICTS {
        let change = conclude(&fetched.view(context), &action, outcome.clone());
        if let Some(architecture) = &change.set_architecture
            && let Some(written) = write::architecture(context, &fetched, architecture).await?
        {
            // A change of the spec is a generation of its own: what is said of the host is said of that one.
            fetched.host = written;
            continue;
        }
        let change = ahead(context, &fetched, change).await?;
        if let Applied::Written(next) = write::apply(context, &fetched, change).await? {
            return Ok(next);
        }
        // The answer is still true; what follows from it is the present object's matter, and no other's of the same name.
        match Fetched::read(context, namespace.as_deref().unwrap_or_default(), &name).await? {
            Some(newer) if newer.host.uid() == uid && newer.asks_the_same_bmc(&fetched) => fetched = newer,
            _ => return Ok(Next::Now),
        }
    }
    Ok(Next::After(Duration::from_secs(1)))
}

/// The change with the moves that follow from it alone: states through which a host only passes cost no write of their own. Whatever needs a call
/// to the machine, has to wait, or writes more than the status is decided again, from what is written then.
async fn ahead(context: &Context, fetched: &Fetched, mut change: Change) -> Result<Change, ReconcileError> {
    let mut then = fetched.clone();
    for _ in 0..MAX_STEPS {
        if change.next != Next::Now || change.add_finalizer {
            break;
        }
        then.becomes(&change);
        let decided = decide(&then.view(context));
        if context.brake.hold(context, &then, &decided).await?.is_some() {
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

/// A host that only waits, after a restart of this process perhaps for hours: its agent is heard meanwhile.
async fn listen(context: &Context, host: &BareMetalHost) {
    let uid = host.uid().unwrap_or_default();
    if host.state() == State::None || context.machines.has(&uid) {
        return;
    }
    // It is tried again with the next look; what else the host waits for does not wait for this.
    let Ok(Ok(provisioner)) = choose(context, host).await else { return };
    let machine = KubeMachine::new(context, host, Arc::clone(&provisioner));
    if let Err(error) = machine.load().await {
        tracing::warn!(host = %host.name_any(), error = %trouble::told(&error), "read the host's record");
        return;
    }
    provisioner.expect(&work::key(host), &machine.current());
}

/// Claims the BMC's Secret before it is used for the first time. Whether it was written.
async fn claims(context: &Context, fetched: &mut Fetched, action: &Act) -> Result<bool, ReconcileError> {
    let FoundCredentials::Present(found) = &fetched.credentials else { return Ok(false) };
    if !matches!(action, Act::Register { .. }) {
        return Ok(false);
    }
    let secrets = HostSecrets::new(&context.client, &fetched.host);
    secrets.claim(&found.secret).await.map_err(ReconcileError::api("claim the BMC's Secret"))
}
