//! Rules that an object's schema cannot express (baremetal-operator `internal/webhooks/metal3.io/v1alpha1`).
//!
//! The controller turns a violation into an error of the class it names; admission refuses the object, or warns of what upstream
//! lets in.

use std::collections::BTreeSet;

use addresses::text_without_secrets;
use api::metal3::{
    BareMetalHost, BareMetalHostStatus, ChecksumType, DiskFormat, ErrorType, Image, InspectionMode, Raid, annotation,
    profile_root_hints, request_scheme,
};
use inventory::HardwareDetails;
use url::Url;

use crate::annotations;

/// A rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Class of the error that the controller makes of it; `None` if the controller can do without the value and only admission
    /// cares.
    pub error_type: Option<ErrorType>,
    /// The field, what was found, what is allowed.
    pub message: String,
    /// Whether upstream's webhook refuses it, too.
    pub denied: bool,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Checks a host against all rules.
///
/// # Errors
/// Every violation, in the order of the spec's fields, annotations last.
pub fn validate(host: &BareMetalHost) -> Result<(), Vec<Violation>> {
    let mut found = Findings(Vec::new());
    bmc(host, &mut found);
    image(host, &mut found);
    references(host, &mut found);
    disks(host, &mut found);
    interfaces(host, &mut found);
    power(host, &mut found);
    annotations_of(host, &mut found);
    if found.0.is_empty() { Ok(()) } else { Err(found.0) }
}

/// The first violation of one of these classes.
pub(crate) fn first(host: &BareMetalHost, kinds: &[ErrorType]) -> Option<Violation> {
    let violations = validate(host).err()?;
    violations.into_iter().find(|v| v.error_type.is_some_and(|kind| kinds.contains(&kind)))
}

/// The first fault of the image of a host that is provisioned here, of those that upstream's webhook admits and that can be known before anything is
/// done to its machine. What the webhook refuses is left out: it occurs only without a webhook, and fails the next work.
pub(crate) fn of_image(host: &BareMetalHost) -> Option<Violation> {
    if host.spec.externally_provisioned == Some(true) {
        return None;
    }
    let mut found = Findings(Vec::new());
    image(host, &mut found);
    found.0.into_iter().find(|violation| !violation.denied)
}

struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, error_type: ErrorType, message: impl Into<String>) {
        self.0.push(Violation { error_type: Some(error_type), message: message.into(), denied: true });
    }

    /// What upstream's webhook lets in.
    fn ours(&mut self, error_type: ErrorType, message: impl Into<String>) {
        self.0.push(Violation { error_type: Some(error_type), message: message.into(), denied: false });
    }

    fn admission(&mut self, message: impl Into<String>) {
        self.0.push(Violation { error_type: None, message: message.into(), denied: true });
    }
}

fn bmc(host: &BareMetalHost, found: &mut Findings) {
    let no_mac = host.spec.boot_mac_address.as_ref().is_none_or(String::is_empty);
    let has_address = host.spec.bmc.as_ref().is_some_and(|bmc| !bmc.address.is_empty());
    if has_address && no_mac && annotations::inspection_disabled(host) {
        found.add(
            ErrorType::Registration,
            "spec.bootMACAddress is not set, which a host that is not inspected needs — set it, or let the host be inspected",
        );
    }
}

fn image(host: &BareMetalHost, found: &mut Findings) {
    if let Some(image) = &host.spec.image {
        image_rules(image, found);
    }
}

/// What an image breaks, wherever it is asked for.
pub(crate) fn image_violations(image: &Image) -> Vec<Violation> {
    let mut found = Findings(Vec::new());
    image_rules(image, &mut found);
    found.0
}

/// An image without an address is none.
fn image_rules(image: &Image, found: &mut Findings) {
    if image.url.is_empty() {
        return;
    }
    let printable = text_without_secrets(&image.url);
    match request_scheme(&image.url) {
        Some(scheme) if scheme.is_empty() => found.add(
            ErrorType::Provisioning,
            format!("spec.image.url has no scheme: {printable}; allowed are http, https, ftp, gopher and oci"),
        ),
        Some(scheme) if !matches!(scheme.as_str(), "http" | "https" | "ftp" | "gopher" | "oci") => found.add(
            ErrorType::Provisioning,
            format!("spec.image.url has the scheme {scheme}; allowed are http, https, ftp, gopher and oci"),
        ),
        None => found.add(ErrorType::Provisioning, format!("spec.image.url is not a URL: {printable}")),
        Some(_) => {
            // What Go takes for a URL although nothing can be read there.
            if let Err(error) = Url::parse(&image.url) {
                found.ours(ErrorType::Provisioning, format!("spec.image.url is not a URL ({error}): {printable}"));
            }
        }
    }
    checksum(image, found);
}

fn checksum(image: &Image, found: &mut Findings) {
    let given = image.checksum.as_ref().is_some_and(|c| !c.is_empty());
    let oci = image.url.to_ascii_lowercase().starts_with("oci://");
    if oci && given {
        found.add(
            ErrorType::Provisioning,
            "spec.image.checksum is set for an oci image, which carries its own digest — remove it",
        );
    }
    if !oci && !given && image.format != Some(DiskFormat::LiveIso) {
        found.add(
            ErrorType::Provisioning,
            "spec.image.checksum is not set, and nothing unverified is written — set it to the image's digest, or to the URL of \
             a file with it",
        );
    }
    if !oci
        && let Some(fault) = image.checksum.as_deref().and_then(|text| no_checksum(text.trim(), image.checksum_type))
    {
        found.ours(
            ErrorType::Provisioning,
            format!("spec.image.checksum {fault} — set it to the image's digest, or to the URL of a file with it"),
        );
    }
}

/// Why a text is neither the URL of a checksum file nor a digest of the type that is declared.
fn no_checksum(text: &str, kind: Option<ChecksumType>) -> Option<String> {
    const MAX_PRINTED: usize = 140;
    if text.is_empty() {
        return None;
    }
    let printable: String = text_without_secrets(text).chars().take(MAX_PRINTED).collect();
    if text.starts_with("http://") || text.starts_with("https://") {
        return Url::parse(text).err().map(|error| format!("is not a URL ({error}): {printable}"));
    }
    let (wanted, lengths): (_, &[usize]) = match kind {
        None | Some(ChecksumType::Auto) => ("MD5 has 32, SHA-256 64, SHA-512 128", &[32, 64, 128]),
        Some(ChecksumType::Md5) => ("MD5 has 32", &[32]),
        Some(ChecksumType::Sha256) => ("SHA-256 has 64", &[64]),
        Some(ChecksumType::Sha512) => ("SHA-512 has 128", &[128]),
    };
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    (!digits || !lengths.contains(&text.len())).then(|| {
        format!(
            "is \"{printable}\", which is neither an http or https URL nor a digest in hexadecimal digits, of which {wanted}"
        )
    })
}

fn references(host: &BareMetalHost, found: &mut Findings) {
    let spec = &host.spec;
    let host_namespace = host.metadata.namespace.as_deref().unwrap_or_default();
    for (field, reference) in
        [("userData", &spec.user_data), ("networkData", &spec.network_data), ("metaData", &spec.meta_data)]
    {
        let namespace = reference.as_ref().and_then(|r| r.namespace.as_deref()).unwrap_or_default();
        if !namespace.is_empty() && namespace != host_namespace {
            found.add(
                ErrorType::Provisioning,
                format!(
                    "spec.{field}.namespace is {namespace}; it must be the host's own ({host_namespace}), or empty"
                ),
            );
        }
    }
}

fn disks(host: &BareMetalHost, found: &mut Findings) {
    let spec = &host.spec;
    if spec.firmware.is_some() {
        found.add(ErrorType::Preparation, "spec.firmware is no longer served — remove it");
    }
    if let Some(profile) = spec.hardware_profile.as_deref().filter(|p| profile_root_hints(p).is_none()) {
        found.ours(
            ErrorType::Preparation,
            format!(
                "spec.hardwareProfile {profile} is not known — use spec.rootDeviceHints to say which disk is meant"
            ),
        );
    }
    if let Some(name) = spec.root_device_hints.as_ref().and_then(|h| h.device_name.as_deref()).filter(|n| !n.is_empty())
        && !is_device_name(name)
    {
        let message =
            format!("spec.rootDeviceHints.deviceName is {name}; allowed are /dev/<name> and /dev/disk/by-path/<name>");
        // Upstream takes a folder for a device.
        if matches!(name, "/dev/" | "/dev/disk/by-path/") {
            found.ours(ErrorType::Preparation, message);
        } else {
            found.add(ErrorType::Preparation, message);
        }
    }
    if let Some(raid) = &spec.raid {
        hardware_raid(raid, found);
        software_raid(raid, spec.root_device_hints.is_some(), found);
    }
}

fn is_device_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("/dev/") else { return false };
    let last = rest.strip_prefix("disk/by-path/").unwrap_or(rest);
    !last.is_empty() && !last.contains('/')
}

fn hardware_raid(raid: &Raid, found: &mut Findings) {
    let volumes = raid.hardware_raid_volumes.as_deref().unwrap_or_default();
    if !volumes.is_empty() && raid.software_raid_volumes.as_ref().is_some_and(|v| !v.is_empty()) {
        found.add(ErrorType::Preparation, "spec.raid has hardware and software volumes; only one kind is allowed");
    }
    for (index, volume) in volumes.iter().enumerate() {
        if volume.physical_disks.is_empty() {
            continue;
        }
        let at = format!("spec.raid.hardwareRAIDVolumes[{index}]");
        if volume.controller.as_ref().is_none_or(String::is_empty) {
            found.add(ErrorType::Preparation, format!("{at}.physicalDisks needs {at}.controller"));
        }
        let disks = i64::try_from(volume.physical_disks.len()).unwrap_or(i64::MAX);
        if let Some(count) = volume.number_of_physical_disks.filter(|count| *count != disks) {
            found.add(
                ErrorType::Preparation,
                format!("{at}.numberOfPhysicalDisks is {count}, and {disks} disks are named"),
            );
        }
    }
}

fn software_raid(raid: &Raid, hinted: bool, found: &mut Findings) {
    let volumes = raid.software_raid_volumes.as_deref().unwrap_or_default();
    let roots = volumes.iter().filter(|v| v.root_volume == Some(true));
    if roots.clone().count() > 1 {
        found.add(ErrorType::Preparation, "spec.raid.softwareRAIDVolumes has more than one rootVolume");
    }
    if roots.clone().next().is_some() && hinted {
        found.add(
            ErrorType::Preparation,
            "spec.raid.softwareRAIDVolumes has a rootVolume, and spec.rootDeviceHints names a disk",
        );
    }
    if roots.clone().any(|v| v.level != "1") {
        found.add(ErrorType::Preparation, "spec.raid.softwareRAIDVolumes: a rootVolume must have level 1");
    }
}

fn interfaces(host: &BareMetalHost, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, interface) in host.spec.network_interfaces.iter().enumerate() {
        let name = interface.name.as_deref().filter(|n| !n.is_empty());
        let mac = interface.mac_address.as_deref().filter(|m| !m.is_empty());
        match (name, mac) {
            (Some(key), None) | (None, Some(key)) => {
                if !seen.insert(key.to_ascii_lowercase()) {
                    found.admission(format!("spec.networkInterfaces[{index}]: {key} is named twice"));
                }
            }
            _ => found.admission(format!("spec.networkInterfaces[{index}] needs either name or macAddress")),
        }
    }
}

fn power(host: &BareMetalHost, found: &mut Findings) {
    if host.spec.disable_power_off == Some(true) && !host.spec.online {
        found.add(
            ErrorType::PowerManagement,
            "spec.online is false and spec.disablePowerOff is true — a host that must not be powered off has to be online",
        );
    }
}

fn annotations_of(host: &BareMetalHost, found: &mut Findings) {
    for (_, fault) in annotations::reboot_faults(host) {
        found.admission(fault);
    }
    if let Some(value) = host.annotation(annotation::INSPECT) {
        if !matches!(value, "" | "disabled") {
            found.admission(format!(
                "annotation {} is \"{value}\"; allowed are \"disabled\" and the empty value",
                annotation::INSPECT
            ));
        }
        let mode = host.spec.inspection_mode;
        if value == "disabled" && matches!(mode, Some(InspectionMode::Agent | InspectionMode::Fast)) {
            found.admission(format!(
                "annotation {} disables inspection, and spec.inspectionMode asks for it",
                annotation::INSPECT
            ));
        }
    }
    if let Some(text) = host.annotation(annotation::STATUS).filter(|text| !text.is_empty())
        && let Err(what) = annotations::strict::<BareMetalHostStatus>(text)
    {
        found.admission(format!("annotation {}: {what}", annotation::STATUS));
    }
    if let Some(text) = host.annotation(annotation::HARDWARE_DETAILS).filter(|text| !text.is_empty()) {
        if !annotations::inspection_disabled(host) {
            found.admission(format!("annotation {} needs inspection to be disabled", annotation::HARDWARE_DETAILS));
        }
        if let Err(what) = annotations::strict::<HardwareDetails>(text) {
            found.add(ErrorType::Inspection, format!("annotation {}: {what}", annotation::HARDWARE_DETAILS));
        }
    }
}
