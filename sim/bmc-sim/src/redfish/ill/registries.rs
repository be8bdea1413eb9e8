//! Message registries (DSP0266, "Message registries"): DMTF's Base and Dell's, as far as the simulator uses their messages; the sentences are the simulator's.

use serde_json::{Value, json};

use super::super::part_types::REGISTRY_TYPE;
use crate::{
    ailments::{Ailment, Ailments},
    bmc::Bmc,
};

const LIST: &str = "/redfish/v1/Registries";
const BASE: &str = "/redfish/v1/Registries/Base/Base.1.18.1.json";
const DELL_FILE: &str = "/redfish/v1/Registries/Messages";
const DELL: &str = "/redfish/v1/Registries/Messages/EEMIRegistry";

/// Id, severity, number of arguments, message, resolution.
type Known = (&'static str, &'static str, usize, &'static str, &'static str);

#[rustfmt::skip]
const BASE_MESSAGES: [Known; 5] = [
    ("NoValidSession", "Critical", 0, "The request needs a valid session.", "Sign in and try again."),
    ("InsufficientPrivilege", "Critical", 0, "The account lacks the privileges for this.", "Use an account that has them."),
    ("SessionLimitExceeded", "Critical", 0, "All sessions are in use.", "End sessions that nobody uses."),
    ("ServiceTemporarilyUnavailable", "Critical", 1, "The service is away; try again in %1 seconds.", "Wait, and try again."),
    ("CouldNotEstablishConnection", "Critical", 1, "No connection to %1 was made.", "Check the address and that it can be reached from the service."),
];

#[rustfmt::skip]
const DELL_MESSAGES: [Known; 16] = [
    ("PSU0001", "Critical", 1, "Power supply %1 has failed.", "Replace the power supply."),
    ("PSU0003", "Critical", 1, "Power supply %1 receives no input power.", "Check the power cord, the strip that it is plugged into and the feed."),
    ("PWR1008", "Critical", 0, "The machine is slowed down: it draws more power than it is allowed.", "Raise the limit of power."),
    ("FAN0001", "Critical", 1, "The speed of fan %1 is below its lower critical threshold.", "Replace the fan."),
    ("TMP0121", "Critical", 0, "The temperature of the intake is above its upper critical threshold.", "Check the air around the machine and its fans."),
    ("UEFI0107", "Critical", 1, "Memory module %1 has failed and was disabled.", "Reseat the module, then replace it."),
    ("MEM0001", "Critical", 1, "Memory errors of several bits were found in %1.", "Replace the module."),
    ("MEM0022", "Warning", 1, "Memory module %1 is not there any more.", "Reseat the module."),
    ("MEM0702", "Warning", 1, "Errors of %1 were corrected.", "Nothing needs to be done."),
    ("CPU0005", "Critical", 1, "Processor CPU %1 has an internal error.", "Reseat the processor, then replace it."),
    ("PDR1001", "Critical", 2, "The disk in bay %1 has a fault.", "Replace the disk."),
    ("PDR16", "Warning", 2, "The disk in %1 predicts its failure.", "Replace the disk soon."),
    ("PDR1016", "Critical", 2, "The disk in bay %1 was removed.", "Put it back."),
    ("HWC2003", "Critical", 1, "The storage %1 does not answer.", "Check its cables."),
    ("NIC100", "Warning", 2, "Port %2 of the network card in %1 has no link.", "Check the cable and the switch's port."),
    ("SEC0031", "Critical", 0, "The chassis is open while the machine is on.", "Close it and look who was there."),
];

fn registry(path: &str, prefix: &str, version: &str, messages: &[Known]) -> Value {
    let messages: serde_json::Map<String, Value> = messages
        .iter()
        .map(|(id, severity, args, message, resolution)| {
            let types = vec!["string"; *args];
            let mut entry = json!({
                "Description": message, "Message": message, "MessageSeverity": severity, "Severity": severity,
                "NumberOfArgs": args, "Resolution": resolution,
            });
            if *args > 0 {
                entry["ParamTypes"] = json!(types);
            }
            ((*id).to_owned(), entry)
        })
        .collect();
    json!({
        "@odata.type": REGISTRY_TYPE,
        "@odata.id": path,
        "Id": path.rsplit('/').next().map(|name| name.trim_end_matches(".json")),
        "Name": format!("{prefix} Message Registry"),
        "Language": "en",
        "Description": format!("Messages of {prefix}"),
        "RegistryPrefix": prefix,
        "RegistryVersion": version,
        "OwningEntity": "Contoso",
        "Messages": messages,
    })
}

fn is_dell(bmc: &Bmc) -> bool {
    bmc.config.manufacturer.starts_with("Dell")
}

/// A registry, or the resource that leads to it.
pub fn resource(bmc: &Bmc, path: &str, ailments: &Ailments) -> Option<Value> {
    let missing = ailments.has(Ailment::RegistryMissing);
    match path {
        BASE if !missing => Some(registry(path, "Base", "1.18.1", &BASE_MESSAGES)),
        DELL if is_dell(bmc) && !missing => Some(registry(path, "IDRAC", "2.8.0", &DELL_MESSAGES)),
        DELL_FILE if is_dell(bmc) => Some(json!({
            "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
            "@odata.id": path,
            "Id": "Messages",
            "Name": "Message Registry File",
            "Registry": "IDRAC.2.8",
            "Languages": ["en"],
            "Location": [{ "Language": "en", "Uri": DELL }],
        })),
        _ => None,
    }
}

/// Adds the way to them.
pub fn link(bmc: &Bmc, path: &str, body: &mut Value) {
    if path == "/redfish/v1/Registries/Base" {
        body["Location"][0]["Uri"] = json!(BASE);
    } else if path == LIST
        && is_dell(bmc)
        && let Some(members) = body["Members"].as_array_mut()
    {
        members.push(json!({ "@odata.id": DELL_FILE }));
        body["Members@odata.count"] = json!(body["Members"].as_array().map(Vec::len));
    }
}
