//! Work that waits: for somebody who puts something right, or for its next attempt.

use std::time::Duration;

use api::metal3::{ErrorType, OperationalStatus, ProvisioningState as State, annotation};
use host_lifecycle::{Action, Next, Outcome, Retry};

use crate::kit::{World, failed};

const URL: &str = "http://images/one.raw";
const FORCE: &str = "{\"force\":true}";

fn held() -> Outcome {
    Outcome::Failed { message: "whose it is nobody knows".into(), retry: Retry::Held }
}

fn message(world: &World, kind: &str) -> String {
    world.status().conditions.iter().find(|c| c.type_ == kind).unwrap().message.clone()
}

/// Looks for that many times, at none of which the provisioner can be asked.
fn hold(world: &mut World, looks: u32) {
    for _ in 0..looks {
        world.step_with(|_, _| held());
        match world.next {
            Next::After(time) => world.pass(time),
            Next::Now => {}
            Next::Gone => return,
            Next::Wait => panic!("waits for an edit"),
        }
    }
}

#[test]
fn what_is_held_stays_in_its_state_and_is_counted_once() {
    for url in [None, Some(URL)] {
        let mut world = World::at_rest(url);
        let state = world.state();
        hold(&mut world, 200);
        assert_eq!((world.state(), world.status().error_count), (state, 1));
        assert_eq!(world.status().error_type, Some(ErrorType::Registration));
        assert_eq!(world.events.len(), 1, "it is said once: {:?}", world.events);
        let writes = world.status_writes;
        hold(&mut world, 50);
        assert_eq!(world.status_writes, writes);
        world.converge();
        assert_eq!((world.state(), world.in_error()), (state, false));
    }
}

#[test]
fn a_provisioning_that_is_held_is_not_undone() {
    let mut world = World::at_rest(None);
    world.host.spec.image = Some(crate::kit::image(URL));
    while world.state() != State::Provisioning {
        world.step();
    }
    hold(&mut world, 50);
    assert_eq!((world.state(), world.status().provisioning_fail_count), (State::Provisioning, 0));
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
}

#[test]
fn a_deletion_that_is_held_waits_until_it_is_put_right_or_forced() {
    for url in [None, Some(URL)] {
        for forced in [false, true] {
            let mut world = World::at_rest(url);
            world.delete();
            hold(&mut world, 200);
            assert!(!world.gone && world.status().error_message.contains(annotation::DETACHED));
            assert!(!world.events.contains(&"DeletionGaveUp"), "{:?}", world.events);
            if forced {
                world.annotate(annotation::DETACHED, FORCE);
                hold(&mut world, 20);
                assert_eq!(world.events.iter().filter(|e| **e == "DeletionGaveUp").count(), 1);
            } else {
                world.converge();
                assert!(!world.machine_on && !world.events.contains(&"DeletionGaveUp"));
            }
            assert!(world.gone, "{url:?} {forced} {:?}", world.states);
        }
    }
}

#[test]
fn a_host_at_rest_is_detached_by_force_though_it_is_held() {
    let mut world = World::at_rest(Some(URL));
    hold(&mut world, 5);
    world.annotate(annotation::DETACHED, FORCE);
    hold(&mut world, 5);
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    assert!(world.machine_on && world.events.contains(&"DetachedByForce"));
}

#[test]
fn a_host_that_waits_for_its_next_attempt_says_when_that_is_and_not_that_it_works() {
    let mut world = World::at_rest(None);
    world.host.spec.image = Some(crate::kit::image(URL));
    while world.state() != State::Provisioning {
        world.step();
    }
    world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
    assert_eq!(message(&world, "Progressing"), "The image is being written");
    world.step_with(|_, _| failed("the disk is broken"));
    let Next::After(wait) = world.next else { panic!("{:?}", world.next) };
    let next = jiff::Timestamp::from_second((world.now + wait).as_second()).unwrap();
    let condition = message(&world, "Progressing");
    assert_eq!(condition, format!("The next attempt is at {next}; the last attempt failed: the disk is broken"));
    // To look meanwhile changes nothing, and does not put it off.
    let writes = world.status_writes;
    world.pass(wait / 2);
    world.step();
    assert_eq!((message(&world, "Progressing"), world.status_writes), (condition, writes));
    world.pass(wait);
    world.step();
    assert_eq!(world.state(), State::Deprovisioning);
}

#[test]
fn what_is_missing_is_not_work_either() {
    let mut world = World::at_rest(None);
    world.host.spec.image = Some(crate::kit::image(URL));
    while world.state() != State::Provisioning {
        world.step();
    }
    world.step_with(|_, _| Outcome::Blocked { message: "Secret user-data does not exist".into() });
    assert_eq!(message(&world, "Progressing"), "Waiting: Secret user-data does not exist");
}

/// An annotation that was meant to keep the host must not have its disks wiped, whatever the host is doing and whichever of the two came first.
#[test]
fn a_deletion_waits_in_any_state_while_the_detached_annotation_is_not_understood() {
    for wanted in [State::Inspecting, State::Available, State::Provisioning, State::Provisioned] {
        let mut world = World::new();
        if matches!(wanted, State::Provisioning | State::Provisioned) {
            world.converge();
            world.host.spec.image = Some(crate::kit::image(URL));
        }
        while world.state() != wanted {
            world.step();
        }
        world.annotate(annotation::DETACHED, r#"{"force":"true","deleteAction":"delay"}"#);
        world.delete();
        world.converge();
        assert_eq!((world.state(), world.gone), (wanted, false));
        assert!(world.status().error_message.contains("its force is"), "{}", world.status().error_message);
        assert_eq!(world.events.iter().filter(|reason| **reason == "InvalidAnnotationValue").count(), 1, "{wanted:?}");
        world.annotate(annotation::DETACHED, r#"{"force":true,"deleteAction":"delete"}"#);
        world.converge();
        assert!(world.gone && !world.states.contains(&State::Deprovisioning), "{wanted:?}: {:?}", world.states);
    }
}

#[test]
fn a_detached_host_says_why_its_deletion_waits_and_that_it_no_longer_does() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.converge();
    world.annotate(annotation::DETACHED, r#"{"deleteAction":"Delay"}"#);
    world.delete();
    world.converge();
    assert!(world.in_error() || !world.status().error_message.is_empty());
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    world.annotate(annotation::DETACHED, r#"{"deleteAction":"delay"}"#);
    world.converge();
    assert_eq!((world.status().error_message.as_str(), world.gone), ("", false));
    assert!(message(&world, "Progressing").contains("its deletion waits until the annotation"));
    world.annotate(annotation::DETACHED, "{}");
    world.converge();
    assert!(world.gone && world.machine_on && !world.states.contains(&State::Deprovisioning));
}

/// It was let go by force in the middle of work, whatever its annotation says later: somebody else may have the machine by now.
#[test]
fn a_detached_host_is_taken_back_when_its_annotation_goes_and_not_before() {
    let mut world = World::at_rest(None);
    world.host.spec.image = Some(crate::kit::image(URL));
    while world.state() != State::Provisioning {
        world.step();
    }
    world.annotate(annotation::DETACHED, FORCE);
    world.converge();
    for value in ["", "force", r#"{"force":true,"deleteAction":"wipe"}"#, "{}"] {
        world.annotate(annotation::DETACHED, value);
        let calls = world.calls.len();
        world.converge();
        assert_eq!(
            (world.status().operational_status, world.calls.len()),
            (OperationalStatus::Detached, calls),
            "{value}"
        );
    }
    world.host.metadata.annotations.as_mut().unwrap().remove(annotation::DETACHED);
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
}

/// The wish to keep its deletion waiting is one to let it go, too.
#[test]
fn a_host_that_is_deleted_before_it_is_detached_is_let_go_first_and_waits_then() {
    const FORCED_DELAY: &str = r#"{"force":true,"deleteAction":"delay"}"#;
    const DELAY: &str = r#"{"deleteAction":"delay"}"#;
    for (wanted, value) in [(State::Deprovisioning, FORCED_DELAY), (State::Provisioned, DELAY)] {
        let mut world = World::at_rest(Some(URL));
        let is_at_work = wanted == State::Deprovisioning;
        if !is_at_work {
            world.annotate(annotation::DETACHED, value);
        }
        world.delete();
        while world.state() != wanted {
            world.step();
        }
        world.annotate(annotation::DETACHED, value);
        world.converge();
        assert!(world.calls.contains(&Action::Release), "{wanted:?}: {:?}", world.calls);
        let status = world.status();
        assert_eq!((status.operational_status, world.gone), (OperationalStatus::Detached, false), "{wanted:?}");
        assert!(message(&world, "Progressing").contains("its deletion waits until the annotation"));
        world.annotate(annotation::DETACHED, r#"{"deleteAction":"delete"}"#);
        world.converge();
        assert!(world.gone, "{wanted:?}");
    }
}

#[test]
fn what_a_deletion_says_of_a_way_out_keeps_the_wish_that_it_waits() {
    for (state, force) in [(State::Deprovisioning, false), (State::Deprovisioning, true), (State::Provisioned, false)] {
        let mut world = World::at_rest(Some(URL));
        world.delete();
        if state == State::Provisioned {
            world.annotate(annotation::DETACHED, r#"{"deleteAction":"delay"}"#);
        }
        while world.state() != state {
            world.step();
        }
        let value = if force { r#"{"force":true,"deleteAction":"delay"}"# } else { r#"{"deleteAction":"delay"}"# };
        world.annotate(annotation::DETACHED, value);
        world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
        let said = message(&world, "Progressing");
        let is_told = said.contains(r#"counts with {"force":true,"deleteAction":"delay"} only"#);
        assert_eq!(is_told, state == State::Deprovisioning && !force, "{said}");
        if !force {
            world.step_with(|_, _| held());
            let way_out = r#"With the annotation baremetalhost.metal3.io/detached={"force":true,"deleteAction":"delay"} the host is let go"#;
            assert!(world.status().error_message.contains(way_out), "{}", world.status().error_message);
            world.annotate(annotation::DETACHED, "{\"deleteAction\":\"dealy\"}");
            hold(&mut world, 2);
            let said = world.status().error_message;
            let is_unread =
                said.ends_with(r#"detached={"force":true} in place of the one that is there, which cannot be read"#);
            assert_eq!(is_unread, state == State::Deprovisioning, "{said}");
        }
    }
}

/// A provisioner that waits for something else, such as its Ironic, has attempted nothing.
#[test]
fn a_detachment_that_a_deletion_waits_for_is_no_failure_while_the_provisioner_cannot_be_asked() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, r#"{"deleteAction":"delay"}"#);
    world.delete();
    let mut writes = Vec::new();
    for _ in 0..100 {
        world.step_with(|_, _| Outcome::Blocked { message: "Ironic is away".into() });
        writes.push(world.status_writes);
        match world.next {
            Next::After(time) => world.pass(time),
            Next::Now => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(world.calls.iter().all(|call| *call == Action::Release) && !world.gone, "{:?}", world.calls);
    let status = world.status();
    assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Registration), 1), "{status:?}");
    let said = &status.error_message;
    assert!(said.starts_with("Ironic is away; the deletion waits for that. With the annotation"), "{said}");
    assert_eq!((writes.last(), world.events.len()), (writes.get(3), 1), "it is said once: {:?}", world.events);
}

/// What was never registered is let go as it is, with force or without.
#[test]
fn a_host_that_is_deleted_before_its_registration_has_ended_is_told_what_is_true() {
    for (value, said) in
        [(FORCE, None), ("", None), (r#"{"force":true,"deleteAction":"delay"}"#, Some("DeletionNotDelayed"))]
    {
        let mut world = World::new();
        while world.state() != State::Registering {
            world.step();
        }
        world.annotate(annotation::DETACHED, value);
        world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
        let when = if value.is_empty() { "when it is available" } else { "when its registration has ended" };
        let told = message(&world, "Progressing");
        assert!(told.contains(&format!("the host is detached {when}, as the annotation")), "{value}: {told}");
        world.events.clear();
        world.delete();
        world.converge();
        assert!(world.gone, "{value}");
        let words = ["DetachNotForced", "DeletionNotDelayed"];
        let told: Vec<_> = world.events.iter().copied().filter(|reason| words.contains(reason)).collect();
        assert_eq!(told, Vec::from_iter(said), "{value}");
    }
}
