//! A machine's targets beside its image: RAID volumes, settings and versions of the firmware. Only what differs from the known state, and only
//! what the host's provisioner serves.

use api::metal3::{BareMetalHost, BareMetalHostStatus, ErrorType, Raid};

use crate::firmware;
use crate::orders::{RaidTarget, Targets};
use crate::view::View;
use crate::wishes;

/// What a host that is not provisioned is to be prepared with; `None` if the firmware has to be read first.
pub(crate) fn preparing(view: &View<'_>) -> Option<Targets> {
    let served = &view.settings.served;
    let (settings, updates) = (served.firmware_settings, served.firmware_updates);
    let raid = if served.raid() { raid(view.host, view.status()) } else { None };
    // Also where volumes may have been begun that are no longer wished: the work that makes them ends.
    let anew = raid.is_some() || is_begun(view.status());
    Some(Targets {
        raid,
        settings: if settings { firmware::settings(view, updates, anew)? } else { None },
        updates: if updates { firmware::updates(view, settings, anew)? } else { Vec::new() },
        root_device_hints: wishes::hints_to_be(view.host, view.status()),
    })
}

/// What a provisioned host is to be serviced with, of what is allowed; `None` if the firmware has to be read first.
pub(crate) fn servicing(view: &View<'_>, settings: bool, updates: bool) -> Option<Targets> {
    Some(Targets {
        raid: None,
        root_device_hints: None,
        settings: if settings { firmware::settings(view, updates, false)? } else { None },
        updates: if updates { firmware::updates(view, settings, false)? } else { Vec::new() },
    })
}

/// The RAID volumes to make (baremetal-operator `saveHostProvisioningSettings`): handed over, as the same wish, until they are made. After a failure, the
/// existing ones are unknown.
fn raid(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<RaidTarget> {
    let wished = raid_wished(host, status)?;
    let failed = status.error_type == Some(ErrorType::Preparation);
    let present = status.provisioning.raid.clone().filter(|made| !failed || *made == Raid::default());
    (present.as_ref() != Some(&wished)).then_some(RaidTarget { wished, present })
}

/// The spec's volumes. If it has none, hardware volumes stay as they were made and software volumes are removed; `None` if none were ever made.
fn raid_wished(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<Raid> {
    if let Some(wished) = spec_raid(host) {
        return Some(wished.clone());
    }
    let made = status.provisioning.raid.as_ref()?;
    Some(Raid {
        hardware_raid_volumes: made.hardware_raid_volumes.clone().filter(|volumes| !volumes.is_empty()),
        software_raid_volumes: Some(Vec::new()),
    })
}

/// What the status tells of while these volumes are being made: not of those in whose place they come, and of the new ones when they are made. A list that
/// is not wished for stays as it was, as do a controller's volumes if the spec asks for none; software volumes nobody knows of are none. Upstream records
/// volumes at once, and takes them for made if their making is interrupted.
pub(crate) fn raid_begun(host: &BareMetalHost, status: &BareMetalHostStatus, wished: &Raid) -> Raid {
    let made = status.provisioning.raid.clone().unwrap_or_default();
    let software = Some(made.software_raid_volumes.unwrap_or_default());
    let keeps_hardware = spec_raid(host).is_none() || wished.hardware_raid_volumes.is_none();
    Raid {
        hardware_raid_volumes: made.hardware_raid_volumes.filter(|_| keeps_hardware),
        software_raid_volumes: software.filter(|_| wished.software_raid_volumes.is_none()),
    }
}

/// Whether volumes may have been begun and not been made, by what the status tells of.
fn is_begun(status: &BareMetalHostStatus) -> bool {
    status.provisioning.raid.as_ref().is_some_and(|made| {
        made.hardware_raid_volumes.is_none() && made.software_raid_volumes.as_ref().is_none_or(Vec::is_empty)
    })
}

/// The volumes that the spec asks for, if it asks for any, or for none to be there.
fn spec_raid(host: &BareMetalHost) -> Option<&Raid> {
    host.spec.raid.as_ref().filter(|raid| **raid != Raid::default())
}

/// The software volumes went with what was on the disks (baremetal-operator `clearHostProvisioningSettings`): they are made again before the next image.
/// Those of a controller stay.
pub(crate) fn forget_software_raid(status: &mut BareMetalHostStatus) {
    if let Some(made) = status.provisioning.raid.as_mut().and_then(|made| made.software_raid_volumes.as_mut()) {
        made.clear();
    }
}

/// Whether other RAID volumes are wished than were made.
pub(crate) fn raid_differs(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    raid_wished(host, status) != status.provisioning.raid
}
