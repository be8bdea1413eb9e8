//! The hardware is being looked at.

use std::sync::Arc;

use api::metal3::{ErrorType, InspectionMode, ProvisioningState as State, annotation};
use inventory::Inspected;

use crate::annotations;
use crate::boot_mac;
use crate::draft::{Draft, idle};
use crate::handler::StateHandler;
use crate::retry::wait_left;
use crate::served;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude };

fn decide(view: &View<'_>) -> Step {
    if annotations::inspection_disabled(view.host) {
        // The way out for a machine that cannot be inspected.
        let mut draft = Draft::new(view);
        draft.event("InspectionSkipped", "Inspection is disabled");
        draft.go(State::Preparing);
        return draft.step(Next::Now);
    }
    let kinds = &[ErrorType::Registration, ErrorType::Inspection];
    if let Some(violation) = served::first(view.host, &view.settings.served, kinds) {
        let mut draft = Draft::new(view);
        draft.fault(ErrorType::Inspection, &violation.message);
        return draft.step(Next::Wait);
    }
    if let Some(left) = wait_left(view, ErrorType::Inspection) {
        return idle(view, Next::After(left));
    }
    Step::Act(Action::Inspect { restart: view.status().error_type == Some(ErrorType::Inspection) })
}

fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    if !matches!(action, Action::Inspect { .. }) {
        return draft.seal(Next::Now);
    }
    if annotations::inspection_requested(draft.view.host) {
        draft.remove_annotation(annotation::INSPECT);
    }
    if matches!(outcome, Outcome::Accepted { .. }) {
        draft.agent_booted_anew();
    }
    match outcome {
        Outcome::Inspected(found) => inspected(draft, found),
        other => draft.not_done(ErrorType::Inspection, "inspection", other),
    }
}

fn inspected(mut draft: Draft<'_>, found: Box<Inspected>) -> Change {
    let details = &found.hardware;
    draft.status.operation_history.inspect.end = Some(draft.now());
    if draft.view.host.spec.architecture.as_ref().is_none_or(String::is_empty)
        && let Some(architecture) = details.cpu.as_ref().and_then(|c| c.arch.clone()).filter(|a| !a.is_empty())
    {
        draft.set_architecture(architecture);
    }
    draft.status.hardware = Some(Arc::new(details.clone()));
    let is_fast = draft.view.host.spec.inspection_mode == Some(InspectionMode::Fast);
    let by = if is_fast { "The BMC has listed the hardware" } else { "The hardware was inspected" };
    draft.event("InspectionComplete", by);
    if let Some(gaps) = found.gaps() {
        let text = format!(
            "The BMC does not list, or not completely: {gaps}. What is missing there may be in the machine all the same: many BMCs show it only while \
             the machine is on. An inspection by the agent sees it (spec.inspectionMode)"
        );
        draft.warn("InspectionIncomplete", &text);
    }
    if let Some(what) = boot_mac::not_listed(draft.view.host, details) {
        draft.warn("BootMACNotListed", &what);
    }
    draft.write_hardware_data(found);
    draft.go(State::Preparing);
    draft.finish(Next::Now)
}
