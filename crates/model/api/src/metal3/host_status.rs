//! `status` of a BareMetalHost.

use std::sync::Arc;

use inventory::{HardwareDetails, RootDeviceHints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::{BootMode, CustomDeploy, FirmwareConfig, Image, ProvisioningState, Raid, SecretReference};
use crate::Time;

/// What is known of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BareMetalHostStatus {
    /// Six conditions (baremetal-operator v1alpha1: Manageable, AvailableForProvisioning, Provisioned, Ready, Progressing, Healthy).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Failures in a row of the present work.
    #[serde(default)]
    pub error_count: i64,
    /// Text for people; empty when all is well.
    #[serde(default)]
    pub error_message: String,
    /// Class of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    /// Credentials that worked.
    #[serde(default)]
    pub good_credentials: CredentialsStatus,
    /// Inspection's result (deprecated copy of HardwareData). Copies of a status share it: it is never changed in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Arc<HardwareDetails>>,
    /// Profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware_profile: Option<String>,
    /// Image of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempted_image: Option<Image>,
    /// When this status was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// When work started and ended.
    #[serde(default)]
    pub operation_history: OperationHistory,
    /// Summary.
    #[serde(default)]
    pub operational_status: OperationalStatus,
    /// Last seen power state.
    #[serde(default)]
    pub powered_on: bool,
    /// Provisioning.
    #[serde(default)]
    pub provisioning: ProvisionStatus,
    /// Failed attempts to provision the same image.
    #[serde(default)]
    pub provisioning_fail_count: i64,
    /// Credentials last tried.
    #[serde(default)]
    pub tried_credentials: CredentialsStatus,
}

/// `status.provisioning`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionStatus {
    /// The provisioner's id of the machine; the owner on the machine's disks.
    #[serde(rename = "ID", default)]
    pub id: String,
    /// Boot mode in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_mode: Option<BootMode>,
    /// Custom deploy in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Always empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareConfig>,
    /// Image on the machine; url empty when there is none.
    #[serde(default)]
    pub image: Image,
    /// RAID in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// Root device hints in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<RootDeviceHints>,
    /// State.
    #[serde(default)]
    pub state: ProvisioningState,
}

/// A Secret and its resourceVersion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsStatus {
    /// The Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<SecretReference>,
    /// Its resourceVersion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_version: Option<String>,
}

/// When work started and ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationHistory {
    /// Deprovisioning.
    #[serde(default)]
    pub deprovision: OperationMetric,
    /// Inspection.
    #[serde(default)]
    pub inspect: OperationMetric,
    /// Provisioning.
    #[serde(default)]
    pub provision: OperationMetric,
    /// Registration.
    #[serde(default)]
    pub register: OperationMetric,
}

/// Start and end; `null` when it has not happened (upstream writes the nulls).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationMetric {
    /// Start.
    #[serde(default)]
    pub start: Option<Time>,
    /// End.
    #[serde(default)]
    pub end: Option<Time>,
}

/// Summary of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationalStatus {
    /// Not known yet.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// All well.
    #[serde(rename = "OK")]
    Ok,
    /// Known, not managed.
    #[serde(rename = "discovered")]
    Discovered,
    /// In error.
    #[serde(rename = "error")]
    Error,
    /// Waiting for capacity.
    #[serde(rename = "delayed")]
    Delayed,
    /// Detached.
    #[serde(rename = "detached")]
    Detached,
    /// Servicing.
    #[serde(rename = "servicing")]
    Servicing,
}

/// Class of a failure. (Upstream's controller knows `detach error` too, which its schema refuses.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorType {
    /// A provisioned host could not be taken over again.
    #[serde(rename = "provisioned registration error")]
    ProvisionedRegistration,
    /// BMC access failed.
    #[serde(rename = "registration error")]
    Registration,
    /// Inspection failed.
    #[serde(rename = "inspection error")]
    Inspection,
    /// Preparation failed.
    #[serde(rename = "preparation error")]
    Preparation,
    /// Provisioning failed.
    #[serde(rename = "provisioning error")]
    Provisioning,
    /// Power could not be changed or read.
    #[serde(rename = "power management error")]
    PowerManagement,
    /// Servicing failed.
    #[serde(rename = "servicing error")]
    Servicing,
}

impl ErrorType {
    /// The text in the object.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProvisionedRegistration => "provisioned registration error",
            Self::Registration => "registration error",
            Self::Inspection => "inspection error",
            Self::Preparation => "preparation error",
            Self::Provisioning => "provisioning error",
            Self::PowerManagement => "power management error",
            Self::Servicing => "servicing error",
        }
    }

    /// Reason of the Event that upstream publishes for it.
    #[must_use]
    pub const fn event_reason(self) -> &'static str {
        match self {
            Self::ProvisionedRegistration => "ProvisionedRegistrationError",
            Self::Registration => "RegistrationError",
            Self::Inspection => "InspectionError",
            Self::Preparation => "PreparationError",
            Self::Provisioning => "ProvisioningError",
            Self::PowerManagement => "PowerManagementError",
            Self::Servicing => "ServicingError",
        }
    }
}
