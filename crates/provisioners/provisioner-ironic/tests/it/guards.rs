//! A machine is touched only when it is proved to be the host's; and what Ironic does not say is not taken for its word.

use std::sync::Arc;
use std::time::Duration;

use api::metal3::CleaningMode;
use api::metamorph::MachineRecordSpec;
use inventory::MachineEvidence;
use provisioner::{
    AdoptRequest, Answer, Call, Cause, CleaningRequest, Deployed, InspectRequest, Machine as _, Method as How,
    OtherMachine, PowerRequest, PowerWish, RegisterRequest, ReleaseRequest, Retry, Verdict,
};
use provisioner_ironic::{Ironic, IronicProvisioner, Method, Request, Response, Site, Transport, TransportError};
use provisioner_kit::Trail;
use serde_json::{Value, json};

use crate::conformance::{access, facts};
use crate::host::Host;
use crate::life::{both, deployed, orders, other, provision};
use crate::scripted::Scripted;

const THEIRS: &str = "0a0a0a0a-0000-4000-8000-000000000001";

/// A node of somebody else's, at this BMC.
pub fn theirs(name: &str, address: &str) -> Value {
    json!({"uuid": THEIRS, "name": name, "provision_state": "active", "driver": "redfish", "created_at": "2026",
        "driver_info": {"redfish_address": address, "redfish_system_id": "/redfish/v1/Systems/1/"}, "target_provision_state": null,
        "provision_updated_at": null, "power_state": "power on", "target_power_state": null, "maintenance": false, "fault": null,
        "last_error": null, "reservation": null, "boot_interface": null, "deploy_interface": null, "automated_clean": null,
        "instance_uuid": null, "clean_step": {}, "deploy_step": {}, "health": null})
}

fn wish() -> String {
    "2026-01-01T00:00:00Z image-a".to_owned()
}

/// A host that has lost its status and asks for this.
fn lost(asks_for: &str) -> RegisterRequest {
    RegisterRequest { asks_for: Some(asks_for.into()), ..RegisterRequest::default() }
}

async fn provisioned() -> (Scripted, Host) {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let Call::Provision(mut request) = provision(How::Disk) else { panic!() };
    request.wish = Some(wish());
    host.drive(Call::Provision(request)).await.unwrap();
    (ironic, host)
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_copied_does_not_give_another_hosts_node_away() {
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().others.push(theirs("ns~victim", "https://192.0.2.99"));
    host.facts.provisioning_id = THEIRS.into();
    let failure = host.register().await.unwrap_err();
    assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
    assert!(failure.message.contains("ns~victim"), "{failure}");
    // Nor at the victim's BMC, under another name.
    ironic.world.lock().unwrap().others = vec![theirs("ns~victim", "https://192.0.2.7")];
    assert_eq!(host.register().await.unwrap_err().cause, Cause::AnotherMachine);
    // Nothing else is ordered of it either: the Ironic in memory panics at that.
    let clean = CleaningRequest { deployed: deployed(), clean: true, ..CleaningRequest::default() };
    for call in [provision(How::Disk), Call::Deprovision(Box::new(clean)), Call::Adopt(AdoptRequest::default())] {
        assert_eq!(host.drive(call).await.unwrap_err().cause, Cause::AnotherMachine);
    }
    for force in [false, true] {
        host.facts.provisioning_id = THEIRS.into();
        host.drive(Call::Release(ReleaseRequest { force })).await.unwrap();
    }
    assert_eq!(ironic.world.lock().unwrap().others.len(), 1, "it is left");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_bmc_moves_keeps_its_node_by_its_own_record_alone() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    host.facts.address = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1".into();
    host.register().await.unwrap();
    assert_eq!(ironic.field("driver_info")["redfish_address"], "https://192.0.2.8");
    // The record outlives its host: to another one it gives nothing.
    host.facts.key.uid = "another-uid".into();
    host.facts.address = "redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1".into();
    assert_eq!(host.register().await.unwrap_err().cause, Cause::AnotherMachine);
    assert_eq!(ironic.field("driver_info")["redfish_address"], "https://192.0.2.8");
}

#[tokio::test(start_paused = true)]
async fn no_node_is_made_beside_one_at_the_same_bmc() {
    for node in [
        theirs("rack-7", "https://192.0.2.7:443"),
        json!({"uuid": THEIRS, "name": "rack-7", "provision_state": "active", "driver_info": {"ipmi_address": "192.0.2.7", "ipmi_port": 623}}),
    ] {
        let (ironic, mut host) = both();
        ironic.world.lock().unwrap().others.push(node);
        let failure = host.register().await.unwrap_err();
        assert_eq!(failure.cause, Cause::AnotherMachine, "{failure}");
        assert!(failure.message.contains("rack-7"), "{failure}");
        assert!(ironic.world.lock().unwrap().node.is_none());
    }
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().others.push(theirs("rack-7", "https://192.0.2.70"));
    host.register().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_without_status_is_recognized_or_held() {
    let (ironic, mut host) = provisioned().await;
    let before = orders(&ironic);
    host.facts.provisioning_id.clear();
    let failure = host.drive(Call::Register(lost("image-b"))).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::MachineInUse, Retry::Held), "{failure}");
    let Answer::Registered(registered) = host.drive(Call::Register(lost("image-a"))).await.unwrap() else { panic!() };
    assert!(registered.recognized && registered.id == ironic.field("uuid"));
    // With consent that names the owner it goes on.
    host.facts.provisioning_id.clear();
    let consent = RegisterRequest { overwrite_owner: Some(host.facts.key.uid.clone()), ..lost("image-b") };
    let Answer::Registered(registered) = host.drive(Call::Register(consent)).await.unwrap() else { panic!() };
    assert!(!registered.recognized);
    assert_eq!((ironic.state().as_str(), orders(&ironic)), ("active", before), "nothing was ordered");
    // The system may be removed now, to look at the machine.
    let inspect = || Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() });
    ironic.world.lock().unwrap().bodies.clear();
    host.drive(inspect()).await.unwrap();
    assert_eq!(orders(&ironic), ["deleted", "manage", "inspect"]);
    // Without consent it may not.
    let (ironic, mut host) = provisioned().await;
    assert_eq!(host.drive(inspect()).await.unwrap_err().cause, Cause::MachineInUse);
    assert_eq!(ironic.state(), "active");
}

#[tokio::test(start_paused = true)]
async fn no_node_is_made_of_a_machine_that_another_host_has() {
    for (address, mac, exists, refused) in
        [(true, false, true, true), (false, true, true, true), (true, true, false, false), (false, false, true, false)]
    {
        let (ironic, mut host) = both();
        host.facts.boot_mac = Some("02:00:00:00:00:0A".into());
        let mac = if mac { "02:00:00:00:00:0a" } else { "02:00:00:00:00:99" };
        let record = MachineRecordSpec {
            bmc_address: if address { host.access.address.clone() } else { "redfish://192.0.2.99".into() },
            bmc: Some(MachineEvidence { macs: vec![mac.to_owned()], ..MachineEvidence::default() }),
            ..MachineRecordSpec::default()
        };
        let other = OtherMachine {
            host: "n/victim".into(),
            exists,
            is_older: true,
            is_near: false,
            is_there: true,
            is_sealed: true,
            record,
        };
        host.machine.add_other(other);
        let made = host.register().await;
        assert_eq!(made.is_err(), refused, "{address} {mac}: {made:?}");
        assert_eq!(ironic.world.lock().unwrap().node.is_none(), refused);
        if let Err(failure) = made {
            assert_eq!((failure.cause, failure.retry), (Cause::AnotherMachine, Retry::Held), "{failure}");
        }
    }
}

/// A host whose address was corrected, or made another's, is new at that BMC, whatever it had elsewhere and for how long.
#[tokio::test(start_paused = true)]
async fn a_record_of_another_address_gives_no_right_to_a_machine() {
    for (elsewhere, refused) in [(true, true), (false, false)] {
        let (ironic, mut host) = both();
        let here = host.access.address.clone();
        let recorded = if elsewhere { "redfish://192.0.2.99/redfish/v1/Systems/1".into() } else { here.clone() };
        let own = MachineRecordSpec { bmc_address: recorded, ..MachineRecordSpec::default() };
        host.machine.record(own).await.unwrap();
        let record = MachineRecordSpec { bmc_address: here, ..MachineRecordSpec::default() };
        let (host_of, exists) = ("n/younger".to_owned(), true);
        let other = OtherMachine {
            host: host_of,
            exists,
            is_older: false,
            is_near: false,
            is_there: true,
            is_sealed: true,
            record,
        };
        host.machine.add_other(other);
        let made = host.register().await;
        assert_eq!(made.is_err(), refused, "{elsewhere}: {made:?}");
        assert_eq!(ironic.world.lock().unwrap().node.is_none(), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_with_an_old_status_that_is_deleted_leaves_its_machine_on() {
    let (ironic, mut host) = provisioned().await;
    host.facts.deleting = true;
    let off = || Call::SetPower(PowerRequest { power: PowerWish::HardOff, restart: false });
    let failure = host.drive(off()).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::MachineInUse, Retry::Held), "{failure}");
    assert_eq!(ironic.field("power_state"), "power on");
    // One that tells of what runs is heard.
    host.facts.past.provisioned = wish().split_once(' ').unwrap().0.parse().ok();
    host.drive(off()).await.unwrap();
    assert_eq!(ironic.field("power_state"), "power off");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_lost_its_status_and_its_node_is_held_by_its_record() {
    let (ironic, mut host) = provisioned().await;
    ironic.world.lock().unwrap().node = None;
    ironic.world.lock().unwrap().bodies.clear();
    host.facts.provisioning_id.clear();
    let failure = host.drive(Call::Register(lost("image-b"))).await.unwrap_err();
    assert_eq!(failure.cause, Cause::MachineInUse, "{failure}");
    assert!(ironic.world.lock().unwrap().node.is_none(), "no node is made");
    let Answer::Registered(registered) = host.drive(Call::Register(lost("image-a"))).await.unwrap() else { panic!() };
    assert!(registered.recognized);
    host.drive(Call::Adopt(AdoptRequest { deployed: deployed(), restart: false })).await.unwrap();
    assert_eq!(orders(&ironic), ["manage", "adopt"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deployed_and_of_which_no_record_tells_holds_a_host_without_status() {
    let (ironic, host) = provisioned().await;
    // The same host, uid and all, without status and record.
    let mut anew = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    let failure = anew.drive(Call::Register(lost("image-a"))).await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::MachineInUse, Retry::Held), "{failure}");
    assert_eq!(ironic.state(), "active");
    drop(host);
    // A past without a record: what is on, or not known to be off, is held.
    let (ironic, mut host) = both();
    let past = RegisterRequest { has_past: true, is_claimed: true, ..lost("nothing") };
    host.register().await.unwrap();
    ironic.world.lock().unwrap().node.as_mut().unwrap().insert("power_state".into(), "power on".into());
    let mut anew = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    assert_eq!(anew.drive(Call::Register(past.clone())).await.unwrap_err().cause, Cause::MachineInUse);
    ironic.world.lock().unwrap().node.as_mut().unwrap().insert("power_state".into(), "power off".into());
    anew.drive(Call::Register(past)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cleans_or_has_failed_is_not_taken_over_before_it_is_active() {
    for (state, ordered) in [
        ("clean wait", vec!["abort", "manage", "adopt"]),
        ("inspect wait", vec!["abort", "manage", "adopt"]),
        ("clean failed", vec!["manage", "adopt"]),
    ] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        ironic.world.lock().unwrap().bodies.clear();
        ironic.world.lock().unwrap().node.as_mut().unwrap().insert("provision_state".into(), state.into());
        host.drive(Call::Adopt(AdoptRequest { deployed: deployed(), restart: false })).await.unwrap();
        assert_eq!(orders(&ironic), ordered, "{state}");
        assert_eq!(ironic.state(), "active");
    }
    for state in ["deploy failed", "wait call-back", "error", "of another version"] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        ironic.world.lock().unwrap().node.as_mut().unwrap().insert("provision_state".into(), state.into());
        let adopt = Call::Adopt(AdoptRequest { deployed: deployed(), restart: false });
        assert_eq!(host.drive(adopt).await.unwrap_err().cause, Cause::ProvisionerFailed, "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_is_taken_out_of_it_and_a_lasting_fault_is_told() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let set = |name: &str, value: Value| {
        ironic.world.lock().unwrap().node.as_mut().unwrap().insert(name.into(), value);
    };
    set("maintenance", true.into());
    let request = |wish: &str| {
        Call::Deprovision(Box::new(CleaningRequest {
            wish: Some(wish.into()),
            deployed: deployed(),
            clean: true,
            ..CleaningRequest::default()
        }))
    };
    host.drive(request("d")).await.unwrap();
    set("provision_state", "manageable".into());
    set("maintenance", true.into());
    set("fault", "power failure".into());
    let failure = host.drive(request("e")).await.unwrap_err();
    assert_eq!(failure.cause, Cause::BmcUnreachable, "{failure}");
    let inspect = Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() });
    assert_eq!(host.drive(inspect).await.unwrap_err().cause, Cause::BmcUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_is_no_lock_fails_and_a_lock_that_lasts_is_told() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    ironic.world.lock().unwrap().always = Some((409, "Node 1 is associated with instance 2."));
    let failure = host.drive(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
    assert!(failure.message.contains("associated"), "{failure}");
    let locked = "Node 1 is locked by host conductor-9, please retry after the current operation is completed.";
    ironic.world.lock().unwrap().always = Some((409, locked));
    let begun = tokio::time::Instant::now();
    let failure = host.drive(provision(How::Disk)).await.unwrap_err();
    assert!(failure.message.contains("conductor-9") && failure.message.contains("10 minutes"), "{failure}");
    assert!((600..700).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    ironic.world.lock().unwrap().always = Some((403, "Node 1 is protected and cannot be undeployed."));
    let failure = host.drive(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
    assert!(failure.message.contains("protected") && !failure.message.contains("password"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn force_ends_though_ironic_is_locked_full_or_behind_a_proxy() {
    let trouble = |ironic: &Scripted, which: usize| {
        let mut world = ironic.world.lock().unwrap();
        match which {
            0 => {
                world.always =
                    Some((409, "Node 1 is locked by host c, please retry after the current operation is completed."))
            }
            1 => {
                world.always =
                    Some((503, "Requested action cannot be performed due to lack of free conductor workers."))
            }
            _ => world.between = Some((502, "<html>Bad gateway</html>")),
        }
    };
    for which in 0..3 {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        trouble(&ironic, which);
        let answer = host.look(Call::Release(ReleaseRequest { force: false })).await;
        assert!(!matches!(answer, Ok(Verdict::Done(_))), "{answer:?}");
        let answer = host.look(Call::Release(ReleaseRequest { force: true })).await;
        assert!(matches!(answer, Ok(Verdict::Done(_))), "{which}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_stands_before_ironic_is_not_taken_for_ironic() {
    for (status, body) in [(502, "<html>"), (503, ""), (404, "<html>"), (403, "{}")] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        ironic.world.lock().unwrap().between = Some((status, body));
        for call in [Call::PowerState, provision(How::Disk), Call::Release(ReleaseRequest { force: false })] {
            let failure = host.look(call).await.unwrap_err();
            assert_eq!(failure.cause, Cause::ProvisionerUnavailable, "{status}: {failure}");
        }
    }
    // A path that Ironic does not know is no node that it does not have.
    let text = r#"{"error_message": {"faultstring": "The resource could not be found."}}"#;
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    ironic.world.lock().unwrap().between = Some((404, text));
    let failure = host.look(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
    assert_eq!(failure.cause, Cause::ProvisionerUnavailable, "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_port_of_somebody_elses_blocks_only_where_the_machine_boots_by_it() {
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().ports.push(("52:54:00:00:00:02".into(), THEIRS.into()));
    host.facts.boot_mac = Some("52:54:00:00:00:01".into());
    let nics = json!({"nics": [{"name": "a", "mac": "52:54:00:00:00:01"}, {"name": "b", "mac": "52:54:00:00:00:02"}]});
    host.facts.hardware = Some(serde_json::from_value(nics).unwrap());
    host.register().await.unwrap();
    assert_eq!(ironic.world.lock().unwrap().ports.len(), 2);
    host.facts.boot_mac = Some("52:54:00:00:00:02".into());
    assert_eq!(host.register().await.unwrap_err().cause, Cause::AnotherMachine);
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_tenant_or_at_another_bmc_is_not_taken() {
    for (field, value) in [("owner", json!("tenant-a")), ("lessee", json!("tenant-b"))] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        ironic.world.lock().unwrap().node.as_mut().unwrap().insert(field.into(), value);
        let mut anew = Host::new(Arc::new(ironic.clone()), Site::new("one"));
        assert_eq!(anew.register().await.unwrap_err().cause, Cause::AnotherMachine);
        host.register().await.unwrap();
    }
    let (ironic, mut host) = both();
    let found = json!({"uuid": THEIRS, "name": null, "driver": "redfish", "driver_info": {"redfish_address": "https://192.0.2.99"}});
    other(&ironic, Method::Post, "/v1/nodes", found).await;
    other(&ironic, Method::Post, "/v1/ports", json!({"node_uuid": THEIRS, "address": "52:54:00:00:00:01"})).await;
    host.facts.boot_mac = Some("52:54:00:00:00:01".into());
    assert_eq!(host.register().await.unwrap_err().cause, Cause::AnotherMachine);
}

#[tokio::test(start_paused = true)]
async fn new_credentials_are_verified_and_wait_for_work_to_end() {
    let (ironic, mut host) = provisioned().await;
    let request = || {
        Call::Register(RegisterRequest {
            credentials_changed: true,
            deployed: deployed(),
            ..RegisterRequest::default()
        })
    };
    ironic.world.lock().unwrap().bmc =
        Some("Redfish exception occurred. Error: HTTP GET https://b/ returned code 401. Unauthorized");
    assert_eq!(host.drive(request()).await.unwrap_err().cause, Cause::BmcCredentialsRefused);
    ironic.world.lock().unwrap().bmc = Some("The BMC does not tell its boot device");
    host.drive(request()).await.unwrap();
    ironic.world.lock().unwrap().node.as_mut().unwrap().insert("provision_state".into(), "deploying".into());
    let answer = host.look(request()).await.unwrap();
    assert!(matches!(answer, Verdict::Working(_)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_changed_after_registration_reaches_ironic_with_the_next_work() {
    let (ironic, mut host) = both();
    host.facts.disable_power_off = true;
    host.facts.agent_network = Some(json!({"links": []}));
    host.register().await.unwrap();
    assert_eq!((ironic.field("disable_power_off"), ironic.field("network_data")), (json!(true), json!({"links": []})));
    host.facts.disable_power_off = false;
    host.facts.agent_network = None;
    host.facts.boot_mode = api::metal3::BootMode::Legacy;
    host.drive(Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() })).await.unwrap();
    assert_eq!((ironic.field("disable_power_off"), ironic.field("network_data")), (json!(false), Value::Null));
    assert_eq!(ironic.field("properties")["capabilities"], "boot_mode:bios");
    host.facts.address = "redfish://192.0.2.7/redfish/v1/Systems/1".into();
    host.drive(Call::Inspect(InspectRequest { wish: Some("j".into()), ..InspectRequest::default() })).await.unwrap();
    assert_eq!(ironic.field("boot_interface"), "ipxe");
}

#[tokio::test(start_paused = true)]
async fn a_hosts_node_is_looked_for_on_every_ironic_before_one_is_made() {
    let (first, second) = (Scripted::new(Trail::default()), Scripted::new(Trail::default()));
    let mut host = Host::new(Arc::new(second.clone()), Site::new("two"));
    host.register().await.unwrap();
    let of = |site: &str, ironic: &Scripted, namespaces: &[&str]| {
        let namespaces = namespaces.iter().map(ToString::to_string).collect();
        Ironic { site: Site { namespaces, ..Site::new(site) }, transport: Arc::new(ironic.clone()) }
    };
    let make = || Arc::new(IronicProvisioner::new(vec![of("one", &first, &[]), of("two", &second, &["other"])]));
    // A host of its name, with its status, without a record.
    let mut moved = Host::new(Arc::new(first.clone()), Site::new("one"));
    moved.facts = host.facts.clone();
    moved.provisioner = make();
    second.world.lock().unwrap().trouble.silent = true;
    assert_eq!(
        moved.look(Call::Register(RegisterRequest::default())).await.unwrap_err().cause,
        Cause::ProvisionerUnavailable
    );
    second.world.lock().unwrap().trouble.silent = false;
    moved.register().await.unwrap();
    assert!(first.world.lock().unwrap().node.is_none(), "no second node");
    assert_eq!(second.state(), "manageable");
    // Another database under the same name has the host held, too, and no node made.
    let mut elsewhere = Scripted::new(Trail::default());
    elsewhere.place = "http://192.0.2.2:6385";
    host.restart(Arc::new(elsewhere.clone()), Site::new("two"));
    let failure = host.register().await.unwrap_err();
    assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, Retry::Held), "{failure}");
    assert!(elsewhere.world.lock().unwrap().node.is_none());
    // Detached and attached again it is registered there.
    let mut again = Host::new(Arc::new(elsewhere.clone()), Site::new("two"));
    (again.facts, again.record) = (host.facts.clone(), Arc::default());
    let content = provisioner::Record::current(host.record.as_ref()).content.unwrap();
    provisioner::Record::write(again.record.as_ref(), 0, content, provisioner::Purpose::Note).await.unwrap();
    again.drive(Call::Release(ReleaseRequest { force: true })).await.unwrap();
    again.register().await.unwrap();
    assert_eq!(elsewhere.state(), "manageable");
    // The same database at another address is the same Ironic.
    let mut renamed = second.clone();
    renamed.place = "http://192.0.2.3:6385";
    host.restart(Arc::new(renamed), Site::new("two"));
    host.register().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_cannot_be_aborted_is_let_go_by_force_without_cleaning() {
    let mut ironic = Scripted::new(Trail::default());
    ironic.maximum = "1.109";
    let mut host = Host::new(Arc::new(ironic.clone()), Site::new("one"));
    host.register().await.unwrap();
    while ironic.state() != "wait call-back" {
        host.look(provision(How::Disk)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    ironic.world.lock().unwrap().bodies.clear();
    host.facts.cleaning = CleaningMode::Metadata;
    host.drive(Call::Release(ReleaseRequest { force: true })).await.unwrap();
    assert_eq!(orders(&ironic), Vec::<String>::new());
    assert!(ironic.world.lock().unwrap().node.is_none());
}

/// An Ironic whose lists take a minute.
struct SlowLists(Scripted);

#[async_trait::async_trait]
impl Transport for SlowLists {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        if request.path.starts_with("/v1/nodes?fields=uuid,name,provision_state") {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        self.0.send(request).await
    }

    fn endpoint(&self) -> String {
        self.0.endpoint()
    }
}

/// An Ironic that takes a minute not to list where nodes are.
struct Hanging(Scripted);

#[async_trait::async_trait]
impl Transport for Hanging {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        if request.path.starts_with("/v1/nodes?fields=uuid,name,driver_info") {
            tokio::time::sleep(Duration::from_secs(60)).await;
            return Err(TransportError::Unreachable("no answer".into()));
        }
        self.0.send(request).await
    }

    fn endpoint(&self) -> String {
        self.0.endpoint()
    }
}

/// They would be told the true cause one after the other, hours later.
#[tokio::test(start_paused = true)]
async fn hosts_that_wait_for_a_list_that_does_not_come_do_not_ask_one_after_the_other() {
    let first = Host::new(Arc::new(Hanging(Scripted::new(Trail::default()))), Site::new("one"));
    let begun = tokio::time::Instant::now();
    let registrations: Vec<_> = (0..20)
        .map(|number| {
            let mut host = Host {
                provisioner: Arc::clone(&first.provisioner),
                facts: facts(&format!("node-{number}")),
                access: access(),
                record: Arc::default(),
                machine: Arc::default(),
                now: Arc::clone(&first.now),
            };
            tokio::spawn(async move { host.register().await })
        })
        .collect();
    for registered in registrations {
        assert_eq!(registered.await.unwrap().unwrap_err().cause, Cause::ProvisionerUnavailable);
    }
    assert!(begun.elapsed().as_secs() <= 120, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_order_does_not_wait_for_a_list_that_comes_slowly() {
    let ironic = Scripted::new(Trail::default());
    let mut host = Host::new(Arc::new(SlowLists(ironic.clone())), Site::new("one"));
    host.register().await.unwrap();
    let host = Arc::new(host);
    let looking = Arc::clone(&host);
    let look = tokio::spawn(async move { looking.look(Call::PowerState).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = tokio::time::Instant::now();
    host.look(Call::Inspect(InspectRequest { wish: Some("i".into()), ..InspectRequest::default() })).await.unwrap();
    assert_eq!((begun.elapsed().as_secs(), orders(&ironic)), (0, vec!["manage".to_owned(), "inspect".to_owned()]));
    look.await.unwrap().unwrap();
    // A list counts from when it came.
    let calls = ironic.world.lock().unwrap().log.len();
    host.look(Call::Health).await.unwrap();
    assert_eq!(ironic.world.lock().unwrap().log.len(), calls + 1, "the node alone, of which something was ordered");
}

#[tokio::test(start_paused = true)]
async fn a_provisioning_that_has_written_nothing_is_given_up() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    ironic.world.lock().unwrap().trouble.busy = true;
    host.look(provision(How::Disk)).await.unwrap();
    let request = CleaningRequest { empty: true, deployed: Deployed::default(), ..CleaningRequest::default() };
    host.drive(Call::Deprovision(Box::new(request))).await.unwrap();
    let data = provisioner::Record::current(host.record.as_ref()).content.unwrap().data;
    assert_ne!(data["work"]["phase"], "Running", "{data}");
}

/// Nor does a correction of the address give away what a declaration with that address would not.
#[tokio::test(start_paused = true)]
async fn a_corrected_address_takes_nobodys_machine() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    ironic.world.lock().unwrap().others.push(theirs("somebodys", "https://192.0.2.8"));
    // What was listed for the first registration is not used any more.
    tokio::time::sleep(Duration::from_secs(11)).await;
    host.facts.address = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1".into();
    let failure = host.register().await.unwrap_err();
    assert!(failure.cause == Cause::AnotherMachine && failure.message.contains("somebodys"), "{failure}");
    assert_eq!(ironic.field("driver_info")["redfish_address"], "https://192.0.2.7");
}

/// It would go with its disks as they are, and its node would stay.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_deleted_waits_for_an_ironic_that_cannot_be_asked() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    for deleting in [false, true] {
        host.facts.deleting = deleting;
        ironic.world.lock().unwrap().trouble.silent = true;
        let failure = host.look(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
        let expected = if deleting { Retry::Held } else { Retry::Waiting };
        assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, expected), "{failure}");
        ironic.world.lock().unwrap().trouble.silent = false;
        let without = "No valid host was found. Reason: No conductor service registered which supports driver redfish.";
        // Ironic answers 404, or 400 where something is changed.
        for status in [400, 404] {
            ironic.world.lock().unwrap().always = Some((status, without));
            let failure = host.look(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
            let expected = if deleting { Retry::Held } else { Retry::Later };
            assert_eq!((failure.cause, failure.retry), (Cause::ProvisionerUnavailable, expected), "{failure}");
        }
        // Its database is away.
        ironic.world.lock().unwrap().always = Some((500, "(pymysql.err.OperationalError) Can't connect to server"));
        let failure = host.look(Call::Release(ReleaseRequest { force: false })).await.unwrap_err();
        assert_eq!(failure.retry == Retry::Held, deleting, "{failure}");
        ironic.world.lock().unwrap().always = None;
    }
}

/// The machine may be on with the agent: it is not taken for the host's own system.
#[tokio::test(start_paused = true)]
async fn after_a_service_that_has_failed_the_machines_own_system_is_started() {
    for in_maintenance in [true, false] {
        let (ironic, mut host) = provisioned().await;
        let set = |name: &str, value: Value| {
            ironic.world.lock().unwrap().node.as_mut().unwrap().insert(name.into(), value);
        };
        set("provision_state", "service failed".into());
        set("maintenance", in_maintenance.into());
        set("fault", if in_maintenance { "service failure".into() } else { Value::Null });
        set("power_state", "power on".into());
        let request = PowerRequest { power: PowerWish::On, restart: false };
        host.drive(Call::SetPower(request)).await.unwrap();
        assert_eq!((ironic.state().as_str(), ironic.field("maintenance")), ("active", false.into()));
    }
}

/// Its database may be from a time before the password was changed: it is told it again, and not at each look.
#[tokio::test(start_paused = true)]
async fn a_bmc_that_ironic_does_not_reach_is_told_of_a_host_at_rest() {
    let (ironic, host) = provisioned().await;
    {
        let mut world = ironic.world.lock().unwrap();
        let node = world.node.as_mut().unwrap();
        node.insert("maintenance".into(), true.into());
        node.insert("fault".into(), "power failure".into());
        node.insert("maintenance_reason".into(), "HTTP 401".into());
        node.insert("power_state".into(), Value::Null);
        world.log.clear();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let patches = || {
        let world = ironic.world.lock().unwrap();
        world.log.iter().filter(|(method, ..)| *method == "PATCH").count()
    };
    for _ in 0..3 {
        let failure = host.look(Call::PowerState).await.unwrap_err();
        assert!(failure.cause == Cause::BmcUnreachable && failure.message.contains("401"), "{failure}");
        assert_eq!(failure.retry, Retry::Waiting, "no work has failed");
    }
    assert_eq!(patches(), 1);
    tokio::time::sleep(Duration::from_secs(601)).await;
    host.look(Call::PowerState).await.unwrap_err();
    assert_eq!(patches(), 2);
}

/// A call that switches power does not bring it along.
#[tokio::test(start_paused = true)]
async fn the_agents_network_stays_when_power_is_switched() {
    let (ironic, mut host) = both();
    let network = json!({ "links": [], "networks": [], "services": [] });
    host.facts.agent_network = Some(network.clone());
    host.register().await.unwrap();
    assert_eq!(ironic.field("network_data"), network);
    host.facts.agent_network = None;
    host.drive(Call::SetPower(PowerRequest { power: PowerWish::On, restart: false })).await.unwrap();
    assert_eq!((ironic.field("power_state"), ironic.field("network_data")), ("power on".into(), network));
}

/// Neither has a machine of which Ironic has ever reached the BMC.
#[tokio::test(start_paused = true)]
async fn hosts_that_were_declared_with_each_others_addresses_are_corrected() {
    let (ironic, mut host) = both();
    host.register().await.unwrap();
    let mut other = theirs("ns~other", "https://192.0.2.8");
    other["provision_state"] = "enroll".into();
    ironic.world.lock().unwrap().others.push(other);
    tokio::time::sleep(Duration::from_secs(11)).await;
    host.facts.address = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1".into();
    host.register().await.unwrap();
    assert_eq!(ironic.field("driver_info")["redfish_address"], "https://192.0.2.8");
}

/// The annotation that asks for it is used up afterwards, which a server may not live to do, or the API may refuse.
#[tokio::test(start_paused = true)]
async fn a_restart_is_not_repeated_because_its_host_could_not_note_it() {
    let (ironic, mut host) = provisioned().await;
    host.facts.disable_power_off = true;
    let off = || Call::SetPower(PowerRequest { power: PowerWish::SoftOff, restart: false });
    let asked = || {
        let mut world = ironic.world.lock().unwrap();
        let asked = world.bodies.iter().filter(|(_, body)| body["target"] == "soft rebooting").count();
        world.bodies.clear();
        asked
    };
    for restarts in [1, 0, 0] {
        host.drive(off()).await.unwrap();
        assert_eq!(asked(), restarts);
    }
    // Another process does not know whether it was made.
    host.restart(Arc::new(ironic.clone()), Site::new("one"));
    for _ in 0..2 {
        let failure = host.drive(off()).await.unwrap_err();
        assert_eq!((failure.retry, asked()), (Retry::Unknown, 0), "{failure}");
    }
    // The next that is asked for is another.
    host.look(Call::PowerState).await.unwrap();
    host.restart(Arc::new(ironic.clone()), Site::new("one"));
    host.drive(off()).await.unwrap();
    assert_eq!(asked(), 1);
    // So is one that comes right after the first was noted, and one in an attempt that follows a failed one is made once.
    host.provisioner.restart_is_noted(&host.facts.key);
    host.drive(Call::SetPower(PowerRequest { power: PowerWish::SoftOff, restart: true })).await.unwrap();
    assert_eq!(asked(), 1);
    // One that Ironic refuses is not made, and is asked for again.
    host.look(Call::PowerState).await.unwrap();
    ironic.world.lock().unwrap().trouble.refusing = true;
    host.look(off()).await.unwrap();
    assert!(!ironic.world.lock().unwrap().trouble.refusing);
    host.restart(Arc::new(ironic.clone()), Site::new("one"));
    asked();
    host.drive(off()).await.unwrap();
    assert_eq!(asked(), 1);
}

/// Ironic has given the order to a conductor by then.
#[tokio::test(start_paused = true)]
async fn a_restart_that_ironic_stumbles_over_is_told_as_unknown() {
    let (ironic, mut host) = provisioned().await;
    host.facts.disable_power_off = true;
    host.restart(Arc::new(Stumbling(ironic.clone())), Site::new("one"));
    ironic.world.lock().unwrap().bodies.clear();
    let off = || Call::SetPower(PowerRequest { power: PowerWish::SoftOff, restart: false });
    let failure = host.drive(off()).await.unwrap_err();
    assert!(failure.message.contains("Timed out waiting for a reply"), "{failure}");
    for _ in 0..2 {
        let failure = host.drive(off()).await.unwrap_err();
        assert_eq!(failure.retry, Retry::Unknown, "{failure}");
        assert!(failure.message.contains("lost or tells nothing"), "{failure}");
    }
    let world = ironic.world.lock().unwrap();
    assert_eq!(world.bodies.iter().filter(|(what, _)| what == "power").count(), 1, "{:?}", world.bodies);
}

/// An Ironic that does what it is told with the power, and fails at its answer.
struct Stumbling(Scripted);

#[async_trait::async_trait]
impl Transport for Stumbling {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        let answer = self.0.send(request).await?;
        if !request.path.ends_with("/states/power") {
            return Ok(answer);
        }
        let said = json!({ "error_message": { "faultstring": "Timed out waiting for a reply to message ID 1" } });
        Ok(Response { status: 500, body: said.to_string().into_bytes(), ..answer })
    }

    fn endpoint(&self) -> String {
        self.0.endpoint()
    }
}

/// The host says that its credentials have changed until they have been accepted once.
#[tokio::test(start_paused = true)]
async fn a_wrong_password_of_a_new_host_is_told_at_once() {
    let (ironic, mut host) = both();
    let request =
        |restart| Call::Register(RegisterRequest { credentials_changed: true, restart, ..RegisterRequest::default() });
    for tried in 1..4 {
        ironic.world.lock().unwrap().trouble.failing = true;
        let failure = host.drive(request(tried > 1)).await.unwrap_err();
        assert_eq!((failure.cause, orders(&ironic).len()), (Cause::BmcCredentialsRefused, tried), "{failure}");
    }
    // What is corrected while the old one is tried is tried at once.
    ironic.world.lock().unwrap().trouble.failing = true;
    host.look(request(true)).await.unwrap();
    host.access.password = "corrected".to_owned().into();
    host.drive(request(false)).await.unwrap();
    assert_eq!(ironic.state(), "manageable");
}

/// Of two nodes that were made of declarations at one BMC, Ironic reaches it by one alone.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_never_verified_does_not_come_to_a_machine_that_another_one_has() {
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().trouble.failing = true;
    host.register().await.unwrap_err();
    let mut other = theirs("ns~other", "https://192.0.2.7");
    other["provision_state"] = "active".into();
    ironic.world.lock().unwrap().others.push(other);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let before = orders(&ironic).len();
    let failure = host.register().await.unwrap_err();
    assert!(failure.cause == Cause::AnotherMachine && failure.message.contains("ns~other"), "{failure}");
    assert_eq!(orders(&ironic).len(), before);
}

/// Ironic would be told to verify it with the fleet's password, and to take it.
#[tokio::test(start_paused = true)]
async fn a_corrected_address_takes_no_machine_that_another_host_has_elsewhere() {
    for is_there in [true, false] {
        let (ironic, mut host) = both();
        host.register().await.unwrap();
        let here = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1".to_owned();
        let record = MachineRecordSpec {
            bmc_address: "redfish://192.0.2.8/redfish/v1/Systems/1".into(),
            ..MachineRecordSpec::default()
        };
        let host_of = "of another namespace".to_owned();
        host.machine.add_other(OtherMachine {
            host: host_of,
            exists: true,
            is_older: false,
            is_near: false,
            is_there,
            is_sealed: true,
            record,
        });
        tokio::time::sleep(Duration::from_secs(11)).await;
        host.facts.address.clone_from(&here);
        let made = host.register().await;
        assert_eq!(made.is_err(), is_there, "{made:?}");
        let expected = if is_there { "https://192.0.2.7" } else { "https://192.0.2.8" };
        assert_eq!(ironic.field("driver_info")["redfish_address"], expected);
    }
}

/// It would keep the rightful host from its machine, and no other from this one's.
#[tokio::test(start_paused = true)]
async fn the_record_names_the_address_that_was_corrected() {
    let (_, mut host) = both();
    let first = MachineRecordSpec { bmc_address: host.access.address.clone(), ..MachineRecordSpec::default() };
    host.machine.record(first).await.unwrap();
    host.register().await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    host.facts.address = "redfish-virtualmedia://192.0.2.8/redfish/v1/Systems/1".into();
    host.access.address.clone_from(&host.facts.address);
    host.register().await.unwrap();
    let address = async || host.machine.recorded().await.unwrap().unwrap().bmc_address;
    assert_eq!(address().await, host.facts.address);
    // What a machine has shown of itself stays with the address where that was seen.
    let seen = MachineRecordSpec {
        bmc_address: "redfish://192.0.2.1/".into(),
        bmc: Some(MachineEvidence::default()),
        ..MachineRecordSpec::default()
    };
    host.machine.record(seen).await.unwrap();
    host.register().await.unwrap();
    assert_eq!(host.machine.recorded().await.unwrap().unwrap().bmc_address, "redfish://192.0.2.1/");
}

/// The host does not know that it has a node.
#[tokio::test(start_paused = true)]
async fn a_host_that_was_never_registered_does_not_leave_its_node() {
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().trouble.failing = true;
    host.register().await.unwrap_err();
    host.facts.deleting = true;
    ironic.world.lock().unwrap().trouble.silent = true;
    let release = |force| Call::Release(ReleaseRequest { force });
    let said = format!("{:?}", host.look(release(false)).await.unwrap());
    assert!(said.contains("Busy") && said.contains("detached"), "{said}");
    host.look(release(true)).await.unwrap();
    assert!(ironic.world.lock().unwrap().node.is_some());
    // Ironic is there again.
    let (ironic, mut host) = both();
    ironic.world.lock().unwrap().trouble.failing = true;
    host.register().await.unwrap_err();
    host.drive(release(false)).await.unwrap();
    assert!(ironic.world.lock().unwrap().node.is_none());
}

/// What is changed of a host at rest is there when its system is removed.
#[tokio::test(start_paused = true)]
async fn what_is_changed_reaches_ironic_before_a_system_is_removed() {
    let (ironic, mut host) = provisioned().await;
    host.facts.past.provisioned = wish().split_once(' ').unwrap().0.parse().ok();
    host.facts.agent_network = Some(json!({"links": []}));
    let request = CleaningRequest { clean: true, deployed: deployed(), ..CleaningRequest::default() };
    host.look(Call::Deprovision(Box::new(request))).await.unwrap();
    assert_eq!(ironic.field("network_data"), json!({"links": []}));
}

/// No node is made of it for now, and Ironic is not asked about it every few seconds for ever.
#[tokio::test(start_paused = true)]
async fn a_driver_that_no_conductor_has_is_a_failure_that_counts() {
    let (ironic, mut host) = both();
    let without = "No valid host was found. Reason: No conductor service registered which supports driver redfish.";
    ironic.world.lock().unwrap().always = Some((400, without));
    let failure = host.register().await.unwrap_err();
    assert_eq!(failure.retry, Retry::Later, "{failure}");
    assert!(failure.text().contains("enable the driver"), "{}", failure.text());
}

/// A system that is removed does not stay because of the agent's network that it does not need.
#[tokio::test(start_paused = true)]
async fn a_description_that_ironic_refuses_keeps_no_system_on_its_machine() {
    for state in ["active", "clean failed"] {
        let (ironic, mut host) = provisioned().await;
        host.facts.past.provisioned = wish().split_once(' ').unwrap().0.parse().ok();
        host.facts.agent_network = Some(json!({"links": []}));
        ironic.world.lock().unwrap().node.as_mut().unwrap().insert("provision_state".into(), state.into());
        host.restart(Arc::new(Refusing(ironic.clone())), Site::new("one"));
        let request = CleaningRequest { clean: true, deployed: deployed(), ..CleaningRequest::default() };
        host.drive(Call::Deprovision(Box::new(request))).await.unwrap();
        assert_eq!(ironic.state(), "available");
    }
}

/// An Ironic that takes no network.
struct Refusing(Scripted);

#[async_trait::async_trait]
impl Transport for Refusing {
    async fn send(&self, request: &Request) -> Result<Response, TransportError> {
        let changes = request.body.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        if changes.iter().any(|change| change["path"] == "/network_data") {
            let said = json!({ "error_message": { "faultstring": "Invalid network_data: 'services' is a required property" } });
            return Ok(Response { status: 400, maximum: Some("1.115".into()), body: said.to_string().into_bytes() });
        }
        self.0.send(request).await
    }

    fn endpoint(&self) -> String {
        self.0.endpoint()
    }
}
