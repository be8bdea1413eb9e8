//! The custom resource definitions that a server of Metamorph's needs, as YAML documents.

use kube::CustomResourceExt;
use serde_json::Value;

use crate::metamorph::{HostOperation, MachineRecord};

/// BareMetalHost as baremetal-operator ships it.
pub const BARE_METAL_HOST: &str = include_str!("../crds/upstream/metal3.io_baremetalhosts.yaml");
/// HardwareData as baremetal-operator ships it.
pub const HARDWARE_DATA: &str = include_str!("../crds/upstream/metal3.io_hardwaredata.yaml");

/// HostFirmwareSettings as baremetal-operator ships it.
pub const HOST_FIRMWARE_SETTINGS: &str = include_str!("../crds/upstream/metal3.io_hostfirmwaresettings.yaml");
/// HostFirmwareComponents as baremetal-operator ships it.
pub const HOST_FIRMWARE_COMPONENTS: &str = include_str!("../crds/upstream/metal3.io_hostfirmwarecomponents.yaml");
/// HostUpdatePolicy as baremetal-operator ships it.
pub const HOST_UPDATE_POLICY: &str = include_str!("../crds/upstream/metal3.io_hostupdatepolicies.yaml");
/// PreprovisioningImage as baremetal-operator ships it.
pub const PREPROVISIONING_IMAGE: &str = include_str!("../crds/upstream/metal3.io_preprovisioningimages.yaml");
/// DataImage as baremetal-operator ships it.
pub const DATA_IMAGE: &str = include_str!("../crds/upstream/metal3.io_dataimages.yaml");

/// What no update may do to a BareMetalHost: a ValidatingAdmissionPolicy and its binding.
pub const POLICIES: &str = include_str!("../policies/baremetalhost.yaml");

/// All definitions, in the order in which they are installed. Metal³'s are upstream's text, ours is generated.
///
/// # Errors
/// When the generated definition cannot be written as JSON (a mistake in the types).
pub fn all() -> Result<Vec<String>, serde_json::Error> {
    let mut all = vec![BARE_METAL_HOST.to_owned(), HARDWARE_DATA.to_owned()];
    for own in [HostOperation::crd(), MachineRecord::crd()] {
        let mut own = serde_json::to_value(own)?;
        kubernetes_formats(&mut own);
        all.push(serde_json::to_string_pretty(&own)?);
    }
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
