//! `metal3.io/v1alpha1`.

mod bare_metal_host;
mod bare_metal_switch;
mod bmc_event_subscription;
mod bmc_scheme;
mod firmware;
mod firmware_schema;
mod go_url;
mod hardware_classification;
mod hardware_data;
mod host_claim;
mod host_deploy_policy;
mod host_images;
mod host_network_attachment;
mod host_spec;
mod host_status;
mod kind;
mod provisioning_state;

pub use bare_metal_host::{BareMetalHost, annotation, detection_fault, finalizer, label, profile_root_hints};
pub use bare_metal_switch::{BareMetalSwitch, BareMetalSwitchSpec, BareMetalSwitchStatus};
pub use bmc_event_subscription::{BMCEventSubscription, BmcEventSubscriptionSpec, BmcEventSubscriptionStatus};
pub use bmc_scheme::{BmcDriver, bmc_driver, bmc_drivers};
pub use firmware::{
    FirmwareComponent, FirmwareUpdate, HostFirmwareComponents, HostFirmwareComponentsSpec,
    HostFirmwareComponentsStatus, HostFirmwareSettings, HostFirmwareSettingsSpec, HostFirmwareSettingsStatus,
    HostUpdatePolicy, HostUpdatePolicySpec, HostUpdatePolicyStatus, SchemaReference, UpdatePolicy,
};
pub use firmware_schema::{FirmwareSchema, FirmwareSchemaSpec, SettingSchema};
pub use go_url::{request_has_path, request_scheme};
pub use hardware_classification::{
    BiosRule, CpuRule, DiskRule, DiskSelector, FirmwareRule, HardwareCharacteristics, HardwareClassification,
    HardwareClassificationSpec, HardwareClassificationStatus, NicRule, NicSelector, RamRule, SystemVendorRule,
    classification_error, match_status,
};
pub use hardware_data::{DEVICES, HardwareData, HardwareDataSpec, LLDP, NOT_LISTED, REPORTED_BY};
pub use host_claim::{
    BoundObject, HostClaim, HostClaimSpec, HostClaimStatus, HostSelector, HostSelectorRequirement, condition,
};
pub use host_deploy_policy::{
    HostClaimNamespaces, HostDeployPolicy, HostDeployPolicySpec, HostDeployPolicyStatus, NameValuePair,
};
pub use host_images::{
    AttachedImage, BootFormat, DataImage, DataImageError, DataImageSpec, DataImageStatus, PreprovisioningImage,
    PreprovisioningImageSpec, PreprovisioningImageStatus, SecretStatus,
};
pub use host_network_attachment::{
    HostNetworkAttachment, HostNetworkAttachmentSpec, HostNetworkAttachmentStatus, SwitchPortMode,
};
pub use host_spec::{
    BareMetalHostSpec, Bmc, BootMode, CleaningMode, CustomDeploy, FirmwareConfig, HardwareRaidVolume,
    HostNetworkAttachmentRef, Image, InspectionMode, NetworkInterface, ObjectReference, Raid, SecretReference,
    SoftwareRaidVolume, SwitchPort, Taint,
};
pub use host_status::{
    BareMetalHostStatus, CredentialsStatus, ErrorType, OperationHistory, OperationMetric, OperationalStatus,
    ProvisionStatus,
};
pub use provisioning_state::ProvisioningState;
pub use terms::{ChecksumType, DiskFormat};
