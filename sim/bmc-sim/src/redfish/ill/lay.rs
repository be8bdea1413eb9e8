//! How ailments show in the recorded resources: in those of the parts, and in the health of what is above them.

use serde_json::{Value, json};

use super::{
    super::paths::{MANAGER, system_path},
    parts::status,
};
use crate::{
    ailments::{
        Ailment::{
            self, AccountLocked, BootStuckMemory, BootStuckOs, BootStuckPci, ControllerFailed, CpuFailed, DimmFailed,
            DimmMissing, DriveFailed, DriveForeign, DrivePredicted, FanFailed, Intrusion, MediaUnlicensed,
            OverTemperature, PasswordChangeRequired, PowerCapped, PrivilegeTooSmall, PsuInputLost, PsuLost,
            UncorrectableEcc,
        },
        Ailments,
    },
    bmc::Bmc,
    machine::Running,
};

/// Those with which the machine as a whole is in a bad way.
const CRITICAL: [Ailment; 10] = [
    PsuLost,
    PsuInputLost,
    FanFailed,
    OverTemperature,
    DimmFailed,
    UncorrectableEcc,
    CpuFailed,
    DriveFailed,
    ControllerFailed,
    Intrusion,
];
/// Those that need looking at.
const WARNING: [Ailment; 3] = [DrivePredicted, DriveForeign, PowerCapped];

fn worst(ailments: &Ailments, critical: &[Ailment], warning: &[Ailment]) -> Option<&'static str> {
    match () {
        () if ailments.any(critical) => Some("Critical"),
        () if ailments.any(warning) => Some("Warning"),
        () => None,
    }
}

/// Lays all that is wrong over the resource.
pub fn lay(bmc: &Bmc, path: &str, body: &mut Value, ailments: &Ailments) {
    let system = system_path(&bmc.config.id);
    if path == system {
        lay_system(bmc, body, ailments);
    } else if let Some(rest) = path.strip_prefix(system.as_str()) {
        lay_part(rest, body, ailments);
    } else if let Some(rest) = path.strip_prefix("/redfish/v1/Chassis/1U") {
        lay_chassis(rest, body, ailments);
    } else if path == MANAGER {
        if ailments.has(Ailment::Clock1970) {
            body["DateTime"] = json!(super::logs::epoch(bmc, 0).to_string());
        }
        if ailments.has(MediaUnlicensed)
            && let Some(fields) = body.as_object_mut()
        {
            fields.shift_remove("VirtualMedia");
        }
    } else if path == "/redfish/v1/AccountService/Accounts/1" {
        body["Locked"] = json!(ailments.has(AccountLocked));
        body["PasswordChangeRequired"] = json!(ailments.has(PasswordChangeRequired));
        if ailments.has(PrivilegeTooSmall) {
            body["RoleId"] = json!("ReadOnly");
            body["Links"]["Role"] = json!({ "@odata.id": "/redfish/v1/AccountService/Roles/ReadOnly" });
        }
    }
}

fn lay_system(bmc: &Bmc, body: &mut Value, ailments: &Ailments) {
    if let Some(health) = worst(ailments, &CRITICAL, &WARNING) {
        body["Status"]["HealthRollup"] = json!(health);
        body["Status"]["Health"] = json!(health);
    }
    if let Some(health) = worst(ailments, &[DimmFailed, UncorrectableEcc], &[]) {
        body["MemorySummary"]["Status"]["HealthRollup"] = json!(health);
    }
    if ailments.has(CpuFailed) {
        body["ProcessorSummary"]["Status"]["HealthRollup"] = json!("Critical");
    }
    let power = bmc.power();
    let stuck = [
        (BootStuckMemory, "MemoryInitializationStarted"),
        (BootStuckPci, "PCIResourceConfigStarted"),
        (BootStuckOs, "SystemHardwareInitializationComplete"),
    ];
    if let Some((_, state)) = stuck.iter().find(|(ailment, _)| power.on && ailments.has(*ailment)) {
        body["BootProgress"]["LastState"] = json!(state);
    }
    if let Some(since) = power.last_reset.filter(|_| power.on && power.running != Running::Off) {
        body["BootProgress"]["LastStateTime"] = json!(since.to_string());
    }
    if ailments.has(MediaUnlicensed)
        && let Some(fields) = body.as_object_mut()
    {
        fields.shift_remove("VirtualMedia");
    }
    if ailments.has(Ailment::OverrideIgnored) && power.on {
        body["Boot"]["BootSourceOverrideEnabled"] = json!("Disabled");
        body["Boot"]["BootSourceOverrideTarget"] = json!("None");
    }
}

/// Parts of the system, by their path below it.
fn lay_part(rest: &str, body: &mut Value, ailments: &Ailments) {
    match rest {
        "/Memory/DIMM1" => {
            body["Manufacturer"] = json!("Contoso");
            body["PartNumber"] = json!("M393A4K40CB2-CTD");
            body["SerialNumber"] = json!("D1A7C0DE");
            if ailments.has(DimmFailed) {
                body["Status"] = status("Critical", "Disabled", Some("The memory module failed its test."));
            } else if ailments.has(UncorrectableEcc) {
                let text = "An error of the memory module could not be corrected.";
                body["Status"] = status("Critical", "Enabled", Some(text));
            }
        }
        "/Memory/DIMM3" if ailments.has(DimmMissing) => {
            for field in ["CapacityMiB", "Manufacturer", "PartNumber", "SerialNumber"] {
                body.as_object_mut().map(|fields| fields.shift_remove(field));
            }
            body["Status"] = json!({ "State": "Absent" });
        }
        "/Processors/CPU1" if ailments.has(CpuFailed) => {
            body["Status"] = status("Critical", "Enabled", Some("The processor has an internal error."));
        }
        _ => {}
    }
}

/// The chassis and what is in it, by the path below it.
fn lay_chassis(rest: &str, body: &mut Value, ailments: &Ailments) {
    let supplies = worst(ailments, &[PsuLost, PsuInputLost], &[]);
    let thermal = worst(ailments, &[FanFailed, OverTemperature], &[]);
    match rest {
        "" => {
            if let Some(health) = worst(ailments, &CRITICAL, &WARNING) {
                body["Status"]["HealthRollup"] = json!(health);
            }
            if ailments.has(Intrusion) {
                body["Status"] = status("Critical", "Enabled", Some("The chassis is open."));
            }
        }
        "/PowerSubsystem" => {
            if let Some(health) = supplies {
                body["Status"]["HealthRollup"] = json!(health);
                body["PowerSupplyRedundancy"][0]["Status"] = json!({ "State": "Degraded", "Health": "Critical" });
            }
        }
        "/ThermalSubsystem" => {
            if let Some(health) = thermal {
                body["Status"]["HealthRollup"] = json!(health);
            }
        }
        "/Power" => lay_power(body, ailments),
        "/Thermal" => {
            if ailments.has(FanFailed) {
                body["Fans"][0]["Status"] = json!({ "State": "Enabled", "Health": "Critical" });
                body["Fans"][0]["Reading"] = json!(0);
            }
            if ailments.has(OverTemperature) {
                body["Temperatures"][2]["Status"] = json!({ "State": "Enabled", "Health": "Critical" });
                body["Temperatures"][2]["ReadingCelsius"] = json!(47);
            }
        }
        "/Sensors/AmbientTemp" => {
            body["ReadingType"] = json!("Temperature");
            body["PhysicalContext"] = json!("Intake");
            body["Thresholds"] = json!({ "UpperCritical": { "Reading": 42 }, "UpperCaution": { "Reading": 38 } });
            if ailments.has(OverTemperature) {
                body["Reading"] = json!(47);
                body["Status"] = status("Critical", "Enabled", Some("The intake is too hot."));
            }
        }
        _ => {}
    }
}

/// The older form of power.
fn lay_power(body: &mut Value, ailments: &Ailments) {
    let supply = &mut body["PowerSupplies"][0];
    supply["Status"] = json!({ "State": "Enabled", "Health": "OK" });
    if ailments.any(&[PsuLost, PsuInputLost]) {
        let state = if ailments.has(PsuLost) { "UnavailableOffline" } else { "Enabled" };
        supply["Status"] = json!({ "State": state, "Health": "Critical" });
        supply["LineInputVoltage"] = json!(if ailments.has(PsuInputLost) { 0 } else { 120 });
    }
    if ailments.has(PowerCapped) {
        let control = &mut body["PowerControl"][0];
        control["PowerLimit"] = json!({ "LimitInWatts": 150, "LimitException": "HardPowerOff", "CorrectionInMs": 50 });
        control["PowerConsumedWatts"] = json!(149);
        control["Status"] = json!({ "State": "Enabled", "Health": "Warning" });
    }
}
