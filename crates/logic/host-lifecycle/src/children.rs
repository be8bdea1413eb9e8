//! The objects beside a host: what a decision reads of them, and what it has written to them.
//!
//! Each has the host's name and namespace, and the host as its owner. [`ChildWrite`]s are written before the host's status: after a crash in between,
//! what is missing is decided and written again.

use api::metal3::{
    DataImage, DataImageStatus, FirmwareSchema, FirmwareSchemaSpec, HostFirmwareComponents,
    HostFirmwareComponentsStatus, HostFirmwareSettings, HostFirmwareSettingsStatus, HostUpdatePolicy,
    PreprovisioningImage, PreprovisioningImageSpec, finalizer,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The objects beside a host, as last read; `None` where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Children<'a> {
    /// Settings of the firmware.
    pub firmware_settings: Option<&'a HostFirmwareSettings>,
    /// What the settings may be: the FirmwareSchema that their status names.
    pub firmware_schema: Option<&'a FirmwareSchema>,
    /// Versions of the firmware.
    pub firmware_components: Option<&'a HostFirmwareComponents>,
    /// When a provisioned host's firmware may be changed.
    pub update_policy: Option<&'a HostUpdatePolicy>,
    /// The image that the host is worked on with.
    pub boot_image: Option<&'a PreprovisioningImage>,
    /// resourceVersion of the Secret that `spec.preprovisioningNetworkDataName` names.
    pub network_data_version: Option<&'a str>,
    /// The medium that a provisioned host is shown.
    pub data_image: Option<&'a DataImage>,
}

impl Children<'_> {
    /// Whether the DataImage waits for a host before it goes.
    pub(crate) fn holds_data_image(&self) -> bool {
        self.data_image.is_some_and(|image| holds(&image.metadata, finalizer::DATA_IMAGE))
    }

    /// The finalizers to remove when the host is deleted: no other component does.
    pub(crate) fn releases(&self) -> impl Iterator<Item = ChildWrite> {
        let boot_image = self.boot_image.is_some_and(|image| holds(&image.metadata, finalizer::BOOT_IMAGE));
        let data_image = self.holds_data_image().then_some(ChildWrite::ReleaseDataImage);
        data_image.into_iter().chain(boot_image.then_some(ChildWrite::ReleaseBootImage))
    }
}

fn holds(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.finalizers.as_ref().is_some_and(|held| held.iter().any(|key| key == name))
}

/// A write to an object beside the host.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildWrite {
    /// Create the HostFirmwareSettings if there is none, with nothing wished, and make the host its owner.
    OwnFirmwareSettings,
    /// The same of the HostFirmwareComponents.
    OwnFirmwareComponents,
    /// Make the host an owner of the HostUpdatePolicy.
    OwnUpdatePolicy,
    /// Create the FirmwareSchema of this name if there is none, and make the host's HostFirmwareSettings one of its owners.
    FirmwareSchema {
        /// Its name.
        name: String,
        /// What it says.
        spec: Box<FirmwareSchemaSpec>,
    },
    /// Create the HostFirmwareSettings if there is none, with nothing wished; then write this status.
    FirmwareSettings(Box<HostFirmwareSettingsStatus>),
    /// Create the HostFirmwareComponents if there is none, with nothing wished; then write this status.
    FirmwareComponents(Box<HostFirmwareComponentsStatus>),
    /// Create the PreprovisioningImage with the host's labels and a finalizer, or bring its spec to this.
    BootImage(Box<PreprovisioningImageSpec>),
    /// Put the finalizer [`api::metal3::finalizer::DATA_IMAGE`] on the DataImage, and the host as its owner.
    HoldDataImage,
    /// Write the DataImage's status.
    DataImage(Box<DataImageStatus>),
    /// Remove the finalizer from the DataImage.
    ReleaseDataImage,
    /// Remove the finalizer [`api::metal3::finalizer::BOOT_IMAGE`] from the PreprovisioningImage.
    ReleaseBootImage,
}
