//! What upstream admits and a host's provisioner cannot do, reported before the work begins.
//!
//! Admission warns; registration ends in an error of the class that the work would have failed with, and so does the next work if the
//! wish comes later. None of this applies to an externally provisioned host, which is only watched.

use api::metal3::{BareMetalHost, BootFormat, BootMode, DiskFormat, ErrorType, Image, InspectionMode, request_scheme};

use serde::{Deserialize, Serialize};
use terms::same_architecture;

use crate::host_rules::Violation;

/// What a provisioner serves for a host beside the basics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Served {
    /// Boots live ISOs (`spec.image.format`).
    pub live_iso: bool,
    /// Gives a live ISO what a config drive has (`spec.userData`, `spec.networkData`, `spec.metaData`).
    pub live_iso_config: bool,
    /// Makes RAID volumes by a controller (`spec.raid.hardwareRAIDVolumes`).
    pub hardware_raid: bool,
    /// Makes RAID volumes by software (`spec.raid.softwareRAIDVolumes`).
    pub software_raid: bool,
    /// Reads and sets settings of the firmware (HostFirmwareSettings).
    pub firmware_settings: bool,
    /// Reads versions of the firmware (HostFirmwareComponents).
    pub firmware_components: bool,
    /// Updates it, which implies reading its versions.
    pub firmware_updates: bool,
    /// Does both to a provisioned host that is rebooted, where its HostUpdatePolicy allows it.
    pub service: bool,
    /// Inspects without booting the machine (`spec.inspectionMode`).
    pub fast_inspection: bool,
    /// Erases disks (HostOperation of the type Erase).
    pub erase: bool,
    /// Lists and runs steps of its agent's hardware managers (HostOperation of the type Steps).
    pub steps: bool,
    /// Has custom deploy methods (`spec.customDeploy`).
    pub custom_deploy: bool,
    /// Puts media in beside the running system (DataImage).
    pub data_images: bool,
    /// Has BMCs send their events (BMCEventSubscription).
    pub events: bool,
    /// Reports the machine's health.
    pub health: bool,
    /// Finds out why a machine does not do what it should (annotation `metamorph.metal3.io/diagnose`).
    pub diagnose: bool,
    /// Has a BMC read a tiny medium, to see whether it reaches the server (HostOperation of the type Diagnose).
    pub test_medium: bool,
    /// Reads what BMC and agent have written down (HostOperation of the type CollectLogs).
    pub logs: bool,
    /// Switches the light by which a person finds the server at its rack (HostOperation of the type Locate).
    pub locate: bool,
    /// Formats of the image that it boots on machines and that others build (PreprovisioningImage); empty if it brings its own.
    pub boot_images: Vec<BootFormat>,
    /// Boots by BIOS (`spec.bootMode`).
    pub legacy_boot: bool,
    /// Boots by UEFI with Secure Boot, and switches it.
    pub secure_boot: bool,
    /// Needs `spec.bootMACAddress`, to identify the machine or to boot it over the network.
    pub needs_boot_mac: bool,
    /// Forms of an image that it writes to a disk (`spec.image.format`); empty for any.
    pub image_formats: Vec<DiskFormat>,
    /// Schemes of the URLs that it reads images from (`spec.image.url`), in lower case; empty for any.
    pub image_schemes: Vec<String>,
    /// Compares each machine with what it has shown before, and refuses another.
    pub proves_identity: bool,
    /// Marks the disks that it has written, and refuses those with another's mark.
    pub marks_disks: bool,
    /// Architectures whose machines it can boot, by Go's or the kernel's name; empty for any.
    pub architectures: Vec<String>,
}

impl Served {
    /// All that a host can ask for: of a provisioner of which nothing is known, nothing is said beforehand.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            live_iso: true,
            live_iso_config: true,
            hardware_raid: true,
            software_raid: true,
            firmware_settings: true,
            firmware_components: true,
            firmware_updates: true,
            service: true,
            fast_inspection: true,
            erase: true,
            steps: true,
            custom_deploy: true,
            data_images: true,
            events: true,
            legacy_boot: true,
            secure_boot: true,
            ..Self::default()
        }
    }

    /// Whether versions of the firmware are shown.
    #[must_use]
    pub const fn reads_components(&self) -> bool {
        self.firmware_components || self.firmware_updates
    }

    /// Whether there is anything that a host can be prepared with.
    #[must_use]
    pub const fn prepares(&self) -> bool {
        self.raid() || self.firmware_settings || self.firmware_updates
    }

    /// Whether it makes RAID volumes of any kind.
    #[must_use]
    pub const fn raid(&self) -> bool {
        self.hardware_raid || self.software_raid
    }
}

/// What this host asks for and its provisioner does not serve.
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
    if spec.boot_mode == Some(BootMode::UefiSecureBoot) && !served.secure_boot {
        let what =
            "spec.bootMode is UEFISecureBoot, which the provisioner of this host cannot switch on — set it to UEFI";
        add(ErrorType::Registration, what.to_owned());
    }
    if served.needs_boot_mac && spec.boot_mac_address.as_ref().is_none_or(String::is_empty) {
        let what = "spec.bootMACAddress is not set, which the provisioner of this host needs — set it to the MAC address that the machine boots from";
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
    let (hardware_raid, software_raid) = wanted_raid(host);
    if hardware_raid && !served.hardware_raid {
        let what = "spec.raid.hardwareRAIDVolumes asks for RAID volumes, which the provisioner of this host cannot make — remove them, and make \
                    the volumes with the controller's own tools if they are needed";
        add(ErrorType::Preparation, what.to_owned());
    }
    if software_raid && !served.software_raid {
        let what = "spec.raid.softwareRAIDVolumes asks for RAID volumes, which the provisioner of this host cannot make — remove them, and give \
                    an image that makes them itself if they are needed";
        add(ErrorType::Preparation, what.to_owned());
    }
    if let Some(image) = spec.image.as_ref().filter(|image| !image.url.is_empty()) {
        for what in unserved_image(image, served) {
            add(ErrorType::Provisioning, what);
        }
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

/// What this host names and nothing reads, each a sentence.
pub(crate) fn unused(host: &BareMetalHost, served: &Served) -> Vec<String> {
    unused_by_live_iso(host, served).into_iter().chain(unused_pull_secret(host)).collect()
}

/// A pull secret is for images in registries. baremetal-operator takes no notice of another.
fn unused_pull_secret(host: &BareMetalHost) -> Option<String> {
    let image = host.spec.image.as_ref().filter(|image| !image.url.is_empty())?;
    let named = image.oci_auth_secret_name.as_ref().is_some_and(|name| !name.is_empty());
    let unused = named && request_scheme(&image.url).as_deref() != Some("oci");
    unused.then(|| {
        "spec.image.ociAuthSecretName has no effect: it is for images in registries, and spec.image.url does not begin with oci://"
            .to_owned()
    })
}

/// What this host names and a live ISO has no use for, a sentence; `None` without a live ISO that is served, or if all that is named counts.
fn unused_by_live_iso(host: &BareMetalHost, served: &Served) -> Option<String> {
    let spec = &host.spec;
    let image = spec.image.as_ref().filter(|image| image.format == Some(DiskFormat::LiveIso) && served.live_iso)?;
    if spec.externally_provisioned == Some(true) || !crate::wishes::method(host).is_empty() {
        return None;
    }
    let config = !served.live_iso_config;
    let named = [
        ("spec.image.checksum", image.checksum.as_ref().is_some_and(|checksum| !checksum.is_empty())),
        ("spec.rootDeviceHints", spec.root_device_hints.as_ref().is_some_and(|hints| *hints != Default::default())),
        ("spec.userData", config && spec.user_data.is_some()),
        ("spec.networkData", config && spec.network_data.is_some()),
        ("spec.metaData", config && spec.meta_data.is_some()),
    ];
    let named: Vec<&str> = named.into_iter().filter(|(_, is_named)| *is_named).map(|(field, _)| field).collect();
    (!named.is_empty()).then(|| {
        format!(
            "spec.image.format is live-iso, and {} has no effect on it: the BMC reads the image itself and compares no digest, it is written to no disk, and \
             has its configuration within it",
            named.join(", ")
        )
    })
}

/// The first of them that is of one of these classes.
pub(crate) fn first(host: &BareMetalHost, served: &Served, kinds: &[ErrorType]) -> Option<Violation> {
    unserved(host, served).into_iter().find(|v| v.error_type.is_some_and(|kind| kinds.contains(&kind)))
}

/// What of an image the provisioner cannot read or write.
fn unserved_image(image: &Image, served: &Served) -> Vec<String> {
    let mut found = Vec::new();
    match image.format {
        Some(DiskFormat::LiveIso) if !served.live_iso => found.push(
            "spec.image.format is live-iso, and the provisioner of this host writes images to disks only — give a disk image"
                .to_owned(),
        ),
        None | Some(DiskFormat::LiveIso) => {}
        Some(format) if served.image_formats.is_empty() || served.image_formats.contains(&format) => {}
        Some(format) => {
            let known: Vec<&str> = served.image_formats.iter().map(|known| known.as_str()).collect();
            let (format, known) = (format.as_str(), known.join(" and "));
            found.push(format!(
                "spec.image.format is {format}, and the provisioner of this host writes {known} only — give such an image"
            ));
        }
    }
    // An invalid URL is a fault of its own.
    let scheme = request_scheme(&image.url);
    if let Some(scheme) =
        scheme.filter(|scheme| !served.image_schemes.is_empty() && !served.image_schemes.contains(scheme))
    {
        let known = served.image_schemes.join(" and ");
        found.push(format!(
            "spec.image.url has the scheme {scheme}, and the provisioner of this host reads images by {known} only — serve the image there"
        ));
    }
    if image.format == Some(DiskFormat::LiveIso)
        && served.live_iso
        && !served.image_schemes.is_empty()
        && request_scheme(&image.url).as_deref() == Some("oci")
    {
        found.push(
            "spec.image.format is live-iso, which a BMC reads by http and https, and spec.image.url names a registry — serve the ISO by one of these"
                .to_owned(),
        );
    }
    found
}

/// Whether RAID volumes of a controller, and of software, are wished.
fn wanted_raid(host: &BareMetalHost) -> (bool, bool) {
    let any = |count: Option<usize>| count.is_some_and(|n| n > 0);
    host.spec.raid.as_ref().map_or((false, false), |raid| {
        let (hardware, software) = (&raid.hardware_raid_volumes, &raid.software_raid_volumes);
        (any(hardware.as_ref().map(Vec::len)), any(software.as_ref().map(Vec::len)))
    })
}
