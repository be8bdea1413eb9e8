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
    Some(Targets {
        raid: if served.raid() { raid(view.host, view.status()) } else { None },
        settings: if served.firmware_settings { firmware::settings(view, served.firmware_updates)? } else { None },
        updates: if served.firmware_updates { firmware::updates(view, served.firmware_settings)? } else { Vec::new() },
        root_device_hints: wishes::hints_to_be(view.host, view.status()),
    })
}

/// What a provisioned host is to be serviced with, of what is allowed; `None` if the firmware has to be read first.
pub(crate) fn servicing(view: &View<'_>, settings: bool, updates: bool) -> Option<Targets> {
    Some(Targets {
        raid: None,
        root_device_hints: None,
        settings: if settings { firmware::settings(view, updates)? } else { None },
        updates: if updates { firmware::updates(view, settings)? } else { Vec::new() },
    })
}

/// The RAID volumes to make (baremetal-operator `saveHostProvisioningSettings`). After a failure, the existing ones are unknown.
fn raid(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<RaidTarget> {
    let wished = raid_wished(host, status)?;
    let failed = status.error_type == Some(ErrorType::Preparation);
    let present = status.provisioning.raid.clone().filter(|_| !failed);
    (present.as_ref() != Some(&wished)).then_some(RaidTarget { wished, present })
}

/// The spec's volumes. If it has none, hardware volumes stay as they were made and software volumes are removed; `None` if none were ever made.
fn raid_wished(host: &BareMetalHost, status: &BareMetalHostStatus) -> Option<Raid> {
    if let Some(wished) = host.spec.raid.as_ref().filter(|raid| **raid != Raid::default()) {
        return Some(wished.clone());
    }
    let made = status.provisioning.raid.as_ref()?;
    Some(Raid {
        hardware_raid_volumes: made.hardware_raid_volumes.clone().filter(|volumes| !volumes.is_empty()),
        software_raid_volumes: Some(Vec::new()),
    })
}

/// The software volumes went with what was on the disks (baremetal-operator `clearHostProvisioningSettings`): they are made again before the next image.
/// Those of a controller stay.
pub(crate) fn forget_software_raid(status: &mut BareMetalHostStatus) {
    if let Some(made) = &mut status.provisioning.raid {
        made.software_raid_volumes = None;
    }
}

/// Whether other RAID volumes are wished than were made.
pub(crate) fn raid_differs(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    raid_wished(host, status) != status.provisioning.raid
}
