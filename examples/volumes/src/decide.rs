//! What is done next about a volume, and what its status says then. Pure: no IO, no clock.

use std::time::Duration;

use kube::ResourceExt as _;
use provisioner::{Cause, Outcome, Retry, Verdict, Waiting};

use crate::kind::{FINALIZER, Phase, StorageVolume, StorageVolumeStatus};
use crate::volume::{Removal, Size, VolumeAnswer, VolumeCall, VolumeCapabilities};

/// One change, one call, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is as it should be.
    Rest,
    /// The finalizer is set.
    Hold,
    /// The finalizer is taken away: nothing of it is left.
    LetGo,
    /// The provisioner of this name, or the default, is written down as its own.
    Choose(Option<String>),
    /// Its provisioner is asked.
    Ask(VolumeCall),
}

/// What is done next.
#[must_use]
pub fn next(volume: &StorageVolume) -> Next {
    let status = volume.status.clone().unwrap_or_default();
    let is_held = volume.finalizers().iter().any(|one| one == FINALIZER);
    let restart = status.phase == Phase::Failed;
    if volume.metadata.deletion_timestamp.is_some() {
        return match (is_held, status.provisioner.is_empty()) {
            (false, _) => Next::Rest,
            // Nobody was asked for it yet.
            (true, true) => Next::LetGo,
            (true, false) => Next::Ask(VolumeCall::Remove(Removal { restart })),
        };
    }
    if !is_held {
        return Next::Hold;
    }
    if status.provisioner.is_empty() {
        return Next::Choose(volume.spec.provisioner.clone());
    }
    let size = Size { size_mebibytes: volume.spec.size_mebibytes, restart };
    match (status.id.is_empty(), status.size_mebibytes < size.size_mebibytes) {
        (true, _) => Next::Ask(VolumeCall::Make(size)),
        (false, true) => Next::Ask(VolumeCall::Grow(size)),
        (false, false) => Next::Rest,
    }
}

/// Why this is not asked of a provisioner that can do no more than this; `None` if it is.
#[must_use]
pub fn unserved(call: &VolumeCall, capabilities: &VolumeCapabilities) -> Option<String> {
    let cannot = matches!(call, VolumeCall::Grow(_)) && !capabilities.grow;
    cannot.then(|| "its provisioner does not grow volumes: make a new one of that size".to_owned())
}

/// When it is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// At the latest after this time.
    After(Duration),
    /// When its object changes.
    OnChange,
    /// It is removed: the object is let go.
    Gone,
}

/// What the status says after a call, and when it is looked at again.
#[must_use]
pub fn conclude(
    before: &StorageVolumeStatus,
    is_leaving: bool,
    outcome: &Outcome<VolumeAnswer>,
) -> (StorageVolumeStatus, Again) {
    let mut status = before.clone();
    // A deletion says what it waits for, whatever that is.
    let says = |text: &str| if is_leaving { format!("the deletion waits: {text}") } else { text.to_owned() };
    let (phase, message, again) = match outcome {
        Ok(Verdict::Done(VolumeAnswer::Done)) if is_leaving => (Phase::Working, "it is gone".to_owned(), Again::Gone),
        Ok(Verdict::Done(VolumeAnswer::Volume(found))) if !is_leaving => {
            (status.id, status.size_mebibytes) = (found.id.clone(), found.size_mebibytes);
            (Phase::Ready, String::new(), Again::OnChange)
        }
        // It has answered something else than it was asked: nothing follows from that.
        Ok(Verdict::Done(_)) => (
            Phase::Failed,
            says("its provisioner gives an answer to another call"),
            Again::After(Duration::from_secs(60)),
        ),
        Ok(Verdict::Working(working)) => {
            let percent = working.percent.map(|percent| format!(" ({percent}%)")).unwrap_or_default();
            (Phase::Working, says(&format!("{}{percent}", working.step)), Again::After(working.look_again))
        }
        Ok(Verdict::Waiting(Waiting::Busy { reason, look_again })) => {
            (Phase::Pending, says(reason), Again::After(*look_again))
        }
        Ok(Verdict::Waiting(_)) => {
            (Phase::Failed, says("its provisioner asks for what a volume does not have"), Again::OnChange)
        }
        // Nothing was done, and nothing has failed: it is asked anew as it is now.
        Err(failure) if matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) => {
            (status.phase, status.message.clone(), Again::After(Duration::from_secs(1)))
        }
        Err(failure) => {
            let (phase, again) = match failure.retry {
                Retry::Later => (Phase::Failed, Again::After(Duration::from_secs(10))),
                Retry::Waiting => (Phase::Pending, Again::After(Duration::from_secs(5))),
                Retry::Held | Retry::AnotherMachine => (Phase::Failed, Again::After(Duration::from_secs(60))),
                Retry::AfterChange | Retry::Unknown => (Phase::Failed, Again::OnChange),
            };
            (phase, says(&failure.text()), again)
        }
    };
    (status.phase, status.message) = (phase, message);
    (status, again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::StorageVolumeSpec;
    use crate::volume::VolumeState;
    use provisioner::Failure;
    use serde_json::json;

    fn volume(change: serde_json::Value) -> StorageVolume {
        let spec = StorageVolumeSpec { size_mebibytes: 8, provisioner: None };
        let mut value = serde_json::to_value(StorageVolume::new("v", spec)).unwrap();
        for (path, new) in change.as_object().unwrap() {
            value[path] = new.clone();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_step_has_what_has_to_come_before_it() {
        let status = |id: &str, size: u64| json!({ "provisioner": "files", "id": id, "sizeMebibytes": size });
        let held = json!({ "name": "v", "finalizers": [FINALIZER] });
        let leaving = json!({ "name": "v", "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let size = Size { size_mebibytes: 8, restart: false };
        for (change, expected) in [
            (json!({}), Next::Hold),
            (json!({ "metadata": held }), Next::Choose(None)),
            (json!({ "metadata": held, "status": status("", 0) }), Next::Ask(VolumeCall::Make(size.clone()))),
            (json!({ "metadata": held, "status": status("a", 4) }), Next::Ask(VolumeCall::Grow(size))),
            (json!({ "metadata": held, "status": status("a", 8) }), Next::Rest),
            (
                json!({ "metadata": leaving, "status": status("a", 8) }),
                Next::Ask(VolumeCall::Remove(Removal::default())),
            ),
            (
                json!({ "metadata": leaving, "status": status("", 0) }),
                Next::Ask(VolumeCall::Remove(Removal::default())),
            ),
            (json!({ "metadata": leaving }), Next::LetGo),
        ] {
            assert_eq!(next(&volume(change.clone())), expected, "{change}");
        }
    }

    #[test]
    fn what_an_answer_means_is_said() {
        let before = StorageVolumeStatus { provisioner: "files".into(), ..StorageVolumeStatus::default() };
        let state = VolumeState { id: "files-1".into(), size_mebibytes: 8 };
        let (status, again) = conclude(&before, false, &Ok(Verdict::Done(VolumeAnswer::Volume(state))));
        assert_eq!((status.phase, status.id.as_str(), again), (Phase::Ready, "files-1", Again::OnChange));
        let mut held = Failure::new(Cause::ForeignOwner, "remove v: it is another's");
        held.retry = Retry::Held;
        let (status, again) = conclude(&before, true, &Err(held));
        assert!(status.message.starts_with("the deletion waits: remove v: it is another's"), "{}", status.message);
        assert_eq!((status.phase, again), (Phase::Failed, Again::After(Duration::from_secs(60))));
        let refused = Failure::new(Cause::RecordUnavailable, "it has changed");
        assert_eq!(conclude(&before, false, &Err(refused)).0, before, "an attempt that did nothing is no failure");
        let (_, again) = conclude(&before, true, &Ok(Verdict::Done(VolumeAnswer::Done)));
        assert_eq!(again, Again::Gone);
        // An answer to another call takes no finalizer away, and ends no deletion.
        let other = VolumeAnswer::Volume(VolumeState { id: "files-1".into(), size_mebibytes: 8 });
        for (is_leaving, answer) in [(false, VolumeAnswer::Done), (true, other)] {
            let (status, again) = conclude(&before, is_leaving, &Ok(Verdict::Done(answer)));
            assert_eq!((status.phase, again), (Phase::Failed, Again::After(Duration::from_secs(60))));
        }
    }
}
