//! Clean and service steps, and the volumes that the next cleaning makes (`raid.go`, `servicing.go` of baremetal-operator).

use api::metal3::{HardwareRaidVolume, Raid, SoftwareRaidVolume};
use inventory::RootDeviceHints;
use provisioner::{FirmwareTargets, Setting};
use serde_json::{Map, Value, json};

use crate::hints::root_device;

/// The interface by which the agent makes volumes.
const SOFTWARE: &str = "agent";
/// The interface that makes none.
const NONE: &str = "no-raid";

/// What preparing a node takes.
#[derive(Debug, Default, PartialEq)]
pub struct Preparation {
    /// The node's `raid_interface`, where volumes change.
    pub raid_interface: Option<String>,
    /// Volumes that `create_configuration` makes.
    pub volumes: Vec<Value>,
    /// Clean steps; without any, there is nothing to do.
    pub steps: Vec<Value>,
}

fn step(interface: &str, step: &str) -> Value {
    json!({ "interface": interface, "step": step })
}

fn is_some(volumes: Option<&Vec<SoftwareRaidVolume>>) -> bool {
    volumes.is_some_and(|volumes| !volumes.is_empty())
}

/// Steps and volumes of a change from `actual` to `wished`; `own` is the driver's interface.
///
/// # Errors
/// What of the wish cannot be, a sentence.
pub fn raid(
    own: &str,
    wished: Option<&Raid>,
    actual: Option<&Raid>,
    hints: &RootDeviceHints,
) -> Result<Preparation, String> {
    let Some(wished) = wished else { return Ok(Preparation::default()) };
    let hardware = wished.hardware_raid_volumes.as_ref();
    let was_software = actual.and_then(|actual| actual.software_raid_volumes.as_ref());
    let mut made = Preparation::default();
    if let Some(volumes) = &wished.software_raid_volumes {
        // Neither kind is known of volumes whose making was begun.
        let is_unknown = actual == Some(&Raid::default());
        if was_software == Some(volumes) || volumes.is_empty() && !is_some(was_software) && !is_unknown {
            return Ok(made);
        }
        made.raid_interface = Some(SOFTWARE.to_owned());
        made.steps = vec![step("raid", "delete_configuration"), step("deploy", "erase_devices_metadata")];
        if volumes.is_empty() {
            return Ok(made);
        }
        if volumes.first().is_some_and(|volume| volume.level != "1") {
            return Err(
                "the first of spec.raid.softwareRAIDVolumes has to be of the level 1: a machine boots from no other"
                    .to_owned(),
            );
        }
        made.volumes = volumes.iter().map(software_volume).collect();
        made.steps.push(step("raid", "create_configuration"));
    } else {
        let Some(volumes) = hardware else { return Ok(made) };
        if own == NONE {
            return if volumes.is_empty() {
                Ok(made)
            } else {
                Err("spec.raid.hardwareRAIDVolumes asks for volumes, and Ironic's driver for this BMC makes none"
                    .to_owned())
            };
        }
        if actual.and_then(|actual| actual.hardware_raid_volumes.as_ref()) == Some(volumes) {
            return Ok(made);
        }
        made.raid_interface = Some(own.to_owned());
        made.steps.push(step("raid", "delete_configuration"));
        if volumes.is_empty() {
            return Ok(made);
        }
        made.volumes = hardware_volumes(volumes)?;
        made.steps.push(step("raid", "create_configuration"));
    }
    let chosen = made.volumes.iter().any(|volume| volume["is_root_volume"] == Value::Bool(true));
    if !chosen
        && root_device(hints).is_empty()
        && let Some(first) = made.volumes.first_mut()
    {
        first["is_root_volume"] = true.into();
    }
    Ok(made)
}

fn size(gibibytes: Option<i64>) -> Value {
    gibibytes.filter(|size| *size > 0).map_or_else(|| "MAX".into(), Into::into)
}

fn hardware_volumes(volumes: &[HardwareRaidVolume]) -> Result<Vec<Value>, String> {
    let mut names = Vec::new();
    let mut made = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let place = format!("spec.raid.hardwareRAIDVolumes[{index}]");
        let mut disk = Map::new();
        disk.insert("size_gb".into(), size(volume.size_gibibytes));
        disk.insert("raid_level".into(), volume.level.clone().into());
        if let Some(name) = volume.name.as_ref().filter(|name| !name.is_empty()) {
            if names.contains(&name) {
                return Err(format!("{place} has the name {name:?} of a volume before it"));
            }
            names.push(name);
            disk.insert("volume_name".into(), name.clone().into());
        }
        if let Some(controller) = volume.controller.as_ref().filter(|controller| !controller.is_empty()) {
            disk.insert("controller".into(), controller.clone().into());
        }
        if let Some(rotational) = volume.rotational {
            disk.insert("disk_type".into(), if rotational { "hdd" } else { "ssd" }.into());
        }
        if let Some(number) = volume.number_of_physical_disks {
            disk.insert("number_of_physical_disks".into(), number.into());
        }
        if !volume.physical_disks.is_empty() {
            if volume.controller.as_deref().unwrap_or_default().is_empty() {
                return Err(format!("{place} names physicalDisks, and no controller that has them"));
            }
            let count = i64::try_from(volume.physical_disks.len()).unwrap_or(i64::MAX);
            if volume.number_of_physical_disks.is_some_and(|number| number != count) {
                return Err(format!("{place} names {count} physicalDisks, and another numberOfPhysicalDisks"));
            }
            disk.insert("physical_disks".into(), json!(volume.physical_disks));
        }
        made.push(Value::Object(disk));
    }
    Ok(made)
}

fn software_volume(volume: &SoftwareRaidVolume) -> Value {
    let mut disk = json!({
        "size_gb": size(volume.size_gibibytes),
        "raid_level": volume.level,
        "controller": "software",
        "is_root_volume": volume.root_volume.unwrap_or(false),
    });
    if !volume.physical_disks.is_empty() {
        disk["physical_disks"] = volume.physical_disks.iter().map(|hints| Value::Object(root_device(hints))).collect();
    }
    disk
}

/// Steps of changes to the firmware: settings that differ from what is there, and updates.
pub fn firmware(targets: &FirmwareTargets) -> Vec<Value> {
    let mut steps = Vec::new();
    let differs = |name: &String, setting: &Setting| {
        let wished = match setting {
            Setting::Number(number) => number.to_string(),
            Setting::Text(text) => text.clone(),
        };
        targets.actual_settings.get(name) != Some(&wished)
    };
    let settings: Vec<Value> = targets
        .settings
        .iter()
        .filter(|(name, setting)| differs(name, setting))
        .map(|(name, setting)| match setting {
            Setting::Number(number) => json!({ "name": name, "value": number }),
            Setting::Text(text) => json!({ "name": name, "value": text }),
        })
        .collect();
    if !settings.is_empty() {
        steps.push(json!({ "interface": "bios", "step": "apply_configuration", "args": { "settings": settings } }));
    }
    let updates: Vec<Value> =
        targets.updates.iter().map(|update| json!({ "component": update.component, "url": update.url })).collect();
    if !updates.is_empty() {
        steps.push(json!({ "interface": "firmware", "step": "update", "args": { "settings": updates } }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use provisioner::FirmwareUpdate;

    use super::*;

    fn names(made: &Preparation) -> Vec<String> {
        let name = |step: &Value| format!("{}.{}", step["interface"].as_str().unwrap(), step["step"].as_str().unwrap());
        made.steps.iter().map(name).collect()
    }

    fn hardware(volumes: Vec<HardwareRaidVolume>) -> Raid {
        Raid { hardware_raid_volumes: Some(volumes), software_raid_volumes: None }
    }

    fn software(levels: &[&str]) -> Raid {
        let volumes =
            levels.iter().map(|level| SoftwareRaidVolume { level: (*level).into(), ..SoftwareRaidVolume::default() });
        Raid { hardware_raid_volumes: None, software_raid_volumes: Some(volumes.collect()) }
    }

    fn volume() -> HardwareRaidVolume {
        HardwareRaidVolume { level: "1".into(), size_gibibytes: Some(100), ..HardwareRaidVolume::default() }
    }

    #[test]
    fn volumes_of_a_controller_are_removed_and_made() {
        let hints = RootDeviceHints::default();
        let of = |wished: &Raid, actual: Option<&Raid>| raid("redfish", Some(wished), actual, &hints).unwrap();
        assert_eq!(raid("redfish", None, None, &hints).unwrap(), Preparation::default());
        let made = of(&hardware(vec![volume()]), None);
        assert_eq!(names(&made), ["raid.delete_configuration", "raid.create_configuration"]);
        assert_eq!(made.raid_interface.as_deref(), Some("redfish"));
        assert_eq!(made.volumes, [json!({"size_gb": 100, "raid_level": "1", "is_root_volume": true})]);
        assert_eq!(of(&hardware(vec![volume()]), Some(&hardware(vec![volume()]))), Preparation::default());
        assert_eq!(names(&of(&hardware(Vec::new()), None)), ["raid.delete_configuration"]);
        let chosen = RootDeviceHints { serial_number: Some("S1".into()), ..RootDeviceHints::default() };
        let made = raid("redfish", Some(&hardware(vec![volume()])), None, &chosen).unwrap();
        assert_eq!(made.volumes[0].get("is_root_volume"), None, "the hints choose");
    }

    #[test]
    fn volumes_by_software_are_the_agents() {
        let hints = RootDeviceHints::default();
        let made = raid("redfish", Some(&software(&["1", "0"])), None, &hints).unwrap();
        assert_eq!(
            names(&made),
            ["raid.delete_configuration", "deploy.erase_devices_metadata", "raid.create_configuration"]
        );
        assert_eq!(made.raid_interface.as_deref(), Some("agent"));
        assert_eq!(
            made.volumes[1],
            json!({"size_gb": "MAX", "raid_level": "0", "controller": "software", "is_root_volume": false})
        );
        let none = software(&[]);
        assert_eq!(raid("redfish", Some(&none), None, &hints).unwrap(), Preparation::default());
        let removed = raid("redfish", Some(&none), Some(&software(&["1"])), &hints).unwrap();
        assert_eq!(names(&removed), ["raid.delete_configuration", "deploy.erase_devices_metadata"]);
        // They were being made, and which of them are there is not known.
        let removed = raid("redfish", Some(&none), Some(&Raid::default()), &hints).unwrap();
        assert_eq!(names(&removed), ["raid.delete_configuration", "deploy.erase_devices_metadata"]);
        assert!(raid("redfish", Some(&software(&["0"])), None, &hints).unwrap_err().contains("level 1"));
    }

    #[test]
    fn volumes_that_cannot_be_are_refused() {
        let hints = RootDeviceHints::default();
        let of =
            |volumes: Vec<HardwareRaidVolume>| raid("redfish", Some(&hardware(volumes)), None, &hints).unwrap_err();
        let named = || HardwareRaidVolume { name: Some("a".into()), ..volume() };
        assert!(of(vec![named(), named()]).contains("[1]"));
        assert!(of(vec![HardwareRaidVolume { physical_disks: vec!["d".into()], ..volume() }]).contains("controller"));
        let counted = HardwareRaidVolume {
            physical_disks: vec!["d".into()],
            controller: Some("c".into()),
            number_of_physical_disks: Some(2),
            ..volume()
        };
        assert!(of(vec![counted]).contains("numberOfPhysicalDisks"));
        assert!(raid("no-raid", Some(&hardware(vec![volume()])), None, &hints).is_err());
        assert!(raid("no-raid", Some(&hardware(Vec::new())), None, &hints).is_ok());
    }

    #[test]
    fn only_settings_that_differ_are_set() {
        let mut targets = FirmwareTargets::default();
        targets.settings.insert("BootDelay".into(), Setting::Number(7));
        targets.settings.insert("Same".into(), Setting::Text("On".into()));
        targets.actual_settings.insert("Same".into(), "On".into());
        targets.updates.push(FirmwareUpdate { component: "bios".into(), url: "http://x/f".into() });
        assert_eq!(
            Value::Array(firmware(&targets)),
            json!([
                {"interface": "bios", "step": "apply_configuration", "args": {"settings": [{"name": "BootDelay", "value": 7}]}},
                {"interface": "firmware", "step": "update", "args": {"settings": [{"component": "bios", "url": "http://x/f"}]}},
            ])
        );
        assert!(firmware(&FirmwareTargets::default()).is_empty());
    }
}
