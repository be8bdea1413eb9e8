//! BareMetalHost: the machine. Type, annotations, labels, finalizers and the deprecated profiles.

use inventory::RootDeviceHints;

pub use super::host_spec::BareMetalHost;

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
    /// Consent to overwrite a disk of the owner that the value names (ours). One-shot: removed when used.
    pub const OVERWRITE_OWNER: &str = "metamorph.metal3.io/overwrite-owner";
}

/// Finalizers.
pub mod finalizer {
    /// On the host.
    pub const HOST: &str = "baremetalhost.metal3.io";
    /// On Secrets that a host uses.
    pub const SECRET: &str = "baremetalhost.metal3.io/secret";
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
