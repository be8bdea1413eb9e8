//! Root device hints: which disk an image goes to.
//!
//! Meanings are those of baremetal-operator's mapping to Ironic (`root_device`): `deviceName`, `hctl`, `serialNumber` and
//! `wwn*` are equal without regard to case, `model` and `vendor` are contained, `minSizeGigabytes` is a lower bound, and all given
//! hints must hold. Without any hint the smallest disk of at least 4 GiB is taken, ties by name (Ironic's agent does so).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Storage;

/// Smallest disk that is chosen without hints, in bytes.
const MIN_UNHINTED: i64 = 4 << 30;

/// `spec.rootDeviceHints` of a BareMetalHost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootDeviceHints {
    /// `/dev/sda`, or `/dev/disk/by-path/…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// SCSI address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hctl: Option<String>,
    /// Part of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Part of the vendor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    /// Least size in GiB (upstream's name says gigabytes; Ironic counts GiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size_gigabytes: Option<i64>,
    /// World wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// World wide name with extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn_with_extension: Option<String>,
    /// Vendor extension of the world wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn_vendor_extension: Option<String>,
    /// Rotating or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
}

/// Why no disk could be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintMismatch {
    /// The hints in words, empty when none were given.
    pub hints: String,
    /// One entry a disk: its name and the first hint it fails.
    pub disks: Vec<(String, String)>,
}

impl std::fmt::Display for HintMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.disks.is_empty() {
            return write!(f, "the machine has no disk");
        }
        if self.hints.is_empty() {
            write!(f, "no disk has at least 4 GiB")?;
        } else {
            write!(f, "no disk matches the root device hints ({})", self.hints)?;
        }
        for (i, (disk, why)) in self.disks.iter().enumerate() {
            write!(f, "{}{disk}: {why}", if i == 0 { "; found " } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for HintMismatch {}

impl RootDeviceHints {
    /// Whether no hint is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The hints in words, `serialNumber=abc, minSizeGigabytes>=20`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut parts = Vec::new();
        let texts = [
            ("deviceName", &self.device_name),
            ("hctl", &self.hctl),
            ("model", &self.model),
            ("vendor", &self.vendor),
            ("serialNumber", &self.serial_number),
            ("wwn", &self.wwn),
            ("wwnWithExtension", &self.wwn_with_extension),
            ("wwnVendorExtension", &self.wwn_vendor_extension),
        ];
        for (name, value) in texts {
            if let Some(v) = value {
                parts.push(format!("{name}={v}"));
            }
        }
        if let Some(v) = self.min_size_gigabytes {
            parts.push(format!("minSizeGigabytes>={v}"));
        }
        if let Some(v) = self.rotational {
            parts.push(format!("rotational={v}"));
        }
        parts.join(", ")
    }

    /// The first hint that `disk` fails, in words; `None` if it matches all.
    #[must_use]
    pub fn mismatch(&self, disk: &Storage) -> Option<String> {
        if let Some(want) = &self.device_name {
            let named = disk.name.iter().chain(&disk.alternate_names).any(|n| n.eq_ignore_ascii_case(want));
            if !named {
                return Some(format!("is not named {want}"));
            }
        }
        let equal = [
            ("hctl", &self.hctl, &disk.hctl),
            ("serialNumber", &self.serial_number, &disk.serial_number),
            ("wwn", &self.wwn, &disk.wwn),
            ("wwnWithExtension", &self.wwn_with_extension, &disk.wwn_with_extension),
            ("wwnVendorExtension", &self.wwn_vendor_extension, &disk.wwn_vendor_extension),
        ];
        for (name, want, have) in equal {
            if let Some(want) = want
                && !have.as_ref().is_some_and(|h| h.eq_ignore_ascii_case(want))
            {
                return Some(format!("{name} is {}", have.as_deref().unwrap_or("unknown")));
            }
        }
        for (name, want, have) in [("model", &self.model, &disk.model), ("vendor", &self.vendor, &disk.vendor)] {
            if let Some(want) = want {
                let have = have.as_deref().unwrap_or("");
                if !have.to_ascii_lowercase().contains(&want.to_ascii_lowercase()) {
                    return Some(format!("{name} is \"{have}\""));
                }
            }
        }
        if let Some(gib) = self.min_size_gigabytes
            && disk.size_bytes.unwrap_or(0) < gib.saturating_mul(1 << 30)
        {
            return Some(format!("has {} GiB", disk.size_bytes.unwrap_or(0) >> 30));
        }
        if let Some(want) = self.rotational
            && disk.rotational != Some(want)
        {
            return Some(format!("rotational is {:?}", disk.rotational.unwrap_or_default()));
        }
        None
    }
}

/// The disk that the hints choose: the first that matches all, or, without hints, the smallest of at least 4 GiB.
///
/// # Errors
/// [`HintMismatch`] with each disk and the first hint it fails.
pub fn choose_root_disk<'a>(hints: &RootDeviceHints, disks: &'a [Storage]) -> Result<&'a Storage, HintMismatch> {
    let name = |d: &Storage| d.name.clone().unwrap_or_else(|| "(unnamed disk)".to_owned());
    if hints.is_empty() {
        let mut fit: Vec<&Storage> = disks.iter().filter(|d| d.size_bytes.unwrap_or(0) >= MIN_UNHINTED).collect();
        fit.sort_by_key(|d| (d.size_bytes, d.name.clone()));
        return fit.first().copied().ok_or_else(|| HintMismatch {
            hints: String::new(),
            disks: disks.iter().map(|d| (name(d), format!("{} bytes", d.size_bytes.unwrap_or(0)))).collect(),
        });
    }
    let mut why = Vec::new();
    for disk in disks {
        match hints.mismatch(disk) {
            None => return Ok(disk),
            Some(reason) => why.push((name(disk), reason)),
        }
    }
    Err(HintMismatch { hints: hints.describe(), disks: why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, gib: i64) -> Storage {
        Storage {
            name: Some(format!("/dev/disk/by-path/{name}")),
            alternate_names: vec![format!("/dev/{name}")],
            size_bytes: Some(gib << 30),
            serial_number: Some(format!("SN-{name}")),
            model: Some("Fast Disk 9000".to_owned()),
            rotational: Some(false),
            ..Storage::default()
        }
    }

    #[test]
    fn without_hints_the_smallest_disk_of_four_gib() {
        let disks = [disk("a", 100), disk("b", 3), disk("c", 8), disk("d", 8)];
        let chosen = choose_root_disk(&RootDeviceHints::default(), &disks).unwrap();
        assert_eq!(chosen.alternate_names, ["/dev/c"]);
    }

    #[test]
    fn every_hint_must_hold() {
        let disks = [disk("a", 100), disk("b", 200)];
        let mut hints = RootDeviceHints { model: Some("fast".into()), ..RootDeviceHints::default() };
        assert_eq!(choose_root_disk(&hints, &disks).unwrap().alternate_names, ["/dev/a"]);
        hints.min_size_gigabytes = Some(150);
        assert_eq!(choose_root_disk(&hints, &disks).unwrap().alternate_names, ["/dev/b"]);
        hints.serial_number = Some("sn-a".into());
        let error = choose_root_disk(&hints, &disks).unwrap_err().to_string();
        assert!(error.contains("serialNumber=sn-a") && error.contains("has 100 GiB"), "{error}");
    }

    #[test]
    fn both_names_of_a_device_match() {
        let disks = [disk("a", 10)];
        for name in ["/dev/a", "/dev/disk/by-path/a"] {
            let hints = RootDeviceHints { device_name: Some(name.into()), ..RootDeviceHints::default() };
            assert!(choose_root_disk(&hints, &disks).is_ok());
        }
    }

    #[test]
    fn a_machine_without_disks_says_so() {
        assert_eq!(
            choose_root_disk(&RootDeviceHints::default(), &[]).unwrap_err().to_string(),
            "the machine has no disk"
        );
    }
}
