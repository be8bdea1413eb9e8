//! An image is on it.

use api::metal3::{ProvisioningState as State, annotation};

use crate::draft::Draft;
use crate::handler::StateHandler;
use crate::requests;
use crate::served;
use crate::steady;
use crate::step::{Next, Step};
use crate::view::View;
use crate::wishes;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::Deprovisioning), decide, conclude: steady::conclude };

fn decide(view: &View<'_>) -> Step {
    if wishes::removal(view.host, view.status()) {
        let mut draft = Draft::new(view);
        draft.event("DeprovisioningStarted", "The image is no longer wished");
        draft.go(State::Deprovisioning);
        return draft.step(Next::Now);
    }
    if view.rebuild {
        let mut draft = Draft::new(view);
        if let Some(why) = requests::unfit(view.host).or_else(|| unserved(view)) {
            draft.remove_annotation(annotation::REBUILD);
            draft.warn("RebuildDropped", &format!("The annotation is dropped, and nothing is rebuilt: {why}"));
            return draft.step(Next::Now);
        }
        // Removed when the status says that it is done: until then, what is decided here is decided again.
        draft.remove_annotation(annotation::REBUILD);
        draft.event("DeprovisioningStarted", "The host is rebuilt, as a HostOperation asks");
        draft.go(State::Deprovisioning);
        return draft.step(Next::Now);
    }
    steady::decide(view)
}

/// What keeps the host from being provisioned again, of what nobody serves.
fn unserved(view: &View<'_>) -> Option<String> {
    served::unserved(view.host, &view.settings.served).into_iter().next().map(|violation| violation.message)
}
