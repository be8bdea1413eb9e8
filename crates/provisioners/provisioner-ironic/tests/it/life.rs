//! Stories that the kit does not know of: what is Ironic's own.

use std::sync::Arc;

use api::metal3::{DiskFormat, Image};
use api::metamorph::ProvisionerRecord;
use provisioner::{
    AdoptRequest, Answer, Call, Cause, CleaningRequest, ConfigDrive, Deployed, InspectRequest, Method as How,
    PowerWish, PrepareRequest, ProvisionRequest, Record as _, RecordContent, RegisterRequest, ReleaseRequest, Retry,
    Setting, Subscription, Unsubscription, Verdict, Waiting,
};
use provisioner_ironic::{Method, Request, Site, Transport, recorded_on_machine};
use provisioner_kit::Trail;
use provisioning_plan::in_use::{Recorded, Runs};
use serde_json::{Value, json};

use crate::conformance::facts;
use crate::guards::theirs;
use crate::host::Host;
use crate::scripted::Scripted;

pub fn both() -> (Scripted, Host) {
    let ironic = Scripted::new(Trail::default());
    let host = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    (ironic, host)
}

fn image() -> Image {
    let (url, checksum) = ("http://192.0.2.9/a.raw".to_owned(), Some("ab".to_owned()));
    Image { url, checksum, format: Some(DiskFormat::Raw), ..Image::default() }
}

pub fn provision(method: How) -> Call {
    let drive = ConfigDrive {
        meta_data: r#"{"name": "a"}"#.into(),
        network_data: None,
        user_data: Some("#cloud-config".into()),
    };
    Call::Provision(Box::new(ProvisionRequest {
        wish: Some("w".into()),
        attempt: 1,
        method,
        image: image(),
        config_drive: Some(drive),
        ..ProvisionRequest::default()
    }))
}

pub fn deployed() -> Deployed {
    Deployed { image: Some(image()), ..Deployed::default() }
}

pub fn orders(ironic: &Scripted) -> Vec<String> {
    let world = ironic.world.lock().unwrap();
    let targets = world.bodies.iter().filter(|(path, _)| path == "provision");
    targets.map(|(_, body)| body["target"].as_str().unwrap().to_owned()).collect()
}

/// What somebody else asks of Ironic.
pub async fn other(ironic: &Scripted, method: Method, path: &str, body: Value) {
    let request = Request { method, path: path.into(), version: Some(110), body: Some(body) };
    let answer = ironic.send(&request).await.unwrap();
    assert!(answer.status < 300, "{path}: {answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_made_as_baremetal_operator_makes_it() {
    let (ironic, mut host) = both();
    host.facts.boot_mac = Some("52:54:00:AA:00:01".into());
    host.facts.architecture = Some("x86_64".into());
    let Answer::Registered(registered) = host.register().await.unwrap() else { panic!() };
    assert_eq!(registered.id, ironic.field("uuid"));
    let expected = [
        ("name", json!("ns~node-0")),
        ("driver", json!("redfish")),
        ("boot_interface", json!("redfish-virtual-media")),
        ("raid_interface", json!("redfish")),
        ("firmware_interface", json!("redfish")),
        ("inspect_interface", json!("agent")),
        ("bios_interface", Value::Null),
        ("properties", json!({"capabilities": "boot_mode:uefi", "cpu_arch": "x86_64"})),
        ("automated_clean", json!(false)),
        (
            "driver_info",
            json!({"redfish_address": "https://192.0.2.7", "redfish_system_id": "/redfish/v1/Systems/1", "redfish_username": "u",
                "redfish_password": "p", "redfish_verify_ca": false}),
        ),
    ];
    for (field, value) in expected {
        assert_eq!(ironic.field(field), value, "{field}");
    }
    let ports = ironic.world.lock().unwrap().ports.clone();
    assert_eq!(ports, [("52:54:00:aa:00:01".to_owned(), registered.id.clone())]);
    // Asked again, nothing is changed, and the password is not sent.
    let before = ironic.world.lock().unwrap().log.len();
    host.register().await.unwrap();
    let again: Vec<_> = ironic.world.lock().unwrap().log.split_off(before);
    assert!(again.iter().all(|(method, ..)| *method == "GET"), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_the_same_name_at_another_bmc_is_not_taken() {
    let (ironic, mut host) = both();
    let theirs = json!({"uuid": "0a0a0a0a-0000-4000-8000-000000000001", "name": "ns~node-0", "driver": "redfish",
        "driver_info": {"redfish_address": "https://192.0.2.99"}});
    other(&ironic, Method::Post, "/v1/nodes", theirs.clone()).await;
    let failure = host.register().await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
    assert!(failure.message.contains("ns~node-0") && failure.message.contains("another BMC"), "{failure}");
    assert_eq!((ironic.field("driver_info"), ironic.state().as_str()), (theirs["driver_info"].clone(), "enroll"));
}

#[tokio::test(start_paused = true)]
async fn a_node_with_the_hosts_mac_address_is_not_taken_if_somebody_has_named_it() {
    let (ironic, mut host) = both();
    let uuid = "0a0a0a0a-0000-4000-8000-000000000001";
    other(&ironic, Method::Post, "/v1/nodes", json!({"uuid": uuid, "name": "theirs", "driver": "redfish"})).await;
    other(&ironic, Method::Post, "/v1/ports", json!({"node_uuid": uuid, "address": "52:54:00:00:00:01"})).await;
    host.facts.boot_mac = Some("52:54:00:00:00:01".into());
    let failure = host.register().await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine);
    assert!(failure.message.contains("\"theirs\""), "{failure}");
    // One that Ironic has found by itself is.
    ironic.world.lock().unwrap().node.as_mut().unwrap().insert("name".into(), Value::Null);
    host.register().await.unwrap();
    assert_eq!((ironic.field("name"), ironic.field("uuid")), (json!("ns~node-0"), json!(uuid)));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_runs_a_system_which_the_host_does_not_have_is_not_taken() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.drive(Call::Adopt(AdoptRequest { deployed: deployed(), restart: false })).await.unwrap();
    // Another host of that name, declared anew, without a record.
    let mut anew = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    anew.facts.key.uid = "another-uid".into();
    let failure = anew.register().await.unwrap_err();
    assert_eq!(failure.cause, Cause::MachineInUse, "{failure}");
    assert_eq!(ironic.state(), "active");
    // With its status it is.
    let request = RegisterRequest { deployed: deployed(), ..RegisterRequest::default() };
    anew.drive(Call::Register(request)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_database_what_is_provisioned_is_adopted_and_nothing_is_wiped() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.drive(provision(How::Disk)).await.unwrap();
    let id = host.facts.provisioning_id.clone();
    ironic.world.lock().unwrap().node = None;
    ironic.world.lock().unwrap().bodies.clear();
    // What was listed a moment ago still counts.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let answer = host.look(Call::PowerState).await.unwrap();
    assert!(matches!(answer, Verdict::Waiting(Waiting::Registration { .. })), "{answer:?}");
    let request = RegisterRequest { deployed: deployed(), ..RegisterRequest::default() };
    host.drive(Call::Register(request)).await.unwrap();
    assert_eq!(host.facts.provisioning_id, id);
    assert_eq!(ironic.field("uuid"), json!(id), "the node has its id again");
    host.drive(Call::Adopt(AdoptRequest { deployed: deployed(), restart: false })).await.unwrap();
    assert_eq!(orders(&ironic), ["manage", "adopt"]);
    assert_eq!(ironic.field("instance_info")["image_source"], "http://192.0.2.9/a.raw");
    assert_eq!(ironic.state(), "active");
}

#[tokio::test(start_paused = true)]
async fn each_method_is_ordered_as_baremetal_operator_does() {
    for (method, interface, has_drive) in [
        (How::Disk, "direct", true),
        (How::LiveIso, "ramdisk", false),
        (How::Custom("install".into()), "custom-agent", true),
    ] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        host.drive(provision(method.clone())).await.unwrap();
        assert_eq!(ironic.field("deploy_interface"), interface);
        let world = ironic.world.lock().unwrap();
        let (_, order) = world.bodies.iter().find(|(_, body)| body["target"] == "active").unwrap();
        assert_eq!(order.get("configdrive").is_some(), has_drive, "{order}");
        let steps = order.get("deploy_steps").cloned();
        let expected = json!([{"interface": "deploy", "step": "install", "args": {}, "priority": 80}]);
        assert_eq!(steps, (method != How::Disk && method != How::LiveIso).then_some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_cleaned_when_it_is_deprovisioned_and_not_when_that_is_not_wished() {
    for clean in [true, false] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        host.drive(provision(How::Disk)).await.unwrap();
        let wish = Some("d".to_owned());
        let request = CleaningRequest { wish, deployed: deployed(), clean, ..CleaningRequest::default() };
        let Answer::Deprovisioned(done) = host.drive(Call::Deprovision(Box::new(request))).await.unwrap() else {
            panic!()
        };
        assert_eq!((done.wiped, done.untouched), (clean, false));
        assert_eq!(ironic.field("automated_clean"), json!(clean));
        assert_eq!(ironic.state(), "available");
    }
}

#[tokio::test(start_paused = true)]
async fn a_locked_node_is_asked_again_after_some_seconds_and_nothing_fails() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    ironic.world.lock().unwrap().log.clear();
    let begun = tokio::time::Instant::now();
    for _ in 0..20 {
        ironic.world.lock().unwrap().trouble.refusing = true;
        let answer = host.look(provision(How::Disk)).await.unwrap();
        let Verdict::Working(working) = answer else { panic!("{answer:?}") };
        assert!(working.look_again.as_secs() >= 3, "{working:?}");
        tokio::time::sleep(working.look_again).await;
    }
    let calls = ironic.world.lock().unwrap().log.len() as u64;
    assert!(calls <= 2 * begun.elapsed().as_secs(), "{calls} calls in {:?}", begun.elapsed());
    ironic.world.lock().unwrap().trouble.refusing = false;
    host.drive(provision(How::Disk)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_a_free_worker_no_host_orders_anything_for_a_while() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.drive(Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() })).await.unwrap();
    ironic.world.lock().unwrap().trouble.busy = true;
    ironic.world.lock().unwrap().log.clear();
    let mut times = Vec::new();
    for _ in 0..4 {
        // Asked before the time has come, too.
        for _ in 0..3 {
            let Verdict::Waiting(Waiting::Busy { look_again, .. }) = host.look(provision(How::Disk)).await.unwrap()
            else {
                panic!()
            };
            times.push(look_again);
        }
        tokio::time::sleep(*times.last().unwrap()).await;
    }
    let refused = ironic.world.lock().unwrap().log.iter().filter(|(_, _, status)| *status == 503).count();
    assert_eq!(refused, 4, "one a time");
    assert!(times[9] > times[0] * 4, "{times:?}");
    ironic.world.lock().unwrap().trouble.busy = false;
    host.drive(provision(How::Disk)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn looks_of_hosts_at_rest_cost_one_list_for_all_and_those_of_one_its_node() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let (node, mut second) =
        (theirs("ns~node-1", "https://192.0.2.8"), Host::new(Arc::new(ironic.clone()), Site::new("one")));
    (second.provisioner, second.now) = (Arc::clone(&host.provisioner), Arc::clone(&host.now));
    second.facts.key.uid = "another".into();
    second.facts.provisioning_id = node["uuid"].as_str().unwrap().to_owned();
    ironic.world.lock().unwrap().others.push(node);
    let pause = || tokio::time::sleep(std::time::Duration::from_secs(5));
    let asked = || std::mem::take(&mut ironic.world.lock().unwrap().log);
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    asked();
    for _ in 0..50 {
        let Verdict::Done(Answer::Power(Some(false))) = host.look(Call::PowerState).await.unwrap() else { panic!() };
        let Verdict::Done(Answer::Health(_)) = host.look(Call::Health).await.unwrap() else { panic!() };
    }
    let log = asked();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].1.ends_with(&format!("/v1/nodes/{}", host.facts.provisioning_id)), "{log:?}");
    for _ in 0..2 {
        pause().await;
        for _ in 0..50 {
            second.look(Call::PowerState).await.unwrap();
            host.look(Call::PowerState).await.unwrap();
        }
        let log = asked();
        assert_eq!(log.len(), 1, "two look: {log:?}");
        assert!(log[0].1.starts_with("/v1/nodes?fields="), "{log:?}");
    }
    // One that looks no more leaves the other by itself.
    for _ in 0..3 {
        pause().await;
        host.look(Call::PowerState).await.unwrap();
    }
    let log = asked();
    assert_eq!(log.iter().filter(|(_, path, _)| path.starts_with("/v1/nodes/")).count(), 1, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ironic_that_is_too_old_is_named_with_what_is_needed() {
    let mut ironic = Scripted::new(Trail::default());
    ironic.maximum = "1.80";
    let mut host = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    let failure = host.register().await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, Retry::Waiting));
    assert!(failure.message.contains("1.80") && failure.message.contains("1.89"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_ironic_the_server_no_longer_has_is_held() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.restart(Arc::new(ironic.clone()), Site::new("two"));
    let failure = host.look(Call::PowerState).await.unwrap_err();
    assert_eq!(failure.retry, Retry::Held);
    assert!(failure.message.contains("\"one\""), "{failure}");
    // By force it is let go, and its node stays.
    host.drive(Call::Release(ReleaseRequest { force: true })).await.unwrap();
    assert_eq!(ironic.state(), "manageable");
}

#[tokio::test(start_paused = true)]
async fn no_more_machines_boot_over_the_network_than_there_are_places() {
    let ironic = Scripted::new(Trail::default());
    let mut host = Host::new(Arc::new(ironic.clone()), Site { provisioning_limit: 0, ..Site::new("one") });
    host.facts.address = "ipmi://192.0.2.7".into();
    host.register().await.unwrap();
    let inspect = || Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() });
    let answer = host.look(inspect()).await.unwrap();
    let Verdict::Waiting(Waiting::Busy { reason, .. }) = answer else { panic!("{answer:?}") };
    assert!(reason.contains("boot over the network"), "{reason}");
    // A machine that boots from virtual media takes no place.
    let (_, mut other) = both();
    other.facts = facts("node-0");
    other.register().await.unwrap();
    other.drive(inspect()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_another_controller_began_is_gone_on_with() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.look(provision(How::Disk)).await.unwrap();
    while ironic.state() != "wait call-back" {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        host.look(provision(How::Disk)).await.unwrap();
    }
    let ordered = orders(&ironic);
    // The same host without a record, as one that comes from baremetal-operator.
    let mut anew = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    anew.facts = host.facts.clone();
    anew.drive(provision(How::Disk)).await.unwrap();
    assert_eq!(orders(&ironic), ordered, "nothing is ordered again");
}

#[tokio::test(start_paused = true)]
async fn work_that_ironic_has_lost_is_not_taken_for_done() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let mut request = PrepareRequest { wish: Some("p".into()), unprepared: true, ..PrepareRequest::default() };
    request.firmware.settings.insert("BootDelay".into(), Setting::Number(7));
    let prepare = Call::Prepare(Box::new(request));
    while ironic.state() != "clean wait" {
        host.look(prepare.clone()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    ironic.world.lock().unwrap().node = None;
    host.register().await.unwrap();
    assert_eq!(ironic.state(), "manageable", "as after the steps");
    let failure = host.look(prepare).await.unwrap_err();
    assert!(failure.cause == Cause::ProvisionerFailed && failure.message.contains("lost"), "{failure}");
}

/// What is wished instead takes no step of Ironic's: that is not done before the steps of the wish before have ended.
#[tokio::test(start_paused = true)]
async fn steps_that_are_no_longer_wished_are_ended() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let mut request = PrepareRequest { wish: Some("p".into()), unprepared: true, ..PrepareRequest::default() };
    request.firmware.settings.insert("BootDelay".into(), Setting::Number(7));
    while ironic.state() != "clean wait" {
        host.look(Call::Prepare(Box::new(request.clone()))).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    let other = PrepareRequest { wish: Some("q".into()), unprepared: true, ..PrepareRequest::default() };
    host.drive(Call::Prepare(Box::new(other))).await.unwrap();
    assert!(orders(&ironic).contains(&"abort".to_owned()), "{:?}", orders(&ironic));
    assert_eq!(ironic.state(), "manageable");
}

fn recorded(host: &Host) -> ProvisionerRecord {
    let RecordContent { provisioner: name, version, data } = host.record.current().content.unwrap();
    ProvisionerRecord { name, version, revision: 1, data }
}

/// Let go while Ironic was away, say: whoever declares the machine next, for whichever provisioner, is to know that it is in use; and when its host is deleted, that
/// anything may be on it.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_let_go_leaves_in_its_record_that_its_machine_was_somebody_elses() {
    let owner = facts("node-0").key.uid;
    for (externally, deleting, expected) in [
        (false, false, Recorded::Nothing),
        (true, false, Recorded::Runs(Runs { wish: None, owner })),
        (true, true, Recorded::Unclear),
    ] {
        let (_ironic, mut host) = both();
        host.register().await.unwrap();
        host.facts.deployed = Some(Deployed { externally, ..Deployed::default() });
        host.facts.deleting = deleting;
        host.drive(Call::Release(ReleaseRequest { force: false })).await.unwrap();
        assert_eq!(recorded_on_machine(&recorded(&host)), Some(expected));
    }
}

/// It may be let go without Ironic's word later.
#[tokio::test(start_paused = true)]
async fn a_look_leaves_in_the_record_that_the_machine_is_somebody_elses_also_while_ironic_is_away() {
    for call in [Call::PowerState, Call::SetPower(PowerWish::On.into()), Call::Adopt(AdoptRequest::default())] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        let inspect = InspectRequest { wish: Some("i".into()), ..InspectRequest::default() };
        host.drive(Call::Inspect(inspect.clone())).await.unwrap();
        host.look(Call::PowerState).await.unwrap();
        assert_eq!(recorded_on_machine(&recorded(&host)), Some(Recorded::Unused));
        host.facts.deployed = Some(Deployed { externally: true, ..Deployed::default() });
        host.facts.past.externally = true;
        ironic.world.lock().unwrap().trouble.silent = true;
        drop(host.look(call.clone()).await);
        let theirs = Recorded::Runs(Runs { wish: None, owner: host.facts.key.uid.clone() });
        assert_eq!(recorded_on_machine(&recorded(&host)), Some(theirs), "{}", call.name());
        let writes = host.record.writes().len();
        drop(host.look(call.clone()).await);
        assert_eq!(host.record.writes().len(), writes, "{}", call.name());
        // An old status that is put back has it neither booted nor cleaned.
        ironic.world.lock().unwrap().trouble.silent = false;
        host.facts.deployed = Some(Deployed { image: Some(image()), externally: true, ..Deployed::default() });
        let before = orders(&ironic);
        let again = InspectRequest { wish: Some("j".into()), ..inspect };
        let clean = CleaningRequest { deployed: deployed(), clean: true, ..CleaningRequest::default() };
        for call in [Call::Inspect(again), Call::Deprovision(Box::new(clean))] {
            let failure = host.drive(call).await.unwrap_err();
            assert_eq!(failure.cause, Cause::MachineInUse, "{failure}");
        }
        assert_eq!(orders(&ironic), before);
        // What is nobody else's any more is the host's own, since it says so.
        host.facts.past.externally = false;
        let wish = Some("2026-01-01T00:00:00Z image-a".to_owned());
        host.facts.deployed = Some(Deployed { image: Some(image()), wish: wish.clone(), ..Deployed::default() });
        host.look(Call::PowerState).await.unwrap();
        let own = Recorded::Runs(Runs { wish, owner: host.facts.key.uid.clone() });
        assert_eq!(recorded_on_machine(&recorded(&host)), Some(own), "{}", call.name());
    }
}

/// To Ironic all of a BMC's errors are the same.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_the_bmc_fails_to_show_is_neither_made_anew_nor_left_behind() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let destination = "https://events.example/".to_owned();
    let wished = Subscription { identity: "s".into(), destination: destination.clone(), ..Subscription::default() };
    let made = host.drive(Call::Subscribe(wished.clone())).await.unwrap();
    ironic.world.lock().unwrap().trouble.blind = true;
    host.drive(Call::Subscribe(wished.clone())).await.unwrap_err();
    let ends = Unsubscription { identity: "s".into(), destination, ..Unsubscription::default() };
    host.drive(Call::Unsubscribe(ends.clone())).await.unwrap_err();
    assert_eq!(ironic.world.lock().unwrap().subscriptions.len(), 1);
    ironic.world.lock().unwrap().trouble.blind = false;
    assert_eq!(host.drive(Call::Subscribe(wished.clone())).await.unwrap(), made);
    // One that is gone is made anew, and one that is gone needs no end.
    ironic.world.lock().unwrap().subscriptions.clear();
    assert_ne!(host.drive(Call::Subscribe(wished)).await.unwrap(), made);
    ironic.world.lock().unwrap().subscriptions.clear();
    host.drive(Call::Unsubscribe(ends)).await.unwrap();
}
