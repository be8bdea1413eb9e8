//! BareMetalHost: the machine. Type, annotations, labels, finalizers and the deprecated profiles.

use std::borrow::Cow;
use std::collections::BTreeMap;

use inventory::RootDeviceHints;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::NamespaceResourceScope;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::{BareMetalHostSpec, BareMetalHostStatus};

/// A machine: what a person wants of it, and how it is.
///
/// Upstream's schema does not ask for a `spec`: a host without one is known and not managed. One such object must not keep a
/// watch from being read, so that this type is not derived with one that does.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct BareMetalHost {
    /// Name, namespace and the rest that all objects have.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub spec: BareMetalHostSpec,
    /// How it is; absent until a controller has seen it.
    #[serde(default)]
    pub status: Option<BareMetalHostStatus>,
}

impl BareMetalHost {
    /// A host of this name.
    #[must_use]
    pub fn new(name: &str, spec: BareMetalHostSpec) -> Self {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { metadata, spec, status: None }
    }
}

impl Serialize for BareMetalHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use kube::Resource;
        let mut object = serializer.serialize_struct("BareMetalHost", 5)?;
        object.serialize_field("apiVersion", &Self::api_version(&()))?;
        object.serialize_field("kind", &Self::kind(&()))?;
        object.serialize_field("metadata", &self.metadata)?;
        object.serialize_field("spec", &self.spec)?;
        if let Some(status) = &self.status {
            object.serialize_field("status", status)?;
        }
        object.end()
    }
}

impl kube::Resource for BareMetalHost {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "BareMetalHost".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "metal3.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "baremetalhosts".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Annotation keys (baremetal-operator `apis/metal3.io/v1alpha1/baremetalhost_types.go`; ours in `metamorph.metal3.io`).
pub mod annotation {
    /// Any value stops all work on the host.
    pub const PAUSED: &str = "baremetalhost.metal3.io/paused";
    /// Value of [`PAUSED`] on a host whose HostClaim is paused (baremetal-operator `pkg/hostclaim`).
    pub const PAUSED_BY_CLAIM: &str = "metal3.io/hostclaim";
    /// Release the host without deprovisioning it.
    pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
    /// Status to restore, as JSON.
    pub const STATUS: &str = "baremetalhost.metal3.io/status";
    /// One reboot; with `/<key>` the host stays off until the key is removed.
    pub const REBOOT: &str = "reboot.metal3.io";
    /// `disabled`, or empty to request another inspection.
    pub const INSPECT: &str = "inspect.metal3.io";
    /// Hardware details from elsewhere, as JSON.
    pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";
    /// Provisioner of this host (ours).
    pub const PROVISIONER: &str = "metamorph.metal3.io/provisioner";
    /// Consent to another machine in this host's place (ours): the fingerprint from the error message. One-shot: removed when used.
    pub const ACCEPT_MACHINE: &str = "metamorph.metal3.io/accept-machine";
    /// Request a diagnosis of the machine (ours). One-shot: removed when there is a finding.
    pub const DIAGNOSE: &str = "metamorph.metal3.io/diagnose";
    /// On a host in error: what its HostDiagnosis says, a summary as JSON (ours). Removed when the host has recovered.
    pub const DIAGNOSIS: &str = "metamorph.metal3.io/diagnosis";
    /// On a host: uid and version of the HostClaim whose reboot annotation was passed on to it (ours). On the claim: the same, for the last one that
    /// was passed on and removed from the claim.
    pub const CLAIM_REBOOT: &str = "metamorph.metal3.io/claim-reboot";
    /// On a host: the version at which a HostClaim has given up its intent to claim it (ours). Other controllers can ignore it.
    pub const NOT_CLAIMED: &str = "metamorph.metal3.io/not-claimed";
    /// Key prefix of the reboot annotations that a host got from its HostClaim (ours).
    pub const CLAIM_REBOOT_PREFIX: &str = "hostclaim.";
    /// On a copy of a Secret that was made for a HostClaim: the Secret it was made from, `namespace/name` (ours).
    pub const COPIED_FROM: &str = "metamorph.metal3.io/copied-from";
    /// On such a copy: uid and version of that Secret, with a slash between them (ours).
    pub const COPIED_VERSION: &str = "metamorph.metal3.io/copied-version";
    /// Consent to overwrite a disk of the owner that the value names (ours). One-shot: removed when used.
    pub const OVERWRITE_OWNER: &str = "metamorph.metal3.io/overwrite-owner";
    /// On a HardwareClassification: hosts that do not match it, and why, as JSON of bounded size (ours).
    pub const UNMATCHED: &str = "metamorph.metal3.io/unmatched";
    /// On a host: the labels that HostClasses have given it, by the name of the class, as JSON (ours). A label with another value than it says is somebody
    /// else's.
    pub const HOST_CLASSES: &str = "metamorph.metal3.io/host-classes";
    /// On a host: the HostOperation that asks for work now, `name/uid`, and what the host has answered to it, `name/uid/answer` (ours). Removed when that
    /// has ended.
    pub const REQUEST: &str = "metamorph.metal3.io/request";
    /// On a host: the HostOperation of the type Rebuild, `name/uid`, for which what is provisioned is removed and provisioned anew (ours). It counts for as
    /// long as that HostOperation runs. One-shot: removed when used.
    pub const REBUILD: &str = "metamorph.metal3.io/rebuild";
    /// On a host: the HostOperation of the type Erase, `name/uid`, for which its disks are erased (ours). It counts for as long as that HostOperation
    /// runs. One-shot: removed when that has ended.
    pub const ERASE: &str = "metamorph.metal3.io/erase";
    /// On a host: the HostOperation of the type Steps, `name/uid`, for which steps of hardware managers are run on its machine (ours). It counts for as
    /// long as that HostOperation runs. One-shot: removed when that has ended.
    pub const STEPS: &str = "metamorph.metal3.io/steps";
    /// On a host that was discovered: the HostDiscovery of its namespace by which it was made (ours).
    pub const DISCOVERED_BY: &str = "metamorph.metal3.io/discovered-by";
    /// On such a host: the `spec.bmc.address` that it gets when it is approved (ours).
    pub const DISCOVERED_ADDRESS: &str = "metamorph.metal3.io/discovered-address";
    /// On such a host: the UUID that its BMC's service root has shown (ours).
    pub const DISCOVERED_UUID: &str = "metamorph.metal3.io/discovered-uuid";
    /// On such a host: SHA-256 of the key that its BMC's certificate has proved (ours).
    pub const DISCOVERED_KEY: &str = "metamorph.metal3.io/discovered-key";
    /// On such a host: `true` has it managed, `false` keeps a HostDiscovery that approves by itself from doing so (ours). One-shot: removed when used.
    pub const APPROVE: &str = "metamorph.metal3.io/approve";
    /// On a namespace: its machines are left untouched, and none is looked for (ours). Its value says why.
    pub const FREEZE: &str = "metamorph.metal3.io/freeze";
    /// On a HostDiscovery: `all`, or UUIDs and addresses of machines whose hosts were deleted, of which hosts are made again (ours). One-shot: removed by
    /// the scan that follows.
    pub const REDISCOVER: &str = "metamorph.metal3.io/rediscover";
    /// On a HostOperation that is a request: it has been taken (ours). A copy of it that has lost its status is not taken again.
    pub const TAKEN: &str = "metamorph.metal3.io/taken";
    /// On a HostOperation: the identity of the piece of work that it describes, independent of its name.
    pub const OPERATION: &str = "metamorph.metal3.io/operation";
}

/// Finalizers.
pub mod finalizer {
    /// On the host.
    pub const HOST: &str = "baremetalhost.metal3.io";
    /// On Secrets that a host uses.
    pub const SECRET: &str = "baremetalhost.metal3.io/secret";
    /// On a host's DataImage.
    pub const DATA_IMAGE: &str = "dataimage.metal3.io";
    /// On a host's PreprovisioningImage.
    pub const BOOT_IMAGE: &str = "baremetalhost.metal3.io/preprovisioningImage";
    /// On a host's HardwareData.
    pub const HARDWARE_DATA: &str = "baremetalhost.metal3.io/hardwareData";
    /// On a BMCEventSubscription.
    pub const EVENT_SUBSCRIPTION: &str = "bmceventsubscription.metal3.io";
    /// On a HostClaim.
    pub const HOST_CLAIM: &str = "metal3.io/hostclaim";
    /// On a HardwareClassification (hardware-classification-controller `api/v1alpha1/hardwareclassification_types.go`).
    pub const CLASSIFICATION: &str = "hardwareclassification.metal3.io";
}

/// Labels.
pub mod label {
    /// On a host: the flavor that its HostClass gives it (ours).
    pub const FLAVOR: &str = "metamorph.metal3.io/flavor";
    /// On a host: the role that its HostClass suggests (ours).
    pub const ROLE: &str = "metamorph.metal3.io/role";
    /// Put on every Secret used, value [`ENVIRONMENT_VALUE`].
    pub const ENVIRONMENT: &str = "environment.metal3.io";
    /// Value of [`ENVIRONMENT`].
    pub const ENVIRONMENT_VALUE: &str = "baremetal";
    /// On a host: its failure domain, as Cluster API names it. A HostClaim may prefer one.
    pub const FAILURE_DOMAIN: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
    /// On a copy of a Secret in a host's namespace: uid of the HostClaim that it was made for (ours).
    pub const CLAIM: &str = "metamorph.metal3.io/host-claim";
    /// Host that a HostOperation works on (ours).
    pub const HOST: &str = "metamorph.metal3.io/host";
    /// On a host that was discovered: `true` (ours).
    pub const DISCOVERED: &str = "metamorph.metal3.io/discovered";
    /// On a host whose errors are diagnosed: the type of its error, `RegistrationError` for instance (ours). Removed when it has recovered.
    pub const ERROR_TYPE: &str = "metamorph.metal3.io/error-type";
    /// On a host, a HardwareClassification or a namespace: `true` or `false`, whether errors of hosts are diagnosed (Metal³'s word for it).
    pub const ERROR_DETECT: &str = "error-detect";
    /// On a host, before the name of each HardwareClassification that it matches (hardware-classification-controller
    /// `controllers/baremetalhost_controller.go`).
    pub const CLASS_PREFIX: &str = "hardwareclassification.metal3.io/";
    /// Value of that label where the HardwareClassification names no other.
    pub const CLASS_VALUE: &str = "matches";
    /// On a host in error, in a namespace with HardwareClassifications: the type of its error, with dashes (hardware-classification-controller
    /// `controllers/hardwareclassification_controller.go`).
    pub const CLASS_ERROR: &str = "hardwareclassification-error";
}

/// What is wrong with the label [`label::ERROR_DETECT`] among these of a host, a namespace or a class: another word than the two that are known. A sentence.
#[must_use]
pub fn detection_fault(labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    let (key, word) = (label::ERROR_DETECT, labels?.get(label::ERROR_DETECT)?);
    // No label's value has more; what is reviewed may not have been checked yet.
    let word: String = word.chars().take(63).collect();
    let known = matches!(word.as_str(), "true" | "false");
    (!known).then(|| format!("label {key}: {word:?} counts as not set — write \"true\" or \"false\", or remove it"))
}

/// Root device hints of a deprecated hardware profile (baremetal-operator `pkg/hardware/profile.go`).
///
/// `None` for an unknown profile. The profile `unknown`, which every host without one gets, gives no hint here: upstream's `/dev/sda` breaks hosts
/// that have only NVMe disks, and the smallest suitable disk is chosen instead.
#[must_use]
pub fn profile_root_hints(profile: &str) -> Option<RootDeviceHints> {
    let device = |name: &str| RootDeviceHints { device_name: Some(name.to_owned()), ..RootDeviceHints::default() };
    let hctl = |address: &str| RootDeviceHints { hctl: Some(address.to_owned()), ..RootDeviceHints::default() };
    match profile {
        "" | "unknown" | "empty" => Some(RootDeviceHints::default()),
        "libvirt" => Some(device("/dev/vda")),
        "openstack" => Some(device("/dev/vdb")),
        "dell" => Some(hctl("0:0:0:0")),
        "dell-raid" => Some(hctl("0:2:0:0")),
        _ => None,
    }
}

impl BareMetalHost {
    /// The state, [`super::ProvisioningState::None`] without a status.
    #[must_use]
    pub fn state(&self) -> super::ProvisioningState {
        self.status.as_ref().map(|s| s.provisioning.state).unwrap_or_default()
    }

    /// Value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the object is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it carries the finalizer.
    #[must_use]
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.metadata.finalizers.as_ref().is_some_and(|f| f.iter().any(|x| x == name))
    }
}
