//! Parts that the recorded tree does not have: power supplies, fans, the storage controller with the machine's disks, and its network card.

use serde_json::{Value, json};

use super::super::{
    collection::collection,
    part_types::{
        ADAPTER_TYPE, CONTROLLER_TYPE, DRIVE_TYPE, FAN_TYPE, METRICS_TYPE, PORT_TYPE, STORAGE_TYPE, SUPPLY_TYPE,
    },
    paths::system_path,
};
use crate::{
    ailments::{Ailment, Ailments},
    bmc::Bmc,
    config::DiskBus,
};

const CHASSIS: &str = "/redfish/v1/Chassis/1U";
const SUPPLIES: &str = "/redfish/v1/Chassis/1U/PowerSubsystem/PowerSupplies";
const FANS: &str = "/redfish/v1/Chassis/1U/ThermalSubsystem/Fans";
const ADAPTERS: &str = "/redfish/v1/Chassis/1U/NetworkAdapters";

/// A status, with a condition where it is not well.
pub(super) fn status(health: &str, state: &str, condition: Option<&str>) -> Value {
    let mut status = json!({ "Health": health, "State": state });
    if let Some(text) = condition {
        status["Conditions"] = json!([{
            "MessageId": "ResourceEvent.1.3.ResourceErrorsDetected",
            "Message": text,
            "MessageArgs": ["Status", text],
            "Severity": health,
        }]);
    }
    status
}

fn well() -> Value {
    json!({ "Health": "OK", "State": "Enabled" })
}

/// A part of this module.
pub fn resource(bmc: &Bmc, path: &str, ailments: &Ailments) -> Option<Value> {
    let storage = format!("{}/Storage", system_path(&bmc.config.id));
    if let Some(rest) = path.strip_prefix(SUPPLIES) {
        return supply(path, rest, ailments);
    }
    if let Some(rest) = path.strip_prefix(FANS) {
        return fan(path, rest, ailments);
    }
    if let Some(rest) = path.strip_prefix(storage.as_str()) {
        return stored(bmc, path, rest, ailments);
    }
    if let Some(rest) = path.strip_prefix(ADAPTERS) {
        return network(bmc, path, rest, ailments);
    }
    let memory = format!("{}/Memory/DIMM1/MemoryMetrics", system_path(&bmc.config.id));
    (path == memory).then(|| metrics(path, ailments))
}

fn supply(path: &str, rest: &str, ailments: &Ailments) -> Option<Value> {
    if rest.is_empty() {
        let members = ["Bay1", "Bay2"].map(|id| format!("{path}/{id}"));
        return Some(collection(path, "PowerSupplyCollection", "Power Supply Collection", members.into_iter()));
    }
    let number = match rest {
        "/Bay1" => 1,
        "/Bay2" => 2,
        _ => return None,
    };
    let (mut status, mut input) = (well(), "Normal");
    if number == 2 && ailments.has(Ailment::PsuLost) {
        status = self::status("Critical", "UnavailableOffline", Some("The power supply has failed."));
    } else if number == 2 && ailments.has(Ailment::PsuInputLost) {
        status = self::status("Critical", "Enabled", Some("The input of the power supply is lost."));
        input = "LossOfInput";
    }
    Some(json!({
        "@odata.type": SUPPLY_TYPE,
        "@odata.id": path,
        "Id": format!("Bay{number}"),
        "Name": format!("Power Supply Bay {number}"),
        "Status": status,
        "Model": "RKS-440DC",
        "Manufacturer": "Contoso Power",
        "SerialNumber": format!("3488247{number}"),
        "PartNumber": "23456-133",
        "PowerSupplyType": "AC",
        "LineInputStatus": input,
        "PowerCapacityWatts": 400,
        "HotPluggable": true,
        "Location": { "PartLocation": {
            "ServiceLabel": format!("PSU {number}"), "LocationType": "Bay", "LocationOrdinalValue": number - 1,
        } },
    }))
}

fn fan(path: &str, rest: &str, ailments: &Ailments) -> Option<Value> {
    if rest.is_empty() {
        let members = ["Bay1", "Bay2"].map(|id| format!("{path}/{id}"));
        return Some(collection(path, "FanCollection", "Fan Collection", members.into_iter()));
    }
    let number = match rest {
        "/Bay1" => 1,
        "/Bay2" => 2,
        _ => return None,
    };
    let failed = number == 1 && ailments.has(Ailment::FanFailed);
    let status = if failed { status("Critical", "Enabled", Some("The fan stands still.")) } else { well() };
    Some(json!({
        "@odata.type": FAN_TYPE,
        "@odata.id": path,
        "Id": format!("Bay{number}"),
        "Name": format!("Fan Bay {number}"),
        "Status": status,
        "PhysicalContext": "Chassis",
        "Model": "RKS-440DC",
        "Manufacturer": "Contoso Fans",
        "PartNumber": "23456-133",
        "SpeedPercent": { "Reading": if failed { 0 } else { 45 }, "SpeedRPM": if failed { 0 } else { 2200 } },
        "HotPluggable": true,
        "Location": { "PartLocation": {
            "ServiceLabel": format!("Fan {number}"), "LocationType": "Bay", "LocationOrdinalValue": number - 1,
        } },
    }))
}

/// Disks that the controller shows.
fn shown(bmc: &Bmc, ailments: &Ailments) -> std::ops::Range<usize> {
    // The configuration admits 26.
    usize::from(ailments.has(Ailment::DriveMissing))..bmc.config.disks.len()
}

fn stored(bmc: &Bmc, path: &str, rest: &str, ailments: &Ailments) -> Option<Value> {
    let storage = format!("{}/Storage/1", system_path(&bmc.config.id));
    let failed = ailments.has(Ailment::ControllerFailed);
    let bad = |text| status("Critical", "Enabled", Some(text));
    match rest {
        "" => {
            return Some(collection(path, "StorageCollection", "Storage Collection", std::iter::once(storage)));
        }
        "/1" => {
            let drives: Vec<Value> =
                shown(bmc, ailments).map(|at| json!({ "@odata.id": format!("{path}/Drives/{at}") })).collect();
            let mut status = if failed { bad("The storage controller does not answer.") } else { well() };
            if ailments.has(Ailment::DriveFailed) {
                status["HealthRollup"] = json!("Critical");
            }
            return Some(json!({
                "@odata.type": STORAGE_TYPE,
                "@odata.id": path,
                "Id": "1",
                "Name": "Local Storage Controller",
                "Status": status,
                "Controllers": { "@odata.id": format!("{path}/Controllers") },
                "Drives@odata.count": drives.len(),
                "Drives": drives,
            }));
        }
        "/1/Controllers" => {
            let members = std::iter::once(format!("{path}/1"));
            return Some(collection(path, "StorageControllerCollection", "Storage Controllers", members));
        }
        "/1/Controllers/1" => {
            return Some(json!({
                "@odata.type": CONTROLLER_TYPE,
                "@odata.id": path,
                "Id": "1",
                "Name": "Contoso Integrated RAID",
                "Status": if failed { bad("The firmware of the controller has stopped.") } else { well() },
                "Manufacturer": "Contoso",
                "Model": "12Gbs Integrated RAID",
                "SerialNumber": "2M220100SL",
                "PartNumber": "CT18754",
                "FirmwareVersion": "1.0.0.7",
                "Location": { "PartLocation": {
                    "ServiceLabel": "Slot 1", "LocationType": "Slot", "LocationOrdinalValue": 0,
                } },
            }));
        }
        _ => {}
    }
    let index: usize = rest.strip_prefix("/1/Drives/")?.parse().ok()?;
    shown(bmc, ailments).contains(&index).then(|| drive(bmc, path, index, ailments))
}

fn drive(bmc: &Bmc, path: &str, index: usize, ailments: &Ailments) -> Value {
    let disk = &bmc.config.disks[index];
    let (media, protocol) = match (disk.bus, disk.rotational) {
        (DiskBus::Nvme, _) => ("SSD", "NVMe"),
        (_, true) => ("HDD", "SAS"),
        (_, false) => ("SSD", "SAS"),
    };
    let first = |ailment| index == 0 && ailments.has(ailment);
    let mut body = json!({
        "@odata.type": DRIVE_TYPE,
        "@odata.id": path,
        "Id": index.to_string(),
        "Name": format!("Disk {index}"),
        "Status": well(),
        "Manufacturer": disk.vendor,
        "Model": disk.model,
        "SerialNumber": bmc.config.disk_serial(index),
        "PartNumber": "C123-1111",
        "CapacityBytes": disk.size_bytes,
        "BlockSizeBytes": disk.logical_sector_size,
        "MediaType": media,
        "Protocol": protocol,
        "FailurePredicted": first(Ailment::DrivePredicted),
        "PhysicalLocation": { "PartLocation": {
            "ServiceLabel": format!("Bay {index}"), "LocationType": "Bay", "LocationOrdinalValue": index,
        } },
    });
    if media == "SSD" {
        body["PredictedMediaLifeLeftPercent"] = json!(if first(Ailment::DrivePredicted) { 1 } else { 97 });
    }
    if first(Ailment::DriveFailed) {
        body["Status"] = status("Critical", "UnavailableOffline", Some("The disk has failed."));
        body["StatusIndicator"] = json!("Fail");
    } else if first(Ailment::DrivePredicted) {
        body["Status"] = status("Warning", "Enabled", Some("The disk expects to fail."));
        body["StatusIndicator"] = json!("PredictiveFailureAnalysis");
    } else if first(Ailment::DriveForeign) {
        body["Status"] = status("Warning", "StandbyOffline", Some("The disk has a foreign configuration."));
        body["Oem"] = json!({ "Dell": { "@odata.type": "#DellOem.DellOemResources", "DellPhysicalDisk": {
            "@odata.type": "#DellPhysicalDisk.v1_5_0.DellPhysicalDisk", "RaidStatus": "Foreign",
        } } });
        if !bmc.config.manufacturer.starts_with("Dell") {
            body.as_object_mut().map(|fields| fields.shift_remove("Oem"));
        }
    }
    body
}

fn network(bmc: &Bmc, path: &str, rest: &str, ailments: &Ailments) -> Option<Value> {
    let missing = ailments.has(Ailment::NicMissing);
    if rest.is_empty() {
        let members = (!missing).then(|| format!("{path}/1"));
        return Some(collection(path, "NetworkAdapterCollection", "Network Adapters", members.into_iter()));
    }
    if missing {
        return None;
    }
    match rest {
        "/1" => Some(json!({
            "@odata.type": ADAPTER_TYPE,
            "@odata.id": path,
            "Id": "1",
            "Name": "Network Adapter 1",
            "Status": well(),
            "Manufacturer": "Contoso",
            "Model": "599TPS-T",
            "SerialNumber": "003BFLRT00023234",
            "PartNumber": "975999-001",
            "Ports": { "@odata.id": format!("{path}/Ports") },
            "Location": { "PartLocation": {
                "ServiceLabel": "OCP 1", "LocationType": "Slot", "LocationOrdinalValue": 0,
            } },
        })),
        "/1/Ports" => {
            let members = (0..bmc.config.nics.len()).map(|at| format!("{path}/{}", at + 1));
            Some(collection(path, "PortCollection", "Port Collection", members))
        }
        _ => {
            let number: usize = rest.strip_prefix("/1/Ports/")?.parse().ok()?;
            let nic = bmc.config.nics.get(number.checked_sub(1)?)?;
            let up = !(nic.unplugged || number == 1 && ailments.has(Ailment::NicLinkDown));
            Some(json!({
                "@odata.type": PORT_TYPE,
                "@odata.id": path,
                "Id": number.to_string(),
                "Name": format!("Network Port {number}"),
                "PortId": number.to_string(),
                "Status": well(),
                "LinkStatus": if up { "LinkUp" } else { "LinkDown" },
                "LinkState": "Enabled",
                "CurrentSpeedGbps": if up { 10 } else { 0 },
                "LinkNetworkTechnology": "Ethernet",
                "Ethernet": { "AssociatedMACAddresses": [bmc.config.mac(number - 1).to_uppercase()] },
            }))
        }
    }
}

fn metrics(path: &str, ailments: &Ailments) -> Value {
    let corrected = if ailments.has(Ailment::CorrectableEccNoise) { 64 } else { 0 };
    let not_corrected = u32::from(ailments.has(Ailment::UncorrectableEcc));
    let alarms =
        json!({ "UncorrectableECCError": not_corrected > 0, "CorrectableECCError": false, "Temperature": false });
    json!({
        "@odata.type": METRICS_TYPE,
        "@odata.id": path,
        "Id": "MemoryMetrics",
        "Name": "Memory Metrics of DIMM 1",
        "CurrentPeriod": { "CorrectableECCErrorCount": 0, "UncorrectableECCErrorCount": not_corrected },
        "LifeTime": { "CorrectableECCErrorCount": corrected, "UncorrectableECCErrorCount": not_corrected },
        "HealthData": { "AlarmTrips": alarms, "DataLossDetected": not_corrected > 0 },
    })
}

/// Adds links to the parts of this module.
pub fn link(bmc: &Bmc, path: &str, body: &mut Value, ailments: &Ailments) {
    let system = system_path(&bmc.config.id);
    let to = |path: &str| json!({ "@odata.id": path });
    if path == system {
        body["Storage"] = to(&format!("{system}/Storage"));
    } else if path == CHASSIS {
        body["NetworkAdapters"] = to(ADAPTERS);
        let open = ailments.has(Ailment::Intrusion);
        body["PhysicalSecurity"] = json!({
            "IntrusionSensorNumber": 73,
            "IntrusionSensor": if open { "HardwareIntrusion" } else { "Normal" },
            "IntrusionSensorReArm": "Manual",
        });
    } else if path == "/redfish/v1/Chassis/1U/PowerSubsystem" {
        body["PowerSupplies"] = to(SUPPLIES);
    } else if path == "/redfish/v1/Chassis/1U/ThermalSubsystem" {
        body["Fans"] = to(FANS);
    } else if path == format!("{system}/Memory/DIMM1") {
        body["Metrics"] = to(&format!("{path}/MemoryMetrics"));
    }
}
