//! FirmwareSchema: what the settings of a firmware may be, shared by the hosts whose firmware is alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::kind;

kind! {
    /// What the settings of a firmware may be. Its owners are the HostFirmwareSettings that refer to it.
    FirmwareSchema, "firmwareschemas", FirmwareSchemaSpec
}

/// `spec` of a FirmwareSchema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareSchemaSpec {
    /// Maker of the machine of which it was read first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_vendor: Option<String>,
    /// Model of that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_model: Option<String>,
    /// Settings by name.
    #[serde(default)]
    pub schema: BTreeMap<String, SettingSchema>,
}

/// What one setting may be. What the firmware does not say is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingSchema {
    /// `Enumeration`, `String`, `Integer`, `Boolean` or `Password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute_type: Option<String>,
    /// Values of an enumeration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowable_values: Vec<String>,
    /// The smallest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    /// The largest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<i64>,
    /// The shortest text, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_length: Option<i64>,
    /// The longest text, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<i64>,
    /// It cannot be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Its value is of one machine alone, such as a serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
}
