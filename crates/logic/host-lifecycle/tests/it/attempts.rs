//! Work that is wished otherwise while it is under way.

use std::time::Duration;

use crate::kit::{World, image};
use api::metal3::{ChecksumType, CleaningMode, DiskFormat, Image, ProvisioningState as State, annotation};
use host_lifecycle::{Action, Outcome, Step};
use terms::Retry;

const URL: &str = "https://images.example/debian.qcow2";

/// It is another wish: a write that goes on with what was wrong fails at its end, or succeeds with what nobody wishes.
#[test]
fn a_corrected_checksum_or_format_ends_the_attempt_under_way() {
    let edits: [fn(&mut Image); 3] = [
        |image| image.checksum = Some("11".repeat(32)),
        |image| image.checksum_type = Some(ChecksumType::Md5),
        |image| image.format = Some(DiskFormat::Qcow2),
    ];
    for edit in edits {
        let mut world = World::new();
        world.host.spec.image = Some(image(URL));
        world.until(|a| *a == Action::Provision);
        world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(15) });
        assert_eq!(world.state(), State::Provisioning);
        world.edit(|spec| edit(spec.image.as_mut().unwrap()));
        world.converge();
        assert!(world.states.ends_with(&[
            State::Deprovisioning,
            State::Available,
            State::Provisioning,
            State::Provisioned
        ]));
        assert_eq!(Some(&world.status().provisioning.image), world.host.spec.image.as_ref());
        // Of a system that runs, the URL alone counts, as upstream.
        world.edit(|spec| spec.image.as_mut().unwrap().checksum = Some("22".repeat(32)));
        world.converge();
        assert_eq!(world.state(), State::Provisioned);
    }
}

/// A wipe that has begun is completed, with the consent that was given, whatever the mode is turned to. That consent is not for the next.
#[test]
fn a_consent_that_a_wipe_has_used_goes_with_it() {
    for (outcome, stays) in [(Outcome::Wiped, false), (Outcome::Done, true)] {
        let mut world = World::at_rest(Some(URL));
        world.annotate(annotation::OVERWRITE_OWNER, "somebody");
        world.edit(|spec| spec.image = None);
        world.until(|action| matches!(action, Action::Deprovision { clean: true, .. }));
        world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(15) });
        world.edit(|spec| spec.automated_cleaning_mode = Some(CleaningMode::Disabled));
        world.until(|action| matches!(action, Action::Deprovision { clean: false, .. }));
        world.step_with(|_, _| outcome.clone());
        assert_eq!(world.state(), State::Available);
        assert_eq!(world.annotated(annotation::OVERWRITE_OWNER), stays, "{outcome:?}");
    }
}

/// Where nothing had begun to be written, the provisioner has nothing to remove: the Event says so, and the consent is for the write that follows.
#[test]
fn an_attempt_that_had_written_nothing_says_so_and_keeps_its_consent() {
    for deletes in [false, true] {
        let mut world = World::new();
        world.host.spec.image = Some(image(URL));
        world.until(|action| *action == Action::Provision);
        let message = "the disk carries the mark of another owner, them".to_owned();
        world.step_with(|_, _| Outcome::Failed { message, retry: Retry::Later });
        assert_eq!(world.state(), State::Provisioning);
        world.annotate(annotation::OVERWRITE_OWNER, "them");
        if deletes {
            world.delete();
        } else {
            world.edit(|spec| spec.image = Some(image("https://images.example/corrected.qcow2")));
        }
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        let Step::Act(action) = world.decide() else { panic!("{:?}", world.decide()) };
        let change = world.conclude(&action, Outcome::Untouched);
        let said: Vec<_> = change.events.iter().filter(|event| event.reason == "DeprovisioningComplete").collect();
        assert!(said.len() == 1 && said[0].message.contains("left as they are"), "{said:?}");
        assert!(change.remove_annotations.is_empty(), "{:?}", change.remove_annotations);
        world.step_with(|_, _| Outcome::Untouched);
        let then = if deletes { State::PoweringOffBeforeDelete } else { State::Available };
        assert_eq!((world.state(), world.annotated(annotation::OVERWRITE_OWNER)), (then, true));
        world.converge();
        assert!(world.gone == deletes && (deletes || world.state() == State::Provisioned), "{:?}", world.states);
    }
}
