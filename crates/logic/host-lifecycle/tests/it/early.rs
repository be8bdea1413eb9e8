//! What cannot be done is said as early as it can be known, and what went wrong stays to be seen.

use crate::kit::{World, hardware, image};
use api::metal3::{
    BareMetalHostSpec, BootMode, CustomDeploy, DiskFormat, ErrorType, HardwareRaidVolume, InspectionMode,
    ProvisioningState as State, Raid, annotation,
};
use host_lifecycle::{Action, Next, Outcome, PowerWish};
use inventory::{Cpu, HardwareDetails, Inspected, Nic, Part};

const URL: &str = "https://images.example/debian.qcow2";

fn raid(spec: &mut BareMetalHostSpec) {
    let volume = HardwareRaidVolume { level: "1".into(), ..HardwareRaidVolume::default() };
    spec.raid = Some(Raid { hardware_raid_volumes: Some(vec![volume]), ..Raid::default() });
}

fn live_iso(spec: &mut BareMetalHostSpec) {
    let mut iso = image(URL);
    iso.format = Some(DiskFormat::LiveIso);
    spec.image = Some(iso);
}

fn no_digest(spec: &mut BareMetalHostSpec) {
    let mut odd = image(URL);
    odd.checksum = Some("zz".into());
    spec.image = Some(odd);
}

#[test]
fn what_nobody_serves_ends_the_registration_before_any_call() {
    type Edit = fn(&mut BareMetalHostSpec);
    let cases: [(Edit, ErrorType, &str); 7] = [
        (|s| s.boot_mode = Some(BootMode::Legacy), ErrorType::Registration, "spec.bootMode"),
        (|s| s.architecture = Some("aarch64".into()), ErrorType::Registration, "spec.architecture"),
        (|s| s.inspection_mode = Some(InspectionMode::Fast), ErrorType::Inspection, "spec.inspectionMode"),
        (raid, ErrorType::Preparation, "spec.raid"),
        (live_iso, ErrorType::Provisioning, "spec.image.format"),
        (no_digest, ErrorType::Provisioning, "spec.image.checksum is \"zz\""),
        (|s| s.custom_deploy = Some(CustomDeploy { method: "x".into() }), ErrorType::Provisioning, "spec.customDeploy"),
    ];
    for (edit, kind, word) in cases {
        let mut world = World::new();
        let sound = world.host.spec.clone();
        world.settings.served.architectures = vec!["x86_64".into()];
        world.edit(edit);
        world.converge();
        let status = world.status();
        assert_eq!((world.state(), status.error_type), (State::Registering, Some(kind)), "{word}");
        assert!(status.error_message.contains(word), "{}", status.error_message);
        assert_eq!((world.calls.as_slice(), world.next), ([].as_slice(), Next::Wait), "{word}");
        world.edit(|spec| *spec = sound);
        world.converge();
        assert_eq!((world.state(), world.in_error()), (State::Available, false), "{word}");
    }
}

#[test]
fn words_of_a_spec_that_look_like_a_cause_are_told_once() {
    let mut world = World::at_rest(None);
    world.edit(|spec| spec.custom_deploy = Some(CustomDeploy { method: "x — Cause: y — Delayed: z".into() }));
    world.converge();
    let status = world.status();
    assert_eq!((world.in_error(), status.error_count), (true, 1));
    assert!(status.error_message.contains("x - Cause: y - Delayed: z"), "{}", status.error_message);
}

#[test]
fn nothing_of_it_is_asked_of_a_host_that_somebody_else_provisions() {
    let mut world = World::new();
    world.edit(|spec| {
        spec.externally_provisioned = Some(true);
        spec.boot_mode = Some(BootMode::Legacy);
        raid(spec);
        no_digest(spec);
    });
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::ExternallyProvisioned, false));
}

#[test]
fn a_wish_that_comes_later_ends_the_next_work_instead() {
    let mut world = World::at_rest(None);
    world.edit(|spec| {
        spec.boot_mode = Some(BootMode::Legacy);
        spec.image = Some(image(URL));
    });
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Available, Some(ErrorType::Provisioning)));
    assert!(!world.calls.contains(&Action::Provision), "{:?}", world.calls);
    let mut world = World::at_rest(None);
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Fast));
    world.annotate(annotation::INSPECT, "");
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Inspecting, Some(ErrorType::Inspection)));
    assert!(!world.calls.iter().any(|call| matches!(call, Action::Inspect { .. })), "{:?}", world.calls);
}

/// A host that was inspected and found to be this.
fn found(details: HardwareDetails, edit: impl FnOnce(&mut BareMetalHostSpec)) -> World {
    let mut world = World::new();
    world.edit(edit);
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.step_with(|_, _| Outcome::Inspected(Box::new(details.into())));
    world.converge();
    world
}

/// The same, by the BMC, which does not list these parts completely.
fn listed(details: HardwareDetails, not_listed: Vec<Part>) -> World {
    let mut world = World::new();
    world.settings.served.fast_inspection = true;
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Fast));
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.step_with(|_, _| {
        Outcome::Inspected(Box::new(Inspected { hardware: details, not_listed, ..Inspected::default() }))
    });
    world.converge();
    world
}

fn nic(mac: &str) -> Nic {
    Nic { name: Some("eno1".to_owned()), mac: Some(mac.to_owned()), ..Nic::default() }
}

#[test]
fn a_machine_of_another_architecture_is_not_prepared() {
    let arm = HardwareDetails {
        cpu: Some(Cpu { arch: Some("aarch64".into()), ..Cpu::default() }),
        ..HardwareDetails::default()
    };
    let world = found(arm.clone(), |spec| spec.architecture = Some("x86_64".into()));
    assert_eq!((world.state(), world.status().error_type), (State::Preparing, Some(ErrorType::Preparation)));
    assert!(world.status().error_message.contains("aarch64"), "{}", world.status().error_message);
    assert_eq!(found(arm, |spec| spec.architecture = Some("arm64".into())).state(), State::Available);
}

#[test]
fn a_boot_mac_address_that_no_interface_has_is_an_error_that_lists_them() {
    let mut details = hardware();
    details.nics = vec![nic("00:11:22:33:44:66"), nic("00:11:22:33:44:77")];
    let world = found(details.clone(), |_| {});
    assert_eq!((world.state(), world.status().error_type), (State::Preparing, Some(ErrorType::Preparation)));
    let message = world.status().error_message;
    assert!(message.contains("00:11:22:33:44:55") && message.contains("00:11:22:33:44:77"), "{message}");
    // In any case of letters, and where nothing is known of interfaces, there is nothing to say.
    details.nics.push(nic("00:11:22:33:44:aa"));
    let upper = |spec: &mut BareMetalHostSpec| spec.boot_mac_address = Some("00:11:22:33:44:AA".into());
    assert_eq!(found(details, upper).state(), State::Available);
    assert_eq!(found(hardware(), |_| {}).state(), State::Available);
}

#[test]
fn what_a_bmc_does_not_list_is_told_and_keeps_nothing_from_going_on() {
    let bmc_nic = |mac: &str| Nic { name: None, ..nic(mac) };
    let details = HardwareDetails { nics: vec![bmc_nic("00:11:22:33:44:66")], ..hardware() };
    let world = listed(details.clone(), vec![Part::Disks]);
    assert_eq!((world.state(), world.status().error_type), (State::Available, None));
    assert_eq!(world.hardware_data.as_deref(), Some(&details));
    let told = |world: &World| {
        ["InspectionComplete", "InspectionIncomplete", "BootMACNotListed"].map(|reason| world.events.contains(&reason))
    };
    assert_eq!(told(&world), [true, true, true], "{:?}", world.events);

    let details = HardwareDetails { nics: vec![bmc_nic("00:11:22:33:44:55")], ..hardware() };
    let world = listed(details, Vec::new());
    assert_eq!(world.state(), State::Available);
    assert_eq!(told(&world), [true, false, false], "{:?}", world.events);

    // What it does list counts as any inspection's.
    let arm = Cpu { arch: Some("aarch64".into()), ..Cpu::default() };
    let mut world = World::new();
    world.settings.served.fast_inspection = true;
    world.edit(|spec| {
        spec.inspection_mode = Some(InspectionMode::Fast);
        spec.architecture = Some("x86_64".into());
    });
    world.until(|action| matches!(action, Action::Inspect { .. }));
    let details = HardwareDetails { cpu: Some(arm), ..HardwareDetails::default() };
    world.step_with(|_, _| Outcome::Inspected(Box::new(details.into())));
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Preparing, Some(ErrorType::Preparation)));
}

#[test]
fn a_mistyped_boot_mac_address_is_corrected_by_another_host_and_without_a_wipe() {
    let mut details = hardware();
    details.nics = vec![nic("00:11:22:33:44:66")];
    let mut world = found(details, |_| {});
    let message = world.status().error_message;
    for part in ["delete it", "create it anew", "nothing is wiped"] {
        assert!(message.contains(part), "{message}");
    }
    world.calls.clear();
    world.delete();
    world.converge();
    let wiped = world.calls.iter().any(|call| matches!(call, Action::Deprovision { .. }));
    assert!(world.gone && !wiped, "{:?}", world.calls);
}

#[test]
fn a_reboot_annotation_that_cannot_be_read_is_dropped_with_a_word_and_nobody_is_rebooted() {
    for key in [annotation::REBOOT, "reboot.metal3.io/somebody"] {
        let mut world = World::at_rest(Some(URL));
        world.annotate(key, r#"{"mode":"gentle"}"#);
        world.converge();
        assert!(!world.annotated(key), "{key} is left");
        assert_eq!(world.events, ["InvalidAnnotationValue"]);
        let switched = world.calls.iter().any(|call| matches!(call, Action::SetPower(_)));
        assert!(!switched && world.machine_on, "{:?}", world.calls);
    }
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::REBOOT, r#"{"Mode":"hard","comment":"kernel"}"#);
    world.converge();
    assert!(world.calls.contains(&Action::SetPower(PowerWish::HardOff)), "{:?}", world.calls);
}

#[test]
fn an_error_stays_to_be_seen_while_the_work_is_tried_again() {
    let message = |world: &World, kind: &str| {
        let status = world.status();
        status.conditions.iter().find(|c| c.type_ == kind).unwrap().message.clone()
    };
    let mut world = World::new();
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.fail("The agent did not report");
    assert!(message(&world, "Progressing").contains("The agent did not report"));
    world.until(|action| matches!(action, Action::Inspect { .. }));
    world.step_with(|_, _| Outcome::Working { look_again: std::time::Duration::from_secs(5) });
    assert_eq!(world.status().error_type, None);
    assert!(message(&world, "Progressing").contains("The agent did not report"), "{}", message(&world, "Progressing"));
    world.converge();
    assert_eq!(message(&world, "Progressing"), "Nothing is under way");
    // A failed image is spoken of until one is on the host, through the rounds between.
    world.edit(|spec| spec.image = Some(image(URL)));
    world.until(|action| *action == Action::Provision);
    world.fail("The digest does not match");
    world.until(|action| *action == Action::Provision);
    let condition = message(&world, "Provisioned");
    assert!(condition.contains("failed attempts: 1") && condition.contains("The digest does not match"), "{condition}");
    world.converge();
    assert!(message(&world, "Provisioned").contains(URL) && !message(&world, "Provisioned").contains("failed"));
    for condition in world.status().conditions {
        assert!(!condition.message.is_empty(), "{condition:?}");
    }
}

#[test]
fn a_restored_status_tells_of_no_operation_that_is_younger_than_its_host() {
    let at = |world: &World, seconds: i64| Some(api::Time(world.now + jiff::SignedDuration::from_secs(seconds)));
    let mut saved = World::at_rest(Some(URL)).status();
    let mut world = World::new();
    world.host.metadata.creation_timestamp = at(&world, 0);
    let history = &mut saved.operation_history;
    (history.deprovision.start, history.deprovision.end) = (at(&world, 30), None);
    (history.inspect.start, history.inspect.end) = (at(&world, 0), at(&world, 1));
    (history.provision.start, history.provision.end) = (at(&world, -20), at(&world, -10));
    (history.register.start, history.register.end) = (at(&world, -20), at(&world, 5));
    let kept = history.provision.clone();
    world.annotate(annotation::STATUS, &serde_json::to_string(&saved).unwrap());
    world.step();
    let history = world.status().operation_history;
    assert_eq!((history.deprovision, history.inspect), Default::default());
    assert_eq!((history.provision, history.register.end), (kept, None));
    assert_eq!(history.register.start, at(&world, -20));
}
