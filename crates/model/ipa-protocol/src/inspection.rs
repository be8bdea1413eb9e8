//! What the agent sends after an inspection (`A:inspector.py`): the inventory, and what plug-ins have found, side by side.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hardware::{Disk, Inventory, LldpRecord};

/// Body of `POST /v1/continue_inspection`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InspectionData {
    /// The inventory.
    pub inventory: Inventory,
    /// The disk that an image without hints would go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_disk: Option<Disk>,
    /// Hardware address of the interface the agent was booted by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_interface: Option<String>,
    /// What looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    /// What failed; Ironic fails the inspection by it (`I:drivers/modules/inspector/hooks/ramdisk_error.py`).
    #[serde(default)]
    pub error: Option<String>,
    /// The agent's logs: tar.gz in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<String>,
    /// What switches say, by interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lldp_raw: Option<BTreeMap<String, Vec<LldpRecord>>>,
    /// PCI devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_devices: Option<Vec<PciDevice>>,
    /// What other plug-ins have found.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

impl std::fmt::Debug for InspectionData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InspectionData")
            .field("inventory", &self.inventory)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// What looked (`A:inspector.py`, `collect_default`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Names of collectors.
    #[serde(default)]
    pub collectors: Vec<String>,
    /// Hardware managers.
    #[serde(default)]
    pub managers: Vec<ManagerVersion>,
}

/// A hardware manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerVersion {
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its version.
    #[serde(default)]
    pub version: Option<String>,
}

/// A PCI device (collector `pci-devices`): ids are four hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciDevice {
    /// Vendor.
    pub vendor_id: String,
    /// Device.
    pub product_id: String,
    /// Class.
    #[serde(default)]
    pub class: Option<String>,
    /// Revision.
    #[serde(default)]
    pub revision: Option<String>,
    /// Address.
    #[serde(default)]
    pub bus: Option<String>,
    /// Memory node; −1 where there is none.
    #[serde(default)]
    pub numa_node_id: Option<i64>,
}
