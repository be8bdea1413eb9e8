//! Hosts whose provisioner prepares, services, shows media and boots images of others.

use std::time::Duration;

use crate::kit::{World, created, failed, image};
use api::metal3::{
    BootFormat, ErrorType, HardwareRaidVolume, HostUpdatePolicy, OperationalStatus, PreprovisioningImage,
    ProvisioningState as State, Raid, UpdatePolicy, annotation,
};
use host_lifecycle::{Action, Next, Outcome, PowerWish, Retry, Served, Settings, Standing, Step, Targets, standing};

pub const URL: &str = "https://images.example/a.raw";
const SOON: Duration = Duration::from_secs(5);

fn all_served() -> Served {
    Served {
        hardware_raid: true,
        software_raid: true,
        firmware_settings: true,
        firmware_updates: true,
        service: true,
        data_images: true,
        diagnose: true,
        ..Served::default()
    }
}

/// A host at rest whose provisioner serves everything.
pub fn served(url: Option<&str>) -> World {
    let mut world = World::new();
    world.settings.served = all_served();
    world.host.spec.image = url.map(image);
    world.converge();
    assert_eq!(world.state(), if url.is_some() { State::Provisioned } else { State::Available });
    world.calls.clear();
    world.events.clear();
    world.states.clear();
    world
}

pub fn raid(level: &str) -> Raid {
    let volume = HardwareRaidVolume { level: level.into(), ..HardwareRaidVolume::default() };
    Raid { hardware_raid_volumes: Some(vec![volume]), software_raid_volumes: None }
}

pub fn targets(action: &Action) -> Option<&Targets> {
    match action {
        Action::Prepare { targets, .. } | Action::Service { targets, .. } => Some(targets),
        _ => None,
    }
}

pub fn accepted() -> Outcome {
    Outcome::Accepted { look_again: SOON }
}

pub fn working() -> Outcome {
    Outcome::Working { look_again: SOON }
}

/// Reason of a condition of the HostFirmwareSettings.
fn settings_condition(world: &World, kind: &str) -> (String, String) {
    let status = world.firmware_settings.as_ref().unwrap().status.clone().unwrap();
    let found = status.conditions.iter().find(|c| c.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

/// The next call, with this answer; what leads to it is done soundly.
pub fn answer(world: &mut World, wanted: impl Fn(&Action) -> bool, outcome: Outcome) -> Action {
    let action = world.until(wanted);
    world.step_with(|_, _| outcome);
    action
}

pub fn is_prepare(action: &Action) -> bool {
    matches!(action, Action::Prepare { .. })
}

pub fn is_service(action: &Action) -> bool {
    matches!(action, Action::Service { .. })
}

#[test]
fn a_provisioner_that_serves_none_is_asked_for_none() {
    let mut world = World::new();
    world.converge();
    assert_eq!(world.state(), State::Available);
    let new = |action: &Action| targets(action).is_some() || *action == Action::RefreshFacts;
    assert!(!world.calls.iter().any(new), "{:?}", world.calls);
    assert_eq!(world.child_writes, 0);
}

#[test]
fn volumes_are_handed_over_once_and_waited_for() {
    let mut world = World::new();
    world.settings.served = Served { hardware_raid: true, ..Served::default() };
    world.host.spec.raid = Some(raid("1"));
    let first = answer(&mut world, is_prepare, accepted());
    let wished = targets(&first).unwrap().raid.clone().unwrap();
    assert_eq!((wished.wished, wished.present), (raid("1"), None));
    assert_eq!((world.state(), world.next), (State::Preparing, Next::After(SOON)));
    // They count when they are made; until then, the same wish is gone on with.
    for outcome in [working(), accepted(), working(), Outcome::Done] {
        assert_eq!(world.state(), State::Preparing);
        assert_ne!(world.status().provisioning.raid, Some(raid("1")));
        world.pass(SOON);
        let again = answer(&mut world, is_prepare, outcome);
        assert_eq!(targets(&again).unwrap().raid.clone().unwrap().wished, raid("1"));
    }
    assert_eq!((world.state(), world.status().provisioning.raid), (State::Available, Some(raid("1"))));
    world.calls.clear();
    world.converge();
    assert!(!world.calls.iter().any(is_prepare), "{:?}", world.calls);
    assert!(matches!(standing(&world.host), Standing::AsDeclared(_)));
}

#[test]
fn changed_volumes_lead_back_and_none_removes_those_of_software() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("5")));
    assert!(!matches!(standing(&world.host), Standing::AsDeclared(_)));
    world.converge();
    assert_eq!(world.states, [State::Preparing, State::Available]);
    assert_eq!(world.raid, Some(raid("5")));
    // Without a wish a controller's volumes stay.
    world.states.clear();
    world.edit(|spec| spec.raid = None);
    let kept = Raid { software_raid_volumes: Some(Vec::new()), ..raid("5") };
    for outcome in [accepted(), working()] {
        let removal = answer(&mut world, is_prepare, outcome);
        assert_eq!(targets(&removal).unwrap().raid.clone().unwrap().wished, kept, "the same wish");
    }
    world.converge();
    assert_eq!((world.raid.clone(), world.states.len()), (Some(kept.clone()), 2));
    assert_eq!(world.status().provisioning.raid, Some(kept));
    world.states.clear();
    world.converge();
    assert!(world.states.is_empty(), "{:?}", world.states);
}

#[test]
fn after_a_failure_nobody_knows_what_there_is() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("1")));
    answer(&mut world, is_prepare, accepted());
    answer(&mut world, is_prepare, failed("The controller is on fire"));
    let status = world.status();
    assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Preparation), 1));
    assert!(matches!(world.next, Next::After(wait) if wait >= Duration::from_secs(60)), "{:?}", world.next);
    assert!(matches!(world.decide(), Step::Change(change) if matches!(change.next, Next::After(_))));
    // The attempt begins anew, and until it is accepted the volumes are handed over whatever it answers.
    for outcome in [working(), accepted()] {
        let again = answer(&mut world, is_prepare, outcome);
        assert!(matches!(again, Action::Prepare { restart: true, .. }), "{again:?}");
        let target = targets(&again).unwrap().raid.clone().unwrap();
        assert_eq!((target.wished, target.present.unwrap().hardware_raid_volumes), (raid("1"), None));
    }
    assert_eq!(world.status().error_type, None);
    let last = answer(&mut world, is_prepare, Outcome::Done);
    assert!(matches!(last, Action::Prepare { restart: false, .. }), "{last:?}");
    assert_eq!((world.state(), world.status().error_count), (State::Available, 0));
}

#[test]
fn a_setting_is_handed_over_once_and_seen_to_be_there() {
    let mut world = served(None);
    world.wish_setting("LogicalProc", "Disabled");
    let first = answer(&mut world, is_prepare, accepted());
    assert_eq!(world.states, [State::Preparing]);
    let target = targets(&first).unwrap().settings.clone().unwrap();
    assert_eq!(
        (host_lifecycle::setting_text(&target.wished["LogicalProc"]).as_str(), target.present["LogicalProc"].as_str()),
        ("Disabled", "Enabled")
    );
    assert_eq!(target.wished.len(), 1);
    assert_eq!(settings_condition(&world, "ChangeDetected"), ("True".into(), "Accepted".into()));
    let again = answer(&mut world, is_prepare, working());
    assert_eq!(targets(&again), targets(&first), "the same wish, where volumes may be made beside it");
    world.settings.served.hardware_raid = false;
    world.settings.served.software_raid = false;
    let again = answer(&mut world, is_prepare, working());
    assert!(targets(&again).unwrap().is_empty(), "{again:?}");
    world.make(targets(&first).unwrap());
    answer(&mut world, is_prepare, Outcome::Done);
    assert_eq!(world.state(), State::Preparing, "nobody has seen it");
    assert_eq!(world.decide(), Step::Act(Action::RefreshFacts));
    world.converge();
    assert_eq!(world.state(), State::Available);
    assert_eq!(settings_condition(&world, "ChangeDetected"), ("False".into(), "Success".into()));
    assert_eq!(settings_condition(&world, "Valid"), ("True".into(), "Success".into()));
}

#[test]
fn a_setting_that_does_not_come_true_is_a_failure_and_is_tried_again() {
    let mut world = served(None);
    world.wish_setting("LogicalProc", "Disabled");
    answer(&mut world, is_prepare, Outcome::Done);
    world.step();
    let status = world.status();
    assert_eq!(status.error_type, Some(ErrorType::Preparation));
    assert!(status.error_message.contains("LogicalProc is \"Enabled\", not \"Disabled\""), "{}", status.error_message);
    assert_eq!(world.state(), State::Preparing);
    let again = answer(&mut world, is_prepare, accepted());
    assert!(matches!(again, Action::Prepare { restart: true, .. }));
    assert!(targets(&again).unwrap().settings.is_some());
}

#[test]
fn settings_that_cannot_be_made_are_said_and_not_handed_over() {
    for (name, value) in [("NoSuchThing", "1"), ("AdminPassword", "secret"), ("BootMode", "")] {
        let mut world = served(None);
        world.bios.insert("AdminPassword".into(), "hunter2".into());
        world.allowed.insert("BootMode".into(), vec!["Uefi".into(), "Legacy".into()]);
        world.wish_setting(name, value);
        world.converge();
        assert_eq!((world.state(), world.states.len()), (State::Available, 0), "{name}");
        assert_eq!(settings_condition(&world, "Valid"), ("False".into(), "ConfigurationError".into()), "{name}");
        let object = serde_json::to_string(&world.firmware_settings.as_ref().unwrap().status).unwrap();
        assert!(!object.contains("hunter2"), "{object}");
    }
}

#[test]
fn an_update_is_made_once() {
    let mut world = served(None);
    world.wish_update("bios", "https://firmware.example/bios-2");
    let first = answer(&mut world, is_prepare, accepted());
    assert_eq!(targets(&first).unwrap().updates.len(), 1);
    world.make(targets(&first).unwrap());
    let again = answer(&mut world, is_prepare, Outcome::Done);
    assert_eq!(targets(&again), targets(&first), "the same wish");
    world.converge();
    for _ in 0..5 {
        world.pass(Duration::from_secs(400));
        world.converge();
    }
    assert_eq!((world.state(), world.flashed.len()), (State::Available, 1));
    let made = world.firmware_components.clone().unwrap().status.unwrap().updates;
    assert_eq!(made.len(), 1);
    // Another version of the same component is another update.
    world.firmware_components.as_mut().unwrap().spec.updates.clear();
    world.wish_update("bios", "https://firmware.example/bios-3");
    world.converge();
    assert_eq!(world.flashed, ["https://firmware.example/bios-2", "https://firmware.example/bios-3"]);
}

#[test]
fn a_failed_update_is_handed_over_again() {
    let mut world = served(None);
    world.wish_update("nic:eth0", "https://firmware.example/nic");
    answer(&mut world, is_prepare, accepted());
    answer(&mut world, is_prepare, failed("The card refused it"));
    assert_eq!(world.firmware_components.clone().unwrap().status.unwrap().updates, []);
    let again = answer(&mut world, is_prepare, accepted());
    assert_eq!(targets(&again).unwrap().updates.len(), 1);
}

#[test]
fn a_component_nobody_knows_is_said() {
    let mut world = served(None);
    world.wish_update("toaster", "https://firmware.example/t");
    world.converge();
    let status = world.firmware_components.clone().unwrap().status.unwrap();
    let valid = status.conditions.iter().find(|c| c.type_ == "Valid").unwrap();
    assert_eq!((valid.status.as_str(), valid.reason.as_str()), ("False", "InvalidComponent"));
    assert!(valid.message.contains("toaster"), "{}", valid.message);
    assert_eq!((world.state(), world.flashed.len()), (State::Available, 0));
}

#[test]
fn wishes_that_are_not_served_are_an_error() {
    let mut world = World::at_rest(None);
    world.wish_setting("BootMode", "Legacy");
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Preparing, Some(ErrorType::Preparation)));
    assert!(world.status().error_message.contains("HostFirmwareSettings"), "{}", world.status().error_message);
    world.firmware_settings = None;
    world.wish_update("bios", "https://firmware.example/bios");
    world.converge();
    assert!(world.status().error_message.contains("HostFirmwareComponents"), "{}", world.status().error_message);
    world.firmware_components = None;
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Available, false));
}

#[test]
fn what_is_known_of_an_available_hosts_firmware_is_read_again() {
    let mut world = served(None);
    let poll = Settings::default().facts_poll;
    world.pass(poll / 2);
    world.converge();
    assert!(!world.calls.contains(&Action::RefreshFacts), "{:?}", world.calls);
    world.pass(poll);
    world.bios.insert("BootMode".into(), "Legacy".into());
    world.converge();
    let seen = world.firmware_settings.clone().unwrap().status.unwrap().settings;
    assert_eq!(seen["BootMode"], "Legacy");
}

#[test]
fn what_is_known_already_is_not_written_again() {
    for url in [None, Some(URL)] {
        let mut world = served(url);
        let poll = Settings::default().facts_poll;
        let (writes, statuses) = (world.child_writes, world.status_writes);
        for round in 1..4 {
            world.pass(poll + Duration::from_secs(1));
            world.converge();
            let reads = world.calls.iter().filter(|action| **action == Action::RefreshFacts).count();
            assert_eq!((reads, world.child_writes, world.status_writes), (round, writes, statuses));
        }
        // A schema that somebody has deleted is made again.
        let schema = world.firmware_schema.take().unwrap();
        world.pass(poll * 2);
        world.converge();
        let made = world.firmware_schema.clone().unwrap();
        assert_eq!(
            (world.child_writes, made.metadata.name, made.spec),
            (writes + 1, schema.metadata.name, schema.spec)
        );
    }
}

#[test]
fn a_firmware_that_shows_other_settings_each_time_has_one_schema_a_day_made() {
    let mut world = served(Some(URL));
    let day = Duration::from_hours(24);
    let poll = Settings::default().facts_poll + Duration::from_secs(1);
    let mut names = std::collections::BTreeSet::new();
    for round in 0..day.as_secs() * 3 / poll.as_secs() {
        world.allowed = [("LogicalProc".to_owned(), vec![round.to_string(), "Enabled".into()])].into();
        world.pass(poll);
        world.converge();
        let schema = world.firmware_schema.clone().unwrap().metadata.name.unwrap();
        let status = world.firmware_settings.as_ref().unwrap().status.clone().unwrap();
        assert_eq!(status.schema.unwrap().name, schema);
        names.insert(schema);
    }
    assert!((3..6).contains(&names.len()), "{names:?}");
    // Wishes are judged by what the machine shows now.
    let last = world.allowed["LogicalProc"][0].clone();
    world.wish_setting("LogicalProc", "no");
    world.pass(poll);
    world.converge();
    let status = world.firmware_settings.as_ref().unwrap().status.clone().unwrap();
    let valid = status.conditions.iter().find(|condition| condition.type_ == "Valid").unwrap();
    assert!(valid.message.contains(&last), "{}", valid.message);
}

#[test]
fn a_value_that_the_firmware_does_not_allow_is_refused_once() {
    let mut world = served(None);
    // A schema is kept for a day.
    world.pass(Duration::from_hours(25));
    world.allowed.insert("LogicalProc".into(), vec!["Enabled".into(), "Disabled".into()]);
    world.wish_setting("LogicalProc", "Half");
    world.converge();
    assert_eq!(settings_condition(&world, "Valid"), ("False".into(), "ConfigurationError".into()));
    let status = world.firmware_settings.as_ref().unwrap().status.clone().unwrap();
    let valid = status.conditions.iter().find(|condition| condition.type_ == "Valid").unwrap();
    assert_eq!(valid.message, "LogicalProc cannot be \"Half\": it is one of Enabled, Disabled");
    assert_eq!((world.state(), world.events.clone()), (State::Available, vec!["ValidationFailed"]));
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    assert_eq!(world.events.len(), 1);
    assert!(!world.calls.iter().any(is_prepare));
    let schema = world.firmware_schema.clone().unwrap().spec.schema;
    assert_eq!(schema["LogicalProc"].allowable_values.len(), 2);
    assert_eq!(status.schema.unwrap().name, world.firmware_schema.unwrap().metadata.name.unwrap());
}

#[test]
fn the_same_wish_a_second_time_is_another() {
    let mut world = served(None);
    let mut since = Vec::new();
    for value in ["Disabled", "Enabled", "Disabled"] {
        world.pass(SOON);
        world.wish_setting("LogicalProc", value);
        let action = world.until(is_prepare);
        since.push(targets(&action).unwrap().settings.as_ref().unwrap().since.unwrap());
        world.converge();
        assert_eq!(world.bios["LogicalProc"], value);
    }
    assert!(since.is_sorted_by(|one, next| one < next), "{since:?}");
}

#[test]
fn firmware_that_cannot_be_read_is_no_failure_of_a_host_in_use() {
    let mut world = served(Some(URL));
    world.wish_setting("LogicalProc", "Disabled");
    answer(&mut world, |action| *action == Action::RefreshFacts, failed("The BMC has no Bios"));
    assert!(!world.in_error());
    assert_eq!(world.events, ["FirmwareUnread"]);
    world.converge();
    let asked = world.calls.iter().filter(|action| **action == Action::RefreshFacts).count();
    assert_eq!(asked, 1, "not at once again");
    world.pass(Duration::from_secs(120));
    world.converge();
    assert_eq!(settings_condition(&world, "ChangeDetected").0, "True");
    assert!(!world.calls.iter().any(is_service), "it waits for a reboot");
}

#[test]
fn objects_of_kinds_that_are_not_served_are_told_so_and_go_with_the_host() {
    let mut world = World::at_rest(Some(URL));
    world.update_policy = Some(created(HostUpdatePolicy::new));
    world.wish_setting("LogicalProc", "Disabled");
    world.converge();
    assert_eq!(world.events, ["NotServed", "NotServed"]);
    let owners = [
        world.update_policy.as_ref().unwrap().metadata.owner_references.clone(),
        world.firmware_settings.as_ref().unwrap().metadata.owner_references.clone(),
    ];
    assert!(owners.iter().all(|owners| owners.as_ref().is_some_and(|owners| owners.len() == 1)), "{owners:?}");
    let writes = world.child_writes;
    world.converge();
    assert_eq!((world.events.len(), world.child_writes), (2, writes));
}

#[test]
fn no_capacity_is_a_delay_and_no_failure() {
    for (url, wanted) in [(None, is_prepare as fn(&Action) -> bool), (Some(URL), |a| *a == Action::Provision)] {
        let mut world = World::new();
        world.settings.served = all_served();
        world.host.spec.image = url.map(image);
        let busy = || Outcome::Busy { message: "Ten machines boot already".into(), look_again: SOON };
        answer(&mut world, wanted, busy());
        let (writes, status) = (world.status_writes, world.status());
        assert_eq!(status.error_message, "Ten machines boot already");
        assert_eq!((status.operational_status, status.error_count), (OperationalStatus::Delayed, 0));
        assert_eq!((status.error_type, world.next), (None, Next::After(SOON)));
        assert!(matches!(standing(&world.host), Standing::NotYet(_)));
        world.pass(SOON);
        answer(&mut world, wanted, busy());
        assert_eq!(world.status_writes, writes, "nothing has changed");
        assert_eq!(world.events.iter().filter(|e| **e == "Delayed").count(), 1);
        world.pass(SOON);
        world.converge();
        assert_eq!(world.status().operational_status, OperationalStatus::Ok);
    }
}

#[test]
fn a_provisioner_that_has_forgotten_the_machine_is_told_of_it() {
    let mut world = served(None);
    world.edit(|spec| spec.raid = Some(raid("1")));
    answer(&mut world, is_prepare, accepted());
    answer(&mut world, is_prepare, Outcome::NeedsRegistration);
    assert!(matches!(world.next, Next::After(_)), "one that never remembers is not asked without end");
    assert!(matches!(world.decide(), Step::Act(Action::Register { .. })));
    // As another machine, which has none of what was accepted.
    world.step_with(|_, _| Outcome::Registered { id: "another".into(), powered_on: None });
    let again = answer(&mut world, is_prepare, Outcome::Done);
    assert!(targets(&again).unwrap().raid.is_some(), "{again:?}");
    assert_eq!((world.state(), world.in_error()), (State::Available, false));
}

#[test]
fn the_wish_to_wait_says_what_blocked_says() {
    let message = || "A BMC is busy".to_owned();
    let mut one = World::new();
    let mut other = World::new();
    for world in [&mut one, &mut other] {
        world.until(|action| matches!(action, Action::Inspect { .. }));
    }
    one.step_with(|_, _| Outcome::Blocked { message: message() });
    other.step_with(|_, _| Outcome::Failed { message: message(), retry: Retry::Waiting });
    assert_eq!((one.status(), one.next), (other.status(), other.next));
}

/// A provisioned host that is switched on again, with a policy that allows changes then.
pub fn rebooting(settings: Option<UpdatePolicy>, updates: Option<UpdatePolicy>) -> World {
    let mut world = served(Some(URL));
    let mut policy: HostUpdatePolicy = created(HostUpdatePolicy::new);
    policy.spec.firmware_settings = settings;
    policy.spec.firmware_updates = updates;
    world.update_policy = Some(policy);
    world.wish_setting("LogicalProc", "Disabled");
    world.wish_update("bios", "https://firmware.example/bios-2");
    world.annotate(annotation::REBOOT, "");
    world
}

#[test]
fn a_provisioned_host_is_serviced_when_it_reboots_and_its_policy_allows_it() {
    let reboots = Some(UpdatePolicy::OnReboot);
    for (settings, updates) in [(reboots, None), (None, reboots), (reboots, reboots)] {
        let mut world = rebooting(settings, updates);
        let first = answer(&mut world, is_service, accepted());
        assert!(!world.machine_on, "the machine is off");
        let handed = targets(&first).unwrap().clone();
        assert_eq!((handed.settings.is_some(), !handed.updates.is_empty()), (settings.is_some(), updates.is_some()));
        assert_eq!(world.status().operational_status, OperationalStatus::Servicing);
        assert_eq!(world.condition("Ready"), ("False".into(), "Servicing".into()));
        let again = answer(&mut world, is_service, working());
        assert!(targets(&again).unwrap().is_empty(), "{again:?}");
        world.make(&handed);
        world.converge();
        let status = world.status();
        assert_eq!((status.operational_status, status.error_type), (OperationalStatus::Ok, None));
        assert!(world.machine_on && status.powered_on);
        assert_eq!((world.states.len(), world.flashed.len()), (0, usize::from(updates.is_some())));
        assert_eq!(world.bios["LogicalProc"] == "Disabled", settings.is_some());
    }
}

#[test]
fn without_a_policy_or_a_reboot_no_provisioned_host_is_touched() {
    let preparing = Some(UpdatePolicy::OnPreparing);
    for (settings, updates) in [(None, None), (preparing, preparing)] {
        let mut world = rebooting(settings, updates);
        world.converge();
        assert!(world.machine_on && !world.calls.iter().any(is_service), "{:?}", world.calls);
    }
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, reboots);
    world.unannotate(annotation::REBOOT);
    world.converge();
    assert!(!world.calls.iter().any(is_service), "{:?}", world.calls);
    world.settings.served.service = false;
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert!(world.machine_on && !world.calls.iter().any(is_service), "{:?}", world.calls);
}

#[test]
fn a_failed_service_waits_and_withdrawn_wishes_end_it() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, reboots);
    answer(&mut world, is_service, accepted());
    answer(&mut world, is_service, failed("The BIOS refused it"));
    let status = world.status();
    assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Servicing), 1));
    // Nobody asked for an outage: the machine comes on without it, and the error stays.
    let services = |world: &World| world.calls.iter().filter(|action| is_service(action)).count();
    let before = services(&world);
    world.converge();
    assert!(world.machine_on && world.status().powered_on);
    assert_eq!((world.status().error_type, services(&world)), (Some(ErrorType::Servicing), before));
    // However long it runs, it is not restarted for it.
    world.pass(Duration::from_secs(48 * 3600));
    world.converge();
    assert_eq!((world.status().error_type, services(&world)), (Some(ErrorType::Servicing), before));
    // The next reboot tries it again.
    world.annotate(annotation::REBOOT, "");
    let again = world.until(is_service);
    assert!(matches!(&again, Action::Service { restart: true, targets } if targets.settings.is_some()), "{again:?}");
    assert!(!world.machine_on && !world.in_error());
    world.update_policy = None;
    let last = answer(&mut world, is_service, Outcome::Done);
    assert!(targets(&last).unwrap().is_empty(), "{last:?}");
    world.converge();
    assert_eq!((world.status().operational_status, world.status().error_type), (OperationalStatus::Ok, None));
    assert!(world.machine_on);
}

#[test]
fn a_corrected_wish_does_not_wait_for_the_attempt_at_the_last_one() {
    let mut world = served(None);
    world.wish_setting("LogicalProc", "Disabled");
    for _ in 0..6 {
        answer(&mut world, is_prepare, failed("it refuses LogicalProc"));
        world.pass(Duration::from_secs(24 * 3600));
    }
    answer(&mut world, is_prepare, failed("it refuses LogicalProc"));
    world.pass(Duration::from_secs(30));
    world.converge();
    let before = world.calls.len();
    world.wish_setting("LogicalProc", "Enabled");
    world.wish_setting("BootMode", "Legacy");
    // Its look fails, too: that is not made again at once.
    world.step_with(|_, action| {
        assert_eq!(*action, Action::RefreshFacts);
        failed("the BMC is silent")
    });
    world.converge();
    assert_eq!(world.calls.len(), before + 1, "{:?}", world.calls);
    world.pass(Duration::from_secs(60));
    world.wish_setting("BootMode", "Uefi2");
    let next = answer(&mut world, is_prepare, failed("it refuses BootMode"));
    assert!(targets(&next).is_some_and(|targets| targets.settings.is_some()), "{next:?}");
    assert!(matches!(world.next, Next::After(wait) if wait > Duration::from_secs(600)), "{:?}", world.next);
    let calls = world.calls.len();
    world.pass(Duration::from_secs(60));
    world.converge();
    assert_eq!(world.calls.len(), calls, "and its own failure is waited for");
}

#[test]
fn a_restart_that_may_have_been_made_is_told_and_not_repeated() {
    let mut world = served(Some(URL));
    world.edit(|spec| spec.disable_power_off = Some(true));
    world.annotate(annotation::REBOOT, "");
    let message = "the BMC's answer was lost".to_owned();
    let unknown = Outcome::Failed { message, retry: Retry::Unknown };
    answer(&mut world, |action| matches!(action, Action::SetPower(_)), unknown);
    assert!(world.events.contains(&"RestartUnknown") && !world.in_error(), "{:?}", world.events);
    assert!(!world.annotated(annotation::REBOOT));
    let before = world.calls.len();
    world.converge();
    assert!(!world.calls[before..].iter().any(|action| matches!(action, Action::SetPower(_))), "{:?}", world.calls);
}

#[test]
fn a_failed_service_says_what_its_next_attempt_waits_for() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    answer(&mut world, is_service, failed("The BIOS refused it"));
    let says = |world: &World| world.message("Progressing");
    assert!(says(&world).contains("at the next reboot"), "{}", says(&world));
    assert!(!says(&world).contains("The next attempt is at "), "{}", says(&world));
    world.converge();
    assert!(says(&world).contains("at the next reboot") && world.machine_on, "{}", says(&world));
}

#[test]
fn a_power_wish_that_waits_for_a_service_says_so() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    answer(&mut world, is_service, accepted());
    let says = |world: &World| world.message("Progressing");
    assert_eq!(says(&world), "The firmware is being changed");
    world.edit(|spec| spec.online = false);
    answer(&mut world, is_service, working());
    assert!(says(&world).contains("is powered off when that has ended, as spec.online is false"), "{}", says(&world));
    world.edit(|spec| spec.online = true);
    world.annotate(annotation::REBOOT, "");
    answer(&mut world, is_service, working());
    assert!(says(&world).contains("is rebooted when that has ended"), "{}", says(&world));
}

/// A wish to be off that comes while the firmware is changed is kept: what is not begun is not begun, and the machine goes off after what is.
#[test]
fn a_machine_that_is_to_be_off_is_not_serviced() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    world.until(is_service);
    world.edit(|spec| spec.online = false);
    let next = world.until(is_service);
    assert!(targets(&next).unwrap().is_empty(), "{next:?}");
    world.converge();
    assert_eq!((world.machine_on, world.status().operational_status), (false, OperationalStatus::Ok));
    // It failed, and is to stay off: nothing is switched on for it.
    let mut world = rebooting(reboots, None);
    answer(&mut world, is_service, failed("The BIOS refused it"));
    world.edit(|spec| spec.online = false);
    world.converge();
    assert!(!world.machine_on);
    assert!(!world.calls.iter().any(|call| matches!(call, Action::SetPower(PowerWish::On))), "{:?}", world.calls);
}

/// What was not served was not wished in vain: the rest was made.
#[test]
fn a_service_says_that_it_made_what_its_provisioner_serves() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, reboots);
    world.settings.served.firmware_updates = false;
    world.converge();
    assert_eq!(world.bios["LogicalProc"], "Disabled");
    assert!(world.events.contains(&"ServicingComplete"), "{:?}", world.events);
}

/// Somebody else's write has ended the service, as a frozen namespace does: what it had taken is made at the next reboot.
#[test]
fn what_an_interrupted_service_had_taken_is_handed_over_at_the_next_reboot() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    answer(&mut world, is_service, accepted());
    world.host.status.as_mut().unwrap().operational_status = OperationalStatus::Ok;
    world.converge();
    assert_eq!(world.bios["LogicalProc"], "Disabled");
    assert!(world.machine_on);
}

#[test]
fn what_a_broken_off_service_had_taken_is_prepared_anew() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, reboots);
    answer(&mut world, is_service, accepted());
    world.edit(|spec| spec.image = None);
    let prepared = answer(&mut world, is_prepare, accepted());
    assert!(targets(&prepared).unwrap().settings.is_some(), "{prepared:?}");
}

#[test]
fn a_diagnosis_is_made_once_and_harms_nothing() {
    let mut world = served(None);
    for outcome in [Outcome::Diagnosed { finding: "A fan".into() }, failed("Nothing answers"), Outcome::Done] {
        world.annotate(annotation::DIAGNOSE, "");
        world.events.clear();
        let expected = if matches!(outcome, Outcome::Diagnosed { .. }) { "Diagnosed" } else { "DiagnosisFailed" };
        answer(&mut world, |a| *a == Action::Diagnose, outcome);
        assert_eq!(world.events, [expected]);
        assert!(!world.annotated(annotation::DIAGNOSE) && !world.in_error());
    }
    world.settings.served.diagnose = false;
    world.annotate(annotation::DIAGNOSE, "");
    world.calls.clear();
    world.converge();
    assert!(!world.annotated(annotation::DIAGNOSE) && !world.calls.contains(&Action::Diagnose));
    assert_eq!(*world.events.last().unwrap(), "DiagnosisFailed");
}

/// A new host whose provisioner boots images of others.
pub fn needs_images() -> World {
    let mut world = World::new();
    world.settings.served = Served { boot_images: vec![BootFormat::Iso], hardware_raid: true, ..Served::default() };
    world.host.spec.preprovisioning_network_data_name = Some("net".into());
    world
}

#[test]
fn an_image_is_asked_for_and_waited_for_before_work_that_boots_it() {
    let mut world = needs_images();
    for _ in 0..10 {
        world.step();
        if world.boot_image.is_some() {
            break;
        }
    }
    assert_eq!((world.state(), world.next), (State::Inspecting, Next::After(Settings::default().image_poll)));
    let spec = world.boot_image.clone().unwrap().spec;
    assert_eq!((spec.accept_formats, spec.network_data_name), (vec![BootFormat::Iso], Some("net".into())));
    // Each of these is no image for this host now.
    let spoilt: [fn(&mut PreprovisioningImage); 5] = [
        |image| image.status = None,
        |image| image.status.as_mut().unwrap().format = Some(BootFormat::Initrd),
        |image| image.status.as_mut().unwrap().network_data = None,
        |image| image.metadata.generation = Some(99),
        |image| image.status.as_mut().unwrap().network_data.as_mut().unwrap().version = Some("0".into()),
    ];
    let good = world.boot_image.clone();
    for spoil in spoilt {
        world.boot_image = good.clone();
        spoil(world.boot_image.as_mut().unwrap());
        assert!(matches!(world.decide(), Step::Change(change) if matches!(change.next, Next::After(_))));
    }
    world.boot_image = good;
    assert!(matches!(world.decide(), Step::Act(Action::Inspect { .. })));
    world.converge();
    // The machine's architecture is known now: that is another image.
    let architecture = world.boot_image.clone().unwrap().spec.architecture;
    assert_eq!((architecture.as_deref(), world.state()), (Some("x86_64"), State::Preparing));
    world.pass(Settings::default().image_poll);
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn an_image_that_cannot_be_built_is_an_error_until_it_can() {
    let mut world = needs_images();
    world.until(|action| matches!(action, Action::Inspect { .. }));
    let good = world.boot_image.clone();
    let condition = &mut world.boot_image.as_mut().unwrap().status.as_mut().unwrap().conditions[0];
    condition.type_ = "Error".into();
    condition.message = "No such kernel".into();
    world.step();
    assert_eq!(world.status().error_type, Some(ErrorType::Registration));
    assert!(world.status().error_message.contains("No such kernel"), "{}", world.status().error_message);
    world.boot_image = good;
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.converge();
    assert!(!world.in_error());
}

#[test]
fn a_provisioner_that_needs_an_image_gets_it() {
    let mut world = needs_images();
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.boot_image = None;
    let change = world.conclude(&Action::Inspect { restart: false }, Outcome::NeedsImage);
    assert_eq!((change.children.len(), change.status.error_type), (1, None));
    world.settings.served.boot_images.clear();
    let change = world.conclude(&Action::Inspect { restart: false }, Outcome::NeedsImage);
    assert_eq!(change.status.error_type, Some(ErrorType::Inspection));
}

#[test]
fn a_deletion_does_not_wait_for_images_or_registrations() {
    for outcome in [Outcome::NeedsImage, Outcome::NeedsRegistration] {
        let mut world = needs_images();
        world.host.spec.image = Some(image(URL));
        assert!(world.run_until(|w| w.state() == State::Provisioned), "{:?}", world.calls);
        world.delete();
        for _ in 0..120 {
            world.step_with(|world, action| match action {
                Action::Deprovision { .. } | Action::SetPower(PowerWish::HardOff) | Action::Release => outcome.clone(),
                _ => world.sound(action),
            });
            if let Next::After(wait) = world.next {
                world.pass(wait);
            }
            if world.gone {
                break;
            }
        }
        assert!(world.gone, "{outcome:?}: {:?} {:?}", world.states, world.status());
    }
}

fn made_updates(world: &World) -> usize {
    world.firmware_components.clone().unwrap().status.unwrap_or_default().updates.len()
}

#[test]
fn an_update_counts_as_made_when_it_is_done() {
    let mut world = served(None);
    world.wish_update("bios", "https://firmware.example/bios-2");
    let first = answer(&mut world, is_prepare, accepted());
    assert_eq!(made_updates(&world), 0, "it is taken, and not made");
    world.make(targets(&first).unwrap());
    answer(&mut world, is_prepare, Outcome::Done);
    assert_eq!(made_updates(&world), 1);
    // Another's failure does not undo it.
    world.wish_update("bmc", "https://firmware.example/bmc-2");
    answer(&mut world, is_prepare, accepted());
    answer(&mut world, is_prepare, failed("The BMC refused it"));
    assert_eq!(made_updates(&world), 1);
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(None, reboots);
    answer(&mut world, is_service, accepted());
    world.edit(|spec| spec.image = None);
    let prepared = answer(&mut world, is_prepare, accepted());
    assert_eq!(targets(&prepared).unwrap().updates.len(), 1, "broken off, so made anew");
}

#[test]
fn a_service_outlasts_what_happens_to_the_access_meanwhile() {
    let reboots = Some(UpdatePolicy::OnReboot);
    for (taken, withdrawn) in [(true, false), (true, true), (false, true)] {
        let mut world = rebooting(reboots, None);
        answer(&mut world, is_service, if taken { accepted() } else { working() });
        answer(&mut world, is_service, Outcome::NeedsRegistration);
        answer(&mut world, |action| matches!(action, Action::Register { .. }), failed("The BMC is silent"));
        assert_eq!(world.status().error_type, Some(ErrorType::Registration));
        if withdrawn {
            world.update_policy = None;
        }
        answer(
            &mut world,
            |action| matches!(action, Action::Register { .. }),
            Outcome::Registered { id: "prov-1".into(), powered_on: Some(false) },
        );
        let next = world.until(|action| is_service(action) || matches!(action, Action::SetPower(_)));
        assert!(is_service(&next), "taken {taken}, withdrawn {withdrawn}: {next:?}");
        assert_eq!(world.status().operational_status, OperationalStatus::Servicing);
    }
}

#[test]
fn a_service_of_a_host_that_was_detached_begins_anew() {
    let reboots = Some(UpdatePolicy::OnReboot);
    let mut world = rebooting(reboots, None);
    answer(&mut world, is_service, accepted());
    world.annotate(annotation::DETACHED, "");
    answer(&mut world, |action| *action == Action::Release, Outcome::Done);
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    world.unannotate(annotation::DETACHED);
    let next = world.until(|action| is_service(action) || matches!(action, Action::SetPower(PowerWish::On)));
    assert!(targets(&next).is_some_and(|targets| targets.settings.is_some()), "{next:?}");
}

#[test]
fn a_service_that_was_ended_does_not_say_that_it_was_made() {
    let reboots = Some(UpdatePolicy::OnReboot);
    for (before, said) in [(working(), "ServicingEnded"), (accepted(), "ServicingError")] {
        let mut world = rebooting(reboots, None);
        answer(&mut world, is_service, before);
        world.update_policy = None;
        // Of what was accepted, this says that it was made; it is not there.
        answer(&mut world, is_service, Outcome::Done);
        world.converge();
        assert!(!world.events.contains(&"ServicingComplete"), "{:?}", world.events);
        assert!(world.events.contains(&said), "{:?}", world.events);
    }
    // It was made, and the policy is deleted before that is told.
    let mut world = rebooting(reboots, None);
    world.firmware_components.as_mut().unwrap().spec.updates.clear();
    let first = answer(&mut world, is_service, accepted());
    world.make(targets(&first).unwrap());
    answer(&mut world, is_service, Outcome::Done);
    world.update_policy = None;
    world.converge();
    assert!(!world.events.contains(&"ServicingEnded"), "{:?}", world.events);
    let mut world = rebooting(reboots, None);
    world.converge();
    assert!(world.events.contains(&"ServicingComplete"), "{:?}", world.events);
}

#[test]
fn no_condition_is_longer_than_the_api_allows() {
    let mut world = served(Some(URL));
    for number in 0..5 {
        let name = format!("Setting{number}");
        world.bios.insert(name.clone(), "x".repeat(1000));
        world.wish_setting(&name, &"y".repeat(1000));
    }
    world.pass(Settings::default().facts_poll * 2);
    world.converge();
    let status = world.firmware_settings.as_ref().unwrap().status.clone().unwrap();
    let changed = status.conditions.iter().find(|condition| condition.type_ == "ChangeDetected").unwrap();
    assert_eq!(changed.status, "True");
    assert!(changed.message.len() < 9000, "{}", changed.message.len());
    assert!(changed.message.ends_with("The rest is left out: the message is too long for a condition"));
    let mut world = World::new();
    world.host.spec.image = Some(image(&format!("https://images.example/{}", "a".repeat(40_000))));
    assert!(world.run_until(|w| w.state() == State::Provisioned), "{:?}", world.calls);
    assert!(world.status().conditions.iter().all(|condition| condition.message.len() < 32_768));
}

#[test]
fn versions_that_can_be_read_only_are_shown_and_not_changed() {
    for url in [None, Some(URL)] {
        let mut world = World::new();
        world.settings.served = Served { firmware_components: true, ..Served::default() };
        world.host.spec.image = url.map(image);
        world.converge();
        world.pass(Settings::default().facts_poll * 2);
        world.converge();
        assert!(world.calls.contains(&Action::RefreshFacts), "{:?}", world.calls);
        let status = world.firmware_components.clone().unwrap().status.unwrap();
        assert!(
            !status.components.is_empty() && status.conditions.iter().any(|c| c.type_ == "Valid" && c.status == "True")
        );
        assert!(world.firmware_settings.is_none() && !world.events.contains(&"NotServed"), "{:?}", world.events);
        // One that cannot be read keeps no host from anything.
        world.pass(Settings::default().facts_poll * 2);
        answer(&mut world, |action| *action == Action::RefreshFacts, failed("The BMC has none"));
        assert!(!world.in_error());
        world.wish_update("bios", "https://firmware.example/bios-2");
        world.pass(Settings::default().facts_poll * 2);
        world.converge();
        assert_eq!(world.flashed.len(), 0);
        match url {
            None => assert!(world.status().error_message.contains("HostFirmwareComponents"), "{:?}", world.status()),
            Some(_) => {
                let conditions = world.firmware_components.clone().unwrap().status.unwrap().conditions;
                let valid = conditions.iter().find(|c| c.type_ == "Valid").unwrap();
                assert!(valid.status == "False" && valid.message.contains("makes no updates"), "{valid:?}");
            }
        }
    }
}
