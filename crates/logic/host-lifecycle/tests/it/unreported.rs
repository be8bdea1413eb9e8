//! Machines whose BMC shows no settings of the firmware, now or ever; and versions that were there first.

use api::metal3::ProvisioningState as State;
use host_lifecycle::{Action, Served, Settings};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::kit::World;

/// A host on its way, whose provisioner makes settings and reads versions.
fn host(hides: bool) -> World {
    let mut world = World::new();
    world.settings.served =
        Served { firmware_settings: true, firmware_components: true, service: true, ..Served::default() };
    world.hides_bios = hides;
    world
}

fn valid(world: &World) -> Condition {
    let status = world.firmware_settings.clone().unwrap().status.unwrap();
    status.conditions.into_iter().find(|condition| condition.type_ == "Valid").unwrap()
}

#[test]
fn a_machine_that_never_shows_settings_goes_on_and_a_wish_says_why_it_is_not_made() {
    let mut world = host(true);
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Available, false));
    let status = world.firmware_settings.clone().unwrap().status.unwrap();
    assert_eq!((status.settings.len(), status.schema, world.firmware_schema.is_none()), (0, None, true));
    world.wish_setting("BootMode", "Legacy");
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Available, false));
    let said = valid(&world);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", "ConfigurationError"));
    assert!(said.message.contains("shows no BIOS settings"), "{}", said.message);
    assert!(world.events.contains(&"ValidationFailed"), "{:?}", world.events);
    assert!(!world.calls.iter().any(|call| matches!(call, Action::Prepare { targets, .. } if !targets.is_empty())));
}

#[test]
fn what_was_shown_stays_while_nothing_is_and_wishes_are_judged_by_it() {
    let mut world = host(false);
    world.converge();
    let before = world.firmware_settings.clone().unwrap().status.unwrap();
    world.hides_bios = true;
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    let after = world.firmware_settings.clone().unwrap().status.unwrap();
    assert_eq!((&after.settings, &after.schema), (&before.settings, &before.schema));
    world.wish_setting("Colour", "red");
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    assert!(valid(&world).message.contains("no setting Colour"), "{}", valid(&world).message);
}

#[test]
fn the_version_that_was_shown_first_stays_known() {
    let mut world = host(false);
    world.converge();
    world.bios_version = "1.1";
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    let components = world.firmware_components.clone().unwrap().status.unwrap().components;
    let bios = components.iter().find(|component| component.component == "bios").unwrap();
    assert_eq!((bios.initial_version.as_str(), bios.current_version.as_deref()), ("1.0", Some("1.1")));
}
