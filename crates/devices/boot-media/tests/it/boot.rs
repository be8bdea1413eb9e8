//! The agent image built from Debian's packages, and media of it booted by QEMU and OVMF, with Secure Boot and without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::run;
use boot_media::agent_image::index::{FILE_NAME, ModuleIndex};
use boot_media::agent_image::{BuildOptions, LOAD_BY_NAME, build, build_with_progress};
use boot_media::{Assets, HostFile, HostFiles, Manifest, Medium, ReadAt, cpio};

/// Limit of the whole medium, in bytes.
const LARGEST_MEDIUM: u64 = 60 << 20;

struct Image {
    folder: PathBuf,
    manifest: Manifest,
    index: ModuleIndex,
    /// How it was built, to build it again.
    options: BuildOptions,
}

/// Built once a run for all tests, each of which may be a process: they wait for the first one. Packages are kept between runs.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        // One run of nextest; without it, one process.
        let this = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let lock = fs::File::create(root.join("agent-image.lock")).unwrap();
        lock.lock().unwrap();
        let folder = root.join("agent-image");
        fs::create_dir_all(&folder).unwrap();
        let (init, built) = (root.join("agent-image-init"), root.join("agent-image-built-by"));
        let options = BuildOptions {
            agent_binary: init.clone(),
            agent_version: "test".into(),
            out_dir: folder.clone(),
            cache_dir: root.join("debian-packages"),
            packages: None,
        };
        if fs::read_to_string(&built).ok().as_ref() != Some(&this) {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/init/init.c");
            run(Command::new("cc").args(["-static", "-O1", "-Wall", "-Werror", "-o"]).arg(&init).arg(source));
            let start = Instant::now();
            build_with_progress(&options, &|step| println!("{:6.1} s {step}", start.elapsed().as_secs_f64())).unwrap();
            println!("{:6.1} s done", start.elapsed().as_secs_f64());
            fs::write(&built, this).unwrap();
        }
        drop(lock);
        let manifest: Manifest = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
        let initramfs = zstd::decode_all(fs::File::open(folder.join("initramfs")).unwrap()).unwrap();
        println!("initramfs: {} bytes unpacked", initramfs.len());
        let limits = cpio::Limits { entries: 10_000, name: 255, bytes: 1 << 30 };
        let files = cpio::read(&initramfs, limits).unwrap();
        let document = files.iter().find(|file| file.name.ends_with(FILE_NAME)).unwrap();
        let index: ModuleIndex = serde_json::from_slice(&document.data).unwrap();
        for entry in index.modules.values() {
            let path = index.module_path(entry);
            let module =
                files.iter().find(|file| file.name == path[1..]).unwrap_or_else(|| panic!("{path} is missing"));
            assert!(module.data.ends_with(b"~Module signature appended~\n"), "{path} has lost its signature");
        }
        Image { folder, manifest, index, options }
    })
}

/// Modules that the test's machines need, in the order of loading.
fn modules(index: &ModuleIndex) -> Vec<String> {
    let mut names: Vec<&str> = LOAD_BY_NAME.to_vec();
    for alias in [
        "pci:v00001AF4d00001042sv00001AF4sd00001100bc01sc00i00", // virtio disk
        "virtio:d00000002v00001AF4",
        "pci:v00001B36d00000010sv00001B36sd00001100bc01sc08i02", // NVMe disk
        "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01", // AHCI
        "pci:v00008086d000010D3sv00008086sd00000000bc02sc00i00", // Intel 82574
    ] {
        let found = index.matching(alias);
        assert!(!found.is_empty(), "nothing for {alias}");
        names.extend(found);
    }
    let mut paths = Vec::new();
    for name in names {
        for (_, entry) in index.load_order(name).unwrap() {
            let path = index.module_path(entry);
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    paths
}

fn write_medium(path: &Path) -> u64 {
    let image = image();
    let file = |path: &str, bytes: &[u8]| HostFile { path: path.into(), mode: 0o600, bytes: bytes.to_vec() };
    let list = modules(&image.index).join("\n");
    let host = HostFiles {
        files: vec![
            file("metamorph/host.json", b"{\"hello\":\"from the medium\"}"),
            file("metamorph/modules", list.as_bytes()),
        ],
        kernel_arguments: vec!["metamorph.test=1".into()],
    };
    let medium = Medium::compose(&Assets::open(&image.folder).unwrap(), &host).unwrap();
    let mut bytes = vec![0; usize::try_from(medium.len()).unwrap()];
    medium.read_exact_at(0, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
    medium.len()
}

/// A disk that a tenant prepared: it has what GRUB for CDs looks for, and would end the boot.
fn hostile_disk(work: &Path, disk: &Path) {
    let tree = work.join("tree");
    for (path, text) in
        [(".disk/info", "x"), ("boot/grub/grub.cfg", "halt\n"), ("host.cpio", "evil"), ("vmlinuz", "evil")]
    {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::File::create(disk).unwrap().set_len(16 << 20).unwrap();
    run(Command::new("/sbin/mke2fs").args(["-q", "-t", "ext2", "-L", "METAMORPH", "-d"]).arg(tree).arg(disk));
}

/// A disk with the file system of an EFI system partition.
fn fat_disk(work: &Path, disk: &Path) {
    fs::File::create(disk).unwrap().set_len(4 << 20).unwrap();
    run(Command::new("/sbin/mkfs.vfat").arg(disk));
    let text = work.join("hello.txt");
    fs::write(&text, "from FAT").unwrap();
    run(Command::new("mcopy").arg("-i").arg(disk).arg(text).arg("::/"));
}

/// Boots the medium, waits until the machine has powered itself off, gives what came out of its serial port.
fn boot(secure: bool) -> String {
    let work = tempfile::tempdir().unwrap();
    let medium = work.path().join("medium.iso");
    write_medium(&medium);
    let (code, variables, machine) = match secure {
        true => ("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd", "q35,smm=on"),
        false => ("OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd", "q35"),
    };
    let nvram = work.path().join("nvram.fd");
    fs::copy(format!("/usr/share/OVMF/{variables}"), &nvram).unwrap();
    let (disk, serial) = (work.path().join("disk.img"), work.path().join("serial.log"));
    hostile_disk(work.path(), &disk);
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-m", "512", "-display", "none", "-no-reboot", "-nodefaults", "-M", machine]);
    qemu.args(["-global", "driver=cfi.pflash01,property=secure,value=on"]);
    qemu.arg("-drive").arg(format!("if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/{code}"));
    qemu.arg("-drive").arg(format!("if=pflash,format=raw,file={}", nvram.display()));
    qemu.arg("-cdrom").arg(&medium);
    qemu.arg("-drive").arg(format!("if=none,id=disk,format=raw,snapshot=on,file={}", disk.display()));
    qemu.args(["-device", if secure { "nvme,drive=disk,serial=1" } else { "virtio-blk-pci,drive=disk" }]);
    let esp = work.path().join("esp.img");
    fat_disk(work.path(), &esp);
    qemu.arg("-drive").arg(format!("if=virtio,format=raw,snapshot=on,file={}", esp.display()));
    qemu.args(["-nic", "user,model=e1000e,restrict=on"]);
    qemu.arg("-serial").arg(format!("file:{}", serial.display()));
    let mut child = qemu.stdin(Stdio::null()).spawn().expect("qemu-system-x86_64 is needed");
    let start = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > Duration::from_secs(240) => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    child.kill().ok();
    child.wait().unwrap();
    let text = String::from_utf8_lossy(&fs::read(&serial).unwrap()).into_owned();
    assert!(ended.is_some_and(|status| status.success()), "the machine did not power itself off:\n{text}");
    println!("booted in {:.1} s", start.elapsed().as_secs_f64());
    text
}

fn check_common(text: &str) {
    let line =
        |wanted: &str| assert!(text.lines().any(|line| line.trim_end().ends_with(wanted)), "no {wanted:?} in\n{text}");
    line("BEGIN pid=1");
    line("HOST={\"hello\":\"from the medium\"}");
    line("EFIVARFS mounted");
    line("VFAT=from FAT");
    assert!(text.contains("metamorph.test=1"), "{text}");
    let loaded: Vec<&str> = text.lines().filter(|line| line.starts_with("MODULE ")).collect();
    assert_eq!(loaded.len(), modules(&image().index).len(), "{text}");
    for module in loaded {
        // the processor emulated has no hardware for some checksums
        let accepted = module.trim_end().ends_with(" loaded") || module.contains("No such device");
        assert!(accepted, "{module}\n{text}");
    }
    for module in ["virtio_blk.ko", "nvme.ko", "e1000e.ko", "vfat.ko", "bonding.ko", "8021q.ko", "efivarfs.ko"] {
        line(&format!("MODULE {module} loaded"));
    }
    assert!(text.lines().any(|line| line.starts_with("LINK eth")), "{text}");
}

#[test]
fn the_image_is_small_and_has_the_drivers_of_servers() {
    let image = image();
    assert!(image.manifest.modules > 150, "{} modules", image.manifest.modules);
    for (alias, module) in [
        ("pci:v00001000d00000097sv00001028sd00001F45bc01sc07i00", "mpt3sas"),
        ("pci:v00001000d0000005Dsv00001028sd00001F49bc01sc04i00", "megaraid_sas"),
        ("pci:v00009005d0000028Fsv00001590sd00000100bc01sc07i00", "smartpqi"),
        ("pci:v00008086d00001592sv00008086sd00000002bc02sc00i00", "ice"),
        ("pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc00i00", "mlx5_core"),
        ("pci:v000014E4d0000165Fsv00001028sd000008FFbc02sc00i00", "tg3"),
        ("pci:v000014E4d000016D7sv000014E4sd00001402bc02sc00i00", "bnxt_en"),
        ("pci:v00008086d0000201Dsv00000000sd00000000bc01sc04i00", "vmd"),
        ("usb:v1234p5678d0100dc00dsc00dp00ic08isc06ip50in00", "usb_storage"),
    ] {
        assert!(image.index.matching(alias).contains(&module), "{alias} should load {module}");
    }
    let work = tempfile::tempdir().unwrap();
    let medium = work.path().join("medium.iso");
    let bytes = write_medium(&medium);
    let esp = work.path().join("efi.img");
    run(Command::new("xorriso").arg("-indev").arg(&medium).args(["-osirrox", "on", "-extract", "/efi.img"]).arg(&esp));
    run(Command::new("fsck.vfat").arg("-n").arg(&esp));
    println!("{} modules, medium of {:.1} MiB", image.manifest.modules, bytes as f64 / f64::from(1 << 20));
    assert!(bytes <= LARGEST_MEDIUM, "the medium has {bytes} bytes");
    for package in &image.manifest.packages {
        let licence = image.folder.join("licences").join(&package.name);
        assert!(fs::metadata(&licence).unwrap().len() > 1000, "{licence:?}");
    }
}

#[test]
fn the_same_packages_give_the_same_image() {
    let image = image();
    let work = tempfile::tempdir().unwrap();
    let agent = work.path().join("other-name");
    fs::copy(&image.options.agent_binary, &agent).unwrap();
    let out_dir = work.path().join("out");
    let options = BuildOptions { agent_binary: agent, out_dir: out_dir.clone(), ..image.options.clone() };
    assert_eq!(build(&options).unwrap(), image.manifest);
    for name in ["manifest.json", "initramfs", "vmlinuz"] {
        assert!(fs::read(out_dir.join(name)).unwrap() == fs::read(image.folder.join(name)).unwrap(), "{name} differs");
    }
}

#[test]
fn a_program_with_libraries_is_refused() {
    let work = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        agent_binary: std::env::current_exe().unwrap(),
        agent_version: "test".into(),
        out_dir: work.path().join("out"),
        cache_dir: work.path().join("cache"),
        packages: None,
    };
    let error = build(&options).unwrap_err().to_string();
    assert!(error.contains("it is not static"), "{error}");
    assert!(!work.path().join("cache").exists(), "the refusal comes before any download");
}

#[test]
fn a_machine_boots_from_the_medium() {
    let text = boot(false);
    check_common(&text);
    assert!(text.contains("LOCKDOWN=[none] integrity"), "{text}");
    assert!(text.contains("DISK vda"), "{text}");
}

#[test]
fn a_machine_boots_from_the_medium_with_secure_boot() {
    let text = boot(true);
    check_common(&text);
    assert!(text.contains("LOCKDOWN=none [integrity]"), "Secure Boot was off:\n{text}");
    assert!(text.contains("DISK nvme0n1"), "{text}");
}
