//! Not looked at yet.

use api::metal3::{OperationalStatus, ProvisioningState as State};

use super::edge;
use crate::decide::ignore;
use crate::draft::{Draft, through};
use crate::step::{Next, Step};
use crate::table::Room;
use crate::view::View;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::None, State::Registering, "has BMC details"),
        edge(State::None, State::Unmanaged, "has none"),
        edge(State::None, State::Deleting, "deleted"),
    ],
    on_delete: Some(State::Deleting),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    if view.has_bmc() {
        return through(view, State::Registering);
    }
    let mut draft = Draft::new(view);
    draft.go(State::Unmanaged);
    draft.status.operational_status = OperationalStatus::Discovered;
    draft.event("Discovered", "The host has no BMC details; it is known, and not managed");
    draft.step(Next::After(view.settings.unmanaged_poll))
}
