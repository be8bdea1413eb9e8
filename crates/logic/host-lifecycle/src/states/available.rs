//! Can be provisioned. (`ready` is its legacy name.)

use addresses::text_without_secrets;
use api::metal3::{BareMetalHostStatus, ErrorType, ProvisioningState as State, annotation};

use super::preparing;
use crate::annotations;
use crate::conditions::{self, EXHAUSTED};
use crate::data_image;
use crate::draft::{Draft, idle, through};
use crate::firmware;
use crate::handler::{StateHandler, ignore};
use crate::host_rules;
use crate::power;
use crate::requests;
use crate::retry::wait_left;
use crate::served;
use crate::step::{Action, Next, Step};
use crate::targets;
use crate::view::View;
use crate::wishes;

/// What is done in it, under its old name too.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude: ignore };

fn decide(view: &View<'_>) -> Step {
    let (host, status) = (view.host, view.status());
    if host.spec.externally_provisioned == Some(true) {
        let mut draft = Draft::new(view);
        targets::forget_software_raid(&mut draft.status);
        draft.go(State::ExternallyProvisioned);
        return draft.step(Next::Now);
    }
    if annotations::inspection_requested_in_vain(host) {
        let mut draft = Draft::new(view);
        draft.remove_annotation(annotation::INSPECT);
        draft
            .event("InspectionSkipped", "The annotation inspect.metal3.io is dropped: spec.inspectionMode is disabled");
        return draft.step(Next::Now);
    }
    if annotations::inspection_requested(host) {
        let mut draft = Draft::new(view);
        draft.remove_annotation(annotation::INSPECT);
        draft.event("InspectionStarted", "Another inspection of the hardware started");
        draft.go(State::Inspecting);
        return draft.step(Next::Now);
    }
    if view.erasure().is_some() {
        let dropped = ("EraseDropped", "The annotation is dropped, and nothing is erased");
        return begin_on_empty(
            view,
            annotation::ERASE,
            dropped,
            ("EraseStarted", "The disks are erased, as a HostOperation asks"),
        );
    }
    if view.asked_steps().is_some() {
        let dropped = ("StepsDropped", "The annotation is dropped, and no step is run");
        let begun =
            ("StepsStarted", "Steps of the agent's hardware managers are listed or run, as a HostOperation asks");
        return begin_on_empty(view, annotation::STEPS, dropped, begun);
    }
    if wishes::hints_differ(host, status) || preparing::fault(view).is_some() {
        return through(view, State::Preparing);
    }
    if let Some(step) = data_image::release(view).or_else(|| other_targets(view)) {
        return step;
    }
    if wishes::deployment(host, status) {
        match obstacle(view, status) {
            None => return begin_provisioning(view),
            // A failure of power management is not overwritten: its wait would be forgotten.
            Some(message) if status.error_type != Some(ErrorType::PowerManagement) => {
                let mut draft = Draft::new(view);
                draft.fault(ErrorType::Provisioning, &message);
                if draft.status != *status {
                    return draft.step(Next::Now);
                }
            }
            Some(_) => {}
        }
    } else if no_wish_left(view, status) {
        return forget_attempts(view);
    }
    power::steady(view)
}

/// Something is done to the empty machine, as a request asks: more is erased, or steps are run. Its annotation stays until that has ended: it says what
/// is being done.
fn begin_on_empty(
    view: &View<'_>,
    key: &'static str,
    dropped: (&'static str, &str),
    begun: (&'static str, &str),
) -> Step {
    let mut draft = Draft::new(view);
    if let Some(why) = requests::unfit_to_erase(view.host) {
        draft.remove_annotation(key);
        draft.warn(dropped.0, &format!("{}: {why}", dropped.1));
        return draft.step(Next::Now);
    }
    draft.event(begun.0, begun.1);
    draft.go(State::Deprovisioning);
    draft.step(Next::Now)
}

/// Back to preparing if RAID volumes or firmware are to be others than they are; first what there is may have to be read.
fn other_targets(view: &View<'_>) -> Option<Step> {
    if !view.settings.served.prepares() {
        // What can be read only is read now and then.
        return firmware::freshen(view);
    }
    if let Some(left) = wait_left(view, ErrorType::Preparation).filter(|_| !firmware::was_edited(view)) {
        return Some(idle(view, Next::After(left)));
    }
    let targets = targets::preparing(view);
    if firmware::is_taken(view) || firmware::is_older(view, view.settings.facts_poll) || targets.is_none() {
        return Some(Step::Act(Action::RefreshFacts));
    }
    targets.filter(|targets| !targets.is_empty()).map(|_| through(view, State::Preparing))
}

/// Why provisioning must not begin.
fn obstacle(view: &View<'_>, status: &BareMetalHostStatus) -> Option<String> {
    if let Some(violation) = host_rules::first(view.host, &[ErrorType::Provisioning]) {
        return Some(violation.message);
    }
    if let Some(violation) = served::unserved(view.host, &view.settings.served).into_iter().next() {
        return Some(violation.message);
    }
    let (failed, limit) = (status.provisioning_fail_count, i64::from(view.settings.max_provisioning_retries));
    let same = status.last_attempted_image.as_ref() == wishes::image(view.host);
    (same && limit > 0 && failed >= limit).then(|| {
        let head = format!("{EXHAUSTED}{failed} times; the retry limit is {limit} and no more attempts are made");
        if status.error_message.starts_with(&head) {
            return status.error_message.clone();
        }
        let last = conditions::earlier(status, "Provisioned").map_or_else(String::new, |last| format!(", the last because: {last}"));
        format!(
            "{head}{last} — correct what is wrong, then change anything in spec.image, or remove it and set it again: other changes do not begin anew"
        )
    })
}

fn begin_provisioning(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    let image = wishes::image(view.host).cloned();
    if draft.status.last_attempted_image != image {
        draft.status.provisioning_fail_count = 0;
        draft.status.last_attempted_image.clone_from(&image);
    }
    draft.event(
        "ProvisioningStarted",
        &match image {
            Some(image) => format!("Image provisioning started for {}", text_without_secrets(&image.url)),
            None => format!("Provisioning started with method {}", wishes::method(view.host)),
        },
    );
    // Admission has warned of it, where there is one.
    for unused in served::unused(view.host, &view.settings.served) {
        draft.warn("UnusedFields", &unused);
    }
    draft.go(State::Provisioning);
    draft.step(Next::Now)
}

/// Nothing is wished for, and failed attempts are still remembered.
fn no_wish_left(view: &View<'_>, status: &BareMetalHostStatus) -> bool {
    let nothing = wishes::image(view.host).is_none() && wishes::method(view.host).is_empty();
    nothing && (status.provisioning_fail_count != 0 || status.error_type == Some(ErrorType::Provisioning))
}

fn forget_attempts(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    draft.status.provisioning_fail_count = 0;
    draft.status.last_attempted_image = None;
    draft.work_succeeded(ErrorType::Provisioning);
    draft.step(Next::Now)
}
