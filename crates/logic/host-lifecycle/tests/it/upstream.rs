//! What clients of baremetal-operator rely on to the letter.

use crate::kit::{World, created, hardware, image};
use api::metal3::{
    BootMode, DataImage, ErrorType, InspectionMode, OperationalStatus, ProvisioningState as State, Raid,
    SoftwareRaidVolume, annotation,
};
use host_lifecycle::{
    Action, HealthHeard, HealthLevel, Next, Outcome, Served, Settings, Step, back_off, is_upstreams_default,
};
use inventory::{HardwareDetails, RootDeviceHints};
use serde_json::json;
use std::sync::Arc;

const URL: &str = "https://images.example/a.raw";

/// A new host with this status.
fn restored(status: &serde_json::Value) -> World {
    let mut world = World::new();
    world.annotate(annotation::STATUS, &status.to_string());
    world.step();
    assert!(!world.annotated(annotation::STATUS) && world.host.status.is_some());
    world
}

/// `/dev/sda` of the hardware profile `unknown` (`pkg/hardware/profile.go`), for a host that wishes for no disk.
#[test]
fn the_default_disk_of_upstreams_profile_is_told_from_one_that_is_wished_for() {
    let named = |name: &str| RootDeviceHints { device_name: Some(name.into()), ..RootDeviceHints::default() };
    let also_rotates = RootDeviceHints { rotational: Some(true), ..named("/dev/sda") };
    let empty = RootDeviceHints::default();
    for (wished, in_force, expected) in [
        (None, named("/dev/sda"), true),
        (Some(empty.clone()), named("/dev/sda"), true),
        (Some(named("/dev/sda")), named("/dev/sda"), false),
        (Some(named("/dev/vda")), named("/dev/sda"), false),
        (None, named("/dev/vda"), false),
        (None, also_rotates, false),
        (None, empty, false),
    ] {
        let mut world = World::new();
        world.edit(|spec| spec.root_device_hints.clone_from(&wished));
        assert_eq!(is_upstreams_default(&world.host, &in_force), expected, "{wished:?} {in_force:?}");
    }
}

/// Statuses and reasons as `computeConditions` sets them (`internal/controller/metal3.io/baremetalhost_controller.go`).
#[test]
fn conditions_have_upstreams_reasons() {
    let not = |reason: &str| ("False".to_owned(), reason.to_owned());
    let yes = |reason: &str| ("True".to_owned(), reason.to_owned());
    let at_work = |reason: &str| {
        [yes("Manageable"), not("NotAvailable"), not("NotProvisioned"), not("NotProvisioned"), yes(reason)]
    };
    let manageable = yes("Manageable");
    let provisioned =
        [manageable.clone(), not("NotAvailable"), yes("Provisioned"), yes("Provisioned"), not("NotProgressing")];
    let available =
        [manageable.clone(), yes("Available"), not("NotProvisioned"), not("NotProvisioned"), not("NotProgressing")];
    let with = |mut all: [(String, String); 5], at: usize, fact: (String, String)| {
        all[at] = fact;
        all
    };
    let registering = with(at_work("Registering"), 0, not("Registering"));
    for (state, operational, error, wanted) in [
        ("registering", "OK", "", registering.clone()),
        (
            "registering",
            "error",
            "registration error",
            with(with(registering, 0, not("RegistrationFailed")), 3, not("Error")),
        ),
        ("inspecting", "OK", "", at_work("Inspecting")),
        ("match profile", "OK", "", at_work("Inspecting")),
        ("preparing", "OK", "", at_work("Preparing")),
        ("preparing", "error", "preparation error", with(at_work("Preparing"), 3, not("Error"))),
        ("available", "OK", "", available.clone()),
        ("ready", "OK", "", available.clone()),
        ("available", "error", "provisioning error", with(available.clone(), 3, not("Error"))),
        (
            "available",
            "error",
            "power management error",
            with(with(available.clone(), 3, not("Error")), 0, not("PowerFailure")),
        ),
        ("provisioning", "OK", "", at_work("Provisioning")),
        ("provisioned", "OK", "", provisioned.clone()),
        ("externally provisioned", "OK", "", provisioned.clone()),
        ("provisioned", "error", "servicing error", with(provisioned.clone(), 3, not("Error"))),
        ("provisioned", "servicing", "", with(provisioned.clone(), 3, not("Servicing"))),
        ("deprovisioning", "OK", "", at_work("Deprovisioning")),
    ] {
        let text = if error.is_empty() { "" } else { "it broke" };
        let mut status = json!({"provisioning": {"state": state, "ID": "x"}, "operationalStatus": operational,
            "errorMessage": text});
        if !error.is_empty() {
            status["errorType"] = json!(error);
        }
        let world = restored(&status);
        let kinds = ["Manageable", "AvailableForProvisioning", "Provisioned", "Ready", "Progressing"];
        assert_eq!(kinds.map(|kind| world.condition(kind)), wanted, "{state} {operational} {error}");
        assert_eq!(world.condition("Healthy"), ("Unknown".to_owned(), "Unknown".to_owned()));
    }
    for state in ["available", "provisioned"] {
        let world = restored(&json!({"provisioning": {"state": state, "ID": "x"}, "operationalStatus": "detached"}));
        for kind in ["Ready", "Progressing"] {
            assert_eq!(world.condition(kind), not("Detached"), "{state} {kind}");
        }
    }
    let mut world = World::new();
    world.host.spec.bmc = None;
    world.converge();
    let kinds = ["Manageable", "AvailableForProvisioning", "Provisioned", "Ready", "Progressing"];
    let wanted = ["NotManaged", "NotAvailable", "NotProvisioned", "NotProvisioned", "NotProgressing"].map(not);
    assert_eq!(kinds.map(|kind| world.condition(kind)), wanted);
    let mut world = World::at_rest(None);
    world.delete();
    for (state, reason) in [(State::PoweringOffBeforeDelete, "PoweringOffBeforeDelete"), (State::Deleting, "Deleting")]
    {
        assert!(world.run_until(|world| world.state() == state));
        assert_eq!(world.condition("Progressing"), yes(reason));
        assert_eq!(world.condition("Ready"), not("NotProvisioned"));
    }
}

/// A machine in use must not be inspected anew because another version knows one field more.
#[test]
fn a_saved_status_is_restored_without_the_fields_that_are_not_known() {
    let mut saved = serde_json::to_value(World::at_rest(Some(URL)).status()).unwrap();
    saved["mood"] = json!("good");
    saved["provisioning"]["lastMood"] = json!(["bad"]);
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.annotate(annotation::STATUS, &saved.to_string());
    world.step();
    assert_eq!((world.state(), world.events.as_slice()), (State::Provisioned, &["InvalidAnnotationValue"][..]));
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert!(!world.calls.iter().any(|c| matches!(c, Action::Inspect { .. } | Action::Provision)));
}

#[test]
fn the_hardware_of_a_restored_status_is_the_hardware_datas() {
    let saved = World::at_rest(Some(URL)).status();
    let found = Arc::new(HardwareDetails { ram_mebibytes: Some(7), ..HardwareDetails::default() });
    for (data, hardware) in [(None, saved.hardware.clone()), (Some(found.clone()), Some(found))] {
        let mut world = World::new();
        world.hardware_data = data;
        world.annotate(annotation::STATUS, &serde_json::to_string(&saved).unwrap());
        world.step();
        assert_eq!(world.status().hardware, hardware);
    }
}

#[test]
fn the_details_of_an_annotation_are_taken_or_dropped_with_a_word() {
    let given = r#"{"ramMebibytes":4096}"#;
    let other = || Arc::new(HardwareDetails { ram_mebibytes: Some(4096), ..HardwareDetails::default() });
    let hardware = || Arc::new(hardware());
    for (disabled, known, data, value, event, taken) in [
        (true, true, false, given, "UpdateHardwareDetails", true),
        (false, false, false, given, "UpdateHardwareDetails", true),
        (false, true, false, given, "RemoveAnnotation", false),
        (true, true, true, given, "RemoveAnnotation", false),
        (true, true, false, "", "RemoveAnnotation", false),
        (true, true, false, r#"{"ramMebibytes":"much"}"#, "InvalidAnnotationValue", false),
        (true, true, false, r#"{"colour":"red"}"#, "InvalidAnnotationValue", false),
    ] {
        let mut world = World::at_rest(None);
        world.edit(|spec| spec.inspection_mode = disabled.then_some(InspectionMode::Disabled));
        world.hardware_data = data.then(hardware);
        world.host.status.as_mut().unwrap().hardware = known.then(hardware);
        world.annotate(annotation::HARDWARE_DETAILS, value);
        world.step();
        assert_eq!(world.events, [event], "{disabled} {known} {data} {value}");
        assert!(!world.annotated(annotation::HARDWARE_DETAILS));
        let wanted = if taken { Some(other()) } else { known.then(hardware) };
        assert_eq!(world.status().hardware, wanted, "{disabled} {known} {data} {value}");
    }
    let mut world = World::at_rest(Some(URL));
    world.hardware_data = Some(other());
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
    world.step();
    assert_eq!((world.events.as_slice(), world.status().hardware), (&["UpdateHardwareDetails"][..], Some(other())));
}

#[test]
fn any_value_asks_for_another_inspection_and_one_in_vain_is_told() {
    for value in ["", "true", "now"] {
        let mut world = World::at_rest(None);
        world.annotate(annotation::INSPECT, value);
        world.converge();
        assert_eq!(world.states, [State::Inspecting, State::Preparing, State::Available], "{value}");
        assert!(!world.annotated(annotation::INSPECT));
        world.states.clear();
        world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
        world.annotate(annotation::INSPECT, value);
        world.events.clear();
        world.converge();
        assert!(world.states.is_empty() && !world.annotated(annotation::INSPECT), "{value}");
        assert_eq!(world.events, ["InspectionSkipped"]);
        world.annotate(annotation::INSPECT, "disabled");
        world.converge();
        assert!(world.annotated(annotation::INSPECT), "it says the same");
    }
}

#[test]
fn software_volumes_are_made_again_after_the_disks_were_wiped() {
    let served = Served { software_raid: true, ..Served::default() };
    let volume = SoftwareRaidVolume { level: "1".into(), root_volume: Some(true), ..SoftwareRaidVolume::default() };
    let raid = Raid { hardware_raid_volumes: None, software_raid_volumes: Some(vec![volume]) };
    let mut world = World::new();
    world.settings.served = served;
    world.host.spec.raid = Some(raid.clone());
    world.host.spec.image = Some(image(URL));
    world.converge();
    assert_eq!((world.state(), world.status().provisioning.raid), (State::Provisioned, Some(raid.clone())));
    let made = |world: &World| {
        let targets = world.calls.iter().filter_map(|call| match call {
            Action::Prepare { targets, .. } => targets.raid.clone(),
            _ => None,
        });
        targets.count()
    };
    let before = made(&world);
    // Nothing had begun to be written: they are still there.
    for (outcome, more) in [(Outcome::Untouched, 0), (Outcome::Wiped, 1), (Outcome::Done, 2)] {
        world.edit(|spec| spec.image = None);
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        world.step_with(|_, _| outcome);
        world.converge();
        assert_eq!(world.state(), State::Available);
        assert_eq!((made(&world), world.status().provisioning.raid), (before + more, Some(raid.clone())));
        world.edit(|spec| spec.image = Some(image(URL)));
        world.converge();
        assert_eq!(world.state(), State::Provisioned);
    }
    world.edit(|spec| spec.image = None);
    world.converge();
    world.edit(|spec| spec.externally_provisioned = Some(true));
    let Step::Change(change) = world.decide() else { panic!("a call is made") };
    assert_eq!(change.status.provisioning.raid, Some(Raid::default()), "somebody else's system may have removed them");
}

/// Each state's way out for a host that is deleted (`checkInitiateDelete`).
#[test]
fn each_state_is_left_for_a_deletion_as_upstream_leaves_it() {
    use State::{Deleting, Deprovisioning, PoweringOffBeforeDelete as Off};
    let ways: [(&str, &[State]); 12] = [
        ("", &[Deleting]),
        ("registering", &[Deleting]),
        ("inspecting", &[Off, Deleting]),
        ("match profile", &[Off, Deleting]),
        ("preparing", &[Off, Deleting]),
        ("available", &[Off, Deleting]),
        ("ready", &[Off, Deleting]),
        ("externally provisioned", &[Off, Deleting]),
        ("provisioning", &[Deprovisioning, Off, Deleting]),
        ("provisioned", &[Deprovisioning, Off, Deleting]),
        ("deprovisioning", &[Off, Deleting]),
        ("powering off before delete", &[Deleting]),
    ];
    for (state, way) in ways {
        let mut world = World::at_rest(Some(URL));
        let status = world.host.status.as_mut().unwrap();
        status.provisioning.state = serde_json::from_value(json!(state)).unwrap();
        world.delete();
        world.converge();
        assert!(world.gone, "{state}");
        assert_eq!(world.states, way, "{state}");
        assert_eq!(!world.machine_on, way.contains(&Off) || state == "powering off before delete", "{state}");
    }
    let mut world = World::new();
    world.host.spec.bmc = None;
    world.converge();
    world.states.clear();
    world.delete();
    world.converge();
    assert_eq!((world.gone, world.states), (true, vec![Deleting]));
}

/// A deletion in the middle of work does not take the wish to detach for leave to let go of a machine that is half written.
#[test]
fn in_the_middle_of_work_a_detached_annotation_without_force_leaves_no_machine_as_it_is() {
    for (value, way) in [("", State::Deprovisioning), (r#"{"force":true}"#, State::Deleting)] {
        let mut world = World::new();
        world.host.spec.image = Some(image(URL));
        world.until(|action| *action == Action::Provision);
        world.annotate(annotation::DETACHED, value);
        let lets_go = world.decide() == Step::Act(Action::Release);
        assert_eq!(lets_go, !value.is_empty(), "a host that is not deleted: {value}");
        world.delete();
        world.step();
        assert_eq!(world.state(), way, "{value}");
        assert_eq!(world.events.contains(&"DetachNotForced"), value.is_empty());
    }
}

/// Upstream's class "detach error" is not in its own schema.
#[test]
fn a_detachment_that_fails_is_an_error_that_the_schema_knows() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.fail("The BMC does not answer");
    assert_eq!(world.status().error_type, Some(ErrorType::Registration));
    assert_eq!(world.state(), State::Provisioned);
    world.unannotate(annotation::DETACHED);
    assert!(world.run_until(|world| !world.in_error()));
}

#[test]
fn the_boot_mode_in_force_is_that_of_the_work_that_began_last() {
    let mut world = World::new();
    world.converge();
    assert_eq!(world.status().provisioning.boot_mode, Some(BootMode::Uefi));
    world.settings.served.secure_boot = true;
    world.edit(|spec| spec.boot_mode = Some(BootMode::UefiSecureBoot));
    world.converge();
    assert_eq!(world.status().provisioning.boot_mode, Some(BootMode::Uefi), "nothing has begun");
    world.edit(|spec| spec.image = Some(image(URL)));
    world.converge();
    assert_eq!(world.status().provisioning.boot_mode, Some(BootMode::UefiSecureBoot));
}

/// Flags and constants of baremetal-operator: `--max-provisioning-retries`, `unmanagedRetryDelay`, `hostErrorRetryDelay`, `preprovImageRetryDelay`,
/// `reconcilerRequeueDelay`, the 60 s of `manageHostPower`, and the minutes of `calculateBackoff`.
#[test]
fn times_and_limits_are_upstreams() {
    let found = Settings::default();
    assert_eq!(found.max_provisioning_retries, 5);
    let times = [
        found.unmanaged_poll,
        found.secret_poll,
        found.image_poll,
        found.facts_poll,
        found.steady_state_poll,
        found.backoff_unit,
    ];
    assert_eq!(times.map(|time| time.as_secs()), [600, 10, 300, 300, 60, 60]);
    for (failures, longest) in [(1, 2), (2, 4), (3, 8), (8, 256), (9, 512), (50, 512)] {
        for uid in ["a", "b", "c"] {
            let wait = back_off(found.backoff_unit, uid, failures).as_secs();
            assert!((longest * 30..=longest * 60).contains(&wait), "{failures}: {wait}");
        }
    }
}

#[test]
fn a_host_that_is_taken_back_is_checked_before_it_counts_as_managed() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!(world.next, Next::After(std::time::Duration::from_secs(600)));
    world.calls.clear();
    world.unannotate(annotation::DETACHED);
    assert!(matches!(world.decide(), Step::Act(Action::Register { .. })));
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    world.step();
    assert_eq!(world.status().operational_status, OperationalStatus::Ok);
}

/// The disk of an image is chosen by the hints of the spec, else of the profile; a software volume that is to be the root needs none.
#[test]
fn hints_come_from_the_spec_else_from_the_profile_and_a_root_volume_needs_none() {
    let profile = |name: &str| {
        let mut world = World::new();
        world.host.spec.hardware_profile = Some(name.into());
        world.converge();
        world.status().provisioning.root_device_hints
    };
    assert_eq!(profile("unknown"), None);
    assert_eq!(profile("empty"), None);
    assert_eq!(profile("dell").unwrap().hctl.as_deref(), Some("0:0:0:0"));
    assert_eq!(profile("dell-raid").unwrap().hctl.as_deref(), Some("0:2:0:0"));
    assert_eq!(profile("openstack").unwrap().device_name.as_deref(), Some("/dev/vdb"));
    assert_eq!(profile("libvirt").unwrap().device_name.as_deref(), Some("/dev/vda"));
    let volume = SoftwareRaidVolume { level: "1".into(), root_volume: Some(true), ..SoftwareRaidVolume::default() };
    let mut world = World::new();
    world.settings.served.software_raid = true;
    world.host.spec.hardware_profile = Some("libvirt".into());
    world.host.spec.raid = Some(Raid { software_raid_volumes: Some(vec![volume]), ..Raid::default() });
    world.converge();
    assert_eq!((world.state(), world.status().provisioning.root_device_hints), (State::Available, None));
}

#[test]
fn the_health_that_the_bmc_reports_is_a_condition_and_stays_until_it_reports_another() {
    let mut world = World::at_rest(Some(URL));
    for (health, value, reason) in [
        (HealthHeard::Unasked, "Unknown", "Unknown"),
        (HealthHeard::Level(HealthLevel::OK), "True", "Healthy"),
        (HealthHeard::Unasked, "True", "Healthy"),
        (HealthHeard::Level(HealthLevel::Warning), "False", "Warning"),
        (HealthHeard::Unasked, "False", "Warning"),
        (HealthHeard::Level(HealthLevel::Critical), "False", "CriticalError"),
        // Another machine, perhaps, whose BMC tells nothing of its health.
        (HealthHeard::Silence, "Unknown", "Unknown"),
        (HealthHeard::Level(HealthLevel::OK), "True", "Healthy"),
    ] {
        world.health = health;
        world.converge();
        assert_eq!(world.condition("Healthy"), (value.to_owned(), reason.to_owned()), "{health:?}");
        let writes = world.status_writes;
        world.converge();
        assert_eq!(world.status_writes, writes, "{health:?}");
    }
    assert!(world.condition("Ready").0 == "True" && !world.in_error(), "it is no error of the host");
    // Nobody asks the machine of a host that is let go.
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!(world.condition("Healthy").0, "Unknown");
}

#[test]
fn the_cause_of_a_fault_that_a_diagnosis_has_found_is_told_with_the_health() {
    let mut world = World::at_rest(Some(URL));
    let message = |world: &World| {
        world.status().conditions.iter().find(|condition| condition.type_ == "Healthy").unwrap().message.clone()
    };
    let told = "A power supply has failed (PSU 2) — replace PSU 2";
    let summary = |trigger: &str, message: &str| {
        serde_json::json!({ "trigger": trigger, "code": "PowerSupplyFailed", "message": message }).to_string()
    };
    for (diagnosis, health, is_told) in [
        (summary("Fault", told), HealthLevel::Warning, true),
        (summary("Fault", told), HealthLevel::Critical, true),
        // What was found of something else, or of what is over.
        (summary("Error", told), HealthLevel::Critical, false),
        (summary("Fault", told), HealthLevel::OK, false),
        (serde_json::json!({ "trigger": "Fault", "message": told }).to_string(), HealthLevel::Critical, false),
        ("no JSON".to_owned(), HealthLevel::Critical, false),
        ("[]".to_owned(), HealthLevel::Critical, false),
    ] {
        world.annotate(annotation::DIAGNOSIS, &diagnosis);
        world.health = HealthHeard::Level(health);
        world.converge();
        assert_eq!(message(&world).contains(told), is_told, "{diagnosis} {health:?}: {}", message(&world));
    }
    world.annotate(annotation::DIAGNOSIS, &summary("Fault", &"\u{1b}[2Jx".repeat(5000)));
    world.converge();
    assert!(message(&world).len() < 1000 && !message(&world).contains('\u{1b}'));
}

#[test]
fn without_a_wish_the_last_attempted_image_goes_with_its_failures() {
    let mut world = World::at_rest(None);
    let status = world.host.status.as_mut().unwrap();
    (status.provisioning_fail_count, status.last_attempted_image) = (2, Some(image(URL)));
    world.converge();
    assert_eq!((world.status().provisioning_fail_count, world.status().last_attempted_image), (0, None));
}

#[test]
fn a_data_image_says_when_it_was_last_looked_after() {
    let mut world = World::at_rest(Some(URL));
    world.settings.served.data_images = true;
    let mut medium: DataImage = created(DataImage::new);
    medium.spec.url = "https://media.example/tools.iso".into();
    world.data_image = Some(medium);
    world.converge();
    world.pass(std::time::Duration::from_secs(100));
    world.annotate(annotation::REBOOT, "");
    world.until(|action| matches!(action, Action::AttachMedia { .. }));
    world.step();
    let status = world.data_image.as_ref().unwrap().status.as_ref().unwrap();
    assert_eq!(status.last_reconciled.as_ref().map(|time| time.0), Some(world.now));
}

#[test]
fn work_that_is_not_wished_any_more_is_not_gone_on_with() {
    let mut world = World::new();
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
    world.converge();
    assert!(!world.calls.iter().any(|call| matches!(call, Action::Inspect { .. })), "{:?}", world.calls);
    assert!(world.events.contains(&"InspectionSkipped") && world.state() == State::Available);
    world.edit(|spec| spec.image = Some(image(URL)));
    world.until(|action| *action == Action::Provision);
    world.edit(|spec| spec.image = None);
    world.converge();
    assert!(!world.calls.contains(&Action::Provision), "{:?}", world.calls);
    assert_eq!(world.state(), State::Available);
}

#[test]
fn any_edit_ends_the_wait_after_a_failure() {
    let mut world = World::new();
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.fail("No agent reported");
    assert!(matches!(world.decide(), Step::Change(_)), "it waits");
    world.edit(|spec| spec.description = Some("the cable is in".into()));
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: true }));
}

#[test]
fn the_annotation_that_disables_inspection_is_as_good_as_the_field() {
    let mut world = World::new();
    world.annotate(annotation::INSPECT, "disabled");
    world.converge();
    assert!(world.state() == State::Available && !world.states.contains(&State::Inspecting), "{:?}", world.states);
    assert!(world.annotated(annotation::INSPECT) && world.status().operation_history.inspect.start.is_none());
}
