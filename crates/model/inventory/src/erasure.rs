//! Erasing disks: what is asked for, and what was done to each of them.
//!
//! The levels are those of NIST SP 800-88 (Rev. 1, 2.5): *Clear* protects against simple recovery through the disk's own interface, *Purge* also against
//! laboratory work. What the levels mean for a device's commands stands in `docs/erase.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Storage;

/// Longest text of one disk's report, in characters.
const MAX_NOTE: usize = 240;
/// Longest name or identifier of a disk in a report, in characters.
const MAX_NAME: usize = 128;

/// How thoroughly disks are to be erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EraseMethod {
    /// Partition tables, signatures and marks are removed: the data stay.
    #[default]
    Metadata,
    /// Every byte that the disk lets be written is overwritten and samples are read back (Clear).
    Overwrite,
    /// The disk's own command is used: NVMe Sanitize or Format, ATA SANITIZE DEVICE or SECURITY ERASE UNIT, SCSI SANITIZE (Purge). A disk without one is
    /// left as it is.
    Purge,
}

impl EraseMethod {
    /// The result that it is to reach on each disk.
    #[must_use]
    pub const fn aim(self) -> EraseResult {
        match self {
            Self::Metadata => EraseResult::MetadataRemoved,
            Self::Overwrite => EraseResult::Cleared,
            Self::Purge => EraseResult::Purged,
        }
    }
}

/// What has become of a disk; each is more than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EraseResult {
    /// It is not erased, or not known to be; what was done stands beside it.
    #[default]
    NotDone,
    /// Its tables and signatures are gone, its data are there.
    MetadataRemoved,
    /// All that can be addressed is overwritten, or was erased by a command that promises no more.
    Cleared,
    /// The disk says that all user data are gone, also those that cannot be addressed.
    Purged,
}

/// Names one disk: all that is given has to hold, without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.serialNumber) || has(self.wwn)", "message": "a disk is named by serialNumber, wwn, or both"},
]))]
pub struct DiskSelector {
    /// Serial number, as in the host's HardwareData.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub serial_number: Option<String>,
    /// World wide name, with its extension or without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub wwn: Option<String>,
}

impl DiskSelector {
    /// Whether it names this disk. One that says nothing names none.
    #[must_use]
    pub fn names(&self, disk: &Storage) -> bool {
        let same = |wished: &str, found: Option<&String>| {
            found.is_some_and(|found| !wished.trim().is_empty() && found.trim().eq_ignore_ascii_case(wished.trim()))
        };
        let serial = self.serial_number.as_deref().map(|wished| same(wished, disk.serial_number.as_ref()));
        let wwn = self
            .wwn
            .as_deref()
            .map(|wished| same(wished, disk.wwn.as_ref()) || same(wished, disk.wwn_with_extension.as_ref()));
        (serial.is_some() || wwn.is_some()) && serial.unwrap_or(true) && wwn.unwrap_or(true)
    }

    /// The disk in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let serial = self.serial_number.as_ref().map(|serial| format!("serial number {serial}"));
        let wwn = self.wwn.as_ref().map(|wwn| format!("WWN {wwn}"));
        let all: Vec<String> = serial.into_iter().chain(wwn).collect();
        if all.is_empty() { "(nothing named)".to_owned() } else { all.join(", ") }
    }
}

/// What was done to one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErasedDisk {
    /// Its name, or that of the controller that hides disks.
    pub name: String,
    /// Its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// Its world wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// What has become of it.
    #[serde(default)]
    pub result: EraseResult,
    /// By what: `NVMe Sanitize (block erase)`. None where nothing was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What shows it, or why it is not done: status of the device, samples that were read back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evidence: String,
}

impl ErasedDisk {
    /// A disk to which nothing was done.
    #[must_use]
    pub fn not_done(disk: &Storage, why: impl Into<String>) -> Self {
        Self { evidence: why.into(), ..Self::of(disk) }
    }

    /// The disk, of which nothing is said yet.
    #[must_use]
    pub fn of(disk: &Storage) -> Self {
        Self {
            name: disk.name.clone().unwrap_or_else(|| "(unnamed disk)".to_owned()),
            serial_number: disk.serial_number.clone(),
            wwn: disk.wwn_with_extension.clone().or_else(|| disk.wwn.clone()),
            ..Self::default()
        }
    }

    /// Whether it is about this disk.
    #[must_use]
    pub fn is_of(&self, disk: &Storage) -> bool {
        let wwn = disk.wwn_with_extension.as_ref().or(disk.wwn.as_ref());
        match (&self.serial_number, &disk.serial_number, &self.wwn, wwn) {
            (_, _, Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            (Some(one), Some(other), ..) => one.trim().eq_ignore_ascii_case(other.trim()),
            _ => disk.name.as_ref() == Some(&self.name) || disk.alternate_names.contains(&self.name),
        }
    }

    /// The disk and what has become of it, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let serial = self.serial_number.as_ref().map(|serial| format!(" (serial number {serial})")).unwrap_or_default();
        format!("{}{serial}: {:?}, {}", self.name, self.result, self.evidence)
    }

    /// The same with every text printable and cut to a sane length.
    #[must_use]
    pub fn bounded(mut self, is_printable: impl Fn(char) -> bool) -> Self {
        let cut = |text: &str, most: usize| text.chars().filter(|c| is_printable(*c)).take(most).collect::<String>();
        self.name = cut(&self.name, MAX_NAME);
        self.evidence = cut(&self.evidence, MAX_NOTE);
        self.serial_number = self.serial_number.map(|text| cut(&text, MAX_NAME));
        self.wwn = self.wwn.map(|text| cut(&text, MAX_NAME));
        self.method = self.method.map(|text| cut(&text, MAX_NAME));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(serial: &str, wwn: &str) -> Storage {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Storage { name: Some("/dev/sda".into()), serial_number: text(serial), wwn: text(wwn), ..Storage::default() }
    }

    #[test]
    fn a_selector_names_one_disk_and_an_empty_one_none() {
        let by = |serial: Option<&str>, wwn: Option<&str>| DiskSelector {
            serial_number: serial.map(Into::into),
            wwn: wwn.map(Into::into),
        };
        let rows = [
            (by(Some("s1"), None), true),
            (by(Some(" S1 "), None), true),
            (by(Some("S1"), Some("0xAB")), true),
            (by(Some("S1"), Some("0xAC")), false),
            (by(None, Some("0xab")), true),
            (by(Some("S"), None), false),
            (by(Some(""), None), false),
            (by(Some(" "), Some("0xab")), false),
            (by(None, None), false),
        ];
        for (selector, names) in rows {
            assert_eq!(selector.names(&disk("S1", "0xab")), names, "{selector:?}");
        }
        assert!(!by(Some(""), None).names(&disk("", "")));
    }

    #[test]
    fn a_report_is_of_a_disk_by_what_is_unique_of_it() {
        let report = ErasedDisk::of(&disk("S1", "0xab"));
        assert!(report.is_of(&disk("S2", "0xAB")) && !report.is_of(&disk("S1", "0xcd")));
        let report = ErasedDisk::of(&disk("S1", ""));
        assert!(report.is_of(&disk("s1", "0xcd")) && !report.is_of(&disk("S2", "")));
        assert!(ErasedDisk::of(&disk("", "")).is_of(&disk("S2", "")), "by its name, if it has nothing else");
    }

    #[test]
    fn results_are_ordered() {
        use EraseResult::{Cleared, MetadataRemoved, NotDone, Purged};
        assert!(NotDone < MetadataRemoved && MetadataRemoved < Cleared && Cleared < Purged);
    }
}
