//! Has no BMC details.

use api::metal3::ProvisioningState as State;

use super::edge;
use crate::decide::ignore;
use crate::draft::{idle, through};
use crate::step::{Next, Step};
use crate::table::Room;
use crate::view::View;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::Unmanaged, State::Registering, "got BMC details"),
        edge(State::Unmanaged, State::Deleting, "deleted"),
    ],
    on_delete: Some(State::Deleting),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    if view.has_bmc() {
        return through(view, State::Registering);
    }
    idle(view, Next::After(view.settings.unmanaged_poll))
}
