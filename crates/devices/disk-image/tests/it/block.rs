//! Real block devices: needs root and loop devices, hence not part of the usual run.
//! `cargo test -p disk-image --test it block:: -- --ignored`

use std::path::{Path, PathBuf};

use crate::common::{MIB, contents, go_on, gpt_image, noise, request, run, source, used_disk, verify_gpt};
use disk_image::{
    BlockDisk, Cause, ConfigDriveFiles, Disk, DiskFormat, Mark, MarkFound, MarkPlaced, read_mark, read_partitions,
    wipe_metadata, write_config_drive, write_image, write_mark,
};

/// A loop device, detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path, sector: &str) -> Self {
        Self(run("losetup", &["-f", "--show", "-P", "-b", sector, file.to_str().unwrap()]).trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["-d", self.0.to_str().unwrap()]);
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_loop_device() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 24 * MIB);
    let (path, file) = used_disk(dir.path(), "disk", 128 * MIB);
    drop(file);
    let device = Loop::attach(&path, "512");
    {
        let disk = BlockDisk::open(&device.0).unwrap();
        assert_eq!((disk.size(), disk.logical_sector_size()), (128 * MIB, 512));
        assert_eq!(BlockDisk::open(&device.0).unwrap_err().cause(), Cause::DiskIo);
        let written = write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
        assert_eq!(written.warnings, Vec::<String>::new());
        let mark = Mark { owner: "o".into(), host: "h".into(), operation: "p".into(), written: "w".into() };
        assert_eq!(write_mark(&disk, &mark).unwrap(), MarkPlaced::Partition(3));
        let files = ConfigDriveFiles { meta_data: b"{}", ..ConfigDriveFiles::default() };
        assert_eq!(write_config_drive(&disk, &files).unwrap().partition, 4);
        disk.reread_partition_table().unwrap();
        assert_eq!(read_mark(&BlockDisk::open_read_only(&device.0).unwrap()).unwrap(), MarkFound::Owner(mark));
    }
    verify_gpt(&device.0);
    let body = 34 * 512..(24 * MIB) as usize - 33 * 512;
    assert!(
        contents(&BlockDisk::open_read_only(&device.0).unwrap())[body.clone()] == std::fs::read(&image).unwrap()[body]
    );
    let disk = BlockDisk::open(&device.0).unwrap();
    assert_eq!(wipe_metadata(&disk).unwrap(), 4);
    assert_eq!(read_partitions(&disk).unwrap(), None);
}

#[test]
#[ignore = "needs root and loop devices"]
fn any_alignment_on_both_sector_sizes() {
    for sector in ["512", "4096"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let mut expect = noise(8 << 20, 1);
        std::fs::write(&path, &expect).unwrap();
        let device = Loop::attach(&path, sector);
        let disk = BlockDisk::open(&device.0).unwrap();
        assert_eq!(disk.logical_sector_size().to_string(), sector);
        for (round, place) in noise(200 * 8, 2).chunks_exact(8).enumerate() {
            let place = u64::from_le_bytes(place.try_into().unwrap());
            let length = (place >> 32) as usize % [10, 600, 9000, 3_000_000][round % 4];
            let offset = place as usize % (expect.len() - length);
            if round % 5 == 0 {
                disk.make_zero(offset as u64, length as u64).unwrap();
                expect[offset..offset + length].fill(0);
            } else {
                let data = noise(length, round as u64);
                disk.write_at(offset as u64, &data).unwrap();
                expect[offset..offset + length].copy_from_slice(&data);
            }
            let mut found = vec![0; length + 3];
            let from = offset.min(expect.len() - found.len());
            disk.read_at(from as u64, &mut found).unwrap();
            assert!(found == expect[from..from + found.len()], "round {round}");
        }
        disk.flush().unwrap();
        assert!(contents(&disk) == expect);
        assert_eq!(disk.write_at(disk.size() - 1, &[0; 2]).unwrap_err().cause(), Cause::DiskIo);
        assert_eq!(disk.make_zero(u64::MAX, 2).unwrap_err().cause(), Cause::DiskIo);
    }
}

#[test]
fn parts_of_a_sector_from_several_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, vec![0xff; 1 << 20]).unwrap();
    let disk = BlockDisk::open_file(&path, 4096).unwrap();
    let expect = noise(1 << 20, 5);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (disk, expect) = (&disk, &expect);
            scope.spawn(move || {
                for at in (thread * 512..expect.len()).step_by(4 * 512) {
                    disk.write_at(at as u64, &expect[at..at + 512]).unwrap();
                }
            });
        }
    });
    assert!(contents(&disk) == expect);
}

#[test]
fn a_file_past_the_page_cache_takes_any_image() {
    let dir = tempfile::tempdir().unwrap();
    let raw = gpt_image(dir.path(), "image.raw", 12 * MIB);
    let qcow2 = dir.path().join("image.qcow2");
    let (from, to) = (raw.to_str().unwrap(), qcow2.to_str().unwrap());
    for options in ["cluster_size=512", "cluster_size=1k,compression_type=zstd"] {
        let mut arguments = vec!["convert", "-O", "qcow2", "-o", options];
        if options.contains("zstd") {
            arguments.push("-c");
        }
        run("qemu-img", &[&arguments[..], &[from, to]].concat());
        let (path, file) = used_disk(dir.path(), "disk", 16 * MIB);
        drop(file);
        // Clusters smaller than a sector: neighbours share one.
        let disk = BlockDisk::open_file(&path, 4096).unwrap();
        let written = write_image(source(&qcow2), &request(&qcow2, DiskFormat::Qcow2), &disk, &mut go_on).unwrap();
        assert!(written.warnings[0].contains("sectors of 512 bytes"), "{:?}", written.warnings);
        assert!(contents(&disk)[..12 * MIB as usize] == std::fs::read(&raw).unwrap());
    }
}
