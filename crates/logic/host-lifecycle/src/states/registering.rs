//! BMC access is being checked. All its work is `access`'s, which goes before any state's.

use api::metal3::ProvisioningState as State;

use crate::draft::idle;
use crate::handler::{StateHandler, ignore};
use crate::step::{Next, Step};
use crate::view::View;

/// What is done in it.
pub(crate) const HANDLER: StateHandler = StateHandler { on_delete: Some(State::Deleting), decide, conclude: ignore };

/// Registration was decided on before this is reached; there is nothing else to do.
fn decide(view: &View<'_>) -> Step {
    idle(view, Next::Wait)
}
