//! Where the machine stands still on its way from the reset to a system.

use Certainty::{Certain, Likely, Possible};
use Code as C;

use super::words::has;
use crate::codes::Code;
use crate::evidence::{Boot, BootProgress, Reading};
use crate::hit::{Case, Certainty, Hit};

/// Seconds for which a state of booting is unchanged when the machine is stuck in it.
const STUCK: u64 = 600;

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(boot) = &case.evidence.boot else { return };
    if let Some(progress) = &boot.progress {
        stuck(progress, hits);
        ignored(case, boot, progress, hits);
    }
    if let Some(state) = boot.post_state.as_deref().filter(|state| has(state, &["inpost", "insystemsetup"])) {
        let code = if has(state, &["setup"]) { C::StuckInSetup } else { C::StuckInPost };
        hits.push(Hit::new("boot.post-state", code, Possible, format!("PostState is {state}")));
    }
    if boot.options.as_ref().is_some_and(Vec::is_empty) {
        hits.push(Hit::new("boot.no-options", C::NoBootDevice, Likely, "BootOptions has no member"));
    }
}

/// States of `BootProgress.LastState` (DSP0268, ComputerSystem) in which a machine may stay.
fn stuck(progress: &BootProgress, hits: &mut Vec<Hit>) {
    let (rule, code) = match progress.last_state.as_str() {
        "MemoryInitializationStarted" => ("boot.memory", C::StuckInMemoryInit),
        "PCIResourceConfigStarted" | "BusInitializationStarted" => ("boot.pci", C::StuckInPciInit),
        "PrimaryProcessorInitializationStarted" | "SecondaryProcessorInitializationStarted" => {
            ("boot.processor", C::StuckInProcessorInit)
        }
        "MemoryInitializationComplete" | "SystemHardwareInitializationComplete" => ("boot.post", C::StuckInPost),
        "SetupEntered" => ("boot.setup", C::StuckInSetup),
        "OSBootStarted" => ("boot.os-start", C::StuckInOsStart),
        _ => return,
    };
    let long = progress.unchanged_seconds.is_some_and(|seconds| seconds >= STUCK);
    let text = match progress.unchanged_seconds {
        Some(seconds) => format!("BootProgress is {} for {seconds} seconds", progress.last_state),
        None => format!("BootProgress is {}", progress.last_state),
    };
    let text = match &progress.oem_last_state {
        Some(oem) => format!("{text} ({oem})"),
        None => text,
    };
    hits.push(Hit::new(rule, code, if long { Likely } else { Possible }, text).at(progress.at));
}

/// A system runs, or begins to, and nobody has read the medium that was to be booted.
fn ignored(case: &Case<'_>, boot: &Boot, progress: &BootProgress, hits: &mut Vec<Hit>) {
    let Some(wanted) = &boot.wanted_target else { return };
    let medium = case.evidence.ours.medium.read();
    let unread = medium.is_some_and(|medium| medium.inserted.is_some() && medium.first.is_none());
    let runs = matches!(progress.last_state.as_str(), "OSRunning" | "OSBootStarted");
    let target = boot.boot_override.as_ref().and_then(|order| order.target.as_deref());
    let is_in_force = boot.boot_override.as_ref().is_some_and(|order| order.enabled.as_deref() != Some("Disabled"));
    // Makers name their virtual CD in several ways, and the server sends the one that a BMC offers.
    let is_cd = |name: &str| ["Cd", "UsbCd", "CD/DVD", "Usb"].iter().any(|cd| cd.eq_ignore_ascii_case(name));
    let is_another = |target: &str| target != wanted && target != "None" && !(is_cd(target) && is_cd(wanted));
    let another = is_in_force && target.is_some_and(is_another);
    let (certainty, found) = match (unread && runs, another) {
        (true, _) => (Certain, "a system was started, and the medium was not read"),
        (false, true) => (Likely, "the override shows another target"),
        (false, false) => return,
    };
    let text = format!("{wanted} was to be booted; the override is {}; {found}", target.unwrap_or("not shown"));
    hits.push(Hit::new("boot.override", C::BootOverrideIgnored, certainty, text));
}
