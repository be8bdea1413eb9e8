//! What each state does, one by one.

use std::time::Duration;

use crate::kit::{Secret, World, failed, hardware, held_off, image};
use api::metal3::{
    BareMetalHostStatus, CleaningMode, CustomDeploy, ErrorType, HardwareRaidVolume, InspectionMode, OperationalStatus,
    ProvisioningState as State, Raid, annotation, finalizer,
};
use host_lifecycle::{Action, Next, Outcome, PowerWish, Retry, Standing, Step, is_reboot_forced, standing};
use inventory::RootDeviceHints;

const URL: &str = "https://images.example/debian.qcow2";

fn change(step: Step) -> host_lifecycle::Change {
    match step {
        Step::Change(change) => *change,
        Step::Act(action) => panic!("a call is made: {action:?}"),
    }
}

#[test]
fn the_finalizer_comes_first_and_alone() {
    let world = World::new();
    let change = change(world.decide());
    assert!(change.add_finalizer && !change.status_differs(None) && change.events.is_empty());
    assert_eq!(change.next, Next::Now);
}

#[test]
fn a_paused_host_is_left_alone_even_while_it_is_deleted() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::PAUSED, "");
    world.edit(|spec| spec.image = None);
    world.delete();
    let change = change(world.decide());
    assert!(change.is_empty(world.host.status.as_ref()));
    assert_eq!(change.next, Next::Wait);
}

#[test]
fn without_a_bmc_a_host_is_discovered_and_managed_once_it_has_one() {
    let mut world = World::new();
    let bmc = world.host.spec.bmc.take();
    world.converge();
    assert_eq!((world.state(), world.status().operational_status), (State::Unmanaged, OperationalStatus::Discovered));
    assert_eq!(world.events, ["Discovered"]);
    assert_eq!(world.next, Next::After(Duration::from_secs(600)));
    let writes = world.status_writes;
    world.converge();
    assert_eq!(world.status_writes, writes, "an unchanged host is written again");
    world.edit(|spec| spec.bmc = bmc);
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn an_unmanaged_host_is_deleted_without_any_call() {
    let mut world = World::new();
    world.host.spec.bmc = None;
    world.converge();
    world.delete();
    world.converge();
    assert!(world.gone && world.calls.is_empty());
}

#[test]
fn enrollment_passes_through_the_states_that_upstream_passes_through() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.converge();
    let names: Vec<_> = world.states.iter().map(|s| s.as_str()).collect();
    assert_eq!(names, ["registering", "inspecting", "preparing", "available", "provisioning", "provisioned"]);
    let status = world.status();
    assert_eq!(status.provisioning.image.url, URL);
    assert_eq!(status.good_credentials.credentials_version.as_deref(), Some("1"));
    assert_eq!(status.tried_credentials, status.good_credentials);
    assert_eq!(status.hardware.as_deref(), Some(&hardware()));
    assert_eq!(world.hardware_data.as_deref(), Some(&hardware()));
    assert_eq!(status.hardware_profile.as_deref(), Some("unknown"));
    assert_eq!(world.host.spec.architecture.as_deref(), Some("x86_64"));
    let history = status.operation_history;
    for metric in [history.register, history.inspect, history.provision] {
        assert!(metric.start.is_some() && metric.end.is_some());
    }
    assert!(history.deprovision.start.is_none());
    for kind in ["Manageable", "Provisioned", "Ready"] {
        assert_eq!(world.condition(kind).0, "True", "{kind}");
    }
    for kind in ["AvailableForProvisioning", "Progressing"] {
        assert_eq!(world.condition(kind).0, "False", "{kind}");
    }
    assert!(world.status_writes <= 7, "{} writes", world.status_writes);
}

#[test]
fn a_missing_secret_is_a_registration_error_said_once_and_looked_for_again() {
    for (secret, next, word) in [
        (Secret::Missing, Next::After(Duration::from_secs(10)), "does not exist"),
        (Secret::Forbidden, Next::After(Duration::from_secs(10)), "may not be read"),
        (Secret::Empty, Next::Wait, "has no password"),
    ] {
        let mut world = World::new();
        world.secret = secret;
        world.converge();
        let status = world.status();
        assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Registration), 1));
        assert!(status.error_message.contains(word), "{}", status.error_message);
        assert_eq!((world.next, world.condition("Manageable").1.as_str()), (next, "RegistrationFailed"));
        let writes = world.status_writes;
        world.converge();
        assert_eq!((world.status_writes, world.events.len()), (writes, 1));
        world.secret = Secret::Version(1);
        world.converge();
        assert_eq!((world.state(), world.status().error_count), (State::Available, 0));
    }
}

#[test]
fn a_wrong_password_waits_and_a_new_one_is_tried_at_once() {
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Register { .. }));
    world.fail("The BMC refused user admin");
    let status = world.status();
    assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Registration), 1));
    assert_eq!(status.good_credentials.credentials_version, None);
    assert!(matches!(world.next, Next::After(wait) if (60..=120).contains(&wait.as_secs())));
    assert!(matches!(world.decide(), Step::Change(_)), "the same password is tried again at once");
    world.secret = Secret::Version(2);
    assert_eq!(world.decide(), Step::Act(Action::Register { credentials_changed: true }));
    world.fail("The BMC refused user root");
    assert_eq!(world.status().error_count, 1, "failures of other credentials are counted");
    let Next::After(wait) = world.next else { panic!("no wait") };
    world.pass(wait);
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn what_failed_before_a_run_began_is_tried_at_once_and_failed_when_it_did() {
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Register { .. }));
    world.fail("The BMC did not answer");
    let failed = world.status();
    world.pass(Duration::from_secs(5));
    assert!(matches!(world.decide(), Step::Change(_)), "it does not wait");
    world.settings.anew_since = Some(world.now);
    assert!(matches!(world.decide(), Step::Act(Action::Register { .. })));
    assert_eq!(world.status(), failed);
    world.until(|a| matches!(a, Action::Register { .. }));
    world.fail("The BMC did not answer");
    assert_eq!(world.status().error_count, 2, "failures stay counted");
    world.pass(Duration::from_secs(5));
    assert!(matches!(world.decide(), Step::Change(_)), "what has failed since does not wait");
}

#[test]
fn changed_credentials_of_a_provisioned_host_are_checked_and_it_is_adopted() {
    let mut world = World::at_rest(Some(URL));
    world.secret = Secret::Version(2);
    world.converge();
    assert_eq!(world.calls, [Action::Register { credentials_changed: true }, Action::Adopt, Action::ReadPower]);
    assert_eq!(world.state(), State::Provisioned);
    assert_eq!(world.status().good_credentials.credentials_version.as_deref(), Some("2"));
}

#[test]
fn a_new_version_of_the_same_credentials_asks_no_bmc() {
    for url in [None, Some(URL)] {
        let mut world = World::at_rest(url);
        let before = world.status();
        // Another host has claimed the Secret.
        world.secret = Secret::Version(2);
        world.same = vec!["1".into()];
        world.converge();
        assert_eq!((world.calls.as_slice(), world.events.as_slice()), (&[Action::ReadPower][..], &[][..]));
        assert_eq!(world.status_writes, 1);
        let status = world.status();
        assert_eq!(status.good_credentials.credentials_version.as_deref(), Some("2"));
        assert_eq!(status.tried_credentials, status.good_credentials);
        assert_eq!(status.operation_history, before.operation_history);
        // Another password is another password.
        world.secret = Secret::Version(3);
        world.same = vec![];
        world.converge();
        assert!(world.calls.contains(&Action::Register { credentials_changed: true }), "{:?}", world.calls);
    }
}

#[test]
fn a_new_version_of_a_wrong_password_is_not_tried_at_once() {
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Register { .. }));
    world.fail("The BMC refused user admin");
    let Next::After(wait) = world.next else { panic!("no wait") };
    world.secret = Secret::Version(2);
    world.same = vec!["1".into()];
    world.step();
    assert_eq!(world.status().tried_credentials.credentials_version.as_deref(), Some("2"));
    assert_eq!(world.status().good_credentials.credentials_version, None);
    assert_eq!((world.status().error_type, world.status().error_count), (Some(ErrorType::Registration), 1));
    world.pass(wait / 2);
    assert!(matches!(world.decide(), Step::Change(_)), "the same password is tried again before its time");
    world.pass(wait);
    assert_eq!(world.decide(), Step::Act(Action::Register { credentials_changed: true }));
}

#[test]
fn a_failed_adoption_is_a_provisioned_registration_error() {
    let mut world = World::at_rest(Some(URL));
    world.secret = Secret::Version(2);
    world.until(|a| *a == Action::Adopt);
    world.fail("Another owner's mark is on the machine");
    assert_eq!(world.status().error_type, Some(ErrorType::ProvisionedRegistration));
    assert!(world.run_until(|w| !w.in_error()));
    assert!(world.status().operation_history.register.end.is_some());
}

#[test]
fn a_secret_that_goes_away_does_not_undo_a_write() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.until(|a| *a == Action::Provision);
    world.secret = Secret::Missing;
    world.step();
    assert_eq!((world.state(), world.in_error()), (State::Provisioning, true));
    world.secret = Secret::Version(1);
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert!(!world.states.contains(&State::Deprovisioning));
}

#[test]
fn inspection_can_be_disabled_and_the_details_given() {
    let mut world = World::new();
    world.host.spec.inspection_mode = Some(InspectionMode::Disabled);
    world.annotate(annotation::HARDWARE_DETAILS, r#"{"ramMebibytes":4096,"cpu":{"arch":"aarch64"}}"#);
    world.converge();
    assert!(!world.states.contains(&State::Inspecting) && world.events.contains(&"InspectionSkipped"));
    assert_eq!(world.status().hardware.unwrap().ram_mebibytes, Some(4096));
    assert!(!world.annotated(annotation::HARDWARE_DETAILS));
    assert!(world.status().operation_history.inspect.start.is_none());
}

#[test]
fn details_with_an_unknown_field_are_an_inspection_error() {
    let mut world = World::new();
    world.host.spec.inspection_mode = Some(InspectionMode::Disabled);
    world.annotate(annotation::HARDWARE_DETAILS, r#"{"ramMebibytes":4096,"colour":"red"}"#);
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Registering, Some(ErrorType::Inspection)));
    assert!(world.status().error_message.contains("colour"));
    world.annotate(annotation::HARDWARE_DETAILS, r#"{"ramMebibytes":4096}"#);
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn a_machine_that_shows_itself_ends_the_wait_of_the_work_on_it_and_of_no_other() {
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Inspect { .. }));
    world.fail("The BMC did not answer the reset");
    assert!(matches!(world.decide(), Step::Change(_)), "it waits");
    world.news = true;
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: true }));
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Register { .. }));
    world.fail("The BMC is not reached");
    world.news = true;
    assert!(matches!(world.decide(), Step::Change(_)), "an agent says nothing of the BMC");
}

#[test]
fn a_failed_inspection_begins_anew_once_and_may_be_switched_off() {
    let mut world = World::new();
    world.until(|a| matches!(a, Action::Inspect { .. }));
    world.fail("No agent reported");
    assert_eq!(world.status().error_type, Some(ErrorType::Inspection));
    let Next::After(wait) = world.next else { panic!("no wait") };
    world.pass(wait);
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: true }));
    world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
    assert_eq!((world.in_error(), world.status().error_count), (false, 1));
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: false }));
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Disabled));
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn another_inspection_is_made_when_asked_for() {
    let mut world = World::at_rest(None);
    world.annotate(annotation::INSPECT, "");
    world.converge();
    assert_eq!(world.states, [State::Inspecting, State::Preparing, State::Available]);
    assert!(!world.annotated(annotation::INSPECT));
    world.annotate(annotation::INSPECT, "disabled");
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn raid_that_nobody_can_make_is_a_preparation_error_until_it_is_removed() {
    let mut world = World::at_rest(None);
    let volume = HardwareRaidVolume { level: "1".into(), ..HardwareRaidVolume::default() };
    world.edit(|spec| {
        spec.raid = Some(Raid { hardware_raid_volumes: Some(vec![volume]), software_raid_volumes: None });
    });
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Preparing, Some(ErrorType::Preparation)));
    assert_eq!(world.next, Next::Wait);
    world.edit(|spec| spec.raid = Some(Raid { hardware_raid_volumes: Some(vec![]), software_raid_volumes: None }));
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Available, false));
}

#[test]
fn changed_root_device_hints_are_prepared_and_kept_in_the_status() {
    let mut world = World::at_rest(None);
    let hints = RootDeviceHints { serial_number: Some("abc".into()), ..RootDeviceHints::default() };
    world.edit(|spec| spec.root_device_hints = Some(hints.clone()));
    world.converge();
    assert_eq!(world.states, [State::Preparing, State::Available]);
    assert_eq!(world.status().provisioning.root_device_hints, Some(hints));
    world.edit(|spec| {
        spec.root_device_hints = Some(RootDeviceHints::default());
        spec.hardware_profile = Some("libvirt".into());
    });
    world.converge();
    let chosen = world.status().provisioning.root_device_hints.unwrap();
    assert_eq!(chosen.device_name.as_deref(), Some("/dev/vda"));
}

#[test]
fn an_available_host_follows_the_wish_for_power() {
    let mut world = World::at_rest(None);
    assert!(world.machine_on, "the agent stays up while the host is to be online");
    world.edit(|spec| spec.online = false);
    world.converge();
    assert_eq!(world.calls, [Action::SetPower(PowerWish::SoftOff)]);
    assert!(!world.status().powered_on && world.events == ["PowerOff"]);
    world.pass(Duration::from_secs(60));
    world.converge();
    assert_eq!(world.calls.last(), Some(&Action::ReadPower));
    world.machine_on = true;
    world.converge();
    assert!(!world.machine_on, "somebody else's switching on is undone");
}

#[test]
fn an_offline_host_is_not_provisioned() {
    let mut world = World::at_rest(None);
    world.edit(|spec| {
        spec.online = false;
        spec.image = Some(image(URL));
    });
    world.converge();
    assert_eq!(world.state(), State::Available);
    world.edit(|spec| spec.online = true);
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
}

#[test]
fn an_image_that_breaks_a_rule_never_reaches_the_machine() {
    let mut world = World::at_rest(None);
    world.edit(|spec| {
        spec.image = Some(image(URL));
        spec.image.as_mut().unwrap().checksum = None;
    });
    world.converge();
    assert_eq!((world.state(), world.status().error_type), (State::Available, Some(ErrorType::Provisioning)));
    assert!(world.status().error_message.contains("checksum"));
    assert!(world.calls.contains(&Action::ReadPower), "power is managed all the same");
    let writes = world.status_writes;
    world.converge();
    assert_eq!(world.status_writes, writes);
    world.edit(|spec| spec.image.as_mut().unwrap().checksum = Some("ab".repeat(16)));
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Provisioned, false));
}

#[test]
fn a_custom_deploy_that_nobody_serves_is_an_error_and_one_that_is_served_is_done() {
    let mut world = World::at_rest(None);
    world.edit(|spec| spec.custom_deploy = Some(CustomDeploy { method: "burn".into() }));
    world.converge();
    assert!(world.status().error_message.contains("burn"));
    world.settings.served.custom_deploy = true;
    world.converge();
    assert_eq!((world.state(), world.in_error()), (State::Provisioned, false));
    world.edit(|spec| spec.custom_deploy = None);
    world.converge();
    assert_eq!(world.state(), State::Available);
}

#[test]
fn a_failed_provisioning_waits_then_deprovisions_then_tries_again() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.until(|a| *a == Action::Provision);
    world.fail("The digest does not match");
    let status = world.status();
    assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Provisioning), 1));
    assert_eq!(status.provisioning_fail_count, 1);
    world.converge();
    assert_eq!(world.state(), State::Provisioning, "the wait is not kept");
    let Next::After(wait) = world.next else { panic!("no wait") };
    world.pass(wait);
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert!(world.states.ends_with(&[
        State::Deprovisioning,
        State::Available,
        State::Provisioning,
        State::Provisioned
    ]));
    assert_eq!(world.status().provisioning_fail_count, 0);
}

#[test]
fn an_edit_ends_the_wait() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.until(|a| *a == Action::Provision);
    world.fail("HTTP 404");
    world.edit(|spec| spec.image = Some(image("https://images.example/right.raw")));
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert_eq!(world.status().provisioning.image.url, "https://images.example/right.raw");
}

/// Provisions and fails until the host says that it will not try again.
fn exhausted() -> World {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    for attempt in 1..=5 {
        world.until(|a| *a == Action::Provision);
        world.fail("The digest does not match");
        assert_eq!(world.status().provisioning_fail_count, attempt);
    }
    assert!(world.run_until(|w| w.state() == State::Available && w.in_error()));
    world
}

#[test]
fn after_the_limit_no_more_attempts_are_made_until_the_image_changes() {
    let mut world = exhausted();
    assert!(world.status().error_message.contains("retry limit"));
    world.calls.clear();
    let writes = world.status_writes;
    for _ in 0..10 {
        world.pass(Duration::from_secs(3600));
        world.converge();
    }
    assert!(!world.calls.contains(&Action::Provision));
    assert!(world.status_writes <= writes + 1, "only the power state was still to be written");
    // The URL is the same: any field of the image counts.
    world.edit(|spec| spec.image.as_mut().unwrap().checksum = Some("de".repeat(16)));
    world.converge();
    assert_eq!((world.state(), world.status().provisioning_fail_count), (State::Provisioned, 0));
}

#[test]
fn removing_the_image_forgets_the_failed_attempts() {
    let mut world = exhausted();
    world.edit(|spec| spec.image = None);
    world.converge();
    assert_eq!((world.status().provisioning_fail_count, world.in_error()), (0, false));
}

#[test]
fn no_limit_means_no_limit() {
    let mut world = World::new();
    world.settings.max_provisioning_retries = 0;
    world.host.spec.image = Some(image(URL));
    let mut longest = Duration::ZERO;
    for _ in 0..12 {
        world.until(|a| *a == Action::Provision);
        world.fail("The digest does not match");
        let Next::After(wait) = world.next else { panic!("no wait") };
        assert!(wait >= longest, "the wait shrinks");
        longest = wait;
    }
    assert!(longest >= Duration::from_secs(256 * 60), "attempts at the same image do not slow down");
}

#[test]
fn removing_the_image_while_it_is_written_cancels() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.until(|a| *a == Action::Provision);
    world.edit(|spec| spec.image = None);
    world.converge();
    assert_eq!(world.state(), State::Available);
    assert!(world.status().provisioning.image.url.is_empty());
}

#[test]
fn only_the_url_makes_a_provisioned_host_be_provisioned_again() {
    let mut world = World::at_rest(Some(URL));
    world.edit(|spec| spec.image.as_mut().unwrap().checksum = Some("de".repeat(16)));
    world.converge();
    assert!(world.states.is_empty());
    world.edit(|spec| spec.image = Some(image("https://images.example/other.raw")));
    world.converge();
    assert_eq!(world.states, [State::Deprovisioning, State::Available, State::Provisioning, State::Provisioned]);
}

#[test]
fn cleaning_is_as_the_spec_says() {
    for (mode, clean) in [(None, true), (Some(CleaningMode::Metadata), true), (Some(CleaningMode::Disabled), false)] {
        let mut world = World::at_rest(Some(URL));
        world.edit(|spec| {
            spec.image = None;
            spec.automated_cleaning_mode = mode;
        });
        world.converge();
        assert!(world.calls.contains(&Action::Deprovision { clean, empty: false, restart: false }), "{mode:?}");
    }
}

#[test]
fn consent_is_used_up_by_what_it_was_given_for() {
    let mut world = World::at_rest(None);
    world.annotate(annotation::OVERWRITE_OWNER, "someone");
    world.converge();
    assert!(world.annotated(annotation::OVERWRITE_OWNER));
    world.edit(|spec| spec.image = Some(image(URL)));
    world.converge();
    assert!(!world.annotated(annotation::OVERWRITE_OWNER));
}

#[test]
fn consent_is_left_for_the_write_where_no_disk_is_cleaned() {
    for (mode, left) in [(CleaningMode::Metadata, false), (CleaningMode::Disabled, true)] {
        let mut world = World::at_rest(Some(URL));
        world.annotate(annotation::OVERWRITE_OWNER, "someone");
        world.edit(|spec| {
            spec.image = None;
            spec.automated_cleaning_mode = Some(mode);
        });
        world.converge();
        assert_eq!(world.annotated(annotation::OVERWRITE_OWNER), left, "{mode:?}");
    }
}

#[test]
fn an_attempt_that_cannot_begin_is_no_failed_attempt() {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.until(|a| *a == Action::Provision);
    let blocked = || Outcome::Blocked { message: "Secret user-data does not exist".into() };
    for _ in 0..20 {
        world.step_with(|_, _| blocked());
        assert_eq!(world.next, Next::After(Duration::from_secs(10)));
        world.pass(Duration::from_secs(10));
    }
    let status = world.status();
    assert_eq!((world.state(), status.error_type), (State::Provisioning, Some(ErrorType::Preparation)));
    assert_eq!((status.error_count, status.provisioning_fail_count), (1, 0));
    world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
    assert_eq!((world.in_error(), world.status().error_count), (false, 0));
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert!(!world.states.contains(&State::Deprovisioning));
}

#[test]
fn consent_shortens_the_wait() {
    let mut world = World::at_rest(Some(URL));
    world.edit(|spec| spec.image = None);
    for _ in 0..8 {
        world.until(|a| matches!(a, Action::Deprovision { .. }));
        world.fail("The disk belongs to someone");
    }
    world.pass(Duration::from_secs(61));
    assert!(matches!(world.decide(), Step::Change(_)));
    world.annotate(annotation::OVERWRITE_OWNER, "someone");
    assert_eq!(world.decide(), Step::Act(Action::Deprovision { clean: true, empty: false, restart: true }));
    world.fail("The disk belongs to someone");
    assert!(matches!(world.decide(), Step::Change(_)), "consent must not end all waiting");
    assert_eq!(world.next, Next::After(Duration::from_secs(60)));
}

#[test]
fn a_service_that_nobody_serves_any_more_is_over_with_the_next_look() {
    let mut world = World::at_rest(Some(URL));
    let status = world.host.status.as_mut().unwrap();
    status.operational_status = OperationalStatus::Servicing;
    (status.error_type, status.error_message) = (Some(ErrorType::Inspection), "of long ago".into());
    for _ in 0..2 {
        world.step();
    }
    assert_eq!(world.status().operational_status, OperationalStatus::Ok);
    assert!(matches!(standing(&world.host), Standing::AsDeclared(_)), "{:?}", world.status());
}

#[test]
fn one_reboot_is_off_and_on_again() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!(world.calls, [Action::SetPower(PowerWish::SoftOff), Action::SetPower(PowerWish::On)]);
    assert!(!world.annotated(annotation::REBOOT) && world.status().powered_on);
    world.annotate(annotation::REBOOT, r#"{"mode":"hard"}"#);
    assert_eq!(world.decide(), Step::Act(Action::SetPower(PowerWish::HardOff)));
}

#[test]
fn a_reboot_is_not_taken_for_done_because_the_status_is_stale() {
    let mut world = World::at_rest(Some(URL));
    world.host.status.as_mut().unwrap().powered_on = false;
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert_eq!(world.calls, [Action::SetPower(PowerWish::SoftOff), Action::SetPower(PowerWish::On)]);
}

#[test]
fn a_reboot_that_fails_is_done_the_hard_way() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::REBOOT, "");
    world.fail("The BMC refused GracefulShutdown");
    assert_eq!(world.status().error_type, Some(ErrorType::PowerManagement));
    assert_eq!(world.condition("Manageable").1, "PowerFailure");
    let Next::After(wait) = world.next else { panic!("no wait") };
    world.pass(wait);
    assert_eq!(world.decide(), Step::Act(Action::SetPower(PowerWish::HardOff)));
    world.converge();
    assert_eq!((world.in_error(), world.status().error_count), (false, 0));
}

#[test]
fn a_host_is_held_off_while_a_key_is_there() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(&held_off(), "");
    world.converge();
    world.pass(Duration::from_secs(60));
    world.converge();
    assert!(!world.status().powered_on && world.annotated(&held_off()));
    world.unannotate(&held_off());
    world.converge();
    assert!(world.status().powered_on);
}

#[test]
fn an_available_host_heeds_only_a_forced_reboot() {
    let mut world = World::at_rest(None);
    world.annotate(annotation::REBOOT, "");
    world.converge();
    assert!(world.status().powered_on && world.annotated(annotation::REBOOT));
    world.annotate(annotation::REBOOT, r#"{"force":true}"#);
    world.converge();
    assert!(world.events.contains(&"PowerOff") && !world.annotated(annotation::REBOOT));
}

/// What was to be rebooted is not on the machine any more, or has just been booted: nobody else's system is cut off by it.
#[test]
fn a_reboot_that_was_asked_for_before_the_system_came_is_dropped_with_a_word() {
    for forced in ["", r#"{"force":true}"#] {
        let mut world = World::at_rest(None);
        world.edit(|spec| spec.image = Some(image(URL)));
        world.until(|action| *action == Action::Provision);
        world.annotate(annotation::REBOOT, forced);
        world.annotate(&held_off(), "");
        world.calls.clear();
        world.step();
        assert_eq!(world.state(), State::Provisioned);
        assert!(!world.annotated(annotation::REBOOT) && world.events.contains(&"RebootDropped"));
        assert!(world.annotated(&held_off()), "whoever has set it takes it off");
        world.unannotate(&held_off());
        world.edit(|spec| spec.image = None);
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        world.annotate(annotation::REBOOT, forced);
        world.events.clear();
        world.step();
        assert!(!world.annotated(annotation::REBOOT) && world.events.contains(&"RebootDropped"));
    }
}

#[test]
fn somebody_who_insists_on_another_boot_does_not_wait_out_the_back_off() {
    let mut world = World::new();
    for _ in 0..8 {
        world.until(|action| matches!(action, Action::Inspect { .. }));
        world.fail("The agent did not report");
    }
    world.pass(Duration::from_secs(61));
    assert!(matches!(world.decide(), Step::Change(_)));
    world.annotate(annotation::REBOOT, "");
    assert!(matches!(world.decide(), Step::Change(_)), "it does not insist");
    world.annotate(annotation::REBOOT, r#"{"force":true}"#);
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: true }));
}

/// By force, and only when the provisioner has taken it: until then the annotation stays, and with a key of its own it is for hosts at rest.
#[test]
fn a_boot_that_is_asked_for_by_force_in_the_middle_of_work_is_asked_for_once() {
    let working = |_: &mut World, _: &Action| Outcome::Working { look_again: Duration::from_secs(5) };
    let accepted = |_: &mut World, _: &Action| Outcome::Accepted { look_again: Duration::from_secs(5) };
    for state in [State::Inspecting, State::Provisioning] {
        let mut world = World::new();
        world.edit(|spec| spec.image = Some(image(URL)));
        world.until(|action| match state {
            State::Inspecting => matches!(action, Action::Inspect { .. }),
            _ => *action == Action::Provision,
        });
        assert_eq!(world.state(), state);
        world.annotate(annotation::REBOOT, r#"{"mode":"hard"}"#);
        assert!(!is_reboot_forced(&world.host));
        world.step_with(accepted);
        assert!(world.annotated(annotation::REBOOT), "it does not insist");
        world.annotate(annotation::REBOOT, r#"{"force":true}"#);
        world.annotate(&held_off(), r#"{"force":true}"#);
        assert!(is_reboot_forced(&world.host));
        world.step_with(working);
        assert!(world.annotated(annotation::REBOOT), "{state:?}: it has not been taken");
        world.step_with(accepted);
        assert!(!world.annotated(annotation::REBOOT) && world.annotated(&held_off()), "{state:?}");
        assert!(world.events.contains(&"AgentRebooted") && !is_reboot_forced(&world.host));
        assert_eq!((world.state(), world.in_error()), (state, false));
    }
}

#[test]
fn a_host_that_must_not_be_off_is_restarted_and_never_held_off() {
    let mut world = World::at_rest(Some(URL));
    world.edit(|spec| spec.disable_power_off = Some(true));
    world.annotate(&held_off(), "");
    world.converge();
    assert_eq!(world.calls, [Action::ReadPower]);
    world.annotate(annotation::REBOOT, r#"{"mode":"hard"}"#);
    assert_eq!(world.decide(), Step::Act(Action::SetPower(PowerWish::SoftOff)));
    world.converge();
    assert!(world.machine_on && !world.annotated(annotation::REBOOT));
    world.edit(|spec| spec.online = false);
    world.converge();
    assert_eq!(world.status().error_type, Some(ErrorType::PowerManagement));
    assert!(world.machine_on);
}

#[test]
fn a_dead_bmc_is_a_power_error_and_is_over_when_it_is_back() {
    let mut world = World::at_rest(Some(URL));
    for count in 1..=4 {
        world.until(|a| *a == Action::ReadPower);
        world.fail("Nothing answers");
        assert_eq!(world.status().error_count, count);
    }
    assert_eq!(world.condition("Ready"), ("False".to_owned(), "Error".to_owned()));
    assert!(world.run_until(|w| !w.in_error()));
    assert_eq!(world.status().error_count, 0);
}

#[test]
fn power_trouble_keeps_its_wait_beside_an_image_that_cannot_be_provisioned() {
    let mut world = World::at_rest(None);
    world.edit(|spec| spec.image = Some(image("nonsense")));
    world.until(|a| *a == Action::ReadPower);
    world.fail("Nothing answers");
    for _ in 0..5 {
        assert!(matches!(world.decide(), Step::Change(_)), "the BMC is called again at once");
        world.step();
    }
}

#[test]
fn an_externally_provisioned_host_is_adopted_and_never_touched() {
    let mut world = World::new();
    world.host.spec.externally_provisioned = Some(true);
    world.host.spec.image = Some(image(URL));
    world.converge();
    assert_eq!(world.states, [State::Registering, State::ExternallyProvisioned]);
    assert!(world.calls.contains(&Action::Adopt));
    world.edit(|spec| spec.image = None);
    world.converge();
    assert_eq!(world.state(), State::ExternallyProvisioned);
    world.delete();
    world.converge();
    assert!(world.gone && !world.machine_on);
    assert!(!world.calls.iter().any(|c| matches!(c, Action::Deprovision { .. } | Action::Provision)));
}

#[test]
fn clearing_external_provisioning_takes_the_image_as_it_is_said_to_be() {
    let mut world = World::new();
    world.host.spec.externally_provisioned = Some(true);
    world.host.spec.image = Some(image(URL));
    world.converge();
    world.edit(|spec| spec.externally_provisioned = Some(false));
    world.converge();
    assert_eq!((world.state(), world.status().provisioning.image.url.as_str()), (State::Provisioned, URL));

    let mut world = World::at_rest(None);
    world.edit(|spec| spec.externally_provisioned = Some(true));
    world.converge();
    assert_eq!(world.state(), State::ExternallyProvisioned);
    world.edit(|spec| spec.externally_provisioned = None);
    world.converge();
    assert_eq!(world.states.last(), Some(&State::Available));
}

#[test]
fn a_deleted_host_is_deprovisioned_powered_off_and_released() {
    let mut world = World::at_rest(Some(URL));
    world.delete();
    world.converge();
    assert_eq!(world.states, [State::Deprovisioning, State::PoweringOffBeforeDelete, State::Deleting]);
    assert!(world.gone && !world.machine_on);
    assert_eq!(world.calls.last(), Some(&Action::Release));
}

#[test]
fn a_host_that_must_not_be_off_is_deleted_running() {
    let mut world = World::at_rest(None);
    world.edit(|spec| spec.disable_power_off = Some(true));
    world.delete();
    world.converge();
    assert!(world.gone && world.machine_on);
}

#[test]
fn a_deletion_gives_up_on_a_dead_bmc_even_if_only_an_edit_could_help() {
    let mut world = World::at_rest(Some(URL));
    world.delete();
    for _ in 0..40 {
        world.step_with(|_, _| Outcome::Failed { message: "dead".into(), retry: Retry::AfterChange });
        match world.next {
            Next::After(time) => world.pass(time),
            Next::Now => {}
            Next::Wait => panic!("waits for an edit"),
            Next::Gone => break,
        }
    }
    assert!(world.gone);
    assert_eq!(world.events.iter().filter(|e| **e == "DeletionGaveUp").count(), 3);
    assert_eq!(world.calls.len(), 12);
}

#[test]
fn a_host_without_credentials_can_be_deleted() {
    let mut world = World::new();
    world.secret = Secret::Missing;
    world.converge();
    world.delete();
    world.converge();
    assert!(world.gone);

    let mut world = World::at_rest(Some(URL));
    world.secret = Secret::Missing;
    world.converge();
    assert_eq!(world.status().error_type, Some(ErrorType::Registration));
    world.delete();
    world.converge();
    assert!(world.gone && world.calls.contains(&Action::Deprovision { clean: true, empty: false, restart: false }));
}

#[test]
fn without_our_finalizer_a_deleted_host_is_none_of_our_business() {
    let mut world = World::at_rest(Some(URL));
    world.host.metadata.finalizers = Some(vec!["example.com/other".into()]);
    world.delete();
    let change = change(world.decide());
    assert_eq!(change.next, Next::Gone);
    assert!(!world.host.has_finalizer(finalizer::HOST));
}

#[test]
fn a_detached_host_is_let_go_and_taken_back() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "moved to another cluster");
    world.converge();
    assert_eq!(world.calls, [Action::Release]);
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    assert_eq!(world.condition("Ready").1, "Detached");
    world.edit(|spec| spec.image = None);
    world.converge();
    assert_eq!(world.state(), State::Provisioned, "a detached host is deprovisioned");
    world.edit(|spec| spec.image = Some(image(URL)));
    world.unannotate(annotation::DETACHED);
    world.converge();
    assert_eq!(world.status().operational_status, OperationalStatus::Ok);
    assert!(world.calls.contains(&Action::Adopt));
}

#[test]
fn deleting_a_detached_host_leaves_the_machine_alone() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.converge();
    world.delete();
    world.converge();
    assert!(world.gone && world.machine_on);
    assert!(!world.states.contains(&State::Deprovisioning));

    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, r#"{"deleteAction":"delay"}"#);
    world.converge();
    world.delete();
    world.converge();
    assert!(!world.gone);
    world.unannotate(annotation::DETACHED);
    world.converge();
    assert!(world.gone && world.states.contains(&State::Deprovisioning));
}

#[test]
fn a_deletion_waits_for_a_detached_annotation_that_can_be_read() {
    for unclear in [r#"{"deleteAction":"Delay"}"#, r#"{"deleteAction":"delay""#] {
        let mut world = World::at_rest(Some(URL));
        world.annotate(annotation::DETACHED, unclear);
        world.converge();
        assert!(world.events.contains(&"InvalidAnnotationValue"));
        world.delete();
        world.converge();
        assert!(!world.gone);
        world.annotate(annotation::DETACHED, r#"{"deleteaction":"delete"}"#);
        world.converge();
        assert!(world.gone && world.machine_on && !world.states.contains(&State::Deprovisioning), "{unclear}");
    }
}

#[test]
fn a_wish_to_detach_that_waits_for_the_work_is_reported() {
    let mut world = World::new();
    while world.host.state() != State::Inspecting {
        world.step();
    }
    let said = |w: &World| w.status().conditions.into_iter().find(|c| c.type_ == "Progressing").unwrap().message;
    world.annotate(annotation::DETACHED, "");
    world.step();
    assert!(said(&world).contains("is detached when this has ended"));
    world.converge();
    assert_eq!(world.status().operational_status, OperationalStatus::Detached);
    assert_eq!(said(&world), "The host is detached");
}

#[test]
fn a_saved_status_is_restored_into_a_new_host() {
    let mut saved = World::at_rest(Some(URL)).status();
    saved.error_count = -3;
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    world.secret = Secret::Version(3);
    world.annotate(annotation::STATUS, &serde_json::to_string(&saved).unwrap());
    world.converge();
    assert_eq!(world.state(), State::Provisioned);
    assert!(!world.annotated(annotation::STATUS));
    assert_eq!(world.status().provisioning.id, saved.provisioning.id);
    assert_eq!(world.calls[..2], [Action::Register { credentials_changed: true }, Action::Adopt]);
    assert!(!world.calls.iter().any(|c| matches!(c, Action::Inspect { .. } | Action::Provision)));
    assert_eq!(world.status().error_count, 0);
}

#[test]
fn a_status_annotation_that_cannot_be_used_is_dropped() {
    for text in ["nonsense", r#"{"provisioning":{"state":"dancing"}}"#, "[]"] {
        let mut world = World::new();
        world.annotate(annotation::STATUS, text);
        world.step();
        assert_eq!(world.events, ["InvalidAnnotationValue"], "{text}");
        assert!(!world.annotated(annotation::STATUS) && world.host.status.is_none());
    }
    let mut world = World::at_rest(Some(URL));
    let before = world.status();
    world.annotate(annotation::STATUS, &serde_json::to_string(&BareMetalHostStatus::default()).unwrap());
    world.step();
    assert_eq!(world.status(), before, "a status is overwritten");
}

#[test]
fn legacy_states_find_their_way() {
    for state in [State::MatchProfile, State::Ready] {
        let mut world = World::at_rest(None);
        world.host.status.as_mut().unwrap().provisioning.state = state;
        world.edit(|spec| spec.image = Some(image(URL)));
        world.converge();
        assert_eq!(world.state(), State::Provisioned, "{state:?}");
    }
}

#[test]
fn an_answer_that_does_not_fit_changes_nothing_or_is_a_failure() {
    let world = World::at_rest(Some(URL));
    let late = world.conclude(&Action::Provision, failed("late"));
    assert!(late.is_empty(world.host.status.as_ref()));
    let odd = world.conclude(&Action::ReadPower, Outcome::Done);
    assert_eq!(odd.status.error_type, Some(ErrorType::PowerManagement));
    assert!(odd.status.error_message.contains("\"done\""));
}

#[test]
fn an_unchanged_host_is_not_written() {
    let mut world = World::at_rest(Some(URL));
    for _ in 0..5 {
        world.pass(Duration::from_secs(60));
        world.converge();
    }
    assert_eq!((world.status_writes, world.events.len()), (0, 0));
}
