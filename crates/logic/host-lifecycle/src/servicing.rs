//! Changes of a provisioned host's firmware, where its HostUpdatePolicy allows them at a reboot (baremetal-operator `doServiceIfNeeded`).
//!
//! They begin when the machine is off and about to be switched on, and continue until the provisioner reports that they are done, without new targets
//! if they are no longer wished or allowed, or the machine is to be off. From before the first call, `operationalStatus` and the reason of the condition
//! Ready show that the host is in service, so a failure of something else, such as the access to its BMC, does not end the service. Detaching does:
//! accepted changes are handed over again when the host is taken back.
//!
//! A service that fails ends: the machine is switched on without it, because nobody asked for an outage, and the error stays until the next reboot
//! brings the next attempt. A running machine is never restarted for a service.

use api::metal3::{BareMetalHostStatus, ErrorType, OperationalStatus, UpdatePolicy};

use crate::draft::Draft;
use crate::firmware;
use crate::power_wish;
use crate::retry::wait_left;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::targets;
use crate::view::View;

pub(crate) fn is_in_service(status: &BareMetalHostStatus) -> bool {
    status.operational_status == OperationalStatus::Servicing
}

/// Whether a service is under way, or may begin now. One that has failed before this boot, or a machine that cannot be switched on, holds it up no longer.
pub(crate) fn is_due(view: &View<'_>) -> bool {
    let status = view.status();
    let may_begin = || {
        power_wish::is_about_to_boot(view)
            && status.error_type != Some(ErrorType::Servicing)
            && wait_left(view, ErrorType::PowerManagement).is_none()
    };
    view.settings.served.service && (is_in_service(status) || may_begin())
}

/// What the policy allows at a reboot: settings, updates.
fn allowed(view: &View<'_>) -> (bool, bool) {
    let served = &view.settings.served;
    let policy = view.children.update_policy.map(|policy| policy.spec.clone()).unwrap_or_default();
    (
        served.firmware_settings && policy.firmware_settings == Some(UpdatePolicy::OnReboot),
        served.firmware_updates && policy.firmware_updates == Some(UpdatePolicy::OnReboot),
    )
}

/// Whether the next reboot brings a service, or may: what the firmware is has to be read first.
pub(crate) fn is_wanted(view: &View<'_>) -> bool {
    let (settings, updates) = allowed(view);
    view.settings.served.service
        && (settings || updates)
        && targets::servicing(view, settings, updates).is_none_or(|targets| !targets.is_empty())
}

/// What servicing needs now.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let status = view.status();
    let in_service = is_in_service(status);
    if !is_due(view) {
        return None;
    }
    let (mut settings, mut updates) = allowed(view);
    if !in_service && !settings && !updates {
        return None;
    }
    if !power_wish::is_to_run(view) {
        (settings, updates) = (false, false);
    }
    let Some(targets) = targets::servicing(view, settings, updates) else {
        return Some(Step::Act(Action::RefreshFacts));
    };
    // What was made before its policy went is seen to be there.
    if in_service && firmware::is_unseen(view) {
        return Some(Step::Act(Action::RefreshFacts));
    }
    if !in_service {
        if targets.is_empty() {
            return None;
        }
        let mut draft = Draft::new(view);
        // An earlier service may have been broken off.
        firmware::failed(&mut draft);
        draft.event("ServicingStarted", "The firmware is changed before the host is powered on");
        draft.status.operational_status = OperationalStatus::Servicing;
        return Some(draft.step(Next::Now));
    }
    Some(Step::Act(Action::Service {
        targets: Box::new(targets),
        // Its failures stay counted until it is done.
        restart: status.error_count > 0,
    }))
}

/// Reads the answer to a service.
pub(crate) fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let Action::Service { targets, .. } = action else { return draft.seal(Next::Now) };
    match outcome {
        Outcome::Accepted { look_again } => {
            firmware::accepted(&mut draft, targets);
            goes_on(draft, look_again)
        }
        Outcome::Working { look_again } | Outcome::Busy { look_again, .. } => goes_on(draft, look_again),
        Outcome::Done => {
            if firmware::applied(&mut draft, targets) {
                return goes_on_now(draft);
            }
            draft.clear_error();
            draft.status.error_count = 0;
            // It was switched on for it; the next look at its power says if that is not so.
            draft.status.powered_on = true;
            if firmware::is_as_wished(draft.view) {
                draft.event("ServicingComplete", "The firmware was changed as wished");
            } else {
                let said = if draft.view.children.update_policy.is_some() {
                    "The service was ended: what it was begun for is no longer wished, or not allowed"
                } else {
                    "The service has ended, and no HostUpdatePolicy allows it any more: HostFirmwareSettings and HostFirmwareComponents of the host say what \
                     is as wished"
                };
                draft.event("ServicingEnded", said);
            }
            draft.finish(Next::Now)
        }
        Outcome::Failed { .. } => {
            firmware::failed(&mut draft);
            draft.not_done(ErrorType::Servicing, "servicing", outcome)
        }
        other => draft.not_done(ErrorType::Servicing, "servicing", other),
    }
}

fn goes_on(mut draft: Draft<'_>, look_again: std::time::Duration) -> Change {
    in_service(&mut draft);
    draft.finish(Draft::look(look_again))
}

fn goes_on_now(mut draft: Draft<'_>) -> Change {
    in_service(&mut draft);
    draft.finish(Next::Now)
}

/// Clears the error; its failures stay counted until the work is done.
fn in_service(draft: &mut Draft<'_>) {
    draft.clear_error();
    if draft.status.operational_status != OperationalStatus::Detached {
        draft.status.operational_status = OperationalStatus::Servicing;
    }
}
