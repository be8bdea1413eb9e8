//! What upstream admits and the provisioner of a host cannot do: said before anybody waits for it.
//!
//! Admission warns, registration ends in an error of the class that the work would have failed with, and so does the next work if the
//! wish comes later. A host that somebody else provisions is only watched: nothing of this is asked of it.

use api::metal3::{BareMetalHost, BootFormat, BootMode, DiskFormat, ErrorType, InspectionMode};

use serde::{Deserialize, Serialize};

use crate::validate::Violation;

/// What a provisioner serves for a host beside the basics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Served {
    /// Boots live ISOs (`spec.image.format`).
    pub live_iso: bool,
    /// Makes RAID volumes (`spec.raid`).
    pub raid: bool,
    /// Reads and sets settings of the firmware (HostFirmwareSettings).
    pub firmware_settings: bool,
    /// Reads versions of the firmware, and updates it (HostFirmwareComponents).
    pub firmware_updates: bool,
    /// Does both to a provisioned host that is rebooted, where its HostUpdatePolicy allows it.
    pub service: bool,
    /// Inspects without booting the machine (`spec.inspectionMode`).
    pub fast_inspection: bool,
    /// Has custom deploy methods (`spec.customDeploy`).
    pub custom_deploy: bool,
    /// Puts media in beside the running system (DataImage).
    pub data_images: bool,
    /// Has BMCs send their events (BMCEventSubscription).
    pub events: bool,
    /// Says how the machine is.
    pub health: bool,
    /// Finds out why a machine does not do what it should (annotation `metamorph.metal3.io/diagnose`).
    pub diagnose: bool,
    /// Forms of an image that it works on machines with and that others build (PreprovisioningImage); empty if it brings its own.
    pub boot_images: Vec<BootFormat>,
    /// Boots by BIOS (`spec.bootMode`).
    pub legacy_boot: bool,
    /// Holds each machine against what it has shown before, and refuses another.
    pub proves_identity: bool,
    /// Marks the disks that it has written, and refuses those with another's mark.
    pub marks_disks: bool,
    /// Architectures whose machines it can boot, by Go's or the kernel's name; empty for any.
    pub architectures: Vec<String>,
}

impl Served {
    /// Whether there is anything that a host can be prepared with.
    #[must_use]
    pub const fn prepares(&self) -> bool {
        self.raid || self.firmware_settings || self.firmware_updates
    }
}

/// What this host wishes and does not get.
pub(crate) fn unserved(host: &BareMetalHost, served: &Served) -> Vec<Violation> {
    let spec = &host.spec;
    let mut found = Vec::new();
    if spec.externally_provisioned == Some(true) {
        return found;
    }
    let mut add = |error_type, message: String| {
        found.push(Violation { error_type: Some(error_type), message, denied: false });
    };
    if spec.boot_mode == Some(BootMode::Legacy) && !served.legacy_boot {
        let what = "spec.bootMode is legacy, and the provisioner of this host boots by UEFI only — set it to UEFI or UEFISecureBoot";
        add(ErrorType::Registration, what.to_owned());
    }
    if let Some(wished) = spec.architecture.as_deref().filter(|wished| !wished.is_empty())
        && !served.architectures.is_empty()
        && !served.architectures.iter().any(|known| same_architecture(known, wished))
    {
        let known = served.architectures.join(", ");
        add(
            ErrorType::Registration,
            format!(
                "spec.architecture is {wished}, and the provisioner of this host boots {known} only — correct it, or remove it"
            ),
        );
    }
    if spec.inspection_mode == Some(InspectionMode::Fast) && !served.fast_inspection {
        let what = "spec.inspectionMode is fast, and the provisioner of this host inspects with its agent only — set it to agent or disabled";
        add(ErrorType::Inspection, what.to_owned());
    }
    if wants_raid(host) && !served.raid {
        let what = "spec.raid asks for RAID volumes, which the provisioner of this host cannot make — remove spec.raid, and make the \
                    volumes with the controller's own tools if they are needed";
        add(ErrorType::Preparation, what.to_owned());
    }
    let image = spec.image.as_ref().filter(|image| !image.url.is_empty());
    if image.is_some_and(|image| image.format == Some(DiskFormat::LiveIso)) && !served.live_iso {
        let what = "spec.image.format is live-iso, and the provisioner of this host writes images to disks only — give a disk image";
        add(ErrorType::Provisioning, what.to_owned());
    }
    let method = crate::wishes::method(host);
    if !method.is_empty() && !served.custom_deploy {
        add(
            ErrorType::Provisioning,
            format!(
                "spec.customDeploy asks for method {method}, which the provisioner of this host does not have — remove it"
            ),
        );
    }
    found
}

/// The first of them that is of one of these classes.
pub(crate) fn first(host: &BareMetalHost, served: &Served, kinds: &[ErrorType]) -> Option<Violation> {
    unserved(host, served).into_iter().find(|v| v.error_type.is_some_and(|kind| kinds.contains(&kind)))
}

fn wants_raid(host: &BareMetalHost) -> bool {
    let any = |count: Option<usize>| count.is_some_and(|n| n > 0);
    host.spec.raid.as_ref().is_some_and(|raid| {
        any(raid.hardware_raid_volumes.as_ref().map(Vec::len)) || any(raid.software_raid_volumes.as_ref().map(Vec::len))
    })
}

/// Whether two names are of one architecture: the kernel's (`x86_64`, `aarch64`) and Go's (`amd64`, `arm64`) are both in use.
pub(crate) fn same_architecture(one: &str, other: &str) -> bool {
    fn kernels(name: &str) -> String {
        match name.to_ascii_lowercase().as_str() {
            "amd64" => "x86_64".to_owned(),
            "arm64" => "aarch64".to_owned(),
            other => other.to_owned(),
        }
    }
    kernels(one) == kernels(other)
}
