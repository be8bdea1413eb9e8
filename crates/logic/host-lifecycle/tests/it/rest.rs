//! Hosts at rest and what comes before their state: power, ownership of the objects beside them, what is known of the hardware, waits.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{
    ErrorType, HostUpdatePolicy, InspectionMode, OperationalStatus, ProvisioningState as State, annotation,
};
use host_lifecycle::{Action, ChildWrite, Next, Outcome, PowerWish, Served, Standing, Step, standing};
use inventory::{Cpu, HardwareDetails};

use crate::kit::{Secret, World, created, failed, hardware, image};

const URL: &str = "https://images.example/a.raw";
const FORCE: &str = r#"{"force":true}"#;

#[test]
fn a_release_that_is_blocked_is_done_without_by_force_alone() {
    let held = || Outcome::Held { message: "whose it is nobody knows".into() };
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, FORCE);
    world.step_with(|_, _| held());
    assert!(world.events.contains(&"DetachedByForce"), "{:?}", world.events);
    // Another call that is blocked is no release, whatever the annotation.
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, FORCE);
    let change = world.conclude(&Action::ReadPower, held());
    assert!(change.status.error_type == Some(ErrorType::Registration), "{:?}", change.status.error_type);
}

/// It registers whatever it is asked to, and knows it no more at the next question.
#[test]
fn a_provisioner_that_forgets_its_machine_at_once_is_told_of() {
    for (image, adopts) in [(None, false), (Some(URL), true)] {
        let mut world = World::at_rest(image);
        // The first question after a registration.
        let is_asked = |action: &Action| if adopts { *action == Action::Adopt } else { *action == Action::ReadPower };
        world.now += jiff::SignedDuration::from_hours(1);
        world.until(|action| *action == Action::ReadPower);
        world.step_with(|_, _| Outcome::NeedsRegistration);
        assert!(!world.in_error(), "it may have been restarted: {:?}", world.status());
        for _ in 0..3 {
            world.until(is_asked);
            world.step_with(|_, _| Outcome::NeedsRegistration);
            let status = world.status();
            assert!(status.error_message.contains("does not know the machine"), "{status:?}");
            assert_eq!(status.error_count, 0, "nothing was attempted");
            assert!(matches!(world.next, Next::After(_)), "it is not asked without end");
        }
        // Once it knows it again, all is well.
        assert!(world.run_until(|world| !world.in_error()), "{:?}", world.status());
    }
}

#[test]
fn what_is_beside_a_host_is_owned_once_the_host_is_registered_and_while_it_stays() {
    let with_policy = |mut world: World| {
        world.settings.served.service = true;
        world.update_policy = Some(created(HostUpdatePolicy::new));
        world
    };
    let owns = |world: &World| matches!(world.decide(), Step::Change(change) if change.children == [ChildWrite::OwnUpdatePolicy]);
    let mut world = with_policy(World::at_rest(None));
    assert!(owns(&world));
    world.delete();
    assert!(!owns(&world));
    let mut world = with_policy(World::at_rest(None));
    world.host.status.as_mut().unwrap().provisioning.id.clear();
    assert!(!owns(&world), "not registered");
    let mut world = with_policy(World::at_rest(None));
    world.host.status.as_mut().unwrap().provisioning.state = State::Registering;
    assert!(!owns(&world), "being registered");
}

#[test]
fn the_owner_of_what_is_not_served_is_told_so_and_no_other() {
    let events = |served: Served, give: fn(&mut World)| {
        let mut world = World::at_rest(None);
        world.settings.served = served;
        give(&mut world);
        match world.decide() {
            Step::Change(change) => (change.children.len(), change.events.len()),
            Step::Act(action) => panic!("{action:?}"),
        }
    };
    let settings = |world: &mut World| world.firmware_settings = Some(created(api::metal3::HostFirmwareSettings::new));
    let components =
        |world: &mut World| world.firmware_components = Some(created(api::metal3::HostFirmwareComponents::new));
    let policy = |world: &mut World| world.update_policy = Some(created(HostUpdatePolicy::new));
    let none = Served::default;
    assert_eq!(events(none(), settings), (1, 1));
    assert_eq!(events(Served { firmware_settings: true, ..none() }, settings), (1, 0));
    assert_eq!(events(none(), components), (1, 1));
    assert_eq!(events(Served { firmware_components: true, ..none() }, components), (1, 1));
    assert_eq!(
        events(Served { firmware_components: true, ..none() }, |_| {}),
        (1, 0),
        "one that is made asks for nothing"
    );
    assert_eq!(events(Served { firmware_updates: true, ..none() }, components), (1, 0));
    assert_eq!(events(none(), policy), (1, 1));
    assert_eq!(events(Served { service: true, ..none() }, policy), (1, 0));
}

#[test]
fn a_machine_is_cut_off_when_asking_has_failed() {
    for (error, count, wish) in [
        (None, 0, PowerWish::SoftOff),
        (Some(ErrorType::PowerManagement), 0, PowerWish::SoftOff),
        (Some(ErrorType::PowerManagement), 1, PowerWish::HardOff),
        (Some(ErrorType::Servicing), 1, PowerWish::SoftOff),
    ] {
        let mut world = World::at_rest(Some(URL));
        world.edit(|spec| spec.online = false);
        let status = world.host.status.as_mut().unwrap();
        (status.error_type, status.error_count) = (error, count);
        assert_eq!(world.decide(), Step::Act(Action::SetPower(wish)), "{error:?} {count}");
    }
}

#[test]
fn a_machine_that_stays_off_though_it_was_switched_on_is_a_failure() {
    let mut world = World::at_rest(Some(URL));
    world.host.status.as_mut().unwrap().powered_on = false;
    let change = world.conclude(&Action::SetPower(PowerWish::On), Outcome::Power(false));
    assert_eq!(change.status.error_type, Some(ErrorType::PowerManagement));
    assert!(change.status.error_message.ends_with("which is still off"), "{}", change.status.error_message);
}

#[test]
fn power_as_wished_ends_each_error_but_that_of_an_image_that_is_not_written() {
    for (url, error, ends) in [
        (None, ErrorType::Provisioning, false),
        (None, ErrorType::Registration, true),
        (Some(URL), ErrorType::Provisioning, true),
        (Some(URL), ErrorType::Registration, true),
    ] {
        let mut world = World::at_rest(url);
        let on = world.machine_on;
        let status = world.host.status.as_mut().unwrap();
        (status.error_type, status.error_count, status.powered_on) = (Some(error), 2, on);
        let change = world.conclude(&Action::ReadPower, Outcome::Power(on));
        assert_eq!(
            (change.status.error_type, change.status.error_count == 0),
            ((!ends).then_some(error), ends),
            "{url:?}"
        );
    }
}

#[test]
fn details_of_the_hardware_are_taken_when_none_are_known_or_nobody_inspects() {
    let other = || HardwareDetails { ram_mebibytes: Some(1), ..hardware() };
    for (known, disabled, taken) in [
        (None, false, true),
        (None, true, true),
        (Some(other()), false, false),
        (Some(other()), true, true),
        (Some(hardware()), true, false),
        (Some(hardware()), false, false),
    ] {
        for annotated in [false, true] {
            let mut world = World::at_rest(Some(URL));
            world.hardware_data = Some(Arc::new(hardware()));
            world.host.status.as_mut().unwrap().hardware = known.clone().map(Arc::new);
            world.edit(|spec| spec.inspection_mode = disabled.then_some(InspectionMode::Disabled));
            if annotated {
                world.annotate(annotation::HARDWARE_DETAILS, "{}");
            }
            match world.decide() {
                Step::Change(change) => {
                    let status = change.status.clone();
                    let wanted = if taken { Some(hardware()) } else { known.clone() };
                    assert_eq!(status.hardware.as_deref(), wanted.as_ref());
                    assert_eq!(change.remove_annotations.len(), usize::from(annotated));
                    assert!(taken || annotated, "{known:?} {disabled}");
                    assert_eq!(change.status_differs(world.host.status.as_ref()), taken);
                }
                Step::Act(_) => assert!(!taken && !annotated, "{known:?} {disabled}"),
            }
        }
    }
}

#[test]
fn the_architecture_is_filled_in_where_it_is_known_and_not_said() {
    let with = |arch: Option<&str>| {
        let cpu = Cpu { arch: arch.map(Into::into), ..Cpu::default() };
        Arc::new(HardwareDetails { cpu: Some(cpu), ..hardware() })
    };
    for (said, known, filled) in [
        (None, Some("aarch64"), Some("aarch64")),
        (Some(""), Some("aarch64"), Some("aarch64")),
        (Some("x86_64"), Some("aarch64"), None),
        (None, Some(""), None),
        (None, None, None),
    ] {
        let mut world = World::at_rest(Some(URL));
        world.hardware_data = Some(with(known));
        world.host.status.as_mut().unwrap().hardware = Some(with(known));
        world.host.spec.architecture = said.map(Into::into);
        match world.decide() {
            Step::Change(change) => assert_eq!(change.set_architecture.as_deref(), filled, "{said:?} {known:?}"),
            Step::Act(_) => assert_eq!(filled, None, "{said:?} {known:?}"),
        }
    }
}

#[test]
fn a_wait_is_shortened_by_the_word_that_the_work_may_have_waited_for() {
    let wait = |error: ErrorType, text: &str, key: &str, value: &str| {
        let mut world = World::at_rest(Some(URL));
        world.edit(|spec| spec.image = None);
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        world.host.status.as_mut().unwrap().error_count = 8;
        world.step_with(|_, _| failed(text));
        world.host.status.as_mut().unwrap().error_type = Some(error);
        if !key.is_empty() {
            world.annotate(key, value);
        }
        match world.decide() {
            Step::Change(change) => match change.next {
                Next::After(wait) => wait,
                other => panic!("{other:?}"),
            },
            Step::Act(_) => Duration::ZERO,
        }
    };
    let unit = Duration::from_secs(60);
    let of_machine = format!("another machine; {} accepts it", annotation::ACCEPT_MACHINE);
    for (text, key, value, short) in [
        ("it broke", "", "", false),
        ("it broke", annotation::OVERWRITE_OWNER, "x", true),
        ("it broke", annotation::ACCEPT_MACHINE, "x", false),
        (of_machine.as_str(), annotation::ACCEPT_MACHINE, "x", true),
        (of_machine.as_str(), "", "", false),
        ("it broke", annotation::REBOOT, FORCE, true),
        ("it broke", annotation::REBOOT, "", false),
    ] {
        let found = wait(ErrorType::Provisioning, text, key, value);
        assert_eq!(found <= unit, short, "{text} {key} {value}: {found:?}");
        assert!(!found.is_zero(), "{text} {key}");
    }
}

#[test]
fn failed_attempts_at_an_image_count_while_it_is_tried_alone() {
    let next = |state: State, kind: ErrorType| {
        let mut world = World::at_rest(None);
        world.host.spec.image = Some(image(URL));
        let status = world.host.status.as_mut().unwrap();
        status.provisioning.state = state;
        status.last_attempted_image = Some(image(URL));
        (status.provisioning_fail_count, status.error_count, status.error_type) = (7, 1, Some(kind));
        status.last_updated = Some(api::Time(world.now));
        match world.decide() {
            Step::Change(change) => change.next,
            Step::Act(action) => panic!("{action:?}"),
        }
    };
    let long = |next: Next| matches!(next, Next::After(wait) if wait > Duration::from_secs(600));
    assert!(long(next(State::Provisioning, ErrorType::Provisioning)));
    assert!(!long(next(State::Deprovisioning, ErrorType::Provisioning)));
}

#[test]
fn nothing_beside_a_host_is_owned_while_it_is_emptied_for_its_deletion() {
    let mut world = World::at_rest(Some(URL));
    world.delete();
    world.until(|action| matches!(action, Action::Deprovision { .. }));
    world.update_policy = Some(created(HostUpdatePolicy::new));
    assert!(matches!(world.decide(), Step::Act(Action::Deprovision { .. })), "{:?}", world.decide());
}

#[test]
fn how_a_host_stands_follows_each_of_its_facts() {
    let declared = |world: &World| match standing(&world.host) {
        Standing::AsDeclared(what) => Some(what),
        Standing::NotYet(_) | Standing::NeedsChange(_) => None,
    };
    let mut world = World::at_rest(None);
    world.annotate(annotation::PAUSED, "");
    assert_eq!(declared(&world).as_deref(), Some("available; paused"));
    world.host.status.as_mut().unwrap().error_type = Some(ErrorType::PowerManagement);
    assert_eq!(declared(&world), None);
    let mut world = World::new();
    let bmc = world.host.spec.bmc.take().unwrap();
    world.converge();
    for (address, name, known) in [("", "", true), ("", "s", false), ("redfish://192.0.2.1/a", "", false)] {
        let (address, credentials_name) = (address.to_owned(), name.to_owned());
        world.host.spec.bmc = Some(api::metal3::Bmc { address, credentials_name, ..bmc.clone() });
        assert_eq!(declared(&world).is_some(), known, "{name}");
    }
    let mut world = World::at_rest(Some(URL));
    assert_eq!(declared(&world), Some(format!("provisioned with {URL}")));
    world.host.spec.image.as_mut().unwrap().checksum = Some("cd".repeat(16));
    assert!(declared(&world).is_some_and(|what| what.contains("were edited afterwards")));
    world.host.status.as_mut().unwrap().provisioning.image = api::metal3::Image::default();
    assert_eq!(declared(&world), Some(format!("provisioned with {URL}")));
    let mut world = World::at_rest(Some(URL));
    world.host.status.as_mut().unwrap().operation_history.register.end = None;
    assert_eq!(declared(&world), None, "it is to be adopted");
    let mut world = World::at_rest(Some(URL));
    world.host.spec.image = None;
    assert_eq!(declared(&world), None, "it is to be emptied");
}

#[test]
fn a_service_that_goes_on_has_no_error() {
    let mut world = World::at_rest(Some(URL));
    world.host.status.as_mut().unwrap().error_type = Some(ErrorType::Servicing);
    let service = Action::Service { targets: Box::default(), restart: true };
    let change = world.conclude(&service, Outcome::Working { look_again: Duration::from_secs(5) });
    let status = change.status;
    assert_eq!((status.error_type, status.operational_status), (None, api::metal3::OperationalStatus::Servicing));
}

/// It hides neither the power that was seen, nor what is to be done about that, nor a failure of other work.
#[test]
fn what_is_to_be_known_beside_the_power_stands_beside_it() {
    let told = |on| Outcome::PowerTold { on, message: "its medium is out".into() };
    let mut world = World::at_rest(Some(URL));
    for _ in 0..2 {
        let change = world.conclude(&Action::ReadPower, told(true));
        assert_eq!((change.status.error_message.as_str(), change.status.error_count), ("its medium is out", 0));
        assert_eq!(change.next, Next::After(world.settings.steady_state_poll));
        assert!(change.status.powered_on);
        world.host.status = Some(change.status);
    }
    // It is over when it is not told any more.
    assert_eq!(world.conclude(&Action::ReadPower, Outcome::Power(true)).status.error_type, None);
    // Somebody has switched a machine on that is to be off.
    world.host.spec.online = false;
    world.host.status.as_mut().unwrap().powered_on = false;
    let change = world.conclude(&Action::ReadPower, told(true));
    assert_eq!((change.status.powered_on, change.next), (true, Next::Now));
    // A power that had failed is well again.
    world.host.spec.online = true;
    let status = world.host.status.as_mut().unwrap();
    (status.error_type, status.error_count) = (Some(ErrorType::PowerManagement), 3);
    let change = world.conclude(&Action::ReadPower, told(true));
    assert_eq!((change.status.error_message.as_str(), change.status.error_count), ("its medium is out", 0));
}

#[test]
fn what_is_told_of_a_machine_that_runs_is_no_failure_and_makes_no_reboot_ruder() {
    let told = || Outcome::Failed { message: "its medium is out".into(), retry: terms::Retry::Waiting };
    let mut world = World::at_rest(Some(URL));
    for _ in 0..3 {
        world.step_with(|_, action| if *action == Action::ReadPower { told() } else { Outcome::Power(true) });
        let status = world.status();
        assert_eq!((status.error_type, status.error_count), (Some(ErrorType::PowerManagement), 0), "{status:?}");
        assert_eq!(status.error_message, "its medium is out");
        assert_eq!(world.next, Next::After(world.settings.steady_state_poll));
    }
    assert_eq!(world.events.iter().filter(|event| **event == "PowerManagementError").count(), 1);
    world.annotate(annotation::REBOOT, "");
    assert_eq!(world.decide(), Step::Act(Action::SetPower(PowerWish::SoftOff)), "at once, and politely");
    world.converge();
    assert!(!world.in_error() && world.status().powered_on, "{:?}", world.status());
}

#[test]
fn an_error_of_the_power_ends_with_the_credentials_that_it_was_with() {
    let mut world = World::at_rest(Some(URL));
    let status = world.host.status.as_mut().unwrap();
    (status.error_type, status.error_count) = (Some(ErrorType::PowerManagement), 7);
    (status.operational_status, status.error_message) = (OperationalStatus::Error, "401 Unauthorized".into());
    world.secret = Secret::Version(2);
    world.converge();
    assert!(world.calls.contains(&Action::ReadPower), "{:?}", world.calls);
    let status = world.status();
    assert_eq!((status.error_type, status.error_count, status.error_message.as_str()), (None, 0, ""));
    assert_eq!(status.operational_status, OperationalStatus::Ok);
}
