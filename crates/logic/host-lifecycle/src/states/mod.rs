//! One file a state: what is done in it, and what the answers to its calls mean.

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

use crate::handler::StateHandler;

/// The handler of a state.
pub(crate) const fn handler(state: State) -> &'static StateHandler {
    match state {
        State::None => &none::HANDLER,
        State::Unmanaged => &unmanaged::HANDLER,
        State::Registering => &registering::HANDLER,
        State::Inspecting => &inspecting::HANDLER,
        State::MatchProfile => &match_profile::HANDLER,
        State::Preparing => &preparing::HANDLER,
        State::Available | State::Ready => &available::HANDLER,
        State::Provisioning => &provisioning::HANDLER,
        State::Provisioned => &provisioned::HANDLER,
        State::ExternallyProvisioned => &externally_provisioned::HANDLER,
        State::Deprovisioning => &deprovisioning::HANDLER,
        State::PoweringOffBeforeDelete => &powering_off::HANDLER,
        State::Deleting => &deleting::HANDLER,
    }
}
