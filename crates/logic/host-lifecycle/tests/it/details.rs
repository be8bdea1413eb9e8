//! Single rules that the lives of hosts, told elsewhere, pass by: each is stated here by itself, with the case beside it in which it does not hold.

use std::time::Duration;

use api::metal3::{
    BareMetalHost, BootFormat, ErrorType, InspectionMode, OperationalStatus, ProvisioningState as State, annotation,
    finalizer,
};
use host_lifecycle::{
    Action, Beside, ChildWrite, Next, Outcome, Retry, Served, Step, references, review, review_beside, validate,
};
use serde_json::{Value, json};

use crate::kit::{Secret, World, failed, image, new_host};

const URL: &str = "https://images.example/a.raw";
const DELAY: &str = r#"{"deleteAction":"delay"}"#;
const FORCE: &str = r#"{"force":true}"#;

fn message(world: &World, kind: &str) -> String {
    world.status().conditions.iter().find(|c| c.type_ == kind).unwrap().message.clone()
}

/// A new host whose status was saved like this, and is restored.
fn restored(status: &Value) -> World {
    let mut world = World::new();
    world.annotate(annotation::STATUS, &status.to_string());
    world.step();
    assert!(!world.annotated(annotation::STATUS) && world.host.status.is_some());
    world
}

/// A world whose new host has come to this state.
fn on_its_way(state: State) -> World {
    let mut world = World::new();
    world.host.spec.image = Some(image(URL));
    for _ in 0..60 {
        if world.state() == state {
            world.calls.clear();
            world.events.clear();
            return world;
        }
        world.step();
    }
    panic!("never {state:?}: {:?}", world.states);
}

fn held() -> Outcome {
    Outcome::Held { message: "whose it is nobody knows".into() }
}

fn another_machine() -> Outcome {
    Outcome::Failed { message: "it shows another serial number".into(), retry: Retry::AnotherMachine }
}

fn registers(action: &Action) -> bool {
    matches!(action, Action::Register { .. })
}

#[test]
fn only_a_host_with_something_on_it_is_adopted() {
    let mut world = World::at_rest(None);
    world.secret = Secret::Version(2);
    world.converge();
    assert!(registers(&world.calls[0]) && !world.calls.contains(&Action::Adopt), "{:?}", world.calls);
    assert!(world.status().operation_history.register.end.is_some());
    let late = world.conclude(&Action::Adopt, failed("late"));
    assert!(late.is_empty(world.host.status.as_ref()), "{:?}", late.status);
}

#[test]
fn a_bmc_without_an_address_is_what_is_reported_whatever_its_secret() {
    for secret in [Secret::Missing, Secret::Forbidden, Secret::Empty] {
        let mut world = World::new();
        world.host.spec.bmc.as_mut().unwrap().address.clear();
        world.secret = secret;
        world.converge();
        assert!(world.status().error_message.contains("has no BMC address"), "{:?}", world.status().error_message);
        assert_eq!(world.next, Next::Wait);
    }
}

#[test]
fn another_machine_at_the_address_ends_a_deletion_and_nothing_else() {
    let mut world = World::at_rest(Some(URL));
    world.secret = Secret::Version(2);
    world.until(registers);
    world.step_with(|_, _| another_machine());
    assert_eq!((world.state(), world.status().error_type), (State::Provisioned, Some(ErrorType::Registration)));
    assert!(!world.events.contains(&"LeftRunning"), "{:?}", world.events);
    world.delete();
    world.secret = Secret::Version(3);
    world.until(registers);
    world.step_with(|_, _| another_machine());
    assert_eq!((world.state(), world.status().error_type), (State::Deleting, None));
    assert!(world.events.contains(&"LeftRunning"), "{:?}", world.events);
}

#[test]
fn the_hardware_profile_is_the_spec_s_where_that_names_one() {
    for (wished, profile) in [(None, "unknown"), (Some(""), "unknown"), (Some("libvirt"), "libvirt")] {
        let mut world = World::new();
        world.host.spec.hardware_profile = wished.map(Into::into);
        world.converge();
        assert_eq!(world.status().hardware_profile.as_deref(), Some(profile), "{wished:?}");
    }
}

#[test]
fn a_reboot_that_an_available_host_will_not_heed_is_warned_of_when_it_is_asked_for() {
    let host = |state: &str, value: Option<&str>| -> BareMetalHost {
        let mut host = new_host();
        host.status = Some(serde_json::from_value(json!({"provisioning": {"state": state}})).unwrap());
        host.metadata.annotations = value.map(|value| [(annotation::REBOOT.to_owned(), value.to_owned())].into());
        host
    };
    for (state, before, after, warned) in [
        ("available", None, Some(""), true),
        ("ready", None, Some(""), true),
        ("available", Some(FORCE), Some(""), true),
        ("available", Some(""), Some(""), false),
        ("available", Some(""), None, false),
        ("available", None, Some(FORCE), false),
        ("provisioned", None, Some(""), false),
    ] {
        let found = review(&host(state, after), Some(&host(state, before)), &Served::default(), None);
        assert_eq!(found.denials, [""; 0]);
        assert_eq!(found.warnings.len(), usize::from(warned), "{state} {before:?} {after:?}: {:?}", found.warnings);
        assert!(found.warnings.iter().all(|text| text.contains("is restarted with")), "{:?}", found.warnings);
    }
}

#[test]
fn what_cannot_be_set_any_more_is_refused_with_the_state_that_the_host_is_in() {
    for (status, word) in
        [(json!({}), "it is new"), (json!({"provisioning": {"state": "provisioned"}}), "it is provisioned")]
    {
        let mut old = new_host();
        old.status = Some(serde_json::from_value(status).unwrap());
        let mut new = old.clone();
        new.spec.externally_provisioned = Some(true);
        let found = review(&new, Some(&old), &Served::default(), None);
        assert!(found.denials.len() == 1 && found.denials[0].ends_with(word), "{:?}", found.denials);
    }
}

#[test]
fn a_wish_to_detach_is_said_to_wait_only_while_it_does() {
    let waits = "is detached when this has ended";
    let mut world = World::new();
    world.host.spec.bmc = None;
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!((world.state(), message(&world, "Progressing").contains(waits)), (State::Unmanaged, false));
    let mut world = on_its_way(State::Inspecting);
    world.annotate(annotation::DETACHED, "");
    world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
    for condition in world.status().conditions {
        assert_eq!(condition.message.contains(waits), condition.type_ == "Progressing", "{condition:?}");
    }
    // At rest it is detached at once, and nothing is waited for but the answer.
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.step_with(|_, _| Outcome::Busy { message: "full".into(), look_again: Duration::from_secs(5) });
    assert_eq!(world.calls, [Action::Release]);
    assert_eq!(message(&world, "Progressing"), "Delayed: full");
}

#[test]
fn a_detached_host_says_that_its_deletion_waits_only_while_it_is_deleted() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, DELAY);
    world.converge();
    assert_eq!(message(&world, "Progressing"), "The host is detached");
    world.delete();
    world.converge();
    assert!(message(&world, "Progressing").starts_with("The host is detached; its deletion waits until"));
    // Let go by force in the middle of work, it waits for the end of none.
    let mut world = on_its_way(State::Provisioning);
    world.annotate(annotation::DETACHED, FORCE);
    world.converge();
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert_eq!(message(&world, "Progressing"), "The host is detached");
}

#[test]
fn a_host_in_error_is_let_go_before_its_deletion_waits() {
    let mut world = World::at_rest(Some(URL));
    world.until(|action| *action == Action::ReadPower);
    world.fail("Nothing answers");
    world.annotate(annotation::DETACHED, DELAY);
    world.delete();
    // While it cannot be, that is what the host says.
    world.until(|action| *action == Action::Release);
    world.fail("Nothing lets it go");
    assert!(matches!(world.next, Next::After(_)) && !world.gone);
    for _ in 0..6 {
        let status = world.status();
        assert_eq!((status.error_type, status.error_count), (Some(ErrorType::Registration), 1));
        assert!(status.error_message.ends_with("Nothing lets it go"), "{}", status.error_message);
        world.until(|action| *action == Action::Release);
        world.fail("Nothing lets it go");
    }
    world.until(|action| *action == Action::Release);
    world.converge();
    let status = world.status();
    assert_eq!((status.operational_status, status.error_type, world.gone), (OperationalStatus::Detached, None, false));
}

#[test]
fn what_is_wrong_with_an_annotation_is_shown() {
    for (value, word) in [
        (r#"{"force":"yes"}"#, r#"its force is "yes";"#),
        (r#"{"deleteAction":5}"#, "its deleteAction is 5;"),
        (r#"{"Forced":true}"#, r#""Forced" says nothing here;"#),
        ("[1]", "[1] is no JSON object;"),
    ] {
        let mut host = new_host();
        host.metadata.annotations = Some([(annotation::DETACHED.to_owned(), value.to_owned())].into());
        let found = review(&host, None, &Served::default(), None).warnings;
        assert!(found.len() == 1 && found[0].contains(word), "{value}: {found:?}");
    }
}

#[test]
fn a_block_holds_a_release_unless_force_is_asked_for_in_so_many_words() {
    for value in [None, Some(""), Some(DELAY)] {
        let mut world = World::at_rest(None);
        world.delete();
        world.until(|action| *action == Action::Release);
        if let Some(value) = value {
            world.annotate(annotation::DETACHED, value);
        }
        let change = world.conclude(&Action::Release, held());
        assert_ne!(change.next, Next::Gone, "{value:?}");
        assert!(change.status.error_message.contains("the deletion waits for that"), "{:?}", change.status);
    }
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.step_with(|_, _| held());
    assert_eq!(
        (world.status().operational_status, world.events.as_slice()),
        (OperationalStatus::Error, &["RegistrationError"][..])
    );
}

fn faults(key: &str, value: &str) -> Vec<String> {
    let mut host = new_host();
    host.spec.inspection_mode = Some(InspectionMode::Disabled);
    host.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
    validate(&host).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn an_unknown_field_that_says_nothing_is_let_pass() {
    for nothing in ["null", "[]"] {
        let text = format!(r#"{{"ramMebibytes":1,"colour":{nothing},"cpu":{{"colour":{nothing}}}}}"#);
        assert_eq!(faults(annotation::HARDWARE_DETAILS, &text), [""; 0]);
    }
    for (something, path) in [("false", "colour"), ("[1]", "colour"), ("{}", "colour")] {
        let found = faults(annotation::HARDWARE_DETAILS, &format!(r#"{{"colour":{something}}}"#));
        assert!(found.len() == 1 && found[0].ends_with(&format!("unknown field {path}")), "{found:?}");
    }
    let found = faults(annotation::HARDWARE_DETAILS, r#"{"nics":[{"mac":"x"},{"mood":1}],"cpu":{}}"#);
    assert!(found.len() == 1 && found[0].ends_with("unknown field nics.mood"), "{found:?}");
}

#[test]
fn an_annotation_is_read_up_to_the_length_that_kubernetes_allows() {
    let value = r#"{"mode":"hard"}"#;
    let of = |length: usize| format!("{value}{}", " ".repeat(length - value.len()));
    assert_eq!(faults(annotation::REBOOT, &of(262_144)), [""; 0]);
    let found = faults(annotation::REBOOT, &of(262_145));
    assert!(found.len() == 1 && found[0].contains("it has 262145 bytes, at most 262144 are read"), "{found:?}");
}

#[test]
fn the_kinds_beside_hosts_are_named_as_the_api_names_them() {
    let names = Beside::ALL.map(|kind| (kind.kind(), kind.resource(), kind.is_held_by_hosts()));
    let expected = [
        ("HostClaim", "hostclaims", false),
        ("HostNetworkAttachment", "hostnetworkattachments", true),
        ("BMCEventSubscription", "bmceventsubscriptions", false),
        ("DataImage", "dataimages", false),
        ("HostFirmwareComponents", "hostfirmwarecomponents", false),
    ];
    assert_eq!(names, expected);
    let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {}});
    for kind in Beside::ALL {
        let found = review_beside(kind, None, Some(&object), |_, _| Ok(vec!["n/h[eth0]".to_owned()]));
        assert_eq!(found.denials.len(), usize::from(kind.is_held_by_hosts()), "{kind:?}");
    }
}

#[test]
fn a_host_of_another_namespace_is_counted_and_not_named() {
    let hosts: Vec<BareMetalHost> = serde_json::from_value(json!([{
        "metadata": {"name": "h", "namespace": "theirs"},
        "spec": {"online": true, "networkInterfaces": [
            {"name": "a", "hostNetworkAttachment": {"name": "net", "namespace": "n"}},
            {"name": "b", "hostNetworkAttachment": {"name": "net", "namespace": "n"}},
            {"name": "c", "hostNetworkAttachment": {"name": "net"}},
        ]},
    }]))
    .unwrap();
    assert_eq!(references(&hosts, "n", "net"), ["a host of another namespace"]);
    assert_eq!(references(&hosts, "n", "other"), [""; 0]);
    assert_eq!(references(&hosts, "theirs", "net"), ["theirs/h[c]"]);
}

fn beside(kind: Beside, new: &Value, old: Option<&Value>) -> Vec<String> {
    let hosts = |_: &str, _: &str| -> Result<Vec<String>, String> { Ok(vec!["n/h[eth0]".to_owned()]) };
    review_beside(kind, Some(new), old, hosts).denials
}

#[test]
fn an_operator_that_takes_no_values_is_told_so() {
    for operator in ["exists", "!"] {
        let selector = json!({"matchExpressions": [{"key": "a", "operator": operator, "values": ["x"]}]});
        let claim = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"hostSelector": selector}});
        let found = beside(Beside::HostClaim, &claim, None);
        assert!(
            found.len() == 1 && found[0].ends_with(&format!("the operator {operator} takes no values")),
            "{found:?}"
        );
    }
}

#[test]
fn fields_of_a_subscription_that_say_nothing_may_come_and_go() {
    let of = |spec: Value| json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec});
    let old = of(json!({"hostName": "h", "context": "", "httpHeadersRef": null}));
    assert_eq!(beside(Beside::BmcEventSubscription, &of(json!({"hostName": "h"})), Some(&old)), [""; 0]);
    let found = beside(Beside::BmcEventSubscription, &of(json!({"hostName": "h", "context": "x"})), Some(&old));
    assert!(found.len() == 1 && found[0].starts_with("spec cannot be changed"), "{found:?}");
}

#[test]
fn an_attachment_that_is_wrong_by_itself_is_refused_for_that_alone() {
    let of = |spec: Value| json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
    let old = of(json!({"mode": "access", "nativeVLAN": 1}));
    let found = beside(
        Beside::HostNetworkAttachment,
        &of(json!({"mode": "access", "nativeVLAN": 1, "allowedVLANs": ["1"]})),
        Some(&old),
    );
    assert!(found.len() == 1 && found[0].starts_with("spec.allowedVLANs cannot be given"), "{found:?}");
    let found = beside(Beside::HostNetworkAttachment, &of(json!({"mode": "access", "nativeVLAN": 2})), Some(&old));
    assert!(found.len() == 1 && found[0].contains("cannot be changed while interfaces"), "{found:?}");
}

/// A host whose provisioner boots images of others, at this call.
fn at(wanted: impl Fn(&Action) -> bool) -> World {
    let mut world = World::new();
    world.settings.served = Served { boot_images: vec![BootFormat::Iso], fast_inspection: true, ..Served::default() };
    world.host.spec.image = Some(image(URL));
    world.until(wanted);
    world
}

fn asks_for_image(step: &Step) -> Option<Next> {
    match step {
        Step::Change(change) if matches!(change.children[..], [ChildWrite::BootImage(_)]) => Some(change.next),
        _ => None,
    }
}

#[test]
fn provisioning_asks_for_the_boot_image_and_does_not_wait_for_it() {
    let mut world = at(|action| *action == Action::Provision);
    let built = world.boot_image.take();
    assert_eq!(asks_for_image(&world.decide()), Some(Next::After(Duration::from_secs(1))));
    world.boot_image = built;
    world.boot_image.as_mut().unwrap().status = None;
    assert_eq!(world.decide(), Step::Act(Action::Provision));
}

#[test]
fn a_fast_inspection_boots_nothing_and_needs_no_image() {
    let mut world = at(|action| matches!(action, Action::Inspect { .. }));
    world.boot_image = None;
    assert!(asks_for_image(&world.decide()).is_some());
    world.edit(|spec| spec.inspection_mode = Some(InspectionMode::Fast));
    assert_eq!(world.decide(), Step::Act(Action::Inspect { restart: false }));
}

#[test]
fn a_deletion_is_not_kept_waiting_by_an_image_that_nobody_builds() {
    let mut world = at(|action| *action == Action::Provision);
    world.converge();
    world.edit(|spec| spec.image = None);
    world.until(|action| matches!(action, Action::Deprovision { .. }));
    world.boot_image.as_mut().unwrap().status = None;
    assert!(matches!(world.decide(), Step::Change(_)), "it waits for the image");
    world.delete();
    assert_eq!(world.decide(), Step::Act(Action::Deprovision { clean: true, empty: false, restart: false }));
}

#[test]
fn an_image_that_is_being_deleted_is_used_while_it_is_held() {
    let mut world = at(|action| matches!(action, Action::Inspect { .. }));
    let now = world.now;
    let image = world.boot_image.as_mut().unwrap();
    image.metadata.deletion_timestamp = Some(api::Time(now));
    assert!(image.metadata.finalizers.as_ref().is_some_and(|held| held[0] == finalizer::BOOT_IMAGE));
    assert!(matches!(world.decide(), Step::Act(Action::Inspect { .. })));
    for finalizers in [None, Some(Vec::new())] {
        let held = std::mem::replace(&mut world.boot_image.as_mut().unwrap().metadata.finalizers, finalizers);
        assert!(matches!(world.decide(), Step::Change(_)), "nothing keeps it");
        world.boot_image.as_mut().unwrap().metadata.finalizers = held;
    }
    for url in [None, Some(String::new())] {
        world.boot_image.as_mut().unwrap().status.as_mut().unwrap().image_url = url;
        assert!(matches!(world.decide(), Step::Change(_)), "it is nowhere");
    }
}

#[test]
fn a_condition_says_why_a_host_is_not_managed() {
    let mut world = World::new();
    let bmc = world.host.spec.bmc.take();
    world.converge();
    assert!(message(&world, "Manageable").starts_with("The host has no BMC details"));
    world.edit(|spec| spec.bmc = bmc);
    world.step();
    assert_eq!((world.state(), world.condition("Manageable").1.as_str()), (State::Registering, "Registering"));
    assert_eq!(message(&world, "Manageable"), "Access to the BMC is being checked");
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, "");
    world.converge();
    assert!(message(&world, "Manageable").starts_with("The host is detached"));
    let world = restored(&json!({"provisioning": {"state": "available", "ID": ""}}));
    assert_eq!(message(&world, "Manageable"), "The host is not registered");
    assert_eq!(world.condition("Manageable"), ("False".to_owned(), "NotManaged".to_owned()));
}

#[test]
fn a_condition_says_what_is_on_the_host_and_what_failed_to_come() {
    let world = restored(&json!({"provisioning": {"state": "provisioned", "ID": "x"}}));
    assert_eq!(message(&world, "Provisioned"), "The host is provisioned");
    assert_eq!(message(&World::at_rest(Some(URL)), "Provisioned"), format!("The host is provisioned with {URL}"));
    let broke = |count: u32| {
        let status = json!({"provisioning": {"state": "available", "ID": "x"}, "errorType": "provisioning error",
            "errorMessage": "it broke", "operationalStatus": "error", "provisioningFailCount": count});
        message(&restored(&status), "Provisioned")
    };
    assert_eq!(broke(0), "The host is available");
    assert_eq!(broke(2), "The host is available; failed attempts: 2; the last attempt failed: it broke");
}

/// In the states that a host passes, what its conditions say of it.
#[test]
fn each_state_has_its_words() {
    let work = [
        ("registering", "Registering", "Access to the BMC is being checked"),
        ("inspecting", "Inspecting", "The hardware is being inspected"),
        ("match profile", "Inspecting", "The hardware is being inspected"),
        ("preparing", "Preparing", "The host is being prepared"),
        ("provisioning", "Provisioning", "The image is being written"),
        ("deprovisioning", "Deprovisioning", "What was provisioned is being removed"),
        ("available", "NotProgressing", "Nothing is under way"),
        ("ready", "NotProgressing", "Nothing is under way"),
        ("provisioned", "NotProgressing", "Nothing is under way"),
        ("externally provisioned", "NotProgressing", "Nothing is under way"),
    ];
    for (state, reason, text) in work {
        let world = restored(&json!({"provisioning": {"state": state, "ID": "x"}}));
        assert_eq!(world.state().as_str(), state);
        assert_eq!(
            (world.condition("Progressing").1, message(&world, "Progressing")),
            (reason.to_owned(), text.to_owned())
        );
        let is_provisioned = state.ends_with("provisioned");
        assert_eq!(world.condition("Ready").0, if is_provisioned { "True" } else { "False" }, "{state}");
        if !is_provisioned {
            assert_eq!(message(&world, "Ready"), format!("The host is {state}"));
        }
    }
    let mut world = World::at_rest(None);
    world.delete();
    for (state, reason, text) in [
        (
            State::PoweringOffBeforeDelete,
            "PoweringOffBeforeDelete",
            "The host is being powered off before it is deleted",
        ),
        (State::Deleting, "Deleting", "The host is being let go"),
    ] {
        assert!(world.run_until(|world| world.state() == state));
        assert_eq!(
            (world.condition("Progressing").1, message(&world, "Progressing")),
            (reason.to_owned(), text.to_owned())
        );
    }
}

#[test]
fn a_delay_says_what_is_waited_for_and_an_old_message_nothing() {
    let said = |operational: &str, text: &str| {
        let status = json!({"provisioning": {"state": "preparing", "ID": "x"}, "operationalStatus": operational,
            "errorMessage": text});
        message(&restored(&status), "Progressing")
    };
    assert_eq!(said("delayed", "all places are taken"), "Delayed: all places are taken");
    assert_eq!(said("delayed", ""), "The host is being prepared");
    assert_eq!(said("OK", "left behind"), "The host is being prepared");
}

#[test]
fn the_time_of_the_next_attempt_is_that_of_the_error_it_stands_with() {
    let mut world = on_its_way(State::Inspecting);
    world.fail("No agent reported");
    assert!(message(&world, "Progressing").starts_with("The next attempt is at "));
    let change = world.conclude(&Action::Inspect { restart: true }, Outcome::Blocked { message: "no Secret".into() });
    world.apply(change);
    assert_eq!(message(&world, "Progressing"), "Waiting: no Secret");
}

#[test]
fn a_data_image_that_is_kept_stays_with_a_host_that_has_nothing_on_it() {
    let mut world = World::at_rest(None);
    let mut image: api::metal3::DataImage = crate::kit::created(api::metal3::DataImage::new);
    image.metadata.finalizers = Some(vec![finalizer::DATA_IMAGE.into()]);
    world.data_image = Some(image);
    assert_eq!(world.decide(), Step::Act(Action::ReadPower));
    world.data_image.as_mut().unwrap().metadata.deletion_timestamp = Some(api::Time(world.now));
    assert!(matches!(world.decide(), Step::Change(change) if change.children == [ChildWrite::ReleaseDataImage]));
}

#[test]
fn firmware_that_was_read_too_late_says_nothing() {
    let mut world = on_its_way(State::Inspecting);
    world.settings.served.firmware_settings = true;
    for outcome in [Outcome::Firmware(Box::new(world.facts())), failed("The BMC has no Bios")] {
        let late = world.conclude(&Action::RefreshFacts, outcome);
        assert!(late.is_empty(world.host.status.as_ref()), "{late:?}");
    }
}

#[test]
fn a_detached_host_is_registered_again_before_it_is_emptied() {
    let mut world = World::at_rest(Some(URL));
    world.annotate(annotation::DETACHED, DELAY);
    world.converge();
    world.delete();
    world.unannotate(annotation::DETACHED);
    assert!(matches!(world.decide(), Step::Act(Action::Register { .. })), "{:?}", world.decide());
}

#[test]
fn an_annotation_that_is_not_understood_keeps_whatever_may_be_lost() {
    let unclear = r#"{"force":"yes"}"#;
    // One that is known, and cannot be reached; and one that can be reached, and is not known.
    let mut known = World::at_rest(Some(URL));
    known.secret = Secret::Missing;
    let new = on_its_way(State::Registering);
    for (mut world, kept) in [(known, true), (new, true)] {
        let state = world.state();
        world.annotate(annotation::DETACHED, unclear);
        world.delete();
        world.converge();
        assert_eq!((world.state(), !world.gone), (state, kept));
        assert!(world.status().error_message.contains("its force is"), "{:?}", world.status());
    }
    let mut world = on_its_way(State::Registering);
    world.secret = Secret::Missing;
    world.annotate(annotation::DETACHED, unclear);
    world.delete();
    world.converge();
    assert!(world.gone, "there is nothing to lose");
}

/// A host that is being deleted, with this status.
fn deleting(status: &Value) -> World {
    let mut world = restored(status);
    world.host.metadata.finalizers = Some(vec![finalizer::HOST.into()]);
    world.delete();
    world
}

#[test]
fn a_host_that_nobody_knows_and_nobody_reaches_goes_at_once() {
    for (secret, state) in [(Secret::Missing, State::Deleting), (Secret::Version(1), State::PoweringOffBeforeDelete)] {
        let mut world = deleting(&json!({"provisioning": {"state": "preparing", "ID": ""}}));
        world.secret = secret;
        world.step();
        assert_eq!(world.state(), state);
    }
}

#[test]
fn a_deletion_gives_up_on_the_access_after_the_fourth_failure() {
    for (count, gives_up) in [(3, false), (4, true), (5, true)] {
        for kind in ["registration error", "power management error"] {
            let mut world =
                deleting(&json!({"provisioning": {"state": "deprovisioning", "ID": "x"}, "errorType": kind,
                "errorMessage": "dead", "operationalStatus": "error", "errorCount": count}));
            world.step_with(|_, _| Outcome::Working { look_again: Duration::from_secs(5) });
            let gone_on = gives_up && kind == "registration error";
            assert_eq!(world.state() == State::Deleting, gone_on, "{kind} {count}");
            assert_eq!(world.events.contains(&"DeletionGaveUp"), gone_on, "{kind} {count}: {:?}", world.events);
        }
    }
}

#[test]
fn a_machine_that_is_not_known_is_not_diagnosed() {
    let mut world = World::new();
    world.settings.served.diagnose = true;
    world.host.spec.bmc = None;
    world.converge();
    world.annotate(annotation::DIAGNOSE, "");
    world.converge();
    assert_eq!((world.state(), world.calls.len()), (State::Unmanaged, 0));
    let mut world = World::at_rest(None);
    world.settings.served.diagnose = true;
    world.host.status.as_mut().unwrap().provisioning.state = State::Deleting;
    world.annotate(annotation::DIAGNOSE, "");
    assert!(matches!(world.decide(), Step::Change(change) if change.next == Next::Wait));
}

#[test]
fn rounds_of_the_same_work_begin_in_seconds_of_their_own() {
    let begun = |world: &World| match world.decide() {
        Step::Change(change) => change.status.operation_history.inspect.start.clone().unwrap().0,
        Step::Act(action) => panic!("{action:?}"),
    };
    let mut world = World::at_rest(None);
    let first = world.status().operation_history.inspect.start.unwrap().0;
    for round in 1..4 {
        world.annotate(annotation::INSPECT, "");
        assert_eq!(begun(&world), first + Duration::from_secs(round));
        world.converge();
    }
    world.annotate(annotation::INSPECT, "");
    for later in [4500, 5500, 60_000] {
        let mut world = World { now: world.now, ..World { host: world.host.clone(), ..World::at_rest(None) } };
        world.pass(Duration::from_millis(later));
        assert_eq!(begun(&world), world.now, "{later}");
    }
    let mut world = World::at_rest(Some(URL));
    assert_eq!(world.status().operation_history.deprovision.start, None);
    world.edit(|spec| spec.image = None);
    world.step();
    assert!(world.status().operation_history.deprovision.start.is_some());
}

#[test]
fn an_error_that_is_over_leaves_a_service_only_where_there_was_one() {
    let mut world = World::at_rest(Some(URL));
    world.settings.served.service = true;
    world.until(|action| *action == Action::ReadPower);
    world.fail("Nothing answers");
    assert!(world.run_until(|world| !world.in_error()));
    assert_eq!(world.status().operational_status, OperationalStatus::Ok);
    let serviced = json!({"provisioning": {"state": "provisioned", "ID": "x"}, "operationalStatus": "servicing"});
    for service in [false, true] {
        let mut world = restored(&serviced);
        world.host.spec.image = None;
        world.settings.served.service = service;
        world.until(registers);
        world.fail("Nothing answers");
        assert!(world.run_until(|world| !world.in_error()));
        let expected = if service { OperationalStatus::Servicing } else { OperationalStatus::Ok };
        assert_eq!(world.status().operational_status, expected);
    }
}

#[test]
fn an_address_may_change_while_the_host_is_let_go_before_or_after() {
    let host = |status: Value, address: &str| -> BareMetalHost {
        let mut host = new_host();
        host.status = Some(serde_json::from_value(status).unwrap());
        host.spec.bmc.as_mut().unwrap().address = address.into();
        host
    };
    let (one, other) = ("redfish://192.0.2.1/a", "redfish://192.0.2.2/a");
    let rest = json!({"provisioning": {"state": "provisioned"}});
    for free in [json!({"provisioning": {"state": "registering"}}), json!({"operationalStatus": "detached"})] {
        for (before, after) in [(&free, &free), (&free, &rest), (&rest, &free)] {
            let found = review(&host(after.clone(), other), Some(&host(before.clone(), one)), &Served::default(), None);
            assert_eq!(found.denials, [""; 0], "{before} {after}");
        }
    }
    let found = review(&host(rest.clone(), other), Some(&host(rest, one)), &Served::default(), None);
    assert!(found.denials.len() == 1 && found.denials[0].starts_with("spec.bmc.address is"), "{:?}", found.denials);
}

#[test]
fn a_failure_says_when_the_work_is_tried_again() {
    let after_change = || Outcome::Failed { message: "no such disk".into(), retry: Retry::AfterChange };
    let mut world = on_its_way(State::Inspecting);
    world.step_with(|_, _| after_change());
    assert_eq!(world.next, Next::Wait);
    let mut world = World::at_rest(Some(URL));
    world.delete();
    world.until(|action| matches!(action, Action::Deprovision { .. }));
    for failure in 1..=4 {
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        let outcome = if failure % 2 == 0 { after_change() } else { Outcome::Blocked { message: "no Secret".into() } };
        world.step_with(|_, _| outcome);
        assert_eq!((world.status().error_count, world.next == Next::Now), (failure, failure == 4), "{:?}", world.next);
    }
}

fn full() -> Outcome {
    Outcome::Busy { message: "all places are taken".into(), look_again: Duration::from_secs(5) }
}

fn works() -> Outcome {
    Outcome::Working { look_again: Duration::from_secs(5) }
}

/// Inspecting, with this error.
fn inspecting_with(error: Option<ErrorType>) -> World {
    let mut world = on_its_way(State::Inspecting);
    let status = world.host.status.as_mut().unwrap();
    status.error_type = error;
    if error.is_some() {
        status.operational_status = OperationalStatus::Error;
        status.error_message = "it broke".into();
    }
    world
}

#[test]
fn a_delay_supersedes_the_error_of_the_work_that_is_delayed_and_no_other() {
    let inspect = Action::Inspect { restart: false };
    for (error, delayed) in [(None, true), (Some(ErrorType::Inspection), true), (Some(ErrorType::Registration), false)]
    {
        let mut world = inspecting_with(error);
        let change = world.conclude(&inspect, full());
        assert_eq!(change.events.len(), usize::from(delayed), "{error:?}");
        world.apply(change);
        let (operational, text) = if delayed {
            (OperationalStatus::Delayed, "all places are taken")
        } else {
            (OperationalStatus::Error, "it broke")
        };
        let status = world.status();
        assert_eq!((status.operational_status, status.error_message.as_str()), (operational, text), "{error:?}");
        // When it is its turn nothing is left of the delay.
        let change = world.conclude(&inspect, works());
        let (operational, text) =
            if delayed { (OperationalStatus::Ok, "") } else { (OperationalStatus::Error, "it broke") };
        assert_eq!((change.status.operational_status, change.status.error_message.as_str()), (operational, text));
    }
    let mut world = inspecting_with(Some(ErrorType::Registration));
    world.host.status.as_mut().unwrap().operational_status = OperationalStatus::Delayed;
    let change = world.conclude(&inspect, works());
    assert_eq!(change.status.operational_status, OperationalStatus::Error);
}

#[test]
fn work_that_goes_on_ends_its_own_error_and_a_block_of_the_deletion() {
    for (error, of_a_deletion, ends) in [
        (ErrorType::Provisioning, true, true),
        (ErrorType::Provisioning, false, true),
        (ErrorType::Registration, true, true),
        (ErrorType::Registration, false, false),
        (ErrorType::PowerManagement, true, false),
        (ErrorType::PowerManagement, false, false),
    ] {
        let mut world = World::at_rest(Some(URL));
        world.edit(|spec| spec.image = None);
        world.until(|action| matches!(action, Action::Deprovision { .. }));
        world.host.status.as_mut().unwrap().error_type = Some(error);
        if of_a_deletion {
            world.delete();
        }
        let change = world.conclude(&Action::Deprovision { clean: true, empty: false, restart: false }, works());
        assert_eq!(change.status.error_type, (!ends).then_some(error), "{error:?} {of_a_deletion}");
    }
}

#[test]
fn an_image_that_is_asked_for_already_is_not_asked_for_again() {
    let mut world = at(|action| matches!(action, Action::Inspect { .. }));
    let asked = |world: &World| world.conclude(&Action::Inspect { restart: false }, Outcome::NeedsImage).children.len();
    assert_eq!(asked(&world), 0);
    world.boot_image.as_mut().unwrap().spec.network_data_name = Some("another".into());
    assert_eq!(asked(&world), 1);
}

#[test]
fn a_registration_that_asks_for_a_registration_has_failed() {
    let mut world = World::new();
    world.until(registers);
    world.step_with(|_, _| Outcome::NeedsRegistration);
    assert_eq!(world.status().error_type, Some(ErrorType::Registration));
    assert!(world.status().error_message.contains("which does not fit registration"), "{:?}", world.status());
}

#[test]
fn an_inspection_uses_up_both_annotations_that_asked_for_it() {
    let mut world = on_its_way(State::Inspecting);
    world.annotate(annotation::INSPECT, "");
    world.annotate(annotation::REBOOT, FORCE);
    world.step_with(|_, _| Outcome::Accepted { look_again: Duration::from_secs(5) });
    assert!(!world.annotated(annotation::INSPECT) && !world.annotated(annotation::REBOOT));
}

#[test]
fn a_service_is_complete_when_what_is_allowed_is_there() {
    use api::metal3::{HostUpdatePolicy, UpdatePolicy};
    let served = Served { firmware_settings: true, firmware_updates: true, service: true, ..Served::default() };
    let mut base = World::new();
    base.settings.served = served;
    base.host.spec.image = Some(image(URL));
    base.converge();
    base.wish_setting("LogicalProc", "Disabled");
    base.wish_update("bios", "https://firmware.example/bios-2");
    base.pass(Duration::from_secs(600));
    base.converge();
    base.host.status.as_mut().unwrap().operational_status = OperationalStatus::Servicing;
    let (settings, components) = (base.firmware_settings.clone().unwrap(), base.firmware_components.clone().unwrap());
    let set = |conditions: &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
               (valid, changed): (bool, bool)| {
        for condition in conditions {
            let value = if condition.type_ == "Valid" { valid } else { changed };
            condition.status = if value { "True" } else { "False" }.into();
        }
    };
    // No wish, or what its conditions Valid and ChangeDetected say.
    let wishes = [None, Some((true, false)), Some((true, true)), Some((false, false)), Some((false, true))];
    let reboots = Some(UpdatePolicy::OnReboot);
    let policies = [None, Some((None, None)), Some((reboots, None)), Some((None, reboots)), Some((reboots, reboots))];
    for (of_settings, of_updates) in wishes.into_iter().flat_map(|one| wishes.map(|other| (one, other))) {
        for policy in policies {
            let (mut settings, mut components) = (settings.clone(), components.clone());
            match of_settings {
                Some(said) => set(&mut settings.status.as_mut().unwrap().conditions, said),
                None => settings.spec.settings.clear(),
            }
            match of_updates {
                Some(said) => set(&mut components.status.as_mut().unwrap().conditions, said),
                None => components.spec.updates.clear(),
            }
            let policy_object = policy.map(|(of_settings, of_updates)| {
                let mut object: HostUpdatePolicy = crate::kit::created(HostUpdatePolicy::new);
                (object.spec.firmware_settings, object.spec.firmware_updates) = (of_settings, of_updates);
                object
            });
            let world = World {
                host: base.host.clone(),
                firmware_settings: Some(settings),
                firmware_components: Some(components),
                update_policy: policy_object,
                settings: base.settings.clone(),
                ..World::new()
            };
            let allowed = |policy: Option<UpdatePolicy>, said: Option<(bool, bool)>| said.filter(|_| policy == reboots);
            // One that is gone by now had allowed something.
            let (one, other) = policy.map_or((of_settings, of_updates), |(one, other)| {
                (allowed(one, of_settings), allowed(other, of_updates))
            });
            let there = |said: &(bool, bool)| *said == (true, false);
            let complete = one.iter().chain(&other).any(there) && one.iter().chain(&other).all(there);
            let change = world.conclude(&Action::Service { targets: Box::default(), restart: false }, Outcome::Done);
            let reasons: Vec<_> = change.events.iter().map(|event| event.reason).collect();
            let expected = if complete { "ServicingComplete" } else { "ServicingEnded" };
            // What differs and is valid may be taken: then it is read first.
            if !reasons.is_empty() {
                assert_eq!(reasons, [expected], "{of_settings:?} {of_updates:?} {policy:?}");
            }
            assert!(!complete || !reasons.is_empty(), "{of_settings:?} {of_updates:?} {policy:?}");
        }
    }
}

#[test]
fn what_was_read_is_old_when_its_time_has_passed_and_not_before() {
    for (later, old) in [(0, false), (300_000, false), (300_001, true)] {
        let mut world = World::new();
        world.settings.served.firmware_settings = true;
        world.converge();
        world.calls.clear();
        world.firmware_read = None;
        let read = world.firmware_settings.as_ref().unwrap().status.as_ref().unwrap().last_updated.clone().unwrap().0;
        world.now = read + Duration::from_millis(later);
        let decided = world.decide();
        assert_eq!(decided == Step::Act(Action::RefreshFacts), old, "{later}: {decided:?}");
    }
}

#[test]
fn a_host_in_use_is_not_read_again_and_again() {
    for (settings, components) in [(true, false), (false, true), (true, true)] {
        let mut world = World::new();
        let served = &mut world.settings.served;
        (served.firmware_settings, served.firmware_components) = (settings, components);
        world.host.spec.image = Some(image(URL));
        world.converge();
        assert!(world.run_until(|world| world.firmware_read.is_some() && world.next != Next::Now));
        world.pass(Duration::from_secs(61));
        assert_eq!(world.decide(), Step::Act(Action::ReadPower), "{settings} {components}");
        world.pass(Duration::from_secs(300));
        assert_eq!(world.decide(), Step::Act(Action::RefreshFacts), "{settings} {components}");
    }
}

#[test]
fn of_each_component_the_last_update_counts_as_made() {
    let mut world = World::new();
    world.settings.served.firmware_updates = true;
    world.converge();
    for (component, version) in [("bios", "2"), ("nic:eth0", "7"), ("bios", "3")] {
        world.firmware_components.as_mut().unwrap().spec.updates.clear();
        world.wish_update(component, &format!("https://firmware.example/{version}"));
        world.converge();
    }
    let made = world.firmware_components.unwrap().status.unwrap().updates;
    let made: Vec<_> = made.iter().map(|update| update.url.rsplit('/').next().unwrap()).collect();
    assert_eq!(made, ["7", "3"]);
}

#[test]
fn a_host_that_is_to_be_prepared_waits_for_what_it_cannot_be_read() {
    for (url, kind) in [(None, Some(ErrorType::Preparation)), (Some(URL), None)] {
        let mut world = World::new();
        (world.settings.served.firmware_settings, world.settings.served.service) = (true, true);
        world.host.spec.image = url.map(image);
        world.converge();
        let change = world.conclude(&Action::RefreshFacts, failed("The BMC has no Bios"));
        assert_eq!(change.status.error_type, kind);
        assert_eq!(change.events[0].reason == "FirmwareUnread", kind.is_none(), "{:?}", change.events);
    }
}

#[test]
fn facts_that_no_machine_has_are_a_failure() {
    use api::metal3::{FirmwareComponent, SettingSchema};
    use host_lifecycle::{FirmwareFacts, FirmwareSetting};
    let mut world = World::new();
    (world.settings.served.firmware_settings, world.settings.served.firmware_updates) = (true, true);
    world.converge();
    let fault = |facts: FirmwareFacts| {
        let status = world.conclude(&Action::RefreshFacts, Outcome::Firmware(Box::new(facts))).status;
        status.error_type.map(|_| status.error_message)
    };
    let setting = |value: &str, allowed: &[String]| FirmwareSetting {
        value: value.into(),
        schema: SettingSchema { allowable_values: allowed.to_vec(), ..SettingSchema::default() },
    };
    let settings = |all: Vec<(String, FirmwareSetting)>| FirmwareFacts {
        settings: Some(all.into_iter().collect()),
        components: vec![],
    };
    let component = |name: &str, version: &str| FirmwareComponent {
        component: name.into(),
        initial_version: version.into(),
        ..FirmwareComponent::default()
    };
    let components = |all: Vec<FirmwareComponent>| FirmwareFacts { components: all, ..FirmwareFacts::default() };
    let long = "x".repeat(1025);
    let most = &long[1..];
    for (count, said) in [(4096, false), (4097, true)] {
        let many = (0..count).map(|number| (format!("S{number}"), setting("", &[]))).collect();
        let found = fault(settings(many));
        assert_eq!(found.is_some_and(|text| text.contains("more than 4096 settings")), said, "{count}");
        let found = fault(components((0..count).map(|number| component(&format!("nic:{number}"), "1")).collect()));
        assert_eq!(found.is_some_and(|text| text.contains("more than 4096 settings")), said, "{count}");
    }
    for (text, said) in [(most, false), (long.as_str(), true)] {
        let flashed = FirmwareComponent { last_version_flashed: Some(text.into()), ..component("bios", "1") };
        let current = FirmwareComponent { current_version: Some(text.into()), ..component("bios", "1") };
        for facts in [
            settings(vec![(text.to_owned(), setting("", &[]))]),
            settings(vec![("S".to_owned(), setting(text, &[]))]),
            settings(vec![("S".to_owned(), setting("", &["a".to_owned(), text.to_owned()]))]),
            settings(vec![("S".to_owned(), setting("", &[text.to_owned(), "a".to_owned()]))]),
            components(vec![component(text, "1")]),
            components(vec![component("bios", text)]),
            components(vec![flashed]),
            components(vec![current]),
        ] {
            let found = fault(facts.clone());
            assert_eq!(found.is_some_and(|text| text.contains("longer than 1024 bytes")), said, "{facts:?}");
        }
    }
    // 768 names of four bytes with values of 1020 each.
    let much = |first: &str| {
        let other = (1..768).map(|number| (format!("S{number:03}"), setting(&most[4..], &[])));
        settings([("S000".to_owned(), setting(first, &[]))].into_iter().chain(other).collect())
    };
    assert_eq!(fault(much(&most[4..])), None);
    assert!(fault(much(&most[3..])).is_some_and(|text| text.contains("of more than 786432 bytes")));
}
