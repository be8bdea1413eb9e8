//! Data images: attached, changed and taken away while the machine is off.

use std::time::Duration;

use crate::kit::{World, created, failed, image};
use crate::prepares::{URL, answer, is_service, needs_images, rebooting, served, working};
use api::metal3::{DataImage, OperationalStatus, ProvisioningState as State, UpdatePolicy, annotation, finalizer};
use host_lifecycle::{Action, Next, Outcome, Settings, Step};

const ISO: &str = "https://media.example/a.iso";

#[test]
fn a_machine_that_its_data_image_keeps_off_says_so_and_an_edit_is_tried_at_once() {
    let mut world = served(Some(URL));
    data_image(&mut world, ISO);
    world.annotate(annotation::REBOOT, "");
    let attach = |action: &Action| matches!(action, Action::AttachMedia { .. });
    answer(&mut world, attach, failed("No such image"));
    world.step();
    let progress = world.status().conditions.iter().find(|c| c.type_ == "Progressing").unwrap().clone();
    assert_eq!((progress.status.as_str(), progress.reason.as_str()), ("True", "AttachingDataImage"));
    assert!(
        progress.message.contains("No such image") && progress.message.contains("spec.url"),
        "{}",
        progress.message
    );
    assert!(matches!(world.decide(), Step::Change(_)), "it has to wait");
    // As the controller has it: an edited DataImage has not been looked at.
    world.data_image.as_mut().unwrap().spec.url = "https://media.example/b.iso".into();
    world.media_seen = None;
    assert!(matches!(world.decide(), Step::Act(Action::AttachMedia { url }) if url.ends_with("b.iso")));
    world.converge();
    assert!(world.machine_on && world.condition("Progressing").1 == "NotProgressing");
}

/// What a machine is to be shown is in its drive before a service boots it.
#[test]
fn a_data_image_is_attached_before_a_service_boots_the_machine() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    data_image(&mut world, ISO);
    world.converge();
    let kinds: Vec<&Action> =
        world.calls.iter().filter(|call| is_service(call) || matches!(call, Action::AttachMedia { .. })).collect();
    assert!(matches!(kinds.first(), Some(Action::AttachMedia { .. })) && is_service(kinds[1]), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|call| !is_service(call)).count(), 1, "{kinds:?}");
}

/// The status says off, and the machine is on: somebody has pressed its button.
#[test]
fn a_running_machine_keeps_what_it_is_shown() {
    let mut world = served(Some(URL));
    data_image(&mut world, ISO);
    world.converge();
    world.host.status.as_mut().unwrap().powered_on = false;
    let attach = |action: &Action| matches!(action, Action::AttachMedia { .. });
    answer(&mut world, attach, Outcome::Power(true));
    assert!(world.status().powered_on);
    world.converge();
    assert_eq!(world.medium, None);
    assert_eq!(world.calls.iter().filter(|call| attach(call)).count(), 1, "{:?}", world.calls);
}

/// Nothing says that a medium is attached, and one may be in: its attachment was broken off.
#[test]
fn a_data_image_that_is_deleted_in_mid_attachment_leaves_no_medium() {
    for lands in [true, false] {
        let mut world = served(Some(URL));
        data_image(&mut world, ISO);
        world.annotate(annotation::REBOOT, "");
        let attach = |action: &Action| matches!(action, Action::AttachMedia { .. });
        answer(&mut world, attach, working());
        if lands {
            world.medium = Some("https://media.example/a.iso".into());
        }
        // It runs again before anybody has seen that.
        world.machine_on = true;
        world.host.status.as_mut().unwrap().powered_on = true;
        world.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(world.now));
        world.media_seen = None;
        world.converge();
        assert_eq!(world.data_image.is_some(), lands, "{:?}", world.calls);
        if lands {
            world.pass(Settings::default().facts_poll * 2);
            world.converge();
            let told = world.data_image.clone().unwrap().status.unwrap().error.unwrap_or_default();
            assert!(told.message.contains("next reboot") && told.count == 0, "{told:?}");
        }
        world.annotate(annotation::REBOOT, "");
        world.converge();
        assert_eq!((world.medium.clone(), world.data_image.is_none(), world.machine_on), (None, true, true));
    }
}

/// The machine is never off: what waits for that says so, and what to change.
#[test]
fn a_data_image_of_a_machine_that_is_never_off_says_so_once() {
    let mut world = served(Some(URL));
    world.edit(|spec| spec.disable_power_off = Some(true));
    data_image(&mut world, ISO);
    world.converge();
    let (count, message) = data_image_error(&world);
    assert!(count == 0 && message.contains("spec.disablePowerOff"), "{message}");
    let writes = world.child_writes;
    world.pass(Duration::from_secs(900));
    world.converge();
    assert_eq!((world.child_writes, world.medium.clone()), (writes, None));
    world.edit(|spec| spec.disable_power_off = None);
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((attached(&world).as_str(), world.machine_on), (ISO, true));
}

/// It was let go, and may be somebody else's by now: no call is made for its deletion, and what waits for the host goes.
#[test]
fn the_deletion_of_a_detached_host_calls_nobody() {
    let mut world = with_it_attached();
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    world.calls.clear();
    world.delete();
    assert!(world.run_until(|w| w.gone), "{:?}", world.states);
    assert!(world.calls.is_empty(), "{:?}", world.calls);
    assert_eq!(world.data_image.clone().unwrap().metadata.finalizers, None);
}

/// A machine that is to stay off gives its medium back at once.
#[test]
fn a_deleted_data_image_goes_while_its_machine_is_off() {
    let mut world = with_it_attached();
    assert!(world.medium.is_some());
    world.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(world.now));
    world.converge();
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    assert!(world.medium.is_some(), "its system may be reading it");
    assert!(world.events.contains(&"DataImageWaits"), "{:?}", world.events);
    world.edit(|spec| spec.online = false);
    world.converge();
    world.pass(Settings::default().steady_state_poll);
    world.converge();
    assert_eq!((world.medium.clone(), world.data_image.is_none(), world.machine_on), (None, true, false));
}

/// A provisioned host whose data image is attached.
fn with_it_attached() -> World {
    let mut world = served(Some(URL));
    data_image(&mut world, ISO);
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((attached(&world).as_str(), world.machine_on), (ISO, true));
    world
}

fn data_image(world: &mut World, url: &str) {
    let mut image: DataImage = created(DataImage::new);
    image.spec.url = url.into();
    world.data_image = Some(image);
}

fn attached(world: &World) -> String {
    world.data_image.clone().unwrap().status.unwrap_or_default().attached_image.unwrap_or_default().url
}

#[test]
fn a_data_image_is_attached_changed_and_taken_away_at_reboots_only() {
    let mut world = served(Some(URL));
    data_image(&mut world, ISO);
    world.converge();
    let held = |world: &World| world.data_image.as_ref().unwrap().metadata.finalizers.clone().unwrap_or_default();
    assert_eq!((world.medium.clone(), held(&world)), (None, vec![finalizer::DATA_IMAGE.to_owned()]));
    for url in ["https://media.example/a.iso", "https://media.example/b.iso"] {
        world.data_image.as_mut().unwrap().spec.url = url.into();
        world.annotate(annotation::REBOOT, "");
        world.converge();
        assert!(world.machine_on);
        assert_eq!((world.medium.as_deref(), attached(&world).as_str()), (Some(url), url));
    }
    let media = |a: &&Action| matches!(a, Action::AttachMedia { .. } | Action::DetachMedia);
    assert_eq!(world.calls.iter().filter(media).count(), 3, "{:?}", world.calls);
    world.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(world.now));
    world.converge();
    assert!(world.data_image.is_some(), "it is taken away at a reboot");
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((world.medium.clone(), world.data_image.is_none(), world.machine_on), (None, true, true));
}

#[test]
fn a_data_image_that_cannot_be_attached_says_so_itself_and_is_tried_again() {
    let mut world = served(Some(URL));
    data_image(&mut world, ISO);
    world.annotate(annotation::REBOOT, "");
    let attach = |action: &Action| matches!(action, Action::AttachMedia { .. });
    for count in 1..4 {
        answer(&mut world, attach, failed("The slot is taken"));
        let error = world.data_image.clone().unwrap().status.unwrap().error.unwrap();
        assert_eq!((error.count, error.message.as_str()), (count, "The slot is taken"));
        assert!(!world.in_error() && !world.machine_on);
        assert!(matches!(world.next, Next::After(wait) if wait >= Duration::from_secs(60)), "{:?}", world.next);
        assert!(matches!(world.decide(), Step::Change(_)), "it has to wait");
    }
    world.until(attach);
    world.converge();
    assert_eq!(world.data_image.clone().unwrap().status.unwrap().error.unwrap_or_default().count, 0);
    assert!(world.machine_on);
}

fn data_image_error(world: &World) -> (i64, String) {
    let error = world.data_image.clone().unwrap().status.unwrap_or_default().error.unwrap_or_default();
    (error.count, error.message)
}

#[test]
fn what_keeps_a_data_image_from_being_attached_is_said_before_the_reboot_and_holds_up_none() {
    let mut world = served(Some(URL));
    data_image(&mut world, "http://media.example/a.iso");
    let check = |action: &Action| matches!(action, Action::CheckMedia { url } if url == "http://media.example/a.iso");
    answer(&mut world, check, failed("its drives mount by HTTPS alone"));
    let (count, message) = data_image_error(&world);
    assert_eq!((count, world.machine_on, world.in_error()), (1, true, false));
    assert_eq!(message, "It cannot be attached at the next reboot: its drives mount by HTTPS alone");
    // Said once, asked again after a while, and taken back when it has passed.
    let writes = world.child_writes;
    world.converge();
    assert_eq!(world.child_writes, writes);
    world.pass(Duration::from_secs(300));
    answer(&mut world, check, failed("its drives mount by HTTPS alone"));
    assert_eq!(world.child_writes, writes);
    world.pass(Duration::from_secs(300));
    world.until(check);
    world.converge();
    assert_eq!(data_image_error(&world), (0, String::new()));
    // What was found out without an attempt is no failure that an attempt has to wait after.
    world.pass(Duration::from_secs(300));
    answer(&mut world, check, failed("its drives mount by HTTPS alone"));
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((world.machine_on, attached(&world).as_str()), (true, "http://media.example/a.iso"));
    assert_eq!(data_image_error(&world), (0, String::new()));
}

#[test]
fn a_data_image_that_the_bmc_has_lost_is_told_and_attached_again_at_the_next_reboot() {
    let mut world = with_it_attached();
    let looks = |world: &World| world.calls.iter().filter(|call| **call == Action::LookAtMedia).count();
    world.pass(Duration::from_secs(300));
    world.until(|action| *action == Action::LookAtMedia);
    // A BMC that does not answer has lost nothing.
    answer(&mut world, |action| *action == Action::LookAtMedia, failed("no answer"));
    assert_eq!(data_image_error(&world).1, "Whether it is still attached cannot be seen: no answer");
    assert_eq!(attached(&world), "https://media.example/a.iso");
    world.pass(Duration::from_secs(300));
    world.until(|action| *action == Action::LookAtMedia);
    world.converge();
    assert_eq!(data_image_error(&world), (0, String::new()));
    // The BMC has been restarted.
    let before = looks(&world);
    (world.medium, world.now) = (None, world.now + jiff::SignedDuration::from_secs(300));
    world.until(|action| *action == Action::LookAtMedia);
    world.converge();
    assert!(looks(&world) > before);
    let (count, message) = data_image_error(&world);
    assert!(
        count == 1 && message.starts_with("It is not attached any more: the BMC shows no such medium"),
        "{message}"
    );
    assert_eq!((attached(&world), world.machine_on, world.in_error()), (String::new(), true, false));
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((attached(&world).as_str(), world.machine_on), (ISO, true));
    assert_eq!(data_image_error(&world), (0, String::new()));
}

#[test]
fn a_data_image_goes_with_the_system_that_was_shown_it() {
    let mut world = with_it_attached();
    world.edit(|spec| spec.image = None);
    assert!(world.run_until(|w| w.state() == State::Available && attached(w).is_empty()), "{:?}", world.calls);
}

#[test]
fn a_data_image_of_a_detached_host_may_go() {
    let mut world = with_it_attached();
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    world.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(world.now));
    world.converge();
    assert!(world.data_image.is_none());
}

#[test]
fn a_data_image_that_nobody_attaches_is_told_once_and_may_go() {
    let mut world = World::at_rest(Some(URL));
    data_image(&mut world, ISO);
    world.converge();
    let error = world.data_image.clone().unwrap().status.unwrap().error.unwrap();
    assert!(error.message.contains("attaches no data images"), "{}", error.message);
    let writes = world.child_writes;
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!((world.child_writes, world.machine_on), (writes, true));
    let image = world.data_image.as_mut().unwrap();
    image.metadata.finalizers = Some(vec![finalizer::DATA_IMAGE.into()]);
    image.metadata.deletion_timestamp = Some(api::Time(world.now));
    world.converge();
    assert!(world.data_image.is_none());
}

#[test]
fn what_a_host_holds_is_let_go_with_it_and_a_data_image_of_an_empty_host() {
    let mut world = needs_images();
    world.host.spec.image = Some(image(URL));
    assert!(world.run_until(|w| w.state() == State::Provisioned), "{:?}", world.calls);
    world.settings.served.data_images = true;
    data_image(&mut world, ISO);
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert!(!attached(&world).is_empty());
    let mut other = World { host: world.host.clone(), ..needs_images() };
    other.host.spec.image = None;
    (other.data_image, other.boot_image) = (world.data_image.clone(), world.boot_image.clone());
    other.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(other.now));
    assert!(other.run_until(|w| w.state() == State::Available && w.data_image.is_none()), "{:?}", other.calls);
    world.delete();
    assert!(world.run_until(|w| w.gone), "{:?}", world.states);
    assert_eq!(world.data_image.clone().unwrap().metadata.finalizers, None);
    assert_eq!(world.boot_image.clone().unwrap().metadata.finalizers, None);
}
