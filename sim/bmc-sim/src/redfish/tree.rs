//! The resources of a BMC: the recorded tree, overlaid with this machine's own values.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    ailments::Ailment,
    bmc::{Bmc, PowerView, lock},
    config::Architecture,
    machine::Running,
    redfish::{
        ill,
        recorded::{RECORDED_ID, served},
        services,
    },
    settings::{Light, MediaPlace, Settings, Telling},
};

pub use super::paths::{CHASSIS, MANAGER, system_path};

/// Id of the drive that takes CD images.
pub const DRIVE: &str = "CD1";
/// The recorded Ethernet interfaces that represent the machine's first two cards.
const RECORDED_NICS: [&str; 2] = ["12446A3B0411", "12446A3B8890"];
/// Boot override targets that the firmware lists.
pub const BOOT_TARGETS: [&str; 10] =
    ["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Utilities", "Diags", "SDCard", "UefiTarget"];

/// Boot override targets that the firmware accepts: the listed ones, and the drive's name on boards that present it over USB.
pub const TAKEN_TARGETS: [&str; 11] =
    ["None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Utilities", "Diags", "SDCard", "UefiTarget", "UsbCd"];

/// How long boot overrides may last.
#[must_use]
pub const fn lasting(settings: &Settings) -> &'static [&'static str] {
    if settings.boots_once { &["Disabled", "Once"] } else { &["Disabled", "Once", "Continuous"] }
}

/// A recorded resource with this machine's id, before its own values are added.
fn recorded(bmc: &Bmc, path: &str) -> Option<Value> {
    let system = system_path(&bmc.config.id);
    let recorded_system = system_path(RECORDED_ID);
    let recorded_path = match path.strip_prefix(&system) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{recorded_system}{rest}"),
        _ if path.starts_with(&recorded_system) => return None,
        _ => path.to_owned(),
    };
    let text = served(&recorded_path)?.replace(&recorded_system, &system);
    serde_json::from_str(&text).ok()
}

/// The resource at `path` (without a slash at its end), if the BMC has one.
#[must_use]
pub fn resource(bmc: &Bmc, path: &str) -> Option<Value> {
    let settings = bmc.settings.borrow().clone();
    if let Some(body) = services::resource(bmc, path, &settings).or_else(|| ill::resource(bmc, path, &settings)) {
        return Some(body);
    }
    if settings.ailments.has(Ailment::MediaUnlicensed) && path.contains("/VirtualMedia") {
        return None;
    }
    let mut body = laid(bmc, path, &settings)?;
    ill::lay(bmc, path, &mut body, &settings);
    Some(body)
}

/// A recorded resource with this machine's own values.
fn laid(bmc: &Bmc, path: &str, settings: &Settings) -> Option<Value> {
    let system = system_path(&bmc.config.id);
    if let Some(rest) = path.strip_prefix(MANAGER).and_then(|rest| rest.strip_prefix("/VirtualMedia")) {
        if settings.media_at == MediaPlace::System {
            return None;
        }
        return media_resource(bmc, rest, &format!("{MANAGER}/VirtualMedia"));
    }
    if let Some(rest) = path.strip_prefix(&format!("{system}/VirtualMedia"))
        && (rest.is_empty() || rest.starts_with('/'))
    {
        if settings.media_at == MediaPlace::Manager {
            return None;
        }
        return media_resource(bmc, rest, &format!("{system}/VirtualMedia"));
    }
    if path.strip_prefix(&system).is_some_and(|rest| rest == "/Bios" || rest.starts_with("/Bios/")) && !settings.bios {
        return None;
    }
    if settings.events == Telling::None && path.starts_with("/redfish/v1/EventService") {
        return None;
    }
    let mut body = recorded(bmc, path)?;
    if path == "/redfish/v1/EventService" {
        super::push::lay(bmc, &mut body);
    } else if path == "/redfish/v1" {
        if settings.events == Telling::None
            && let Some(fields) = body.as_object_mut()
        {
            fields.shift_remove("EventService");
        }
        body["UUID"] = json!(derived(bmc, "service"));
        body["Product"] = json!("Virtual BMC");
        body["Vendor"] = json!(bmc.config.manufacturer);
        body["JsonSchemas"] = json!({ "@odata.id": "/redfish/v1/JsonSchemas" });
        if !settings.sessions
            && let Some(fields) = body.as_object_mut()
        {
            fields.shift_remove("SessionService");
            fields.shift_remove("Links");
        }
    } else if path == system {
        lay_system(bmc, &mut body, settings);
    } else if path == format!("{system}/SecureBoot") {
        let state = bmc.system();
        body["SecureBootEnable"] = json!(state.secure_boot);
        body["SecureBootCurrentBoot"] = json!(if state.secure_boot_now { "Enabled" } else { "Disabled" });
    } else if path == format!("{system}/Bios") {
        super::bios::lay(bmc, &mut body);
    } else if path == format!("{system}/Bios/Settings") {
        body["Attributes"] = json!(bmc.system().bios_pending);
    } else if path == MANAGER {
        body["UUID"] = json!(derived(bmc, "manager"));
        body["ServiceEntryPointUUID"] = json!(derived(bmc, "service"));
        body["DateTime"] = json!((bmc.shared.now)().to_string());
        body["DateTimeLocalOffset"] = json!("+00:00");
        if settings.media_at != MediaPlace::System {
            body["VirtualMedia"] = json!({ "@odata.id": format!("{MANAGER}/VirtualMedia") });
        }
    } else if path == "/redfish/v1/AccountService/Accounts/1" {
        body["UserName"] = json!(lock(&bmc.account).0);
    } else if path == CHASSIS {
        lay_light(bmc, &mut body, settings);
        body["SerialNumber"] = json!(bmc.config.system_serial());
        body["PowerState"] = json!(power_state(&bmc.power()));
    } else if path.strip_prefix(&system).is_some_and(|rest| rest.starts_with("/Processors/CPU"))
        && bmc.config.architecture == Architecture::Aarch64
    {
        lay_arm(&mut body);
    } else if let Some(index) = RECORDED_NICS.iter().position(|id| path == format!("{system}/EthernetInterfaces/{id}"))
    {
        lay_nic(bmc, &mut body, index);
    } else if path == format!("{system}/EthernetInterfaces/VLAN1") {
        body["PermanentMACAddress"] = json!(bmc.config.mac(0).to_uppercase());
        body["MACAddress"] = json!(bmc.config.mac(0).to_uppercase());
    }
    Some(body)
}

/// `On` or `Off`.
#[must_use]
pub fn power_state(power: &PowerView) -> &'static str {
    if power.on { "On" } else { "Off" }
}

fn derived(bmc: &Bmc, what: &str) -> String {
    Uuid::new_v5(&bmc.config.system_uuid(), what.as_bytes()).to_string()
}

fn lay_system(bmc: &Bmc, body: &mut Value, settings: &Settings) {
    let (config, state, power) = (&bmc.config, bmc.system(), bmc.power());
    for (name, value) in [
        ("Id", json!(config.id)),
        ("Name", json!(config.id)),
        ("HostName", json!(config.id)),
        ("SerialNumber", json!(config.system_serial())),
        ("UUID", json!(config.system_uuid())),
        ("Manufacturer", json!(config.manufacturer)),
        ("Model", json!(config.model)),
        ("AssetTag", json!(state.asset_tag)),
        ("PowerState", json!(power_state(&power))),
    ] {
        body[name] = value;
    }
    lay_light(bmc, body, settings);
    // Dell's service tag, which the machine's firmware calls its serial number, is the SKU at the BMC.
    if config.manufacturer.starts_with("Dell") {
        body["SKU"] = json!(config.system_serial());
    }
    body["Boot"] = json!({
        "BootSourceOverrideEnabled": state.boot.enabled,
        "BootSourceOverrideEnabled@Redfish.AllowableValues": lasting(settings),
        "BootSourceOverrideTarget": state.boot.target,
        "BootSourceOverrideTarget@Redfish.AllowableValues": BOOT_TARGETS,
        "BootSourceOverrideMode": state.boot.mode,
        "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI", "Legacy"],
        "UefiTargetBootSourceOverride": "/0x31/0x33/0x01/0x01",
    });
    let progress = match power.running {
        Running::Off => "None",
        Running::Medium => "OSBootStarted",
        Running::Disk => "OSRunning",
        Running::None | Running::Hung => "SystemHardwareInitializationComplete",
    };
    body["BootProgress"] = json!({ "LastState": progress });
    body["ProcessorSummary"]["Count"] = json!(1);
    body["ProcessorSummary"]["CoreCount"] = json!(config.cpus);
    body["ProcessorSummary"]["LogicalProcessorCount"] = json!(config.cpus);
    body["MemorySummary"]["TotalSystemMemoryGiB"] = json!(f64::from(config.memory_mib) / 1024.0);
    if let Some(last_reset) = power.last_reset {
        body["LastResetTime"] = json!(last_reset.to_string());
    }
    if let Some(fields) = body.as_object_mut() {
        if settings.media_at == MediaPlace::Manager {
            fields.shift_remove("VirtualMedia");
        }
        if !settings.bios {
            fields.shift_remove("Bios");
        }
    }
}

/// The light by which a person finds the machine, at the system or its chassis.
fn lay_light(bmc: &Bmc, body: &mut Value, settings: &Settings) {
    let lit = bmc.system().indicator;
    body["IndicatorLED"] = json!(if settings.light == Light::Chassis && lit == "Off" { "Lit" } else { lit.as_str() });
    match (settings.light, body.as_object_mut()) {
        (Light::Active, Some(fields)) => drop(fields.insert("LocationIndicatorActive".to_owned(), json!(lit != "Off"))),
        (Light::None, Some(fields)) => drop(fields.shift_remove("IndicatorLED")),
        _ => {}
    }
}

/// A processor that is one of Arm's (Processor: `ProcessorArchitecture`, `InstructionSet`).
fn lay_arm(body: &mut Value) {
    body["ProcessorArchitecture"] = json!("ARM");
    body["InstructionSet"] = json!("ARM-A64");
    body["Manufacturer"] = json!("Contoso");
    body["Model"] = json!("Contoso 128-Core Processor");
    if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("ProcessorId");
    }
}

fn lay_nic(bmc: &Bmc, body: &mut Value, index: usize) {
    let mac = bmc.config.mac(index).to_uppercase();
    body["PermanentMACAddress"] = json!(mac);
    body["MACAddress"] = json!(mac);
    let plugged = bmc.config.nics.get(index).is_some_and(|nic| !nic.unplugged);
    body["LinkStatus"] = json!(if plugged { "LinkUp" } else { "LinkDown" });
    body["HostName"] = json!(bmc.config.id);
    body["FQDN"] = json!(bmc.config.id);
}

/// A resource below a virtual media collection at `base`; system and manager show the same drives.
fn media_resource(bmc: &Bmc, rest: &str, base: &str) -> Option<Value> {
    let system_media = format!("{}/VirtualMedia", system_path(&bmc.config.id));
    let mut body = recorded(bmc, &format!("{system_media}{rest}"))?;
    if base != system_media {
        body = serde_json::from_str(&body.to_string().replace(&system_media, base)).ok()?;
    }
    let Some(id) = rest.strip_prefix('/').filter(|id| !id.contains('/')) else { return Some(body) };
    let medium = (id == DRIVE).then(|| bmc.medium()).flatten();
    let image = medium.as_ref().map(|medium| medium.url().to_string());
    let name = medium.as_ref().and_then(|medium| medium.url().path_segments()?.next_back().map(str::to_owned));
    body["Image"] = json!(image);
    body["ImageName"] = json!(name);
    body["Inserted"] = json!(medium.is_some());
    body["ConnectedVia"] = json!(if medium.is_some() { "URI" } else { "NotConnected" });
    body["WriteProtected"] = json!(true);
    if id == DRIVE {
        body["VerifyCertificate"] = json!(false);
        body["TransferMethod"] = json!("Stream");
        body["TransferProtocolType"] = json!(medium.as_ref().map(|medium| medium.url().scheme().to_uppercase()));
        body["Actions"] = json!({
            "#VirtualMedia.InsertMedia": { "target": format!("{base}/{id}/Actions/VirtualMedia.InsertMedia") },
            "#VirtualMedia.EjectMedia": { "target": format!("{base}/{id}/Actions/VirtualMedia.EjectMedia") },
        });
    }
    Some(body)
}

/// An entity tag over the fields that clients can change: changes of the power or the time do not make it stale.
#[must_use]
pub fn etag(body: &Value) -> String {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        for volatile in ["PowerState", "LastResetTime", "BootProgress", "DateTime", "SecureBootCurrentBoot"] {
            fields.shift_remove(volatile);
        }
    }
    let mut hasher = DefaultHasher::new();
    body.to_string().hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
