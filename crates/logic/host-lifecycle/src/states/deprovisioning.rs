//! The image is being removed, or the disks of a host without one are being erased, or steps of hardware managers are run on its machine, as a request asks.
//!
//! Steps go the way of an erasure, with another call: both take a machine that nobody uses away from whoever would provision it, are recorded before, told
//! by a report of their own, and end here. An erasure ends in any case: with a report of each disk, or after some attempts that have failed, which the request is told. If it is withdrawn in the
//! middle, its work is ended, and no disk is touched for that: nobody has asked for more than the erasure of the disks that the request has named.

use api::metal3::{CleaningMode, ErrorType, Image, ProvisioningState as State, annotation};
use api::metamorph::{Erasure, StepsReport};
use terms::Retry;

use crate::asked_steps;
use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::{GIVE_UP_AFTER, wait_left};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::targets;
use crate::view::View;
use crate::wishes;

/// Attempts to erase, or to come to steps, of which the last one, failing, ends it.
const ERASE_ATTEMPTS: i64 = 3;

/// What is done in it.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: None, decide, conclude };

fn decide(view: &View<'_>) -> Step {
    let status = view.status();
    let failed = status.error_type == Some(ErrorType::Provisioning);
    if view.host.is_deleting() && failed && status.error_count > GIVE_UP_AFTER {
        let mut draft = Draft::new(view);
        draft.warn(
            "DeletionGaveUp",
            &format!("The host is deleted without being deprovisioned: {}", status.error_message),
        );
        draft.go(State::PoweringOffBeforeDelete);
        return draft.step(Next::Now);
    }
    if let Some(left) = wait_left(view, ErrorType::Provisioning) {
        return idle(view, Next::After(left));
    }
    if let Some(options) = view.erasure().filter(|_| !view.host.is_deleting() && wishes::has_nothing(status)) {
        return Step::Act(Action::Erase { options: Box::new(options.clone()), restart: failed });
    }
    if let Some(steps) = view.asked_steps().filter(|_| !view.host.is_deleting() && wishes::has_nothing(status)) {
        return Step::Act(Action::RunSteps { steps: steps.to_vec(), restart: failed });
    }
    let empty = wishes::is_for_erasing(view.host, status);
    if empty && view.erase.is_some() && !view.host.is_deleting() {
        return unserved(
            view,
            "erase the disks: what has begun is not gone on with, because the host's provisioner erases none now (machines that boot ironic-python-agent are not erased); start \
         the server as it was when the erasing began",
            annotation::ERASE,
        );
    }
    if empty && view.steps.is_some() && !view.host.is_deleting() {
        return unserved(
            view,
            "run steps of hardware managers: what has begun is not gone on with, because the host's provisioner runs none now (machines that boot Metamorph's own agent \
         have none); start the server as it was when they began",
            annotation::STEPS,
        );
    }
    let clean = !empty && view.host.spec.automated_cleaning_mode != Some(CleaningMode::Disabled);
    Step::Act(Action::Deprovision { clean, empty, restart: failed })
}

/// What has begun is not withdrawn because the server cannot go on with it.
fn unserved(view: &View<'_>, why: &str, key: &str) -> Step {
    let mut draft = Draft::new(view);
    let message = format!("{why}, or withdraw it by deleting the HostOperation that the annotation {key} names");
    draft.fault(ErrorType::Provisioning, &message);
    if draft.status != *view.status() {
        return draft.step(Next::Now);
    }
    idle(view, Next::After(view.settings.steady_state_poll))
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let was_empty = match action {
        Action::Deprovision { empty, .. } => *empty,
        Action::Erase { .. } => return conclude_erasure(draft, outcome),
        Action::RunSteps { .. } => return conclude_steps(draft, outcome),
        _ => return draft.seal(Next::Now),
    };
    match outcome {
        Outcome::Done | Outcome::Wiped | Outcome::Untouched => {
            draft.status.provisioning.image = Image::default();
            draft.status.provisioning.custom_deploy = None;
            draft.status.operation_history.deprovision.end = Some(draft.now());
            if outcome != Outcome::Untouched {
                targets::forget_software_raid(&mut draft.status);
            }
            if outcome == Outcome::Wiped {
                // Where no disk was touched, the consent is for what comes next.
                draft.use_up_consent();
            }
            draft.drop_reboot();
            // The request to erase or to run steps, if there was one, has ended.
            draft.remove_annotation(annotation::ERASE);
            draft.remove_annotation(annotation::STEPS);
            let what = match outcome {
                Outcome::Untouched if was_empty && draft.view.host.annotation(annotation::STEPS).is_some() => {
                    "Steps of hardware managers were withdrawn: what had begun runs to its end, and none follows"
                }
                Outcome::Untouched if was_empty => {
                    "The erasing was withdrawn: beyond what it had done, the disks are left as they are"
                }
                Outcome::Untouched => "No image had begun to be written: the disks are left as they are",
                _ => "The image was removed",
            };
            draft.event("DeprovisioningComplete", what);
            let deleting = draft.view.host.is_deleting();
            draft.go(if deleting { State::PoweringOffBeforeDelete } else { State::Available });
            draft.finish(Next::Now)
        }
        Outcome::Failed { message, retry: Retry::AnotherMachine } if draft.view.host.is_deleting() => {
            draft.left_running(&message);
            draft.go(State::Deleting);
            draft.finish(Next::Now)
        }
        // Upstream counts a failed deprovisioning as a provisioning error too.
        other => draft.not_done(ErrorType::Provisioning, "deprovisioning", other),
    }
}

fn conclude_erasure(draft: Draft<'_>, outcome: Outcome) -> Change {
    match outcome {
        Outcome::Erased(erasure) => erased(draft, erasure),
        Outcome::Failed { message, retry } if is_last(&draft, retry) => {
            erased(draft, Box::new(Erasure { disks: Vec::new(), given_up: Some(message) }))
        }
        other => draft.not_done(ErrorType::Provisioning, "erasing", other),
    }
}

fn conclude_steps(draft: Draft<'_>, outcome: Outcome) -> Change {
    let report = match &outcome {
        Outcome::Failed { message, retry } => {
            Some(StepsReport { given_up: Some(message.clone()), ..StepsReport::default() })
                .filter(|_| is_last(&draft, *retry))
        }
        _ => None,
    };
    match outcome {
        Outcome::Stepped(report) => stepped(draft, report),
        _ if report.is_some() => stepped(draft, Box::new(report.unwrap_or_default())),
        other => draft.not_done(ErrorType::Provisioning, "running steps of hardware managers", other),
    }
}

fn stepped(mut draft: Draft<'_>, report: Box<StepsReport>) -> Change {
    draft.remove_annotation(annotation::STEPS);
    if asked_steps::ended(draft.view.asked_steps().unwrap_or_default(), &report).is_ok() {
        draft.event("StepsEnded", "Steps of hardware managers have come to their end: the HostOperation tells of each");
    } else {
        draft.warn("StepsFailed", "Steps of hardware managers are not all done: the HostOperation tells of each");
    }
    draft.tell_steps(report);
    available_again(draft)
}

/// Whether no attempt follows this one.
fn is_last(draft: &Draft<'_>, retry: Retry) -> bool {
    // Failures stay counted while another attempt is under way.
    let failed = draft.status.error_count.max(0);
    !matches!(retry, Retry::Later | Retry::Unknown) || failed.saturating_add(1) >= ERASE_ATTEMPTS
}

fn erased(mut draft: Draft<'_>, erasure: Box<Erasure>) -> Change {
    draft.remove_annotation(annotation::ERASE);
    match &erasure.given_up {
        Some(why) => draft.warn("EraseFailed", &format!("Erasing the disks was given up: {why}")),
        None => {
            draft.use_up_consent();
            draft.event("EraseEnded", "Erasing the disks has come to its end: the HostOperation tells of each");
        }
    }
    draft.tell_erasure(erasure);
    available_again(draft)
}

/// What a request has asked for has ended.
fn available_again(mut draft: Draft<'_>) -> Change {
    draft.status.operation_history.deprovision.end = Some(draft.now());
    draft.drop_reboot();
    let deleting = draft.view.host.is_deleting();
    draft.go(if deleting { State::PoweringOffBeforeDelete } else { State::Available });
    draft.finish(Next::Now)
}
