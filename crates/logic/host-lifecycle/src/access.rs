//! Access to the BMC: credentials, registration, adoption.
//!
//! The Secret's resourceVersion identifies which credentials were tried, and which worked. Changed ones are tried at once, in any managed state
//! and before anything else; if only the version has changed, the status adopts it and no BMC is asked. Adoption follows a registration of a
//! provisioned host: it is due while `operationHistory.register` has a start and no end.

use api::Time;
use api::metal3::{
    BareMetalHost, BareMetalHostStatus, CredentialsStatus, ErrorType, OperationMetric, OperationalStatus,
    ProvisioningState as State, Raid, SecretReference, annotation,
};
use terms::{Retry, clean};

use crate::annotations;
use crate::draft::{Draft, idle};
use crate::firmware;
use crate::host_rules;
use crate::retry::{edited_since, wait_left};
use crate::served;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::{Credentials, View, is_registered_since_made};
use crate::wishes;

/// Registers the host if necessary, or reports why that is impossible; `None` if access is in order.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let state = view.host.state();
    if matches!(state, State::None | State::Unmanaged | State::MatchProfile | State::Deleting) {
        return None;
    }
    let kinds: &[ErrorType] = match state {
        State::Registering => &[ErrorType::Registration, ErrorType::Inspection],
        _ => &[],
    };
    // Report what can never be served now, not after a boot of real hardware.
    let never = || {
        let unserved = served::unserved(view.host, &view.settings.served).into_iter().next();
        unserved.or_else(|| host_rules::of_image(view.host))
    };
    let fault = host_rules::first(view.host, kinds).or_else(|| never().filter(|_| state == State::Registering));
    if let Some(violation) = fault {
        let mut draft = Draft::new(view);
        draft.fault(violation.error_type.unwrap_or(ErrorType::Registration), &violation.message);
        return Some(draft.step(Next::Wait));
    }
    let Some(current) = current(view) else {
        // A deletion goes as far as it can without credentials.
        return (!view.host.is_deleting()).then(|| without_credentials(view));
    };
    if let Some(step) = same_credentials(view, &current) {
        return Some(step);
    }
    let status = view.status();
    if status.tried_credentials == current {
        if is_shown_once(view) {
            return Some(idle(view, Next::Wait));
        }
        if let Some(left) = wait_left(view, ErrorType::Registration) {
            return Some(idle(view, Next::After(left)));
        }
        let is_registered = status.good_credentials == current
            && state != State::Registering
            // A blocked deletion has an error of registration: only trying its work shows whether it still is blocked.
            && (status.error_type != Some(ErrorType::Registration) || view.host.is_deleting())
            // A status that was restored may be older than what has been done to the machine since: the provisioner knows.
            && is_registered_since_made(view.host)
            && status.operational_status != OperationalStatus::Detached;
        if is_registered {
            return adoption(view, status);
        }
    }
    Some(Step::Act(Action::Register { credentials_changed: status.good_credentials != current }))
}

/// What is added to the error of a host that was discovered, and whose machine has accepted no password yet: nobody knows that the password is meant for it, so
/// it is shown to it once.
const ONCE: &str = "; the machine was discovered, and is not tried again before the Secret or the host's spec changes";
/// Longest error before that, characters.
const MAX_FIRST: usize = 1024;

/// Whether the host's machine was discovered and has accepted no password yet, so that nobody knows that the password is meant for it: it is shown to it once,
/// and again when it has changed. A host that is deleted waits for no such change.
#[must_use]
pub fn is_new_here(host: &BareMetalHost) -> bool {
    let accepted = host.status.as_ref().map(|status| &status.good_credentials);
    let is_accepted = accepted.is_some_and(|accepted| *accepted != CredentialsStatus::default());
    host.annotation(annotation::DISCOVERED_BY).is_some() && !is_accepted && !host.is_deleting()
}

/// Whether the password has been shown to such a machine in vain, and nothing was changed since.
fn is_shown_once(view: &View<'_>) -> bool {
    let status = view.status();
    let is_error = status.error_type == Some(ErrorType::Registration) && status.error_message.contains(ONCE);
    is_error && is_new_here(view.host) && !edited_since(view.host, status)
}

/// If the Secret was written without a change of user and password, what is known of its old version holds for the new one.
fn same_credentials(view: &View<'_>, current: &CredentialsStatus) -> Option<Step> {
    let Credentials::Present { same, .. } = &view.credentials else { return None };
    let is_old = |known: &CredentialsStatus| {
        let version = known.credentials_version.as_ref().filter(|version| same.contains(version));
        known != current && known.credentials == current.credentials && version.is_some()
    };
    let known = view.status();
    if ![&known.tried_credentials, &known.good_credentials].into_iter().any(is_old) {
        return None;
    }
    let mut draft = Draft::new(view);
    for known in [&mut draft.status.tried_credentials, &mut draft.status.good_credentials] {
        if is_old(known) {
            known.clone_from(current);
        }
    }
    Some(draft.step(Next::Now))
}

/// Adopts a provisioned host after its registration.
fn adoption(view: &View<'_>, status: &BareMetalHostStatus) -> Option<Step> {
    if view.host.is_deleting() || !owes_adoption(status) {
        return None;
    }
    Some(match wait_left(view, ErrorType::ProvisionedRegistration) {
        Some(left) => idle(view, Next::After(left)),
        None => Step::Act(Action::Adopt),
    })
}

pub(crate) fn owes_adoption(status: &BareMetalHostStatus) -> bool {
    let register = &status.operation_history.register;
    is_provisioned(status)
        && (status.error_type == Some(ErrorType::ProvisionedRegistration)
            || (register.start.is_some() && register.end.is_none()))
}

fn is_provisioned(status: &BareMetalHostStatus) -> bool {
    matches!(status.provisioning.state, State::Provisioned | State::ExternallyProvisioned)
}

/// The credentials at hand as the status names them.
fn current(view: &View<'_>) -> Option<CredentialsStatus> {
    match &view.credentials {
        Credentials::Present { name, namespace, resource_version, .. } => Some(CredentialsStatus {
            credentials: Some(SecretReference {
                name: Some((*name).to_owned()),
                namespace: Some((*namespace).to_owned()),
            }),
            credentials_version: Some((*resource_version).to_owned()),
        }),
        _ => None,
    }
}

fn without_credentials(view: &View<'_>) -> Step {
    let soon = Next::After(view.settings.secret_poll);
    let bmc = view.host.spec.bmc.as_ref();
    let (message, next) = match &view.credentials {
        _ if bmc.is_none_or(|b| b.address.is_empty()) => {
            ("The host has no BMC address — set spec.bmc.address, or delete the host".to_owned(), Next::Wait)
        }
        Credentials::Missing { name } => (
            format!(
                "Secret {name} with the BMC's user and password does not exist — create it with username and password"
            ),
            soon,
        ),
        Credentials::Forbidden { name } => (
            format!("Secret {name} with the BMC's user and password may not be read — allow the server to get it"),
            soon,
        ),
        Credentials::Invalid { name, what } => {
            (format!("Secret {name} {what} — it needs username and password, neither empty"), Next::Wait)
        }
        Credentials::NotNeeded | Credentials::Present { .. } => (
            "The host names no Secret for its BMC — set spec.bmc.credentialsName to one with username and password"
                .to_owned(),
            Next::Wait,
        ),
    };
    let mut draft = Draft::new(view);
    // The next Secret counts as untried.
    draft.status.tried_credentials = CredentialsStatus::default();
    draft.fault_as(ErrorType::Registration, "BMCCredentialError", &message);
    draft.step(next)
}

/// Reads the answer to a registration.
pub(crate) fn conclude_register(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    if let Outcome::Recognized { image, root_device_hints, .. } = &outcome
        && !wishes::asks_for(draft.view.host, image, root_device_hints.as_deref())
    {
        // What is on the machine was compared with what the host asked for then: it is compared again, with what it asks for now.
        return draft.seal(Next::Now);
    }
    let current = current(draft.view);
    if let Some(current) = current.as_ref().filter(|c| draft.status.tried_credentials != **c) {
        draft.status.tried_credentials = current.clone();
        if draft.status.error_type == Some(ErrorType::Registration) {
            // Those failures were of other credentials.
            draft.status.error_count = 0;
        }
    }
    let recognized = matches!(outcome, Outcome::Recognized { .. });
    let (id, powered_on) = match outcome {
        Outcome::Registered { id, powered_on } | Outcome::Recognized { id, powered_on, .. } => (id, powered_on),
        Outcome::Failed { message, retry: Retry::AnotherMachine } if draft.view.host.is_deleting() => {
            draft.left_running(&message);
            draft.go(State::Deleting);
            return draft.finish(Next::Now);
        }
        Outcome::Failed { message, retry: Retry::AfterChange } if is_new_here(draft.view.host) => {
            let next = draft.fail(
                ErrorType::Registration,
                &format!("{}{ONCE}", clean(&message, MAX_FIRST)),
                Retry::AfterChange,
            );
            return draft.finish(next);
        }
        other => return draft.not_done(ErrorType::Registration, "registration", other),
    };
    if id.is_empty() {
        let message = "The provisioner registered the host without giving it an id";
        let next = draft.fail(ErrorType::Registration, message, Retry::Later);
        return draft.finish(next);
    }
    if draft.status.provisioning.id != id {
        // What was accepted for another machine, or by a provisioner that has forgotten it, is handed over again.
        if draft.state() == State::Preparing {
            draft.status.provisioning.raid.take_if(|raid| *raid != Raid::default());
            draft.status.provisioning.root_device_hints = None;
        }
        firmware::failed(&mut draft);
    }
    draft.status.provisioning.id = id;
    if let Some(on) = powered_on {
        draft.status.powered_on = on;
    }
    let changed = current.as_ref().is_some_and(|c| draft.status.good_credentials != *c);
    if let Some(current) = current.filter(|_| changed) {
        let others = std::mem::replace(&mut draft.status.good_credentials, current);
        draft.event("BMCAccessValidated", "Access to the BMC was verified");
        // That was with other credentials, perhaps for want of these: it is tried again now. A provisioner that forgets its hosts is no such change, and a
        // deletion counts on.
        let is_of_others = others != CredentialsStatus::default() && !draft.view.host.is_deleting();
        if is_of_others && draft.status.error_type == Some(ErrorType::PowerManagement) {
            draft.clear_error();
        }
    }
    take_back(&mut draft);
    draft.work_succeeded(ErrorType::Registration);
    set_profile(&mut draft);
    if draft.state() == State::Registering && recognized {
        take_over(&mut draft);
    } else if draft.state() == State::Registering {
        leave_registering(&mut draft);
    } else if changed || !is_registered_since_made(draft.view.host) {
        note_registration(&mut draft);
    }
    is_no_older_than_its_host(&mut draft);
    draft.finish(Next::Now)
}

/// Ends the detachment of a host that is registered again.
fn take_back(draft: &mut Draft<'_>) {
    if draft.status.operational_status == OperationalStatus::Detached {
        draft.status.operational_status = OperationalStatus::Ok;
    }
}

fn set_profile(draft: &mut Draft<'_>) {
    if draft.status.hardware_profile.is_none() {
        let wished = draft.view.host.spec.hardware_profile.clone().filter(|p| !p.is_empty());
        let profile = wished.unwrap_or_else(|| "unknown".to_owned());
        draft.event("ProfileSet", &format!("Hardware profile set: {profile}"));
        draft.status.hardware_profile = Some(profile);
    }
}

fn leave_registering(draft: &mut Draft<'_>) {
    draft.event("Registered", "The host was registered");
    let host = draft.view.host;
    if host.spec.externally_provisioned == Some(true) {
        // The registration ends with the adoption.
        draft.go(State::ExternallyProvisioned);
        return;
    }
    draft.status.operation_history.register.end = Some(draft.now());
    if annotations::inspection_disabled(host) {
        draft.event("InspectionSkipped", "Inspection is disabled");
        draft.go(State::Preparing);
    } else {
        draft.event("InspectionStarted", "Inspection of the hardware started");
        draft.go(State::Inspecting);
    }
}

/// The host is what it was before its status was lost; the registration ends with the adoption.
fn take_over(draft: &mut Draft<'_>) {
    let host = draft.view.host;
    let what = "The machine runs what this host asks for and was provisioned with before its status was lost: it is taken over as it is, neither booted, \
                inspected nor written";
    draft.event("Recognized", what);
    let image = wishes::image(host).cloned();
    draft.status.last_attempted_image.clone_from(&image);
    draft.status.provisioning.image = image.unwrap_or_default();
    draft.status.provisioning.root_device_hints = wishes::root_device_hints(host);
    // When it was provisioned is not known any more; that it has been by now tells a later look at its record that this status is no older.
    let now = draft.now();
    draft.status.operation_history.provision = OperationMetric { start: Some(now.clone()), end: Some(now) };
    draft.go(State::Provisioned);
}

/// Notes a registration outside `registering`; on a provisioned host it ends with the adoption.
fn note_registration(draft: &mut Draft<'_>) {
    let now: Time = draft.now();
    let end = (!is_provisioned(&draft.status)).then(|| now.clone());
    draft.status.operation_history.register = OperationMetric { start: Some(now), end };
}

/// The API's clock may be ahead of the server's: what has been registered now has been registered since the host was made.
fn is_no_older_than_its_host(draft: &mut Draft<'_>) {
    let Some(made) = draft.view.host.metadata.creation_timestamp.clone() else { return };
    let register = &mut draft.status.operation_history.register;
    if [&register.start, &register.end].into_iter().flatten().all(|time| time.0 < made.0) {
        register.start = Some(made);
    }
}

/// Reads the answer to an adoption.
pub(crate) fn conclude_adopt(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    if !is_provisioned(&draft.status) {
        return draft.seal(Next::Now);
    }
    match outcome {
        Outcome::Done => {
            if draft.status.operation_history.register.end.is_none() {
                draft.status.operation_history.register.end = Some(draft.now());
            }
            draft.work_succeeded(ErrorType::ProvisionedRegistration);
            draft.finish(Next::Now)
        }
        other => draft.not_done(ErrorType::ProvisionedRegistration, "adoption", other),
    }
}
