//! What a BMC has and what it lacks: known from its first look, told without a request.

use std::sync::Arc;

use bmc::{Bmc as _, BootStanding, Capability, Drive, ErrorKind, Insertion, PowerAction, capabilities};
use redfish::RedfishBmc;
use serde_json::{Value, json};

use crate::kit::{Bmc, CD, SYSTEM, rig};

const URL: &str = "http://192.0.2.1:6180/media/0123456789abcdef0123.iso";

async fn connected(bmc: &Arc<Bmc>, system: &str) -> RedfishBmc {
    let connected = RedfishBmc::new(rig(bmc, system).client);
    connected.begin(&[]).await.unwrap();
    bmc.take_log();
    connected
}

fn remove(bmc: &Bmc, path: &str, fields: &[&str]) {
    bmc.edit(path, |resource| {
        for field in fields {
            resource.as_object_mut().unwrap().remove(*field);
        }
    });
}

#[tokio::test]
async fn recorded_machines_have_what_their_trees_show() {
    use Capability::{
        BootDevice, DataDrive, Diagnostics, Events, Firmware, Hardware, LocationIndicator, Logs, VirtualMedia,
    };
    let all = || Capability::ALL.to_vec();
    for (set, system, expected) in [
        ("dell-r750", "/redfish/v1/Systems/System.Embedded.1", all()),
        ("hpe", "/redfish/v1/Systems/1", all()),
        (
            "supermicro-x10",
            "/redfish/v1/Systems/1",
            vec![BootDevice, VirtualMedia, DataDrive, Events, Firmware, Hardware, Logs, Diagnostics, LocationIndicator],
        ),
        ("dmtf-generic", SYSTEM, all()),
    ] {
        let bmc = Bmc::new(set);
        let connected = connected(&bmc, system).await;
        let (has, lacks) = capabilities(&connected);
        assert_eq!(has, expected, "{set}: {lacks:?}");
        assert!(lacks.iter().all(|lacking| lacking.looked_for.contains(system)), "{set}: {lacks:?}");
        assert!(bmc.take_log().is_empty(), "it is known already");
    }
}

#[tokio::test]
async fn what_is_missing_is_named_with_where_it_was_looked_for() {
    let bmc = Bmc::generic();
    remove(
        &bmc,
        SYSTEM,
        &[
            "Boot",
            "@Redfish.Settings",
            "SecureBoot",
            "VirtualMedia",
            "LogServices",
            "Bios",
            "BiosVersion",
            "IndicatorLED",
        ],
    );
    let hardware =
        ["Processors", "ProcessorSummary", "Memory", "MemorySummary", "Storage", "SimpleStorage", "EthernetInterfaces"];
    remove(&bmc, SYSTEM, &hardware);
    bmc.edit(SYSTEM, |system| {
        (system["Links"]["ManagedBy"], system["Links"]["Chassis"]) = (json!([]), json!([]));
    });
    // The managers may have a drive.
    let with_managers = connected(&bmc, SYSTEM).await;
    assert!(with_managers.virtual_media().is_ok());
    remove(&bmc, "/redfish/v1", &["Managers", "EventService", "UpdateService"]);
    let connected = connected(&bmc, SYSTEM).await;
    let (has, lacks) = capabilities(&connected);
    // What it does not show is evidence as well.
    assert_eq!(has, [Capability::Diagnostics], "{has:?}");
    let looked_for = [
        "Boot",
        "VirtualMedia",
        "VirtualMedia",
        "EventService",
        "SecureBoot",
        "Bios",
        "UpdateService",
        "memory",
        "LogServices",
        "IndicatorLED",
    ];
    for (lacking, looked_for) in lacks.iter().zip(looked_for) {
        let place = if looked_for == "EventService" { "/redfish/v1" } else { SYSTEM };
        assert!(lacking.looked_for.contains(looked_for) && lacking.looked_for.contains(place), "{lacking}");
    }
    assert_eq!(lacks[2].capability, Capability::DataDrive);
    assert!(lacks[1].advice.contains("licensed"), "{}", lacks[1].advice);
    assert!(bmc.take_log().is_empty());
    // It is shown again, after the self-test for instance: the next look tells.
    bmc.edit(SYSTEM, |system| system["SecureBoot"] = json!({"@odata.id": format!("{SYSTEM}/SecureBoot")}));
    connected.look().await.unwrap();
    assert!(connected.secure_boot().is_ok());
}

/// What takes requests to know is asked for before anything is begun, and not again.
#[tokio::test]
async fn a_drive_is_found_once() {
    let bmc = Bmc::generic();
    let connected = connected(&bmc, SYSTEM).await;
    let media = connected.virtual_media().unwrap();
    media.find().await.unwrap();
    assert!(!bmc.take_log().is_empty());
    media.find().await.unwrap();
    assert!(bmc.take_log().is_empty());
}

#[tokio::test]
async fn a_bmc_without_a_drive_says_where_one_was_looked_for() {
    let bmc = Bmc::generic();
    for list in [format!("{SYSTEM}/VirtualMedia"), "/redfish/v1/Managers/BMC/VirtualMedia".to_owned()] {
        if bmc.inner.lock().unwrap().resources.contains_key(&list) {
            bmc.edit(&list, |list| list["Members"] = Value::Null);
        }
    }
    let connected = connected(&bmc, SYSTEM).await;
    let error = connected.virtual_media().unwrap().find().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    for words in ["no virtual media", "no virtual drive", &format!("{SYSTEM}/VirtualMedia"), "/redfish/v1/Managers/BMC"]
    {
        assert!(error.found.contains(words), "{words}: {error}");
    }
    assert!(error.advice.contains("licensed"), "{}", error.advice);
    connected.virtual_media().unwrap().eject().await.expect("without a drive there is no medium");
}

#[tokio::test]
async fn a_boot_from_a_medium_by_capabilities_alone() {
    let bmc = Bmc::generic();
    let connected = connected(&bmc, SYSTEM).await;
    let (media, device) = (connected.virtual_media().unwrap(), connected.boot_device().unwrap());
    let urls = [URL.to_owned()];
    assert_eq!(media.insert(&urls, None).await.unwrap(), Insertion::Done);
    assert_eq!(media.drive(&urls).await.unwrap(), Drive::Medium);
    assert_eq!(media.drive(&[URL.replace("0123", "4567")]).await.unwrap(), Drive::Another);
    device.once_from_medium().await.unwrap();
    connected.power().change(PowerAction::Restart).await.unwrap();
    bmc.edit(SYSTEM, |system| system["BootProgress"] = json!({"LastState": "OSRunning"}));
    let ahead = BootStanding { powered_on: Some(true), override_ahead: Some(true), progress: Some("OSRunning".into()) };
    assert_eq!(device.standing().await.unwrap(), ahead);
    for (shown, on) in [("Off", Some(false)), ("PoweringOn", None), ("On", Some(true))] {
        bmc.edit(SYSTEM, |system| system["PowerState"] = shown.into());
        assert_eq!(device.standing().await.unwrap().powered_on, on, "{shown}");
    }
    device.normally().await.unwrap();
    assert_eq!(device.standing().await.unwrap().override_ahead, Some(false));
    media.eject().await.unwrap();
    assert_eq!(bmc.resource(CD)["Inserted"], false);
    assert_eq!(media.drive(&urls).await.unwrap(), Drive::Empty);
    for (action, on) in [(PowerAction::HardOff, false), (PowerAction::On, true), (PowerAction::SoftOff, false)] {
        connected.power().change(action).await.unwrap();
        assert_eq!(connected.look().await.unwrap().powered_on, Some(on), "{action:?}");
    }
    assert!(connected.calls() > 10 && connected.session().is_some());
    connected.close().await;
    assert_eq!((connected.session(), bmc.session_count()), (None, 0));
}
