//! What is said of a BareMetalHost before it is stored.
//!
//! Refused is what upstream's webhook refuses (baremetal-operator `internal/webhooks/metal3.io/v1alpha1`), with one exception: a host that
//! is being deleted is let go on its way, whatever is wrong with it. What upstream admits and this server cannot serve, or nobody serves,
//! is admitted with a warning.

use api::metal3::{
    BareMetalHost, BootMode, OperationalStatus, ProvisioningState as State, annotation, bmc_driver, detection_fault,
    label,
};

use crate::annotation_keys;
use crate::annotations;
use crate::boot_mac;
use crate::host_rules::validate;
use crate::served::{Served, unserved, unused};

/// What is to be said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Why the object is refused; empty if it is admitted.
    pub denials: Vec<String>,
    /// What the client is told beside it.
    pub warnings: Vec<String>,
}

/// Reviews a new host, or the new state of one.
///
/// `address_fault` is what the provisioner has against `spec.bmc.address`.
#[must_use]
pub fn review(
    new: &BareMetalHost,
    old: Option<&BareMetalHost>,
    served: &Served,
    address_fault: Option<&str>,
) -> Review {
    let mut review = Review::default();
    if new.is_deleting() {
        return review;
    }
    for violation in validate(new).err().unwrap_or_default() {
        let to = if violation.denied { &mut review.denials } else { &mut review.warnings };
        to.push(violation.message);
    }
    empty_image(new, &mut review.denials);
    name(new, &mut review.denials);
    let address = new.spec.bmc.as_ref().map(|bmc| bmc.address.as_str()).unwrap_or_default();
    if !address.is_empty() {
        match bmc_access(new, address) {
            Ok(mut faults) => {
                review.denials.append(&mut faults);
                review.warnings.extend(address_fault.map(ToOwned::to_owned));
            }
            Err(fault) => review.denials.push(fault),
        }
    }
    if let Some(old) = old {
        changes(old, new, &mut review.denials);
        review.warnings.extend(first_mac(old, new));
    }
    if review.denials.is_empty() {
        review.warnings.extend(unserved(new, served).into_iter().map(|violation| violation.message));
        review.warnings.extend(unused(new, served));
    }
    review.warnings.extend(annotations::reboot_surplus(new));
    let reboot = new.annotation(annotation::REBOOT);
    let at_rest = matches!(new.state(), State::Available | State::Ready);
    if at_rest
        && reboot.is_some()
        && reboot != old.and_then(|old| old.annotation(annotation::REBOOT))
        && !annotations::is_reboot_forced(new)
    {
        review.warnings.push(
            "annotation reboot.metal3.io: a host without a system is restarted with {\"force\":true} only; it is dropped when a system comes"
                .to_owned(),
        );
    }
    review.warnings.extend(annotations::detached_fault(new));
    if old.is_none_or(|old| old.annotation(annotation::APPROVE) != new.annotation(annotation::APPROVE)) {
        review.warnings.extend(annotations::approve_fault(new));
    }
    let detect = |host: &BareMetalHost| host.metadata.labels.as_ref()?.get(label::ERROR_DETECT).cloned();
    if old.is_none_or(|old| detect(old) != detect(new)) {
        review.warnings.extend(detection_fault(new.metadata.labels.as_ref()));
    }
    let keys = new.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
    // Who writes something else of the host does not hear of it again.
    let added = keys.filter(|key| old.is_none_or(|old| old.annotation(key).is_none()));
    review.warnings.extend(added.filter_map(annotation_keys::fault));
    if !new.spec.taints.is_empty() {
        review.warnings.push("spec.taints is deprecated and has no effect, here or in Metal³".to_owned());
    }
    if !new.spec.network_interfaces.is_empty() {
        review.warnings.push("spec.networkInterfaces has no effect: no provisioner sets up switches yet".to_owned());
    }
    review
}

/// An image without a URL: to the controller it is none, upstream's webhook refuses it.
fn empty_image(host: &BareMetalHost, denials: &mut Vec<String>) {
    if host.spec.image.as_ref().is_some_and(|image| image.url.is_empty()) {
        denials.push("spec.image.url is empty — give the image's address, or remove spec.image".to_owned());
    }
}

fn name(host: &BareMetalHost, denials: &mut Vec<String>) {
    let name = host.metadata.name.as_deref().unwrap_or_default();
    if name.chars().any(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_')) {
        denials.push(format!("metadata.name is {name:?}; allowed are letters, digits, \".\", \"-\" and \"_\""));
    }
    if is_uuid(name) {
        denials.push(format!("metadata.name is {name}, a UUID, which provisioners take for the id of a machine"));
    }
}

/// 32 hexadecimal digits, with hyphens where a UUID has them or without any.
fn is_uuid(name: &str) -> bool {
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split('-').collect();
    parts.iter().all(|part| digits(part))
        && matches!(parts.iter().map(|part| part.len()).collect::<Vec<_>>()[..], [32] | [8, 4, 4, 4, 12])
}

/// What does not fit the driver that the address names.
fn bmc_access(host: &BareMetalHost, address: &str) -> Result<Vec<String>, String> {
    let driver = bmc_driver(address)?;
    let (spec, scheme) = (&host.spec, driver.scheme);
    let mut faults = Vec::new();
    let hardware_raid = spec.raid.as_ref().and_then(|raid| raid.hardware_raid_volumes.as_ref());
    if hardware_raid.is_some_and(|volumes| !volumes.is_empty()) && !driver.raid {
        faults.push(format!("spec.raid.hardwareRAIDVolumes: the driver {scheme} cannot set up RAID controllers"));
    }
    match spec.boot_mac_address.as_deref().filter(|mac| !mac.is_empty()) {
        None if driver.needs_mac => {
            faults.push(format!("spec.bootMACAddress is not set, which the driver {scheme} needs"));
        }
        Some(mac) if !is_mac(mac) => {
            faults.push(format!("spec.bootMACAddress is {mac:?}, which is no hardware address"));
        }
        _ => {}
    }
    if spec.boot_mode == Some(BootMode::UefiSecureBoot) && !driver.secure_boot {
        faults.push(format!("spec.bootMode is UEFISecureBoot, which the driver {scheme} cannot switch on"));
    }
    if spec.inspection_mode == Some(api::metal3::InspectionMode::Fast) && !driver.fast_inspection {
        faults.push(format!("spec.inspectionMode is fast, which the driver {scheme} cannot do"));
    }
    Ok(faults)
}

/// Go's `net.ParseMAC`: 6, 8 or 20 bytes, in pairs of digits with colons or hyphens, or in fours with dots.
fn is_mac(text: &str) -> bool {
    let hex = |group: &str, digits: usize| group.len() == digits && group.bytes().all(|b| b.is_ascii_hexdigit());
    [(':', 2, [6, 8, 20]), ('-', 2, [6, 8, 20]), ('.', 4, [3, 4, 10])].into_iter().any(|(separator, digits, counts)| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len()) && groups.iter().all(|group| hex(group, digits))
    })
}

/// Warns of a boot MAC address that contradicts the inspection, when it is given: it cannot be corrected afterwards.
fn first_mac(old: &BareMetalHost, new: &BareMetalHost) -> Option<String> {
    let found = old.status.as_ref()?.hardware.as_ref().filter(|_| mac(old).is_empty())?;
    if let Some(doubt) = boot_mac::not_listed(new, found) {
        return Some(doubt);
    }
    boot_mac::without_interface(new, found).map(|what| {
        format!(
            "{what}: it is accepted, cannot be changed or removed any more, and keeps the host from being prepared — if it is mistyped, delete the host \
             and create it anew without it; one that has a system is detached before (annotation {}), and its successor created with \
             its status (annotation {})",
            annotation::DETACHED,
            annotation::STATUS
        )
    })
}

fn mac(host: &BareMetalHost) -> String {
    host.spec.boot_mac_address.clone().unwrap_or_default()
}

/// What an update must not do.
fn changes(old: &BareMetalHost, new: &BareMetalHost, denials: &mut Vec<String>) {
    let address = |host: &BareMetalHost| host.spec.bmc.as_ref().map(|b| b.address.clone()).unwrap_or_default();
    let either = |found: &dyn Fn(&BareMetalHost) -> bool| found(old) || found(new);
    let detached = |host: &BareMetalHost| {
        host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Detached)
    };
    let was = address(old);
    let free = either(&detached) || either(&|host| host.state() == State::Registering);
    if !was.is_empty() && address(new) != was && !free {
        denials.push(format!(
            "spec.bmc.address is {was} and can be changed only while the host is registering or detached: another address may be another machine \
             (the annotation {} detaches it)",
            api::metal3::annotation::DETACHED
        ));
    }
    let was = mac(old);
    if !was.is_empty() && !mac(new).eq_ignore_ascii_case(&was) {
        denials.push(format!("spec.bootMACAddress is {was} and cannot be changed once it is set"));
    }
    let external = |host: &BareMetalHost| host.spec.externally_provisioned == Some(true);
    if !external(old) && external(new) && !either(&|host| host.state() == State::Available) {
        let state = old.state();
        let state = if state == State::None { "new" } else { state.as_str() };
        denials.push(format!(
            "spec.externallyProvisioned can be set when the host is created, and while it is available; it is {state}"
        ));
    }
}
