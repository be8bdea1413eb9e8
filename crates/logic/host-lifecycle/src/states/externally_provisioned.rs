//! Provisioned by someone else: only its power is managed, and nothing on it is ever touched.

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
        edge(State::ExternallyProvisioned, State::Provisioned, "no longer someone else's"),
        edge(State::ExternallyProvisioned, State::PoweringOffBeforeDelete, "deleted"),
        edge(State::ExternallyProvisioned, State::Deleting, LET_GO),
    ],
    on_delete: Some(State::PoweringOffBeforeDelete),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    if view.host.spec.externally_provisioned == Some(true) {
        return power::steady(view);
    }
    // What the spec names is taken to be what is on the machine; if it names nothing, the next look deprovisions it.
    let mut draft = Draft::new(view);
    draft.status.provisioning.image = wishes::image(view.host).cloned().unwrap_or_default();
    draft.status.provisioning.custom_deploy = view.host.spec.custom_deploy.clone();
    draft.go(State::Provisioned);
    draft.step(Next::Now)
}
