//! From a decided action to the provisioner's call, and from its answer to the life cycle's outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use api::metal3::{
    BareMetalHost, FirmwareComponent, InspectionMode, ProvisioningState as State, SettingSchema, annotation,
};
use api::metamorph::{AgentStep, EraseOptions, MachineRecord, OperationType};
use host_lifecycle::{
    Action, FirmwareFacts, FirmwareSetting, HealthHeard, Outcome, Targets, detached_by_force, hints_to_be,
    inspection_disabled, is_firmware_taken, is_reboot_forced, is_registered_since_made, setting_text,
    wished_root_device_hints,
};
use image_sources::Sources;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use provisioner::{
    AdoptRequest, Answer, Attached, BmcAccess, Call, Cause, CleaningRequest, EraseRequest, EvidenceBudget, Failure,
    Finding, FirmwareTargets, FirmwareUpdate, HealthState, Host, HostContext, InspectRequest, Method, PowerRequest,
    PrepareRequest, ProvisionRequest, Provisioner, RecordError, RegisterRequest, ReleaseRequest, Restored, Retry,
    ServiceRequest, Setting, StepsRequest, Verdict, Waiting, ask,
};

use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::begun::is_registered_here;
use super::choice::tell_of_earlier;
use super::context::Context;
use super::error::ReconcileError;
use super::facts::{asked_for, deployed, method_of, wish};
use super::failing::failure_of;
use super::fetched::Fetched;
use super::machine::KubeMachine;
use super::seal::Seals;
use super::secrets::{DataField, FoundCredentials, HostDataError, HostSecrets};
use super::sources;

/// How often in a row the record of a host that is being deleted may be unavailable before that is reported as the host's failure.
const RECORD_TRIES: u32 = 2;
/// The same for a service that has not begun, for which a machine in use is off: half a minute.
const RECORD_TRIES_IN_USE: u32 = 6;
/// Longest call of a provisioner. The slowest BMCs take some minutes for one; one that answers each of many requests just in time, or a provisioner
/// that never answers, would hold its host without a word.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(20 * 60);

/// Whether what the action was decided from still stands: the view may be behind, and the turn have taken minutes. Other work asks at each effect, of the host alone.
async fn is_still_decided(context: &Context, fetched: &Fetched, action: &Action) -> Result<bool, ReconcileError> {
    Ok(match action {
        Action::SetPower(_) | Action::Release => is_as_decided(context, &fetched.host).await?,
        Action::Prepare { targets, .. } | Action::Service { targets, .. } => {
            let service = matches!(action, Action::Service { .. }) && !targets.is_empty();
            context.beside.are_as_decided(&context.client, &fetched.beside, targets, service).await?
        }
        Action::AttachMedia { .. } | Action::DetachMedia => {
            context.beside.has_decided_medium(&context.client, &fetched.beside).await?
        }
        _ => true,
    })
}

/// Asks the host's provisioner. `None` if the host has changed since the decision, and is to be decided on again.
pub async fn act(context: &Context, fetched: &Fetched, action: &Action) -> Result<Option<Outcome>, ReconcileError> {
    if !(context.settings.may_act)() {
        return Err(ReconcileError::NotLeading);
    }
    context.metrics.asking(action);
    let uid = fetched.host.uid().unwrap_or_default();
    let _turn = context.turns.of(&uid).await;
    if !is_still_decided(context, fetched, action).await? {
        return Ok(None);
    }
    if let (Action::Register { .. }, Ok(provisioner)) = (action, &fetched.choice) {
        tell_of_earlier(context, &fetched.host, provisioner.as_ref()).await;
    }
    let result = match prepare(context, fetched, action).await {
        // What an abandoned call has begun stands in the provisioner's record, which is read anew: a write may still arrive.
        Ok(mut host) => match timeout(LONGEST_CALL, call(context, fetched, action, host.as_mut())).await {
            Ok(result) => result,
            Err(_) => {
                context.machines.invalidate(&uid);
                Err(endless(action, &fetched.host).into())
            }
        },
        Err(not_done) => Err(not_done),
    };
    let failure = match result {
        Ok(outcome) => {
            context.rests.called(&uid, None);
            return Ok(Some(outcome));
        }
        Err(NotDone::Blocked { field, message }) => {
            context.metrics.host_data_missing(field.label());
            return Ok(Some(Outcome::Blocked { message }));
        }
        Err(NotDone::Unread(attempt, source)) => return Err(ReconcileError::Api { attempt, source }),
        Err(NotDone::Failed(failure)) => failure,
    };
    if failure.retry != Retry::Held {
        context.metrics.failed(action, failure.cause);
    }
    if failure.cause == Cause::RecordUnreadable {
        context.machines.invalidate(&uid);
    }
    context.rests.called(&uid, Some((failure.cause, failure.text())));
    if failure.cause == Cause::NotLeading {
        return Err(ReconcileError::NotLeading);
    }
    // What cannot be recorded is not done, and is no failure of the host. A deletion reports it and waits: giving up would leave the disks untouched.
    // At first, the record may have been deleted with the host; it is read again.
    let stumbled = context.stumbles.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).copied().unwrap_or(0);
    let unrecorded = failure.cause == Cause::RecordUnavailable;
    let comes_on_without = unrecorded
        && matches!(action, Action::Service { .. })
        && failure.retry != Retry::Waiting
        && stumbled >= RECORD_TRIES_IN_USE;
    if unrecorded && !comes_on_without && (!fetched.host.is_deleting() || stumbled < RECORD_TRIES) {
        return Err(RecordError::new("the operation", failure.message).into());
    }
    let said = fetched.host.status.as_ref().is_some_and(|status| status.error_message.starts_with(&failure.text()));
    if failure.retry == Retry::Held && said {
        tracing::debug!(host = %fetched.host.name_any(), "held as before");
    } else {
        tracing::warn!(host = %fetched.host.name_any(), cause = failure.cause.as_str(), "{}", failure.text());
    }
    let retry = match failure.cause {
        // What is held is looked at again by itself; a deletion waits for no machine that is not the host's.
        Cause::AnotherMachine if failure.retry != Retry::Held || fetched.host.is_deleting() => Retry::AnotherMachine,
        Cause::RecordUnavailable if !comes_on_without => Retry::Held,
        Cause::BmcCredentialsRefused if host_lifecycle::is_new_here(&fetched.host) => Retry::AfterChange,
        _ => failure.retry,
    };
    Ok(Some(Outcome::Failed { message: failure.text(), retry }))
}

/// Whether the host is still the one that was decided on.
async fn is_as_decided(context: &Context, host: &Arc<BareMetalHost>) -> Result<bool, ReconcileError> {
    let api: Api<BareMetalHost> = Api::namespaced(context.client.clone(), &host.namespace().unwrap_or_default());
    let now = api.get_metadata_opt(&host.name_any()).await.map_err(ReconcileError::api("read the host again"))?;
    let same = now.is_some_and(|now| now.uid() == host.uid() && now.resource_version() == host.resource_version());
    if !same {
        context.hosts.doubt(&ObjectRef::from_obj(host.as_ref()));
    }
    Ok(same)
}

/// Work that was asked for is not failed by it: it may have come to its end, and a system that is written must not be written again. A deletion gives
/// up in the end, as with other faults of a BMC.
pub(super) fn endless(action: &Action, host: &BareMetalHost) -> Failure {
    let works = matches!(
        action,
        Action::Inspect { .. }
            | Action::Provision
            | Action::Deprovision { .. }
            | Action::Erase { .. }
            | Action::RunSteps { .. }
            | Action::Prepare { .. }
            | Action::Service { .. }
    );
    let retry = if works && !host.is_deleting() { Retry::Waiting } else { Retry::Later };
    let text = format!(
        "ask the provisioner: no end within {} minutes, of which it may have waited for other hosts of the same BMC",
        LONGEST_CALL.as_secs() / 60
    );
    Failure { retry, ..Failure::new(Cause::BmcBusy, text) }
        .advise("look at the BMC and at the network on the way to it, and restart it if it is slow; it is asked again")
}

/// Why there is no answer.
pub(super) enum NotDone {
    /// The provisioner could not be asked: what this field of the host refers to is missing.
    Blocked { field: DataField, message: String },
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
            HostDataError::Api { source, .. } => Self::Unread("read a Secret or ConfigMap that the host needs", source),
            HostDataError::Unusable { field, .. } | HostDataError::Forbidden { field, .. } => {
                Self::Blocked { field, message: error.to_string() }
            }
            HostDataError::Sources(_) => Self::Blocked { field: DataField::Images, message: error.to_string() },
        }
    }
}

/// The provisioner's object for this host.
pub(super) async fn prepare(context: &Context, fetched: &Fetched, action: &Action) -> Result<Box<dyn Host>, NotDone> {
    let host = &fetched.host;
    let provisioner = fetched.choice.as_ref().map_err(Clone::clone)?;
    if let Some(other) = sharing(context, host, provisioner.as_ref()) {
        let text = format!("reach the BMC: {other} has the same one, and two hosts cannot be one machine");
        return Err(Failure::new(Cause::BmcAddressInvalid, text)
            .advise("correct spec.bmc.address, or delete one of the two")
            .into());
    }
    let bmc = match (&fetched.credentials, &host.spec.bmc) {
        (FoundCredentials::Present(found), Some(bmc)) => found.login().map(|login| BmcAccess {
            address: bmc.address.clone(),
            username: login.username.clone(),
            password: login.password.clone(),
            disable_certificate_verification: bmc.disable_certificate_verification.unwrap_or(false),
        }),
        _ => None,
    };
    let secrets = HostSecrets::new(context, host);
    let agent_network = match action {
        // These do not boot the agent.
        Action::Inspect { .. } if host.spec.inspection_mode == Some(InspectionMode::Fast) => None,
        Action::Adopt | Action::ReadPower | Action::SetPower(_) | Action::Release => None,
        Action::AttachMedia { .. } | Action::DetachMedia | Action::CheckMedia { .. } | Action::LookAtMedia => None,
        _ if host.is_deleting() => secrets.agent_network().await.unwrap_or_else(|error| {
            // A deletion goes on without network data that is deleted or cannot be read.
            tracing::warn!(host = %host.name_any(), "{error}; the agent will use DHCP");
            None
        }),
        _ => secrets.agent_network().await?,
    };
    // A service switches the machine on, as its host wishes.
    let switches = matches!(action, Action::SetPower(_) | Action::Service { .. });
    let machine = KubeMachine::new(context, host, Arc::clone(provisioner)).switching(switches);
    let machine = Arc::new(machine.asked_by(match action {
        Action::Erase { .. } => Some(annotation::ERASE),
        Action::RunSteps { .. } => Some(annotation::STEPS),
        _ => None,
    }));
    let unread = |error| NotDone::Unread("read the host's record", Box::new(error));
    machine.load().await.map_err(unread)?;
    machine.check()?;
    let mut facts = Arc::clone(&fetched.facts);
    if agent_network.is_some() {
        Arc::make_mut(&mut facts).agent_network = agent_network;
    }
    // A host at rest that is detached keeps what its system uses, also if its deletion waits for that.
    let rests =
        matches!(host.state(), State::Provisioned | State::ExternallyProvisioned | State::Available | State::Ready);
    if *action == Action::Release && rests && host.is_deleting() {
        Arc::make_mut(&mut facts).deleting = false;
    }
    Ok(provisioner.host(HostContext {
        facts,
        bmc,
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

/// Another host of the same machine with the older right to it: it is registered, or was declared earlier in the same namespace. A host of another
/// namespace has to have proved its registration, so that nobody blocks an address by making a host up, and no host learns names from another
/// namespace. A host that is registered or being deleted is never blocked.
fn sharing(context: &Context, host: &BareMetalHost, provisioner: &dyn Provisioner) -> Option<String> {
    let known = context.hosts.store()?;
    let key = |h: &BareMetalHost| h.spec.bmc.as_ref().and_then(|b| provisioner.machine_key(&b.address));
    let there = context.index.at_machine(provisioner.name(), &key(host)?);
    let there: Vec<_> = there.iter().filter_map(|other| known.get(other)).collect();
    let record = |h: &BareMetalHost| {
        let name = ObjectRef::new(&h.name_any()).within(&h.namespace().unwrap_or_default());
        context.records.store()?.get(&name)
    };
    let has_proved = |h: &BareMetalHost| {
        let at_key = |address: &str| provisioner.machine_key(address).is_some_and(|at| key(h) == Some(at));
        record(h).is_some_and(|record| proves(&context.seals, &record, h, at_key))
    };
    holder(host, there.iter().map(AsRef::as_ref), key, has_proved)
}

/// Whether this server has registered the host at its BMC's address: it has sealed a record that says so, and the host's status tells of a
/// registration since the object was created. A status that was restored, or a record that somebody else has written, proves nothing.
fn proves(seals: &Seals, record: &MachineRecord, host: &BareMetalHost, at_key: impl Fn(&str) -> bool) -> bool {
    let spec = &record.spec;
    let is_of_host = spec.host.uid.is_some() && spec.host.uid == host.uid();
    is_registered_here(host) && is_of_host && at_key(&spec.bmc_address) && seals.since(record).is_some()
}

fn holder<'a>(
    host: &BareMetalHost,
    all: impl IntoIterator<Item = &'a BareMetalHost>,
    key: impl Fn(&BareMetalHost) -> Option<String>,
    has_proved: impl Fn(&BareMetalHost) -> bool,
) -> Option<String> {
    let registered = |h: &BareMetalHost| h.status.as_ref().is_some_and(|s| !s.provisioning.id.is_empty());
    if registered(host) || host.is_deleting() {
        return None;
    }
    let mine = key(host)?;
    let near = |other: &BareMetalHost| other.metadata.namespace == host.metadata.namespace;
    let age = |host: &BareMetalHost| (host.metadata.creation_timestamp.clone(), host.uid());
    let earlier = |other: &BareMetalHost| {
        if near(other) { registered(other) || age(other) < age(host) } else { registered(other) && has_proved(other) }
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
    if matches!(action, Action::AttachMedia { .. } | Action::DetachMedia) {
        // The status may be old, and what a running system is shown stays.
        let power = outcome(&fetched.host, ask(host, Call::PowerState).await?)?;
        if power != Outcome::Power(false) {
            return Ok(power);
        }
    }
    let call = request(context, fetched, action).await?;
    let verdict = ask(host, call).await?;
    let (uid, now) = (fetched.host.uid().unwrap_or_default(), context.settings.clock.now());
    context.heard.note(&uid, fetched.host.state(), action, &verdict, now);
    let outcome = outcome(&fetched.host, verdict)?;
    // Both have just looked at the machine.
    let looked =
        *action == Action::ReadPower || matches!(outcome, Outcome::Registered { .. } | Outcome::Recognized { .. });
    if looked && host.health().is_some() {
        note_health(context, &fetched.host, host, outcome != Outcome::Power(false)).await;
    }
    let runs_live = *action == Action::ReadPower && outcome == Outcome::Power(true) && host.live_media().is_some() && {
        let deployed = deployed(&fetched.host);
        deployed.method == Method::LiveIso && !deployed.externally
    };
    if !runs_live {
        return Ok(outcome);
    }
    match ask(host, Call::LiveFindings).await {
        Ok(Verdict::Done(Answer::Findings(found))) if !found.is_empty() => {
            Ok(Outcome::PowerTold { on: true, message: sentences(&found) })
        }
        Ok(_) => Ok(outcome),
        // The power is known all the same.
        Err(failure) => {
            tracing::debug!(host = %fetched.host.name_any(), "the live system is not looked at: {}", failure.message);
            Ok(outcome)
        }
    }
}

/// Asks how the machine is, beside its power. It is known from the same look, or not at all.
async fn note_health(context: &Context, about: &BareMetalHost, host: &mut dyn Host, is_on: bool) {
    match ask(host, Call::Health).await {
        // Of a machine that is off many BMCs know nothing, and what was last known is still true.
        Ok(Verdict::Done(Answer::Health(HealthState { level, .. }))) if level.is_some() || is_on => {
            let uid = about.uid().unwrap_or_default();
            let heard = level.map_or(HealthHeard::Silence, HealthHeard::Level);
            context.health.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, heard);
        }
        Ok(_) => {}
        Err(failure) => tracing::debug!(host = %about.name_any(), "how the machine is: {}", failure.message),
    }
}

fn erase(host: &BareMetalHost, options: &EraseOptions, restart: bool) -> Call {
    Call::Erase(Box::new(EraseRequest {
        wish: wish(host, OperationType::Erase),
        method: options.method,
        // A list without any disk is refused when it is asked for.
        disks: options.disks.clone().unwrap_or_default(),
        overwrite_owner: host.annotation(annotation::OVERWRITE_OWNER).map(ToOwned::to_owned),
        restart,
    }))
}

fn run_steps(host: &BareMetalHost, steps: &[AgentStep], restart: bool) -> Call {
    let hints = host.status.as_ref().and_then(|status| hints_to_be(host, status));
    Call::RunSteps(Box::new(StepsRequest {
        wish: wish(host, OperationType::Steps),
        steps: steps.to_vec(),
        root_device_hints: hints.unwrap_or_default(),
        restart,
    }))
}

/// The call for the action, with all that it needs.
async fn request(context: &Context, fetched: &Fetched, action: &Action) -> Result<Call, NotDone> {
    let host = &fetched.host;
    let overwrite_owner = host.annotation(annotation::OVERWRITE_OWNER).map(ToOwned::to_owned);
    let status = host.status.as_ref();
    let restart = status.is_some_and(|status| status.error_count > 0);
    Ok(match action {
        Action::Register { credentials_changed } => Call::Register(RegisterRequest {
            credentials_changed: *credentials_changed,
            restart,
            deployed: deployed(host),
            asks_for: is_new(host).then(|| asked_for(host)),
            has_past: is_new(host) && has_past(fetched),
            is_claimed: host.spec.consumer_ref.is_some(),
            known_since: fetched.inspected().and_then(|data| Some(data.metadata.creation_timestamp.as_ref()?.0)),
            restored: restored(host),
            overwrite_owner,
        }),
        Action::Adopt => Call::Adopt(AdoptRequest { deployed: deployed(host), restart }),
        Action::Inspect { restart } => Call::Inspect(InspectRequest {
            wish: wish(host, OperationType::Inspect),
            mode: host.spec.inspection_mode,
            refresh: status.is_some_and(|status| status.hardware.is_some()),
            force_reboot: is_reboot_forced(host),
            restart: *restart,
        }),
        Action::ReadPower => Call::PowerState,
        Action::SetPower(power) => Call::SetPower(PowerRequest { power: *power, restart }),
        Action::Provision => Call::Provision(Box::new(provision(context, host).await?)),
        Action::Deprovision { clean, empty, restart } => Call::Deprovision(Box::new(CleaningRequest {
            wish: wish(host, OperationType::Deprovision),
            deployed: deployed(host),
            clean: *clean,
            empty: *empty,
            overwrite_owner,
            // As the host names it now: hints that have been corrected since spare what they named before. What was written carries the host's mark.
            root_device_hints: status.and_then(|status| hints_to_be(host, status)).unwrap_or_default(),
            restart: *restart,
        })),
        Action::Erase { options, restart } => erase(host, options, *restart),
        Action::RunSteps { steps, restart } => run_steps(host, steps, *restart),
        Action::Release => Call::Release(ReleaseRequest { force: detached_by_force(host) }),
        // What was accepted is no longer wished: abort it.
        Action::Prepare { targets, .. } if targets.is_empty() && !is_firmware_taken(&fetched.view(context)) => {
            Call::AbortPrepare
        }
        Action::Prepare { targets, restart } => Call::Prepare(Box::new(PrepareRequest {
            wish: made(targets),
            raid: targets.raid.as_ref().map(|raid| raid.wished.clone()),
            actual_raid: targets.raid.as_ref().and_then(|raid| raid.present.clone()),
            root_device_hints: targets.root_device_hints.clone().unwrap_or_default(),
            firmware: firmware(targets),
            unprepared: !targets.is_empty(),
            restart: *restart,
        })),
        // What was accepted is no longer wished: abort it.
        Action::Service { targets, .. } if targets.is_empty() && !is_firmware_taken(&fetched.view(context)) => {
            Call::AbortService
        }
        Action::Service { targets, restart } => Call::Service(Box::new(ServiceRequest {
            wish: made(targets),
            firmware: firmware(targets),
            unprepared: !targets.is_empty(),
            restart: *restart,
        })),
        Action::AttachMedia { url } => Call::AttachImage { url: url.clone() },
        Action::CheckMedia { url } => Call::CheckImage { url: url.clone() },
        Action::DetachMedia | Action::LookAtMedia => of_media(action),
        Action::RefreshFacts => Call::FirmwareFacts { bounds: true },
        Action::Diagnose => Call::Diagnose(EvidenceBudget::default()),
    })
}

/// Whether it has never been registered, by what its status says, and is to be this server's.
fn is_new(host: &BareMetalHost) -> bool {
    let is_registered = host.status.as_ref().is_some_and(|status| !status.provisioning.id.is_empty());
    !is_registered && !host.is_deleting() && host.spec.externally_provisioned != Some(true)
}

/// What its status tells, if that is older than the host, and is to be this server's.
fn restored(host: &BareMetalHost) -> Option<Restored> {
    let status = host.status.as_ref().filter(|status| !status.provisioning.id.is_empty())?;
    // A status tells of somebody else's system for as long as the spec does.
    let is_restored = host.spec.externally_provisioned != Some(true) && !is_registered_since_made(host);
    let provisioning = status.operation_history.provision.start.as_ref().map(|start| start.0);
    let stays = matches!(host.state(), State::Provisioned | State::ExternallyProvisioned);
    is_restored.then_some(Restored { provisioning, stays })
}

/// Whether it has had a life before that its status does not tell of: hosts get a consumer when they are available, and HardwareData by an inspection,
/// unless there is to be none.
fn has_past(fetched: &Fetched) -> bool {
    let host = &fetched.host;
    host.spec.consumer_ref.is_some() || fetched.inspected().is_some() && !inspection_disabled(host)
}

/// What provisioning needs.
async fn provision(context: &Context, host: &BareMetalHost) -> Result<ProvisionRequest, NotDone> {
    let status = host.status.as_ref();
    // The image that the attempt began with: an edit of spec.image meanwhile leads to another attempt.
    let attempted = status.and_then(|status| status.last_attempted_image.clone());
    let mut image = attempted.or_else(|| host.spec.image.clone()).unwrap_or_default();
    // Who may read it is no part of what it is: another Secret counts at once.
    if let Some(wished) = host.spec.image.as_ref().filter(|wished| wished.url == image.url) {
        image.oci_auth_secret_name.clone_from(&wished.oci_auth_secret_name);
    }
    let failed = status.map_or(0, |status| status.provisioning_fail_count.max(0));
    let secrets = HostSecrets::new(context, host);
    let sources = match sources::of_namespace(context, &host.namespace().unwrap_or_default()).await {
        // For the provisioner to judge: it stops nothing that is written already.
        Err(HostDataError::Sources(fault)) => Sources { fault: Some(fault), ..Sources::default() },
        sources => sources?,
    };
    Ok(ProvisionRequest {
        wish: wish(host, OperationType::Provision),
        attempt: u32::try_from(failed).unwrap_or(u32::MAX).saturating_add(1),
        method: method_of(host.spec.custom_deploy.as_ref(), &image),
        config_drive: Some(secrets.config_drive().await?),
        pull_secret: secrets.pull_secret(&image).await?,
        sources,
        image,
        root_device_hints: status.and_then(|s| s.provisioning.root_device_hints.clone()).unwrap_or_default(),
        overwrite_owner: host.annotation(annotation::OVERWRITE_OWNER).map(ToOwned::to_owned),
        force_reboot: is_reboot_forced(host),
    })
}

/// The call about the medium that is in.
fn of_media(action: &Action) -> Call {
    if *action == Action::DetachMedia { Call::DetachImage } else { Call::AttachedImage }
}

/// Identity of the targets; `None` if there are none and the work under way goes on.
fn made(targets: &Targets) -> Option<String> {
    if targets.is_empty() {
        return None;
    }
    let wished = targets.settings.as_ref().map(|settings| {
        let texts: BTreeMap<_, _> = settings.wished.iter().map(|(name, value)| (name, setting_text(value))).collect();
        (texts, settings.since)
    });
    let raid = targets.raid.as_ref().map(|raid| &raid.wished);
    // Which disk the image will go to matters to volumes alone; an edit of it ends no flashing.
    let hints = targets.raid.as_ref().and(targets.root_device_hints.as_ref());
    let asked = serde_json::json!([raid, wished, targets.updates, hints]);
    Some(hex::encode(&Sha256::digest(asked.to_string().as_bytes())[..8]))
}

fn firmware(targets: &Targets) -> FirmwareTargets {
    let (wished, present) = targets.settings.clone().map(|settings| (settings.wished, settings.present)).unzip();
    let setting = |value| match value {
        IntOrString::Int(number) => Setting::Number(number.into()),
        IntOrString::String(text) => Setting::Text(text),
    };
    let settings = wished.unwrap_or_default().into_iter().map(|(name, value)| (name, setting(value)));
    let update = |update: &api::metal3::FirmwareUpdate| FirmwareUpdate {
        component: update.component.clone(),
        url: update.url.clone(),
    };
    FirmwareTargets {
        settings: settings.collect(),
        actual_settings: present.unwrap_or_default(),
        updates: targets.updates.iter().map(update).collect(),
    }
}

fn facts_of(read: provisioner::FirmwareFacts) -> FirmwareFacts {
    let component = |found: provisioner::InstalledFirmware| FirmwareComponent {
        component: found.component,
        initial_version: found.initial_version,
        current_version: Some(found.version),
        last_version_flashed: found.flashed_version,
        updated_at: found.updated.map(api::Time),
    };
    FirmwareFacts {
        settings: read
            .settings
            .map(|settings| settings.into_iter().map(|(name, fact)| (name, setting_of(fact))).collect()),
        components: read.components.unwrap_or_default().into_iter().map(component).collect(),
    }
}

/// Types that a FirmwareSchema can name (its `attribute_type`).
const TYPES: [&str; 5] = ["Enumeration", "String", "Integer", "Boolean", "Password"];

fn setting_of(fact: provisioner::SettingFact) -> FirmwareSetting {
    let schema = SettingSchema {
        attribute_type: fact.kind.filter(|kind| TYPES.contains(&kind.as_str())),
        allowable_values: fact.allowed,
        lower_bound: fact.lower_bound,
        upper_bound: fact.upper_bound,
        min_length: fact.min_length.map(i64::from),
        max_length: fact.max_length.map(i64::from),
        read_only: fact.read_only,
        unique: fact.unique,
    };
    FirmwareSetting { value: fact.value, schema }
}

fn sentences(findings: &[Finding]) -> String {
    let sentence = |finding: &Finding| {
        let place = if finding.component.is_empty() { String::new() } else { format!("{}: ", finding.component) };
        let advice = finding.advice.as_ref().map(|advice| format!(" — {advice}")).unwrap_or_default();
        format!("{place}{}{advice}", finding.message)
    };
    if findings.is_empty() {
        "Nothing was found".to_owned()
    } else {
        findings.iter().map(sentence).collect::<Vec<_>>().join("; ")
    }
}

fn outcome(host: &BareMetalHost, verdict: Verdict<Answer>) -> Result<Outcome, Failure> {
    Ok(match verdict {
        Verdict::Done(Answer::Done) => Outcome::Done,
        Verdict::Done(Answer::Deprovisioned(done)) => {
            if done.wiped {
                Outcome::Wiped
            } else if done.untouched {
                Outcome::Untouched
            } else {
                Outcome::Done
            }
        }
        Verdict::Done(Answer::Erased(erasure)) => Outcome::Erased(erasure),
        // Whoever tells it.
        Verdict::Done(Answer::Stepped(report)) => Outcome::Stepped(Box::new(report.bounded())),
        Verdict::Done(Answer::Registered(found)) if found.recognized => Outcome::Recognized {
            id: found.id,
            powered_on: found.powered_on,
            image: Box::new(host.spec.image.clone().unwrap_or_default()),
            root_device_hints: wished_root_device_hints(host).map(Box::new),
        },
        Verdict::Done(Answer::Registered(found)) => Outcome::Registered { id: found.id, powered_on: found.powered_on },
        // An unknown power state leaves the last known one.
        Verdict::Done(Answer::Power(on)) => {
            Outcome::Power(on.unwrap_or_else(|| host.status.as_ref().is_some_and(|status| status.powered_on)))
        }
        Verdict::Done(Answer::Inspected(mut found)) => {
            // Whoever has looked: what is written must be such that it can be.
            found.hardware = found.hardware.bounded();
            found.links = inventory::links::bounded(&found.links);
            found.devices = found.devices.bounded();
            found.hardware.fits("the provisioner reports").map_err(|text| Failure::new(Cause::HardwareFailed, text))?;
            Outcome::Inspected(found)
        }
        Verdict::Done(Answer::Attached(Attached::Url(url))) => Outcome::Medium(Some(url)),
        Verdict::Done(Answer::Attached(Attached::Nothing)) => Outcome::Medium(None),
        Verdict::Done(Answer::Attached(Attached::Something)) => Outcome::Done,
        Verdict::Done(Answer::Firmware(facts)) => Outcome::Firmware(Box::new(facts_of(facts))),
        Verdict::Done(Answer::Evidence(evidence)) => {
            let evidence = diagnosis::Evidence { failure: Some(failure_of(host)), ..*evidence };
            Outcome::Diagnosed { finding: diagnosis::diagnose(&evidence).line() }
        }
        Verdict::Done(other) => {
            return Err(Failure::new(
                Cause::Internal,
                format!("the provisioner answers what was not asked: {other:?}"),
            ));
        }
        Verdict::Working(working) if working.accepted => Outcome::Accepted { look_again: working.look_again },
        Verdict::Working(working) => Outcome::Working { look_again: working.look_again },
        Verdict::Waiting(Waiting::Busy { reason, look_again }) => {
            let message = format!("The provisioner has as much to do as it can: {reason}");
            Outcome::Busy { message, look_again }
        }
        Verdict::Waiting(Waiting::Registration { reason }) => {
            tracing::warn!(host = %host.name_any(), "the provisioner does not know the machine any more: {reason}; it is registered again");
            Outcome::NeedsRegistration
        }
        Verdict::Waiting(Waiting::AgentImage { .. }) => Outcome::NeedsImage,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::seal::SealKeys;
    use api::metal3::{BareMetalHostSpec, BareMetalHostStatus, Bmc};
    use api::metamorph::{HostReference, MachineRecordSpec};
    use host_lifecycle::SettingsTarget;

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
        let held = |host: &BareMetalHost, other: &BareMetalHost, proved: bool| {
            holder(host, [host, other], |h| h.spec.bmc.as_ref().map(|b| b.address.clone()), |_| proved)
        };
        let mine = host("mine", "n", 10, false);
        assert_eq!(held(&mine, &host("other", "squatter", 1, false), true), None);
        let near = host("other", "secret", 20, true);
        assert_eq!(held(&mine, &near, true).as_deref(), Some("a host in another namespace"));
        assert_eq!(held(&mine, &near, false), None, "its status alone says that it is registered");
        assert_eq!(held(&mine, &host("mine", "older", 1, false), false).as_deref(), Some("mine/older"));
        assert_eq!(held(&mine, &host("mine", "registered", 20, true), false).as_deref(), Some("mine/registered"));
        assert_eq!(held(&mine, &host("mine", "younger", 20, false), false), None);
        assert_eq!(held(&host("mine", "n", 10, true), &host("other", "x", 1, true), true), None);
    }

    #[test]
    fn a_registration_is_proved_by_a_sealed_record_and_a_status_of_this_server() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let seals = Seals::new(SealKeys::new([7; 32], Vec::new()));
        let mut other = host("other", "n", 10, true);
        other.status.as_mut().unwrap().operation_history.register.end = Some(api::Time(at(20)));
        let record = |uid: &str, address: &str| {
            let reference = HostReference { name: "n".into(), uid: Some(uid.into()) };
            let spec =
                MachineRecordSpec { host: reference, bmc_address: address.into(), ..MachineRecordSpec::default() };
            let mut record = MachineRecord::new("n", spec);
            record.metadata.namespace = Some("other".into());
            record.spec.seal = seals.seal(&record, None, true, at(20));
            record
        };
        let proves = |record: &MachineRecord, host: &BareMetalHost| proves(&seals, record, host, |key| key == "a");
        let good = record("other/n", "a");
        assert!(proves(&good, &other));
        assert!(!proves(&record("other/n", "b"), &other), "it has been at another BMC");
        assert!(!proves(&record("earlier", "a"), &other), "it was an earlier host");
        let mut made_up = good.clone();
        made_up.spec.seal = None;
        assert!(!proves(&made_up, &other), "nobody has sealed it");
        let mut edited = record("other/n", "b");
        edited.spec.bmc_address = "a".into();
        assert!(!proves(&edited, &other));
        other.status.as_mut().unwrap().operation_history.register.end = Some(api::Time(at(9)));
        assert!(!proves(&good, &other), "its status was restored");
    }

    #[test]
    fn what_a_provisioner_has_found_can_be_written() {
        let nic = inventory::Nic { mac: Some("none".into()), vlan_id: Some(4095), ..inventory::Nic::default() };
        let found = |nics| {
            let hardware = inventory::HardwareDetails { nics, ..inventory::HardwareDetails::default() };
            outcome(&host("a", "h", 1, true), Verdict::Done(Answer::Inspected(Box::new(hardware.into()))))
        };
        let Ok(Outcome::Inspected(taken)) = found(vec![nic]) else { panic!("it is no failure") };
        assert_eq!(taken.hardware.nics, [inventory::Nic::default()], "the definitions refuse an object with either");
        let name = |n: usize| Some(format!("{n}-{}", "x".repeat(600)));
        let many = (0..600).map(|n| inventory::Nic { name: name(n), model: name(n), ..inventory::Nic::default() });
        let Err(failure) = found(many.collect()) else { panic!("it is too large for an object") };
        assert!(failure.message.contains("262144 are accepted"), "{}", failure.message);
    }

    /// A BMC may refuse the text of a number. The work that an earlier version has begun is the same.
    #[test]
    fn a_number_among_settings_is_handed_over_as_one() {
        let of = |value: IntOrString| {
            let wished = [("BootDelay".to_owned(), value)].into();
            let settings = Some(SettingsTarget { wished, present: BTreeMap::new(), since: None });
            Targets { settings, ..Targets::default() }
        };
        let (number, text) = (of(IntOrString::Int(5)), of(IntOrString::String("5".into())));
        assert_eq!(firmware(&number).settings["BootDelay"], Setting::Number(5));
        assert_eq!(firmware(&text).settings["BootDelay"], Setting::Text("5".into()));
        assert_eq!(made(&number), made(&text));
    }
}
