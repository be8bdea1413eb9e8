//! The medium that a provisioned host is shown: a DataImage, attached and detached while the machine is off and about to be switched on
//! (baremetal-operator `handleDataImageActions`). Its failures stand in its own status; the machine stays off until it is as wished. One that is being
//! deleted is also detached from a machine that is to stay off.
//!
//! Between reboots the BMC is asked now and then, and once after each edit: whether the medium could be attached, so that what the BMC lacks is
//! known before anybody reboots the machine for it; and whether what was attached still is, because a restart of a BMC takes its media out.

use std::time::Duration;

use api::Time;
use api::metal3::{AttachedImage, DataImage, DataImageError, DataImageStatus};
use jiff::Timestamp;

use crate::attachment::{CANNOT, KEPT_ON, LOST, UNSEEN, WAITS, attached, holds_up_nothing};
use crate::children::ChildWrite;
use crate::draft::{Draft, idle};
use crate::retry;
use crate::step::{Action, Change, Next, Outcome, Step};
use crate::view::View;

/// Longest wait after failures, which is short because an edit of the DataImage cannot be recognized.
const LONGEST: Duration = Duration::from_secs(600);
/// Longest message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// The error of a DataImage that the provisioner does not serve.
const UNSERVED: &str = "The provisioner of this host attaches no data images — delete the DataImage";

/// What became of a medium that is gone.
const GONE: &str = "the BMC shows no such medium, as after a restart of the BMC — it is attached again at the next reboot of the host (annotation reboot.metal3.io)";

/// What the DataImage needs now; `booting` says that the machine is off and about to be switched on.
pub(crate) fn decide(view: &View<'_>, booting: bool) -> Option<Step> {
    let image = view.children.data_image?;
    let status = image.status.clone().unwrap_or_default();
    let attached = attached(&status);
    let deleted = image.metadata.deletion_timestamp.is_some();
    let held = view.children.holds_data_image();
    if !view.settings.served.data_images {
        return unserved(view, image, status, deleted, held);
    }
    if deleted && !held {
        return None;
    }
    // A machine that is off reads nothing.
    let may_change = booting || deleted && !view.status().powered_on;
    if deleted && attached.is_empty() && !may_change {
        // An attachment may have been broken off: only the provisioner knows whether its medium is in.
        return is_time(view, view.settings.steady_state_poll).then_some(Step::Act(Action::LookAtMedia));
    }
    if !deleted && !held {
        let mut draft = Draft::new(view);
        draft.event(
            "DataImageWaits",
            "The data image is attached when the machine is powered on next: reboot the host (annotation reboot.metal3.io) to have it attached now",
        );
        draft.write_child(ChildWrite::HoldDataImage);
        return Some(draft.step(Next::Now));
    }
    let wished = if deleted { "" } else { image.spec.url.as_str() };
    if view.host.spec.disable_power_off == Some(true) && view.status().powered_on && wished != attached {
        return kept_on(view, status);
    }
    if !may_change || wished == attached && !deleted {
        return look(view, wished, attached, booting).map(Step::Act);
    }
    if let Some(left) = wait_left(view, &status) {
        return Some(idle(view, Next::After(left)));
    }
    Some(Step::Act(if attached.is_empty() && !deleted {
        Action::AttachMedia { url: wished.to_owned() }
    } else {
        Action::DetachMedia
    }))
}

/// What the BMC is asked between reboots, if it is time.
fn look(view: &View<'_>, wished: &str, attached: &str, booting: bool) -> Option<Action> {
    if !is_time(view, if booting { view.settings.steady_state_poll } else { view.settings.facts_poll }) {
        return None;
    }
    match (attached, wished) {
        ("", "") => None,
        ("", url) => Some(Action::CheckMedia { url: url.to_owned() }),
        _ => Some(Action::LookAtMedia),
    }
}

/// Whether the last look at the medium is longer ago than this.
fn is_time(view: &View<'_>, often: Duration) -> bool {
    let since = |seen: Timestamp| Duration::try_from(view.now.duration_since(seen)).unwrap_or_default();
    view.media_seen.is_none_or(|seen| since(seen) >= often)
}

/// The DataImage of a host with nothing on it: what was attached went with the system. One that is being deleted is released.
pub(crate) fn release(view: &View<'_>) -> Option<Step> {
    let image = view.children.data_image?;
    if image.metadata.deletion_timestamp.is_some() {
        return let_go(view);
    }
    let mut status = image.status.clone().filter(|status| !attached(status).is_empty())?;
    status.attached_image = Some(AttachedImage::default());
    status.error = Some(DataImageError::default());
    status.last_reconciled = Some(Time(view.now));
    Some(write(view, ChildWrite::DataImage(Box::new(status))))
}

/// Whether its status says that nothing of it is attached.
pub(crate) fn is_out(image: &DataImage) -> bool {
    image.status.as_ref().is_none_or(|status| attached(status).is_empty())
}

/// Releases a DataImage that is being deleted, whatever is attached.
pub(crate) fn let_go(view: &View<'_>) -> Option<Step> {
    let deleted = view.children.data_image?.metadata.deletion_timestamp.is_some();
    (deleted && view.children.holds_data_image()).then(|| write(view, ChildWrite::ReleaseDataImage))
}

/// Reports once that the DataImage is not served, and releases it when it is deleted.
fn unserved(
    view: &View<'_>,
    image: &DataImage,
    mut status: DataImageStatus,
    deleted: bool,
    held: bool,
) -> Option<Step> {
    if deleted {
        return held.then(|| write(view, ChildWrite::ReleaseDataImage));
    }
    if image.spec.url.is_empty() || status.error.as_ref().is_some_and(|error| error.message == UNSERVED) {
        return None;
    }
    status.error = Some(DataImageError { count: 1, message: UNSERVED.to_owned() });
    status.last_reconciled = Some(Time(view.now));
    Some(write(view, ChildWrite::DataImage(Box::new(status))))
}

/// Says once that the machine is never off.
fn kept_on(view: &View<'_>, mut status: DataImageStatus) -> Option<Step> {
    if status.error.as_ref().is_some_and(|error| error.message == KEPT_ON) {
        return None;
    }
    status.error = Some(DataImageError { count: 0, message: KEPT_ON.to_owned() });
    status.last_reconciled = Some(Time(view.now));
    let mut draft = Draft::new(view);
    draft.warn("DataImageWaits", KEPT_ON);
    draft.write_child(ChildWrite::DataImage(Box::new(status)));
    Some(draft.step(Next::Now))
}

fn write(view: &View<'_>, write: ChildWrite) -> Step {
    let mut draft = Draft::new(view);
    draft.write_child(write);
    draft.step(Next::Now)
}

/// How long to wait after a failure.
fn wait_left(view: &View<'_>, status: &DataImageStatus) -> Option<Duration> {
    let error = status.error.as_ref()?;
    // What was tried last was another address.
    if holds_up_nothing(&error.message) || view.media_seen.is_none() {
        return None;
    }
    let failures = u32::try_from(error.count).ok().filter(|count| *count > 0)?;
    let uid = view.host.metadata.uid.as_deref().unwrap_or_default();
    let full = retry::back_off(view.settings.backoff_unit, uid, failures).min(LONGEST);
    retry::left_of(full, status.last_reconciled.as_ref()?, view.now)
}

/// Reads the answer to an attachment or a detachment.
pub(crate) fn conclude(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let Some(image) = draft.view.children.data_image else { return draft.seal(Next::Now) };
    let mut status = image.status.clone().unwrap_or_default();
    status.last_reconciled = Some(Time(draft.view.now));
    let failure = match outcome {
        Outcome::Done if *action == Action::DetachMedia && image.metadata.deletion_timestamp.is_some() => {
            draft.write_child(ChildWrite::ReleaseDataImage);
            return draft.finish(Next::Now);
        }
        // The machine is on, whatever the status said: its system keeps what it is shown.
        Outcome::Power(on) => {
            draft.status.powered_on = on;
            return draft.finish(Next::Now);
        }
        Outcome::Done => {
            let url = if let Action::AttachMedia { url } = action { url.clone() } else { String::new() };
            status.attached_image = Some(AttachedImage { url });
            status.error = Some(DataImageError::default());
            draft.write_child(ChildWrite::DataImage(Box::new(status)));
            return draft.finish(Next::Now);
        }
        Outcome::Working { look_again } | Outcome::Accepted { look_again } | Outcome::Busy { look_again, .. } => {
            return draft.finish(Draft::look(look_again));
        }
        Outcome::NeedsRegistration => return draft.register_anew(),
        Outcome::Failed { message, .. } | Outcome::Blocked { message } => message,
        other => format!("The provisioner answered \"{}\", which does not fit a data image", other.name()),
    };
    let count = status.error.as_ref().map_or(0, |error| error.count.max(0)).saturating_add(1);
    status.error = Some(DataImageError { count, message: crate::draft::clip(&failure, MAX_MESSAGE) });
    draft.warn("DataImageError", &failure);
    let uid = draft.view.host.metadata.uid.as_deref().unwrap_or_default();
    let failures = u32::try_from(count).unwrap_or(u32::MAX);
    let wait = retry::back_off(draft.view.settings.backoff_unit, uid, failures).min(LONGEST);
    draft.write_child(ChildWrite::DataImage(Box::new(status)));
    draft.finish(Next::After(wait))
}

/// What the next reboot brings.
fn then(deleted: bool) -> String {
    let then =
        if deleted { "the data image is detached then, and goes" } else { "the image of spec.url is attached then" };
    then.to_owned()
}

/// Reads the answer to a look between reboots.
pub(crate) fn conclude_look(mut draft: Draft<'_>, action: &Action, outcome: Outcome) -> Change {
    let Some(image) = draft.view.children.data_image else { return draft.seal(Next::Now) };
    let mut status = image.status.clone().unwrap_or_default();
    let before = status.error.clone().unwrap_or_default();
    let deleted = image.metadata.deletion_timestamp.is_some();
    let (beginning, what) = match (action, outcome) {
        // An attachment that was broken off: whether its medium has come in.
        (Action::LookAtMedia, Outcome::Medium(None)) if deleted => {
            draft.write_child(ChildWrite::ReleaseDataImage);
            return draft.finish(Next::Now);
        }
        (Action::LookAtMedia, Outcome::Medium(_) | Outcome::Done) if deleted && attached(&status).is_empty() => {
            status.attached_image = Some(AttachedImage { url: image.spec.url.clone() });
            (WAITS, "the data image is detached then, and goes".to_owned())
        }
        (Action::LookAtMedia, Outcome::Medium(Some(there)))
            if there == attached(&status) && (deleted || image.spec.url != there) =>
        {
            (WAITS, then(deleted))
        }
        // A BMC that does not show what is in.
        (Action::LookAtMedia, Outcome::Done) if deleted || image.spec.url != attached(&status) => {
            (WAITS, then(deleted))
        }
        (Action::LookAtMedia, Outcome::Medium(there))
            if !attached(&status).is_empty() && there.as_deref() != Some(attached(&status)) =>
        {
            status.attached_image = Some(AttachedImage::default());
            (LOST, GONE.to_owned())
        }
        (_, Outcome::NeedsRegistration) => return draft.register_anew(),
        (Action::LookAtMedia, Outcome::Failed { message, .. } | Outcome::Blocked { message }) => (UNSEEN, message),
        (_, Outcome::Failed { message, .. } | Outcome::Blocked { message }) => (CANNOT, message),
        // A medium that was lost stays told until it is attached again.
        (_, Outcome::Done | Outcome::Medium(_))
            if [CANNOT, UNSEEN].iter().any(|beginning| before.message.starts_with(beginning)) =>
        {
            status.error = Some(DataImageError::default());
            status.last_reconciled = Some(Time(draft.view.now));
            draft.write_child(ChildWrite::DataImage(Box::new(status)));
            return draft.finish(Next::Now);
        }
        _ => return draft.seal(Next::Now),
    };
    let message = crate::draft::clip(&format!("{beginning}{what}"), MAX_MESSAGE);
    let attempted = before.count > 0 && !holds_up_nothing(&before.message);
    if before.message == message || attempted && beginning != LOST {
        // It is told already, or what an attempt has failed by says more.
        return draft.seal(Next::Now);
    }
    if beginning == WAITS {
        draft.event("DataImageWaits", &message);
    } else {
        draft.warn("DataImageError", &message);
    }
    status.error = Some(DataImageError { count: i64::from(beginning != WAITS), message });
    status.last_reconciled = Some(Time(draft.view.now));
    draft.write_child(ChildWrite::DataImage(Box::new(status)));
    draft.finish(Next::Now)
}
