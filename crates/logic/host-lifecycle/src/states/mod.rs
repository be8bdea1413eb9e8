//! One file a state: its doors, what is done in it, and what the answers to its calls mean.

pub(crate) mod available;
pub(crate) mod deleting;
pub(crate) mod deprovisioning;
pub(crate) mod externally_provisioned;
pub(crate) mod inspecting;
pub(crate) mod match_profile;
pub(crate) mod none;
pub(crate) mod powering_off;
pub(crate) mod preparing;
pub(crate) mod provisioned;
pub(crate) mod provisioning;
pub(crate) mod registering;
pub(crate) mod unmanaged;

use api::metal3::ProvisioningState as State;

use crate::table::Edge;

/// A door.
const fn edge(from: State, to: State, when: &'static str) -> Edge {
    Edge { from, to, when }
}

/// When a host is deleted without the provisioner: it was let go, or never known to it.
const LET_GO: &str = "deleted while detached or never registered";
