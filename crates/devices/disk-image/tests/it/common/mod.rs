//! Disks and images for the tests, made and judged by outside tools.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use disk_image::{Checksum, ChecksumType, Compression, Disk, DiskFormat, FileDisk, FileSource, Flow, WriteRequest};
use sha2::{Digest as _, Sha256};

pub const MIB: u64 = 1 << 20;

/// Runs a tool and gives what it prints; fails the test if the tool is missing or fails.
pub fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("MTOOLS_SKIP_CHECK", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{tool} is needed: {e}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?}: {text}");
    text
}

/// What `sgdisk -v` finds; the table is sound if it says "No problems found".
pub fn verify_gpt(path: &Path) {
    let text = run("sgdisk", &["-v", path.to_str().unwrap()]);
    assert!(text.contains("No problems found"), "{text}");
}

/// What `blkid -p` says of the whole disk (or of a byte in it); empty if it finds nothing.
pub fn blkid(path: &Path, offset: u64) -> String {
    let output = Command::new("/usr/sbin/blkid")
        .args(["-p", "-O", &offset.to_string(), path.to_str().unwrap()])
        .output()
        .expect("blkid is needed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that do not compress and repeat from one test run to the next.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(length + 8);
    while data.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(length);
    data
}

/// A disk in use before: full of 0xFF, with an old GPT and an old config drive. One of each size is made (`sgdisk` sleeps for a second whenever
/// it has written), the others are copies.
pub fn used_disk(dir: &Path, name: &str, size: u64) -> (PathBuf, FileDisk) {
    static MADE: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let path = dir.join(name);
    let mut made = MADE.lock().unwrap();
    let bytes = made.entry(size).or_insert_with(|| {
        make_used_disk(dir, &path, size);
        std::fs::read(&path).unwrap()
    });
    std::fs::write(&path, bytes).unwrap();
    let disk = FileDisk::open(&path, 512).unwrap();
    (path, disk)
}

fn make_used_disk(dir: &Path, path: &Path, size: u64) {
    let file = File::create(path).unwrap();
    let ones = vec![0xff; MIB as usize];
    let mut at = 0;
    while at < size {
        let step = ones.len().min((size - at) as usize);
        file.write_all_at(&ones[..step], at).unwrap();
        at += step as u64;
    }
    let text = path.to_str().unwrap();
    // Both ends must be free of ones for the tool; what lies between stays.
    file.write_all_at(&vec![0; 64 << 10], 0).unwrap();
    file.write_all_at(&vec![0; 64 << 10], size - (64 << 10)).unwrap();
    run("sgdisk", &["-a", "8", "-n", "1:64:+2M", "-t", "1:0700", "-n", "2:0:0", "-t", "2:8300", text]);
    let volume = dir.join("used.vfat");
    File::create(&volume).unwrap().set_len(2 * MIB).unwrap();
    run("mkfs.vfat", &["-n", "config-2", volume.to_str().unwrap()]);
    file.write_all_at(&std::fs::read(&volume).unwrap(), 64 * 512).unwrap();
    std::fs::remove_file(volume).unwrap();
    verify_gpt(path);
}

/// An image with a GPT: an ESP and a root partition, data at odd places and holes between them.
pub fn gpt_image(dir: &Path, name: &str, size: u64) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    let text = path.to_str().unwrap();
    run("sgdisk", &["-n", "1:2048:+2M", "-t", "1:ef00", "-c", "1:EFI", "-n", "2:0:0", "-t", "2:8300", text]);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&noise(300_000, 1), 3 * MIB + 77).unwrap();
    file.write_all_at(&noise(MIB as usize, 2), size / 2).unwrap();
    file.write_all_at(&noise(5000, 3), size - 200_000).unwrap();
    path
}

/// The digest of a file.
pub fn sha256(path: &Path) -> Checksum {
    Checksum::from_hex(&hex::encode(Sha256::digest(std::fs::read(path).unwrap())), ChecksumType::Auto).unwrap()
}

/// A request with the right digest and the compression of the name.
pub fn request(path: &Path, format: DiskFormat) -> WriteRequest {
    WriteRequest::new(format, Compression::from_url(path.to_str().unwrap()), sha256(path))
}

/// Opens an image.
pub fn source(path: &Path) -> Box<FileSource> {
    Box::new(FileSource::open(path).unwrap())
}

/// Goes on.
pub fn go_on(_: &disk_image::Progress) -> Flow {
    Flow::Continue
}

/// All of a disk.
pub fn contents(disk: &dyn Disk) -> Vec<u8> {
    let mut data = vec![0; disk.size() as usize];
    disk.read_at(0, &mut data).unwrap();
    data
}

/// Neither our reader nor outside tools find a partition table or an old file system.
pub fn assert_no_table(path: &Path, disk: &dyn Disk) {
    assert_eq!(disk_image::read_partitions(disk).unwrap(), None);
    assert_eq!(blkid(path, 0), "");
    let text = run("sgdisk", &["-p", path.to_str().unwrap()]);
    assert!(text.contains("Creating new GPT entries in memory"), "{text}");
    assert!(!text.contains("damaged") && !text.contains("backup"), "{text}");
}
