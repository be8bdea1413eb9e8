//! What is wrong with a machine shows in its BMC's tree, and is gone with it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bmc_sim::{Ailment, MachineConfig, MachineKind};
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Lab, SYSTEM};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const LOG: &str = "/redfish/v1/Systems/m/LogServices/Log1/Entries";

async fn ail(lab: &Lab, ailments: &[Ailment]) {
    lab.control(Method::PATCH, "/machines/m/settings", json!({ "ailments": ailments })).await;
}

/// All resources that links lead to from the service root, by path.
async fn tree(lab: &Lab) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut waiting = VecDeque::from(["/redfish/v1".to_owned()]);
    while let Some(path) = waiting.pop_front() {
        if found.contains_key(&path)
            || path.starts_with("/redfish/v1/JsonSchemas")
            || path.contains("SecureBootDatabases")
        {
            continue;
        }
        let got = lab.get(&path).await;
        assert_eq!(got.status, 200, "{path} is linked to");
        let mut links = BTreeSet::new();
        collect(&got.body, &mut links);
        waiting.extend(links);
        let mut body = got.body;
        for volatile in ["DateTime", "Created"] {
            body.as_object_mut().map(|fields| fields.remove(volatile));
        }
        found.insert(path, body);
    }
    found
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "@odata.id" || name == "Uri" => {
                        let path = target.split('#').next().unwrap().trim_end_matches('/');
                        if path.starts_with("/redfish") {
                            found.insert(path.to_owned());
                        }
                    }
                    other => collect(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// Ailments that requests meet, or a start, and that no resource shows while the machine is off.
const UNSEEN: [Ailment; 11] = [
    Ailment::BootStuckMemory,
    Ailment::BootStuckPci,
    Ailment::SessionLimit,
    Ailment::BmcStarting,
    Ailment::PasswordChangeRequired,
    Ailment::BootStuckOs,
    Ailment::OverrideIgnored,
    Ailment::MediaUnreachable,
    Ailment::MediaCertificate,
    Ailment::RegistryMissing,
    Ailment::Clock1970,
];

#[tokio::test]
async fn every_ailment_shows_and_no_link_leads_nowhere() {
    let lab = Lab::fake("exit 0").await;
    let well = tree(&lab).await;
    assert!(well.len() > 90, "{}", well.len());
    let text = serde_json::to_string(&well).unwrap();
    for part in ["PowerSupplies/Bay2", "Fans/Bay1", "Storage/1/Drives/0", "NetworkAdapters/1/Ports/1", "MemoryMetrics"]
    {
        assert!(text.contains(part), "{part}");
    }
    for ailment in Ailment::ALL.iter().filter(|ailment| !UNSEEN.contains(ailment)) {
        if *ailment == Ailment::LogLongMessage {
            continue;
        }
        ail(&lab, &[*ailment]).await;
        let unwell = tree(&lab).await;
        let changed: Vec<&String> =
            unwell.iter().filter(|(path, body)| well.get(*path) != Some(*body)).map(|(path, _)| path).collect();
        assert!(!changed.is_empty() || unwell.len() != well.len(), "{ailment:?} shows nowhere");
    }
    ail(&lab, &[]).await;
    assert_eq!(tree(&lab).await, well, "what is over leaves nothing behind");
}

#[tokio::test]
async fn parts_that_fail_are_told_by_all_above_them() {
    let lab = Lab::fake("exit 0").await;
    for (ailment, part) in [
        (Ailment::PsuLost, "/redfish/v1/Chassis/1U/PowerSubsystem/PowerSupplies/Bay2"),
        (Ailment::FanFailed, "/redfish/v1/Chassis/1U/ThermalSubsystem/Fans/Bay1"),
        (Ailment::DimmFailed, "/redfish/v1/Systems/m/Memory/DIMM1"),
        (Ailment::CpuFailed, "/redfish/v1/Systems/m/Processors/CPU1"),
        (Ailment::DriveFailed, "/redfish/v1/Systems/m/Storage/1/Drives/0"),
        (Ailment::ControllerFailed, "/redfish/v1/Systems/m/Storage/1/Controllers/1"),
    ] {
        ail(&lab, &[]).await;
        assert_eq!(lab.get(part).await.body["Status"]["Health"], "OK", "{part}");
        assert_eq!(lab.get(SYSTEM).await.body["Status"]["HealthRollup"], "OK");
        ail(&lab, &[ailment]).await;
        let status = lab.get(part).await.body["Status"].clone();
        assert_eq!(status["Health"], "Critical", "{part}");
        assert!(status["Conditions"][0]["Message"].is_string(), "{part}");
        assert_eq!(lab.get(SYSTEM).await.body["Status"]["HealthRollup"], "Critical", "{ailment:?}");
        let log = lab.get(LOG).await.body;
        let last = log["Members"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["Links"]["OriginOfCondition"]["@odata.id"], part, "{ailment:?}");
    }
}

#[tokio::test]
async fn logs_are_paged_and_may_be_long_or_in_a_circle() {
    let lab = Lab::fake("exit 0").await;
    ail(&lab, &[Ailment::Log100k, Ailment::PsuLost]).await;
    let first = lab.get(LOG).await.body;
    assert_eq!(
        (first["Members@odata.count"].clone(), first["Members"].as_array().unwrap().len()),
        (json!(100_001), 50)
    );
    let next = first["Members@odata.nextLink"].as_str().unwrap().to_owned();
    assert_eq!(lab.get(&next).await.body["Members"][0]["Id"], "51");
    let end = lab.get(&format!("{LOG}?$skip=99999")).await.body;
    assert_eq!(end["Members"].as_array().unwrap().len(), 2);
    assert!(
        end.get("Members@odata.nextLink").is_none() && end["Members"][1]["SensorType"] == "Power Supply / Converter"
    );
    ail(&lab, &[Ailment::LogLoop]).await;
    assert_eq!(lab.get(LOG).await.body["Members@odata.nextLink"], LOG);
    ail(&lab, &[Ailment::LogLongMessage]).await;
    let long = lab.get(LOG).await.body;
    assert!(long["Members"][2]["Message"].as_str().unwrap().len() >= 10 << 20);
    ail(&lab, &[Ailment::CorrectableEccNoise, Ailment::NicLinkDown]).await;
    let end = lab.get(&format!("{LOG}?$skip=50")).await.body;
    let members = end["Members"].as_array().unwrap();
    assert_eq!(members.len(), 15);
    assert!(members[..14].iter().all(|entry| entry["Message"] == "Correctable ECC @DIMM 1"));
    assert!(members[0]["Created"].as_str() < members[14]["Created"].as_str());
}

#[tokio::test]
async fn makers_write_in_their_own_style() {
    let with = |manufacturer: &str| MachineConfig {
        manufacturer: manufacturer.to_owned(),
        ..MachineConfig::new("m", MachineKind::Fake)
    };
    let dell = Lab::with(with("Dell Inc."), "exit 0").await;
    ail(&dell, &[Ailment::PsuInputLost]).await;
    let log = dell.get("/redfish/v1/Managers/BMC/LogServices/Lclog/Entries").await.body;
    assert_eq!(log["Members"][0]["MessageId"], "IDRAC.2.8.PSU0003");
    assert_eq!(log["Members"][1]["Oem"]["Dell"]["Category"], "Audit");
    let registry = dell.get("/redfish/v1/Registries/Messages/EEMIRegistry").await.body;
    assert!(registry["Messages"]["PSU0003"]["Resolution"].is_string());
    ail(&dell, &[Ailment::PsuInputLost, Ailment::RegistryMissing]).await;
    assert_eq!(dell.get("/redfish/v1/Registries/Messages/EEMIRegistry").await.status, 404);
    ail(&dell, &[Ailment::DimmMissing]).await;
    let log = dell.get("/redfish/v1/Managers/BMC/LogServices/Lclog/Entries").await.body;
    assert_eq!(log["Members"][0]["MessageId"], "IDRAC.2.8.MEM0022", "where Dell's MEM0006, presence, ends");
    let hpe = Lab::with(with("HPE"), "exit 0").await;
    ail(&hpe, &[Ailment::DimmFailed]).await;
    let log = hpe.get("/redfish/v1/Systems/m/LogServices/IML/Entries").await.body;
    assert_eq!(log["Members"][0]["Oem"]["Hpe"]["Repaired"], false);
    let services = hpe.get("/redfish/v1/Systems/m/LogServices").await.body;
    assert_eq!(services["Members"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn access_fails_as_the_ailment_says() {
    let lab = Lab::fake("exit 0").await;
    let sign_in = json!({ "UserName": "admin", "Password": "password" });
    for (ailment, status, id) in [
        (Ailment::AccountLocked, 401, "ResourceAtUriUnauthorized"),
        (Ailment::SessionLimit, 503, "SessionLimitExceeded"),
        (Ailment::BmcStarting, 503, "ServiceTemporarilyUnavailable"),
    ] {
        ail(&lab, &[ailment]).await;
        let got = lab.send(lab.bare(Method::POST, SESSIONS).json(&sign_in)).await.unwrap();
        assert_eq!((got.status, got.message_id()), (status, id));
    }
    ail(&lab, &[Ailment::PasswordChangeRequired]).await;
    assert_eq!(lab.get(SYSTEM).await.message_id(), "PasswordChangeRequired");
    ail(&lab, &[Ailment::PrivilegeTooSmall]).await;
    assert_eq!(lab.get(SYSTEM).await.status, 200);
    let got = lab.reset("On").await;
    assert_eq!((got.status, got.message_id()), (403, "InsufficientPrivilege"));
    for ailment in [Ailment::MediaUnreachable, Ailment::MediaCertificate] {
        ail(&lab, &[ailment]).await;
        let got = lab.insert("http://192.0.2.1/a.iso").await;
        assert_eq!((got.status, got.message_id()), (400, "CouldNotEstablishConnection"));
    }
    for name in ["psu-lost", "clock-1970", "log-100k", "correctable-ecc-noise"] {
        assert!(serde_json::from_value::<Ailment>(json!(name)).is_ok(), "{name}");
    }
    assert!(serde_json::from_value::<Ailment>(json!("sleepy")).is_err());
}

#[tokio::test]
async fn a_machine_that_is_stuck_starts_nothing_and_says_where() {
    let lab = Lab::fake("exit 0").await;
    for (ailment, state) in [
        (Ailment::BootStuckMemory, "MemoryInitializationStarted"),
        (Ailment::BootStuckPci, "PCIResourceConfigStarted"),
        (Ailment::BootStuckOs, "SystemHardwareInitializationComplete"),
    ] {
        ail(&lab, &[ailment]).await;
        assert_eq!(lab.get(SYSTEM).await.body["BootProgress"]["LastState"], "None");
        assert_eq!(lab.reset("On").await.status, 204);
        let system = lab.get(SYSTEM).await.body;
        assert_eq!(system["BootProgress"]["LastState"], state);
        assert!(system["BootProgress"]["LastStateTime"].is_string());
        assert_eq!(lab.reset("ForceOff").await.status, 204);
    }
}
