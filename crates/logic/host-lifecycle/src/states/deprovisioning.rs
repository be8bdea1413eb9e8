//! The image is being removed, or the disks of a host without one are being erased, as a request asks.
//!
//! An erasure ends in any case: with a report of each disk, or after some attempts that have failed, which the request is told. If it is withdrawn in the
//! middle, its work is ended, and no disk is touched for that: nobody has asked for more than the erasure of the disks that the request has named.

use api::metal3::{CleaningMode, ErrorType, Image, ProvisioningState as State, annotation};
use api::metamorph::Erasure;
use terms::Retry;

use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::{GIVE_UP_AFTER, wait_left};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::targets;
use crate::view::View;
use crate::wishes;

/// Attempts to erase of which the last one, failing, ends it.
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
    let empty = wishes::is_for_erasing(view.host, status);
    if empty && view.erase.is_some() && !view.host.is_deleting() {
        return unserved_erasure(view);
    }
    let clean = !empty && view.host.spec.automated_cleaning_mode != Some(CleaningMode::Disabled);
    Step::Act(Action::Deprovision { clean, empty, restart: failed })
}

/// An erasing that has begun is not withdrawn because the server cannot go on with it.
fn unserved_erasure(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    let message = format!(
        "erase the disks: what has begun is not gone on with, because the host's provisioner erases none now (machines that boot ironic-python-agent are not erased); start \
         the server as it was when the erasing began, or withdraw it by taking the annotation {} away",
        annotation::ERASE
    );
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
            // The request to erase, if there was one, has ended.
            draft.remove_annotation(annotation::ERASE);
            let what = match outcome {
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

/// Whether no attempt follows this one.
fn is_last(draft: &Draft<'_>, retry: Retry) -> bool {
    // Failures stay counted while another attempt is under way.
    let failed = draft.status.error_count.max(0);
    !matches!(retry, Retry::Later | Retry::Unknown) || failed.saturating_add(1) >= ERASE_ATTEMPTS
}

fn erased(mut draft: Draft<'_>, erasure: Box<Erasure>) -> Change {
    draft.status.operation_history.deprovision.end = Some(draft.now());
    draft.remove_annotation(annotation::ERASE);
    match &erasure.given_up {
        Some(why) => draft.warn("EraseFailed", &format!("Erasing the disks was given up: {why}")),
        None => {
            draft.use_up_consent();
            draft.event("EraseEnded", "Erasing the disks has come to its end: the HostOperation tells of each");
        }
    }
    draft.drop_reboot();
    draft.tell_erasure(erasure);
    let deleting = draft.view.host.is_deleting();
    draft.go(if deleting { State::PoweringOffBeforeDelete } else { State::Available });
    draft.finish(Next::Now)
}
