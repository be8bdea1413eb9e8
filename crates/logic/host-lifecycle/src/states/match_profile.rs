//! Legacy state between inspecting and preparing: found only in objects of old versions.

use api::metal3::ProvisioningState as State;

use crate::draft::through;
use crate::handler::{StateHandler, ignore};
use crate::step::Step;
use crate::view::View;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude: ignore };

fn decide(view: &View<'_>) -> Step {
    through(view, State::Preparing)
}
