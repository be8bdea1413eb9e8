//! Virtual media that are not the standard's: Lenovo's drives, and makers' own actions.

use bmc::ErrorKind;
use serde_json::{Value, json};

use crate::kit::{Bmc, CD, SYSTEM, rig};

const URL: &str = "http://192.0.2.1:6180/media/0123456789.iso";

/// Drives of these names in place of the generic tree's; all say that they take CDs.
fn drives(bmc: &Bmc, names: &[&str]) -> String {
    let list = format!("{SYSTEM}/VirtualMedia");
    let drive = bmc.resource(CD).to_string();
    bmc.edit(&list, |list| list["Members"] = json!([]));
    for name in names {
        let path = format!("{list}/{name}");
        let value: Value = serde_json::from_str(&drive.replace("CD1", name)).unwrap();
        bmc.set(|inner| drop(inner.resources.insert(path.clone(), value)));
        bmc.edit(&list, |list| list["Members"].as_array_mut().unwrap().push(json!({"@odata.id": path})));
    }
    list
}

#[tokio::test]
async fn lenovos_drives_for_uploads_and_consoles_are_never_asked() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["Manufacturer"] = "Lenovo".into());
    let list = drives(&bmc, &["RDOC1", "RDOC2", "Remote1", "Remote2", "EXT1", "EXT2"]);
    let first = rig(&bmc, SYSTEM);
    first.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource(&format!("{list}/EXT1"))["Image"], URL);
    let asked = bmc.take_log().into_iter().filter(|line| line.contains("RDOC") || line.contains("Remote"));
    assert_eq!(asked.count(), 0);

    // Without a drive EXT it is said which there are.
    let list = drives(&bmc, &["RDOC1", "Remote1"]);
    let second = rig(&bmc, SYSTEM);
    let error = second.client.insert_media(URL).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("RDOC and Remote") && error.found.contains("EXT"), "{error}");
    assert_eq!(bmc.resource(&format!("{list}/RDOC1"))["Inserted"], false);
}

#[tokio::test]
async fn ilo_4_is_given_media_by_its_own_action_which_takes_the_image_alone() {
    let bmc = Bmc::new("hpe");
    let drive = "/redfish/v1/Managers/1/VirtualMedia/2";
    let target = |name: &str| json!({"target": format!("{drive}/Actions/Oem/Hp/HpiLOVirtualMedia.{name}")});
    bmc.edit(drive, |drive| {
        drive.as_object_mut().unwrap().remove("Actions");
        drive["Oem"] = json!({"Hp": {"Actions": {
            "#HpiLOVirtualMedia.InsertVirtualMedia": target("InsertVirtualMedia"),
            "#HpiLOVirtualMedia.EjectVirtualMedia": target("EjectVirtualMedia"),
        }}});
    });
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource(drive)["Image"], URL);
    let tries = bmc.take_seen().into_iter().filter(|seen| seen.method == "POST" && seen.path.contains("Insert"));
    assert_eq!(tries.map(|seen| seen.body).collect::<Vec<_>>(), [json!({"Image": URL})]);
    rig.client.eject_media().await.unwrap();
    assert_eq!(bmc.resource(drive)["Inserted"], false);
}

#[tokio::test]
async fn supermicros_configured_drive_is_used_where_it_mounts_from_a_web_server() {
    let bmc = Bmc::new("supermicro-x10");
    let config = "/redfish/v1/Managers/1/VM1/CfgCD";
    bmc.set(|inner| {
        inner.resources.insert(config.into(), json!({"Host": "", "Path": ""}));
        inner.iso_config_mounts = true;
    });
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    rig.client.insert_media(URL).await.unwrap();
    let written = bmc.resource(config);
    assert_eq!(
        (&written["Host"], &written["Path"]),
        (&json!("http://192.0.2.1:6180"), &json!("/media/0123456789.iso"))
    );
    assert!(rig.client.media_state().await.unwrap().is_occupied());
    // What is in is taken out before something else is put in.
    bmc.take_log();
    rig.client.insert_media(&URL.replace("0123", "4567")).await.unwrap();
    let log = bmc.take_log();
    let order = |what: &str| log.iter().position(|line| line.ends_with(what));
    assert!(order("IsoConfig.UnMount") < order("IsoConfig.Mount") && order("IsoConfig.UnMount").is_some(), "{log:?}");
    rig.client.eject_media().await.unwrap();
    assert!(!rig.client.media_state().await.unwrap().is_occupied());
}

#[tokio::test]
async fn drives_that_mount_from_shares_alone_are_named() {
    let huawei = Bmc::generic();
    huawei.edit(CD, |drive| {
        drive["Actions"] = json!({});
        drive["Oem"] = json!({"Huawei": {"Actions": {"#VirtualMedia.VmmControl": {"target": "/x"}}}});
    });
    let fujitsu = Bmc::generic();
    drives(&fujitsu, &[]);
    fujitsu.edit(SYSTEM, |system| {
        system["Actions"]["Oem"] = json!({"#FTSComputerSystem.VirtualMedia": {"target": "/x"}});
        system["Links"]["ManagedBy"] = json!([]);
    });
    for (bmc, action) in [(huawei, "VmmControl"), (fujitsu, "FTSComputerSystem.VirtualMedia")] {
        let rig = rig(&bmc, SYSTEM);
        let error = rig.client.insert_media(URL).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.found.contains(action) && error.found.contains("NFS"), "{error}");
        let changes = bmc.take_seen().into_iter().filter(|seen| seen.method != "GET" && !seen.path.contains("Session"));
        assert_eq!(changes.count(), 0, "nothing is tried on it");
        rig.client.eject_media().await.unwrap();
    }
}
