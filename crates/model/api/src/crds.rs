//! The custom resource definitions that a server of Metamorph's needs, as YAML documents.

use kube::CustomResourceExt;
use serde_json::Value;

use crate::metamorph::{HostClass, HostDiagnosis, HostDiscovery, HostOperation, MachineRecord};

/// BareMetalHost as baremetal-operator ships it.
pub const BARE_METAL_HOST: &str = include_str!("../crds/upstream/metal3.io_baremetalhosts.yaml");
/// HardwareData as baremetal-operator ships it.
pub const HARDWARE_DATA: &str = include_str!("../crds/upstream/metal3.io_hardwaredata.yaml");

/// HostFirmwareSettings as baremetal-operator ships it.
pub const HOST_FIRMWARE_SETTINGS: &str = include_str!("../crds/upstream/metal3.io_hostfirmwaresettings.yaml");
/// FirmwareSchema as baremetal-operator ships it.
pub const FIRMWARE_SCHEMA: &str = include_str!("../crds/upstream/metal3.io_firmwareschemas.yaml");
/// HostFirmwareComponents as baremetal-operator ships it.
pub const HOST_FIRMWARE_COMPONENTS: &str = include_str!("../crds/upstream/metal3.io_hostfirmwarecomponents.yaml");
/// HostUpdatePolicy as baremetal-operator ships it.
pub const HOST_UPDATE_POLICY: &str = include_str!("../crds/upstream/metal3.io_hostupdatepolicies.yaml");
/// PreprovisioningImage as baremetal-operator ships it.
pub const PREPROVISIONING_IMAGE: &str = include_str!("../crds/upstream/metal3.io_preprovisioningimages.yaml");
/// DataImage as baremetal-operator ships it.
pub const DATA_IMAGE: &str = include_str!("../crds/upstream/metal3.io_dataimages.yaml");
/// BMCEventSubscription as baremetal-operator ships it.
pub const BMC_EVENT_SUBSCRIPTION: &str = include_str!("../crds/upstream/metal3.io_bmceventsubscriptions.yaml");

/// HostClaim as baremetal-operator ships it.
pub const HOST_CLAIM: &str = include_str!("../crds/upstream/metal3.io_hostclaims.yaml");
/// HostDeployPolicy as baremetal-operator ships it.
pub const HOST_DEPLOY_POLICY: &str = include_str!("../crds/upstream/metal3.io_hostdeploypolicies.yaml");
/// BareMetalSwitch as baremetal-operator ships it.
pub const BARE_METAL_SWITCH: &str = include_str!("../crds/upstream/metal3.io_baremetalswitches.yaml");
/// HostNetworkAttachment as baremetal-operator ships it.
pub const HOST_NETWORK_ATTACHMENT: &str = include_str!("../crds/upstream/metal3.io_hostnetworkattachments.yaml");

/// HardwareClassification as hardware-classification-controller ships it.
pub const HARDWARE_CLASSIFICATION: &str = include_str!("../crds/upstream/metal3.io_hardwareclassifications.yaml");

/// What no update may do to a BareMetalHost: a ValidatingAdmissionPolicy and its binding.
pub const POLICIES: &str = include_str!("../policies/baremetalhost.yaml");

/// All definitions, in the order in which they are installed. Metal³'s are upstream's text, ours is generated.
///
/// # Errors
/// When the generated definition cannot be written as JSON (a mistake in the types).
pub fn all() -> Result<Vec<String>, serde_json::Error> {
    let upstream =
        [BARE_METAL_HOST, HARDWARE_DATA, HOST_CLAIM, HOST_DEPLOY_POLICY, BARE_METAL_SWITCH, HOST_NETWORK_ATTACHMENT];
    let mut all: Vec<String> = upstream.map(str::to_owned).into();
    let own =
        [HostOperation::crd(), MachineRecord::crd(), HostDiagnosis::crd(), HostClass::crd(), HostDiscovery::crd()];
    for definition in own {
        let mut definition = serde_json::to_value(definition)?;
        kubernetes_formats(&mut definition);
        all.push(serde_json::to_string_pretty(&definition)?);
    }
    let firmware = [HOST_FIRMWARE_SETTINGS, FIRMWARE_SCHEMA, HOST_FIRMWARE_COMPONENTS, HOST_UPDATE_POLICY];
    all.extend(firmware.map(ToOwned::to_owned));
    // Nobody here makes PreprovisioningImages; upstream's operator looks for one before it lets a host go, and works on this API, too.
    all.extend([DATA_IMAGE, BMC_EVENT_SUBSCRIPTION, PREPROVISIONING_IMAGE].map(ToOwned::to_owned));
    all.push(HARDWARE_CLASSIFICATION.to_owned());
    Ok(all)
}

/// Kubernetes knows no unsigned formats (apiextensions `SupportedFormats`): they become `int64`, whose bounds are kept beside.
fn kubernetes_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(format) = fields.get_mut("format").filter(|f| f.as_str().is_some_and(|f| f.starts_with("uint")))
            {
                *format = Value::from("int64");
            }
            fields.values_mut().for_each(kubernetes_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(kubernetes_formats),
        _ => {}
    }
}
