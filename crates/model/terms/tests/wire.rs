//! Names that custom resources, agents and recorded requests hold: an old one is read for ever.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use terms::{ChecksumType, DiskFormat, HealthLevel, PowerWish, Retry};

/// Each value with the name it is written by; any other name is refused.
fn names<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(values: &[(T, &str)]) {
    for (value, name) in values {
        assert_eq!(serde_json::to_value(value).unwrap(), serde_json::json!(name));
        assert_eq!(serde_json::from_value::<T>(serde_json::json!(name)).unwrap(), *value);
        let other = serde_json::json!(format!("{name}x"));
        assert!(serde_json::from_value::<T>(other).is_err(), "{name}x is taken for one");
    }
}

#[test]
fn every_value_keeps_its_name() {
    names(&[
        (DiskFormat::Raw, "raw"),
        (DiskFormat::Qcow2, "qcow2"),
        (DiskFormat::Vdi, "vdi"),
        (DiskFormat::Vmdk, "vmdk"),
        (DiskFormat::LiveIso, "live-iso"),
    ]);
    names(&[
        (ChecksumType::Md5, "md5"),
        (ChecksumType::Sha256, "sha256"),
        (ChecksumType::Sha512, "sha512"),
        (ChecksumType::Auto, "auto"),
    ]);
    names(&[(HealthLevel::OK, "OK"), (HealthLevel::Warning, "Warning"), (HealthLevel::Critical, "Critical")]);
    names(&[(PowerWish::On, "On"), (PowerWish::SoftOff, "SoftOff"), (PowerWish::HardOff, "HardOff")]);
    names(&[
        (Retry::Later, "Later"),
        (Retry::AfterChange, "AfterChange"),
        (Retry::Waiting, "Waiting"),
        (Retry::Held, "Held"),
        (Retry::AnotherMachine, "AnotherMachine"),
        (Retry::Unknown, "Unknown"),
    ]);
}

#[test]
fn formats_are_named_as_they_are_written() {
    for format in [DiskFormat::Raw, DiskFormat::Qcow2, DiskFormat::Vdi, DiskFormat::Vmdk, DiskFormat::LiveIso] {
        assert_eq!(serde_json::json!(format), format.as_str());
    }
}
