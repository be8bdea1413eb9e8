//! Commands from the server to the agent.

use std::collections::BTreeMap;

use inventory::{DiskSelector, EraseMethod, RootDeviceHints, Storage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use terms::{ChecksumType, Compression, DiskFormat};

/// One piece of work. The agent runs a given [`CommandId`] once, however often it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Fencing: which work, which attempt, which boot.
    pub id: CommandId,
    /// The action.
    pub action: Action,
}

/// Identity of a command. A disk may be written again under a higher attempt only when the older boot is dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandId {
    /// Name and uid of the HostOperation, `<name>/<uid>`: a later one of the same name is another operation.
    pub operation: String,
    /// Step of the operation.
    pub step: String,
    /// Attempt, from 1.
    pub attempt: u32,
    /// Kernel boot id of the intended agent.
    pub boot_id: String,
}

/// Actions of the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Action {
    /// Collect hardware details and the owners' marks. Outcome: [`crate::Outcome::Inspected`].
    Inspect,
    /// Write an operating system to a disk. Outcome: [`crate::Outcome::Written`].
    WriteImage(Box<WriteImage>),
    /// Remove partition tables, signatures, marks and boot entries. Outcome: [`crate::Outcome::Wiped`].
    WipeDisks(Box<WipeDisks>),
    /// Erase disks. Outcome: [`crate::Outcome::Erased`], whatever has become of each of them. Since version 4.
    EraseDisks(Box<EraseDisks>),
    /// List the steps of hardware managers. Outcome: [`crate::Outcome::StepsListed`]. Of ironic-python-agent alone: our own agent has none, and is never
    /// given it.
    ListSteps,
    /// Run one of these. Outcome: [`crate::Outcome::StepRan`]. Of ironic-python-agent alone.
    RunStep(Box<RunStep>),
    /// Leave the machine. Outcome: [`crate::Outcome::Leaving`], sent before it happens; done once acknowledged.
    Leave {
        /// How.
        how: Leave,
    },
}

/// How the agent leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Leave {
    /// Reboot through the firmware.
    Reboot,
    /// Power off.
    PowerOff,
}

/// Write an image, then partition edits, then the boot entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteImage {
    /// Where from.
    pub image: ImageSource,
    /// Which disk.
    pub root_device_hints: RootDeviceHints,
    /// Owner to write, and the known current owner.
    pub mark: DiskMark,
    /// Files of the config drive; `None` writes no config drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_drive: Option<ConfigDrive>,
    /// Disks of the inspection; empty if they are not known. A hint by a name that moves (`/dev/sda`) identifies a disk that other machines may use only if it had
    /// that name there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Storage>,
}

/// Image, format and checksum as `spec.image` gives them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// http or https.
    pub url: String,
    /// `raw` or `qcow2`, others are refused; the format is never guessed from the content.
    pub format: DiskFormat,
    /// Hex digest, or the URL of a checksum file.
    pub checksum: String,
    /// Which digest.
    pub checksum_type: ChecksumType,
    /// How the image is compressed; `None`: as the suffix of the URL says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// What the image's server wants to see, for this image alone and for a short time. It goes to no server that this one redirects to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Ranges of local addresses (loopback, link-local, metadata services) from which image and checksum file may nevertheless be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_addresses: Vec<String>,
    /// Where the image is read, in order, until one serves the bytes of the checksum; empty: at `url`, with `authorization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceAddress>,
    /// Where the checksum file is read, in order; empty: at `checksum`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksum_sources: Vec<String>,
    /// What image and checksum file are read by way of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ImageProxy>,
}

/// One of the addresses at which an image may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceAddress {
    /// http or https.
    pub url: String,
    /// As [`ImageSource::authorization`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
}

/// An HTTP proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageProxy {
    /// http or https, without user and password.
    pub url: String,
    /// Value of `Proxy-Authorization`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// What is read without it, as Go reads `NO_PROXY`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
}

/// Value of the HTTP field `Authorization` (a registry's token); it is secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorization(pub String);

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization(secret)")
    }
}

/// The ownership mark (who a machine's disks belong to) and the consent to replace another's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskMark {
    /// Owner to be: `status.provisioning.ID`.
    pub owner: String,
    /// `namespace/name` of the host, for people.
    pub host: String,
    /// HostOperation that writes.
    pub operation: String,
    /// Foreign owners whose marks may be overwritten, by owner or by host, separated by commas or blanks: consent is valid once and names the
    /// marks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<String>,
}

/// Config drive in OpenStack's layout; contents are base64 (standard alphabet) of the files' bytes.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigDrive {
    /// `openstack/latest/meta_data.json`.
    pub meta_data: String,
    /// `openstack/latest/network_data.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// `openstack/latest/user_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
}

impl std::fmt::Debug for ConfigDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigDrive(secret)")
    }
}

/// Metadata cleaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WipeDisks {
    /// Only disks with this owner's mark, with a consented mark, or without a mark are wiped.
    pub mark: DiskMark,
    /// Wipe nothing unless at least one disk carries this owner's mark.
    #[serde(default)]
    pub requires_mark: bool,
    /// Disks of the inspection: nothing is wiped if one of them is absent. Empty: the machine had none. `None`: unknown, and the wipe fails on a
    /// machine without disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<Storage>>,
    /// Hints that include a disk which is otherwise left untouched: one behind a network, or one with a cluster file system.
    #[serde(default)]
    pub named: RootDeviceHints,
}

/// Erasing, as [`EraseMethod`] says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EraseDisks {
    /// Nothing is erased while a disk, or the firmware, carries another owner's mark without consent.
    pub mark: DiskMark,
    /// How thoroughly.
    pub method: EraseMethod,
    /// Which disks; without any, all of the machine's own. Nothing is erased unless each of these names exactly one disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
    /// Disks of the inspection: nothing is erased if all are meant and one of them is absent. As [`WipeDisks::expected`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<Storage>>,
    /// Password for drives that are erased under one. The server has recorded it before it sends it: a drive that is left locked is unlocked by it.
    pub password: DrivePassword,
}

/// A step of a hardware manager.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// Its name.
    pub step: String,
    /// Its interface.
    pub interface: String,
    /// Its arguments; they may be secret.
    #[serde(default)]
    pub args: Map<String, Value>,
    /// The hardware managers' versions when the steps were listed: the agent refuses to go on with others.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Disks of the inspection: it is not run if one of them is absent. As [`WipeDisks::expected`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Vec<Storage>>,
    /// Hints that name a disk which other machines may use, too. It is not run beside any other such disk.
    #[serde(default)]
    pub named: RootDeviceHints,
}

impl std::fmt::Debug for RunStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunStep").field("step", &self.step).field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// Password of an ATA drive while it is erased: at most 32 bytes.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrivePassword(pub String);

impl std::fmt::Debug for DrivePassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DrivePassword(secret)")
    }
}
