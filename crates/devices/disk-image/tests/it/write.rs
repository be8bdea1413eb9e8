//! Raw images, plain and compressed, onto disks that were in use.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{
    MIB, assert_no_table, contents, go_on, gpt_image, noise, request, run, sha256, source, used_disk, verify_gpt,
};
use disk_image::{
    Cause, Checksum, ChecksumType, Compression, Disk, DiskFormat, Error, FileDisk, Flow, TableKind, WriteRequest,
    read_partitions, write_image, write_image_then,
};

/// Compresses a file with the usual tool and gives the new one's path.
fn compress(path: &Path, suffix: &str) -> PathBuf {
    let text = path.to_str().unwrap();
    match suffix {
        "gz" => run("gzip", &["-k", "-f", text]),
        "bz2" => run("bzip2", &["-k", "-f", text]),
        "xz" => run("xz", &["-k", "-f", "-1", text]),
        _ => {
            let data = std::fs::read(path).unwrap();
            let file = File::create(path.with_extension("raw.zst")).unwrap();
            let mut encoder = zstd::Encoder::new(file, 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap();
            String::new()
        }
    };
    path.with_extension(format!("raw.{suffix}"))
}

/// The disk begins with the image, but for the places a GPT keeps about the disk's size.
fn assert_holds(disk: &dyn Disk, image: &Path) {
    let (disk, image) = (contents(disk), std::fs::read(image).unwrap());
    let body = 34 * 512..image.len() - 33 * 512;
    assert!(disk[body.clone()] == image[body], "the body differs");
}

#[test]
fn a_raw_image_in_every_compression() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 24 * MIB);
    for suffix in ["", "gz", "bz2", "xz", "zst"] {
        let packed = if suffix.is_empty() { image.clone() } else { compress(&image, suffix) };
        let (path, disk) = used_disk(dir.path(), "disk", 40 * MIB);
        let mut last = 0;
        let written = write_image(source(&packed), &request(&packed, DiskFormat::Raw), &disk, &mut |progress| {
            assert!(progress.downloaded >= last);
            last = progress.downloaded;
            Flow::Continue
        })
        .unwrap();
        assert_eq!(written.image_size, 24 * MIB, "{suffix}");
        assert_eq!(written.downloaded, std::fs::metadata(&packed).unwrap().len());
        assert_eq!(written.table, Some(TableKind::Gpt));
        assert_eq!(written.warnings, Vec::<String>::new());
        assert_holds(&disk, &image);
        verify_gpt(&path);
        assert_eq!(read_partitions(&disk).unwrap().unwrap().partitions[0].name, "EFI");
        // What lies beyond the image was not its business.
        assert!(contents(&disk)[25 * MIB as usize..39 * MIB as usize].iter().all(|byte| *byte == 0xff));
    }
}

#[test]
fn an_image_as_large_as_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
    write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    assert!(contents(&disk) == std::fs::read(&image).unwrap());
    verify_gpt(&path);
}

#[test]
fn an_odd_length_and_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image.raw");
    std::fs::write(&image, noise(3_000_001, 9)).unwrap();
    let (_, disk) = used_disk(dir.path(), "disk", 8 * MIB);
    let written = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    assert_eq!((written.image_size, written.table), (3_000_001, None));
    assert!(written.warnings[0].contains("no partition table"));
    assert!(contents(&disk)[..3_000_001] == noise(3_000_001, 9));
}

#[test]
fn a_wrong_checksum_leaves_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    for suffix in ["", "gz"] {
        let packed = if suffix.is_empty() { image.clone() } else { compress(&image, suffix) };
        for size in [16 * MIB, 20 * MIB] {
            let (path, disk) = used_disk(dir.path(), "disk", size);
            let wrong = Checksum::from_hex(&"ab".repeat(32), ChecksumType::Auto).unwrap();
            let compression = Compression::from_url(packed.to_str().unwrap());
            let request = WriteRequest::new(DiskFormat::Raw, compression, wrong);
            let error = write_image(source(&packed), &request, &disk, &mut go_on).unwrap_err();
            assert!(matches!(&error, Error::ChecksumMismatch { found, .. } if *found == sha256(&packed).to_string()));
            assert_no_table(&path, &disk);
        }
    }
}

#[test]
fn a_damaged_compressed_image_is_a_checksum_mismatch() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    for suffix in ["gz", "bz2", "xz", "zst"] {
        let packed = compress(&image, suffix);
        let right = request(&packed, DiskFormat::Raw);
        let mut data = std::fs::read(&packed).unwrap();
        let middle = data.len() / 2;
        data[middle..middle + 40].fill(0x55);
        std::fs::write(&packed, data).unwrap();
        let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
        let error = write_image(source(&packed), &right, &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), Cause::ChecksumMismatch, "{suffix}: {error}");
        assert_no_table(&path, &disk);
        // With the damaged file's own digest it is the image that is bad.
        let error = write_image(source(&packed), &request(&packed, DiskFormat::Raw), &disk, &mut go_on).unwrap_err();
        assert!(matches!(error.cause(), Cause::CorruptImage | Cause::Truncated), "{suffix}: {error}");
        assert_no_table(&path, &disk);
    }
}

#[test]
fn a_truncated_compressed_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    for suffix in ["gz", "bz2", "xz", "zst"] {
        let packed = compress(&image, suffix);
        let file = File::options().write(true).open(&packed).unwrap();
        file.set_len(file.metadata().unwrap().len() * 2 / 3).unwrap();
        let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
        let error = write_image(source(&packed), &request(&packed, DiskFormat::Raw), &disk, &mut go_on).unwrap_err();
        assert_eq!(error.cause(), Cause::Truncated, "{suffix}: {error}");
        assert_no_table(&path, &disk);
    }
}

#[test]
fn an_image_larger_than_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    // Known in advance: nothing is touched.
    let (path, disk) = used_disk(dir.path(), "disk", 12 * MIB);
    let before = contents(&disk);
    let error = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap_err();
    assert!(
        matches!(error, Error::ImageTooLarge { image, disk, at_least: false } if (image, disk) == (16 * MIB, 12 * MIB))
    );
    assert!(contents(&disk) == before);
    verify_gpt(&path);
    // Found out while decompressing.
    let packed = compress(&image, "gz");
    let error = write_image(source(&packed), &request(&packed, DiskFormat::Raw), &disk, &mut go_on).unwrap_err();
    assert!(matches!(error, Error::ImageTooLarge { at_least: true, .. }), "{error}");
    assert_no_table(&path, &disk);
}

#[test]
fn a_cancel_leaves_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
    let error = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut |progress| {
        if progress.downloaded > 4 * MIB { Flow::Cancel } else { Flow::Continue }
    })
    .unwrap_err();
    assert_eq!(error.cause(), Cause::Cancelled);
    assert_no_table(&path, &disk);
}

#[test]
fn a_window_beyond_the_cap_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = noise(6 << 20, 4);
    let packed = dir.path().join("image.raw.zst");
    let mut encoder = zstd::Encoder::new(File::create(&packed).unwrap(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.write_all(&data).unwrap();
    encoder.finish().unwrap();
    let image = dir.path().join("image.raw");
    std::fs::write(&image, &data).unwrap();
    run("xz", &["-k", "-8", image.to_str().unwrap()]);
    for packed in [packed, dir.path().join("image.raw.xz")] {
        let (_, disk) = used_disk(dir.path(), "disk", 16 * MIB);
        let mut request = request(&packed, DiskFormat::Raw);
        write_image(source(&packed), &request, &disk, &mut go_on).unwrap();
        assert!(contents(&disk)[..data.len()] == data);
        request.max_window = 8 << 20;
        let error = write_image(source(&packed), &request, &disk, &mut go_on).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded { .. }), "{error}");
    }
}

#[test]
fn an_image_for_other_sectors_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    let disk = FileDisk::create(&dir.path().join("disk"), 32 * MIB, 4096).unwrap();
    let written = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    assert_eq!(written.table, None);
    assert!(written.warnings[0].contains("sectors of 512 bytes"), "{:?}", written.warnings);
}

#[test]
fn a_damaged_primary_table_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    File::options().write(true).open(&image).unwrap().write_all_at(&[0; 512], 512).unwrap();
    let (path, disk) = used_disk(dir.path(), "disk", 20 * MIB);
    let written = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    assert!(written.warnings[0].contains("restored"), "{:?}", written.warnings);
    verify_gpt(&path);
}

#[test]
fn a_partition_beyond_the_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    File::options().write(true).open(&image).unwrap().set_len(8 * MIB).unwrap();
    let (path, disk) = used_disk(dir.path(), "disk", 12 * MIB);
    let error = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap_err();
    assert!(matches!(error, Error::BadPartitionTable { .. }), "{error}");
    assert_no_table(&path, &disk);
}

#[test]
fn edits_and_tables_appear_together() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    let (path, disk) = used_disk(dir.path(), "disk", 20 * MIB);
    let request = request(&image, DiskFormat::Raw);
    let error = write_image_then(source(&image), &request, &disk, &mut go_on, &mut |held| {
        assert_eq!(read_partitions(held)?.map(|table| table.partitions.len()), Some(2));
        assert_eq!(read_partitions(&disk)?, None);
        Err(Error::Cancelled)
    });
    assert_eq!(error.unwrap_err().cause(), Cause::Cancelled);
    assert_no_table(&path, &disk);
}

#[test]
fn a_raw_image_that_looks_like_qcow2_is_written_as_declared() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image.img");
    let mut data = noise(2 << 20, 5);
    data[..4].copy_from_slice(b"QFI\xfb");
    std::fs::write(&image, &data).unwrap();
    let (_, disk) = used_disk(dir.path(), "disk", 8 * MIB);
    let written = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    assert!(written.warnings.iter().any(|warning| warning.contains("qcow2")), "{:?}", written.warnings);
    assert!(contents(&disk)[..data.len()] == data);
}
