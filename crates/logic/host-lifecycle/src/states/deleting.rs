//! Being deleted: the provisioner lets go, then the object may go.

use api::metal3::ErrorType;

use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::{GIVE_UP_AFTER, wait_left};
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// What is done in it. No transition leads out of it: the object ends here.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: None, decide, conclude };

fn decide(view: &View<'_>) -> Step {
    if !view.host.is_deleting() {
        // Only a status edited by hand leads here.
        return idle(view, Next::Wait);
    }
    let status = view.status();
    if !view.has_bmc() && !view.is_registered() {
        return idle(view, Next::Gone);
    }
    if status.error_type == Some(ErrorType::Registration) && status.error_count > GIVE_UP_AFTER {
        let mut draft = Draft::new(view);
        draft.warn("DeletionGaveUp", &format!("The host is deleted without being released: {}", status.error_message));
        return draft.step(Next::Gone);
    }
    match wait_left(view, ErrorType::Registration) {
        Some(left) => idle(view, Next::After(left)),
        None => Step::Act(Action::Release),
    }
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    if *action != Action::Release {
        return draft.seal(Next::Now);
    }
    match outcome {
        Outcome::Done => draft.finish(Next::Gone),
        Outcome::Failed { message, .. } if !draft.view.is_registered() => {
            // Never registered: there is nothing to let go of.
            draft.warn("DeletionGaveUp", &format!("The host is deleted without being released: {message}"));
            draft.finish(Next::Gone)
        }
        other => draft.not_done(ErrorType::Registration, "release", other),
    }
}
