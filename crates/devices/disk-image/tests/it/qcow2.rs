//! qcow2 images made and rewritten by QEMU's tools, read back equal to what `qemu-img convert` makes of them.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::{
    MIB, assert_no_table, contents, go_on, gpt_image, noise, request, run, source, used_disk, verify_gpt,
};
use disk_image::{
    Cause, Checksum, ChecksumType, Compression, Disk, DiskFormat, Error, FileDisk, WriteRequest, write_image,
};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

const SIZE: u64 = 14 * MIB;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The image's disk as QEMU reads it.
fn converted(dir: &Path, image: &Path) -> Vec<u8> {
    let raw = dir.join("converted.raw");
    run("qemu-img", &["convert", "-O", "raw", text(image), text(&raw)]);
    std::fs::read(raw).unwrap()
}

/// Writes to a used disk of the same size: byte-equal to QEMU's reading, and sound.
fn assert_written(dir: &Path, image: &Path) {
    let expect = converted(dir, image);
    let (path, disk) = used_disk(dir, "disk", expect.len() as u64);
    let written = write_image(source(image), &request(image, DiskFormat::Qcow2), &disk, &mut go_on).unwrap();
    assert_eq!(written.image_size, expect.len() as u64);
    assert_eq!(written.warnings, Vec::<String>::new());
    let found = contents(&disk);
    let differs = found.iter().zip(&expect).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{}", image.display());
    verify_gpt(&path);
}

/// Writes here and there, out of order, over what is there.
fn rewrite(image: &Path, seed: u64) {
    let places = noise(40 * 8, seed);
    let mut commands: Vec<String> = places
        .chunks_exact(8)
        .enumerate()
        .map(|(at, place)| {
            let place = u64::from_le_bytes(place.try_into().unwrap());
            let offset = 4 * MIB + place % (SIZE - 6 * MIB) / 512 * 512;
            match at % 5 {
                0 => format!("write -z {offset} {}", 512 * (1 + place % 300)),
                1 => format!("discard {offset} {}", 512 * (1 + place % 300)),
                _ => format!("write -P {} {offset} {}", 1 + at, 512 * (1 + place % 200)),
            }
        })
        .collect();
    commands.push("flush".into());
    let mut arguments = vec!["-f", "qcow2", "-t", "unsafe"];
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(text(image));
    run("qemu-io", &arguments);
}

fn make(dir: &Path, name: &str, raw: &Path, compressed: bool, options: &str) -> PathBuf {
    let image = dir.join(name);
    let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2", "-o", options];
    if compressed {
        arguments.push("-c");
    }
    arguments.extend([text(raw), text(&image)]);
    run("qemu-img", &arguments);
    image
}

#[test]
fn versions_compressions_and_cluster_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", SIZE);
    let mut number = 0;
    for cluster in ["512", "4k", "16k", "64k", "512k", "2M"] {
        for (version, compressed, kind) in [
            ("0.10", false, ""),
            ("0.10", true, ""),
            ("1.1", false, ""),
            ("1.1", true, ",compression_type=zlib"),
            ("1.1", true, ",compression_type=zstd"),
        ] {
            number += 1;
            let options = format!("compat={version},cluster_size={cluster}{kind}");
            let image = make(dir.path(), &format!("{number}.qcow2"), &raw, compressed, &options);
            assert_written(dir.path(), &image);
            // Clusters in any order, compressed ones beside others, and zeroed ones.
            rewrite(&image, number);
            assert_written(dir.path(), &image);
            std::fs::remove_file(image).unwrap();
        }
    }
}

#[test]
fn snapshots_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", SIZE);
    for (options, compressed) in [("compat=0.10", false), ("cluster_size=4k", true)] {
        let image = make(dir.path(), "snap.qcow2", &raw, compressed, options);
        run("qemu-img", &["snapshot", "-c", "one", text(&image)]);
        rewrite(&image, 77);
        run("qemu-img", &["snapshot", "-c", "two", text(&image)]);
        rewrite(&image, 78);
        assert_written(dir.path(), &image);
        run("qemu-img", &["snapshot", "-a", "one", text(&image)]);
        rewrite(&image, 79);
        assert_written(dir.path(), &image);
    }
}

#[test]
fn sizes_that_are_no_multiple_of_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    for (compressed, cluster) in [(false, "64k"), (true, "64k"), (true, "2M"), (false, "2M")] {
        let raw = dir.path().join("odd.raw");
        std::fs::write(&raw, noise(5 * MIB as usize + 512 * 3, 8)).unwrap();
        let image = make(dir.path(), "odd.qcow2", &raw, compressed, &format!("cluster_size={cluster}"));
        let (_, disk) = used_disk(dir.path(), "disk", 8 * MIB);
        write_image(source(&image), &request(&image, DiskFormat::Qcow2), &disk, &mut go_on).unwrap();
        assert!(contents(&disk)[..5 * MIB as usize + 512 * 3] == std::fs::read(&raw).unwrap());
    }
}

#[test]
fn preallocated_and_resized() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", SIZE);
    for options in ["preallocation=metadata", "preallocation=falloc", "lazy_refcounts=on"] {
        let image = make(dir.path(), "pre.qcow2", &raw, false, options);
        assert_written(dir.path(), &image);
    }
    // The L1 table moves behind the data; the old one stays as garbage.
    let image = make(dir.path(), "grown.qcow2", &raw, false, "cluster_size=512");
    let size = 600 * MIB;
    run("qemu-img", &["resize", text(&image), &size.to_string()]);
    let disk = FileDisk::create(&dir.path().join("large"), size, 512).unwrap();
    disk.write_at(size - 30 * MIB, &[0xff; 4096]).unwrap();
    write_image(source(&image), &request(&image, DiskFormat::Qcow2), &disk, &mut go_on).unwrap();
    let mut found = vec![0xff; 4096];
    disk.read_at(size - 30 * MIB, &mut found).unwrap();
    assert_eq!(found, [0; 4096]);
}

#[test]
fn a_small_image_on_a_large_disk() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", SIZE);
    let image = make(dir.path(), "small.qcow2", &raw, true, "compression_type=zstd");
    let (path, disk) = used_disk(dir.path(), "disk", 48 * MIB);
    write_image(source(&image), &request(&image, DiskFormat::Qcow2), &disk, &mut go_on).unwrap();
    verify_gpt(&path);
    let (found, raw) = (contents(&disk), std::fs::read(&raw).unwrap());
    assert!(found[34 * 512..SIZE as usize - 33 * 512] == raw[34 * 512..SIZE as usize - 33 * 512]);
}

#[test]
fn what_is_not_written_is_refused_before_the_disk_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 8 * MIB);
    let base = make(dir.path(), "base.qcow2", &raw, false, "compat=1.1");
    let backed = dir.path().join("backed.qcow2");
    run("qemu-img", &["create", "-f", "qcow2", "-F", "qcow2", "-b", text(&base), text(&backed)]);
    let external = dir.path().join("external.qcow2");
    let data_file = format!("data_file={}", text(&dir.path().join("data")));
    run("qemu-img", &["create", "-f", "qcow2", "-o", &data_file, text(&external), "8M"]);
    let extended = make(dir.path(), "extended.qcow2", &raw, false, "extended_l2=on");
    let flipped = |name: &str, at: u64, byte: u8| {
        let path = dir.path().join(name);
        std::fs::copy(&base, &path).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&[byte], at).unwrap();
        path
    };
    let (path, disk) = used_disk(dir.path(), "disk", 12 * MIB);
    let before = contents(&disk);
    for (image, cause, words) in [
        (backed, Cause::UnsupportedFormat, "backing file"),
        (external, Cause::UnsupportedFormat, "external data file"),
        (extended, Cause::UnsupportedFormat, "extended L2"),
        // The crypt method LUKS: making such an image with qemu-img times the processor, which fails on a busy machine.
        (flipped("encrypted", 35, 2), Cause::UnsupportedFormat, "encryption"),
        (flipped("dirty", 79, 1), Cause::UnsupportedFormat, "dirty bit"),
        (flipped("corrupt", 79, 2), Cause::UnsupportedFormat, "marked corrupt"),
        (flipped("unknown", 78, 1), Cause::UnsupportedFormat, "unknown incompatible features 0x100"),
        (flipped("version", 7, 9), Cause::UnsupportedFormat, "version 9"),
        (flipped("magic", 0, 9), Cause::CorruptImage, "does not begin like one"),
        (flipped("cluster", 23, 30), Cause::CorruptImage, "2^30"),
        (flipped("size", 26, 1), Cause::ImageTooLarge, "larger than the disk"),
        (flipped("l1", 39, 0), Cause::CorruptImage, "L1 table has 0 entries"),
        (flipped("l1far", 42, 1), Cause::Truncated, "L1 table"),
        (raw, Cause::CorruptImage, "does not begin like one"),
    ] {
        let error = write_image(source(&image), &request(&image, DiskFormat::Qcow2), &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), cause, "{}: {error}", image.display());
        assert!(error.to_string().contains(words), "{}: {error}", image.display());
    }
    assert!(contents(&disk) == before);
    verify_gpt(&path);
}

#[test]
fn truncated_and_mismatching() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 16 * MIB);
    for compressed in [false, true] {
        let image = make(dir.path(), "image.qcow2", &raw, compressed, "compat=1.1");
        let whole = request(&image, DiskFormat::Qcow2);
        let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
        let mut wrong = whole.clone();
        wrong.checksum = Checksum::from_hex(&"00".repeat(64), ChecksumType::Auto).unwrap();
        let error = write_image(source(&image), &wrong, &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), Cause::ChecksumMismatch);
        assert_no_table(&path, &disk);

        let file = std::fs::File::options().write(true).open(&image).unwrap();
        file.set_len(file.metadata().unwrap().len() - 300_000).unwrap();
        let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
        let error = write_image(source(&image), &whole, &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), Cause::Truncated, "{error}");
        verify_gpt(&path);
    }
}

/// A source whose bytes before the second pass are others.
struct TwoFaces {
    first: Vec<u8>,
    second: Vec<u8>,
    at: usize,
    restarts_at_zero: u32,
}

impl disk_image::Source for TwoFaces {
    fn name(&self) -> &str {
        "two faces"
    }
    fn length(&self) -> Option<u64> {
        Some(self.first.len() as u64)
    }
    fn has_ranges(&self) -> bool {
        true
    }
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        let data = if self.restarts_at_zero > 0 { &self.second } else { &self.first };
        let count = buf.len().min(data.len().saturating_sub(self.at));
        buf[..count].copy_from_slice(data.get(self.at..self.at + count).unwrap_or_default());
        self.at += count;
        Ok(count)
    }
    fn restart_at(&mut self, offset: u64) -> Result<(), Error> {
        self.restarts_at_zero += u32::from(offset == 0);
        self.at = offset as usize;
        Ok(())
    }
}

#[test]
fn tables_that_change_between_the_passes_are_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 8 * MIB);
    let image = make(dir.path(), "image.qcow2", &raw, false, "compat=1.1");
    let second = std::fs::read(&image).unwrap();
    let l1 = u64::from_be_bytes(second[40..48].try_into().unwrap()) as usize;
    let l2 = (u64::from_be_bytes(second[l1..l1 + 8].try_into().unwrap()) & 0x00ff_ffff_ffff_fe00) as usize;
    for (at, what) in [(l2, "an L2 entry becomes a zero cluster"), (l1, "the L2 table vanishes")] {
        let mut first = second.clone();
        first[at..at + 8].fill(0);
        let checksum = Checksum::from_hex(&hex::encode(Sha256::digest(&second)), ChecksumType::Auto).unwrap();
        let request = WriteRequest::new(DiskFormat::Qcow2, Compression::None, checksum);
        let (path, disk) = used_disk(dir.path(), "disk", 8 * MIB);
        let source = TwoFaces { first, second: second.clone(), at: 0, restarts_at_zero: 0 };
        let error = write_image(Box::new(source), &request, &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), Cause::SourceChanged, "{what}: {error}");
        assert_no_table(&path, &disk);
    }
}

/// Small images for flipping bits in: one with plain clusters, one with each compression.
fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let raw = dir.path().join("raw");
        let mut data = noise(256 << 10, 6);
        data[100_000..200_000].fill(7);
        std::fs::write(&raw, data).unwrap();
        [("a", false, "cluster_size=4k"), ("b", true, "cluster_size=4k"), ("c", true, "compression_type=zstd")]
            .map(|(name, compressed, options)| {
                std::fs::read(make(dir.path(), name, &raw, compressed, options)).unwrap()
            })
            .to_vec()
    })
}

struct Memory(std::sync::Mutex<Vec<u8>>);

impl Disk for Memory {
    fn name(&self) -> &str {
        "memory"
    }
    fn size(&self) -> u64 {
        4 << 20
    }
    fn logical_sector_size(&self) -> u32 {
        512
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.0.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
    fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.0.lock().unwrap()[offset as usize..][..length as usize].fill(0);
        Ok(())
    }
    fn flush(&self) -> Result<(), Error> {
        Ok(())
    }
    fn reread_partition_table(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes bytes as a qcow2 image with their own digest: whatever comes, it must not be a panic, a hang or a table.
fn write_bytes(data: Vec<u8>) -> Result<Vec<u8>, Error> {
    let checksum = Checksum::from_hex(&hex::encode(Sha256::digest(&data)), ChecksumType::Auto).unwrap();
    let request = WriteRequest::new(DiskFormat::Qcow2, Compression::None, checksum);
    let disk = Memory(std::sync::Mutex::new(vec![0xff; 4 << 20]));
    let source = TwoFaces { second: data.clone(), first: data, at: 0, restarts_at_zero: 0 };
    write_image(Box::new(source), &request, &disk, &mut go_on)?;
    Ok(disk.0.into_inner().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_images_never_panic(
        sample in 0..3_usize,
        flips in prop::collection::vec((0.0..1.0_f64, 0..8_u32, any::<bool>()), 1..6),
        cut in prop::option::of(0.0..1.0_f64),
    ) {
        let mut data = samples()[sample].clone();
        // Half of the flips go where the tables are.
        let tables = data.len().min(6 * 4096);
        for (place, bit, anywhere) in flips {
            let range = if anywhere { data.len() } else { tables };
            data[(place * range as f64) as usize] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            data.truncate((cut * data.len() as f64) as usize);
        }
        if let Err(error) = write_bytes(data) {
            prop_assert!(!matches!(error.cause(), Cause::Internal | Cause::DiskIo), "{error}");
        }
    }

    #[test]
    fn any_table_entry_is_handled(sample in 0..3_usize, place in 0..64_usize, entry in any::<u64>(), high in 0..4_u64) {
        let mut data = samples()[sample].clone();
        let l1 = u64::from_be_bytes(data[40..48].try_into().unwrap()) as usize;
        let l2 = (u64::from_be_bytes(data[l1..l1 + 8].try_into().unwrap()) & 0x00ff_ffff_ffff_fe00) as usize;
        // Plausible entries: within twice the file, sometimes compressed.
        let offset = entry % (2 * data.len() as u64);
        let value = (high << 62 | offset | (entry >> 40 & 7) << 54) & if high & 1 == 0 { !0x1ff } else { !0 };
        data[l2 + place * 8..l2 + place * 8 + 8].copy_from_slice(&value.to_be_bytes());
        if let Err(error) = write_bytes(data) {
            prop_assert!(!matches!(error.cause(), Cause::Internal | Cause::DiskIo), "{error}");
        }
    }
}

#[test]
fn the_samples_are_sound() {
    for sample in samples() {
        let disk = write_bytes(sample.clone()).unwrap();
        assert!(disk[..100_000] == noise(256 << 10, 6)[..100_000]);
        assert!(disk[100_000..200_000].iter().all(|byte| *byte == 7));
    }
}
