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
    // Where volumes may be made, what was accepted is named each time: that it is still wished says nothing of the volumes that are made beside it.
    let anew = served.raid();
    Some(Targets {
        raid: if served.raid() { raid(view.host, view.status()) } else { None },
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
    let present = status.provisioning.raid.clone().map(|made| if failed { unknown(&made) } else { made });
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

/// What the status tells of while volumes are being made, of those before: a list is missing if nobody knows what is there of it. The new ones count when they
/// are made. Upstream records them at once, and takes them for made if their making is interrupted.
///
/// While volumes of software are made or may be there, nothing is known of any. Else, a controller's volumes stay if they are not touched: none are wished, or
/// these, and they were known or the spec asks for none.
pub(crate) fn raid_begun(target: &RaidTarget, made: Option<&Raid>) -> Raid {
    let (wished, present) = (&target.wished, target.present.as_ref());
    let makes_software = wished.software_raid_volumes.as_ref().is_some_and(|volumes| !volumes.is_empty());
    if makes_software || !made.is_none_or(without_software) {
        return Raid::default();
    }
    let made = made.and_then(|made| made.hardware_raid_volumes.clone());
    let was_known = present.is_some_and(|present| present.hardware_raid_volumes == wished.hardware_raid_volumes);
    let stays = wished.hardware_raid_volumes.is_none()
        || made == wished.hardware_raid_volumes && (wished.software_raid_volumes.is_some() || was_known);
    Raid {
        hardware_raid_volumes: made.filter(|_| stays),
        software_raid_volumes: wished.software_raid_volumes.is_none().then(Vec::new),
    }
}

/// Whether there are no volumes of software. A record without lists says that nobody knows.
fn without_software(made: &Raid) -> bool {
    *made != Raid::default() && made.software_raid_volumes.as_ref().is_none_or(Vec::is_empty)
}

/// What is known of these volumes after a failure: at most that there are none of software.
fn unknown(made: &Raid) -> Raid {
    Raid { hardware_raid_volumes: None, software_raid_volumes: without_software(made).then(Vec::new) }
}

/// The software volumes went with what was on the disks (baremetal-operator `clearHostProvisioningSettings`): they are made again before the next image.
/// Those of a controller stay.
pub(crate) fn forget_software_raid(status: &mut BareMetalHostStatus) {
    if let Some(made) = &mut status.provisioning.raid {
        made.software_raid_volumes.take_if(|volumes| !volumes.is_empty());
    }
}

/// Whether other RAID volumes are wished than were made.
pub(crate) fn raid_differs(host: &BareMetalHost, status: &BareMetalHostStatus) -> bool {
    raid_wished(host, status) != status.provisioning.raid
}
