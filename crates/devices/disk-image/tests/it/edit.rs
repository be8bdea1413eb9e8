//! Config drive, ownership mark, cleaning and boot information, judged by outside tools.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{
    MIB, assert_no_table, blkid, contents, go_on, gpt_image, noise, request, run, source, used_disk, verify_gpt,
};
use disk_image::{
    BootArch, CONFIG_LABEL, Cause, ConfigDriveFiles, Disk, DiskFormat, ESP_TYPE, Error, FileDisk, MARK_TYPE, Mark,
    MarkFound, MarkPlaced, PartitionType, TableKind, VolumeKind, cluster_file_system, find_config_volumes,
    neutralise_config_volume, read_boot_info, read_mark, read_partitions, wipe_metadata, write_config_drive,
    write_config_volume, write_image_then, write_mark,
};
use proptest::prelude::*;

const FILES: ConfigDriveFiles<'static> = ConfigDriveFiles {
    meta_data: br#"{"uuid":"d7b1c5b6"}"#,
    user_data: Some(b"#cloud-config\nhostname: node-1\n"),
    network_data: Some(br#"{"links":[]}"#),
    vendor_data: None,
};

fn mark(owner: &str) -> Mark {
    Mark {
        owner: owner.into(),
        host: "metal3/node-1".into(),
        operation: "provision-1".into(),
        written: "2026-11-21T10:00:00Z".into(),
    }
}

/// Copies a part of the disk to a file of its own.
fn cut(disk: &dyn Disk, offset: u64, length: u64, to: &Path) {
    let mut data = vec![0; length as usize];
    disk.read_at(offset, &mut data).unwrap();
    std::fs::write(to, data).unwrap();
}

/// The volume is sound, has the label, the files, and sectors of the size given.
fn assert_config_volume(volume: &Path, sector: u32, dated: bool) {
    let text = volume.to_str().unwrap();
    run("fsck.vfat", &["-n", text]);
    let found = blkid(volume, 0);
    assert!(found.contains(" LABEL=\"config-2\"") && found.contains("TYPE=\"vfat\""), "{found}");
    let boot = std::fs::read(volume).unwrap();
    assert_eq!(u32::from(u16::from_le_bytes([boot[11], boot[12]])), sector);
    for folder in ["latest", "2012-08-10"].iter().filter(|folder| dated || **folder == "latest") {
        for (name, data) in [
            ("meta_data.json", Some(FILES.meta_data)),
            ("user_data", FILES.user_data),
            ("network_data.json", FILES.network_data),
        ] {
            let path = format!("::/openstack/{folder}/{name}");
            let found = run("mtype", &["-i", text, &path]);
            assert_eq!(Some(found.as_bytes()), data, "{path}");
        }
        assert!(run("mdir", &["-b", "-i", text, &format!("::/openstack/{folder}")]).contains("user_data"));
    }
}

/// A disk with an image on it and free space behind.
fn written_disk(dir: &Path, image: u64, disk: u64) -> (PathBuf, FileDisk) {
    let image = gpt_image(dir, "image.raw", image);
    let (path, disk) = used_disk(dir, "disk", disk);
    disk_image::write_image(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on).unwrap();
    (path, disk)
}

#[test]
fn mark_and_config_drive_appear_with_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let image = gpt_image(dir.path(), "image.raw", 16 * MIB);
    let mut bytes = Vec::new();
    for round in 0..2 {
        let (path, disk) = used_disk(dir.path(), &format!("disk{round}"), 100 * MIB);
        let mut placed = None;
        write_image_then(source(&image), &request(&image, DiskFormat::Raw), &disk, &mut go_on, &mut |held| {
            assert_eq!(write_mark(held, &mark("one"))?, MarkPlaced::Partition(3));
            placed = Some(write_config_drive(held, &FILES)?);
            Ok(())
        })
        .unwrap();
        let placed = placed.unwrap();
        assert_eq!((placed.partition, placed.length, placed.reused), (4, 64 * MIB, false));
        assert!(placed.offset.is_multiple_of(MIB) && placed.offset > 30 * MIB);
        verify_gpt(&path);
        assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("one")));
        let table = read_partitions(&disk).unwrap().unwrap();
        assert_eq!(table.partitions[2].kind, PartitionType::Guid(MARK_TYPE));
        assert_eq!(table.partitions[3].name, CONFIG_LABEL);
        let volume = dir.path().join("volume");
        cut(&disk, placed.offset, placed.length, &volume);
        assert_config_volume(&volume, 512, true);
        let found = find_config_volumes(&disk).unwrap();
        assert_eq!(found.iter().map(|volume| volume.partition).collect::<Vec<_>>(), [Some(4)]);
        let info = run("sgdisk", &["-i", "4", path.to_str().unwrap()]);
        assert!(info.contains("Microsoft basic data") && info.contains("'config-2'"), "{info}");
        bytes.push(contents(&disk));
    }
    // The same inputs give the same bytes.
    assert!(bytes[0] == bytes[1]);
}

#[test]
fn a_config_drive_in_the_image_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    for (size, reused) in [("4M", true), ("64K", false)] {
        let (path, disk) = written_disk(dir.path(), 16 * MIB, 100 * MIB);
        let text = path.to_str().unwrap();
        run("sgdisk", &["-n", &format!("3:40M:+{size}"), "-t", "3:0700", text]);
        let old = read_partitions(&disk).unwrap().unwrap().partitions[2].clone();
        let volume = dir.path().join("old");
        File::create(&volume).unwrap().set_len(old.length).unwrap();
        run("mkfs.vfat", &["-n", "CONFIG-2", volume.to_str().unwrap()]);
        disk.write_at(old.offset, &std::fs::read(&volume).unwrap()).unwrap();
        let placed = write_config_drive(&disk, &FILES).unwrap();
        assert_eq!((placed.reused, placed.partition), (reused, 3));
        assert_eq!(placed.offset == old.offset, reused);
        verify_gpt(&path);
        assert_eq!(find_config_volumes(&disk).unwrap().len(), 1);
        cut(&disk, placed.offset, placed.length, &volume);
        assert_config_volume(&volume, 512, true);
    }
}

#[test]
fn large_files_and_small_disks() {
    let dir = tempfile::tempdir().unwrap();
    // Little room: the volume takes what there is.
    let (path, disk) = written_disk(dir.path(), 16 * MIB, 18 * MIB);
    let placed = write_config_drive(&disk, &FILES).unwrap();
    assert!(placed.length > MIB && placed.length < 3 * MIB, "{placed:?}");
    verify_gpt(&path);
    let volume = dir.path().join("volume");
    cut(&disk, placed.offset, placed.length, &volume);
    assert_config_volume(&volume, 512, true);
    // Too much for two copies, enough for one.
    let large = noise(40 << 20, 1);
    let files = ConfigDriveFiles { user_data: Some(&large), ..FILES };
    let (path, disk) = written_disk(dir.path(), 16 * MIB, 120 * MIB);
    let placed = write_config_drive(&disk, &files).unwrap();
    verify_gpt(&path);
    cut(&disk, placed.offset, placed.length, &volume);
    run("fsck.vfat", &["-n", volume.to_str().unwrap()]);
    let out = dir.path().join("user_data");
    run("mcopy", &["-i", volume.to_str().unwrap(), "::/openstack/latest/user_data", out.to_str().unwrap()]);
    assert!(std::fs::read(out).unwrap() == large);
    // Too much at all.
    let (_, disk) = written_disk(dir.path(), 16 * MIB, 30 * MIB);
    let error = write_config_drive(&disk, &files).unwrap_err();
    assert_eq!(error.cause(), Cause::NoSpace, "{error}");
    assert_eq!(read_partitions(&disk).unwrap().unwrap().partitions.len(), 2);
}

#[test]
fn a_config_drive_that_is_a_volume_is_written_as_it_is_and_takes_the_place_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("files");
    std::fs::create_dir_all(files.join("openstack/latest")).unwrap();
    std::fs::write(files.join("openstack/latest/meta_data.json"), FILES.meta_data).unwrap();
    let iso = dir.path().join("drive.iso");
    let (from, to) = (files.to_str().unwrap(), iso.to_str().unwrap());
    run("xorrisofs", &["-quiet", "-r", "-J", "-V", "config-2", "-o", to, from]);
    let volume = std::fs::read(&iso).unwrap();
    let (path, disk) = written_disk(dir.path(), 16 * MIB, 100 * MIB);
    write_config_drive(&disk, &FILES).unwrap();
    let placed = write_config_volume(&disk, &volume).unwrap();
    assert!(!placed.reused && placed.length >= volume.len() as u64, "{placed:?}");
    verify_gpt(&path);
    let found = find_config_volumes(&disk).unwrap();
    assert_eq!(
        found.iter().map(|volume| (volume.kind, volume.offset)).collect::<Vec<_>>(),
        [(VolumeKind::Iso9660, placed.offset)]
    );
    let written = dir.path().join("written");
    cut(&disk, placed.offset, volume.len() as u64, &written);
    assert!(std::fs::read(&written).unwrap() == volume, "not a byte is another");
    // Too large, and of sectors that Linux would not mount there.
    let (_, small) = written_disk(dir.path(), 16 * MIB, 18 * MIB);
    assert_eq!(write_config_volume(&small, &noise(8 << 20, 1)).unwrap_err().cause(), Cause::NoSpace);
    let large = disk_of_large_sectors(dir.path());
    let error = write_config_volume(&large, &volume).unwrap_err();
    assert_eq!(error.cause(), Cause::UnsupportedFormat, "{error}");
}

/// A GPT disk with 4096-byte sectors, which outside tools cannot make in a file: ours from one of 512.
fn disk_of_large_sectors(dir: &Path) -> FileDisk {
    let disk = FileDisk::create(&dir.join("large"), 200 * MIB, 4096).unwrap();
    let mut entries = vec![0; 128 * 128];
    entries[..16].copy_from_slice(&ESP_TYPE.to_bytes_le());
    entries[16..32].fill(7);
    entries[32..40].copy_from_slice(&256_u64.to_le_bytes());
    entries[40..48].copy_from_slice(&1023_u64.to_le_bytes());
    let mut header = vec![0; 4096];
    header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
    for (at, value) in [(24, 1), (32, 51199), (40, 6), (48, 51194), (72, 2_u64)] {
        header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    header[56..72].fill(9);
    header[80..84].copy_from_slice(&128_u32.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header[88..92].copy_from_slice(&crc32fast::hash(&entries).to_le_bytes());
    let crc = crc32fast::hash(&header[..92]);
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    disk.write_at(4096, &header).unwrap();
    disk.write_at(8192, &entries).unwrap();
    disk
}

#[test]
fn sectors_of_4096_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = disk_of_large_sectors(dir.path());
    assert_eq!(write_mark(&disk, &mark("one")).unwrap(), MarkPlaced::Partition(2));
    let placed = write_config_drive(&disk, &FILES).unwrap();
    assert_eq!((placed.partition, placed.length), (3, 64 * MIB));
    let volume = dir.path().join("volume");
    cut(&disk, placed.offset, placed.length, &volume);
    assert_config_volume(&volume, 4096, true);
    let table = read_partitions(&disk).unwrap().unwrap();
    assert_eq!(table.kind, TableKind::Gpt);
    assert!(!table.primary_damaged);
    assert_eq!(table.partitions.len(), 3);
    // The backup holds the same; a disk moved to a controller with other sectors is still recognised.
    disk.make_zero(0, MIB).unwrap();
    let backup = read_partitions(&disk).unwrap().unwrap();
    assert!(backup.primary_damaged);
    assert_eq!(backup.partitions, table.partitions);
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("one")));
    let small = FileDisk::open(&dir.path().join("large"), 512).unwrap();
    assert_eq!(read_mark(&small).unwrap(), MarkFound::Owner(mark("one")));
}

#[test]
fn marks() {
    let dir = tempfile::tempdir().unwrap();
    let (path, disk) = written_disk(dir.path(), 16 * MIB, 24 * MIB);
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::None);
    assert_eq!(write_mark(&disk, &mark("one")).unwrap(), MarkPlaced::Partition(3));
    assert_eq!(write_mark(&disk, &mark("two")).unwrap(), MarkPlaced::Partition(3));
    verify_gpt(&path);
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("two")));
    // One copy is enough, the backup table too.
    let place = read_partitions(&disk).unwrap().unwrap().partitions[2].clone();
    disk.write_at(place.offset + 30, b"x").unwrap();
    disk.make_zero(512, 512).unwrap();
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("two")));
    disk.make_zero(place.offset, place.length).unwrap();
    assert!(matches!(read_mark(&disk).unwrap(), MarkFound::Damaged { partition: 3, .. }));
    let long = Mark { host: "x".repeat(5000), ..mark("one") };
    assert!(matches!(write_mark(&disk, &long), Err(Error::LimitExceeded { .. })));
}

#[test]
fn a_full_gpt_disk_has_room_for_a_mark_before_the_first_partition() {
    let dir = tempfile::tempdir().unwrap();
    let (path, disk) = written_disk(dir.path(), 16 * MIB, 16 * MIB);
    assert!(matches!(write_mark(&disk, &mark("one")).unwrap(), MarkPlaced::Partition(3)));
    verify_gpt(&path);
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("one")));
    // Not so if the first partition begins at once.
    let (path, disk) = used_disk(dir.path(), "full", 16 * MIB);
    run("sgdisk", &["-o", "-a", "1", "-n", "1:34:0", path.to_str().unwrap()]);
    let placed = write_mark(&disk, &mark("one")).unwrap();
    assert!(matches!(&placed, MarkPlaced::NoRoom { reason } if reason.contains("no room")), "{placed:?}");
    assert_eq!(write_config_drive(&disk, &FILES).unwrap_err().cause(), Cause::NoSpace);
}

/// An MBR as `sfdisk` would write it: entries of type, first sector, sectors.
fn mbr_disk(dir: &Path, size: u64, entries: &[(u8, u32, u32)]) -> (PathBuf, FileDisk) {
    let path = dir.join("mbr");
    let disk = FileDisk::create(&path, size, 512).unwrap();
    let mut boot = [0; 512];
    boot[440..444].copy_from_slice(&0x1234_5678_u32.to_le_bytes());
    for (at, (kind, first, sectors)) in entries.iter().enumerate() {
        let entry = &mut boot[446 + 16 * at..462 + 16 * at];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&first.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_at(0, &boot).unwrap();
    (path, disk)
}

#[test]
fn mbr_disks() {
    let dir = tempfile::tempdir().unwrap();
    let (path, disk) = mbr_disk(dir.path(), 100 * MIB, &[(0x83, 2048, 20_000)]);
    assert_eq!(write_mark(&disk, &mark("one")).unwrap(), MarkPlaced::Partition(2));
    let placed = write_config_drive(&disk, &FILES).unwrap();
    assert_eq!((placed.partition, placed.length), (3, 64 * MIB));
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::Owner(mark("one")));
    let table = read_partitions(&disk).unwrap().unwrap();
    assert_eq!((table.kind, table.partitions.len()), (TableKind::Mbr, 3));
    let found = blkid(&path, 0);
    assert!(found.contains("PTUUID=\"12345678\"") && found.contains("PTTYPE=\"dos\""), "{found}");
    let volume = dir.path().join("volume");
    cut(&disk, placed.offset, placed.length, &volume);
    assert_config_volume(&volume, 512, true);

    let full = [(0x83, 2048, 100), (0x83, 4096, 100), (0x83, 8192, 100), (0x83, 16384, 100)];
    let (_, disk) = mbr_disk(dir.path(), 100 * MIB, &full);
    let placed = write_mark(&disk, &mark("one")).unwrap();
    assert!(matches!(&placed, MarkPlaced::NoRoom { reason } if reason.contains("all entries")), "{placed:?}");
    let error = write_config_drive(&disk, &FILES).unwrap_err();
    assert_eq!(error.cause(), Cause::NoSpace);
    assert_eq!(read_partitions(&disk).unwrap().unwrap().partitions.len(), 4);
}

#[test]
fn logical_partitions_are_found_and_their_loops_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (_, disk) = mbr_disk(dir.path(), 40 * MIB, &[(0x83, 2048, 2048), (0x05, 8192, 40_000)]);
    let ebr = |first: u32, next: u32| {
        let mut boot = [0; 512];
        boot[446 + 4] = 0x83;
        boot[446 + 8..446 + 12].copy_from_slice(&first.to_le_bytes());
        boot[446 + 12..446 + 16].copy_from_slice(&1000_u32.to_le_bytes());
        if next > 0 {
            boot[462 + 4] = 0x05;
            boot[462 + 8..462 + 12].copy_from_slice(&next.to_le_bytes());
            boot[462 + 12..462 + 16].copy_from_slice(&2000_u32.to_le_bytes());
        }
        boot[510..].copy_from_slice(&[0x55, 0xaa]);
        boot
    };
    disk.write_at(8192 * 512, &ebr(64, 10_000)).unwrap();
    disk.write_at(18_192 * 512, &ebr(64, 0)).unwrap();
    let table = read_partitions(&disk).unwrap().unwrap();
    let found: Vec<_> = table.partitions.iter().map(|p| (p.number, p.first_lba)).collect();
    assert_eq!(found, [(1, 2048), (5, 8256), (6, 18_256)]);
    // A chain that comes back to its beginning.
    disk.write_at(18_192 * 512, &ebr(64, 10_000)).unwrap();
    assert_eq!(read_partitions(&disk).unwrap().unwrap().partitions.len(), 3);
    // The space of the extended partition is taken.
    assert!(write_config_drive(&disk, &FILES).unwrap().offset >= 48_192 * 512);
}

#[test]
fn a_file_system_without_a_table_is_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bare");
    let disk = FileDisk::create(&path, 40 * MIB, 512).unwrap();
    run("mkfs.vfat", &["-n", "config-2", path.to_str().unwrap()]);
    assert_eq!(read_partitions(&disk).unwrap(), None);
    let error = write_config_drive(&disk, &FILES).unwrap_err();
    assert!(matches!(error, Error::BadPartitionTable { .. }), "{error}");
    assert!(matches!(write_mark(&disk, &mark("one")).unwrap(), MarkPlaced::NoRoom { .. }));
}

#[test]
fn stale_config_drives_on_other_disks() {
    let dir = tempfile::tempdir().unwrap();
    // On a partition.
    let (path, disk) = used_disk(dir.path(), "disk", 16 * MIB);
    let found = find_config_volumes(&disk).unwrap();
    assert_eq!((found.len(), found[0].partition, found[0].kind), (1, Some(1), VolumeKind::Fat));
    neutralise_config_volume(&disk, &found[0]).unwrap();
    assert_eq!(find_config_volumes(&disk).unwrap(), []);
    assert!(!blkid(&path, found[0].offset).contains("config-2"));
    verify_gpt(&path);
    // The whole disk, FAT32 and ISO 9660.
    for iso in [false, true] {
        let path = dir.path().join("whole");
        let disk = FileDisk::create(&path, 64 * MIB, 512).unwrap();
        if iso {
            let mut descriptor = [0; 2048];
            descriptor[..7].copy_from_slice(b"\x01CD001\x01");
            descriptor[40..72].copy_from_slice(b"config-2                        ");
            disk.write_at(16 * 2048, &descriptor).unwrap();
            disk.write_at(17 * 2048, b"\xffCD001\x01").unwrap();
        } else {
            run("mkfs.vfat", &["-F", "32", "-n", "CONFIG-2", path.to_str().unwrap()]);
        }
        assert!(blkid(&path, 0).to_ascii_lowercase().contains("config-2"));
        let found = find_config_volumes(&disk).unwrap();
        assert_eq!((found.len(), found[0].partition), (1, None));
        neutralise_config_volume(&disk, &found[0]).unwrap();
        assert_eq!(find_config_volumes(&disk).unwrap(), []);
        assert_eq!(blkid(&path, 0), "");
    }
    // Another label is none of our business.
    let path = dir.path().join("other");
    let disk = FileDisk::create(&path, 8 * MIB, 512).unwrap();
    run("mkfs.vfat", &["-n", "config-3", path.to_str().unwrap()]);
    assert_eq!(find_config_volumes(&disk).unwrap(), []);
}

#[test]
fn a_clean_disk_shows_nothing_to_any_tool() {
    let dir = tempfile::tempdir().unwrap();
    let (path, disk) = used_disk(dir.path(), "disk", 64 * MIB);
    let partitions = read_partitions(&disk).unwrap().unwrap().partitions;
    // An ext4 and, at the ends, what other tools leave: swap, LVM, RAID 1.0, LUKS2's second header.
    let volume = dir.path().join("ext4");
    File::create(&volume).unwrap().set_len(partitions[1].length).unwrap();
    run("mkfs.ext4", &["-q", "-F", volume.to_str().unwrap()]);
    disk.write_at(partitions[1].offset, &std::fs::read(&volume).unwrap()).unwrap();
    assert!(blkid(&path, partitions[1].offset).contains("ext4"));
    write_mark(&disk, &mark("one")).unwrap();
    assert_eq!(wipe_metadata(&disk).unwrap(), 2);
    assert_no_table(&path, &disk);
    for partition in &partitions {
        assert_eq!(blkid(&path, partition.offset), "");
    }
    assert_eq!(run("wipefs", &[path.to_str().unwrap()]), "");
    assert_eq!(read_mark(&disk).unwrap(), MarkFound::None);
    // A table for other sectors, seen through this disk's.
    let large = disk_of_large_sectors(dir.path());
    write_mark(&large, &mark("one")).unwrap();
    let small = FileDisk::open(&dir.path().join("large"), 512).unwrap();
    assert_eq!(wipe_metadata(&small).unwrap(), 2);
    assert_eq!(read_partitions(&large).unwrap(), None);
}

/// Puts an ESP with these files on the image's first partition.
fn fill_esp(dir: &Path, disk: &dyn Disk, files: &[(&str, &[u8])]) {
    let esp = read_partitions(disk).unwrap().unwrap().partitions[0].clone();
    let volume = dir.join("esp");
    File::create(&volume).unwrap().set_len(esp.length).unwrap();
    let text = volume.to_str().unwrap();
    run("mkfs.vfat", &[text]);
    for (name, data) in files {
        let mut folder = String::new();
        let parts: Vec<_> = name.split('/').collect();
        for part in &parts[..parts.len() - 1] {
            folder = format!("{folder}/{part}");
            let listed =
                std::process::Command::new("mdir").args(["-i", text, &format!("::{folder}")]).output().unwrap();
            if !listed.status.success() {
                run("mmd", &["-i", text, &format!("::{folder}")]);
            }
        }
        let file = dir.join("file");
        File::create(&file).unwrap().write_all(data).unwrap();
        run("mcopy", &["-i", text, file.to_str().unwrap(), &format!("::{name}")]);
    }
    disk.write_at(esp.offset, &std::fs::read(&volume).unwrap()).unwrap();
}

fn utf16(text: &str) -> Vec<u8> {
    let mut data = vec![0xff, 0xfe];
    data.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    data
}

#[test]
fn loaders() {
    let dir = tempfile::tempdir().unwrap();
    let (_, disk) = written_disk(dir.path(), 16 * MIB, 20 * MIB);
    let csv = utf16("missing.efi,Old,,\r\nSHIMX64.EFI,debian,,This is the boot entry for debian\r\n");
    let all: [(&str, &[u8]); 4] = [
        ("EFI/BOOT/BOOTX64.EFI", b"MZ"),
        ("EFI/BOOT/fbx64.efi", b"MZ"),
        ("EFI/debian/shimx64.efi", b"MZ"),
        ("EFI/debian/BOOTX64.CSV", &csv),
    ];
    fill_esp(dir.path(), &disk, &all);
    let info = read_boot_info(&disk, BootArch::X64).unwrap().unwrap();
    assert_eq!((info.esp.number, info.esp.first_lba, info.esp.sectors), (1, 2048, 4096));
    assert!(info.esp.unique.is_some());
    let loader = info.loader.unwrap();
    assert_eq!(loader.path, "\\EFI\\debian\\shimx64.efi");
    assert_eq!((loader.label.as_deref(), loader.fallback), (Some("debian"), false));
    // Without the description, the fallback; for another architecture, nothing.
    fill_esp(dir.path(), &disk, &all[..3]);
    let loader = read_boot_info(&disk, BootArch::X64).unwrap().unwrap().loader.unwrap();
    assert_eq!((loader.path.as_str(), loader.fallback), ("\\EFI\\BOOT\\BOOTX64.EFI", true));
    assert_eq!(read_boot_info(&disk, BootArch::Aa64).unwrap().unwrap().loader, None);
    // A description that leads elsewhere is not followed; ASCII is read.
    let bad: [(&str, &[u8]); 3] = [
        ("EFI/x/BOOTX64.CSV", b"..\\..\\evil.efi,Evil,,\nok.efi,Good,opts,"),
        ("EFI/x/ok.efi", b"MZ"),
        ("evil.efi", b"MZ"),
    ];
    fill_esp(dir.path(), &disk, &bad);
    let loader = read_boot_info(&disk, BootArch::X64).unwrap().unwrap().loader.unwrap();
    assert_eq!((loader.path.as_str(), loader.options.as_str()), ("\\EFI\\x\\ok.efi", "opts"));
    // No ESP at all.
    let (_, disk) = mbr_disk(dir.path(), 20 * MIB, &[(0x83, 2048, 2048)]);
    assert_eq!(read_boot_info(&disk, BootArch::X64).unwrap(), None);
}

/// A small FAT volume for flipping bits in.
fn esp_bytes(fat: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (_, disk) = written_disk(dir.path(), 16 * MIB, 16 * MIB);
    let csv = utf16("shimx64.efi,debian,,");
    fill_esp(dir.path(), &disk, &[("EFI/debian/shimx64.efi", b"MZ"), ("EFI/debian/BOOTX64.CSV", &csv)]);
    if fat == "32" {
        let volume = dir.path().join("esp");
        run("mkfs.vfat", &["-F", "32", volume.to_str().unwrap()]);
        let esp = read_partitions(&disk).unwrap().unwrap().partitions[0].clone();
        disk.write_at(esp.offset, &std::fs::read(&volume).unwrap()).unwrap();
    }
    contents(&disk)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn damaged_disks_never_panic(
        flips in prop::collection::vec((0.0..1.0_f64, 0..8_u32, 0..4_u8), 1..8),
        fat in prop::bool::ANY,
    ) {
        static SMALL: std::sync::OnceLock<[Vec<u8>; 2]> = std::sync::OnceLock::new();
        let sample = &SMALL.get_or_init(|| [esp_bytes("12"), esp_bytes("32")])[usize::from(fat)];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        std::fs::write(&path, sample).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for (place, bit, where_) in flips {
            // The table, the volume's boot sector, its tables and folders, anywhere.
            let (from, length) = [(0, 6000), (MIB, 512), (MIB, 40 << 10), (0, sample.len() as u64)][usize::from(where_)];
            let at = from + (place * length as f64) as u64;
            file.write_all_at(&[sample[at as usize] ^ 1 << bit], at).unwrap();
        }
        let disk = FileDisk::open(&path, 512).unwrap();
        read_boot_info(&disk, BootArch::X64).unwrap();
        find_config_volumes(&disk).unwrap();
        read_mark(&disk).unwrap();
        let _ = write_mark(&disk, &mark("one"));
        let _ = write_config_drive(&disk, &FILES);
        wipe_metadata(&disk).unwrap();
        prop_assert_eq!(read_partitions(&disk).unwrap(), None);
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn volumes_of_any_size_are_sound(size in 20_u64..140, large in any::<bool>(), bytes in 0_usize..3_000_000) {
        let dir = tempfile::tempdir().unwrap();
        let disk = if large {
            disk_of_large_sectors(dir.path())
        } else {
            let path = dir.path().join("disk");
            let disk = FileDisk::create(&path, size * MIB, 512).unwrap();
            run("sgdisk", &["-n", "1:2048:+10M", path.to_str().unwrap()]);
            disk
        };
        let data = noise(bytes, 3);
        let files = ConfigDriveFiles { vendor_data: Some(&data), ..FILES };
        let placed = write_config_drive(&disk, &files).unwrap();
        let volume = dir.path().join("volume");
        cut(&disk, placed.offset, placed.length, &volume);
        assert_config_volume(&volume, if large { 4096 } else { 512 }, true);
        let out = dir.path().join("out");
        run("mcopy", &["-i", volume.to_str().unwrap(), "::/openstack/latest/vendor_data.json", out.to_str().unwrap()]);
        prop_assert!(std::fs::read(out).unwrap() == data);
    }
}

/// What is planted is what blkid knows as well.
#[test]
fn cluster_file_systems_are_known_on_disks_and_on_partitions() {
    let be = |words: [u32; 2]| words.map(u32::to_be_bytes).concat();
    let gfs2 = [(0x10000, be([0x0116_1970, 1])), (0x10018, be([1801, 1900]))];
    let vmfs = [(2 << 20, vec![0x5e, 0xf1, 0xab, 0x2f])];
    let member = [(1 << 20, vec![0x0d, 0xd0, 0x01, 0xc0])];
    let ocfs2 = [(2048, b"OCFSV2".to_vec())];
    type Planted<'a> = &'a [(u64, Vec<u8>)];
    let cases: [(&str, &str, Planted); 4] = [
        ("gfs2", "GFS2", &gfs2),
        ("VMFS", "VMFS", &vmfs),
        ("VMFS_volume_member", "VMFS", &member),
        ("ocfs2", "OCFS2", &ocfs2),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (known, kind, bytes) in cases {
        let path = folder.path().join(known);
        let file = File::create(&path).unwrap();
        file.set_len(64 * MIB).unwrap();
        for (at, bytes) in bytes {
            file.write_all_at(bytes, *at).unwrap();
        }
        assert!(blkid(&path, 0).contains(&format!("TYPE=\"{known}\"")), "{}", blkid(&path, 0));
        assert_eq!(cluster_file_system(&FileDisk::open(&path, 512).unwrap()).unwrap(), Some(kind));
        // on a partition
        let path = gpt_image(folder.path(), &format!("{known}.gpt"), 64 * MIB);
        let disk = FileDisk::open(&path, 512).unwrap();
        assert_eq!(cluster_file_system(&disk).unwrap(), None);
        let partition = read_partitions(&disk).unwrap().unwrap().partitions.pop().unwrap();
        for (at, bytes) in bytes {
            disk.write_at(partition.offset + at, bytes).unwrap();
        }
        assert_eq!(cluster_file_system(&disk).unwrap(), Some(kind));
    }
    // GPFS and VMFS by the type of a partition
    for (kind, guid) in
        [("GPFS", "37affc90-ef7d-4e96-91c3-2d7ae055b174"), ("VMFS", "aa31e02a-400f-11db-9590-000c2911d1b8")]
    {
        let path = gpt_image(folder.path(), kind, 64 * MIB);
        run("sgdisk", &["-t", &format!("1:{guid}"), path.to_str().unwrap()]);
        assert_eq!(cluster_file_system(&FileDisk::open(&path, 512).unwrap()).unwrap(), Some(kind));
    }
}
