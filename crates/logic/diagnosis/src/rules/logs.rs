//! What the BMC has written down: Dell's Lifecycle log and SEL, HPE's IML, Supermicro's event log, and the standard registries.
//!
//! An entry counts as a cause if it is newer than the host's last good moment and says that something has failed. All others are told as what happened
//! before: the log of a server that is well may hold nothing but corrected errors.

use Certainty::{Likely, Possible};
use Code as C;
use PartKind as P;

use super::words::{has, message_key};
use crate::codes::Code;
use crate::evidence::{LogEntry, Logs, PartKind, Reading, RegistryText};
use crate::hit::{Case, Certainty, Component, Hit, plausible};

/// What an entry means: ids of messages, or words of its text that have to be in it all; the first row that fits counts.
struct Pattern {
    code: Code,
    rule: &'static str,
    kinds: &'static [PartKind],
    /// Keys of message ids (Dell's Event and Error Message Reference, whose MEM0000 to MEM0010 are the offsets of IPMI's sensor type Memory, with MEM0022 where offset 6, presence, ends; DSP2065's Platform, StorageDevice, Environmental, Power, NetworkDevice).
    ids: &'static [&'static str],
    /// Alternatives, each a list of words that are all in it.
    words: &'static [&'static [&'static str]],
    /// It explains a failure; otherwise it is something to know.
    fault: bool,
}

macro_rules! patterns {
    ($($rule:literal, $code:ident, [$($kind:ident),*], $fault:literal, [$($id:literal),*], [$($words:expr),*];)*) => {
        const PATTERNS: &[Pattern] = &[$(Pattern {
            code: C::$code, rule: $rule, kinds: &[$(P::$kind),*], ids: &[$($id),*], words: &[$(&$words),*], fault: $fault,
        },)*];
    };
}

patterns! {
    "logs.memory-uncorrectable", MemoryUncorrectable, [Memory], true,
        ["MEM0001", "MEM0002", "MEM8001", "MEM9060", "UncorrectableECCError", "MemoryUncorrectableError"],
        [["uncorrectable", "memory"], ["uncorrectable ecc"], ["multi-bit", "memory"], ["uncorrectable", "dimm"]];
    "logs.memory-correctable", MemoryCorrectable, [Memory], false,
        ["MEM0000", "MEM0005", "MEM0701", "MEM0702", "MEM8000", "CorrectableECCError"],
        [["correctable ecc"], ["corrected memory"], ["correctable memory"], ["single-bit", "memory"], ["correctable error", "dimm"]];
    "logs.memory-missing", MemoryMissing, [Memory], true, ["MEM0022", "MemoryRemoved"],
        [["memory", "not present"], ["dimm", "removed"], ["memory", "not installed"], ["dimm", "missing"]];
    "logs.memory-failed", MemoryFailed, [Memory], true,
        ["MEM0003", "MEM0004", "MEM0007", "UEFI0058", "UEFI0106", "UEFI0107", "MemoryFailed", "DIMMFailed"],
        [["memory", "initialization error"], ["memory", "training"], ["dimm", "failed"], ["dimm", "disabled"], ["memory", "has failed"], ["no memory"], ["memory", "mapped out"]];
    "logs.processor-failed", ProcessorFailed, [Processor], true,
        ["CPU0000", "CPU0001", "CPU0005", "CPU0700", "CPU0701", "CPU0702", "CPU0704", "CPU9000"],
        [["cpu", "ierr"], ["processor", "internal error"], ["machine check"], ["cpu", "thermal trip"], ["processor", "failed"], ["catastrophic error"]];
    "logs.supply-input", PowerInputLost, [PowerSupply], true, ["PSU0003", "PSU0006", "PowerSupplyInputLost"],
        [["power supply", "input", "lost"], ["power supply", "ac lost"], ["power input lost"], ["ac lost"], ["power supply", "no input"]];
    "logs.supply-failed", PowerSupplyFailed, [PowerSupply], true,
        ["PSU0001", "PSU0002", "PSU0004", "PSU0005", "PSU0016", "PSU0031", "PSU0034", "PowerSupplyFailed", "PowerSupplyPredictiveFailure", "PowerSupplyRemoved"],
        [["power supply", "fail"], ["power supply", "general failure"], ["psu", "fail"], ["power supply", "removed"], ["power supply", "absent"]];
    "logs.redundancy", PowerRedundancyLost, [PowerSupply], false, ["RDU0012", "RDU0011", "PowerRedundancyLost"],
        [["power supply redundancy", "lost"], ["power supplies are not redundant"], ["power redundancy", "lost"]];
    "logs.power-budget", PowerCapped, [], true, ["PWR1004", "PWR1001", "PWR2000", "InsufficientPower"],
        [["insufficient power"], ["power demand exceeds"], ["power limit", "exceed"], ["not enough power"]];
    "logs.intrusion", ChassisOpen, [Chassis], true, ["SEC0000", "SEC0031", "SEC0033", "ChassisIntrusion", "ChassisOpen"],
        [["chassis is open"], ["chassis intrusion"], ["general chassis intrusion"], ["enclosure opened"]];
    "logs.voltage", VoltageFailed, [], true, ["VLT0204", "VLT0200", "VLT0207", "VLT0304"],
        [["voltage", "out of range"], ["voltage", "outside of range"], ["voltage", "lower critical"], ["voltage", "upper critical"], ["power good", "fail"], ["power fault"]];
    "logs.fan", FanFailed, [Fan], true, ["FAN0001", "FAN0000", "FAN0003", "FanFailed", "FanGroupCritical", "FanRemoved"],
        [["fan", "fail"], ["fan", "lower critical"], ["fan", "removed"], ["fan", "below", "threshold"]];
    "logs.temperature", OverTemperature, [Temperature], true,
        ["TMP0103", "TMP0106", "TMP0109", "TMP0119", "TMP0120", "TMP0121", "TemperatureAboveUpperCriticalThreshold", "TemperatureAboveUpperFatalThreshold"],
        [["temperature", "upper critical"], ["temperature", "greater than"], ["overheat"], ["over temperature"], ["temperature", "critical"]];
    "logs.array-controller", StorageControllerFailed, [StorageController], true, [], [["drive array controller", "fail"]];
    "logs.drive-predicted", DriveFailurePredicted, [Drive], true, ["PDR16", "DriveFailurePredicted", "PredictiveFailure"],
        [["predictive failure"], ["failure predicted"], ["smart", "fail"], ["drive", "predict"]];
    "logs.drive-failed", DriveFailed, [Drive], true,
        ["PDR1", "PDR2", "PDR3", "PDR64", "PDR87", "PDR1001", "DriveFailed", "DriveOffline"],
        [["drive", "fail"], ["disk", "failed"], ["drive", "offline"], ["drive", "fault detected"]];
    "logs.drive-missing", DriveMissing, [Drive], true, ["PDR5", "PDR1016", "DriveRemoved", "DriveMissing"],
        [["drive", "removed"], ["drive", "missing"], ["disk", "removed"]];
    "logs.drive-foreign", DriveForeign, [Drive], true, ["CTL48", "PDR35", "ForeignConfiguration"],
        [["foreign config"], ["foreign disk"]];
    "logs.volume", VolumeDegraded, [Volume], true, ["VDR7", "VDR8", "VDR56", "VolumeDegraded", "VolumeFailed", "VolumeOffine"],
        [["virtual disk", "degraded"], ["logical drive", "degraded"], ["virtual disk", "failed"], ["logical drive", "fail"], ["volume", "degraded"]];
    "logs.controller", StorageControllerFailed, [StorageController], true, ["CTL38", "CTL28", "ControllerFailed", "ControllerDegraded", "BatteryFailed"],
        [["controller", "fail"], ["controller battery"]];
    "logs.link-down", LinkDown, [NetworkPort], true, ["NIC100", "LinkDown", "NetworkLinkDown"],
        [["link", "down", "nic"], ["link", "down", "network"], ["link", "down", "ethernet"], ["network adapter link down"]];
    "logs.pcie", PcieDeviceFailed, [PcieDevice, NetworkPort], true, ["PCI1308", "PCI1318", "PCI1320", "PCI1322", "PCI1342", "PCI1348", "PCI3008", "PCIeFatalUncorrectableECCErrors"],
        [["fatal error", "pci"], ["pcie", "uncorrectable"], ["pci", "perr"], ["pci", "serr"], ["pci", "fatal"]];
    "logs.secure-boot", SecureBootRefused, [], true, ["UEFI0074", "SecureBootViolation"],
        [["secure boot", "violation"], ["secure boot", "fail"], ["secure boot", "denied"], ["secure boot policy"]];
    "logs.no-boot-device", NoBootDevice, [], true, ["UEFI0082", "NoBootableDevice", "BootDeviceNotFound"],
        [["no bootable"], ["no boot device"], ["boot device", "not found"], ["unable to boot"], ["no valid boot"]];
    "logs.media", MediaUnreachable, [], true, ["RAC0720", "RAC0721", "VirtualMediaConnectFailed"],
        [["virtual media", "unable"], ["virtual media", "failed"], ["remote file share", "failed"], ["virtual media", "timed out"]];
    "logs.firmware", FirmwareUpdateFailed, [], true, ["SUP0518", "SUP0519", "SUP0530", "RED030", "UpdateFailed", "TransferFailed", "VerificationFailed"],
        [["firmware update", "fail"], ["update", "unsuccessful"], ["firmware", "verification failed"]];
    "logs.bmc", BmcUnhealthy, [Manager], false, ["RAC0183", "RAC0703"],
        [["ilo", "self test", "fail"], ["bmc", "self test", "fail"], ["embedded flash", "fail"], ["watchdog", "bmc"]];
    "logs.log-full", BmcLogFull, [Manager], false, ["SEL9900", "LOG008", "SEL0012"], [["log is full"], ["log", "almost full"], ["log", "full"]];
}

pub(super) fn judge(case: &Case<'_>, hits: &mut Vec<Hit>) {
    let Reading::Read(logs) = &case.evidence.logs else { return };
    hits.extend(logs.entries.iter().filter_map(|entry| read(case, logs, entry)));
}

/// The level that the entry's severity means: Redfish's words, Dell's, HPE's (`Caution`, `Repaired`), IPMI's.
fn is_good(severity: &str) -> bool {
    has(severity, &["ok", "informational", "information", "repaired", "normal"])
}

/// Words of entries that report an end of what was wrong.
fn is_over(entry: &LogEntry, text: &str) -> bool {
    let deassert = has(
        text,
        &[
            "deassert",
            "returned to",
            "restored",
            "is operating normally",
            "recovered",
            "repaired",
            "within range",
            "link up",
        ],
    );
    deassert || entry.resolved == Some(true)
}

fn read(case: &Case<'_>, logs: &Logs, entry: &LogEntry) -> Option<Hit> {
    let key = entry.message_id.as_deref().map_or("", message_key);
    let registered =
        entry.message_id.as_deref().and_then(|id| logs.registry.get(id).or_else(|| logs.registry.get(key)));
    let text = text_of(entry, registered);
    let sensor = entry.sensor_type.as_deref().unwrap_or_default();
    let words = format!("{sensor} {text}").to_ascii_lowercase();
    let by_id = PATTERNS.iter().find(|pattern| !key.is_empty() && pattern.ids.contains(&key));
    let by_words =
        || PATTERNS.iter().find(|pattern| pattern.words.iter().any(|all| all.iter().all(|word| words.contains(word))));
    // "Uncorrectable" has "correctable" in it: the table has the worse row first.
    let pattern = by_id.or_else(by_words)?;
    let over = is_over(entry, &text);
    let severity = entry.severity.as_deref().or(registered.and_then(|registered| registered.severity.as_deref()));
    let good = severity.is_some_and(is_good);
    if by_id.is_none() && good && !over {
        return None;
    }
    let fresh = case.is_fresh(entry);
    let counts = fresh && pattern.fault && !over && !good;
    let texts: Vec<&str> = entry
        .component
        .iter()
        .map(String::as_str)
        .chain(entry.args.iter().map(String::as_str))
        .chain([text.as_str()])
        .collect();
    let when = if entry.written.is_empty() { "at no known time" } else { entry.written.as_str() };
    let said =
        format!("{} {} ({when}): {} {text}", entry.log, entry.id, entry.message_id.as_deref().unwrap_or_default());
    let mut hit = Hit::new(pattern.rule, pattern.code, if counts { Likely } else { Possible }, said);
    hit.component = case.part_named(pattern.kinds, &texts).or_else(|| named(entry, pattern.kinds, &text));
    hit.past = !counts;
    let hit = hit
        .at(plausible(entry.created))
        .advise(entry.resolution.as_ref().or(registered.and_then(|known| known.resolution.as_ref())));
    Some(if pattern.fault && !over { hit } else { hit.minor() })
}

/// The entry's text; where it has none, its registry's with the arguments put in.
fn text_of(entry: &LogEntry, registered: Option<&RegistryText>) -> String {
    let Some(registered) = registered.filter(|_| entry.text.trim().is_empty()) else { return entry.text.clone() };
    let mut text = registered.text.clone();
    for (index, argument) in entry.args.iter().take(9).enumerate() {
        text = text.replace(&format!("%{}", index + 1), argument);
    }
    text
}

/// A part that only the log names: its component, or the word after `@` (Supermicro: `Correctable ECC @DIMMB1`) or that begins as a slot's name.
fn named(entry: &LogEntry, kinds: &[PartKind], text: &str) -> Option<Component> {
    let kind = *kinds.first()?;
    let marks: &[&str] = match kind {
        P::Memory => &["dimm"],
        P::Processor => &["cpu", "processor"],
        P::PowerSupply => &["psu", "ps"],
        P::Fan => &["fan"],
        _ => &[],
    };
    let word = |word: &str| {
        let word: String = word.chars().filter(|c| c.is_ascii_alphanumeric() || "._-/".contains(*c)).take(40).collect();
        let word = word.trim_end_matches(['.', '-', '/']).to_owned();
        let low = word.to_ascii_lowercase();
        let slot = word.chars().any(|c| c.is_ascii_digit()) && marks.iter().any(|mark| low.starts_with(mark));
        slot.then_some(word)
    };
    let written = text.split_whitespace().find_map(|part| word(part.rsplit('@').next().unwrap_or(part)));
    let slot = entry.component.clone().filter(|name| !name.trim().is_empty()).or(written)?;
    Some(Component { kind, slot, part_number: None, serial: None })
}
