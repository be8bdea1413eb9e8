//! What comes before the state: pause, data in annotations, finalizer.

use std::sync::Arc;

use api::Time;
use api::metal3::{BareMetalHostStatus, ErrorType, ProvisioningState as State, annotation, finalizer};
use inventory::HardwareDetails;

use crate::annotations;
use crate::draft::Draft;
use crate::step::{Next, Step};
use crate::view::{View, is_registered_since_made};
use crate::wishes;

/// The step that must come before anything else, if there is one.
pub(crate) fn decide(view: &View<'_>) -> Option<Step> {
    let host = view.host;
    if host.annotation(annotation::PAUSED).is_some() {
        return Some(untouched(Draft::new(view), Next::Wait));
    }
    if host.is_deleting() {
        let ours = host.has_finalizer(finalizer::HOST);
        return (!ours).then(|| untouched(Draft::new(view), Next::Gone));
    }
    let annotated = restore(view)
        .or_else(|| external_details(view))
        .or_else(|| malformed_reboot(view))
        .or_else(|| rebuild_elsewhere(view))
        .or_else(|| erase_elsewhere(view));
    annotated.or_else(|| architecture(view)).or_else(|| {
        if host.has_finalizer(finalizer::HOST) {
            return None;
        }
        let mut draft = Draft::new(view);
        draft.add_finalizer();
        Some(untouched(draft, Next::Now))
    })
}

/// A step that leaves the status exactly as it is.
fn untouched(draft: Draft<'_>, next: Next) -> Step {
    Step::Change(Box::new(draft.seal(next)))
}

/// The status annotation: restored into a host that has no status yet, dropped in any case. One that was never registered, because its machine is held for
/// what it may run, has none to speak of, and one that is held because it was restored from a status that is too old gets a better one: late.
fn restore(view: &View<'_>) -> Option<Step> {
    let text = view.host.annotation(annotation::STATUS)?;
    let mut draft = Draft::new(view);
    draft.remove_annotation(annotation::STATUS);
    let never = !view.is_registered() && matches!(draft.status.provisioning.state, State::None | State::Registering);
    let is_new =
        never || !is_registered_since_made(view.host) && draft.status.error_type == Some(ErrorType::Registration);
    if draft.status.last_updated.is_some() && !is_new {
        return Some(untouched(draft, Next::Now));
    }
    match annotations::lenient::<BareMetalHostStatus>(text) {
        Ok((status, unknown)) => {
            if let Some(path) = unknown {
                let what = format!("The status is restored without {path}, which is no field of it that is known here");
                draft.warn("InvalidAnnotationValue", &what);
            }
            draft.status = sane(status, view.host.metadata.creation_timestamp.as_ref());
            if let Some(details) = view.hardware_data {
                draft.status.hardware = Some(Arc::clone(details));
            }
            Some(draft.step(Next::Now))
        }
        Err(what) => {
            draft.warn("InvalidAnnotationValue", &format!("{} was dropped: {what}", annotation::STATUS));
            Some(untouched(draft, Next::Now))
        }
    }
}

/// Drops reboot annotations that cannot be parsed, with an Event; the host is not rebooted.
fn malformed_reboot(view: &View<'_>) -> Option<Step> {
    let faults = annotations::reboot_faults(view.host);
    if faults.is_empty() {
        return None;
    }
    let mut draft = Draft::new(view);
    for (key, what) in &faults {
        draft.remove_annotation(key);
        draft.warn(
            "InvalidAnnotationValue",
            &format!("The host is not rebooted, and the annotation was dropped: {what}"),
        );
    }
    Some(untouched(draft, Next::Now))
}

/// Drops a rebuild's annotation where there is nothing to rebuild: it was for what was provisioned then, and no request may come back to it later.
fn rebuild_elsewhere(view: &View<'_>) -> Option<Step> {
    let state = view.host.state();
    if view.host.annotation(annotation::REBUILD).is_none() || view.rebuild && state == State::Provisioned {
        return None;
    }
    let mut draft = Draft::new(view);
    draft.remove_annotation(annotation::REBUILD);
    // That it is deprovisioned may be what the annotation has brought about.
    if state != State::Deprovisioning {
        let what = "The annotation is dropped, and nothing is rebuilt: no HostOperation of the type Rebuild that runs asks for it now";
        draft.warn("RebuildDropped", what);
    }
    Some(untouched(draft, Next::Now))
}

/// Drops the annotation of an erasure or of steps where nothing of it is to be done, or not any more. A host that is being erased keeps it until that has ended: it says what
/// the host is deprovisioned for.
fn erase_elsewhere(view: &View<'_>) -> Option<Step> {
    let erase = "The annotation is dropped, and nothing more is erased: no HostOperation of the type Erase that runs asks for it now, or the provisioner does not do it";
    let steps = "The annotation is dropped, and no more steps are run: no HostOperation of the type Steps that runs asks for it now, or the provisioner does not do it";
    drop_elsewhere(view, (annotation::ERASE, view.erasure().is_some()), ("EraseDropped", erase))
        .or_else(|| drop_elsewhere(view, (annotation::STEPS, view.asked_steps().is_some()), ("StepsDropped", steps)))
}

fn drop_elsewhere(
    view: &View<'_>,
    (key, is_asked): (&'static str, bool),
    (reason, what): (&'static str, &str),
) -> Option<Step> {
    let state = view.host.state();
    let fits = matches!(state, State::Available | State::Ready | State::Deprovisioning);
    let is_withdrawn = state == State::Deprovisioning && wishes::is_for_erasing(view.host, view.status());
    if view.host.annotation(key).is_none() || is_asked && fits || is_withdrawn {
        return None;
    }
    let mut draft = Draft::new(view);
    draft.remove_annotation(key);
    draft.warn(reason, what);
    Some(untouched(draft, Next::Now))
}

/// A restored status, made valid for a host that is not being deleted. Of operations it keeps what is older than the object: nothing has begun or
/// ended for this one yet, and what its history tells of a later time is what this server has done.
fn sane(mut status: BareMetalHostStatus, created: Option<&Time>) -> BareMetalHostStatus {
    status.conditions.clear();
    let is_later = |time: &Option<Time>| time.as_ref().zip(created).is_some_and(|(time, created)| time.0 >= created.0);
    let history = &mut status.operation_history;
    for metric in [&mut history.deprovision, &mut history.inspect, &mut history.provision, &mut history.register] {
        if is_later(&metric.start) {
            metric.start = None;
            metric.end = None;
        } else if is_later(&metric.end) {
            metric.end = None;
        }
    }
    status.error_count = status.error_count.max(0);
    status.provisioning_fail_count = status.provisioning_fail_count.max(0);
    if matches!(status.provisioning.state, State::PoweringOffBeforeDelete | State::Deleting) {
        // Saved during a deletion: with a system the host is provisioned, without one it starts over.
        status.provisioning.state = if wishes::has_nothing(&status) { State::None } else { State::Provisioned };
    }
    status
}

/// Hardware details from HardwareData, or from the annotation while there is no HardwareData. The annotation is dropped in any case, with a word where
/// it has no effect; while the host is registered, validation reports what is wrong with it.
fn external_details(view: &View<'_>) -> Option<Step> {
    let known = view.host.status.as_ref().and_then(|s| s.hardware.as_ref());
    let wanted = known.is_none() || annotations::inspection_disabled(view.host);
    let text = view.host.annotation(annotation::HARDWARE_DETAILS);
    let given = text.filter(|text| wanted && view.hardware_data.is_none() && !text.is_empty());
    let read = given.map(annotations::strict::<HardwareDetails>);
    if matches!(read, Some(Err(_))) && matches!(view.host.state(), State::None | State::Unmanaged | State::Registering)
    {
        return None;
    }
    let begun = || {
        let mut draft = Draft::new(view);
        draft.remove_annotation(annotation::HARDWARE_DETAILS);
        draft
    };
    let (found, from) = match read {
        Some(Err(what)) => {
            let mut draft = begun();
            draft.warn("InvalidAnnotationValue", &format!("{} was dropped: {what}", annotation::HARDWARE_DETAILS));
            return Some(untouched(draft, Next::Now));
        }
        Some(Ok(details)) => (Some(Arc::new(details)), "the annotation"),
        None => (view.hardware_data.filter(|_| wanted).cloned(), "the HardwareData"),
    };
    match found.filter(|found| known != Some(found)) {
        Some(details) => {
            let mut draft = begun();
            draft.event("UpdateHardwareDetails", &format!("Hardware details were taken from {from}"));
            draft.status.hardware = Some(details);
            Some(draft.step(Next::Now))
        }
        None if text.is_some() => {
            let mut draft = begun();
            let what = "The annotation inspect.metal3.io/hardwaredetails is dropped and has no effect: the details are known from elsewhere";
            draft.event("RemoveAnnotation", what);
            Some(untouched(draft, Next::Now))
        }
        None => None,
    }
}

/// `spec.architecture` from what is known of the hardware.
fn architecture(view: &View<'_>) -> Option<Step> {
    if view.host.spec.architecture.as_ref().is_some_and(|a| !a.is_empty()) {
        return None;
    }
    let found = view.hardware_data?.cpu.as_ref()?.arch.clone().filter(|a| !a.is_empty())?;
    let mut draft = Draft::new(view);
    draft.set_architecture(found);
    Some(untouched(draft, Next::Now))
}
