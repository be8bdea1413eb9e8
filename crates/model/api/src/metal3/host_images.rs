//! PreprovisioningImage and DataImage: what a host boots while it is worked on, and what a provisioned one is shown; one object of each kind a host,
//! same name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

use super::kind::kind;
use crate::Time;

kind! {
    /// The image that a host is worked on with: who builds such images reads the spec and says in the status where it is.
    PreprovisioningImage, "preprovisioningimages", PreprovisioningImageSpec, PreprovisioningImageStatus
}

kind! {
    /// A medium that a provisioned host is shown.
    DataImage, "dataimages", DataImageSpec, DataImageStatus
}

/// `spec` of a PreprovisioningImage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreprovisioningImageSpec {
    /// Formats that the provisioner can boot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accept_formats: Vec<BootFormat>,
    /// The machine's, as the kernel names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Secret with network data to build in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data_name: Option<String>,
}

/// How an image is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BootFormat {
    /// As a CD.
    Iso,
    /// With a kernel, over the network.
    Initrd,
}

/// `status` of a PreprovisioningImage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreprovisioningImageStatus {
    /// Architecture that it was built for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Ready and Error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Parameters of the kernel of an initrd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_kernel_params: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<BootFormat>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_url: Option<String>,
    /// Where the kernel of an initrd is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_url: Option<String>,
    /// The network data that was built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretStatus>,
}

/// One version of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretStatus {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its resourceVersion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// `spec` of a DataImage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataImageSpec {
    /// Where the medium is.
    #[serde(default)]
    pub url: String,
}

/// `status` of a DataImage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DataImageStatus {
    /// What is attached; its url is empty if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_image: Option<AttachedImage>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<DataImageError>,
    /// When this was last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconciled: Option<Time>,
}

/// A medium that is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedImage {
    /// Where it is.
    pub url: String,
}

/// Failures to attach or detach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataImageError {
    /// How many in a row.
    pub count: i64,
    /// The last one.
    pub message: String,
}
