//! The two entrances: what next, and what does the answer mean.

use api::metal3::{ErrorType, OperationalStatus, ProvisioningState as State};

use crate::access;
use crate::annotations;
use crate::boot_image;
use crate::data_image;
use crate::detach;
use crate::diagnosis;
use crate::draft::{Draft, idle, through};
use crate::firmware;
use crate::held;
use crate::owned;
use crate::power;
use crate::prelude;
use crate::retry::GIVE_UP_AFTER;
use crate::states::handler;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::{Credentials, View};

/// What to do next with a host.
///
/// The order is upstream's: pause, annotations that carry data, finalizer, deletion, detachment, access to the BMC, and then the
/// state's own work.
#[must_use]
pub fn decide(view: &View<'_>) -> Step {
    if let Some(step) = prelude::decide(view) {
        return step;
    }
    if view.host.is_deleting()
        && let Some(step) = begin_deletion(view)
    {
        return step;
    }
    if let Some(step) = detach::decide(view) {
        return step;
    }
    if let Some(step) = access::decide(view) {
        return step;
    }
    if let Some(step) = owned::decide(view) {
        return step;
    }
    if let Some(step) = diagnosis::decide(view).filter(|_| !view.host.is_deleting()) {
        return step;
    }
    let step = (handler(view.host.state()).decide)(view);
    match &step {
        Step::Act(action) => boot_image::before(view, action).unwrap_or(step),
        Step::Change(_) => step,
    }
}

/// What the answer to a call means.
///
/// `view` may be newer than the one the call was decided on: an answer that no longer fits the host's state changes nothing.
#[must_use]
pub fn conclude(view: &View<'_>, action: &Action, outcome: Outcome) -> Change {
    let draft = Draft::new(view);
    let state = view.host.state();
    let outcome = outcome.normalized();
    let waits_to_detach = *action == Action::Release
        && annotations::detaches_before_deletion(view.host)
        && !annotations::detached_by_force(view.host);
    match &outcome {
        Outcome::Held { message } => return held::conclude(draft, action, message),
        // Nothing was attempted: the deletion waits, as for any provisioner that cannot be asked.
        Outcome::Blocked { message } if waits_to_detach => return held::conclude(draft, action, message),
        _ => {}
    }
    match action {
        Action::Register { .. } => access::conclude_register(draft, outcome),
        Action::Adopt => access::conclude_adopt(draft, outcome),
        Action::Release if state != State::Deleting => detach::conclude(draft, outcome),
        Action::ReadPower | Action::SetPower(_) if state != State::PoweringOffBeforeDelete => {
            power::conclude(draft, action, outcome)
        }
        Action::RefreshFacts if reads_firmware(state) => firmware::conclude(draft, outcome),
        Action::Diagnose => diagnosis::conclude(draft, outcome),
        _ => (handler(state).conclude)(draft, action, outcome),
    }
}

const fn reads_firmware(state: State) -> bool {
    matches!(
        state,
        State::Preparing | State::Available | State::Ready | State::Provisioned | State::ExternallyProvisioned
    )
}

/// Said of a host that is deleted before it could be detached.
const NOT_DELAYED: &str = "The host is deleted before its registration has ended: it is let go as it is, and its deletion does not wait as the annotation \
                           baremetalhost.metal3.io/detached asks";

/// The first step of a deletion, or a shortcut to its end.
fn begin_deletion(view: &View<'_>) -> Option<Step> {
    let state = view.host.state();
    if state == State::Deleting {
        return None;
    }
    let status = view.status();
    let annotation = annotations::detached(view.host);
    let delays = annotation.is_some_and(|wish| wish.delay_deletion);
    let was_detached = status.operational_status == OperationalStatus::Detached;
    let reachable = matches!(view.credentials, Credentials::Present { .. });
    let managed = !matches!(state, State::None | State::Unmanaged | State::Registering | State::MatchProfile);
    if was_detached && annotation.is_none() && reachable && managed {
        // It is being taken back: what is on it is to be removed first.
        return None;
    }
    let begins = was_detached || handler(state).on_delete.is_some();
    if begins
        && (reachable || view.is_registered())
        && let Some(what) = annotations::detached_fault(view.host)
    {
        // It may be the wish to keep the host as it is.
        let mut draft = Draft::new(view);
        draft.fault_as(ErrorType::Registration, "InvalidAnnotationValue", &what);
        if was_detached {
            draft.status.operational_status = OperationalStatus::Detached;
        }
        return Some(draft.step(Next::After(view.settings.unmanaged_poll)));
    }
    if let Some(wish) = annotation
        && (was_detached || wish.applies(state))
    {
        if delays && !was_detached {
            // It is let go first, and then its deletion waits.
            return None;
        }
        return Some(if delays {
            // Meanwhile a data image that is deleted is let go as of any host that is detached.
            if let Some(step) = data_image::let_go(view) {
                return Some(step);
            }
            let mut draft = Draft::new(view);
            if annotations::is_detached_fault(&status.error_message) {
                draft.clear_error();
            }
            draft.step(Next::After(view.settings.unmanaged_poll))
        } else if was_detached {
            // Its machine was let go then, and may be somebody else's by now: nobody calls it again.
            idle(view, Next::Gone)
        } else {
            through(view, State::Deleting)
        });
    }
    if !reachable && !view.is_registered() {
        let mut draft = Draft::new(view);
        if delays {
            draft.warn("DeletionNotDelayed", NOT_DELAYED);
        }
        draft.go(State::Deleting);
        return Some(draft.step(Next::Now));
    }
    match handler(state).on_delete {
        Some(to) => {
            let mut draft = Draft::new(view);
            if to == State::Deprovisioning {
                draft.event("DeprovisioningStarted", "The host is being deleted");
            }
            // Without an end of its registration it is let go as it is.
            if to == State::Deleting {
                if delays {
                    draft.warn("DeletionNotDelayed", NOT_DELAYED);
                }
            } else if annotation.is_some() {
                let delay = if delays { ",\"deleteAction\":\"delay\"" } else { "" };
                draft.warn("DetachNotForced", &format!("The host is deleted in the middle of work, in which the annotation baremetalhost.metal3.io/detached counts with {{\"force\":true{delay}}} only: its machine is not let go as it is"));
            }
            draft.go(to);
            Some(draft.step(Next::Now))
        }
        None if status.error_type == Some(ErrorType::Registration) && status.error_count > GIVE_UP_AFTER => {
            let mut draft = Draft::new(view);
            draft.warn("DeletionGaveUp", &format!("The host is deleted as it is: {}", status.error_message));
            draft.go(State::Deleting);
            Some(draft.step(Next::Now))
        }
        None => None,
    }
}
