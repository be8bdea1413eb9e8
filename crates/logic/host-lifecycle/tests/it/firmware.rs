//! Wishes for the firmware: what is said of each, once, and what is said while the provisioner is at it.

use std::time::Duration;

use crate::kit::{World, image};
use api::metal3::{HostUpdatePolicy, UpdatePolicy, annotation};
use host_lifecycle::{Action, Outcome};

const URL: &str = "https://images.example/a.raw";

fn served() -> World {
    let mut world = World::new();
    let mine = &mut world.settings.served;
    (mine.firmware_settings, mine.firmware_updates, mine.service) = (true, true, true);
    world
}

/// Reads the firmware, in whatever state.
fn read(world: &mut World) {
    let facts = world.facts();
    let change = world.conclude(&Action::RefreshFacts, Outcome::Firmware(Box::new(facts)));
    world.apply(change);
}

/// Status and message of a condition of the HostFirmwareSettings.
fn of_settings(world: &World, kind: &str) -> (String, String) {
    let status = world.firmware_settings.as_ref().unwrap().status.as_ref().unwrap();
    let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

fn of_components(world: &World, kind: &str) -> (String, String) {
    let status = world.firmware_components.as_ref().unwrap().status.as_ref().unwrap();
    let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (found.status.clone(), found.message.clone())
}

#[test]
fn a_wish_of_a_length_that_no_machine_has_is_refused_as_such() {
    let (most, long) = ("x".repeat(1024), "x".repeat(1025));
    for (name, value, says) in [
        ("", "1", "a name is empty, or"),
        (most.as_str(), "1", "the machine has no setting xxx"),
        (long.as_str(), "1", "a name is empty, or"),
        ("LogicalProc", long.as_str(), "a name is empty, or"),
    ] {
        let mut world = served();
        world.converge();
        world.wish_setting(name, value);
        world.converge();
        let (valid, message) = of_settings(&world, "Valid");
        assert!(valid == "False" && message.starts_with(says), "{} {}: {message}", name.len(), value.len());
    }
    let mut world = served();
    world.converge();
    world.wish_setting("LogicalProc", &most);
    read(&mut world);
    assert_eq!(of_settings(&world, "Valid").0, "True");
}

#[test]
fn a_wrong_wish_is_told_once_and_another_one_again() {
    let mut world = served();
    world.converge();
    world.events.clear();
    world.wish_setting("NoSuchThing", "1");
    read(&mut world);
    assert_eq!(world.events, ["ValidationFailed"]);
    // Something else of the machine has changed: what was said of the wish is known.
    world.bios.insert("BootMode".into(), "Legacy".into());
    read(&mut world);
    assert_eq!(world.firmware_settings.as_ref().unwrap().status.as_ref().unwrap().settings["BootMode"], "Legacy");
    assert_eq!(world.events.len(), 1);
    world.wish_setting("NorThis", "1");
    read(&mut world);
    assert_eq!(world.events.len(), 2);
    world.bios.extend([("NoSuchThing".into(), "1".into()), ("NorThis".into(), "1".into())]);
    read(&mut world);
    assert_eq!((of_settings(&world, "Valid").0.as_str(), world.events.len()), ("True", 2));
}

#[test]
fn what_the_provisioner_is_at_stays_accepted_when_the_firmware_is_read_meanwhile() {
    let mut world = served();
    world.host.spec.image = Some(image(URL));
    world.converge();
    let mut policy: HostUpdatePolicy = crate::kit::created(HostUpdatePolicy::new);
    policy.spec.firmware_settings = Some(UpdatePolicy::OnReboot);
    policy.spec.firmware_updates = Some(UpdatePolicy::OnReboot);
    world.update_policy = Some(policy);
    world.wish_setting("LogicalProc", "Disabled");
    world.wish_update("bios", "https://firmware.example/bios-2");
    world.annotate(annotation::REBOOT, "");
    world.until(|action| matches!(action, Action::Service { .. }));
    world.step_with(|_, _| Outcome::Accepted { look_again: Duration::from_secs(5) });
    read(&mut world);
    match world.until(|action| matches!(action, Action::Service { .. })) {
        Action::Service { targets, .. } => assert!(targets.is_empty(), "{targets:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(of_components(&world, "ChangeDetected"), ("True".into(), "to be updated: bios".into()));
}

#[test]
fn a_component_s_name_is_no_longer_than_a_machine_s() {
    for (length, valid) in [(1024, "True"), (1025, "False")] {
        let mut world = served();
        world.converge();
        world.wish_update(&format!("nic:{}", "x".repeat(length - 4)), "https://firmware.example/nic");
        read(&mut world);
        assert_eq!(of_components(&world, "Valid").0, valid, "{length}");
    }
}

#[test]
fn of_many_values_the_first_eight_are_listed() {
    for (count, more) in [(8, false), (9, true)] {
        let mut world = served();
        world.converge();
        world.allowed.insert("LogicalProc".into(), (0..count).map(|number| format!("V{number}")).collect());
        world.wish_setting("LogicalProc", "x");
        read(&mut world);
        assert_eq!(of_settings(&world, "Valid").1.ends_with("V7, …"), more, "{count}");
    }
}

/// Nothing of a machine in use is changed meanwhile: the object says what the wish waits for.
#[test]
fn a_wish_for_a_host_in_use_says_when_it_is_made() {
    let mut world = served();
    world.host.spec.image = Some(image(URL));
    world.converge();
    world.wish_setting("LogicalProc", "Disabled");
    world.wish_update("bios", "https://firmware.example/bios.bin");
    read(&mut world);
    for (status, message) in [of_settings(&world, "ChangeDetected"), of_components(&world, "ChangeDetected")] {
        assert_eq!(status, "True");
        assert!(
            message.ends_with("at its next reboot if a HostUpdatePolicy of its name has onReboot for it"),
            "{message}"
        );
    }
    world.edit(|spec| spec.disable_power_off = Some(true));
    read(&mut world);
    for (_, message) in [of_settings(&world, "ChangeDetected"), of_components(&world, "ChangeDetected")] {
        assert!(message.contains("spec.disablePowerOff leaves no time") && !message.contains("reboot"), "{message}");
    }
    let mut world = served();
    world.converge();
    world.wish_setting("LogicalProc", "Disabled");
    read(&mut world);
    assert!(!of_settings(&world, "ChangeDetected").1.contains("HostUpdatePolicy"), "it is made at once");
}

/// A provisioner ends its work for another one: what it had accepted before would be lost, and count as made.
#[test]
fn what_was_accepted_is_handed_over_again_with_what_is_wished_besides() {
    for updates_first in [true, false] {
        let mut world = served();
        world.converge();
        let update = |world: &mut World| world.wish_update("bios", "https://firmware.example/bios-2");
        let set = |world: &mut World| world.wish_setting("LogicalProc", "Disabled");
        if updates_first {
            update(&mut world)
        } else {
            set(&mut world)
        }
        let prepares = |action: &Action| matches!(action, Action::Prepare { .. });
        world.until(prepares);
        world.step_with(|_, _| Outcome::Accepted { look_again: Duration::from_secs(5) });
        if updates_first {
            set(&mut world)
        } else {
            update(&mut world)
        }
        read(&mut world);
        let Action::Prepare { targets, .. } = world.until(prepares) else { panic!() };
        assert_eq!((targets.settings.is_some(), targets.updates.len()), (true, 1), "{updates_first}");
        world.step_with(|_, _| Outcome::Accepted { look_again: Duration::from_secs(5) });
        let Action::Prepare { targets, .. } = world.until(prepares) else { panic!() };
        assert!(targets.is_empty(), "once: {targets:?}");
    }
}

/// An older one may have to be installed before the one that is meant.
#[test]
fn updates_of_one_component_are_made_once_in_their_order() {
    let mut world = served();
    world.converge();
    for version in ["1.5", "2.0"] {
        world.wish_update("bmc", &format!("https://firmware.example/{version}"));
    }
    world.converge();
    world.pass(Duration::from_secs(3600));
    world.converge();
    assert_eq!(world.flashed, ["https://firmware.example/1.5", "https://firmware.example/2.0"]);
    let made = world.firmware_components.as_ref().unwrap().status.clone().unwrap().updates;
    assert_eq!(made.iter().map(|update| update.url.as_str()).collect::<Vec<_>>(), ["https://firmware.example/2.0"]);
    assert_eq!(of_components(&world, "ChangeDetected").0, "False");
}
