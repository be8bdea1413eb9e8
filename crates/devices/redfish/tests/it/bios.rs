//! The firmware's settings and versions, as each maker shows them: read, described, changed, refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use bmc::{AttributeKind, Bmc as _, ErrorKind, JobState};
use redfish::{Client, RedfishBmc};
use serde_json::{Value, json};

use crate::kit::{Bmc, Odd, PASSWORD, SYSTEM, error_body, fixture, odd, rig};

const HPE: &str = "/redfish/v1/Systems/1";
const DELL: &str = "/redfish/v1/Systems/System.Embedded.1";

fn wish(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn put(bmc: &Bmc, path: &str, resource: Value) {
    bmc.set(|inner| {
        inner.resources.insert(path.to_owned(), resource);
    });
}

/// HPE's recorded server, with its registries and the settings resource that shows all attributes.
fn hpe() -> (Arc<Bmc>, String) {
    let bmc = Bmc::new("hpe");
    let bios = bmc.resource(HPE)["Bios"]["@odata.id"].as_str().unwrap().trim_end_matches('/').to_owned();
    let mut settings = bmc.resource(&bios);
    let path = format!("{bios}/settings");
    settings["@odata.id"] = json!(path);
    settings.as_object_mut().unwrap().remove("@Redfish.Settings");
    put(&bmc, &path, settings);
    let member = "/redfish/v1/Registries/BiosAttributeRegistryU58.v1_2_44";
    put(
        &bmc,
        "/redfish/v1/Registries",
        json!({"Members": [{"@odata.id": "/redfish/v1/Registries/Base.1.4.0"}, {"@odata.id": member}]}),
    );
    (bmc, path)
}

/// The registry as iLO sends it: compressed, whatever it was asked for.
fn zipped() -> Odd {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hpe/biosattributeregistryu58.v1_2_44.json.gz");
    Odd::Answer(200, vec![("content-encoding", "gzip".to_owned())], std::fs::read(path).unwrap())
}

const STORE: &str = "/registrystore/registries/en/biosattributeregistryu58.v1_2_44";

#[tokio::test]
async fn hpe_describes_its_settings_in_a_compressed_registry_and_shows_all_that_is_pending() {
    let (bmc, settings) = hpe();
    bmc.script("GET", STORE, zipped());
    let client = rig(&bmc, HPE).client;
    let seen = client.bios(true).await.unwrap().unwrap();
    assert_eq!(seen.current["AutoPowerOn"], "RestoreLastState");
    assert!(seen.current.len() > 150 && seen.is_pending(&seen.current), "{}", seen.current.len());
    assert_eq!(seen.applied.refusals, [""; 0], "success is no refusal");
    let schema = client.bios_schema().await.unwrap().unwrap();
    let fast = &schema["MemFastTraining"];
    assert_eq!((fast.kind, fast.read_only), (Some(AttributeKind::Enumeration), Some(false)));
    assert_eq!(fast.allowed, ["Enabled", "Disabled"]);
    assert!(schema["WorkloadProfile"].allowed.len() > 5, "{:?}", schema["WorkloadProfile"]);
    // Known from here on, and the same for all machines with it.
    bmc.take_log();
    let again = client.bios_schema().await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&schema, &again) && bmc.take_log().is_empty());

    bmc.set(|inner| {
        inner.etags.insert(settings.clone(), "\"e1\"".to_owned());
    });
    let wished = wish(&[("AutoPowerOn", "AlwaysPowerOff")]);
    assert_eq!(client.set_bios(&wished).await.unwrap(), None, "iLO has no job for it");
    let seen = bmc.take_seen();
    let patch = seen.iter().find(|seen| seen.method == "PATCH").unwrap();
    assert_eq!(patch.path.trim_end_matches('/'), settings);
    assert_eq!(patch.body, json!({"Attributes": {"AutoPowerOn": "AlwaysPowerOff"}}), "no time that it does not name");
    assert_eq!(patch.if_match.as_deref(), Some("\"e1\""));
    let seen = client.bios(true).await.unwrap().unwrap();
    assert_eq!(seen.open(&wished), wished);
    assert!(seen.is_pending(&wished));
}

#[tokio::test]
async fn refused_settings_are_named() {
    let (bmc, settings) = hpe();
    bmc.script("GET", STORE, zipped());
    let client = rig(&bmc, HPE).client;
    let mut body = error_body("PropertyNotWritableOrUnknown", "The property is read-only or unknown.");
    body["error"]["@Message.ExtendedInfo"][0]["RelatedProperties"] = json!(["#/Attributes/ProcTurbo"]);
    bmc.script("PATCH", "/bios/settings/", odd(400, body));
    let wished = wish(&[("AutoPowerOn", "AlwaysPowerOff"), ("ProcTurbo", "Disabled")]);
    let error = client.set_bios(&wished).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Rejected { status: 400 });
    assert!(error.found.starts_with("it refuses ProcTurbo: "), "{error}");
    // Taken, and silently left out.
    bmc.script("PATCH", "/bios/settings/", Odd::Answer(200, vec![], b"{}".to_vec()));
    let error = client.set_bios(&wish(&[("AutoPowerOn", "AlwaysPowerOff")])).await.unwrap_err();
    assert!(error.found.contains("left out AutoPowerOn"), "{error}");
    assert!(bmc.script_is_used_up());
    // The answer is lost: what is pending tells whether it was taken.
    bmc.script("PATCH", "/bios/settings/", Odd::DropAfter);
    let done = client.set_bios(&wish(&[("AutoPowerOn", "AlwaysPowerOff")])).await;
    assert!(done.is_ok(), "{done:?}");
    assert_eq!(bmc.resource(&settings)["Attributes"]["AutoPowerOn"], "AlwaysPowerOff");
}

#[tokio::test]
async fn a_declared_time_is_named_values_keep_their_type_and_old_refusals_are_read() {
    let bmc = Bmc::generic();
    let (path, settings) = (format!("{SYSTEM}/Bios"), format!("{SYSTEM}/BIOS/Settings"));
    put(&bmc, &path, fixture("sushy", "bios.json"));
    put(&bmc, &settings, fixture("sushy", "bios_settings.json"));
    let client = rig(&bmc, SYSTEM).client;
    let seen = client.bios(true).await.unwrap().unwrap();
    assert_eq!((seen.current["ProcCoreDisable"].as_str(), seen.current["AdminPhone"].as_str()), ("0", ""));
    assert_eq!(seen.pending["ProcTurboMode"], "Disabled");
    assert!(seen.applied.mark.as_deref().unwrap().contains("2016-03-07"));
    assert_eq!(seen.applied.refusals.len(), 1);
    assert!(seen.applied.refusals[0].starts_with("ProcTurboMode: "), "{:?}", seen.applied.refusals);
    assert_eq!(client.bios_schema().await.unwrap(), None, "it has no such registry");
    client.set_bios(&wish(&[("ProcCoreDisable", "4"), ("BootMode", "LegacyBios")])).await.unwrap();
    let log = bmc.take_seen();
    let patch = log.iter().find(|seen| seen.method == "PATCH").unwrap();
    assert_eq!(patch.body["Attributes"], json!({"ProcCoreDisable": 4, "BootMode": "LegacyBios"}));
    assert_eq!(patch.body["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
}

#[tokio::test]
async fn ami_has_booleans_and_its_registry_under_a_name_with_dots() {
    let bmc = Bmc::generic();
    let mut bios = fixture("sushy", "bios_zt.json");
    bios["@Redfish.Settings"] = json!({"SettingsObject": {"@odata.id": format!("{SYSTEM}/Bios/SD")}});
    put(&bmc, &format!("{SYSTEM}/Bios"), bios);
    put(&bmc, &format!("{SYSTEM}/Bios/SD"), json!({"Attributes": {}}));
    let file = fixture("sushy", "bios_attribute_registry_file_zthardware.json");
    let member = file["@odata.id"].as_str().unwrap().to_owned();
    put(&bmc, "/redfish/v1/Registries", json!({"Members": [{"@odata.id": member}]}));
    bmc.edit("/redfish/v1", |root| root["Registries"] = json!({"@odata.id": "/redfish/v1/Registries"}));
    put(
        &bmc,
        file["Location"][0]["Uri"].as_str().unwrap(),
        fixture("sushy", "bios_attribute_registry_zthardware.json"),
    );
    put(&bmc, &member, file);
    let client = rig(&bmc, SYSTEM).client;
    let seen = client.bios(true).await.unwrap().unwrap();
    assert_eq!(seen.current["ACPI004"], "false");
    assert!(seen.pending.is_empty(), "only changes are shown there");
    let schema = client.bios_schema().await.unwrap().unwrap();
    assert_eq!(schema["TCG003"].allowed, ["Disable", "Enable"]);
    let wished = wish(&[("ACPI004", "true")]);
    client.set_bios(&wished).await.unwrap();
    assert_eq!(bmc.resource(&format!("{SYSTEM}/Bios/SD"))["Attributes"], json!({"ACPI004": true}));
    assert!(client.bios(true).await.unwrap().unwrap().is_pending(&wished));
}

/// An iDRAC: the settings resource shows what is to be changed, a change makes a job, and a second one is refused while it is there.
fn dell() -> (Arc<Bmc>, String) {
    let bmc = Bmc::new("dell-r750");
    let path = format!("{DELL}/Bios");
    let settings = json!({"@odata.type": "#Settings.v1_3_3.Settings", "SettingsObject": {"@odata.id": format!("{path}/Settings")},
        "SupportedApplyTimes": ["OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"]});
    put(
        &bmc,
        &path,
        json!({"@odata.id": path, "AttributeRegistry": "BiosAttributeRegistry.v1_0_0", "@Redfish.Settings": settings,
        "Attributes": {"LogicalProc": "Enabled", "NumLock": "On", "SysPassword": null, "SystemServiceTag": "7GQJK92"}}),
    );
    put(&bmc, &format!("{path}/Settings"), json!({"@odata.id": format!("{path}/Settings"), "Attributes": {}}));
    put(
        &bmc,
        "/redfish/v1/Registries",
        json!({"Members": [{"@odata.id": "/redfish/v1/Registries/BiosAttributeRegistry"}]}),
    );
    put(
        &bmc,
        "/redfish/v1/Registries/BiosAttributeRegistry",
        json!({"Id": "BiosAttributeRegistry", "Registry": "BiosAttributeRegistry.v1_0_0",
        "Location": [{"Language": "en", "Uri": format!("{path}/BiosRegistry")}]}),
    );
    put(
        &bmc,
        &format!("{path}/BiosRegistry"),
        json!({"RegistryEntries": {"Attributes": [
        {"AttributeName": "LogicalProc", "Type": "Enumeration", "ReadOnly": false, "Value": [{"ValueName": "Enabled"}, {"ValueName": "Disabled"}]},
        {"AttributeName": "SysPassword", "Type": "Password", "ReadOnly": false, "MinLength": 0, "MaxLength": 32},
        {"AttributeName": "SystemServiceTag", "Type": "String", "ReadOnly": true, "IsSystemUniqueProperty": true}]}}),
    );
    (bmc, path)
}

#[tokio::test]
async fn dell_makes_a_job_and_refuses_a_second_change_meanwhile() {
    let (bmc, path) = dell();
    let client = rig(&bmc, DELL).client;
    let schema = client.bios_schema().await.unwrap().unwrap();
    assert_eq!(
        (schema["SysPassword"].kind, schema["SysPassword"].max_length),
        (Some(AttributeKind::Password), Some(32))
    );
    assert_eq!((schema["SystemServiceTag"].unique, schema["SystemServiceTag"].read_only), (Some(true), Some(true)));
    let job = "/redfish/v1/TaskService/Tasks/JID_878659984891";
    let taken = Odd::Answer(202, vec![("location", job.to_owned())], Vec::new());
    bmc.script("PATCH", "/Bios/Settings", taken);
    let wished = wish(&[("LogicalProc", "Disabled")]);
    let named = client.set_bios(&wished).await.unwrap();
    assert_eq!(named.as_deref(), Some(job));
    let log = bmc.take_seen();
    let patch = log.iter().find(|seen| seen.method == "PATCH").unwrap();
    assert_eq!(patch.body["@Redfish.SettingsApplyTime"]["ApplyTime"], "OnReset");
    assert!(!log.iter().any(|seen| seen.path.contains("JID_")), "a job that waits for a restart is not waited for");

    let state = |task: Value| {
        put(&bmc, job, task);
        client.bios_job(job)
    };
    let waits = state(json!({"TaskState": "New", "TaskStatus": "OK", "PercentComplete": 0})).await.unwrap();
    assert!(matches!(waits, JobState::Open(_)), "{waits:?}");
    let over = state(json!({"TaskState": "Completed", "TaskStatus": "OK"})).await.unwrap();
    assert_eq!(over, JobState::Over);
    let message = json!([{"Message": "Unable to apply the BIOS configuration.", "MessageId": "IDRAC.2.5.PR21"}]);
    let failed = state(json!({"TaskState": "Exception", "TaskStatus": "Critical", "Messages": message})).await.unwrap();
    assert_eq!(failed, JobState::Failed("Unable to apply the BIOS configuration".into()));
    let failed = state(json!({"JobState": "CompletedWithErrors", "Messages": message})).await.unwrap();
    assert!(matches!(failed, JobState::Failed(_)), "{failed:?}");
    let waits = state(json!({"JobState": "Scheduled"})).await.unwrap();
    assert!(matches!(waits, JobState::Open(_)), "{waits:?}");
    assert_eq!(client.bios_job("/redfish/v1/TaskService/Tasks/JID_1").await.unwrap(), JobState::Over, "forgotten");

    let busy = "Pending configuration values are already committed, unable to perform another set operation.";
    bmc.script("PATCH", "/Bios/Settings", odd(400, error_body("SYS011", busy)));
    let error = client.set_bios(&wished).await.unwrap_err();
    assert!(error.found.contains("already committed"), "{error}");
    assert_eq!(bmc.resource(&path)["Attributes"]["LogicalProc"], "Enabled");
}

#[tokio::test]
async fn what_is_not_there_is_said_or_left_out() {
    // An old Supermicro has no Bios.
    let connected = RedfishBmc::new(rig(&Bmc::new("supermicro-x10"), "/redfish/v1/Systems/1").client);
    connected.begin(&[]).await.unwrap();
    let lacking = connected.bios().err().unwrap();
    assert!(lacking.looked_for.contains("no Bios at /redfish/v1/Systems/1"), "{lacking}");
    // Linked, and not shown.
    let (bmc, path) = dell();
    let client = rig(&bmc, DELL).client;
    bmc.script("GET", "/Bios", odd(404, error_body("ResourceMissingAtURI", "Not there.")));
    assert_eq!(client.bios(true).await.unwrap(), None);
    assert!(client.bios(true).await.unwrap().is_some(), "the machine is through its self-test");
    // Registries that cannot be read: the settings are shown without.
    for broken in [
        Odd::Answer(200, vec![], b"<html>".to_vec()),
        Odd::Answer(200, vec![], [0x1F, 0x8B, 8, 0].to_vec()),
        odd(404, error_body("ResourceMissingAtURI", "Not there.")),
    ] {
        let client: Client = rig(&bmc, DELL).client;
        bmc.script("GET", "/BiosRegistry", broken);
        assert_eq!(client.bios_schema().await.unwrap(), None);
        assert!(client.bios(true).await.unwrap().is_some());
    }
    // A server error may pass.
    bmc.script("GET", "/BiosRegistry", odd(500, error_body("InternalError", "Later.")));
    let client = rig(&bmc, DELL).client;
    assert!(client.bios_schema().await.is_err());
    assert!(client.bios_schema().await.unwrap().is_some());
    // Without a settings resource the change goes to Bios itself.
    bmc.edit(&path, |bios| {
        bios.as_object_mut().unwrap().remove("@Redfish.Settings");
    });
    client.set_bios(&wish(&[("NumLock", "Off")])).await.unwrap();
    assert_eq!(bmc.resource(&path)["Attributes"]["NumLock"], "Off");
}

/// Others may read the settings than the BMC's password, and at a terminal.
#[tokio::test]
async fn what_may_not_be_read_by_all_is_no_setting() {
    let (bmc, _) = hpe();
    let path = bmc.resource(HPE)["Bios"]["@odata.id"].as_str().unwrap().trim_end_matches('/').to_owned();
    bmc.set(|inner| {
        let attributes = &mut inner.resources.get_mut(&path).unwrap()["Attributes"];
        attributes["AssetTag"] = format!("a {PASSWORD}").into();
        attributes[PASSWORD] = "On".into();
        attributes["Escape"] = "\u{1b}[2J".into();
    });
    let seen = rig(&bmc, HPE).client.bios(false).await.unwrap().unwrap();
    assert!(seen.current.contains_key("AutoPowerOn"));
    for name in ["AssetTag", PASSWORD, "Escape"] {
        assert!(!seen.current.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn hostile_attributes_are_bounded() {
    let (bmc, path) = dell();
    bmc.edit(&path, |bios| {
        for number in 0..6000 {
            bios["Attributes"][format!("A{number}")] = json!(number);
        }
        bios["Attributes"]["Long"] = json!("x".repeat(5000));
        bios["Attributes"]["Deep"] = json!([[[1]]]);
    });
    let seen = rig(&bmc, DELL).client.bios(true).await.unwrap().unwrap();
    assert!(seen.current.len() <= 4096 && !seen.current.contains_key("Long") && !seen.current.contains_key("Deep"));
}

#[tokio::test]
async fn versions_of_bios_bmc_and_cards_are_told_from_the_rest_by_each_makers_habits() {
    let version = |all: &[bmc::FirmwareVersion], component: &str| {
        all.iter().find(|found| found.component == component).map(|found| found.version.clone()).unwrap_or_default()
    };
    for (set, system, bios, controller) in [
        ("dell-r750", DELL, "1.8.2", "6.00.30.00"),
        ("hpe", HPE, "U58 v2.44 (01/17/2025)", "1.66 Dec 13 2024"),
        ("dmtf-generic", SYSTEM, "P79 v1.45", "1.45.455b66-rev4"),
    ] {
        let bmc = Bmc::new(set);
        let client = rig(&bmc, system).client;
        let found = client.firmware_versions().await.unwrap();
        assert_eq!(
            (version(&found, "bios"), version(&found, "bmc")),
            (bios.into(), controller.into()),
            "{set}: {found:?}"
        );
        let cards = if set == "dell-r750" { 1 } else { 0 };
        assert_eq!(found.len(), 2 + cards, "{set}: {found:?}");
        bmc.take_log();
        assert_eq!(client.firmware_versions().await.unwrap(), found);
        assert_eq!(bmc.take_log().len(), 2 + cards, "only what is of use is read again");
    }
    // Without an inventory, system and manager tell.
    let bmc = Bmc::new("supermicro-x10");
    let found = rig(&bmc, "/redfish/v1/Systems/1").client.firmware_versions().await.unwrap();
    assert!(!version(&found, "bmc").is_empty(), "{found:?}");
}
