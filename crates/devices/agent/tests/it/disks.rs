//! Images written and disks wiped on a machine made of files, as the server orders it.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::common::{add_disk, machine_root, outcomes};
use agent_protocol::{
    Action, Authorization, ChecksumType, Compression, ConfigDrive, DiskFormat, DiskMark, ErrorCode, ImageSource,
    OWNER_EFI_VARIABLE, Outcome, WipeDisks, WriteImage, WriteSummary,
};
use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disk_image::{FileDisk, MarkFound, find_config_volumes, read_mark, read_partitions};
use inventory::{RootDeviceHints, Storage};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program} is needed: {e}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program} {arguments:?} failed:\n{text}");
    text
}

/// A disk image of 40 MiB with an EFI system partition that has a loader with a label.
pub fn image() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.raw");
    let text = path.to_str().unwrap();
    std::fs::File::create(&path).unwrap().set_len(40 * MIB).unwrap();
    run("sgdisk", &["-n", "1:2048:+20M", "-t", "1:ef00", "-n", "2:0:0", "-t", "2:8300", text]);
    let part = format!("{text}@@1M");
    run("mformat", &["-i", &part, "-T", "40960", "-h", "16", "-s", "32", "::"]);
    run("mmd", &["-i", &part, "::/EFI", "::/EFI/test"]);
    let csv: Vec<u8> = "shimx64.efi,Test OS,,a test\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, content) in [("shimx64.efi", b"loader".to_vec()), ("BOOTX64.CSV", [&[0xFF, 0xFE][..], &csv].concat())] {
        let file = folder.path().join(name);
        std::fs::write(&file, content).unwrap();
        run("mcopy", &["-i", &part, file.to_str().unwrap(), "::/EFI/test/"]);
    }
    std::fs::read(&path).unwrap()
}

pub struct Images {
    pub address: SocketAddr,
    pub sha256: String,
}

/// Serves the image, the beginning of it, and a checksum file.
pub async fn serve() -> Images {
    let bytes = image();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let list = format!("{}  other.raw\n{sha256} *image.raw\n", "0".repeat(64));
    let half = bytes[..bytes.len() / 2].to_vec();
    let router = Router::new()
        .route("/image.raw", get(async move || bytes.clone()))
        .route("/half.raw", get(async move || half.clone()))
        .route("/aside", get(async || axum::response::Redirect::temporary("http://169.254.169.254/image.raw")))
        .route("/SHA256SUMS", get(async move || list.clone()))
        .route("/broken.raw", get(async || StatusCode::NOT_FOUND));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Images { address, sha256 }
}

fn mark(owner: &str) -> DiskMark {
    DiskMark { owner: owner.into(), host: "ns/node-1".into(), operation: "op".into(), consent: None }
}

impl Images {
    pub fn order(&self, file: &str, owner: &str) -> WriteImage {
        WriteImage {
            image: ImageSource {
                url: format!("http://{}/{file}", self.address),
                format: DiskFormat::Raw,
                checksum: self.sha256.clone(),
                checksum_type: ChecksumType::Auto,
                compression: None,
                authorization: None,
                allowed_addresses: vec!["127.0.0.0/8".into()],
                sources: vec![],
                checksum_sources: vec![],
                proxy: None,
            },
            root_device_hints: RootDeviceHints { serial_number: Some("SN-vdb".into()), ..RootDeviceHints::default() },
            mark: mark(owner),
            config_drive: Some(ConfigDrive {
                meta_data: STANDARD.encode(r#"{"uuid":"u-1"}"#),
                network_data: None,
                user_data: Some(STANDARD.encode("#cloud-config\n")),
            }),
            known: Vec::new(),
        }
    }
}

/// A machine with two disks full of 0xFF; the first carries an old config drive.
pub fn machine() -> TempDir {
    let folder = machine_root();
    for (name, slot) in [("vda", 4), ("vdb", 5)] {
        add_disk(folder.path(), name, slot, 128 * MIB);
        std::fs::write(device(folder.path(), name), vec![0xFF; 128 << 20]).unwrap();
    }
    let vda = device(folder.path(), "vda");
    run("mformat", &["-i", &vda, "-v", "config-2", "-T", "262144", "-h", "16", "-s", "32", "::"]);
    folder
}

pub fn device(root: &Path, name: &str) -> String {
    root.join("dev").join(name).to_str().unwrap().to_owned()
}

pub fn open(root: &Path, name: &str) -> FileDisk {
    FileDisk::open(Path::new(&device(root, name)), 512).unwrap()
}

pub fn write(order: WriteImage) -> Action {
    Action::WriteImage(Box::new(order))
}

pub fn written(outcome: &Outcome) -> &WriteSummary {
    match outcome {
        Outcome::Written(summary) => summary,
        other => panic!("{other:?}"),
    }
}

pub fn failed(outcome: &Outcome) -> (ErrorCode, &str) {
    match outcome {
        Outcome::Failed(error) => (error.code, error.message.as_str()),
        other => panic!("{other:?}"),
    }
}

fn efivars(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("sys/firmware/efi/efivars")).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_written_marked_and_bootable_and_wiped_again() {
    let images = serve().await;
    let folder = machine();
    let root = folder.path();
    let found = outcomes(root, vec![write(images.order("image.raw", "owner-1"))]).await;
    let summary = written(&found[0]);
    assert_eq!(summary.disk, "/dev/disk/by-path/pci-0000:00:05.0");
    assert_eq!((summary.bytes_read, summary.image_bytes), (40 * MIB, 40 * MIB));
    assert_eq!(summary.digest, format!("sha256:{}", images.sha256));
    assert_eq!(summary.boot_entry.as_deref(), Some("Boot0000 \"metamorph Test OS\""));
    assert_eq!(summary.warnings, Vec::<String>::new());

    let vdb = device(root, "vdb");
    assert!(run("sgdisk", &["-v", &vdb]).contains("No problems found"));
    let disk = open(root, "vdb");
    assert!(matches!(read_mark(&disk).unwrap(), MarkFound::Owner(mark) if mark.owner == "owner-1"));
    assert_eq!(find_config_volumes(&disk).unwrap().len(), 1);
    assert!(find_config_volumes(&open(root, "vda")).unwrap().is_empty(), "the old config drive is gone");
    let record = std::fs::read(root.join("sys/firmware/efi/efivars").join(OWNER_EFI_VARIABLE)).unwrap();
    assert!(String::from_utf8_lossy(&record[4..]).contains("owner-1"));
    assert_eq!(efivars(root).len(), 3, "owner, order and entry: {:?}", efivars(root));

    // the same operation finds its work done, by a server that was restored from a backup for instance: what the system has written stays
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let of_the_system = 30 * MIB;
    OpenOptions::new().write(true).open(&vdb).unwrap().write_all_at(b"the system's", of_the_system).unwrap();
    let found = outcomes(root, vec![write(images.order("image.raw", "owner-1"))]).await;
    let summary = written(&found[0]);
    assert_eq!((summary.bytes_read, summary.boot_entry.as_deref()), (0, Some("Boot0000 \"metamorph Test OS\"")));
    assert!(summary.warnings[0].contains("has been written before"), "{:?}", summary.warnings);
    let mut kept = [0; 12];
    OpenOptions::new().read(true).open(&vdb).unwrap().read_exact_at(&mut kept, of_the_system).unwrap();
    assert_eq!(&kept, b"the system's");

    // a write that was broken off before the table at the disk's beginning was there is made again
    OpenOptions::new().write(true).open(&vdb).unwrap().write_all_at(&vec![0; 1 << 20], 0).unwrap();
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let found = outcomes(root, vec![write(images.order("image.raw", "owner-1"))]).await;
    assert_eq!(written(&found[0]).bytes_read, 40 * MIB);

    // the same owner may write again with another: the entry of the partition that is the same stays the only one
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let again = DiskMark { operation: "op-2".into(), ..mark("owner-1") };
    let found = outcomes(root, vec![write(WriteImage { mark: again, ..images.order("image.raw", "") })]).await;
    assert_eq!(written(&found[0]).bytes_read, 40 * MIB);
    assert_eq!(written(&found[0]).boot_entry.as_deref(), Some("Boot0000 \"metamorph Test OS\""));

    // another owner is refused, both for writing and for wiping, and nothing is changed
    let before = Sha256::digest(std::fs::read(&vdb).unwrap());
    let wipe = |mark: DiskMark| Action::WipeDisks(Box::new(WipeDisks { mark, ..WipeDisks::default() }));
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let found =
        outcomes(root, vec![write(images.order("image.raw", "owner-2")), wipe(mark("owner-2")), Action::Inspect]).await;
    for outcome in &found[..2] {
        let (code, message) = failed(outcome);
        assert_eq!(code, ErrorCode::ForeignOwner);
        assert!(message.contains("owner-1") && message.contains("ns/node-1"), "{message}");
    }
    assert_eq!(Sha256::digest(std::fs::read(&vdb).unwrap()), before);
    let Outcome::Inspected { marks, .. } = &found[2] else { panic!("{found:?}") };
    let places: Vec<&str> = marks.iter().map(|mark| mark.place.as_str()).collect();
    assert_eq!(places, ["firmware", "/dev/disk/by-path/pci-0000:00:05.0"]);

    // with consent that names it the disks are wiped, and the firmware forgets
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let consent = DiskMark { consent: Some("owner-1".into()), ..mark("owner-2") };
    let found = outcomes(root, vec![wipe(consent)]).await;
    let Outcome::Wiped { disks, .. } = &found[0] else { panic!("{found:?}") };
    assert_eq!(disks.len(), 2);
    assert!(read_partitions(&open(root, "vdb")).unwrap().is_none());
    assert_eq!(efivars(root).len(), 1, "only the order is left: {:?}", efivars(root));
    let blkid = Command::new("blkid").args(["-p", &vdb]).output().expect("blkid is needed");
    assert_eq!(blkid.status.code(), Some(2), "nothing is recognised: {blkid:?}");
}

/// A machine accepted in another's place is wiped only when a disk of it carries the host's own mark.
#[tokio::test(flavor = "multi_thread")]
async fn where_its_own_mark_is_required_a_blank_machine_is_left_alone() {
    let images = serve().await;
    let folder = machine();
    let root = folder.path();
    let wipe =
        |mark: DiskMark| Action::WipeDisks(Box::new(WipeDisks { mark, requires_mark: true, ..WipeDisks::default() }));
    let before = Sha256::digest(std::fs::read(device(root, "vdb")).unwrap());
    let found = outcomes(root, vec![wipe(mark("owner-1"))]).await;
    let (code, message) = failed(&found[0]);
    assert_eq!(code, ErrorCode::NoOwnMark);
    assert!(message.contains("none of the 2 disks") && message.contains("owner-1"), "{message}");
    assert!(message.contains("is not blank"), "{message}");
    assert_eq!(Sha256::digest(std::fs::read(device(root, "vdb")).unwrap()), before);

    std::fs::remove_dir_all(root.join("run")).unwrap();
    let found = outcomes(root, vec![write(images.order("image.raw", "owner-1")), wipe(mark("owner-1"))]).await;
    written(&found[0]);
    assert!(matches!(&found[1], Outcome::Wiped { disks, .. } if disks.len() == 2), "{found:?}");

    // Half-written, only the firmware has the mark; blank, there is nothing to lose.
    for witness in [true, false] {
        std::fs::remove_dir_all(root.join("run")).unwrap();
        let variable = root.join("sys/firmware/efi/efivars").join(OWNER_EFI_VARIABLE);
        let disk = OpenOptions::new().write(true).open(device(root, "vdb")).unwrap();
        if witness {
            let record = br#"{"version":1,"owner":"owner-1","host":"ns/node-1","operation":"o"}"#;
            std::fs::write(&variable, [&[7, 0, 0, 0][..], record].concat()).unwrap();
            disk.write_at(&[1; 4096], 0).unwrap();
        } else {
            for name in ["vda", "vdb"] {
                let disk = OpenOptions::new().write(true).open(device(root, name)).unwrap();
                disk.write_at(&vec![0; 1 << 20], 0).unwrap();
            }
        }
        let found = outcomes(root, vec![wipe(mark("owner-1"))]).await;
        assert!(matches!(&found[0], Outcome::Wiped { .. }), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_witness_alone_refuses() {
    let images = serve().await;
    let folder = machine();
    let root = folder.path();
    let record = br#"{"version":1,"owner":"owner-9","host":"ns/other","operation":"o"}"#;
    let variable = root.join("sys/firmware/efi/efivars").join(OWNER_EFI_VARIABLE);
    std::fs::write(&variable, [&[7, 0, 0, 0][..], record].concat()).unwrap();
    let consent = |owner: &str| DiskMark { consent: Some(owner.into()), ..mark("owner-1") };
    let order = |mark: DiskMark| write(WriteImage { mark, ..images.order("image.raw", "") });
    let found =
        outcomes(root, vec![order(mark("owner-1")), order(consent("owner-8")), order(consent("owner-9"))]).await;
    for outcome in &found[..2] {
        assert_eq!(failed(outcome).0, ErrorCode::ForeignOwner);
        assert!(failed(outcome).1.contains("owner-9"));
    }
    written(&found[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_the_machine_itself_and_of_metadata_services_are_not_read() {
    let images = serve().await;
    let folder = machine();
    let root = folder.path();
    let order = |url: String, checksum: Option<&str>, allowed: &[&str]| {
        let mut order = images.order("", "owner-1");
        order.image.url = url;
        order.image.checksum = checksum.map_or_else(|| images.sha256.clone(), ToOwned::to_owned);
        order.image.allowed_addresses = allowed.iter().map(|range| (*range).to_owned()).collect();
        write(order)
    };
    let (port, loopback) = (images.address.port(), &["127.0.0.0/8"][..]);
    let here = format!("http://127.0.0.1:{port}/image.raw");
    let orders = vec![
        order(here.clone(), None, &[]),
        // What is decimal, octal or within an IPv6 address is the same.
        order(format!("http://2130706433:{port}/image.raw"), None, &[]),
        order(format!("http://0177.1:{port}/image.raw"), None, &[]),
        order(format!("http://[::ffff:127.0.0.1]:{port}/image.raw"), None, &[]),
        order(format!("http://0.0.0.0:{port}/image.raw"), None, loopback),
        // A name is judged by what it resolves to, a redirect by where it leads.
        order(format!("http://localhost:{port}/image.raw"), None, &["10.0.0.0/8"]),
        order(format!("http://127.0.0.1:{port}/aside"), None, loopback),
        order(here, Some("http://169.254.169.254/SHA256SUMS"), &["0.0.0.0/0"]),
        order(format!("http://localhost:{port}/image.raw"), None, loopback),
    ];
    let found = outcomes(root, orders).await;
    let (allowed, refused) = found.split_last().unwrap();
    written(allowed);
    for (number, outcome) in refused.iter().enumerate() {
        let (code, message) = failed(outcome);
        assert_eq!(code, ErrorCode::ImageNotAllowed, "{number}: {message}");
        assert!(message.contains("which is not called"), "{number}: {message}");
    }
}

/// As a registry keeps a layer: by a name that says nothing, for those with a token, and in a store elsewhere, which gets to see none.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_layer_is_read_with_a_token_that_no_other_server_sees() {
    let bytes = zstd::encode_all(image().as_slice(), 1).unwrap();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let kept = async move |headers: HeaderMap| match headers.get("authorization") {
        None => Ok(bytes.clone()),
        Some(_) => Err(StatusCode::BAD_REQUEST),
    };
    let start = async |router: Router| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        address
    };
    let store = start(Router::new().route("/signed", get(kept))).await;
    let blob = async move |headers: HeaderMap| match headers.get("authorization").map(|value| value.as_bytes()) {
        Some(b"Bearer t0ken") => axum::response::Redirect::temporary(&format!("http://{store}/signed")).into_response(),
        _ => StatusCode::UNAUTHORIZED.into_response(),
    };
    let registry = start(Router::new().route("/v2/os/blobs/layer", get(blob))).await;
    let folder = machine();
    let images = Images { address: registry, sha256 };
    let order = |token: Option<&str>, compression| {
        let mut order = images.order("v2/os/blobs/layer", "owner-1");
        order.image.authorization = token.map(|token| Authorization(token.to_owned()));
        order.image.compression = compression;
        write(order)
    };
    let zstd = Some(Compression::Zstd);
    let orders = vec![order(Some("Bearer old"), zstd), order(None, zstd), order(Some("Bearer t0ken"), zstd)];
    assert!(!format!("{orders:?}").contains("t0ken"));
    let found = outcomes(folder.path(), orders).await;
    let (code, message) = failed(&found[0]);
    assert_eq!(code, ErrorCode::ImageUnreachable, "{message}");
    assert!(message.contains("token") && message.contains("401"), "{message}");
    assert_eq!(failed(&found[1]).0, ErrorCode::ImageNotFound);
    let summary = written(&found[2]);
    assert!(summary.digest.ends_with(&images.sha256) && summary.boot_entry.is_some(), "{summary:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_ends_as_its_class_and_leaves_no_partition_table() {
    let images = serve().await;
    let folder = machine();
    let root = folder.path();
    let with = |change: &dyn Fn(&mut WriteImage)| {
        let mut order = images.order("image.raw", "owner-1");
        change(&mut order);
        write(order)
    };
    let orders = vec![
        with(&|order| order.image.checksum = "1".repeat(64)),
        with(&|order| order.image.url = format!("http://{}/broken.raw", images.address)),
        with(&|order| order.root_device_hints.serial_number = Some("none".into())),
        with(&|order| order.image.checksum = format!("http://{}/nothing", images.address)),
        with(&|order| order.image.checksum = "xyz".into()),
        with(&|order| order.image.url = format!("http://{}/half.raw", images.address)),
        with(&|order| order.image.format = DiskFormat::Qcow2),
        with(&|order| order.config_drive.as_mut().unwrap().meta_data = "!".into()),
        with(&|order| order.image.url = "ftp://x/y".into()),
    ];
    let found = outcomes(root, orders).await;
    let want: [(ErrorCode, &str); 9] = [
        (ErrorCode::ChecksumMismatch, "expected sha256:1111"),
        (ErrorCode::ImageNotFound, "404"),
        (ErrorCode::NoDisk, "serialNumber=none"),
        (ErrorCode::ChecksumUnavailable, "404"),
        (ErrorCode::ChecksumUnavailable, "\"xyz\""),
        (ErrorCode::ChecksumMismatch, "expected sha256"),
        (ErrorCode::ImageInvalid, ""),
        (ErrorCode::Refused, "meta_data.json"),
        (ErrorCode::ImageInvalid, "http or https"),
    ];
    for (outcome, (code, part)) in found.iter().zip(want) {
        let (found, message) = failed(outcome);
        assert_eq!(found, code, "{message}");
        assert!(message.contains(part), "{message}");
    }
    // What was found out before the machine was changed is told so, and nothing else is.
    let untouched = found.iter().map(|outcome| matches!(outcome, Outcome::Failed(error) if error.untouched));
    assert_eq!(untouched.collect::<Vec<_>>(), [false, true, true, true, true, false, false, true, true]);
    assert!(read_partitions(&open(root, "vdb")).unwrap().is_none());
    // the cause removed, a checksum file instead of a digest
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let list = format!("http://{}/SHA256SUMS", images.address);
    let found = outcomes(root, vec![with(&|order| order.image.checksum.clone_from(&list))]).await;
    written(&found[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_others_may_use_is_not_chosen_unless_it_is_named() {
    let images = serve().await;
    let folder = machine_root();
    let root = folder.path();
    for (name, slot, gib) in [("vda", 4, 5_u64), ("vdb", 5, 6)] {
        add_disk(root, name, slot, gib << 30);
    }
    // The smaller one, which is chosen without hints, has a GFS2.
    let shared = OpenOptions::new().write(true).open(device(root, "vda")).unwrap();
    shared.write_all_at(&[1, 0x16, 0x19, 0x70, 0, 0, 0, 1], 64 << 10).unwrap();
    let with = |hints: RootDeviceHints| {
        write(WriteImage { root_device_hints: hints, config_drive: None, ..images.order("image.raw", "owner-1") })
    };
    let broad = RootDeviceHints { min_size_gigabytes: Some(1), ..RootDeviceHints::default() };
    let found = outcomes(root, vec![with(RootDeviceHints::default()), with(broad)]).await;
    for outcome in &found {
        assert_eq!(written(outcome).disk, "/dev/disk/by-path/pci-0000:00:05.0");
    }
    std::fs::remove_dir_all(root.join("run")).unwrap();
    let named = RootDeviceHints { serial_number: Some("SN-vda".into()), ..RootDeviceHints::default() };
    let found = outcomes(root, vec![with(named)]).await;
    assert_eq!(written(&found[0]).disk, "/dev/disk/by-path/pci-0000:00:04.0");

    // By a name that moves: the disk that had it when the machine was inspected.
    let called = |serial: &str| WriteImage {
        root_device_hints: RootDeviceHints { device_name: Some("/dev/vda".into()), ..RootDeviceHints::default() },
        known: vec![Storage {
            name: Some("/dev/vda".into()),
            serial_number: Some(serial.into()),
            ..Storage::default()
        }],
        ..images.order("image.raw", "owner-2")
    };
    std::fs::remove_dir_all(root.join("run")).unwrap();
    shared.write_all_at(&[1, 0x16, 0x19, 0x70, 0, 0, 0, 1], 64 << 10).unwrap();
    let found = outcomes(root, vec![write(called("SN-elsewhere"))]).await;
    let (code, message) = failed(&found[0]);
    assert!(code == ErrorCode::NoDisk && message.contains("GFS2") && message.contains("inspected"), "{message}");
}

/// A disk with two ports, or behind two of Fibre Channel, is there once for each.
#[tokio::test(flavor = "multi_thread")]
async fn the_config_drive_stays_where_the_disk_has_another_path() {
    let images = serve().await;
    for named in [true, false] {
        let folder = machine();
        let root = folder.path();
        add_disk(root, "vdc", 6, 128 * MIB);
        std::fs::remove_file(device(root, "vdc")).unwrap();
        std::fs::hard_link(device(root, "vdb"), device(root, "vdc")).unwrap();
        for path in ["vdb", "vdc"].iter().filter(|_| named) {
            std::fs::write(root.join("sys/block").join(path).join("wwid"), "naa.5000c500a1b2c3d4\n").unwrap();
        }
        let found = outcomes(root, vec![write(images.order("image.raw", "owner-1"))]).await;
        assert_eq!(written(&found[0]).warnings, Vec::<String>::new());
        assert_eq!(find_config_volumes(&open(root, "vdb")).unwrap().len(), 1, "named: {named}");
        assert!(find_config_volumes(&open(root, "vda")).unwrap().is_empty(), "that of another disk is gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_disks_are_others_too_the_write_says_what_was_left_out() {
    let images = serve().await;
    let folder = machine_root();
    let root = folder.path();
    add_disk(root, "vda", 4, 5 << 30);
    let shared = OpenOptions::new().write(true).open(device(root, "vda")).unwrap();
    shared.write_all_at(b"OCFSV2", 4 << 10).unwrap();
    let order = WriteImage { root_device_hints: RootDeviceHints::default(), ..images.order("image.raw", "owner-1") };
    let found = outcomes(root, vec![write(order)]).await;
    let (code, message) = failed(&found[0]);
    assert_eq!(code, ErrorCode::NoDisk);
    assert!(message.contains("OCFS2") && message.contains("serial number"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_larger_than_the_disk_is_refused_before_it_is_written() {
    let images = serve().await;
    let folder = machine_root();
    add_disk(folder.path(), "vdb", 5, 16 * MIB);
    let found = outcomes(folder.path(), vec![write(images.order("image.raw", "owner-1"))]).await;
    let (code, message) = failed(&found[0]);
    assert_eq!(code, ErrorCode::ImageTooLarge, "{message}");
    assert!(std::fs::read(device(folder.path(), "vdb")).unwrap().iter().all(|byte| *byte == 0));
}
