//! What parts say of themselves, and which of them are gone.

use Certainty::{Certain, Likely, Possible};
use Code as C;
use PartKind as P;
use terms::HealthLevel;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{Change, Difference, Part, PartKind, Reading};
use crate::hit::{Case, Certainty, Component, Hit};

/// Life left, percent, at which a disk is worn out.
const WORN_OUT: u8 = 3;

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    if let Reading::Read(parts) = &case.evidence.parts {
        for part in parts {
            health(case, part, hits);
            drive(part, hits);
            errors(case, part, hits);
            link(part, hits);
        }
        all_links_down(parts, hits);
    }
    if let Reading::Read(differences) = &case.evidence.differences {
        for difference in differences.iter().filter(|difference| difference.change == Change::Missing) {
            missing(difference, hits);
        }
    }
    smart(case, hits);
}

fn failed(kind: PartKind) -> Option<(&'static str, Code)> {
    Some(match kind {
        P::Processor => ("parts.processor", C::ProcessorFailed),
        P::Memory => ("parts.memory", C::MemoryFailed),
        P::Drive => ("parts.drive", C::DriveFailed),
        P::StorageController => ("parts.controller", C::StorageControllerFailed),
        P::Volume => ("parts.volume", C::VolumeDegraded),
        P::PowerSupply => ("parts.supply", C::PowerSupplyFailed),
        P::Fan => ("parts.fan", C::FanFailed),
        P::Temperature => ("parts.temperature", C::OverTemperature),
        P::PcieDevice => ("parts.card", C::PcieDeviceFailed),
        P::Manager => ("parts.manager", C::BmcUnhealthy),
        // A port's health is its link's, which is judged by itself; that of the whole is the sum of the others.
        P::NetworkPort | P::System | P::Chassis | P::Other => return None,
    })
}

fn health(case: &Case<'_>, part: &Part, hits: &mut Vec<Hit>) {
    let Some((rule, code)) = failed(part.kind) else { return };
    let hot = part.kind == P::Temperature && part.reading.zip(part.critical_at).is_some_and(|(now, most)| now >= most);
    let bad = match part.health {
        Some(HealthLevel::Critical) => true,
        Some(HealthLevel::Warning) => false,
        Some(HealthLevel::OK) | None if hot => true,
        Some(HealthLevel::OK) | None => return,
    };
    // A module that failed while memory is initialized is seen at the very place.
    let state =
        case.evidence.boot.read().and_then(|boot| boot.progress.as_ref()).map(|progress| progress.last_state.as_str());
    let at_work = match part.kind {
        P::Memory => state.is_some_and(|state| has(state, &["memory"])),
        P::Processor => state.is_some_and(|state| has(state, &["processor", "bus"])),
        P::PcieDevice => state.is_some_and(|state| has(state, &["pci"])),
        P::PowerSupply | P::Temperature => case.is_off(),
        _ => case.evidence.failure.as_ref().is_some_and(|failure| failure.cause.as_deref() == Some("HardwareFailed")),
    };
    let certainty = if !bad {
        Possible
    } else if at_work {
        Certain
    } else {
        Likely
    };
    let conditions =
        part.conditions.iter().map(|message| format!(" {} {}", message.id, message.text)).collect::<String>();
    let level = if bad { "Critical" } else { "Warning" };
    let text = format!(
        "{} {}: Health {level}, State {}{conditions}",
        kind_name(part.kind),
        part.slot,
        part.state.as_deref().unwrap_or("unknown")
    );
    let hit = Hit::new(rule, code, certainty, text).of(Some(part.into()));
    let hit = hit.advise(part.conditions.iter().find_map(|message| message.resolution.as_ref()));
    hits.push(if bad { hit } else { hit.minor() });
}

fn kind_name(kind: PartKind) -> String {
    format!("{kind:?}")
}

fn drive(part: &Part, hits: &mut Vec<Hit>) {
    if part.kind != P::Drive {
        return;
    }
    let mut found = |rule, code, certainty, text: String| {
        hits.push(Hit::new(rule, code, certainty, text).of(Some(part.into())));
    };
    if part.failure_predicted == Some(true) {
        found("parts.predicted", C::DriveFailurePredicted, Likely, format!("{}: FailurePredicted is true", part.slot));
    }
    if let Some(left) = part.life_left_percent.filter(|left| *left <= WORN_OUT) {
        let text = format!("{}: PredictedMediaLifeLeftPercent is {left}", part.slot);
        found("parts.worn-out", C::DriveWornOut, Likely, text);
    }
    if part.raid_state.as_deref().is_some_and(|state| has(state, &["foreign"])) {
        found("parts.foreign", C::DriveForeign, Likely, format!("{}: its configuration is foreign", part.slot));
    }
}

fn errors(case: &Case<'_>, part: &Part, hits: &mut Vec<Hit>) {
    let (hard, soft) = match part.kind {
        P::Memory => {
            (("parts.uncorrectable", C::MemoryUncorrectable), Some(("parts.correctable", C::MemoryCorrectable)))
        }
        P::Processor => (("parts.processor-errors", C::ProcessorFailed), None),
        _ => return,
    };
    if let Some(count) = part.uncorrectable_errors.filter(|count| *count > 0) {
        // Counted since the BMC counts: older than the failure, unless the module is not well now.
        let now = part.health == Some(HealthLevel::Critical);
        let text = format!("{}: {count} errors that could not be corrected", part.slot);
        let mut hit = Hit::new(hard.0, hard.1, if now { Certain } else { Possible }, text).of(Some(part.into()));
        (hit.count, hit.past) = (count, !now);
        hits.push(hit);
    }
    if let (Some(count), Some((rule, code))) = (part.correctable_errors.filter(|count| *count > 0), soft) {
        let mut hit = Hit::new(rule, code, Possible, format!("{}: {count} errors that were corrected", part.slot));
        (hit.count, hit.past) = (count, true);
        hits.push(hit.of(Some(part.into())).minor());
    }
    if part.throttled == Some(true) {
        let certainty = if case.is_off() { Likely } else { Possible };
        let hit = Hit::new("parts.throttled", C::ProcessorThrottled, certainty, format!("{} is throttled", part.slot));
        hits.push(hit.of(Some(part.into())).minor());
    }
}

fn link(part: &Part, hits: &mut Vec<Hit>) {
    if let Some(link) = &part.degraded_link {
        let text = format!("{} {}: its link is {link}", kind_name(part.kind), part.slot);
        hits.push(Hit::new("parts.degraded-link", C::PcieLinkDegraded, Possible, text).of(Some(part.into())).minor());
    }
}

fn is_down(part: &Part) -> Option<bool> {
    let link = part.link.as_deref()?;
    Some(has(link, &["down", "nolink", "disabled"]))
}

/// One port without a link is nothing: a machine has more of them than cables. All of them are.
fn all_links_down(parts: &[Part], hits: &mut Vec<Hit>) {
    let ports: Vec<&Part> =
        parts.iter().filter(|part| part.kind == P::NetworkPort && is_down(part).is_some()).collect();
    let all = ports.iter().all(|part| is_down(part) == Some(true));
    for port in ports.iter().filter(|part| is_down(part) == Some(true)) {
        let certainty = if all { Likely } else { Possible };
        let text = format!("{}: LinkStatus is {}", port.slot, port.link.as_deref().unwrap_or_default());
        hits.push(Hit::new("parts.link-down", C::LinkDown, certainty, text).of(Some((*port).into())));
    }
}

fn missing(difference: &Difference, hits: &mut Vec<Hit>) {
    let (rule, code) = match difference.kind {
        P::Memory => ("differences.memory", C::MemoryMissing),
        P::Processor => ("differences.processor", C::ProcessorMissing),
        P::Drive => ("differences.drive", C::DriveMissing),
        P::NetworkPort => ("differences.port", C::NetworkPortMissing),
        P::PcieDevice => ("differences.card", C::PcieDeviceMissing),
        _ => return,
    };
    let component = Component {
        kind: difference.kind,
        slot: difference.slot.clone(),
        part_number: None,
        serial: difference.serial.clone(),
    };
    let text = format!("HardwareData has {}, the machine shows {}", difference.was, or_none(&difference.is));
    // A list of a BMC's may leave parts out: that is never certain.
    hits.push(Hit::new(rule, code, Likely, text).of(Some(component)));
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

fn smart(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(disks) = &case.evidence.ours.smart else { return };
    for disk in disks {
        let component = Component {
            kind: P::Drive,
            slot: disk.name.clone(),
            part_number: disk.model.clone(),
            serial: disk.serial.clone(),
        };
        let mut found = |yes: bool, rule, code, certainty, text: String| {
            if yes {
                hits.push(Hit::new(rule, code, certainty, text).of(Some(component.clone())));
            }
        };
        let (name, pending, media) = (&disk.name, disk.pending_sectors.unwrap_or(0), disk.media_errors.unwrap_or(0));
        found(
            disk.passed == Some(false),
            "smart.failed",
            C::DriveFailurePredicted,
            Certain,
            format!("SMART of {name} says that it fails"),
        );
        let text = format!("{name}: {pending} sectors pending, {media} errors of its medium");
        found(pending > 0 || media > 0, "smart.media", C::DriveMediaErrors, Likely, text);
        let used = disk.used_percent.unwrap_or(0);
        found(
            used >= 100 - WORN_OUT,
            "smart.worn-out",
            C::DriveWornOut,
            Likely,
            format!("{name} has used {used} % of its life"),
        );
    }
}
