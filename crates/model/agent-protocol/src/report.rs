//! The agent's reports, and the server's answer.

use std::collections::BTreeMap;

use inventory::{Devices, ErasedDisk, HardwareDetails, LinkReport, MachineEvidence};
use serde::{Deserialize, Serialize};

use crate::{Command, CommandId};

/// The agent's whole state, sent with every exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`crate::PROTOCOL_VERSION`].
    pub protocol: u32,
    /// Agent's version.
    pub version: String,
    /// uid of the host, from the medium.
    pub host: String,
    /// Boot generation, from the medium.
    pub generation: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Numbers the reports of a boot from 1; the server ignores reports older than the last one received.
    pub sequence: u64,
    /// The agent's state.
    pub state: AgentState,
    /// The machine's identity, as the agent found it. An agent that does not report it gets no work that writes or wipes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineEvidence>,
    /// How the firmware has started the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareState>,
    /// How long the server may hold the answer, in seconds.
    pub wait_seconds: u64,
    /// Log lines since the last acknowledged report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<LogLine>,
}

/// The firmware's variables (UEFI specification 2.10, 3.3 and 32.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FirmwareState {
    /// The machine was started by UEFI.
    pub uefi: bool,
    /// `SecureBoot` is 1: the running software was verified.
    pub secure_boot: bool,
    /// `SetupMode` is 1: there is no platform key, and nothing is verified.
    pub setup_mode: bool,
}

/// One line of the agent's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Milliseconds since the kernel started.
    pub uptime_ms: u64,
    /// `error`, `warn`, `info`, `debug`.
    pub level: String,
    /// Text, at most 4096 bytes.
    pub text: String,
}

/// The agent's activity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum AgentState {
    /// Nothing.
    Idle,
    /// Running a command.
    Running {
        /// Which.
        command: CommandId,
        /// How far.
        progress: Progress,
    },
    /// Has an outcome that the server has not acknowledged yet.
    Finished {
        /// Which.
        command: CommandId,
        /// Its outcome.
        outcome: Outcome,
    },
}

/// How far a command is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Phase of the work.
    pub phase: Phase,
    /// 0 to 100.
    pub percent: u8,
    /// Bytes done (of the download).
    pub bytes: u64,
    /// Bytes of the disk written or zeroed: they may increase for long without a download.
    #[serde(default)]
    pub written: u64,
    /// Total bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Kernel name of the disk that is being written or wiped (`/dev/sda`); empty before one is chosen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disk: String,
    /// Where the image is read, without secrets, if that is not simply the address that the order names: which mirror, by way of which proxy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Seconds that the command has run, where drives work by themselves for hours and say little.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seconds: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape that serde wants.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Parts of the agent's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Getting ready.
    #[default]
    Starting,
    /// Writing the image.
    Writing,
    /// Verified; partition table, config drive, mark.
    Finishing,
    /// UEFI boot entry.
    BootEntry,
    /// Removing signatures.
    Wiping,
    /// Collecting hardware facts.
    Inspecting,
    /// Erasing disks.
    Erasing,
    /// Running a step of a hardware manager.
    Stepping,
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Outcome {
    /// Hardware facts.
    Inspected {
        /// In Metal³'s terms.
        hardware: Box<HardwareDetails>,
        /// Marks found on disks and in firmware.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        marks: Vec<DiskMarkFound>,
        /// Whether the machine booted by UEFI.
        uefi: bool,
        /// Whether Secure Boot was on.
        secure_boot: bool,
        /// What has become of listening for LLDP on the machine's ports; an agent that does not listen has none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        links: Vec<LinkReport>,
        /// What there is that upstream's facts have no fields for; an agent that does not look for it has nothing.
        #[serde(default)]
        devices: Box<Devices>,
    },
    /// The image is on the disk, verified and bootable.
    Written(WriteSummary),
    /// Disks are clean.
    Wiped {
        /// Names of the disks wiped.
        disks: Vec<String>,
        /// Disks left untouched, because other machines may use them too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<LeftDisk>,
    },
    /// Erasing has ended; what has become of each disk, those included that were left.
    Erased {
        /// The disks.
        disks: Vec<ErasedDisk>,
    },
    /// The steps that hardware managers have.
    StepsListed {
        /// The steps.
        steps: Vec<ListedStep>,
        /// How many more there are.
        #[serde(default)]
        omitted: u32,
        /// Versions of the hardware managers, by name.
        versions: BTreeMap<String, String>,
    },
    /// A step of a hardware manager is done.
    StepRan {
        /// What it gave, as text.
        result: String,
    },
    /// About to leave; happens when the server has acknowledged this.
    Leaving,
    /// It did not work.
    Failed(CommandError),
}

/// A step that a hardware manager has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedStep {
    /// Whose it is.
    pub manager: String,
    /// Name.
    pub step: String,
    /// Interface of Ironic's driver.
    pub interface: String,
    /// Higher ones come first in automated cleaning; 0 is not in it.
    pub priority: i64,
    /// The machine is to be restarted after it.
    #[serde(default)]
    pub reboot_requested: bool,
    /// Whether it may be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abortable: Option<bool>,
    /// Its arguments; `None` if that is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<ListedArgument>>,
}

/// An argument of such a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedArgument {
    /// Name.
    pub name: String,
    /// In words.
    pub description: String,
    /// The step is not run without it.
    pub required: bool,
}

/// Result of a write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteSummary {
    /// Disk's name.
    pub disk: String,
    /// Bytes downloaded.
    pub bytes_read: u64,
    /// Size of the image on the disk.
    pub image_bytes: u64,
    /// Digest of the download, `sha256:…`.
    pub digest: String,
    /// `Boot0003` and its label, where an entry was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_entry: Option<String>,
    /// As [`Progress::source`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Warnings for people (no room for the mark, no ESP, …).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A disk that was not wiped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftDisk {
    /// Its name.
    pub disk: String,
    /// Why: `it is reached by Fibre Channel`.
    pub why: String,
}

/// An owner's mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskMarkFound {
    /// Disk, or `firmware` for the EFI variable.
    pub place: String,
    /// Owner.
    pub owner: String,
    /// Host that wrote it.
    pub host: String,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandError {
    /// Class of the cause.
    pub code: ErrorCode,
    /// What was attempted and what was found, for people.
    pub message: String,
    /// The command had changed nothing on the machine, neither disk nor firmware. An agent that does not say so may have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untouched: bool,
}

/// Classes of causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorCode {
    /// The image's server could not be reached, or the download failed for good.
    ImageUnreachable,
    /// The image's address is not allowed.
    ImageNotAllowed,
    /// The image's server answered that it has no such image, or not for this machine.
    ImageNotFound,
    /// Digest differs.
    ChecksumMismatch,
    /// The checksum is no digest, or its file is not there or does not have the image's.
    ChecksumUnavailable,
    /// Image is larger than the disk.
    ImageTooLarge,
    /// Image ended early.
    ImageTruncated,
    /// Image is malformed or of an unsupported kind.
    ImageInvalid,
    /// No disk for the hints.
    NoDisk,
    /// The disk carries another owner's mark.
    ForeignOwner,
    /// No disk carries this owner's mark, though one must.
    NoOwnMark,
    /// Reading or writing the disk failed.
    DiskError,
    /// No room for the config drive.
    NoRoomForConfigDrive,
    /// Firmware refused the boot entry.
    FirmwareError,
    /// Command was for another boot or malformed.
    Refused,
    /// Anything else.
    Internal,
}

/// The server's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directive {
    /// The server has persisted the outcome with this id: the agent may forget it (and, for a leave, go).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<CommandId>,
    /// Next command. Repeated until a report shows it running or finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
}
