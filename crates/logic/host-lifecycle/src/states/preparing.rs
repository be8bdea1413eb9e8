//! Being prepared. No provisioner configures RAID or firmware yet: wishes for them are an error that says so, and what is left to
//! do is to settle which disk the image will go to.

use api::metal3::{ErrorType, ProvisioningState as State};

use super::{LET_GO, edge};
use crate::decide::ignore;
use crate::draft::Draft;
use crate::step::{Next, Step};
use crate::table::Room;
use crate::validate;
use crate::view::View;
use crate::wishes;

/// The room.
pub(crate) const ROOM: Room = Room {
    edges: &[
        edge(State::Preparing, State::Available, "prepared"),
        edge(State::Preparing, State::PoweringOffBeforeDelete, "deleted"),
        edge(State::Preparing, State::Deleting, LET_GO),
    ],
    on_delete: Some(State::PoweringOffBeforeDelete),
    decide,
    conclude: ignore,
};

fn decide(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    if let Some(message) = fault(view) {
        draft.fault(ErrorType::Preparation, &message);
        return draft.step(Next::Wait);
    }
    draft.status.provisioning.root_device_hints = wishes::root_device_hints(view.host);
    draft.go(State::Available);
    draft.step(Next::Now)
}

/// Why the host cannot be prepared as wished.
pub(super) fn fault(view: &View<'_>) -> Option<String> {
    if let Some(violation) = validate::first(view.host, &[ErrorType::Preparation]) {
        return Some(violation.message);
    }
    let raid = view.host.spec.raid.as_ref()?;
    let wished = |count: Option<usize>| count.is_some_and(|n| n > 0);
    let any = wished(raid.hardware_raid_volumes.as_ref().map(Vec::len))
        || wished(raid.software_raid_volumes.as_ref().map(Vec::len));
    any.then(|| {
        "spec.raid asks for RAID volumes, which the provisioner of this host cannot make — remove spec.raid, and make the \
         volumes with the controller's own tools if they are needed"
            .to_owned()
    })
}
