//! Going off before it is deleted.

use api::metal3::{ErrorType, ProvisioningState as State};
use terms::{PowerWish, Retry};

use crate::draft::{Draft, idle, through};
use crate::handler::StateHandler;
use crate::retry::{GIVE_UP_AFTER, wait_left};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// What is done in it.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: None, decide, conclude };

fn decide(view: &View<'_>) -> Step {
    if !view.host.is_deleting() {
        // Only a status edited by hand leads here.
        return idle(view, Next::Wait);
    }
    if view.host.spec.disable_power_off == Some(true) {
        return through(view, State::Deleting);
    }
    let status = view.status();
    if status.error_type == Some(ErrorType::PowerManagement) && status.error_count > GIVE_UP_AFTER {
        let mut draft = Draft::new(view);
        draft.warn(
            "DeletionGaveUp",
            &format!("The host is deleted without being powered off: {}", status.error_message),
        );
        draft.go(State::Deleting);
        return draft.step(Next::Now);
    }
    match wait_left(view, ErrorType::PowerManagement) {
        Some(left) => idle(view, Next::After(left)),
        None => Step::Act(Action::SetPower(PowerWish::HardOff)),
    }
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    if *action != Action::SetPower(PowerWish::HardOff) {
        return draft.seal(Next::Now);
    }
    match outcome {
        Outcome::Power(false) => {
            if draft.status.powered_on {
                draft.event("PowerOff", "The host is powered off");
            }
            draft.status.powered_on = false;
            draft.go(State::Deleting);
            draft.finish(Next::Now)
        }
        Outcome::Power(true) => {
            let message = "The provisioner says it switched the host off, which is still on";
            let next = draft.fail(ErrorType::PowerManagement, message, Retry::Later);
            draft.finish(next)
        }
        Outcome::Failed { message, retry: Retry::AnotherMachine } => {
            draft.left_running(&message);
            draft.go(State::Deleting);
            draft.finish(Next::Now)
        }
        other => draft.not_done(ErrorType::PowerManagement, "powering off", other),
    }
}
