//! BareMetalHost: the machine. Type, annotations, labels, finalizers and the deprecated profiles.

use std::borrow::Cow;

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
    /// Let go of the host without deprovisioning it.
    pub const DETACHED: &str = "baremetalhost.metal3.io/detached";
    /// Status to restore, as JSON.
    pub const STATUS: &str = "baremetalhost.metal3.io/status";
    /// One reboot; with `/<key>` the host stays off until the key is removed.
    pub const REBOOT: &str = "reboot.metal3.io";
    /// `disabled`, or empty to ask for another inspection.
    pub const INSPECT: &str = "inspect.metal3.io";
    /// Hardware details from elsewhere, as JSON.
    pub const HARDWARE_DETAILS: &str = "inspect.metal3.io/hardwaredetails";
    /// Provisioner of this host (ours).
    pub const PROVISIONER: &str = "metamorph.metal3.io/provisioner";
    /// Consent to another machine in this host's place (ours): the fingerprint that the error message shows. One-shot: removed when used.
    pub const ACCEPT_MACHINE: &str = "metamorph.metal3.io/accept-machine";
    /// Wish to have the machine looked at for what is wrong with it (ours). One-shot: removed when there is a finding.
    pub const DIAGNOSE: &str = "metamorph.metal3.io/diagnose";
    /// Consent to overwrite a disk of the owner that the value names (ours). One-shot: removed when used.
    pub const OVERWRITE_OWNER: &str = "metamorph.metal3.io/overwrite-owner";
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
}

/// Labels.
pub mod label {
    /// Put on every Secret used, value [`ENVIRONMENT_VALUE`].
    pub const ENVIRONMENT: &str = "environment.metal3.io";
    /// Value of [`ENVIRONMENT`].
    pub const ENVIRONMENT_VALUE: &str = "baremetal";
    /// Host that a HostOperation works on (ours).
    pub const HOST: &str = "metamorph.metal3.io/host";
}

/// Root device hints that a deprecated hardware profile stands for (baremetal-operator `pkg/hardware/profile.go`).
///
/// `None` for a profile nobody knows. The profile `unknown`, which every host without one gets, gives no hint here: naming
/// `/dev/sda`, as upstream does, breaks hosts that have only NVMe disks, and the smallest sound disk is chosen instead.
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

    /// Whether deletion has been asked for.
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
