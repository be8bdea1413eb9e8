//! What a provisioner is told to make of a machine, and what it has read of it.

use std::collections::BTreeMap;

use api::metal3::{FirmwareComponent, FirmwareUpdate, Raid, SettingSchema};
use inventory::RootDeviceHints;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What [`crate::Action::Prepare`] and [`crate::Action::Service`] are to bring about. Empty: nothing new; what was accepted before is gone on with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// RAID volumes to make; `None` if they are as wished.
    pub raid: Option<RaidTarget>,
    /// Settings of the firmware; `None` if they are as wished.
    pub settings: Option<SettingsTarget>,
    /// Updates of the firmware that were not made yet.
    pub updates: Vec<FirmwareUpdate>,
    /// The disk that an image will go to, as far as hints choose it.
    pub root_device_hints: Option<RootDeviceHints>,
}

/// RAID volumes to make. Lists mean what they mean in `spec.raid`: none keeps what is there, an empty one removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidTarget {
    /// What is wished.
    pub wished: Raid,
    /// What is there; `None` if that is not known: there was none yet, or the last attempt failed half-way.
    pub present: Option<Raid>,
}

/// Settings of the firmware to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsTarget {
    /// What is wished, by name: a number or a text, as the wish has it.
    pub wished: BTreeMap<String, IntOrString>,
    /// All that there is.
    pub present: BTreeMap<String, String>,
    /// Since when the two differ: the same wish a second time is another one.
    pub since: Option<Timestamp>,
}

impl Targets {
    /// Whether nothing new is to be made.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raid.is_none() && self.settings.is_none() && self.updates.is_empty()
    }
}

/// What the provisioner has read of a machine's firmware.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirmwareFacts {
    /// Settings by name; `None` if the machine does not show them.
    pub settings: Option<BTreeMap<String, FirmwareSetting>>,
    /// Components with their versions.
    pub components: Vec<FirmwareComponent>,
}

/// One setting of a machine's firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirmwareSetting {
    /// As it is.
    pub value: String,
    /// What it may be.
    pub schema: SettingSchema,
}
