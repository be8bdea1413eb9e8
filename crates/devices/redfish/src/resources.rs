//! Parsed resources: service root, system, virtual media slot, Secure Boot. Every field may be missing or odd.

use bmc::HealthLevel;
use inventory::MachineEvidence;
use serde_json::Value;

use crate::json::{action, flag, link_at, links, text, word, words};

/// Power of the machine (`ComputerSystem.PowerState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// Turning on.
    PoweringOn,
    /// Turning off.
    PoweringOff,
    /// The BMC does not report it, or reports another value.
    Unknown,
}

/// All values of `PowerState` in an object: some firmware has it twice, with different values.
struct PowerStates(Vec<Value>);

impl<'de> serde::Deserialize<'de> for PowerStates {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = PowerStates;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<PowerStates, A::Error> {
                let mut states = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "PowerState" {
                        states.push(map.next_value()?);
                    } else {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    }
                }
                Ok(PowerStates(states))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl PowerState {
    /// Parses a system's body. Contradictory values give `Unknown`.
    pub(crate) fn of(body: &[u8]) -> Self {
        match serde_json::from_slice::<PowerStates>(body) {
            Ok(PowerStates(states)) if states.windows(2).all(|pair| pair[0] == pair[1]) => {
                states.first().map_or(Self::Unknown, Self::named)
            }
            _ => Self::Unknown,
        }
    }

    fn named(value: &Value) -> Self {
        match value.as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
            "on" => Self::On,
            "off" => Self::Off,
            "poweringon" => Self::PoweringOn,
            "poweringoff" => Self::PoweringOff,
            _ => Self::Unknown,
        }
    }

    /// Whether the machine is on; false during a transition. `None` when unknown.
    #[must_use]
    pub const fn is_on(self) -> Option<bool> {
        match self {
            Self::On | Self::PoweringOff => Some(true),
            Self::Off | Self::PoweringOn => Some(false),
            Self::Unknown => None,
        }
    }
}

/// `ComputerSystem.Boot`: the boot override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootOverride {
    /// `BootSourceOverrideEnabled`: `Disabled`, `Once`, `Continuous`.
    pub enabled: Option<String>,
    /// `BootSourceOverrideTarget`: `None`, `Cd`, `Hdd`, …
    pub target: Option<String>,
    /// `BootSourceOverrideMode`: `UEFI` or `Legacy`.
    pub mode: Option<String>,
    /// What the BMC lists for `BootSourceOverrideEnabled`; empty without a list.
    pub allowed: Vec<String>,
    /// Targets that the BMC lists; empty without a list.
    pub targets: Vec<String>,
    /// Collection of the firmware's boot options.
    pub(crate) options: Option<String>,
}

/// A system, read leniently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Its path.
    pub path: String,
    /// Power.
    pub power_state: PowerState,
    /// Boot override.
    pub boot: BootOverride,
    /// Whether the system has a boot override at all.
    pub(crate) shows_boot: bool,
    /// Maker.
    pub manufacturer: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial_number: Option<String>,
    /// SMBIOS UUID as written.
    pub uuid: Option<String>,
    /// Firmware version.
    pub bios_version: Option<String>,
    /// Stock-keeping unit.
    pub sku: Option<String>,
    /// `LastResetTime` as written: the time of the last reset, if the BMC reports it.
    pub(crate) last_reset: Option<String>,
    /// How far its boot is: `BootProgress.LastState`.
    pub boot_progress: Option<String>,
    /// How it is with all its parts, else by itself: `Status.HealthRollup`, `Status.Health`.
    pub(crate) health: Option<HealthLevel>,
    /// Why the vendor's own insertion action cannot take images from a web server, if that is the system's only one.
    pub(crate) unfit_media: Option<&'static str>,
    pub(crate) reset: ResetAction,
    pub(crate) virtual_media: Option<String>,
    pub(crate) secure_boot: Option<String>,
    pub(crate) bios: Option<String>,
    pub(crate) managers: Vec<String>,
    /// The chassis that it is in.
    pub(crate) chassis: Vec<String>,
    /// It shows a light by which a person finds it.
    pub(crate) shows_light: bool,
    pub(crate) interfaces: Option<String>,
    pub(crate) logs: Option<String>,
    /// Its collection of processors.
    pub(crate) processors: Option<String>,
    /// It says anything of its hardware.
    pub(crate) lists_hardware: bool,
    pub(crate) settings: Option<String>,
}

/// The light by which a person finds a server, of newer BMCs: a truth value.
pub(crate) const ACTIVE: &str = "LocationIndicatorActive";
/// The same of older BMCs: a word.
pub(crate) const LED: &str = "IndicatorLED";

/// `#ComputerSystem.Reset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResetAction {
    pub target: Option<String>,
    pub allowed: Vec<String>,
    pub info: Option<String>,
}

/// Properties of a ComputerSystem that tell, or lead to, what the machine is made of.
const HARDWARE: [&str; 8] = [
    "Processors",
    "ProcessorSummary",
    "Memory",
    "MemorySummary",
    "Storage",
    "SimpleStorage",
    "EthernetInterfaces",
    "NetworkInterfaces",
];

/// What a `Status` says of health (DSP0268, "Resource.Status"); `None` for values that are not Redfish's.
fn health(status: &Value) -> Option<HealthLevel> {
    let level = |field: &str| match status.get(field)?.as_str()? {
        "OK" => Some(HealthLevel::OK),
        "Warning" => Some(HealthLevel::Warning),
        "Critical" => Some(HealthLevel::Critical),
        _ => None,
    };
    level("HealthRollup").or_else(|| level("Health"))
}

impl System {
    pub(crate) fn read(path: &str, value: &Value, body: &[u8]) -> Self {
        let empty = Value::Null;
        let boot = value.get("Boot").unwrap_or(&empty);
        let reset = value.get("Actions").and_then(|actions| actions.get("#ComputerSystem.Reset")).unwrap_or(&empty);
        let managers = value.get("Links").and_then(|links| links.get("ManagedBy"));
        Self {
            path: path.to_owned(),
            power_state: PowerState::of(body),
            boot: BootOverride {
                enabled: text(boot, "BootSourceOverrideEnabled"),
                target: text(boot, "BootSourceOverrideTarget"),
                mode: text(boot, "BootSourceOverrideMode"),
                allowed: words(boot.get("BootSourceOverrideEnabled@Redfish.AllowableValues")),
                targets: words(boot.get("BootSourceOverrideTarget@Redfish.AllowableValues")),
                options: link_at(boot, "BootOptions"),
            },
            shows_boot: boot.is_object(),
            manufacturer: text(value, "Manufacturer"),
            model: text(value, "Model"),
            serial_number: text(value, "SerialNumber"),
            uuid: text(value, "UUID"),
            bios_version: text(value, "BiosVersion"),
            sku: text(value, "SKU"),
            last_reset: text(value, "LastResetTime"),
            boot_progress: value.get("BootProgress").and_then(|progress| text(progress, "LastState")),
            health: value.get("Status").and_then(health),
            unfit_media: crate::oem_media::unfit_system(value),
            reset: ResetAction {
                target: action(value, "#ComputerSystem.Reset"),
                allowed: words(reset.get("ResetType@Redfish.AllowableValues")),
                info: reset.get("@Redfish.ActionInfo").and_then(Value::as_str).and_then(crate::json::path_only),
            },
            virtual_media: link_at(value, "VirtualMedia"),
            secure_boot: link_at(value, "SecureBoot"),
            bios: link_at(value, "Bios"),
            managers: links(managers),
            chassis: links(value.get("Links").and_then(|links| links.get("Chassis"))),
            shows_light: [ACTIVE, LED].iter().any(|light| value.get(light).is_some()),
            interfaces: link_at(value, "EthernetInterfaces"),
            logs: link_at(value, "LogServices"),
            processors: link_at(value, "Processors"),
            lists_hardware: HARDWARE.iter().any(|field| value.get(field).is_some_and(Value::is_object)),
            settings: value.get("@Redfish.Settings").and_then(|settings| link_at(settings, "SettingsObject")),
        }
    }
}

impl System {
    /// Evidence of the machine's identity, without MACs. A Dell's serial number is that of its mainboard; its service tag, which SMBIOS has as the
    /// serial number, is the SKU (Dell, "Redfish API guide", ComputerSystem).
    #[must_use]
    pub fn evidence(&self) -> MachineEvidence {
        let is_dell = self.manufacturer.as_deref().is_some_and(|maker| maker.trim().to_lowercase().starts_with("dell"));
        let tag = self.sku.clone().filter(|sku| is_dell && !sku.trim().is_empty());
        MachineEvidence {
            manufacturer: self.manufacturer.clone(),
            system_uuid: self.uuid.clone(),
            serial_number: tag.or_else(|| self.serial_number.clone()),
            ..MachineEvidence::default()
        }
    }
}

/// Whether this is a complete interface, not a link to one or an excerpt: it has an address field, perhaps with the value null.
pub(crate) fn tells_of_macs(interface: &Value) -> bool {
    ["PermanentMACAddress", "MACAddress"].iter().any(|field| interface.get(field).is_some())
}

/// The permanent address of an interface of the system (`EthernetInterface`), except the BMC's own interface to the system, over USB.
pub(crate) fn permanent_mac(interface: &Value) -> Option<String> {
    let named = |field: &str| word(interface, field).unwrap_or_default().to_ascii_lowercase();
    if interface.get("Links").and_then(|links| links.get("HostInterface")).is_some() {
        return None;
    }
    let names = [named("Id"), named("Name"), named("Description")];
    if names.iter().any(|name| ["usb", "manager", "bmc", "host interface"].iter().any(|marker| name.contains(marker))) {
        return None;
    }
    text(interface, "PermanentMACAddress").or_else(|| text(interface, "MACAddress"))
}

/// Content of a virtual drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaState {
    /// `Inserted`; some BMCs omit it or report it wrongly.
    pub inserted: Option<bool>,
    /// `Image`: the address of the medium, if the BMC reports it.
    pub image: Option<String>,
}

impl MediaState {
    /// Whether the drive has a medium, as far as the BMC reports it.
    #[must_use]
    pub const fn is_occupied(&self) -> bool {
        match self.inserted {
            Some(inserted) => inserted,
            None => self.image.is_some(),
        }
    }
}

/// A virtual drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub path: String,
    pub takes_cd: bool,
    pub insert: Option<String>,
    pub eject: Option<String>,
    /// Whether the actions are the vendor's own and take the image alone.
    pub bare: bool,
    /// Configuration by which older Supermicro BMCs mount.
    pub iso_config: Option<String>,
    /// Protocols listed for the insertion (`TransferProtocolType`); empty without a list.
    pub protocols: Vec<String>,
    /// Collection of the certificates of servers that images are mounted from (since VirtualMedia 1.4).
    pub certificates: Option<String>,
    pub state: MediaState,
}

impl Slot {
    pub fn read(path: &str, value: &Value) -> Self {
        let types = words(value.get("MediaTypes"));
        let takes_cd = types.iter().any(|kind| kind.eq_ignore_ascii_case("CD") || kind.eq_ignore_ascii_case("DVD"));
        let named = types.is_empty() && cd_rank(path) == 0;
        let insert = action(value, "#VirtualMedia.InsertMedia");
        let bare_actions = if insert.is_none() { crate::oem_media::bare_actions(value) } else { None };
        let bare = bare_actions.is_some();
        let (own_insert, own_eject) = bare_actions.unzip();
        Self {
            path: path.to_owned(),
            takes_cd: takes_cd || named,
            insert: insert.or(own_insert),
            eject: action(value, "#VirtualMedia.EjectMedia").or(own_eject),
            bare,
            iso_config: None,
            protocols: words(
                value
                    .get("Actions")
                    .and_then(|actions| actions.get("#VirtualMedia.InsertMedia"))
                    .and_then(|insert| insert.get("TransferProtocolType@Redfish.AllowableValues")),
            ),
            certificates: link_at(value, "Certificates"),
            state: MediaState { inserted: flag(value, "Inserted"), image: image(value) },
        }
    }
}

/// The address of the medium; not truncated, because it is compared with the inserted one.
fn image(value: &Value) -> Option<String> {
    let image = word(value, "Image")?;
    (!image.is_empty() && image.len() <= 4096).then(|| image.to_owned())
}

/// Last part of a drive's path, in lower case.
pub(crate) fn drive_name(path: &str) -> String {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_ascii_lowercase()
}

/// Preference among drives, by the last part of their path: those named for a CD first (Lenovo's `EXT1` and so on take images by address), those
/// named for something else last.
pub(crate) fn cd_rank(path: &str) -> u8 {
    let name = drive_name(path);
    let external = name.strip_prefix("ext").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    if name.contains("cd") || name.contains("dvd") || external {
        0
    } else if name.contains("floppy") || name.contains("removable") || name.contains("usb") {
        2
    } else {
        1
    }
}

/// UEFI Secure Boot (`SecureBoot`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureBoot {
    /// `SecureBootEnable`: the setting, in force from the next boot.
    pub enable: Option<bool>,
    /// `SecureBootCurrentBoot` is `Enabled`: in force now.
    pub current: Option<bool>,
    /// `SecureBootMode` is `SetupMode` or `AuditMode`: there is no platform key, or images that fail verification still run (UEFI specification 2.10,
    /// 32.3).
    pub setup_mode: bool,
}

impl SecureBoot {
    pub(crate) fn read(value: &Value) -> Self {
        Self {
            enable: flag(value, "SecureBootEnable"),
            current: word(value, "SecureBootCurrentBoot").map(|state| state.eq_ignore_ascii_case("enabled")),
            setup_mode: word(value, "SecureBootMode").is_some_and(|mode| {
                ["setupmode", "auditmode"].iter().any(|unsafe_mode| mode.eq_ignore_ascii_case(unsafe_mode))
            }),
        }
    }
}

/// The service root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub vendor: String,
    pub product: String,
    /// `UUID` of the service; of an iDRAC, which has none, the service tag.
    pub uuid: Option<String>,
    pub systems: Option<String>,
    pub managers: Option<String>,
    /// The EventService.
    pub events: Option<String>,
    pub registries: Option<String>,
    pub update_service: Option<String>,
    /// Session collections to try, in order; empty when the BMC has none.
    pub sessions: Vec<String>,
    /// Query that inlines a collection's members, where supported.
    pub expand: Option<&'static str>,
}

/// Default session collection, if none is linked (DSP0266, 13.3.4.1).
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

impl Root {
    pub fn read(value: &Value) -> Self {
        let service = link_at(value, "SessionService");
        let linked = value.get("Links").and_then(|links| link_at(links, "Sessions"));
        // Some BMCs link the collection wrongly: the standard one is tried second.
        let mut sessions: Vec<String> = linked.into_iter().collect();
        if let Some(service) = service {
            let below = format!("{}/Sessions", service.trim_end_matches('/'));
            if !sessions.contains(&below) {
                sessions.push(below);
            }
        }
        Self {
            vendor: text(value, "Vendor").unwrap_or_default(),
            product: text(value, "Product").unwrap_or_default(),
            uuid: text(value, "UUID").or_else(|| service_tag(value)),
            systems: link_at(value, "Systems"),
            managers: link_at(value, "Managers"),
            events: link_at(value, "EventService"),
            registries: link_at(value, "Registries"),
            update_service: link_at(value, "UpdateService"),
            sessions,
            expand: expand(value),
        }
    }

    /// The assumed root of a BMC that requires authentication for it, until it can be read.
    pub fn hidden() -> Self {
        Self {
            vendor: String::new(),
            product: String::new(),
            uuid: None,
            systems: Some("/redfish/v1/Systems".into()),
            registries: Some("/redfish/v1/Registries".into()),
            update_service: Some("/redfish/v1/UpdateService".into()),
            managers: Some("/redfish/v1/Managers".into()),
            events: Some("/redfish/v1/EventService".into()),
            sessions: vec![SESSIONS.into()],
            expand: None,
        }
    }
}

/// The machine's service tag that an iDRAC shows without authentication.
fn service_tag(root: &Value) -> Option<String> {
    text(root.get("Oem")?.get("Dell")?, "ServiceTag")
}

/// DSP0266, 7.3.2: `.` inlines everything except `Links`.
fn expand(value: &Value) -> Option<&'static str> {
    let features = value.get("ProtocolFeaturesSupported")?.get("ExpandQuery")?;
    let has = |name| flag(features, name).unwrap_or(false);
    if !has("NoLinks") {
        return None;
    }
    Some(if has("Levels") { "?$expand=.($levels=1)" } else { "?$expand=." })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn health_is_that_of_all_parts_else_of_the_system_and_nothing_else_is_health() {
        for (status, found) in [
            (json!({"Health": "OK", "HealthRollup": "Critical"}), Some(HealthLevel::Critical)),
            (json!({"Health": "Warning", "HealthRollup": null}), Some(HealthLevel::Warning)),
            (json!({"HealthRollup": "OK", "State": "Enabled"}), Some(HealthLevel::OK)),
            (json!({"Health": "Fine", "HealthRollup": 7}), None),
            (json!({"State": "Enabled"}), None),
            (json!("OK"), None),
        ] {
            let value = json!({"Status": status});
            assert_eq!(System::read("/redfish/v1/Systems/1", &value, b"{}").health, found, "{value}");
        }
        assert_eq!(System::read("/redfish/v1/Systems/1", &json!({}), b"{}").health, None);
    }
}
