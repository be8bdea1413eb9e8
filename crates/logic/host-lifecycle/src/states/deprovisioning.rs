//! The image is being removed.

use api::metal3::{CleaningMode, ErrorType, Image, ProvisioningState as State};
use terms::Retry;

use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::{GIVE_UP_AFTER, wait_left};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::targets;
use crate::view::View;

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
    let clean = view.host.spec.automated_cleaning_mode != Some(CleaningMode::Disabled);
    Step::Act(Action::Deprovision { clean, restart: failed })
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    if !matches!(action, Action::Deprovision { .. }) {
        return draft.seal(Next::Now);
    }
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
            let what = match outcome {
                Outcome::Untouched => "Nothing of the image had begun to be written: the disks are left as they are",
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
