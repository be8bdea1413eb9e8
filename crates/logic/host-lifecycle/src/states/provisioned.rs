//! An image is on it.

use api::metal3::ProvisioningState as State;

use super::{LET_GO, edge};
use crate::decide::ignore;
use crate::draft::Draft;
use crate::power;
use crate::step::{Next, Step};
use crate::table::Room;
use crate::view::View;
use crate::wishes;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::Provisioned, State::Deprovisioning, "image removed or changed, or deleted"),
        edge(State::Provisioned, State::Deleting, LET_GO),
    ],
    on_delete: Some(State::Deprovisioning),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    if wishes::removal(view.host, &view.status()) {
        let mut draft = Draft::new(view);
        draft.event("DeprovisioningStarted", "The image is no longer wished");
        draft.go(State::Deprovisioning);
        return draft.step(Next::Now);
    }
    power::steady(view)
}
