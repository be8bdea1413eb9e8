//! The transitions: the only ways to change `status.provisioning.state`, and the diagram drawn from them.

use std::fmt::Write as _;

use api::metal3::ProvisioningState as State;

/// One way from a state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    /// Where from.
    pub(crate) from: State,
    /// Where to.
    pub(crate) to: State,
    /// When, in a few words.
    pub(crate) when: &'static str,
}

/// When a host is deleted without the provisioner: it was let go, or never known to it.
const LET_GO: &str = "deleted while detached or never registered";

/// A transition.
const fn way(from: State, to: State, when: &'static str) -> Transition {
    Transition { from, to, when }
}

/// Every transition, in the order of the states.
pub(crate) const TRANSITIONS: &[Transition] = &[
    way(State::None, State::Registering, "has BMC details"),
    way(State::None, State::Unmanaged, "has none"),
    way(State::None, State::Deleting, "deleted"),
    way(State::Unmanaged, State::Registering, "got BMC details"),
    way(State::Unmanaged, State::Deleting, "deleted"),
    way(State::Registering, State::ExternallyProvisioned, "registered, someone else provisions it"),
    way(State::Registering, State::Inspecting, "registered"),
    way(State::Registering, State::Preparing, "registered, inspection disabled"),
    way(State::Registering, State::Provisioned, "recognized, its status was lost"),
    way(State::Registering, State::Deleting, "deleted"),
    way(State::MatchProfile, State::Preparing, "at once"),
    way(State::MatchProfile, State::PoweringOffBeforeDelete, "deleted"),
    way(State::MatchProfile, State::Deleting, LET_GO),
    way(State::Preparing, State::Available, "prepared"),
    way(State::Preparing, State::PoweringOffBeforeDelete, "deleted"),
    way(State::Preparing, State::Deleting, LET_GO),
    way(State::Ready, State::ExternallyProvisioned, "someone else provisions it"),
    way(State::Ready, State::Inspecting, "another inspection asked for"),
    way(State::Ready, State::Preparing, "root device hints or RAID changed"),
    way(State::Ready, State::Provisioning, "online and an image is wished"),
    way(State::Ready, State::Deprovisioning, "disks are to be erased, or steps to be run"),
    way(State::Ready, State::PoweringOffBeforeDelete, "deleted"),
    way(State::Ready, State::Deleting, LET_GO),
    way(State::Available, State::ExternallyProvisioned, "someone else provisions it"),
    way(State::Available, State::Inspecting, "another inspection asked for"),
    way(State::Available, State::Preparing, "root device hints or RAID changed"),
    way(State::Available, State::Provisioning, "online and an image is wished"),
    way(State::Available, State::Deprovisioning, "disks are to be erased, or steps to be run"),
    way(State::Available, State::PoweringOffBeforeDelete, "deleted"),
    way(State::Available, State::Deleting, LET_GO),
    way(State::Provisioning, State::Provisioned, "image written and booted"),
    way(State::Provisioning, State::Deprovisioning, "failed, or image removed or changed, or deleted"),
    way(State::Provisioning, State::Deleting, LET_GO),
    way(State::Provisioned, State::Deprovisioning, "image removed or changed, or deleted"),
    way(State::Provisioned, State::Deleting, LET_GO),
    way(State::ExternallyProvisioned, State::Provisioned, "no longer someone else's"),
    way(State::ExternallyProvisioned, State::PoweringOffBeforeDelete, "deleted"),
    way(State::ExternallyProvisioned, State::Deleting, LET_GO),
    way(State::Deprovisioning, State::Available, "removed, or erasing or steps have ended"),
    way(State::Deprovisioning, State::PoweringOffBeforeDelete, "removed or given up, and deleted"),
    way(State::Deprovisioning, State::Deleting, LET_GO),
    way(State::Inspecting, State::Preparing, "inspected, or inspection disabled"),
    way(State::Inspecting, State::PoweringOffBeforeDelete, "deleted"),
    way(State::Inspecting, State::Deleting, LET_GO),
    way(State::PoweringOffBeforeDelete, State::Deleting, "off, given up, let go by force, or must not be powered off"),
];

/// Whether a host may go from the one state to the other.
pub(crate) fn allows(from: State, to: State) -> bool {
    TRANSITIONS.iter().any(|way| way.from == from && way.to == to)
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
    for way in TRANSITIONS {
        let _ = writeln!(text, "    {:?} --> {:?}: {}", way.from, way.to, way.when);
    }
    let _ = writeln!(text, "    Deleting --> [*]: released");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_table_does_not_name_is_not_allowed() {
        let pairs = State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to)));
        let allowed = pairs.filter(|(from, to)| allows(*from, *to)).count();
        assert_eq!(allowed, TRANSITIONS.len());
    }
}
