//! What the spec wishes, compared with what the status says is there.

use api::metal3::{
    BareMetalHost, BareMetalHostStatus, BootFormat, ChecksumType, Image, PreprovisioningImageSpec, annotation,
    profile_root_hints,
};
use inventory::RootDeviceHints;

/// The disk that baremetal-operator puts in force where nobody has wished for one (`pkg/hardwareutils`, profile `unknown`).
const UPSTREAMS_DEFAULT_DISK: &str = "/dev/sda";

/// The image wished for; one without a URL is none.
pub(crate) fn image(host: &BareMetalHost) -> Option<&Image> {
    host.spec.image.as_ref().filter(|i| !i.url.is_empty())
}

/// Whether nothing is provisioned, as the status says.
pub(crate) fn has_nothing(status: &BareMetalHostStatus) -> bool {
    status.provisioning.image.url.is_empty() && method_in_force(status).is_empty()
}

/// Whether a host that is `deprovisioning` has come there to be erased, or for steps of hardware managers, and has nothing on it that is to be removed: it has the annotation still, which is
/// dropped wherever else a deprovisioning begins, and stays until this one has ended. An attempt of baremetal-operator's that has failed or was
/// cancelled ends at the very time at which it begins to be removed (`updateHostStateFrom`), and leaves no image in the status either.
///
/// The provisioner has its own word on it: it does not believe this of a machine to which its record says that an image was being written.
pub(crate) fn is_for_erasing(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let history = &status.operation_history;
    let removes_attempt = history.provision.end.is_some() && history.provision.end == history.deprovision.start;
    let is_asked = [annotation::ERASE, annotation::STEPS].into_iter().any(|key| host.annotation(key).is_some());
    is_asked && has_nothing(status) && !removes_attempt
}

/// Whether a host that is to be this server's asks for this image on this disk, and for nothing else.
pub(crate) fn asks_for(host: &BareMetalHost, wanted: &Image, hints: Option<&RootDeviceHints>) -> bool {
    image(host) == Some(wanted)
        && method(host).is_empty()
        && root_device_hints(host).as_ref() == hints
        && host.spec.externally_provisioned != Some(true)
        && !host.is_deleting()
}

/// The custom deploy method wished for; empty when there is none.
pub(crate) fn method(host: &BareMetalHost) -> &str {
    host.spec.custom_deploy.as_ref().map(|c| c.method.as_str()).unwrap_or_default()
}

fn method_in_force(status: &BareMetalHostStatus) -> &str {
    status.provisioning.custom_deploy.as_ref().map(|c| c.method.as_str()).unwrap_or_default()
}

/// Whether something is to be put on a host that has nothing on it (baremetal-operator `NeedsProvisioning`).
pub(crate) fn deployment(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let new_image = image(host).is_some() && status.provisioning.image.url.is_empty();
    let new_method = !method(host).is_empty() && method(host) != method_in_force(status);
    host.spec.online && (new_image || new_method)
}

/// Whether what is on a provisioned host is no longer wished for. Only URL and method count, as upstream.
pub(crate) fn removal(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    differs(host, method_in_force(status), &status.provisioning.image.url)
}

/// Whether the attempt under way is no longer wished for. A method has no record while it is being tried: only the image is compared.
///
/// Upstream compares its URL alone. A write that goes on with a checksum or a format that was corrected meanwhile would fail at its end, or succeed with
/// what is not wished.
pub(crate) fn attempt_cancelled(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let attempted = status.last_attempted_image.as_ref().filter(|attempted| !attempted.url.is_empty());
    let url = attempted.map(|attempted| attempted.url.as_str()).unwrap_or_default();
    let read_otherwise = || image(host).zip(attempted).is_some_and(|(image, then)| reading(image) != reading(then));
    differs(host, method(host), url) || read_otherwise()
}

/// How the image's bytes are read and verified.
fn reading(image: &Image) -> (&str, ChecksumType, Option<api::metal3::DiskFormat>) {
    let checksum = image.checksum.as_deref().unwrap_or_default().trim();
    (checksum, image.checksum_type.unwrap_or(ChecksumType::Auto), image.format)
}

fn differs(host: &BareMetalHost, method_then: &str, url_then: &str) -> bool {
    if method(host) != method_then {
        return true;
    }
    match image(host) {
        // An unknown URL is no reason to erase a machine.
        Some(image) => !url_then.is_empty() && image.url != url_then,
        None => method_then.is_empty() || !url_then.is_empty(),
    }
}

/// The image to work on the host with; `otherwise` is the architecture of a machine of which nothing is known.
pub(crate) fn boot_image(
    host: &BareMetalHost,
    formats: &[BootFormat],
    otherwise: Option<&String>,
) -> PreprovisioningImageSpec {
    let filled = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    let seen = host.status.as_ref().and_then(|status| status.hardware.as_ref()?.cpu.as_ref()?.arch.as_ref());
    PreprovisioningImageSpec {
        accept_formats: formats.to_vec(),
        architecture: filled(host.spec.architecture.as_ref()).or_else(|| filled(seen)).or_else(|| filled(otherwise)),
        network_data_name: filled(host.spec.preprovisioning_network_data_name.as_ref()),
    }
}

/// The root device hints wished for: the spec's, else those of its profile; `None` without any. A RAID volume that is to be the root needs none.
#[must_use]
pub fn root_device_hints(host: &BareMetalHost) -> Option<RootDeviceHints> {
    let software = host.spec.raid.as_ref().and_then(|raid| raid.software_raid_volumes.as_deref()).unwrap_or_default();
    if software.iter().any(|volume| volume.root_volume == Some(true)) {
        return None;
    }
    let spec = host.spec.root_device_hints.clone().filter(|h| !h.is_empty());
    spec.or_else(|| {
        let profile = host.spec.hardware_profile.as_deref().unwrap_or_default();
        profile_root_hints(profile).filter(|h| !h.is_empty())
    })
}

/// The hints to be in force: those wished for. A host without any that comes from baremetal-operator keeps the disk of upstream's default profile,
/// which stands in its status: its images have gone there, and the next one is to go nowhere else because another program writes it.
#[must_use]
pub fn hints_to_be(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<RootDeviceHints> {
    let software = host.spec.raid.as_ref().and_then(|raid| raid.software_raid_volumes.as_deref()).unwrap_or_default();
    root_device_hints(host).or_else(|| {
        let upstreams =
            RootDeviceHints { device_name: Some(UPSTREAMS_DEFAULT_DISK.to_owned()), ..RootDeviceHints::default() };
        let in_force = status.provisioning.root_device_hints.as_ref();
        (software.is_empty() && in_force == Some(&upstreams)).then_some(upstreams)
    })
}

/// Whether these hints are what baremetal-operator has put in force for a host that wishes for no disk.
#[must_use]
pub fn is_upstreams_default(host: &BareMetalHost, in_force: &RootDeviceHints) -> bool {
    let default =
        RootDeviceHints { device_name: Some(UPSTREAMS_DEFAULT_DISK.to_owned()), ..RootDeviceHints::default() };
    *in_force == default && root_device_hints(host).is_none()
}

/// Whether the hints in force are not those that are to be.
pub(crate) fn hints_differ(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    let in_force = status.provisioning.root_device_hints.clone().filter(|h| !h.is_empty());
    hints_to_be(host, status) != in_force
}
