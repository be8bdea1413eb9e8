//! Releasing a host without deprovisioning it (annotation `baremetalhost.metal3.io/detached`).

use api::metal3::{CredentialsStatus, ErrorType, OperationalStatus, ProvisioningState};

use crate::annotations;
use crate::data_image;
use crate::draft::{Draft, idle};
use crate::firmware;
use crate::retry::wait_left;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// Releases the host if its annotation asks for that; `None` if not, or if it has to wait.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let wish = annotations::detached(view.host)?;
    let is_detached = view.status().operational_status == OperationalStatus::Detached
        && view.host.state() != ProvisioningState::Deleting;
    // Only the annotation's removal takes a host back, not another value of it.
    if !is_detached && !wish.applies(view.host.state()) {
        return None;
    }
    if is_detached {
        if let Some(step) = data_image::let_go(view) {
            return Some(step);
        }
        return Some(idle(view, Next::After(view.settings.unmanaged_poll)));
    }
    // Upstream's own schema refuses its class "detach error"; the nearest allowed one is registration.
    Some(match wait_left(view, ErrorType::Registration) {
        Some(left) => idle(view, Next::After(left)),
        None => Step::Act(Action::Release),
    })
}

/// Reads the answer to a release that did not serve a deletion.
pub(crate) fn conclude(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    match outcome {
        Outcome::Done => {
            if draft.status.operational_status != OperationalStatus::Detached {
                draft.event("Detached", "The host was let go; remove the annotation to take it back");
                if let Some(what) = annotations::detached_fault(draft.view.host) {
                    draft.warn("InvalidAnnotationValue", &what);
                }
            }
            // The release has ended the provisioner's work.
            firmware::failed(&mut draft);
            draft.clear_error();
            draft.status.error_count = 0;
            draft.status.operational_status = OperationalStatus::Detached;
            // Taking the host back begins with a check of its access.
            draft.status.good_credentials = CredentialsStatus::default();
            draft.status.tried_credentials = CredentialsStatus::default();
            let poll = draft.view.settings.unmanaged_poll;
            draft.finish(Next::After(poll))
        }
        other => {
            let waits = annotations::detaches_before_deletion(draft.view.host);
            let mut change = draft.not_done(ErrorType::Registration, "detachment", other);
            if waits {
                // They are no failures of the deletion, which would give the host up after some, once the wish is taken back.
                change.status.error_count = change.status.error_count.min(1);
            }
            change
        }
    }
}
