//! Statuses that are older than their hosts: what is done before they are believed.

use std::time::Duration;

use api::metal3::{ErrorType, annotation};
use host_lifecycle::{Action, Outcome, Retry, Step};

use crate::kit::World;

const URL: &str = "http://i/1";

/// A restored status has the times of another host's life, and credentials that are good all the same where the Secret is still there.
#[test]
fn a_status_from_before_its_host_was_made_is_registered_again_and_once() {
    for url in [None, Some(URL)] {
        let mut world = World::at_rest(url);
        let state = world.state();
        world.pass(Duration::from_secs(3600));
        // The clock of the API is ahead of the server's.
        world.host.metadata.creation_timestamp = Some(api::Time(world.now + Duration::from_secs(5)));
        assert!(matches!(world.decide(), Step::Act(Action::Register { .. })), "{url:?}");
        let held = Outcome::Failed { message: "it is in use".into(), retry: Retry::Held };
        world.step_with(|_, _| held);
        assert_eq!((world.state(), world.status().error_type), (state, Some(ErrorType::Registration)), "{url:?}");
        // Nothing else is done while it is held, not even if it is to be off or to go.
        world.edit(|spec| spec.online = false);
        world.pass(Duration::from_secs(3600));
        assert!(matches!(world.decide(), Step::Act(Action::Register { .. })), "{url:?}");
        let mut deleted = world.host.clone();
        deleted.metadata.deletion_timestamp = Some(api::Time(world.now));
        std::mem::swap(&mut world.host, &mut deleted);
        for _ in 0..6 {
            let held = Outcome::Failed { message: "it is in use".into(), retry: Retry::Held };
            let called = world.step_with(|_, _| held);
            assert!(called.is_none_or(|call| matches!(call, Action::Register { .. })), "{url:?}");
            world.pass(Duration::from_secs(3600));
        }
        assert!(!world.gone && world.status().error_message.contains("the deletion waits"), "{:?}", world.status());
        std::mem::swap(&mut world.host, &mut deleted);
        world.edit(|spec| spec.online = true);
        world.calls.clear();
        world.converge();
        let registered = world.calls.iter().filter(|call| matches!(call, Action::Register { .. })).count();
        assert_eq!((world.state(), registered, world.in_error()), (state, 1, false), "{url:?}: {:?}", world.calls);
        let adopted = world.calls.contains(&Action::Adopt);
        assert_eq!(adopted, url.is_some(), "{url:?}");
    }
}

/// The clock of the API may be ahead of the server's, so that a registration is older than its host.
#[test]
fn what_is_registered_now_has_been_registered_since_its_host_was_made() {
    let at = |world: &World, seconds: i64| Some(api::Time(world.now + jiff::SignedDuration::from_secs(seconds)));
    // A host that is registered in one look, and one that takes ten seconds.
    for (takes, made, is_moved) in [(0, 60, true), (0, 0, false), (10, 60, true), (10, 10, false), (10, 5, false)] {
        let mut world = World::new();
        let (begun, made) = (world.now, at(&world, made));
        world.host.metadata.creation_timestamp = made.clone();
        world.until(|action| matches!(action, Action::Register { .. }));
        if takes > 0 {
            world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(takes) });
            world.pass(Duration::from_secs(takes));
        }
        world.step();
        let register = world.status().operation_history.register;
        let start = if is_moved { made } else { Some(api::Time(begun)) };
        assert_eq!((register.start, register.end), (start, Some(api::Time(world.now))), "{takes} s");
    }
}

/// A host that is held because its status is too old gets a better one by the annotation; one that this server has registered does not.
#[test]
fn a_status_that_is_too_old_can_be_replaced_while_its_host_is_held() {
    for held in [true, false] {
        let mut world = World::at_rest(Some(URL));
        let mut newer = world.status();
        newer.provisioning.image.url = "http://i/newer".into();
        world.host.metadata.creation_timestamp = Some(api::Time(world.now + Duration::from_secs(60)));
        world.pass(Duration::from_secs(3600));
        if held {
            let held = Outcome::Failed { message: "it is in use".into(), retry: Retry::Held };
            world.step_with(|_, _| held);
        } else {
            world.converge();
        }
        world.annotate(annotation::STATUS, &serde_json::to_string(&newer).unwrap());
        world.step_with(|_, _| unreachable!());
        let wanted = if held { "http://i/newer" } else { URL };
        assert_eq!(
            (world.status().provisioning.image.url.as_str(), world.annotated(annotation::STATUS)),
            (wanted, false)
        );
    }
}
