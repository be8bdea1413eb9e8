//! The dispatch table: each state's room, the doors that lead out of it, and the diagram drawn from them.

use std::fmt::Write as _;

use api::metal3::ProvisioningState as State;

use crate::draft::Draft;
use crate::states;
use crate::step::{Action, Change, Outcome, Step};
use crate::view::View;

/// A door: the only way to change `status.provisioning.state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Where from.
    pub(crate) from: State,
    /// Where to.
    pub(crate) to: State,
    /// When, in a few words.
    pub(crate) when: &'static str,
}

/// Everything about one state. (A «room»: what is done in it, and where its doors lead.)
pub(crate) struct Room {
    /// The doors out.
    pub(crate) edges: &'static [Edge],
    /// Where a host goes first that is to be deleted; `None` if it is on its way out already.
    pub(crate) on_delete: Option<State>,
    /// What next?
    pub(crate) decide: fn(&View<'_>) -> Step,
    /// What does the answer to one of this state's own calls mean? (Answers about registration, power and release are read alike in all states.)
    pub(crate) conclude: fn(Draft<'_>, &Action, Outcome) -> Change,
}

/// The room of a state.
pub(crate) const fn room(state: State) -> &'static Room {
    match state {
        State::None => &states::none::ROOM,
        State::Unmanaged => &states::unmanaged::ROOM,
        State::Registering => &states::registering::ROOM,
        State::Inspecting => &states::inspecting::ROOM,
        State::MatchProfile => &states::match_profile::ROOM,
        State::Preparing => &states::preparing::ROOM,
        State::Ready => &states::available::READY_ROOM,
        State::Available => &states::available::ROOM,
        State::Provisioning => &states::provisioning::ROOM,
        State::Provisioned => &states::provisioned::ROOM,
        State::ExternallyProvisioned => &states::externally_provisioned::ROOM,
        State::Deprovisioning => &states::deprovisioning::ROOM,
        State::PoweringOffBeforeDelete => &states::powering_off::ROOM,
        State::Deleting => &states::deleting::ROOM,
    }
}

/// Every door, in the order of the states.
pub(crate) fn edges() -> impl Iterator<Item = &'static Edge> {
    State::ALL.into_iter().flat_map(|state| room(state).edges)
}

/// The state diagram as Mermaid text, drawn from the table that the code runs on.
#[must_use]
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for state in State::ALL {
        let label = if state == State::None { "(new)" } else { state.as_str() };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {state:?}: {label}");
    }
    let _ = writeln!(text, "    [*] --> None");
    for edge in edges() {
        let _ = writeln!(text, "    {:?} --> {:?}: {}", edge.from, edge.to, edge.when);
    }
    let _ = writeln!(text, "    Deleting --> [*]: released");
    text
}
