//! What is refused and what is warned of before a host is stored.

use crate::kit::new_host;
use api::metal3::{
    BareMetalHost, BareMetalHostSpec, BareMetalHostStatus, BootMode, CustomDeploy, DiskFormat, HardwareRaidVolume,
    Image, InspectionMode, NetworkInterface, Raid, SecretReference, SoftwareRaidVolume, Taint, annotation, label,
};
use host_lifecycle::{Served, review};
use inventory::{HardwareDetails, Nic, RootDeviceHints};
use serde_json::{Value, json};
use std::sync::Arc;

fn object(case: &Value, field: &str) -> Option<BareMetalHost> {
    let mut object = case.get(field)?.clone();
    let metadata = object.as_object_mut().unwrap().entry("metadata").or_insert_with(|| json!({}));
    let metadata = metadata.as_object_mut().unwrap();
    metadata.entry("name").or_insert_with(|| json!("worker-0"));
    metadata.entry("namespace").or_insert_with(|| json!("metal"));
    Some(serde_json::from_value(object).unwrap())
}

#[test]
fn the_same_is_refused_as_upstream_refuses() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/admission.json")).unwrap();
    assert!(cases.len() > 700);
    let mut differ = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let (new, old) = (object(case, "new").unwrap(), object(case, "old"));
        let found = review(&new, old.as_ref(), &Served::default(), None);
        let denied = !found.denials.is_empty();
        if denied != case["denied"].as_bool().unwrap() {
            differ.push(format!("{name}: {:?}", found.denials));
        }
    }
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}

fn warnings(edit: impl FnOnce(&mut BareMetalHostSpec), served: &Served) -> Vec<String> {
    let mut host = new_host();
    edit(&mut host.spec);
    let found = review(&host, None, served, None);
    assert_eq!(found.denials, [""; 0]);
    found.warnings
}

fn image(url: &str, format: DiskFormat) -> Image {
    Image { url: url.into(), checksum: Some("0".repeat(64)), format: Some(format), ..Image::default() }
}

#[test]
fn what_nobody_serves_is_warned_of() {
    type Edit = fn(&mut BareMetalHostSpec);
    let all = Served {
        live_iso: true,
        hardware_raid: true,
        software_raid: true,
        fast_inspection: true,
        custom_deploy: true,
        legacy_boot: true,
        secure_boot: true,
        architectures: Vec::new(),
        ..Served::default()
    };
    let none = Served {
        architectures: vec!["x86_64".into()],
        needs_boot_mac: true,
        image_formats: vec![DiskFormat::Raw, DiskFormat::Qcow2],
        image_schemes: vec!["http".into(), "https".into()],
        ..Served::default()
    };
    let cases: [(&str, Edit); 11] = [
        ("bootMode", |s| s.boot_mode = Some(BootMode::Legacy)),
        ("inspectionMode", |s| s.inspection_mode = Some(InspectionMode::Fast)),
        ("UEFISecureBoot", |s| s.boot_mode = Some(BootMode::UefiSecureBoot)),
        ("bootMACAddress", |s| s.boot_mac_address = None),
        ("hardwareRAIDVolumes", |s| {
            let volume = HardwareRaidVolume { level: "1".into(), ..HardwareRaidVolume::default() };
            s.raid = Some(Raid { hardware_raid_volumes: Some(vec![volume]), ..Raid::default() });
        }),
        ("softwareRAIDVolumes", |s| {
            let volume = SoftwareRaidVolume { level: "1".into(), ..SoftwareRaidVolume::default() };
            s.raid = Some(Raid { software_raid_volumes: Some(vec![volume]), ..Raid::default() });
        }),
        ("live-iso", |s| s.image = Some(Image { checksum: None, ..image("http://a/b", DiskFormat::LiveIso) })),
        ("vmdk", |s| s.image = Some(image("http://a/b", DiskFormat::Vmdk))),
        ("scheme ftp", |s| s.image = Some(image("FTP://a/b", DiskFormat::Raw))),
        ("customDeploy", |s| s.custom_deploy = Some(CustomDeploy { method: "x".into() })),
        ("architecture", |s| s.architecture = Some("aarch64".into())),
    ];
    for (word, edit) in cases {
        let found = warnings(edit, &none);
        assert!(found.len() == 1 && found[0].contains(word), "{word}: {found:?}");
        assert_eq!(warnings(edit, &all), [""; 0], "{word} is served");
    }
    for read in ["http://a/b", "HTTPS://a/b"] {
        assert_eq!(warnings(|s| s.image = Some(image(read, DiskFormat::Qcow2)), &none), [""; 0], "{read}");
    }
    for same in ["amd64", "x86_64", "AMD64"] {
        assert_eq!(warnings(|s| s.architecture = Some(same.into()), &none), [""; 0]);
    }
    let ignored = |s: &mut BareMetalHostSpec| {
        s.taints = vec![Taint { effect: "NoSchedule".into(), key: "a".into(), time_added: None, value: None }];
        s.network_interfaces = vec![NetworkInterface { name: Some("a".into()), ..NetworkInterface::default() }];
    };
    let found = warnings(ignored, &all);
    assert!(found.len() == 2 && found[0].contains("taints") && found[1].contains("networkInterfaces"), "{found:?}");
}

#[test]
fn a_pull_secret_is_for_images_in_registries() {
    let served =
        Served { live_iso: true, image_schemes: ["http", "oci"].map(ToOwned::to_owned).to_vec(), ..Served::default() };
    let with_secret = |url: &str, format| {
        let checksum = url.starts_with("http").then(|| "00".repeat(32));
        let image = Image { oci_auth_secret_name: Some("pull".into()), checksum, ..image(url, format) };
        warnings(|s| s.image = Some(image.clone()), &served)
    };
    for url in ["oci://r.example/os:1", "OCI://r.example/os"] {
        assert_eq!(with_secret(url, DiskFormat::Raw), [""; 0], "{url}");
    }
    let found = with_secret("http://a/b", DiskFormat::Raw);
    assert!(found.len() == 1 && found[0].contains("ociAuthSecretName has no effect"), "{found:?}");
    let found = with_secret("oci://r.example/os:1", DiskFormat::LiveIso);
    assert!(found.len() == 1 && found[0].contains("names a registry"), "{found:?}");
}

#[test]
fn fields_that_a_live_iso_has_no_use_for_are_warned_of() {
    type Edit = fn(&mut BareMetalHostSpec);
    let all = Served { live_iso: true, ..Served::default() };
    let none = Served::default();
    let live: [(&str, Edit); 5] = [
        ("spec.image.checksum", |s| s.image = Some(image("http://a/b", DiskFormat::LiveIso))),
        ("spec.rootDeviceHints", |s| {
            s.root_device_hints = Some(RootDeviceHints { model: Some("x".into()), ..RootDeviceHints::default() });
        }),
        ("spec.userData", |s| s.user_data = Some(SecretReference { name: Some("x".into()), namespace: None })),
        ("spec.networkData", |s| s.network_data = Some(SecretReference { name: Some("x".into()), namespace: None })),
        ("spec.metaData", |s| s.meta_data = Some(SecretReference { name: Some("x".into()), namespace: None })),
    ];
    for (field, edit) in live {
        let iso = |s: &mut BareMetalHostSpec| {
            s.image = Some(Image { checksum: None, ..image("http://a/b", DiskFormat::LiveIso) });
            edit(s);
        };
        let found = warnings(iso, &all);
        assert!(found.len() == 1 && found[0].contains(field), "{field}: {found:?}");
        assert!(warnings(iso, &none).iter().all(|warning| !warning.contains(field)), "it is not served at all");
        let configures = Served { live_iso_config: true, ..all.clone() };
        let counts = field.ends_with("Data");
        assert_eq!(warnings(iso, &configures).is_empty(), counts, "{field}");
    }
    let disk = |s: &mut BareMetalHostSpec| {
        (s.image, s.user_data) = (
            Some(image("http://a/b", DiskFormat::Raw)),
            Some(SecretReference { name: Some("x".into()), namespace: None }),
        );
    };
    assert_eq!(warnings(disk, &all), [""; 0], "an image on a disk has them");
}

#[test]
fn an_address_that_is_not_served_is_warned_of_and_a_wrong_one_refused_once() {
    let mut host = new_host();
    let found = review(&host, None, &Served::default(), Some("not served here"));
    assert_eq!((found.denials.len(), found.warnings), (0, vec!["not served here".to_owned()]));
    host.spec.bmc.as_mut().unwrap().address = "nonsense://x".into();
    let found = review(&host, None, &Served::default(), Some("unknown"));
    assert_eq!((found.denials.len(), found.warnings.len()), (1, 0), "{found:?}");
}

#[test]
fn a_host_on_its_way_out_is_not_held_up() {
    let mut host = new_host();
    host.metadata.name = Some("6f1f3f0e-4e5e-4d7e-9a55-000000000001".into());
    assert_eq!(review(&host, Some(&host), &Served::default(), None).denials.len(), 1);
    host.metadata.deletion_timestamp = Some(api::Time("2026-01-01T00:00:00Z".parse().unwrap()));
    assert_eq!(review(&host, Some(&host), &Served::default(), None), host_lifecycle::Review::default());
}

#[test]
fn a_detached_annotation_that_cannot_be_read_is_warned_of() {
    let warned = |value: &str| {
        let mut host = new_host();
        host.metadata.annotations = Some([(annotation::DETACHED.to_owned(), value.to_owned())].into());
        review(&host, None, &Served::default(), None).warnings
    };
    for read in [
        "",
        "until Monday",
        "true",
        r#"{"force":true}"#,
        r#"{"deleteAction":"delay"}"#,
        r#"{"deleteaction":"delete","FORCE":null}"#,
    ] {
        assert_eq!(warned(read), [""; 0], "{read}");
    }
    for unread in [
        r#"{"force":"true"}"#,
        r#"{"deleteAction":"delay","force":"yes"}"#,
        "{force:true}",
        r#"{"deleteAction":"Delay"}"#,
        r#"{"force":true,"forced":1}"#,
        r#"["delay"]"#,
        "false",
    ] {
        let found = warned(unread);
        assert!(found.len() == 1 && found[0].contains("without force"), "{unread}: {found:?}");
    }
}

#[test]
fn fields_of_a_reboot_annotation_that_nobody_knows_are_warned_of() {
    let mut host = new_host();
    host.metadata.annotations =
        Some([(annotation::REBOOT.to_owned(), r#"{"mode":"hard","forced":true}"#.to_owned())].into());
    let found = review(&host, None, &Served::default(), None);
    assert_eq!((found.denials.len(), found.warnings.len()), (0, 1), "{found:?}");
    assert!(found.warnings[0].contains("forced"));
}

#[test]
fn a_mistyped_annotation_is_warned_of_once_with_the_one_that_is_meant() {
    let annotated = |key: &str| {
        let mut host = new_host();
        host.metadata.annotations = Some([(key.to_owned(), String::new())].into());
        host
    };
    for (key, meant) in [
        ("inspect.metal3.io/hardwaredetail", "\"inspect.metal3.io/hardwaredetails\""),
        ("baremetalhost.metal3.io/detach", "\"baremetalhost.metal3.io/detached\""),
        ("baremetalhost.metal3.io/Paused", "\"baremetalhost.metal3.io/paused\""),
        ("baremetalhosts.metal3.io/paused", "\"baremetalhost.metal3.io/paused\""),
        ("metamorph.metal3.io/overwrite_owner", "\"metamorph.metal3.io/overwrite-owner\""),
        ("metamorph.metal3.io/freeze", "on the namespace"),
        ("reboot.metal3.i/", "\"reboot.metal3.io\""),
        ("rebot.metal3.io/night", "\"reboot.metal3.io/night\""),
        ("erboot.metal3.io", "\"reboot.metal3.io\""),
        ("inspct.metal3.io", "\"inspect.metal3.io\""),
    ] {
        let host = annotated(key);
        let found = review(&host, None, &Served::default(), None);
        assert_eq!(found.denials, [""; 0], "{key}");
        let [warning] = &found.warnings[..] else { panic!("{key}: {:?}", found.warnings) };
        assert!(warning.contains(&format!("\"{key}\"")) && warning.contains(meant), "{warning}");
        assert_eq!(review(&host, Some(&host), &Served::default(), None).warnings, [""; 0], "{key}");
        assert_eq!(review(&host, Some(&new_host()), &Served::default(), None).warnings.len(), 1, "{key}");
    }
    for others in [
        "baremetalhost.metal3.io/paused",
        "baremetalhost.metal3.io/status",
        "inspect.metal3.io",
        "inspect.metal3.io/hardwaredetails",
        "reboot.metal3.io/metal3-remediation-1",
        "reboot.metal3.io/capbm-requested-power-off",
        "metamorph.metal3.io/provisioner",
        "metamorph.metal3.io/claim-reboot",
        "metal3.io/BareMetalHost",
        "metal3.io/uuid",
        "metal3.io/hostclaim",
        "metal3.io/metal3-label-sync-prefixes",
        "capm3.metal3.io/unhealthy",
        "capi.metal3.io/unhealthy",
        "ipam.metal3.io/ipaddress",
        "host.metal3.io/external-remediation",
        "environment.metal3.io",
        "cluster.x-k8s.io/paused",
        "clusterctl.cluster.x-k8s.io/block-move",
        "kubectl.kubernetes.io/last-applied-configuration",
        "baremetal.openshift.io/owner",
    ] {
        assert_eq!(review(&annotated(others), None, &Served::default(), None).warnings, [""; 0], "{others}");
    }
}

#[test]
fn a_word_that_approves_nothing_is_warned_of_when_it_is_written() {
    let host = |word: &str, by: Option<&str>, is_managed: bool| {
        let mut host = new_host();
        let by = by.map(|by| (annotation::DISCOVERED_BY.to_owned(), by.to_owned()));
        host.metadata.annotations =
            Some(by.into_iter().chain([(annotation::APPROVE.to_owned(), word.to_owned())]).collect());
        if !is_managed {
            host.spec.bmc = None;
        }
        host
    };
    for (word, by, is_managed, said) in [
        ("true", Some("rack"), false, None),
        ("false", Some("rack"), false, None),
        ("True", Some("rack"), false, Some("\"True\" approves nothing")),
        ("yes", None, false, Some("\"yes\" approves nothing")),
        ("true", None, false, Some("was not discovered")),
        ("true", Some("rack"), true, Some("has BMC details already")),
    ] {
        let host = host(word, by, is_managed);
        let found = review(&host, None, &Served::default(), None).warnings;
        assert_eq!(found.len(), usize::from(said.is_some()), "{word} {by:?}: {found:?}");
        assert!(said.is_none_or(|said| found[0].contains(said)), "{found:?}");
        assert_eq!(review(&host, Some(&host), &Served::default(), None).warnings, [""; 0], "it is said once");
    }
}

#[test]
fn a_first_boot_mac_address_that_the_inspected_machine_does_not_have_is_warned_of() {
    let mut old = new_host();
    old.spec.boot_mac_address = None;
    let mut inspected = old.clone();
    let nic = Nic { name: Some("eno1".into()), mac: Some("00:11:22:33:44:66".into()), ..Nic::default() };
    let details = HardwareDetails { nics: vec![nic], ..HardwareDetails::default() };
    inspected.status =
        Some(BareMetalHostStatus { hardware: Some(Arc::new(details)), ..BareMetalHostStatus::default() });
    let given = |old: &BareMetalHost, mac: &str| {
        let mut new = old.clone();
        new.spec.boot_mac_address = Some(mac.into());
        review(&new, Some(old), &Served::default(), None)
    };
    let found = given(&inspected, "00:11:22:33:44:77");
    let [warning] = &found.warnings[..] else { panic!("{found:?}") };
    assert!(found.denials.is_empty(), "as upstream: {found:?}");
    for part in ["00:11:22:33:44:77", "00:11:22:33:44:66", "cannot be changed", "create it anew"] {
        assert!(warning.contains(part), "{warning}");
    }
    assert_eq!(given(&inspected, "00:11:22:33:44:66"), host_lifecycle::Review::default());
    assert_eq!(given(&old, "00:11:22:33:44:77"), host_lifecycle::Review::default(), "nothing is known yet");
    inspected.spec.boot_mac_address = Some("00:11:22:33:44:77".into());
    assert_eq!(given(&inspected, "00:11:22:33:44:77").warnings, [""; 0], "it is no news");
    // What only the BMC has listed is a doubt.
    inspected.spec.boot_mac_address = None;
    Arc::make_mut(inspected.status.as_mut().unwrap().hardware.as_mut().unwrap()).nics[0].name = None;
    let found = given(&inspected, "00:11:22:33:44:77");
    let [warning] = &found.warnings[..] else { panic!("{found:?}") };
    assert!(warning.contains("its BMC lists") && !warning.contains("create it anew"), "{warning}");
    assert_eq!(given(&inspected, "00:11:22:33:44:66"), host_lifecycle::Review::default());
}

/// Of a provisioner of which nothing is known, nothing is said beforehand: whatever a host can ask for is in it.
#[test]
fn everything_is_all_that_a_host_can_ask_for() {
    let all = serde_json::to_value(Served::everything()).unwrap();
    let mut no: Vec<&String> =
        all.as_object().unwrap().iter().filter(|(_, can)| **can == false).map(|(of, _)| of).collect();
    no.sort();
    // What is told of a machine, and what it needs.
    assert_eq!(
        no,
        ["diagnose", "health", "locate", "logs", "marksDisks", "needsBootMac", "provesIdentity", "testMedium"]
    );
}

#[test]
fn a_word_that_switches_no_diagnosis_is_warned_of_when_it_is_written() {
    let of = |word: Option<&str>| {
        let mut host = new_host();
        host.metadata.labels = word.map(|word| [(label::ERROR_DETECT.to_owned(), word.to_owned())].into());
        host
    };
    let warned = |new: Option<&str>, old: Option<Option<&str>>| {
        let old = old.map(of);
        review(&of(new), old.as_ref(), &Served::default(), None)
            .warnings
            .iter()
            .filter(|said| said.contains("label error-detect: "))
            .count()
    };
    for word in ["True", "yes", "on", "", "FALSE"] {
        assert_eq!(warned(Some(word), None), 1, "{word}");
        assert_eq!(warned(Some(word), Some(Some("true"))), 1, "{word}");
        assert_eq!(
            warned(Some(word), Some(Some(word))),
            0,
            "who writes something else does not hear of it again: {word}"
        );
    }
    for word in [None, Some("true"), Some("false")] {
        assert_eq!(warned(word, Some(Some("yes"))), 0, "{word:?}");
    }
}
