//! Not looked at yet.

use api::metal3::ProvisioningState as State;

use crate::draft::{Draft, through};
use crate::handler::{StateHandler, ignore};
use crate::step::{Next, Step};
use crate::view::View;

/// What is done in it.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: Some(State::Deleting), decide, conclude: ignore };

fn decide(view: &View<'_>) -> Step {
    if view.has_bmc() {
        return through(view, State::Registering);
    }
    let mut draft = Draft::new(view);
    draft.go(State::Unmanaged);
    draft.event("Discovered", "The host has no BMC details; it is known, and not managed");
    draft.step(Next::After(view.settings.unmanaged_poll))
}
