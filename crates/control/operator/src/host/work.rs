//! From a decided action to the provisioner's call, and from its answer to the life cycle's outcome.

use std::sync::Arc;

use api::metal3::{BareMetalHost, annotation};
use api::metamorph::OperationType;
use host_lifecycle::{Action, Outcome, PowerWish, RetryClass};
use kube::ResourceExt;
use provisioner::{
    BmcAccess, Cause, CleaningRequest, Failure, Host, HostContext, HostKey, InspectRequest, PowerRequest,
    ProvisionRequest, Provisioner, RecordError, RegisterRequest, Retry, Verdict,
};

use super::machine::KubeMachine;
use super::reconcile::Fetched;
use super::record::wish;
use super::secrets::{FoundCredentials, HostDataError, HostSecrets};
use super::{Context, ReconcileError};

/// Asks the host's provisioner.
pub async fn act(context: &Context, fetched: &Fetched, action: &Action) -> Result<Outcome, ReconcileError> {
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    context.metrics.asking(action);
    let uid = fetched.host.uid().unwrap_or_default();
    let result = match prepare(context, fetched, action).await {
        Ok(mut host) => call(context, fetched, action, host.as_mut()).await,
        Err(failure) => Err(failure),
    };
    let failure = match result {
        Ok(outcome) => {
            context.rests.called(&uid, None);
            return Ok(outcome);
        }
        Err(NotDone::Blocked(message)) => {
            context.metrics.host_data_missing(&message);
            return Ok(Outcome::Blocked { message });
        }
        Err(NotDone::Unread(attempt, source)) => return Err(ReconcileError::Api { attempt, source }),
        Err(NotDone::Failed(failure)) => failure,
    };
    context.metrics.failed(action, failure.cause);
    if failure.cause == Cause::RecordUnreadable {
        context.machines.doubt(&uid);
    }
    context.rests.called(&uid, Some(failure.cause));
    if failure.cause == Cause::NotLeading {
        return Err(ReconcileError::NotLeading);
    }
    // A host that is being deleted may never be able to record anything again (its namespace goes): that is a failure like others, so that the
    // deletion comes to its end.
    if failure.cause == Cause::RecordUnavailable && !fetched.host.is_deleting() {
        return Err(RecordError::new("the operation", failure.message).into());
    }
    tracing::warn!(host = %fetched.host.name_any(), cause = failure.cause.as_str(), "{}", failure.text());
    let retry = match (failure.cause, failure.retry) {
        (Cause::AnotherMachine, _) => RetryClass::AnotherMachine,
        (_, Retry::Later) => RetryClass::Later,
        (_, Retry::AfterChange) => RetryClass::AfterChange,
        (_, Retry::Waiting) => return Ok(Outcome::Blocked { message: failure.text() }),
    };
    Ok(Outcome::Failed { message: failure.text(), retry })
}

/// Why there is no answer.
enum NotDone {
    /// The provisioner could not be asked: something that the host refers to is missing.
    Blocked(String),
    /// The Kubernetes API failed: whether it is missing is not known.
    Unread(&'static str, Box<kube::Error>),
    /// The provisioner failed.
    Failed(Failure),
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<HostDataError> for NotDone {
    fn from(error: HostDataError) -> Self {
        match error {
            HostDataError::Api { source, .. } => Self::Unread("read a Secret that the host refers to", source),
            error => Self::Blocked(error.to_string()),
        }
    }
}

/// The provisioner's object for this host.
async fn prepare(context: &Context, fetched: &Fetched, action: &Action) -> Result<Box<dyn Host>, NotDone> {
    let host = &fetched.host;
    let provisioner = context.registry.choose(host.annotation(annotation::PROVISIONER)).map_err(|e| {
        Failure::new(Cause::InvalidRequest, e.to_string())
            .advise(format!("correct the annotation {}", annotation::PROVISIONER))
    })?;
    if let Some(other) = sharing(context, host, provisioner.as_ref()) {
        let text = format!("reach the BMC: {other} has the same one, and two hosts cannot be one machine");
        return Err(Failure::new(Cause::BmcAddressInvalid, text)
            .advise("correct spec.bmc.address, or delete one of the two")
            .into());
    }
    let bmc = match (&fetched.credentials, &host.spec.bmc) {
        (FoundCredentials::Present(found), Some(bmc)) => Some(BmcAccess {
            address: bmc.address.clone(),
            username: found.username.clone(),
            password: found.password.clone(),
            disable_certificate_verification: bmc.disable_certificate_verification.unwrap_or(false),
        }),
        _ => None,
    };
    let secrets = HostSecrets::new(&context.client, host);
    let agent_network = match action {
        // The agent is not booted for these: a host that is settled does without.
        Action::Adopt | Action::ReadPower | Action::SetPower(_) | Action::Release => None,
        _ if host.is_deleting() => secrets.agent_network().await.unwrap_or_else(|error| {
            // A deletion goes on without what is gone already, or cannot be read.
            tracing::warn!(host = %host.name_any(), "{error}; the agent will use DHCP");
            None
        }),
        _ => secrets.agent_network().await?,
    };
    let status = host.status.clone().unwrap_or_default();
    let machine = Arc::new(KubeMachine::new(context, host, Arc::clone(provisioner)));
    let unread = |error| NotDone::Unread("read the host's record", Box::new(error));
    machine.load().await.map_err(unread)?;
    Ok(provisioner.host(HostContext {
        key: HostKey {
            namespace: host.namespace().unwrap_or_default(),
            name: host.name_any(),
            uid: host.uid().unwrap_or_default(),
        },
        bmc,
        provisioning_id: status.provisioning.id,
        boot_mode: status.provisioning.boot_mode.or(host.spec.boot_mode).unwrap_or_default(),
        agent_network,
        disable_power_off: host.spec.disable_power_off.unwrap_or(false),
        deleting: host.is_deleting(),
        hardware: fetched.hardware_data.as_ref().and_then(|data| data.spec.hardware.clone()),
        accept_machine: host.annotation(annotation::ACCEPT_MACHINE).map(ToOwned::to_owned),
        record: Arc::clone(&machine) as Arc<dyn provisioner::Record>,
        history: Arc::new(context.histories.of(&context.client, host)),
        machine,
        now: {
            let clock = Arc::clone(&context.settings.clock);
            Arc::new(move || clock.now())
        },
        may_act: Arc::clone(&context.settings.may_act),
    })?)
}

/// Another host that is the same machine and has the older right to it: it is registered, or was declared earlier in the same namespace. A host
/// that has never been registered has shown no right to a BMC: it keeps nobody in another namespace from theirs, and is told no names of there.
/// A host that is registered itself, or goes, is not held up.
fn sharing(context: &Context, host: &BareMetalHost, provisioner: &dyn Provisioner) -> Option<String> {
    let all = context.known.get()?.state();
    let key = |h: &BareMetalHost| h.spec.bmc.as_ref().and_then(|b| provisioner.machine_key(&b.address));
    holder(host, all.iter().map(AsRef::as_ref), key)
}

fn holder<'a>(
    host: &BareMetalHost,
    all: impl IntoIterator<Item = &'a BareMetalHost>,
    key: impl Fn(&BareMetalHost) -> Option<String>,
) -> Option<String> {
    let registered = |h: &BareMetalHost| h.status.as_ref().is_some_and(|s| !s.provisioning.id.is_empty());
    if registered(host) || host.is_deleting() {
        return None;
    }
    let mine = key(host)?;
    let near = |other: &BareMetalHost| other.metadata.namespace == host.metadata.namespace;
    let earlier = |other: &BareMetalHost| {
        registered(other)
            || near(other)
                && (&other.metadata.creation_timestamp, other.uid()) < (&host.metadata.creation_timestamp, host.uid())
    };
    let mut others = all.into_iter().filter(|o| o.uid() != host.uid() && key(o).as_ref() == Some(&mine) && earlier(o));
    let found = others.next()?;
    let namespace = found.namespace().unwrap_or_default();
    Some(if near(found) {
        format!("{namespace}/{}", found.name_any())
    } else {
        "a host in another namespace".to_owned()
    })
}

async fn call(context: &Context, fetched: &Fetched, action: &Action, host: &mut dyn Host) -> Result<Outcome, NotDone> {
    let overwrite_owner = fetched.host.annotation(annotation::OVERWRITE_OWNER).map(ToOwned::to_owned);
    Ok(match action {
        Action::Register { credentials_changed } => {
            let request = RegisterRequest { credentials_changed: *credentials_changed };
            outcome(host.register(request).await?, |r| Outcome::Registered { id: r.id, powered_on: r.powered_on })
        }
        Action::Adopt => outcome(host.adopt().await?, |()| Outcome::Done),
        Action::Inspect { restart } => outcome(
            host.inspect(InspectRequest { wish: wish(&fetched.host, OperationType::Inspect), restart: *restart })
                .await?,
            Outcome::Inspected,
        ),
        Action::ReadPower => outcome(host.power_state().await?, Outcome::Power),
        Action::SetPower(wish) => {
            let request = match wish {
                PowerWish::On => PowerRequest::On,
                PowerWish::SoftOff => PowerRequest::SoftOff,
                PowerWish::HardOff => PowerRequest::HardOff,
            };
            outcome(host.set_power(request).await?, Outcome::Power)
        }
        Action::Provision => {
            let secrets = HostSecrets::new(&context.client, &fetched.host);
            let config_drive = Some(secrets.config_drive().await?);
            let status = fetched.host.status.clone().unwrap_or_default();
            let request = ProvisionRequest {
                wish: wish(&fetched.host, OperationType::Provision),
                // What the attempt began with: an edit of spec.image in the middle makes another attempt.
                image: status.last_attempted_image.or_else(|| fetched.host.spec.image.clone()).unwrap_or_default(),
                root_device_hints: status.provisioning.root_device_hints.unwrap_or_default(),
                config_drive,
                overwrite_owner,
            };
            outcome(host.provision(request).await?, |()| Outcome::Done)
        }
        Action::Deprovision { clean, restart } => {
            let status = fetched.host.status.as_ref();
            let root_device_hints = status.and_then(|status| status.provisioning.root_device_hints.clone());
            let request = CleaningRequest {
                wish: wish(&fetched.host, OperationType::Deprovision),
                clean: *clean,
                overwrite_owner,
                root_device_hints: root_device_hints.unwrap_or_default(),
                restart: *restart,
            };
            outcome(host.deprovision(request).await?, |()| Outcome::Done)
        }
        Action::Release => outcome(host.release().await?, |()| Outcome::Done),
    })
}

fn outcome<T>(verdict: Verdict<T>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    match verdict {
        Verdict::Done(value) => done(value),
        Verdict::Working(working) => Outcome::Working { look_again: working.look_again },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::metal3::{BareMetalHostSpec, BareMetalHostStatus, Bmc};

    fn host(namespace: &str, name: &str, second: i64, registered: bool) -> BareMetalHost {
        let bmc = Bmc { address: "a".into(), ..Bmc::default() };
        let mut host = BareMetalHost::new(name, BareMetalHostSpec { bmc: Some(bmc), ..BareMetalHostSpec::default() });
        host.metadata.namespace = Some(namespace.into());
        host.metadata.uid = Some(format!("{namespace}/{name}"));
        host.metadata.creation_timestamp = jiff::Timestamp::from_second(second).ok().map(api::Time);
        if registered {
            let mut status = BareMetalHostStatus::default();
            status.provisioning.id = "id".into();
            host.status = Some(status);
        }
        host
    }

    #[test]
    fn a_host_that_was_never_registered_blocks_nobody_elsewhere_and_learns_no_names() {
        let held = |host: &BareMetalHost, other: &BareMetalHost| {
            holder(host, [host, other], |h| h.spec.bmc.as_ref().map(|b| b.address.clone()))
        };
        let mine = host("mine", "n", 10, false);
        assert_eq!(held(&mine, &host("other", "squatter", 1, false)), None);
        assert_eq!(held(&mine, &host("other", "secret", 20, true)).as_deref(), Some("a host in another namespace"));
        assert_eq!(held(&mine, &host("mine", "older", 1, false)).as_deref(), Some("mine/older"));
        assert_eq!(held(&mine, &host("mine", "younger", 20, false)), None);
        assert_eq!(held(&host("mine", "n", 10, true), &host("other", "x", 1, true)), None);
    }
}
