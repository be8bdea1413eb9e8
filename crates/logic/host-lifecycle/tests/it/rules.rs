//! Conditions and decisions by themselves: each table goes through the facts of one rule.

use std::time::Duration;

use api::metal3::{
    BareMetalHost, BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState as State, UpdatePolicy,
    annotation, finalizer,
};
use api::metamorph::Erasure;
use host_lifecycle::{
    Action, Answer, Change, ChildWrite, Credentials, HealthHeard, HealthLevel, HostEvent, Next, Outcome, PowerWish,
    Retry, Served, Standing, Step, View, hints_to_be, renew_conditions, review, standing, validate,
};
use serde_json::{Value, json};

use crate::kit::{World, created, failed, hardware, held_off, image, new_host};
use crate::prepares::served;

const URL: &str = "https://images.example/a.raw";

/// A host with this status, which the provisioner knows and a person has just created.
fn with(status: &Value) -> World {
    let mut world = World::new();
    world.host.status = Some(serde_json::from_value(status.clone()).unwrap());
    world.host.metadata.finalizers = Some(vec![finalizer::HOST.into()]);
    world
}

/// A host of this state that the provisioner knows.
fn of(state: State) -> World {
    let good = json!({"credentials": {"name": "worker-0-bmc", "namespace": "metal"}, "credentialsVersion": "1"});
    with(&json!({
        "provisioning": {"state": state.as_str(), "ID": "x"}, "goodCredentials": good, "triedCredentials": good,
        "operationalStatus": "OK", "lastUpdated": "2026-01-01T00:00:00Z",
    }))
}

/// The condition of this type, as it is told of the host: its reason and message.
fn told(world: &World, kind: &str) -> (String, String) {
    let mut status = world.status();
    renew_conditions(&world.view(), &mut status);
    let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
    (found.reason.clone(), found.message.clone())
}

#[test]
fn a_change_is_empty_or_a_move_by_each_of_its_parts() {
    type Edit = fn(&mut Change);
    let nothing = || Change {
        status: BareMetalHostStatus::default(),
        add_finalizer: false,
        remove_annotations: Vec::new(),
        answer: None,
        set_architecture: None,
        hardware_data: None,
        erasure: None,
        steps: None,
        children: Vec::new(),
        events: Vec::new(),
        next: Next::Wait,
    };
    // What it is with this alone: empty, and a move.
    let rows: [(Edit, bool, bool); 12] = [
        (|_| (), true, true),
        (|change| change.status.powered_on = true, false, true),
        (|change| change.add_finalizer = true, false, false),
        (|change| change.remove_annotations = vec!["a".into()], false, false),
        (|change| change.answer = Some(Answer::Done), false, true),
        (|change| change.set_architecture = Some("x86_64".into()), false, false),
        (|change| change.hardware_data = Some(Box::new(hardware().into())), false, false),
        (|change| change.erasure = Some(Box::new(Erasure::default())), false, false),
        (|change| change.steps = Some(Box::default()), false, false),
        (|change| change.children = vec![ChildWrite::HoldDataImage], false, false),
        (|change| change.events = vec![HostEvent { reason: "A", message: String::new(), warning: false }], false, true),
        (|change| change.next = Next::Gone, true, false),
    ];
    for (number, (edit, empty, moves)) in rows.into_iter().enumerate() {
        let mut change = nothing();
        edit(&mut change);
        assert_eq!((change.is_empty(None), change.is_move()), (empty, moves), "row {number}");
        let old = BareMetalHostStatus::default();
        assert_eq!(change.is_empty(Some(&old)), empty, "row {number}");
    }
}

#[test]
fn a_host_whose_bmc_takes_no_secret_is_told_so() {
    let mut world = World::new();
    world.host.metadata.finalizers = Some(vec![finalizer::HOST.into()]);
    world.host.spec.bmc.as_mut().unwrap().credentials_name.clear();
    world.run_until(|world| world.state() == State::Registering);
    let view = View { credentials: Credentials::NotNeeded, ..world.view() };
    let Step::Change(change) = host_lifecycle::decide(&view) else { panic!("a call without credentials") };
    assert!(change.status.error_message.starts_with("The host names no Secret for its BMC"), "{change:?}");
    assert_eq!(change.next, Next::Wait);
}

#[test]
fn a_message_lists_sixteen_addresses_of_a_machine() {
    for (number, more) in [(1, false), (16, false), (17, true), (40, true)] {
        let mut world = of(State::Preparing);
        let nics: Vec<Value> = (0..number).map(|n| json!({"mac": format!("02:00:00:00:00:{n:02x}")})).collect();
        let found = json!({"nics": nics, "hostname": "a", "ramMebibytes": 1, "cpu": {"arch": "x86_64"}});
        world.host.status.as_mut().unwrap().hardware = Some(serde_json::from_value(found).unwrap());
        world.converge();
        let said = world.status().error_message;
        assert!(said.contains("no network interface of the inspected machine has it"), "{number}: {said}");
        assert_eq!(said.contains(", …"), more, "{number}: {said}");
        assert_eq!(said.matches("02:00:00").count(), number.min(16), "{said}");
    }
}

#[test]
fn conditions_say_what_keeps_a_host_from_what_it_is_asked_for() {
    let kept_off = format!("The machine is kept off by the annotation {} until that is removed", held_off());
    let rest = "Nothing is under way".to_owned();
    // At rest and off, it is kept off; while it is worked on, or runs, or is never off, it is not.
    for (state, on, never_off, expected) in [
        (State::Provisioned, false, false, &kept_off),
        (State::Provisioned, true, false, &rest),
        (State::Provisioned, false, true, &rest),
        (State::Preparing, false, false, &"The host is being prepared".to_owned()),
    ] {
        let mut world = of(state);
        world.annotate(&held_off(), "");
        world.host.spec.disable_power_off = Some(never_off);
        world.host.status.as_mut().unwrap().powered_on = on;
        assert_eq!(told(&world, "Progressing").1, *expected, "{state:?} {on} {never_off}");
        for kind in ["Manageable", "AvailableForProvisioning", "Provisioned", "Ready"] {
            assert_ne!(told(&world, kind).1, kept_off, "{kind}");
        }
    }
    for (state, wishes, waits) in
        [(State::Available, true, true), (State::Available, false, false), (State::Provisioned, true, false)]
    {
        let mut world = of(state);
        world.host.spec.online = false;
        world.host.spec.image = wishes.then(|| image(URL));
        let said = told(&world, "Progressing").1;
        assert_eq!(said == "The image is written when spec.online is true", waits, "{state:?} {wishes}: {said}");
    }
    let mut world = of(State::Provisioned);
    world.host.status.as_mut().unwrap().operational_status = OperationalStatus::Servicing;
    world.annotate(&held_off(), "");
    let said = told(&world, "Progressing").1;
    let then = format!("; the machine is powered off when that has ended, for the annotation {}", held_off());
    assert_eq!(said, format!("The firmware is being changed{then}"));
}

#[test]
fn what_the_bmc_last_said_of_the_machine_stays_until_it_says_something_else() {
    for (level, reason) in
        [(HealthLevel::OK, "Healthy"), (HealthLevel::Warning, "Warning"), (HealthLevel::Critical, "CriticalError")]
    {
        let mut world = of(State::Provisioned);
        world.health = HealthHeard::Level(level);
        let mut status = world.status();
        renew_conditions(&world.view(), &mut status);
        world.host.status = Some(status);
        assert_eq!(told(&world, "Healthy").0, reason);
        world.health = HealthHeard::Unasked;
        assert_eq!(told(&world, "Healthy").0, reason, "it is forgotten");
    }
}

#[test]
fn a_step_that_was_told_stays_with_its_work() {
    let mut world = of(State::Registering);
    let work = "Access to the BMC is being checked";
    let condition = |kind: &str, message: String| {
        json!({"type": kind, "status": "True", "reason": "Registering", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = world.host.status.as_mut().unwrap();
    status.operation_history.register.start = Some(api::Time(world.now));
    status.conditions = serde_json::from_value(json!([
        condition("Manageable", work.to_owned()),
        condition("Progressing", format!("{work}: its certificate is looked at")),
    ]))
    .unwrap();
    assert_eq!(told(&world, "Progressing").1, format!("{work}: its certificate is looked at"));
}

#[test]
fn a_failure_says_that_detaching_waits_for_it_and_only_then() {
    let waits = |value: Option<&str>, deleted: bool| {
        let mut world = of(State::Inspecting);
        if let Some(value) = value {
            world.annotate(annotation::DETACHED, value);
        }
        if deleted {
            world.delete();
        }
        let change = world.conclude(&Action::Inspect { restart: false }, failed("no answer"));
        let said = change.status.error_message;
        assert!(said.starts_with("no answer"), "{said}");
        said.contains("detached")
    };
    assert!(waits(Some(""), false));
    assert!(!waits(None, false) && !waits(Some(r#"{"force":true}"#), false) && !waits(Some(""), true));
}

#[test]
fn work_is_looked_at_again_when_its_budget_ends_if_that_is_sooner() {
    let mut world = of(State::Inspecting);
    let budget = host_lifecycle::budget(State::Inspecting).unwrap();
    world.host.status.as_mut().unwrap().operation_history.inspect.start = Some(api::Time(world.now));
    world.pass(budget - Duration::from_secs(10));
    for (again, next) in [(5, 5), (10, 10), (60, 10)] {
        let working = Outcome::Working { look_again: Duration::from_secs(again) };
        let change = world.conclude(&Action::Inspect { restart: false }, working);
        assert_eq!(change.next, Next::After(Duration::from_secs(next)));
    }
}

#[test]
fn an_answer_that_does_not_fit_the_power_call_is_a_failure_of_it() {
    let told = || Outcome::PowerTold { on: true, message: "a fan".into() };
    let unknown = || Outcome::Failed { message: "lost".into(), retry: Retry::Unknown };
    let blocked = || Outcome::Blocked { message: "no place".into() };
    let conclude = |deleted: bool, once: bool, action: &Action, outcome: Outcome| {
        let mut world = of(State::Provisioned);
        world.host.status.as_mut().unwrap().powered_on = true;
        if once {
            world.annotate(annotation::REBOOT, "");
        }
        if deleted {
            world.delete();
        }
        let change = world.conclude(action, outcome);
        (
            change.status.error_message.clone(),
            change.status.error_count,
            change.events.first().map(|event| event.reason),
        )
    };
    let (set, read) = (Action::SetPower(PowerWish::On), Action::ReadPower);
    let (message, count, _) = conclude(false, false, &set, told());
    assert!(message.contains("does not fit power management") && count == 1, "{message}");
    assert_eq!(conclude(false, false, &read, told()).0, "a fan");
    assert_eq!(conclude(false, false, &set, unknown()), ("lost".into(), 1, Some("PowerManagementError")));
    assert_eq!(conclude(false, true, &set, unknown()), (String::new(), 0, Some("RestartUnknown")));
    // A look that was not made is no failure; a switch that was not made, or of a host that is to go, is one.
    assert_eq!(conclude(false, false, &read, blocked()).1, 0);
    assert_eq!(conclude(false, false, &set, blocked()).1, 1);
    assert_eq!(conclude(true, false, &read, blocked()).1, 1);
}

#[test]
fn power_as_wished_ends_an_error_that_is_not_the_image_s() {
    for (state, kind, ends) in [
        (State::Available, "power management error", true),
        (State::Available, "provisioning error", false),
        (State::Provisioned, "provisioning error", true),
    ] {
        let mut world = of(state);
        let status = world.host.status.as_mut().unwrap();
        (status.powered_on, status.error_message) = (true, "old".into());
        status.error_type = serde_json::from_value(json!(kind)).unwrap();
        let change = world.conclude(&Action::ReadPower, Outcome::Power(true));
        assert_eq!(change.status.error_type.is_none(), ends, "{state:?} {kind}");
    }
}

#[test]
fn a_failed_service_is_told_until_nothing_more_is_wished_of_it() {
    let error = |served: bool, policy: Option<UpdatePolicy>, differs: bool| {
        let mut world = crate::prepares::served(Some(URL));
        world.settings.served.service = served;
        let mut allowed: api::metal3::HostUpdatePolicy = created(api::metal3::HostUpdatePolicy::new);
        allowed.spec.firmware_settings = policy;
        world.update_policy = Some(allowed);
        world.converge();
        world.wish_setting("LogicalProc", if differs { "Disabled" } else { "Enabled" });
        world.pass(world.settings.facts_poll * 2);
        world.converge();
        let status = world.host.status.as_mut().unwrap();
        (status.error_type, status.error_message) = (Some(ErrorType::Servicing), "it did not come true".into());
        let change = world.conclude(&Action::ReadPower, Outcome::Power(world.machine_on));
        change.status.error_type == Some(ErrorType::Servicing)
    };
    assert!(error(true, Some(UpdatePolicy::OnReboot), true));
    assert!(!error(false, Some(UpdatePolicy::OnReboot), true));
    assert!(!error(true, None, true));
    assert!(!error(true, Some(UpdatePolicy::OnReboot), false));
}

#[test]
fn a_service_begins_anew_only_after_a_failure() {
    let mut world = served(Some(URL));
    let mut policy: api::metal3::HostUpdatePolicy = created(api::metal3::HostUpdatePolicy::new);
    policy.spec.firmware_settings = Some(UpdatePolicy::OnReboot);
    world.update_policy = Some(policy);
    world.wish_setting("LogicalProc", "Disabled");
    world.annotate(annotation::REBOOT, "");
    let call = world.until(|action| matches!(action, Action::Service { .. }));
    assert!(matches!(call, Action::Service { restart: false, .. }), "{call:?}");
    world.host.status.as_mut().unwrap().error_count = 1;
    assert!(matches!(world.decide(), Step::Act(Action::Service { restart: true, .. })));
}

#[test]
fn a_status_is_given_back_to_a_host_without_one_and_to_no_other() {
    let restored = |state: &str, id: &str| {
        let mut world =
            with(&json!({"provisioning": {"state": state, "ID": id}, "lastUpdated": "2026-01-01T00:00:00Z"}));
        let saved = json!({"provisioning": {"state": "provisioned", "ID": "saved"}});
        world.annotate(annotation::STATUS, &saved.to_string());
        world.step();
        assert!(!world.annotated(annotation::STATUS));
        world.status().provisioning.id == "saved"
    };
    assert!(restored("", "") && restored("registering", ""));
    assert!(!restored("registering", "x") && !restored("inspecting", "") && !restored("provisioned", "x"));
}

#[test]
fn an_image_address_without_a_scheme_is_told_so() {
    let mut host = new_host();
    host.spec.image = Some(image("/images/a.raw"));
    let found = validate(&host).unwrap_err();
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(found.iter().any(|text| text.contains("spec.image.url has no scheme")), "{found:?}");
}

#[test]
fn what_a_live_iso_has_no_use_for_is_told_where_it_is_booted() {
    let warned = |edit: fn(&mut BareMetalHost)| {
        let mut host = new_host();
        let image = json!({"url": URL, "format": "live-iso", "checksum": "ab".repeat(16)});
        host.spec.image = Some(serde_json::from_value(image).unwrap());
        edit(&mut host);
        let served = Served { live_iso: true, ..Served::default() };
        let found = review(&host, None, &served, None).warnings;
        found.iter().any(|text| text.contains("spec.image.format is live-iso"))
    };
    assert!(warned(|_| ()));
    assert!(!warned(|host| host.spec.externally_provisioned = Some(true)));
    assert!(!warned(|host| host.spec.custom_deploy = serde_json::from_value(json!({"method": "x"})).unwrap()));
}

#[test]
fn other_volumes_than_were_made_keep_a_host_from_being_as_declared() {
    let mut world = World::at_rest(None);
    assert!(matches!(standing(&world.host), Standing::AsDeclared(_)));
    world.host.spec.raid = Some(serde_json::from_value(json!({"hardwareRAIDVolumes": [{"level": "1"}]})).unwrap());
    assert!(matches!(standing(&world.host), Standing::NotYet(_)), "{:?}", standing(&world.host));
}

#[test]
fn a_bmc_is_named_by_its_address_or_its_secret() {
    for (address, secret, state) in [
        ("", "", State::Unmanaged),
        ("redfish://192.0.2.1", "", State::Registering),
        ("", "worker-0-bmc", State::Registering),
    ] {
        let mut world = World::new();
        let bmc = world.host.spec.bmc.as_mut().unwrap();
        (bmc.address, bmc.credentials_name) = (address.into(), secret.into());
        world.run_until(|world| world.state() != State::None);
        assert_eq!(world.state(), state, "{address} {secret}");
    }
}

#[test]
fn the_disk_that_upstream_has_put_in_force_stays() {
    let mut world = World::at_rest(None);
    let host = &world.host;
    let mut status = world.status();
    assert_eq!(hints_to_be(host, &status), None);
    let sda = inventory::RootDeviceHints { device_name: Some("/dev/sda".into()), ..Default::default() };
    status.provisioning.root_device_hints = Some(sda.clone());
    assert_eq!(hints_to_be(host, &status), Some(sda));
    status.provisioning.root_device_hints = Some(inventory::RootDeviceHints::default());
    assert_eq!(hints_to_be(host, &status), None);
    world.host.status = Some(status);
}

#[test]
fn only_a_wish_is_put_on_an_available_host() {
    let begins = |wished: Option<&str>, there: Option<&str>| {
        let mut world = World::at_rest(None);
        world.settings.served.custom_deploy = true;
        let of = |method: &str| serde_json::from_value(json!({"method": method})).unwrap();
        world.host.spec.custom_deploy = wished.map(of);
        world.host.status.as_mut().unwrap().provisioning.custom_deploy = there.map(of);
        world.step();
        world.state() == State::Provisioning
    };
    assert!(begins(Some("x"), None));
    assert!(!begins(None, Some("x")) && !begins(Some("x"), Some("x")) && !begins(None, None));
}

#[test]
fn a_failed_preparation_waits_unless_its_wish_was_edited() {
    let mut world = served(None);
    world.wish_setting("LogicalProc", "Enabled");
    world.pass(Duration::from_secs(5));
    world.converge();
    assert_eq!(world.state(), State::Available);
    world.pass(Duration::from_secs(5));
    let now = world.now;
    let status = world.host.status.as_mut().unwrap();
    (status.error_type, status.error_message) = (Some(ErrorType::Preparation), "no".into());
    (status.error_count, status.last_updated) = (1, Some(api::Time(now)));
    status.operational_status = OperationalStatus::Error;
    world.firmware_tried = None;
    let waits = |world: &World| matches!(world.decide(), Step::Change(change) if matches!(change.next, Next::After(_)));
    assert!(waits(&world), "{:?}", world.decide());
    world.wish_setting("LogicalProc", "Disabled");
    assert!(!waits(&world), "{:?}", world.decide());
}

#[test]
fn attempts_are_forgotten_when_nothing_is_wished() {
    let forgets = |wishes: bool, count: i64, kind: Option<ErrorType>| {
        let mut world = World::at_rest(None);
        world.host.spec.online = false;
        world.host.spec.image = wishes.then(|| image(URL));
        let status = world.host.status.as_mut().unwrap();
        (status.provisioning_fail_count, status.error_type) = (count, kind);
        status.last_attempted_image = Some(image("https://images.example/before.raw"));
        match world.decide() {
            Step::Change(change) => change.status.last_attempted_image.is_none(),
            Step::Act(_) => false,
        }
    };
    assert!(forgets(false, 1, None) && forgets(false, 0, Some(ErrorType::Provisioning)));
    assert!(!forgets(true, 1, None) && !forgets(false, 0, None));
}

#[test]
fn what_was_never_registered_is_released_once_and_let_go_whatever_is_said() {
    let mut world = with(&json!({"provisioning": {"state": "deleting", "ID": ""}}));
    world.delete();
    assert_eq!(world.decide(), Step::Act(Action::Release));
    let change = world.conclude(&Action::Release, failed("no answer"));
    assert_eq!((change.next, change.events[0].reason), (Next::Gone, "DeletionGaveUp"));
    world.host.status.as_mut().unwrap().provisioning.id = "x".into();
    let change = world.conclude(&Action::Release, failed("no answer"));
    assert_eq!((change.status.error_count, change.next == Next::Gone), (1, false));
    // Nothing was ever known of it, and nothing is to be reached.
    world.host.spec.bmc = None;
    assert_ne!(world.decide(), Step::Act(Action::ReadPower));
    world.host.status.as_mut().unwrap().provisioning.id.clear();
    let Step::Change(change) = world.decide() else { panic!("a call") };
    assert_eq!(change.next, Next::Gone);
}

#[test]
fn the_end_of_a_deprovisioning_says_what_was_done() {
    let world = of(State::Deprovisioning);
    for (empty, outcome, words) in [
        (true, Outcome::Done, "The image was removed"),
        (true, Outcome::Untouched, "The erasing was withdrawn"),
        (false, Outcome::Untouched, "No image had begun to be written"),
        (false, Outcome::Wiped, "The image was removed"),
    ] {
        let change = world.conclude(&Action::Deprovision { clean: true, empty, restart: false }, outcome);
        let said = change.events.iter().find(|event| event.reason == "DeprovisioningComplete").unwrap();
        assert!(said.message.starts_with(words), "{}", said.message);
    }
    for deleted in [false, true] {
        let mut world = of(State::Deprovisioning);
        if deleted {
            world.delete();
        }
        let outcome = Outcome::Failed { message: "another serial".into(), retry: Retry::AnotherMachine };
        let change = world.conclude(&Action::Deprovision { clean: true, empty: false, restart: false }, outcome);
        assert_eq!(change.status.provisioning.state == State::Deleting, deleted);
        assert_eq!(change.status.error_type.is_some(), !deleted);
    }
}

#[test]
fn a_rebuild_of_what_nobody_serves_is_dropped() {
    let rebuilds = |served: Served| {
        let mut world = World::at_rest(Some(URL));
        world.settings.served = served;
        world.annotate(annotation::REBUILD, "r/uid");
        world.rebuild = true;
        world.step();
        assert!(!world.annotated(annotation::REBUILD));
        (world.state() == State::Deprovisioning, world.events.contains(&"RebuildDropped"))
    };
    assert_eq!(rebuilds(Served::default()), (true, false));
    let others = Served { image_schemes: vec!["oci".into()], ..Served::default() };
    assert_eq!(rebuilds(others), (false, true));
}

#[test]
fn what_is_read_of_the_firmware_has_the_time_of_its_reading() {
    let mut world = served(None);
    world.pass(world.settings.facts_poll * 2);
    world.bios_version = "2.0";
    world.bios.insert("LogicalProc".into(), "Disabled".into());
    world.converge();
    let now = Some(api::Time(world.now));
    let settings = world.firmware_settings.unwrap().status.unwrap();
    let components = world.firmware_components.unwrap().status.unwrap();
    assert_eq!(components.components[0].current_version.as_deref(), Some("2.0"));
    assert_eq!((settings.last_updated, components.last_updated), (now.clone(), now));
}
