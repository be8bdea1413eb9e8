//! BareMetalSwitch: a switch in front of hosts, and how it is reached.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::SecretReference;
use super::kind::kind;

kind! {
    /// A top-of-rack switch.
    BareMetalSwitch, "baremetalswitches", BareMetalSwitchSpec, BareMetalSwitchStatus
}

/// `spec` of a BareMetalSwitch (baremetal-operator `apis/metal3.io/v1alpha1/baremetalswitch_types.go`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalSwitchSpec {
    /// IP address or name.
    #[serde(default)]
    pub address: String,
    /// Secret with `username`, and `password` or `ssh-privatekey`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// Device type of networking-generic-switch.
    #[serde(default)]
    pub device_type: String,
    /// Do not verify its certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_certificate_verification: Option<bool>,
    /// `generic-switch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Hardware address of its management interface.
    #[serde(default)]
    pub mac_address: String,
    /// TCP port, 1 to 65535; the device type's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
}

/// `status` of a BareMetalSwitch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BareMetalSwitchStatus {
    /// Valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
