//! Provisioned by someone else: only its power is managed, and nothing on it is ever touched.

use api::metal3::{OperationMetric, ProvisioningState as State};

use crate::draft::Draft;
use crate::handler::StateHandler;
use crate::steady;
use crate::step::{Next, Step};
use crate::view::View;
use crate::wishes;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude: steady::conclude };

fn decide(view: &View<'_>) -> Step {
    if view.host.spec.externally_provisioned == Some(true) {
        return steady::decide(view);
    }
    // What the spec names is taken to be what is on the machine; if it names nothing, the next look deprovisions it.
    let mut draft = Draft::new(view);
    draft.status.provisioning.image = wishes::image(view.host).cloned().unwrap_or_default();
    draft.status.provisioning.custom_deploy = view.host.spec.custom_deploy.clone();
    if !wishes::has_nothing(&draft.status) {
        // When it was put there nobody knows; that it is there by now tells a later look at the machine's record that this status is no older.
        let now = draft.now();
        draft.status.operation_history.provision = OperationMetric { start: Some(now.clone()), end: Some(now) };
    }
    draft.go(State::Provisioned);
    draft.step(Next::Now)
}
