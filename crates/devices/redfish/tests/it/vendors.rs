//! Recorded trees of several makers: read leniently, driven as each wants it.

use crate::kit::{self, Bmc, CD, Odd, SYSTEM, error_body, fixture, odd, rig};
use bmc::ErrorKind;
use redfish::message::ErrorBody;
use redfish::{BootMode, BootTarget, Inserted, PowerState, ResetType};
use serde_json::{Value, json};

const URL: &str = "http://192.0.2.1/media/0123456789.iso";

#[tokio::test]
async fn dell_never_trusts_inserted_and_waits_for_its_own_eject() {
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    let system = rig.client.system().await.unwrap();
    assert_eq!(system.manufacturer.as_deref(), Some("Dell Inc."));
    assert_eq!(system.model.as_deref(), Some("PowerEdge R750"));
    assert_eq!(system.bios_version.as_deref(), Some("1.8.2"));
    let drive = "/redfish/v1/Systems/System.Embedded.1/VirtualMedia/1";
    bmc.take_log();
    // The drive claims to hold this very medium.
    bmc.edit(drive, |drive| {
        drive["Inserted"] = true.into();
        drive["Image"] = URL.into();
    });
    let busy = || odd(500, error_body("VRM0021", "Virtual media is detached or redirected"));
    bmc.script("POST", "VirtualMedia.InsertMedia", busy());
    bmc.script("POST", "VirtualMedia.InsertMedia", busy());
    assert_eq!(rig.client.insert_media(URL).await.unwrap(), Inserted::Now);
    let log = bmc.take_log();
    assert_eq!(log.iter().filter(|line| line.contains("Eject")).count(), 1);
    assert_eq!(log.iter().filter(|line| line.contains("Insert")).count(), 3);
    assert_eq!(rig.waits.0.lock().unwrap().iter().map(|wait| wait.as_secs()).collect::<Vec<_>>(), [3, 6]);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    rig.client.reset(ResetType::ForceOff).await.unwrap();
    // iDRAC 10 after a power-off.
    bmc.script("POST", "ComputerSystem.Reset", odd(409, error_body("ActionParameterValueConflict", "Conflict")));
    rig.client.reset(ResetType::On).await.unwrap();
    assert_eq!(rig.client.power_state().await.unwrap(), PowerState::On);
    assert!(bmc.script_is_used_up());
}

#[tokio::test]
async fn an_insertion_that_keeps_failing_ends_with_the_bmcs_words() {
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    for _ in 0..8 {
        let body = error_body("VRM0012", &format!("Unable to locate {URL}"));
        bmc.script("POST", "VirtualMedia.InsertMedia", odd(500, body));
    }
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Rejected { status: 500 });
    let text = format!("{error} {error:?}");
    assert!(text.contains("insert the medium on BMC https://192.0.2.7"), "{text}");
    assert!(text.contains("Unable to locate [hidden]") && !text.contains("0123456789"), "{text}");
    assert_eq!(rig.waits.0.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_look_and_an_eject_that_fail_tell_no_address() {
    let bmc = Bmc::new("dell-r750");
    let rig = rig(&bmc, "/redfish/v1/Systems/System.Embedded.1");
    rig.client.insert_media(URL).await.unwrap();
    let names = || odd(500, error_body("VRM0012", &format!("Cannot release {URL}")));
    bmc.script("POST", "VirtualMedia.EjectMedia", names());
    let eject = rig.client.eject_media().await.unwrap_err();
    bmc.script("GET", "/VirtualMedia/1", names());
    let look = rig.client.media_state().await.unwrap_err();
    for error in [eject, look] {
        let text = format!("{error} {error:?}");
        assert!(text.contains("Cannot release [hidden]") && !text.contains("0123456789"), "{text}");
    }
    assert!(bmc.script_is_used_up());
}

#[tokio::test]
async fn hpe_has_its_drives_at_the_manager_and_wants_a_body_for_eject() {
    let bmc = Bmc::new("hpe");
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    let system = rig.client.system().await.unwrap();
    assert_eq!(system.manufacturer.as_deref(), Some("HPE"));
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.resource("/redfish/v1/Managers/1/VirtualMedia/2")["Image"], URL);
    bmc.take_log();
    rig.client.eject_media().await.unwrap();
    let eject = bmc.take_seen();
    assert_eq!((eject.len(), &eject[0].body), (1, &json!({})));
    // The self-test runs: patience.
    let post = error_body("UnableToModifyDuringSystemPOST", "Unable during POST");
    bmc.script("PATCH", "/Systems/1", odd(400, post));
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    assert_eq!(rig.waits.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn supermicro_x10_mounts_from_smb_alone_and_says_so() {
    let bmc = Bmc::new("supermicro-x10");
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    let system = rig.client.system().await.unwrap();
    assert_eq!(system.serial_number, None, "blanks are no serial number");
    bmc.set(|inner| drop(inner.resources.insert("/redfish/v1/Managers/1/VM1/CfgCD".into(), json!({}))));
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("SMB") && error.advice.contains("firmware"), "{error} {}", error.advice);
    rig.client.eject_media().await.unwrap();
    bmc.take_log();
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    let boot = &bmc.take_seen()[0].body["Boot"];
    assert_eq!(boot["BootSourceOverrideTarget"], "UsbCd");
    // The list also has a name of its own for a CD, used where nothing else is offered.
    bmc.edit("/redfish/v1/Systems/1", |system| {
        let list = &mut system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"];
        list.as_array_mut().unwrap().retain(|offered| offered != "UsbCd");
    });
    rig.client.system().await.unwrap();
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    assert_eq!(bmc.take_seen().last().unwrap().body["Boot"]["BootSourceOverrideTarget"], "CD/DVD");
}

/// The generic tree in another maker's name.
fn made_by(maker: &str, model: &str) -> std::sync::Arc<Bmc> {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| {
        system["Manufacturer"] = maker.into();
        system["Model"] = model.into();
    });
    bmc
}

#[tokio::test]
async fn supermicro_takes_only_the_image_and_boots_a_usb_cd() {
    for (model, target) in [("SYS-121H", "UsbCd"), ("ARS-111GL-NHR", "Cd")] {
        let bmc = made_by("Supermicro", model);
        bmc.edit(SYSTEM, |system| {
            system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(["None", "Cd", "UsbCd", "Hdd"]);
        });
        let rig = rig(&bmc, SYSTEM);
        rig.client.insert_media(URL).await.unwrap();
        rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
        let seen = bmc.take_seen();
        let insert = seen.iter().find(|seen| seen.path.contains("InsertMedia")).unwrap();
        assert_eq!(insert.body, json!({"Image": URL}));
        let boot = &seen.last().unwrap().body["Boot"];
        assert_eq!(
            (&boot["BootSourceOverrideTarget"], &boot["BootSourceOverrideEnabled"]),
            (&json!(target), &json!("Once"))
        );
    }
}

#[tokio::test]
async fn ami_gets_every_field_of_a_boot_change() {
    let bmc = made_by("American Megatrends", "x");
    let rig = rig(&bmc, SYSTEM);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    rig.client.clear_boot_override().await.unwrap();
    for seen in bmc.take_seen().iter().filter(|seen| seen.method == "PATCH") {
        assert_eq!(seen.body["Boot"].as_object().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_mode_that_a_bmc_misses_in_a_boot_change_is_added_and_kept() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let missing =
        || odd(400, error_body("PropertyMissing", "The property BootSourceOverrideMode is a required property."));
    bmc.script("PATCH", SYSTEM, missing());
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    rig.client.clear_boot_override().await.unwrap();
    rig.client.set_boot_once(BootTarget::Hdd, BootMode::Uefi).await.unwrap();
    let sent = |bmc: &Bmc| {
        let changes = bmc.take_seen().into_iter().filter(|seen| seen.method == "PATCH");
        changes.map(|seen| seen.body["Boot"]["BootSourceOverrideMode"] == "UEFI").collect::<Vec<_>>()
    };
    assert_eq!(sent(&bmc), [false, true, true, true], "it is told once");
    // A BMC that says so of the end of an override.
    let bmc = Bmc::generic();
    let rig = kit::rig(&bmc, SYSTEM);
    bmc.script("PATCH", SYSTEM, missing());
    rig.client.clear_boot_override().await.unwrap();
    assert_eq!(sent(&bmc), [false, true]);
}

#[tokio::test]
async fn a_conflict_at_a_drive_that_is_shown_empty_is_tried_again_after_an_eject() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let conflict = || odd(409, error_body("ResourceInUse", "The resource is in use."));
    bmc.script("POST", "VirtualMedia.InsertMedia", conflict());
    rig.client.insert_media(URL).await.unwrap();
    let posts = |bmc: &Bmc| {
        let log = bmc.take_log().into_iter().filter(|line| line.starts_with("POST ") && line.contains("VirtualMedia."));
        log.filter_map(|line| Some(line.rsplit('.').next()?.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(posts(&bmc), ["InsertMedia", "EjectMedia", "InsertMedia"]);
    // For ever: once is enough, and the BMC's words are told.
    let rig = kit::rig(&bmc, SYSTEM);
    rig.client.eject_media().await.unwrap();
    bmc.take_log();
    bmc.script("POST", "VirtualMedia.InsertMedia", conflict());
    bmc.script("POST", "VirtualMedia.InsertMedia", conflict());
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert!(error.to_string().contains("in use") && error.status() == Some(409), "{error}");
    assert_eq!(posts(&bmc), ["InsertMedia", "EjectMedia", "InsertMedia"]);
}

#[tokio::test]
async fn the_mode_is_sent_where_it_differs() {
    let bmc = Bmc::generic();
    bmc.edit(SYSTEM, |system| system["Boot"]["BootSourceOverrideMode"] = "Legacy".into());
    let rig = rig(&bmc, SYSTEM);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    assert_eq!(bmc.take_seen().last().unwrap().body["Boot"]["BootSourceOverrideMode"], "UEFI");
}

/// A BMC with a second drive that takes CDs.
fn with_a_second_drive(bmc: &Bmc) -> String {
    let second = CD.replace("CD1", "CD2");
    let drive = bmc.resource(CD);
    bmc.set(|inner| {
        let text = drive.to_string().replace("CD1", "CD2").replace("\"CD\",", "");
        inner.resources.insert(second.clone(), serde_json::from_str(&text).unwrap());
    });
    bmc.edit(&format!("{SYSTEM}/VirtualMedia"), |list| {
        list["Members"].as_array_mut().unwrap().push(json!({"@odata.id": second}));
    });
    second
}

#[tokio::test]
async fn drives_that_take_no_image_are_passed_over_whoever_made_them() {
    // Cisco's internal drives and Lenovo's RDOC and Remote ones are in the list, and answer 400.
    for maker in ["Cisco Systems Inc", "Lenovo", "Nobody"] {
        let bmc = made_by(maker, "x");
        let second = with_a_second_drive(&bmc);
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", "CD1/Actions/VirtualMedia.InsertMedia", odd(400, error_body("Internal", "Internal drive")));
        rig.client.insert_media(URL).await.unwrap();
        assert_eq!(bmc.resource(&second)["Image"], URL, "{maker}");
        // The drive that took it is the one that is emptied.
        rig.client.eject_media().await.unwrap();
        assert_eq!(bmc.resource(&second)["Inserted"], false);
    }
}

#[tokio::test]
async fn what_every_drive_refuses_is_told_in_the_last_ones_words_and_tried_from_the_first_again() {
    let bmc = Bmc::generic();
    let second = with_a_second_drive(&bmc);
    let rig = rig(&bmc, SYSTEM);
    bmc.script("POST", "CD1/Actions/VirtualMedia.InsertMedia", odd(400, error_body("Internal", "Internal drive")));
    bmc.script("POST", "CD2/Actions/VirtualMedia.InsertMedia", odd(400, error_body("Licence", "No licence for media")));
    let error = rig.client.insert_media(URL).await.unwrap_err();
    assert!(error.to_string().contains("No licence"), "{error}");
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!((&bmc.resource(CD)["Image"], &bmc.resource(&second)["Image"]), (&json!(URL), &Value::Null));
}

#[tokio::test]
async fn a_drive_without_actions_is_changed_itself() {
    // As the recorded generic tree is; it holds a medium.
    let bmc = Bmc::new("dmtf-generic");
    let rig = rig(&bmc, SYSTEM);
    rig.client.insert_media(URL).await.unwrap();
    let drive = bmc.resource(CD);
    assert_eq!((&drive["Image"], &drive["Inserted"]), (&json!(URL), &json!(true)));
    rig.client.eject_media().await.unwrap();
    let drive = bmc.resource(CD);
    assert_eq!((&drive["Image"], &drive["Inserted"]), (&Value::Null, &json!(false)));
}

#[tokio::test]
async fn a_system_that_names_no_manager_is_looked_for_at_all_of_them() {
    let bmc = Bmc::new("hpe");
    bmc.edit("/redfish/v1/Systems/1", |system| system["Links"]["ManagedBy"] = Value::Null);
    let rig = rig(&bmc, "/redfish/v1/Systems/1");
    rig.client.insert_media(URL).await.unwrap();
    assert!(bmc.take_log().contains(&"GET /redfish/v1/Managers".to_owned()));
}

#[tokio::test]
async fn parameters_that_a_bmc_insists_on_are_added() {
    for (name, field) in [
        ("transfer_proto_required_error.json", "TransferProtocolType"),
        ("transfer_proto_required_error2.json", "TransferProtocolType"),
        ("transfer_proto_required_error3.json", "TransferProtocolType"),
        ("transfer_method_required_error.json", "TransferMethod"),
        ("credentials_required_error.json", "Password"),
    ] {
        let bmc = Bmc::generic();
        let rig = rig(&bmc, SYSTEM);
        bmc.script("POST", "VirtualMedia.InsertMedia", odd(400, fixture("sushy", name)));
        rig.client.insert_media(URL).await.unwrap();
        let seen = bmc.take_seen();
        let tries: Vec<_> = seen.iter().filter(|seen| seen.path.contains("InsertMedia")).collect();
        assert_eq!(tries.len(), 2, "{name}");
        assert!(tries[0].body.get(field).is_none() && tries[1].body.get(field).is_some(), "{name}: {}", tries[1].body);
        assert_eq!(tries[1].body["TransferProtocolType"], "HTTP");
    }
}

#[tokio::test]
async fn parameters_that_a_bmc_refuses_are_left_out() {
    let bmc = Bmc::generic();
    let rig = rig(&bmc, SYSTEM);
    let refusal =
        error_body("ActionParameterUnknown", "The action was submitted with the invalid parameter WriteProtected.");
    bmc.script("POST", "VirtualMedia.InsertMedia", odd(400, refusal));
    rig.client.insert_media(URL).await.unwrap();
    let seen = bmc.take_seen();
    assert_eq!(seen.last().unwrap().body, json!({"Image": URL}));
}

#[tokio::test]
async fn boot_changes_go_to_the_settings_resource_where_only_it_takes_them() {
    let bmc = Bmc::generic();
    let settings = fixture("sushy", "settings-nokia.json");
    bmc.edit(SYSTEM, |system| {
        system["@Redfish.Settings"] = settings["@Redfish.Settings"].clone();
        system["Boot"] = json!({});
    });
    let body = fixture("sushy", "settings-body-nokia.json");
    bmc.set(|inner| drop(inner.resources.insert("/redfish/v1/Systems/Self/SD".into(), body)));
    let rig = rig(&bmc, SYSTEM);
    rig.client.set_boot_once(BootTarget::Cd, BootMode::Uefi).await.unwrap();
    assert_eq!(bmc.resource("/redfish/v1/Systems/Self/SD")["Boot"]["BootSourceOverrideEnabled"], "Once");
}

#[test]
fn recorded_errors_read_as_sentences() {
    let said = |name| ErrorBody::read(&fixture("sushy", name)).sentence().unwrap();
    let list = said("error.json");
    assert!(list.starts_with("The value Red for the property IndicatorLED is not"), "{list}");
    assert!(list.contains("SKU is a read only property") && list.chars().count() <= 501, "{list}");
    let single = said("error_single_ext_info.json");
    assert!(single.contains("unsupported media type"), "{single}");
    assert!(said("session_error.json").contains("no valid session"));
}

#[tokio::test]
async fn odd_samples_are_read() {
    for name in ["system.json", "systemv1_20.json", "system_managedby_missing_manager_present.json"] {
        let bmc = Bmc::generic();
        let sample = fixture("sushy", name);
        bmc.set(|inner| drop(inner.resources.insert(SYSTEM.into(), sample)));
        let rig = rig(&bmc, SYSTEM);
        let system = rig.client.system().await.unwrap();
        assert_eq!(system.power_state, PowerState::On, "{name}");
        assert_eq!(system.boot.mode.as_deref(), Some("UEFI"), "{name}");
    }
    let bmc = Bmc::generic();
    bmc.set(|inner| drop(inner.resources.insert("/redfish/v1".into(), fixture("sushy", "bare_minimum_root.json"))));
    bmc.script("POST", "VirtualMedia.InsertMedia", Odd::Answer(200, vec![], b"<html>ok</html>".to_vec()));
    let rig = rig(&bmc, SYSTEM);
    rig.client.insert_media(URL).await.unwrap();
    assert_eq!(bmc.take_seen().last().unwrap().auth, "basic", "such a root names no sessions");
}
