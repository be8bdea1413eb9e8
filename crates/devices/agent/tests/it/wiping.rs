//! Which disks a wipe takes, which it leaves, and when it refuses: on machines made of files.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use agent_protocol::{Action, CommandError, DiskMark, ErrorCode, LeftDisk, Outcome, WipeDisks};
use inventory::{DiskType, RootDeviceHints, Storage};
use tempfile::TempDir;

use crate::common::{add_disk, add_disk_at, machine_root, outcomes};

const MIB: u64 = 1 << 20;
const FC: &str = "sys/devices/pci0000:00/0000:08:00.1/host7/rport-7:0-1/target7:0:1/7:0:1:2";
const ISCSI: &str = "sys/devices/platform/host3/session1/target3:0:0/3:0:0:1";
const FABRIC: &str = "sys/devices/virtual/nvme-fabrics/ctl/nvme1";

/// What lies on a disk that somebody uses.
const DATA: &[u8] = b"somebody's data";

/// Writes at a place of the machine's disk.
fn put(root: &Path, disk: &str, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(root.join("dev").join(disk)).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Whether the data that was put at the beginning is still there.
fn has_data(root: &Path, disk: &str) -> bool {
    std::fs::read(root.join("dev").join(disk)).unwrap().starts_with(DATA)
}

/// A machine with a disk of its own, one on Fibre Channel, one by iSCSI, one of a fabric.
fn machine_with_networks() -> TempDir {
    let folder = machine_root();
    let root = folder.path();
    add_disk(root, "vda", 4, 64 * MIB);
    add_disk_at(root, "sda", FC, 64 * MIB);
    add_disk_at(root, "sdb", ISCSI, 64 * MIB);
    add_disk_at(root, "nvme1n1", FABRIC, 64 * MIB);
    std::fs::write(root.join(FABRIC).join("transport"), "tcp\n").unwrap();
    for disk in ["vda", "sda", "sdb", "nvme1n1"] {
        put(root, disk, 0, DATA);
    }
    folder
}

fn mark() -> DiskMark {
    DiskMark { owner: "owner-1".into(), host: "ns/node-1".into(), operation: "op".into(), consent: None }
}

fn order(expected: Option<Vec<Storage>>, named: RootDeviceHints) -> Action {
    Action::WipeDisks(Box::new(WipeDisks { mark: mark(), requires_mark: false, expected, named }))
}

fn disk(name: &str, serial: &str) -> Storage {
    Storage {
        name: Some(format!("/dev/disk/by-path/{name}")),
        serial_number: Some(serial.into()),
        ..Storage::default()
    }
}

/// Wipes, on a machine that has run nothing before.
async fn wipe(root: &Path, order: Action) -> Outcome {
    let _ = std::fs::remove_dir_all(root.join("run"));
    outcomes(root, vec![order]).await.remove(0)
}

fn wiped(outcome: &Outcome) -> (Vec<&str>, &[LeftDisk]) {
    match outcome {
        Outcome::Wiped { disks, left } => (disks.iter().map(String::as_str).collect(), left),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_the_inspection_knew_and_that_is_absent_fails_the_wipe_and_is_named() {
    let folder = machine_root();
    let root = folder.path();
    add_disk(root, "vda", 4, 64 * MIB);
    put(root, "vda", 0, DATA);
    let known = vec![disk("pci-0000:00:04.0", "SN-vda"), disk("pci-0000:81:00.0-sas-phy4-lun-0", "SN-gone")];
    let outcome = wipe(root, order(Some(known.clone()), RootDeviceHints::default())).await;
    let Outcome::Failed(error) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(error.code, ErrorCode::NoDisk);
    for part in [
        "1 of the 2 disks",
        "pci-0000:81:00.0-sas-phy4-lun-0 (serial number SN-gone)",
        "pci-0000:00:04.0",
        "nothing was changed",
    ] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
    }
    assert!(has_data(root, "vda"), "nothing is wiped while one is absent");

    let outcome = wipe(root, order(Some(known[..1].to_vec()), RootDeviceHints::default())).await;
    assert_eq!(wiped(&outcome).0, ["/dev/disk/by-path/pci-0000:00:04.0"]);
    assert!(!has_data(root, "vda"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_disk_is_a_success_only_where_the_inspection_found_none() {
    let folder = machine_root();
    let root = folder.path();
    for expected in [Some(vec![disk("pci-0000:00:04.0", "SN-vda")]), None] {
        let outcome = wipe(root, order(expected, RootDeviceHints::default())).await;
        let Outcome::Failed(error) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(error.code, ErrorCode::NoDisk);
    }
    let outcome = wipe(root, order(Some(vec![]), RootDeviceHints::default())).await;
    assert_eq!(wiped(&outcome), (vec![], &[][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_that_a_network_carries_are_left_unless_they_are_named() {
    let folder = machine_with_networks();
    let root = folder.path();
    let outcome = wipe(root, order(None, RootDeviceHints::default())).await;
    let (disks, left) = wiped(&outcome);
    assert_eq!(disks, ["/dev/disk/by-path/pci-0000:00:04.0"]);
    let why: Vec<(&str, bool)> = left.iter().map(|left| (left.disk.as_str(), left.why.is_empty())).collect();
    assert_eq!(why, [("/dev/nvme1n1", false), ("/dev/sda", false), ("/dev/sdb", false)], "{left:?}");
    for (left, network) in left.iter().zip(["NVMe over Fabrics", "Fibre Channel", "iSCSI"]) {
        assert!(left.why.contains(network), "{left:?}");
    }
    assert!(!has_data(root, "vda"));
    assert!(["sda", "sdb", "nvme1n1"].iter().all(|disk| has_data(root, disk)));

    // Hints that many disks fit name none; a serial number names one.
    let broad = RootDeviceHints { rotational: Some(false), ..RootDeviceHints::default() };
    assert_eq!(wiped(&wipe(root, order(None, broad)).await).1.len(), 3);
    let named = RootDeviceHints { serial_number: Some("SN-sda".into()), ..RootDeviceHints::default() };
    let outcome = wipe(root, order(None, named)).await;
    assert_eq!(wiped(&outcome).0, ["/dev/sda", "/dev/disk/by-path/pci-0000:00:04.0"]);
    assert!(!has_data(root, "sda") && has_data(root, "sdb"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_carries_this_hosts_own_mark_is_its_own_wherever_it_is() {
    let folder = machine_with_networks();
    let root = folder.path();
    for (name, owner) in [("sda", "owner-1"), ("sdb", "owner-2")] {
        let path = root.join("dev").join(name);
        let table = Command::new("sgdisk").args(["-n", "1:8192:+8M"]).arg(&path).output().expect("sgdisk is needed");
        assert!(table.status.success(), "{table:?}");
        let disk = disk_image::FileDisk::open(&path, 512).unwrap();
        let mark = disk_image::Mark {
            owner: owner.into(),
            host: "ns/node-1".into(),
            operation: "o".into(),
            written: String::new(),
        };
        let placed = disk_image::write_mark(&disk, &mark).unwrap();
        assert!(!matches!(placed, disk_image::MarkPlaced::NoRoom { .. }), "{placed:?}");
    }
    let outcome = wipe(root, order(None, RootDeviceHints::default())).await;
    let (disks, left) = wiped(&outcome);
    assert!(disks.contains(&"/dev/sda"), "{disks:?}");
    // Another host's disk is not touched, so that its mark does not stand in the way.
    assert!(left.iter().any(|left| left.disk == "/dev/sdb"), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn disks_with_a_cluster_file_system_are_left_unless_they_are_named() {
    let folder = machine_root();
    let root = folder.path();
    let cases: [(&str, &str, u64, &[u8]); 4] = [
        ("vda", "GFS2", 64 << 10, &[1, 0x16, 0x19, 0x70, 0, 0, 0, 1]),
        ("vdb", "OCFS2", 8 << 10, b"OCFSV2"),
        ("vdc", "VMFS", 2 << 20, &[0x5e, 0xf1, 0xab, 0x2f]),
        ("vdd", "", 8 << 20, b"OCFSV2"),
    ];
    for (slot, (name, _, at, signature)) in (4..).zip(cases) {
        add_disk(root, name, slot, 64 * MIB);
        put(root, name, 0, DATA);
        put(root, name, at, signature);
    }
    let outcome = wipe(root, order(None, RootDeviceHints::default())).await;
    let (disks, left) = wiped(&outcome);
    assert_eq!(disks, ["/dev/disk/by-path/pci-0000:00:07.0"]);
    assert_eq!(left.len(), 3, "{left:?}");
    for (left, (name, kind, ..)) in left.iter().zip(cases) {
        assert!(left.why.contains(kind) && has_data(root, name), "{left:?}");
    }
    // A name that another disk may have at the next boot says which one is meant only with what had it when the machine was inspected.
    let named = RootDeviceHints { device_name: Some("/dev/vdc".into()), ..RootDeviceHints::default() };
    let called = |serial: &str| Storage {
        name: Some("/dev/vdc".into()),
        serial_number: Some(serial.into()),
        disk_type: Some(DiskType::NVME),
        ..Storage::default()
    };
    let outcome = wipe(root, order(None, named.clone())).await;
    assert_eq!(wiped(&outcome).1.len(), 3, "{outcome:?}");
    let outcome = wipe(root, order(Some(vec![called("SN-elsewhere")]), named.clone())).await;
    let is_absent = |error: &CommandError| error.code == ErrorCode::NoDisk && error.message.contains("SN-elsewhere");
    assert!(matches!(&outcome, Outcome::Failed(error) if is_absent(error)), "{outcome:?}");
    assert!(has_data(root, "vdc"));
    let outcome = wipe(root, order(Some(vec![called("SN-vdc")]), named)).await;
    assert_eq!(wiped(&outcome).1.len(), 2);
    assert!(!has_data(root, "vdc"));
}
