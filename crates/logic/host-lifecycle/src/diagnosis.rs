//! A diagnosis of a machine, requested by an annotation: its finding becomes an Event, and the annotation is removed.

use api::metal3::{ProvisioningState as State, annotation};

use crate::draft::Draft;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// Asks for the diagnosis that is wished; `None` if none is, or it has to wait for the registration.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    view.host.annotation(annotation::DIAGNOSE)?;
    if view.settings.served.diagnose {
        let registered = view.is_registered() && !matches!(view.host.state(), State::Registering | State::Deleting);
        return registered.then_some(Step::Act(Action::Diagnose));
    }
    let mut draft = Draft::new(view);
    draft.remove_annotation(annotation::DIAGNOSE);
    draft.warn("DiagnosisFailed", "The provisioner of this host makes no diagnoses; the annotation was dropped");
    Some(draft.step(Next::Now))
}

/// Reads the answer to a diagnosis. A failure becomes an Event and is not retried.
pub(crate) fn conclude(mut draft: Draft<'_>, outcome: Outcome) -> Change {
    if draft.view.host.annotation(annotation::DIAGNOSE).is_none() {
        return draft.seal(Next::Now);
    }
    match outcome {
        Outcome::Diagnosed { finding } => draft.event("Diagnosed", &finding),
        Outcome::Working { look_again } | Outcome::Accepted { look_again } | Outcome::Busy { look_again, .. } => {
            return draft.finish(Draft::look(look_again));
        }
        Outcome::NeedsRegistration => return draft.register_anew(),
        Outcome::Failed { message, .. } | Outcome::Blocked { message } => {
            draft.warn("DiagnosisFailed", &format!("The diagnosis failed: {message}"));
        }
        other => {
            let answer = other.name();
            draft.warn(
                "DiagnosisFailed",
                &format!("The provisioner answered \"{answer}\", which does not fit a diagnosis"),
            );
        }
    }
    draft.remove_annotation(annotation::DIAGNOSE);
    draft.finish(Next::Now)
}
