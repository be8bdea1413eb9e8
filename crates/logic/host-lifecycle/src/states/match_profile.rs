//! Legacy state between inspecting and preparing: found only in objects of old versions.

use api::metal3::ProvisioningState as State;

use super::{LET_GO, edge};
use crate::decide::ignore;
use crate::draft::through;
use crate::step::Step;
use crate::table::Room;
use crate::view::View;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::MatchProfile, State::Preparing, "at once"),
        edge(State::MatchProfile, State::PoweringOffBeforeDelete, "deleted"),
        edge(State::MatchProfile, State::Deleting, LET_GO),
    ],
    on_delete: Some(State::PoweringOffBeforeDelete),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    through(view, State::Preparing)
}
