//! Each rule, kept and broken.

use crate::kit::{image, new_host};
use api::metal3::{
    BareMetalHostSpec, ChecksumType, DiskFormat, FirmwareConfig, HardwareRaidVolume, InspectionMode, NetworkInterface,
    Raid, SecretReference, SoftwareRaidVolume, annotation,
};
use host_lifecycle::validate;
use inventory::RootDeviceHints;

/// The violations of a host with this edit, as one text.
fn violations(edit: impl FnOnce(&mut BareMetalHostSpec)) -> String {
    let mut host = new_host();
    edit(&mut host.spec);
    host.spec.taints.clear();
    text(validate(&host))
}

fn annotated(key: &str, value: &str, mode: Option<InspectionMode>) -> String {
    let mut host = new_host();
    host.spec.inspection_mode = mode;
    host.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
    text(validate(&host))
}

fn text(result: Result<(), Vec<host_lifecycle::Violation>>) -> String {
    let list = result.err().unwrap_or_default();
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn broken(found: &str, word: &str) {
    assert!(found.contains(word), "\"{found}\" does not say \"{word}\"");
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn a_plain_host_is_sound() {
    assert_eq!(violations(|_| {}), "");
    assert_eq!(violations(|s| s.image = Some(image(""))), "");
}

#[test]
fn image_urls() {
    for url in ["http://a/b", "https://a/b", "ftp://a/b", "gopher://a/b", "HTTPS://a/b"] {
        assert_eq!(violations(|s| s.image = Some(image(url))), "", "{url}");
    }
    broken(&violations(|s| s.image = Some(image("file:///etc/passwd"))), "scheme file");
    broken(&violations(|s| s.image = Some(image("not a url"))), "not a URL");
}

#[test]
fn checksums() {
    let bare = |url: &str, format| {
        let mut bare = image(url);
        bare.checksum = None;
        bare.format = format;
        bare
    };
    broken(&violations(|s| s.image = Some(bare("https://a/b", None))), "checksum is not set");
    assert_eq!(violations(|s| s.image = Some(bare("https://a/b.iso", Some(DiskFormat::LiveIso)))), "");
    assert_eq!(violations(|s| s.image = Some(bare("oci://a/b", None))), "");
    broken(&violations(|s| s.image = Some(image("oci://a/b"))), "remove it");
    let mut empty = bare("https://a/b", None);
    empty.checksum = Some(String::new());
    broken(&violations(|s| s.image = Some(empty)), "checksum is not set");
    let with = |text: &str, kind| {
        let mut with = bare("https://a/b", None);
        (with.checksum, with.checksum_type) = (Some(text.to_owned()), kind);
        violations(|s| s.image = Some(with))
    };
    let (md5, sha256, sha512) = ("aB".repeat(16), "0".repeat(64), "f".repeat(128));
    for (text, kind) in [
        (md5.as_str(), None),
        (&sha256, Some(ChecksumType::Auto)),
        (&sha512, Some(ChecksumType::Sha512)),
        (&format!(" {sha256}\n"), Some(ChecksumType::Sha256)),
        ("https://a/SHA256SUMS", Some(ChecksumType::Sha256)),
    ] {
        assert_eq!(with(text, kind), "", "{text}");
    }
    for (text, kind, says) in [
        ("zz", None, "is \"zz\", which is neither"),
        (&"z".repeat(64), None, "neither an http or https URL nor a digest"),
        (&md5, Some(ChecksumType::Sha256), "SHA-256 has 64"),
        (&format!("sha256:{sha256}"), None, "digest in hexadecimal digits"),
        ("file:///SHA256SUMS", None, "neither an http or https URL"),
        ("http://", None, "is not a URL"),
        (&"ä".repeat(16), None, "neither"),
    ] {
        broken(&with(text, kind), says);
    }
}

#[test]
fn secrets_of_other_namespaces() {
    let other = |n: &str| Some(SecretReference { name: Some("s".into()), namespace: Some(n.into()) });
    broken(&violations(|s| s.user_data = other("elsewhere")), "spec.userData.namespace");
    broken(&violations(|s| s.network_data = other("elsewhere")), "spec.networkData.namespace");
    broken(&violations(|s| s.meta_data = other("elsewhere")), "spec.metaData.namespace");
    assert_eq!(violations(|s| s.user_data = other("metal")), "");
    assert_eq!(violations(|s| s.user_data = other("")), "");
}

#[test]
fn device_names() {
    let named = |n: &str| Some(RootDeviceHints { device_name: Some(n.into()), ..RootDeviceHints::default() });
    for name in ["/dev/sda", "/dev/disk/by-path/pci-0000:00:01.0", ""] {
        assert_eq!(violations(|s| s.root_device_hints = named(name)), "", "{name}");
    }
    for name in ["sda", "/dev/", "/dev/disk/by-id/x", "/dev/disk/by-path/", "/dev/../etc/x"] {
        broken(&violations(|s| s.root_device_hints = named(name)), "deviceName");
    }
}

#[test]
fn raid() {
    let hard = HardwareRaidVolume { level: "1".into(), ..HardwareRaidVolume::default() };
    let soft = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
    let root = SoftwareRaidVolume { root_volume: Some(true), ..soft.clone() };
    let of = |hard: &[HardwareRaidVolume], soft: &[SoftwareRaidVolume]| {
        Some(Raid { hardware_raid_volumes: Some(hard.to_vec()), software_raid_volumes: Some(soft.to_vec()) })
    };
    assert_eq!(violations(|s| s.raid = of(&[], std::slice::from_ref(&root))), "");
    broken(&violations(|s| s.raid = of(std::slice::from_ref(&hard), std::slice::from_ref(&soft))), "only one kind");
    let disks = HardwareRaidVolume { physical_disks: vec!["a".into(), "b".into()], ..hard.clone() };
    broken(&violations(|s| s.raid = of(std::slice::from_ref(&disks), &[])), "controller");
    let count = HardwareRaidVolume { controller: Some("c".into()), number_of_physical_disks: Some(3), ..disks };
    broken(&violations(|s| s.raid = of(&[count], &[])), "2 disks are named");
    broken(&violations(|s| s.raid = of(&[], &[root.clone(), root.clone()])), "more than one rootVolume");
    let zero = SoftwareRaidVolume { level: "0".into(), ..root.clone() };
    broken(&violations(|s| s.raid = of(&[], &[zero])), "level 1");
    broken(
        &violations(|s| {
            s.raid = of(&[], &[root]);
            s.root_device_hints = Some(RootDeviceHints { model: Some("m".into()), ..RootDeviceHints::default() });
        }),
        "names a disk",
    );
}

#[test]
fn things_no_longer_served_or_unknown() {
    broken(&violations(|s| s.firmware = Some(FirmwareConfig::default())), "spec.firmware");
    broken(&violations(|s| s.hardware_profile = Some("mainframe".into())), "mainframe");
    assert_eq!(violations(|s| s.hardware_profile = Some("libvirt".into())), "");
}

#[test]
fn power_that_contradicts_itself() {
    broken(
        &violations(|s| {
            s.online = false;
            s.disable_power_off = Some(true);
        }),
        "disablePowerOff",
    );
}

#[test]
fn a_host_that_is_not_inspected_needs_its_mac() {
    let without = |mode| {
        violations(|s| {
            s.boot_mac_address = None;
            s.inspection_mode = mode;
        })
    };
    assert_eq!(without(None), "");
    broken(&without(Some(InspectionMode::Disabled)), "bootMACAddress");
}

#[test]
fn interfaces() {
    let by = |name: Option<&str>, mac: Option<&str>| NetworkInterface {
        name: name.map(Into::into),
        mac_address: mac.map(Into::into),
        ..NetworkInterface::default()
    };
    assert_eq!(violations(|s| s.network_interfaces = vec![by(Some("a"), None), by(None, Some("m"))]), "");
    broken(&violations(|s| s.network_interfaces = vec![by(Some("a"), Some("m"))]), "either name or macAddress");
    broken(&violations(|s| s.network_interfaces = vec![by(None, None)]), "either name or macAddress");
    broken(&violations(|s| s.network_interfaces = vec![by(Some("a"), None), by(Some("A"), None)]), "twice");
}

#[test]
fn annotations() {
    for value in ["", "{}", r#"{"mode":"soft"}"#, r#"{"mode":"","force":true}"#] {
        assert_eq!(annotated(annotation::REBOOT, value, None), "", "{value}");
    }
    for value in ["now", r#"{"mode":"gentle"}"#, r#"{"force":1}"#, &"[".repeat(100_000)] {
        broken(&annotated("reboot.metal3.io/key", value, None), "allowed is");
    }
    assert_eq!(annotated("reboot.metal3.iou", "whatever", None), "");
    broken(&annotated(annotation::INSPECT, "please", None), "\"please\"");
    broken(&annotated(annotation::INSPECT, "disabled", Some(InspectionMode::Agent)), "asks for it");
    broken(&annotated(annotation::STATUS, r#"{"errorType":"no such error"}"#, None), "annotation");
    assert_eq!(annotated(annotation::HARDWARE_DETAILS, "{}", Some(InspectionMode::Disabled)), "");
    broken(&annotated(annotation::HARDWARE_DETAILS, "{}", None), "to be disabled");
    let nested = r#"{"nics":[{"name":"a","lldp":{"portID":"1","colour":2}}]}"#;
    broken(&annotated(annotation::HARDWARE_DETAILS, nested, Some(InspectionMode::Disabled)), "nics.lldp.colour");
}
