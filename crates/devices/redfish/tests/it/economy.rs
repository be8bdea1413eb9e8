//! How many requests operations cost, and which: every one of them waits for a slow BMC.

use crate::kit::{self, Bmc, CD, SESSIONS, SYSTEM, error_body, odd, rig};
use redfish::{BootMode, BootTarget, Inserted, PowerState};
use serde_json::{Value, json};

const URL: &str = "https://metamorph.example:8443/media/abcdefghijklmnopqrstuvwxyz.iso";

#[tokio::test]
async fn from_enrolment_to_provisioned_in_a_dozen_requests() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    assert_eq!(rig.client.calls(), 0, "making a client asks nothing");

    // Register.
    rig.client.sweep(&[]).await.unwrap();
    let system = rig.client.system().await.unwrap();
    assert_eq!((system.manufacturer.as_deref(), system.power_state), (Some("Contoso"), PowerState::On));
    let expand = format!("GET {SESSIONS}?$expand=.($levels=1)");
    let register = ["GET /redfish/v1/", &format!("POST {SESSIONS}"), &expand, &format!("GET {SYSTEM}")];
    assert_eq!(bmc.take_log(), register);

    // Boot the agent from the medium.
    assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    rig.client.restart().await.unwrap();
    let seen = bmc.take_seen();
    let log: Vec<String> = seen.iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect();
    let boot = [
        format!("GET {SYSTEM}/VirtualMedia?$expand=.($levels=1)"),
        format!("POST {CD}/Actions/VirtualMedia.InsertMedia"),
        format!("PATCH {SYSTEM}"),
        format!("POST {SYSTEM}/Actions/ComputerSystem.Reset"),
    ];
    assert_eq!(log, boot);
    assert_eq!(seen[1].body, json!({"Image": URL, "Inserted": true, "WriteProtected": true}));
    let once = json!({"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}});
    assert_eq!(seen[2].body, once);
    assert_eq!(seen[3].body, json!({"ResetType": "ForceRestart"}));
    assert!(seen.iter().all(|seen| seen.auth == "session"));

    // One request each from here on.
    for _ in 0..2 {
        assert_eq!(rig.client.power_state().await.unwrap(), PowerState::On);
        assert_eq!(bmc.take_log().len(), 1);
    }
    rig.client.eject_media().await.unwrap();
    assert_eq!(bmc.take_log(), [format!("POST {CD}/Actions/VirtualMedia.EjectMedia")]);
    rig.client.clear_boot_override().await.unwrap();
    assert_eq!(bmc.take_log(), [format!("PATCH {SYSTEM}")]);
    rig.client.close().await.unwrap();
    assert_eq!(bmc.session_count(), 0);
    assert_eq!(rig.client.calls(), 13);
    assert_eq!(rig.client.channel().ledger().counters().calls, 13);
    assert_eq!(rig.client.channel().ledger().counters().failures, 0);
}

#[tokio::test]
async fn the_medium_that_is_in_already_is_left_in() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.insert_media(URL).await.unwrap();
    bmc.take_log();
    assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Already);
    assert_eq!(bmc.take_log(), [format!("GET {CD}")]);
    // Another one takes its place.
    assert_eq!(rig.client.insert_media("http://other/x.iso").await.unwrap(), Inserted::Now);
    assert_eq!(bmc.take_log().len(), 3);
    assert_eq!(bmc.resource(CD)["Image"], "http://other/x.iso");
}

#[tokio::test]
async fn without_a_path_the_only_system_is_found_once() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, "");
    assert_eq!(rig.client.system().await.unwrap().path, SYSTEM);
    rig.client.power_state().await.unwrap();
    let log = bmc.take_log();
    assert_eq!(log.iter().filter(|line| line.ends_with("/Systems")).count(), 1);
    assert_eq!(log.len(), 5);
}

#[tokio::test]
async fn an_empty_drive_is_not_ejected() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.eject_media().await.unwrap();
    assert!(!bmc.take_log().iter().any(|line| line.contains("Eject")));
    // Known drive: sent at once, and the refusal "nothing in" is a success.
    rig.client.eject_media().await.unwrap();
    let log = bmc.take_log();
    assert_eq!(log, [format!("POST {CD}/Actions/VirtualMedia.EjectMedia"), format!("GET {CD}")]);
    assert!(!rig.client.media_state().await.unwrap().is_occupied());
}

#[tokio::test]
async fn power_that_is_there_already_is_a_success() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    rig.client.reset(redfish::ResetType::On).await.unwrap();
    rig.client.reset(redfish::ResetType::ForceOff).await.unwrap();
    rig.client.reset(redfish::ResetType::ForceOff).await.unwrap();
    assert_eq!(bmc.resource(SYSTEM)["PowerState"], "Off");
    // A restart switches a machine on that is off.
    bmc.take_log();
    rig.client.restart().await.unwrap();
    let seen = bmc.take_seen();
    assert_eq!(seen.last().unwrap().body, json!({"ResetType": "On"}));
    assert_eq!(rig.client.power_state().await.unwrap(), PowerState::On);
}

#[tokio::test]
async fn a_machine_whose_power_is_not_told_is_switched_on_where_a_restart_is_refused() {
    for unsaid in [json!(null), json!(""), json!(["On", "On"])] {
        let bmc = Bmc::generic();
        bmc.edit(SYSTEM, |system| system["PowerState"] = unsaid.clone());
        let rig = rig(&bmc, SYSTEM);
        let off = error_body("ActionParameterValueConflict", "The machine is powered off already.");
        bmc.script("POST", "ComputerSystem.Reset", odd(409, off));
        rig.client.restart().await.unwrap();
        let resets: Vec<Value> =
            bmc.take_seen().into_iter().filter(|s| s.path.contains("Reset")).map(|s| s.body).collect();
        assert_eq!(resets, [json!({"ResetType": "ForceRestart"}), json!({"ResetType": "On"})], "{unsaid}");
    }
}

#[tokio::test]
async fn a_graceful_restart_is_a_restart_where_the_bmc_has_none() {
    let bmc = Bmc::generic();
    let allowed = |bmc: &Bmc, names: Value| {
        bmc.edit(SYSTEM, |system| {
            system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = names;
        });
    };
    for (names, sent) in [
        (json!(["On", "GracefulRestart", "ForceRestart"]), "GracefulRestart"),
        (json!(["On", "ForceOff", "ForceRestart"]), "ForceRestart"),
    ] {
        allowed(&bmc, names);
        let rig = rig(&bmc, SYSTEM);
        bmc.take_seen();
        rig.client.graceful_restart().await.unwrap();
        let resets: Vec<Value> =
            bmc.take_seen().into_iter().filter(|s| s.path.contains("Reset")).map(|s| s.body).collect();
        assert_eq!(resets, [json!({ "ResetType": sent })]);
    }
    // One that says it has it and then has not.
    allowed(&bmc, json!(["On", "GracefulRestart", "ForceRestart"]));
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", "ComputerSystem.Reset", odd(400, error_body("ActionNotSupported", "No.")));
    rig.client.graceful_restart().await.unwrap();
    assert_eq!(bmc.take_seen().last().unwrap().body, json!({"ResetType": "ForceRestart"}));
}

#[tokio::test]
async fn without_a_restart_it_is_off_and_on() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system["Actions"]["#ComputerSystem.Reset"]["ResetType@Redfish.AllowableValues"] = json!(["On", "ForceOff"]);
    });
    let rig = rig(&bmc, SYSTEM);
    rig.client.restart().await.unwrap();
    let resets: Vec<Value> = bmc.take_seen().into_iter().filter(|s| s.path.contains("Reset")).map(|s| s.body).collect();
    assert_eq!(resets, [json!({"ResetType": "ForceOff"}), json!({"ResetType": "On"})]);
    let error = rig.client.reset(redfish::ResetType::GracefulShutdown).await.unwrap_err();
    assert_eq!(error.kind, bmc::ErrorKind::Unsupported);
    assert!(error.to_string().contains("On, ForceOff"), "{error}");
}

#[tokio::test]
async fn allowed_resets_are_read_from_action_info() {
    let bmc = Bmc::generic();
    let info = format!("{SYSTEM}/ResetActionInfo");
    bmc.edit(SYSTEM, |system| {
        let reset = &mut system["Actions"]["#ComputerSystem.Reset"];
        reset.as_object_mut().unwrap().remove("ResetType@Redfish.AllowableValues");
        reset["@Redfish.ActionInfo"] = info.clone().into();
    });
    bmc.set(|inner| {
        let parameters = json!({"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "PowerCycle"]}]});
        inner.resources.insert(info.clone(), parameters);
    });
    let rig = rig(&bmc, SYSTEM);
    rig.client.restart().await.unwrap();
    assert_eq!(bmc.take_seen().last().unwrap().body, json!({"ResetType": "PowerCycle"}));
    rig.client.restart().await.unwrap();
    assert!(!bmc.take_log().iter().any(|line| line.contains("ActionInfo")), "read once");
}

#[tokio::test]
async fn secure_boot_is_changed_where_it_differs() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let now = rig.client.secure_boot().await.unwrap().unwrap();
    let on = now.enable.unwrap();
    assert!(!rig.client.set_secure_boot(on).await.unwrap());
    assert!(rig.client.set_secure_boot(!on).await.unwrap());
    assert_eq!(bmc.resource(&format!("{SYSTEM}/SecureBoot"))["SecureBootEnable"], !on);
}

#[tokio::test]
async fn a_firmware_without_keys_verifies_nothing() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    for (mode, verifies_nothing) in
        [("UserMode", false), ("DeployedMode", false), ("SetupMode", true), ("AuditMode", true), ("", false)]
    {
        bmc.edit(&format!("{SYSTEM}/SecureBoot"), |resource| resource["SecureBootMode"] = json!(mode));
        assert_eq!(rig.client.secure_boot().await.unwrap().unwrap().setup_mode, verifies_nothing, "{mode}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_one_bmc_take_turns() {
    let bmc = Bmc::generic();
    let mut slow = std::sync::Arc::try_unwrap(bmc).unwrap_or_else(|_| panic!("held"));
    slow.latency = std::time::Duration::from_millis(200);
    let bmc = std::sync::Arc::new(slow);
    let rig = rig(&bmc, SYSTEM);
    let other = kit::client_in(&rig.registry, &bmc, SYSTEM, kit::PASSWORD, &rig.waits);
    let started = tokio::time::Instant::now();
    let reads = async |client: &redfish::Client| {
        for _ in 0..4 {
            client.power_state().await.unwrap();
        }
    };
    tokio::join!(reads(&rig.client), reads(&rig.client), reads(&other), reads(&other));
    assert_eq!(bmc.most_in_flight.load(std::sync::atomic::Ordering::SeqCst), 1);
    // Two clients sign in (root, session) once each, and read 16 times.
    let calls = bmc.take_log().len();
    assert_eq!(calls, 20);
    assert_eq!(started.elapsed().as_millis(), 200 * 20);
    assert_eq!(bmc.session_count(), 2);
}

#[test]
fn operations_can_be_spawned() {
    fn send<T: Send>(_: T) {}
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    send(rig.client.sweep(&[]));
    send(rig.client.insert_media(URL));
    send(rig.client.eject_media());
    send(rig.client.restart());
    send(rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi));
    send(rig.client.set_secure_boot(true));
    send(rig.client.close());
}
