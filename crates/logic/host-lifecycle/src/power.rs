//! Power of a settled host: what it should be, and how it gets there.
//!
//! While status and wish agree, the power is only read. Where they differ it is set at once: the provisioner looks before it
//! switches, so a stale status costs nothing.

use api::metal3::{ErrorType, ProvisioningState as State, annotation};
use terms::{PowerWish, Retry};

use crate::draft::{Draft, idle};
use crate::host_rules;
use crate::power_wish::{reboot, wanted_on};
use crate::request_view::Answer;
use crate::retry::wait_left;
use crate::servicing;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// Power management of a settled host.
pub(crate) fn steady(view: &View<'_>) -> Step {
    let status = view.status();
    if let Some(violation) = host_rules::first(view.host, &[ErrorType::PowerManagement]) {
        let mut draft = Draft::new(view);
        draft.fault(ErrorType::PowerManagement, &violation.message);
        return draft.step(Next::Wait);
    }
    // What is only told, and has not failed, is nothing to wait for.
    if status.error_count > 0
        && let Some(left) = wait_left(view, ErrorType::PowerManagement)
    {
        return idle(view, Next::After(left));
    }
    let reboot = reboot(view);
    let on = wanted_on(view, &reboot);
    // A one-shot reboot needs the machine to be switched off now: a status that already says off may be stale.
    if on == status.powered_on && !reboot.once {
        return Step::Act(Action::ReadPower);
    }
    let failed_before = status.error_type == Some(ErrorType::PowerManagement) && status.error_count > 0;
    // A host that must not be powered off must not lose power abruptly either.
    let may_cut = view.host.spec.disable_power_off != Some(true);
    Step::Act(Action::SetPower(match (on, may_cut && (reboot.hard || failed_before)) {
        (true, _) => PowerWish::On,
        (false, false) => PowerWish::SoftOff,
        (false, true) => PowerWish::HardOff,
    }))
}

/// Reads the answer to a power call.
pub(crate) fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let (on, told) = match outcome {
        Outcome::Power(on) => (on, None),
        Outcome::PowerTold { on, message } if *action == Action::ReadPower => (on, Some(message)),
        Outcome::Failed { message, retry: Retry::Unknown } if reboot(draft.view).once => {
            return restarted_perhaps(draft, &message);
        }
        Outcome::Blocked { message } if *action == Action::ReadPower && !draft.view.host.is_deleting() => {
            return is_told(draft, &message);
        }
        other => return draft.not_done(ErrorType::PowerManagement, "power management", other),
    };
    let edge = draft.status.powered_on != on;
    draft.status.powered_on = on;
    match action {
        Action::SetPower(PowerWish::On) if !on => still(draft, "off"),
        Action::SetPower(PowerWish::On) => {
            if edge {
                draft.event("PowerOn", "The host is powered on");
            }
            finish_if_as_wished(draft, None)
        }
        Action::SetPower(PowerWish::SoftOff | PowerWish::HardOff) => switched_off(draft, on, edge),
        _ => finish_if_as_wished(draft, told.as_deref()),
    }
}

fn switched_off(mut draft: Draft<'_>, on: bool, edge: bool) -> Change {
    let once = reboot(draft.view).once;
    if on && draft.view.host.spec.disable_power_off != Some(true) {
        return still(draft, "on");
    }
    if on {
        draft.event("PowerOn", "The host was restarted");
    } else if edge {
        draft.event("PowerOff", "The host is powered off");
    }
    if once {
        draft.remove_annotation(annotation::REBOOT);
        draft.answer(Answer::Done);
        draft.work_succeeded(ErrorType::PowerManagement);
        may_be_serviced(&mut draft);
        return draft.finish(Next::Now);
    }
    finish_if_as_wished(draft, None)
}

/// The restart that was asked for may have been made: it is not made again unasked.
fn restarted_perhaps(mut draft: Draft<'_>, message: &str) -> Change {
    draft.warn("RestartUnknown", message);
    draft.remove_annotation(annotation::REBOOT);
    draft.answer(Answer::Unknown);
    draft.work_succeeded(ErrorType::PowerManagement);
    draft.finish(Next::Now)
}

/// Nothing was attempted, and something is to be known of the machine: no work has failed, and the next reboot is as polite as any.
fn is_told(mut draft: Draft<'_>, message: &str) -> Change {
    let failures = if draft.status.error_type.is_some() { draft.status.error_count.max(0) } else { 0 };
    draft.fault(ErrorType::PowerManagement, message);
    draft.status.error_count = failures;
    let poll = draft.view.settings.steady_state_poll;
    draft.finish(Next::After(poll))
}

/// A machine that has gone off may be serviced before it comes on again, though that has failed before.
fn may_be_serviced(draft: &mut Draft<'_>) {
    let went_off = draft.view.status().powered_on && !draft.status.powered_on;
    if went_off && draft.status.error_type == Some(ErrorType::Servicing) {
        draft.clear_error();
    }
}

/// Ends the step after a successful call if the power is as wished; otherwise, another step follows at once. `told` is to be known of the machine beside.
fn finish_if_as_wished(mut draft: Draft<'_>, told: Option<&str>) -> Change {
    may_be_serviced(&mut draft);
    let reboot = reboot(draft.view);
    if draft.status.powered_on != wanted_on(draft.view, &reboot) {
        return draft.finish(Next::Now);
    }
    let refused = draft.status.error_type == Some(ErrorType::Provisioning)
        && matches!(draft.state(), State::Available | State::Ready);
    // The next reboot tries again what has failed.
    let unserviced = draft.status.error_type == Some(ErrorType::Servicing) && servicing::is_wanted(draft.view);
    if !refused && !unserviced {
        // The host is at rest as wished: whatever error is left (of an older version, say) is of work that is over.
        match told {
            Some(message) => draft.fault(ErrorType::PowerManagement, message),
            None => draft.clear_error(),
        }
        draft.status.error_count = 0;
    }
    let poll = draft.view.settings.steady_state_poll;
    draft.finish(Next::After(poll))
}

fn still(mut draft: Draft<'_>, seen: &str) -> Change {
    let message = format!("The provisioner says it switched the host's power, which is still {seen}");
    let next = draft.fail(ErrorType::PowerManagement, &message, Retry::Later);
    draft.finish(next)
}
