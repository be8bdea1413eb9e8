//! HardwareData: what inspection found, one object a host, same name.

use std::sync::Arc;

use inventory::HardwareDetails;
use serde::{Deserialize, Serialize};

/// Annotation of a HardwareData whose facts a BMC has listed: the parts of which it may not have listed all, in words with commas.
pub const NOT_LISTED: &str = "metamorph.metal3.io/not-listed";

/// Annotation of a HardwareData: the HostDiscovery whose medium a machine has booted that told these facts (ours). They are that machine's word: no
/// provisioner goes by them, and the inspection that follows replaces them.
pub const REPORTED_BY: &str = "metamorph.metal3.io/reported-by";
/// Annotation of a HardwareData: what has become of listening for LLDP on each port ([`inventory::links::words`]). Without it nobody has listened.
pub const LLDP: &str = "metamorph.metal3.io/lldp";

/// Annotation of a HardwareData: PCI devices, TPM, NUMA nodes, and how the machine was started ([`inventory::Devices`], JSON). Without it nobody has looked for them.
pub const DEVICES: &str = "metamorph.metal3.io/devices";

/// `spec` of a HardwareData.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "metal3.io",
    version = "v1alpha1",
    kind = "HardwareData",
    plural = "hardwaredata",
    namespaced,
    derive = "PartialEq",
    schema = "disabled"
)]
pub struct HardwareDataSpec {
    /// The facts. Copies share them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Arc<HardwareDetails>>,
}
