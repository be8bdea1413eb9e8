//! The medium that a provisioned host is shown: a DataImage, attached and detached while the machine is off and about to be switched on
//! (baremetal-operator `handleDataImageActions`). Its failures stand in its own status; the machine stays off until it is as wished.

use std::time::Duration;

use api::Time;
use api::metal3::{AttachedImage, DataImage, DataImageError, DataImageStatus};

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

/// What the DataImage needs now; `booting` says that the machine is off and about to be switched on.
pub(crate) fn decide(view: &View<'_>, booting: bool) -> Option<Step> {
    let image = view.children.data_image?;
    let status = image.status.clone().unwrap_or_default();
    let attached = attached(&status);
    let deleted = image.metadata.deletion_timestamp.is_some();
    let held = view.children.holds_data_image();
    if deleted && attached.is_empty() {
        return held.then(|| write(view, ChildWrite::ReleaseDataImage));
    }
    if !view.settings.served.data_images {
        return unserved(view, image, status, deleted, held);
    }
    if !deleted && !held {
        return Some(write(view, ChildWrite::HoldDataImage));
    }
    let wished = if deleted { "" } else { image.spec.url.as_str() };
    if !booting || wished == attached {
        return None;
    }
    if let Some(left) = wait_left(view, &status) {
        return Some(idle(view, Next::After(left)));
    }
    Some(Step::Act(if attached.is_empty() {
        Action::AttachMedia { url: wished.to_owned() }
    } else {
        Action::DetachMedia
    }))
}

/// Releases a DataImage that is being deleted, on a host with nothing on it: what was attached went with the image.
pub(crate) fn release(view: &View<'_>) -> Option<Step> {
    let deleted = view.children.data_image?.metadata.deletion_timestamp.is_some();
    (deleted && view.children.holds_data_image()).then(|| write(view, ChildWrite::ReleaseDataImage))
}

fn attached(status: &DataImageStatus) -> &str {
    status.attached_image.as_ref().map(|image| image.url.as_str()).unwrap_or_default()
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

fn write(view: &View<'_>, write: ChildWrite) -> Step {
    let mut draft = Draft::new(view);
    draft.write_child(write);
    draft.step(Next::Now)
}

/// How long to wait after a failure.
fn wait_left(view: &View<'_>, status: &DataImageStatus) -> Option<Duration> {
    let failures = u32::try_from(status.error.as_ref()?.count).ok().filter(|count| *count > 0)?;
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
        other => format!("The provisioner answered «{}», which does not fit a data image", other.name()),
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
