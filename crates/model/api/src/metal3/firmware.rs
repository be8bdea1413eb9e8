//! HostFirmwareSettings, HostFirmwareComponents and HostUpdatePolicy: a host's firmware, one object of each kind a host, same name.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::kind::kind;
use crate::Time;

kind! {
    /// Settings of the firmware: which are wished, and which there are.
    HostFirmwareSettings, "hostfirmwaresettings", HostFirmwareSettingsSpec, HostFirmwareSettingsStatus
}

kind! {
    /// Versions of the firmware: which updates are wished, and what is installed.
    HostFirmwareComponents, "hostfirmwarecomponents", HostFirmwareComponentsSpec, HostFirmwareComponentsStatus
}

kind! {
    /// When the firmware of a host may be changed; without one only while it is prepared.
    HostUpdatePolicy, "hostupdatepolicies", HostUpdatePolicySpec, HostUpdatePolicyStatus
}

/// `spec` of HostFirmwareSettings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFirmwareSettingsSpec {
    /// Wished settings by name.
    #[serde(default)]
    pub settings: BTreeMap<String, IntOrString>,
}

/// `status` of HostFirmwareSettings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareSettingsStatus {
    /// ChangeDetected and Valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When this status was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// What the settings may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<SchemaReference>,
    /// Settings as they are, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Names a FirmwareSchema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// `spec` of HostFirmwareComponents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFirmwareComponentsSpec {
    /// Wished updates.
    #[serde(default)]
    pub updates: Vec<FirmwareUpdate>,
}

/// An update of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareUpdate {
    /// `bios`, `bmc`, or `nic:` with a name.
    pub component: String,
    /// Where the firmware is.
    pub url: String,
}

/// `status` of HostFirmwareComponents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostFirmwareComponentsStatus {
    /// What is installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<FirmwareComponent>,
    /// ChangeDetected and Valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When this status was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// The updates that were made, or are being made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<FirmwareUpdate>,
}

/// A component with firmware of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareComponent {
    /// Its name.
    pub component: String,
    /// Version when the host was registered.
    pub initial_version: String,
    /// Version now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Version that was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_version_flashed: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
}

/// `spec` of a HostUpdatePolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostUpdatePolicySpec {
    /// When settings may be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_settings: Option<UpdatePolicy>,
    /// When firmware may be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_updates: Option<UpdatePolicy>,
}

/// When firmware may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UpdatePolicy {
    /// While the host is prepared, before it is provisioned.
    OnPreparing,
    /// Whenever a provisioned host is rebooted, too.
    OnReboot,
}

/// `status` of a HostUpdatePolicy: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostUpdatePolicyStatus {}
