//! The QEMU machine: firmware that reads the virtual CD by NBD, resets, Secure Boot, the end of the process.
//!
//! What boots is a UEFI program of a few bytes, made here: it says a sentence on the console and asks for a reset or for
//! power-off.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod kit;

use std::{path::Path, process::Command};

use bmc_sim::{DiskBus, DiskConfig, MachineConfig, MachineKind, NicConfig, config::CdBus};
use kit::{Images, Lab, path};
use serde_json::{Value, json};

const COLD_RESET: u8 = 0;
const SHUTDOWN: u8 = 2;

/// A UEFI program (PE32+, x86-64) that prints `message` and calls `ResetSystem(kind)`.
fn program(message: &str, kind: u8) -> Vec<u8> {
    // rdx is the system table: ConOut at 0x40, whose OutputString is at 8; RuntimeServices at 0x58, whose ResetSystem
    // is at 0x68 (UEFI specification, 4.3, 8.1, 12.4).
    let mut code = vec![0x48, 0x83, 0xec, 0x28, 0x48, 0x89, 0xd3, 0x48, 0x8b, 0x4b, 0x40, 0x48, 0x8d, 0x15];
    let rest = [
        0xff, 0x51, 0x08, 0x48, 0x8b, 0x43, 0x58, 0xb9, kind, 0, 0, 0, 0x31, 0xd2, 0x45, 0x31, 0xc0, 0x45, 0x31, 0xc9,
        0xff, 0x50, 0x68, 0xeb, 0xfe,
    ];
    code.extend((rest.len() as u32).to_le_bytes());
    code.extend(rest);
    code.extend(format!("\r\n{message}\r\n\0").encode_utf16().flat_map(u16::to_le_bytes));
    code.resize(512, 0);

    let mut image = vec![0; 512];
    image[..2].copy_from_slice(b"MZ");
    image[0x3c] = 0x40;
    image[0x40..0x44].copy_from_slice(b"PE\0\0");
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x44, &0x8664_u16.to_le_bytes()); // machine
    put(0x46, &1_u16.to_le_bytes()); // one section
    put(0x54, &240_u16.to_le_bytes()); // size of the optional header
    put(0x56, &0x0022_u16.to_le_bytes()); // executable, large addresses
    put(0x58, &0x020b_u16.to_le_bytes()); // PE32+
    for (at, value) in [
        (0x5c, 512_u32), // size of code
        (0x68, 0x1000),  // entry point
        (0x6c, 0x1000),  // base of code
        (0x78, 0x1000),  // section alignment
        (0x7c, 512),     // file alignment
        (0x90, 0x2000),  // size of the image
        (0x94, 512),     // size of the headers
        (0xc4, 16),      // data directories
    ] {
        put(at, &value.to_le_bytes());
    }
    put(0x9c, &10_u16.to_le_bytes()); // an EFI application
    let section = 0x58 + 240;
    put(section, b".text");
    for (at, value) in [(8, 512_u32), (12, 0x1000), (16, 512), (20, 512), (36, 0x6000_0020)] {
        put(section + at, &value.to_le_bytes());
    }
    image.extend(code);
    image
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed by this test: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Puts the program where firmware looks for it, into a FAT file system that is there.
fn install(file_system: &str, folder: &Path, program: &[u8]) {
    let file = folder.join("program.efi");
    std::fs::write(&file, program).unwrap();
    run("mmd", &["-i", file_system, "::/EFI", "::/EFI/BOOT"]);
    run("mcopy", &["-i", file_system, text(&file), "::/EFI/BOOT/BOOTX64.EFI"]);
}

/// A bootable CD image of a few megabytes.
fn compact_disc(folder: &Path, program: &[u8]) -> Vec<u8> {
    let tree = folder.join("tree");
    std::fs::create_dir(&tree).unwrap();
    let esp = tree.join("efi.img");
    run("mformat", &["-i", text(&esp), "-C", "-f", "2880", "::"]);
    install(text(&esp), folder, program);
    std::fs::write(tree.join("padding"), vec![1; 8 << 20]).unwrap();
    let iso = folder.join("boot.iso");
    let args = ["-as", "mkisofs", "-quiet", "-o", text(&iso), "-e", "efi.img", "-no-emul-boot", text(&tree)];
    run("xorriso", &args);
    std::fs::read(iso).unwrap()
}

/// A disk with an EFI system partition.
fn disk(path: &Path, folder: &Path, program: &[u8]) {
    std::fs::File::create(path).unwrap().set_len(80 << 20).unwrap();
    run("sgdisk", &["-n1:2048:+64M", "-t1:EF00", text(path)]);
    let partition = format!("{}@@1M", text(path));
    run("mformat", &["-i", &partition, "-T", "131072", "-F", "::"]);
    install(&partition, folder, program);
}

fn alive(pid: u64) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn command_line(machine: &Value) -> String {
    let words = machine["lastBoot"]["commandLine"].as_array().unwrap();
    let line: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    assert!(!line.contains(&"-kernel") && !line.contains(&"-initrd"), "{line:?}");
    line.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn firmware_boots_the_medium_once_then_the_disk() {
    let work = tempfile::tempdir().unwrap();
    let path_of_disk = work.path().join("disk.raw");
    disk(&path_of_disk, work.path(), &program("THIS IS THE DISK", SHUTDOWN));
    let mut machine = MachineConfig::new("m", MachineKind::Qemu);
    machine.memory_mib = 256;
    machine.nics[0].capture = true;
    machine.disks = vec![DiskConfig { path: Some(path_of_disk), bus: DiskBus::Virtio, ..DiskConfig::default() }];
    let lab = Lab::with(machine, "").await;
    let iso = compact_disc(work.path(), &program("THIS IS THE CD", COLD_RESET));
    let size = iso.len() as u64;
    let images = Images::serve(iso).await;

    assert_eq!(lab.insert(&images.url("boot.iso")).await.status, 204);
    lab.boot_cd_once().await;
    let after = lab.now();
    assert_eq!(lab.reset("On").await.status, 204);
    let first = lab.machine().await;
    assert_eq!((&first["running"], &first["power"]), (&json!("medium"), &json!("On")));
    assert!(command_line(&first).contains("driver=nbd"));
    let pid = first["pid"].as_u64().unwrap();
    assert!(alive(pid));

    // The program on the CD asks for a reset: QEMU ends, and comes back without the CD.
    lab.event(after, "reset", |data| data["by"] == "guest").await;
    let boot = lab.event(after, "boot", |data| data["number"] == 2).await;
    assert_eq!((&boot["running"], &boot["medium"]), (&json!("disk"), &Value::Null));
    assert!(lab.console().contains("THIS IS THE CD"), "{}", lab.console());
    assert!(!alive(pid), "the first QEMU is still there");
    assert!(!command_line(&lab.machine().await).contains("nbd"));
    let media = lab.control(reqwest::Method::GET, "/machines/m/media", Value::Null).await;
    let (read, fetched) = (media["bytesRead"].as_u64().unwrap(), media["bytesFetched"].as_u64().unwrap());
    assert!(read > 2048 && fetched > 2048 && fetched < size, "read {read}, fetched {fetched} of {size}");

    // The program on the disk switches the machine off.
    lab.event(after, "power", |data| data["state"] == "Off" && data["why"] == "guest").await;
    assert!(lab.console().contains("THIS IS THE DISK"), "{}", lab.console());
    assert_eq!(lab.reset("ForceOff").await.status, 409);

    // Forced off in the middle of the firmware's work.
    assert_eq!(lab.reset("On").await.status, 204);
    let pid = lab.machine().await["pid"].as_u64().unwrap();
    assert_eq!(lab.reset("ForceRestart").await.status, 204);
    let second = lab.machine().await["pid"].as_u64().unwrap();
    assert!(!alive(pid) && alive(second));
    assert_eq!(lab.reset("ForceOff").await.status, 204);
    assert!(!alive(second));
    assert!(lab.file("state/m/nic0-boot1.pcap").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn secure_boot_refuses_what_nobody_signed() {
    let work = tempfile::tempdir().unwrap();
    let mut machine = MachineConfig::new("m", MachineKind::Qemu);
    machine.memory_mib = 256;
    let lab = Lab::with(machine, "").await;
    let images = Images::serve(compact_disc(work.path(), &program("THIS IS THE CD", COLD_RESET))).await;
    assert_eq!(lab.patch(&path("/SecureBoot"), json!({ "SecureBootEnable": true })).await.status, 200);
    assert_eq!(lab.insert(&images.url("boot.iso")).await.status, 204);
    lab.boot_cd_once().await;
    assert_eq!(lab.reset("On").await.status, 204);
    assert!(command_line(&lab.machine().await).contains("secboot"));
    let mut refused = false;
    for _ in 0..600 {
        refused = lab.console().contains("Access Denied");
        if refused {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(refused, "{}", lab.console());
    assert!(!lab.console().contains("THIS IS THE CD"));
    assert_eq!(lab.get(&path("/SecureBoot")).await.body["SecureBootCurrentBoot"], "Enabled");
    assert_eq!(lab.reset("ForceOff").await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_takes_every_kind_of_disk_and_drive() {
    let images = Images::serve(kit::pattern(4096)).await;
    for (disk, cd) in [(DiskBus::Scsi, CdBus::Usb), (DiskBus::Nvme, CdBus::VirtioScsi), (DiskBus::Virtio, CdBus::Ahci)]
    {
        let mut machine = MachineConfig::new("m", MachineKind::Qemu);
        machine.memory_mib = 256;
        machine.cd_bus = cd;
        let disk = DiskConfig { bus: disk, logical_sector_size: 4096, rotational: true, ..DiskConfig::default() };
        machine.disks = vec![disk.clone(), DiskConfig { logical_sector_size: 512, ..disk }];
        machine.nics =
            vec![NicConfig::default(), NicConfig { network: Some("10.9.0.0/24".into()), ..NicConfig::default() }];
        machine.nics[1].forwards = vec!["tcp:127.0.0.1:0-:22".to_owned()];
        let lab = Lab::with(machine, "").await;
        assert_eq!(lab.insert(&images.url("boot.iso")).await.status, 204);
        lab.boot_cd_once().await;
        let got = lab.reset("On").await;
        assert_eq!(got.status, 204, "{cd:?}: {}", got.body);
        let pid = lab.machine().await["pid"].as_u64().unwrap();
        assert!(alive(pid));
        lab.simulator.shutdown().await;
        assert!(!alive(pid));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_qemu_says_against_its_start_is_passed_on() {
    let mut machine = MachineConfig::new("m", MachineKind::Qemu);
    machine.nics[0].network = Some("nonsense".to_owned());
    let lab = Lab::with(machine, "").await;
    let got = lab.reset("On").await;
    let message = got.body["error"]["message"].as_str().unwrap();
    assert!(got.status == 500 && message.contains("nonsense"), "{message}");
    assert_eq!(lab.machine().await["power"], "Off");
}

#[tokio::test]
async fn the_export_is_the_medium_until_it_is_ejected() {
    let lab = Lab::fake("exit 0").await;
    // Not a whole number of sectors: the rest of the last reads as zeros.
    let content = kit::pattern((3 << 20) + 100);
    let images = Images::serve(content.clone()).await;
    assert_eq!(lab.insert(&images.url("a.iso")).await.status, 204);
    let socket = lab.file("nbd");
    let medium = lab.simulator.bmc("m").unwrap().medium().unwrap();
    let _server = bmc_sim::nbd::Server::start(&socket, medium).unwrap();
    let out = lab.file("out");
    let convert = || {
        let source = format!("driver=nbd,server.type=unix,server.path={}", text(&socket));
        let mut command = tokio::process::Command::new("qemu-img");
        command.args(["convert", "--image-opts", "-O", "raw", &source, text(&out)]);
        async move { command.output().await.unwrap() }
    };
    let output = convert().await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected = content;
    expected.resize(expected.len().next_multiple_of(2048), 0);
    assert!(std::fs::read(&out).unwrap() == expected, "the export differs from the medium");
    lab.control(reqwest::Method::POST, "/machines/m/eject", json!({})).await;
    let output = convert().await;
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("Input/output error"));
}
