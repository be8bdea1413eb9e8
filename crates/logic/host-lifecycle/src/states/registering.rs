//! BMC access is being checked. All its work is `access`'s, which goes before any state's.

use api::metal3::ProvisioningState as State;

use super::edge;
use crate::decide::ignore;
use crate::draft::idle;
use crate::step::{Next, Step};
use crate::table::Room;
use crate::view::View;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::Registering, State::ExternallyProvisioned, "registered, someone else provisions it"),
        edge(State::Registering, State::Inspecting, "registered"),
        edge(State::Registering, State::Preparing, "registered, inspection disabled"),
        edge(State::Registering, State::Deleting, "deleted"),
    ],
    on_delete: Some(State::Deleting),
    decide,
    conclude: ignore,
};

/// Registration was decided on before this is reached; there is nothing else to do.
fn decide(view: &View<'_>) -> Step {
    idle(view, Next::Wait)
}
