//! RAID volumes while they are being made: what counts as there when the wish changes, or the work fails.

use api::metal3::{ProvisioningState as State, Raid, SoftwareRaidVolume};
use host_lifecycle::{Action, Outcome};

use crate::kit::{failed, image};
use crate::prepares::{URL, accepted, answer, is_prepare, raid, served, targets, working};

/// The making of volumes ends with another wish, however that comes: none of them count, and what was accepted beside them is handed over again with them.
#[test]
fn volumes_that_were_being_made_are_not_taken_for_made_when_the_wish_changes() {
    let mut world = served(None);
    world.wish_setting("LogicalProc", "Disabled");
    world.edit(|spec| spec.raid = Some(raid("1")));
    let first = answer(&mut world, is_prepare, accepted());
    assert!(targets(&first).unwrap().settings.is_some() && targets(&first).unwrap().raid.is_some(), "{first:?}");
    let again = answer(&mut world, is_prepare, working());
    let wished = |action: &Action| {
        let targets = targets(action).unwrap();
        (targets.raid.clone().map(|raid| raid.wished), targets.settings.clone(), targets.updates.clone())
    };
    assert_eq!(wished(&again), wished(&first), "it is the same wish");
    world.wish_update("bios", "https://firmware.example/bios-2");
    let other = answer(&mut world, is_prepare, accepted());
    let (volumes, settings, updates) = wished(&other);
    assert_eq!((volumes, settings.is_some(), updates.len()), (Some(raid("1")), true, 1));
    // Volumes that are no longer wished are nothing to make; wished again, they are made.
    world.edit(|spec| spec.raid = None);
    let none = world.until(is_prepare);
    let (volumes, settings, updates) = wished(&none);
    assert_eq!((volumes, settings.is_some(), updates.len()), (None, true, 1), "a wish without them");
    world.edit(|spec| spec.raid = Some(raid("1")));
    let anew = answer(&mut world, is_prepare, accepted());
    assert_eq!(wished(&anew).0, Some(raid("1")));
    world.make(targets(&anew).unwrap());
    answer(&mut world, is_prepare, Outcome::Done);
    world.converge();
    assert_eq!((world.state(), world.status().provisioning.raid), (State::Available, Some(raid("1"))));
}

/// A controller's volumes are replaced, and those before come back into the wish: what is there is neither.
#[test]
fn volumes_in_whose_place_others_are_being_made_do_not_count() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("1")));
    world.converge();
    world.edit(|spec| spec.raid = Some(raid("5")));
    answer(&mut world, is_prepare, accepted());
    world.edit(|spec| spec.raid = Some(raid("1")));
    let back = world.until(is_prepare);
    let wished = targets(&back).unwrap().raid.clone().unwrap();
    assert_eq!((wished.wished, wished.present.unwrap().hardware_raid_volumes), (raid("1"), None));
}

/// Nobody knows which of them are there: they are removed.
#[test]
fn volumes_of_software_that_were_being_made_are_removed_when_they_are_no_longer_wished() {
    let mut world = served(None);
    let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    let software = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(vec![volume]) };
    world.edit(|spec| spec.raid = Some(software));
    answer(&mut world, is_prepare, accepted());
    world.edit(|spec| spec.raid = None);
    let removal = world.until(is_prepare);
    let raid = targets(&removal).unwrap().raid.clone().unwrap();
    assert_eq!(raid.wished.software_raid_volumes, Some(Vec::new()));
    assert_eq!(raid.present, Some(Raid::default()), "not that there are none");
}

/// That nothing of them is there stays known.
#[test]
fn software_volumes_that_were_removed_are_not_removed_at_each_deprovisioning() {
    let mut world = served(None);
    let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    for software in [Some(vec![volume]), None] {
        world.edit(|spec| {
            spec.raid = software.map(|volumes| Raid { software_raid_volumes: Some(volumes), ..Raid::default() });
        });
        world.converge();
    }
    let none = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(Vec::new()) };
    assert_eq!(world.status().provisioning.raid, Some(none));
    for _ in 0..2 {
        for url in [Some(URL), None] {
            world.edit(|spec| spec.image = url.map(image));
            world.calls.clear();
            world.converge();
            let of_volumes = |call: &&Action| targets(call).is_some_and(|targets| targets.raid.is_some());
            assert_eq!(world.calls.iter().find(of_volumes), None);
        }
    }
    assert_eq!(world.state(), State::Available);
}

/// What a controller makes in their place may have taken their disks.
#[test]
fn software_volumes_in_whose_place_a_controller_makes_its_own_do_not_count() {
    let mut world = served(None);
    let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    let software = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(vec![volume]) };
    world.edit(|spec| spec.raid = Some(software.clone()));
    world.converge();
    world.edit(|spec| spec.raid = Some(raid("5")));
    for outcome in [accepted(), accepted()] {
        answer(&mut world, is_prepare, outcome);
    }
    world.edit(|spec| spec.raid = Some(software.clone()));
    let back = world.until(is_prepare);
    let wished = targets(&back).unwrap().raid.clone().unwrap();
    assert_eq!((wished.wished, wished.present), (software, Some(Raid::default())));
}

/// Firmware that was accepted beside volumes that are not wished any more is a wish of its own, which ends the work that makes both.
#[test]
fn volumes_that_are_withdrawn_are_not_gone_on_with_for_the_firmware_beside_them() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("5")));
    world.converge();
    let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    let software = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(vec![volume]) };
    world.wish_setting("LogicalProc", "Disabled");
    world.edit(|spec| spec.raid = Some(software));
    let both = answer(&mut world, is_prepare, accepted());
    assert!(targets(&both).unwrap().raid.is_some() && targets(&both).unwrap().settings.is_some(), "{both:?}");
    world.edit(|spec| spec.raid = Some(raid("5")));
    let other = world.until(is_prepare);
    let again = targets(&other).unwrap();
    assert_eq!(again.raid.clone().unwrap().wished, raid("5"), "those of software may be there");
    assert!(again.settings.is_some(), "{other:?}");
    // None are wished: what of them is there goes, the controller's stay.
    world.edit(|spec| spec.raid = None);
    let removal = world.until(is_prepare);
    let raid = targets(&removal).unwrap().raid.clone().unwrap();
    assert_eq!((raid.wished.software_raid_volumes, raid.present), (Some(Vec::new()), Some(Raid::default())));
}

/// Nor after a failure, accepted or not.
#[test]
fn software_volumes_that_could_not_be_removed_are_not_taken_for_removed() {
    let mut world = served(None);
    let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    let software = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(vec![volume]) };
    world.edit(|spec| spec.raid = Some(software));
    world.converge();
    world.edit(|spec| spec.raid = None);
    answer(&mut world, is_prepare, failed("The agent is gone"));
    let again = world.until(is_prepare);
    assert_eq!(targets(&again).unwrap().raid.clone().unwrap().present, Some(Raid::default()));
}

/// Its attempt may have begun to take them away.
#[test]
fn after_a_failure_volumes_that_were_there_are_made_again() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("1")));
    world.converge();
    world.edit(|spec| spec.raid = Some(raid("5")));
    answer(&mut world, is_prepare, failed("The controller is on fire"));
    world.edit(|spec| spec.raid = Some(raid("1")));
    let back = world.until(is_prepare);
    let target = targets(&back).unwrap().raid.clone().unwrap();
    assert_eq!((target.wished, target.present.unwrap().hardware_raid_volumes), (raid("1"), None));
}
