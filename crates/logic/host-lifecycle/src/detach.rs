//! Letting go of a host without deprovisioning it (annotation `baremetalhost.metal3.io/detached`).

use api::metal3::{CredentialsStatus, ErrorType, OperationalStatus, ProvisioningState as State};

use crate::annotations::{self, Detached};
use crate::draft::{Draft, idle};
use crate::retry::wait_left;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// Whether a host in this state can be let go; in the other states the wish waits, unless it is forced.
pub(crate) fn applies(state: State, wish: &Detached) -> bool {
    match state {
        State::Available | State::Ready | State::Provisioned | State::ExternallyProvisioned => true,
        State::Inspecting
        | State::Preparing
        | State::Provisioning
        | State::Deprovisioning
        | State::PoweringOffBeforeDelete => wish.force,
        State::None | State::Unmanaged | State::Registering | State::MatchProfile | State::Deleting => false,
    }
}

/// Lets go of the host if that is wished; `None` if it is not, or has to wait.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let wish = annotations::detached(view.host)?;
    if !applies(view.host.state(), &wish) {
        return None;
    }
    if view.status().operational_status == OperationalStatus::Detached {
        return Some(idle(view, Next::After(view.settings.unmanaged_poll)));
    }
    // Upstream's class «detach error» is refused by its own schema; the nearest one that is allowed is registration.
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
            }
            draft.clear_error();
            draft.status.error_count = 0;
            draft.status.operational_status = OperationalStatus::Detached;
            // Taking it back begins with checking the access again.
            draft.status.good_credentials = CredentialsStatus::default();
            draft.status.tried_credentials = CredentialsStatus::default();
            let poll = draft.view.settings.unmanaged_poll;
            draft.finish(Next::After(poll))
        }
        other => draft.not_done(ErrorType::Registration, "detachment", other),
    }
}
