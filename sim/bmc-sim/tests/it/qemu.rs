//! The QEMU machine: firmware that reads the virtual CD by NBD, resets, Secure Boot, the end of the process.
//!
//! What boots is a UEFI program of a few bytes, made here: it says a sentence on the console and asks for a reset or for
//! power-off.

use std::{path::Path, process::Command};

use crate::kit::{self, Images, Lab, path};
use bmc_sim::{DiskBus, DiskConfig, MachineConfig, MachineKind, NicConfig, config::CdBus};
use serde_json::{Value, json};

const COLD_RESET: u8 = 0;
const SHUTDOWN: u8 = 2;

/// Where data begin, seen from the code.
const DATA: usize = 512;
/// 8be4df61-93ca-11d2-aa0d-00e098032b8c as it lies in memory.
const GLOBAL: [u8; 16] = [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0, 0xe0, 0x98, 0x03, 0x2b, 0x8c];

/// A few machine instructions and the data that they point at.
#[derive(Default)]
struct Assembler {
    code: Vec<u8>,
    data: Vec<u8>,
}

impl Assembler {
    /// `lea register, [rip + …]`, pointing at these data.
    fn point(&mut self, instruction: [u8; 3], data: &[u8]) {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let target = DATA + self.data.len();
        self.data.extend_from_slice(data);
        self.code.extend(instruction);
        let distance = target - (self.code.len() + 4);
        self.code.extend((distance as u32).to_le_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        assert!(self.code.len() <= DATA && self.data.len() <= DATA);
        self.code.resize(DATA, 0);
        self.code.extend(self.data);
        self.code.resize(2 * DATA, 0);
        self.code
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

/// A UEFI program (PE32+, x86-64) that prints `message`, sets `variables` and calls `ResetSystem(kind)`.
fn program(message: &str, variables: &[(&str, Vec<u8>)], kind: u8) -> Vec<u8> {
    // rdx is the system table: ConOut at 0x40, whose OutputString is at 8; RuntimeServices at 0x58, whose SetVariable is
    // at 0x58 and ResetSystem at 0x68 (UEFI specification, 4.3, 4.5, 12.4).
    let mut asm = Assembler::default();
    asm.code.extend([0x48, 0x83, 0xec, 0x28, 0x48, 0x89, 0xd3, 0x48, 0x8b, 0x4b, 0x40]);
    asm.point([0x48, 0x8d, 0x15], &utf16(&format!("\r\n{message}\r\n")));
    asm.code.extend([0xff, 0x51, 0x08]);
    for (name, value) in variables {
        asm.code.extend([0x48, 0x8b, 0x43, 0x58]);
        asm.point([0x48, 0x8d, 0x0d], &utf16(name));
        asm.point([0x48, 0x8d, 0x15], &GLOBAL);
        // Attributes: kept, for boot services, for the running system.
        asm.code.extend([0x41, 0xb8, 7, 0, 0, 0, 0x41, 0xb9]);
        asm.code.extend((value.len() as u32).to_le_bytes());
        asm.point([0x4c, 0x8d, 0x15], value);
        asm.code.extend([0x4c, 0x89, 0x54, 0x24, 0x20, 0xff, 0x50, 0x58]);
    }
    asm.code.extend([0x48, 0x8b, 0x43, 0x58, 0xb9, kind, 0, 0, 0, 0x31, 0xd2, 0x45, 0x31, 0xc0, 0x45, 0x31, 0xc9]);
    asm.code.extend([0xff, 0x50, 0x68, 0xeb, 0xfe]);
    let code = asm.finish();

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
        (0x5c, 1024_u32), // size of code
        (0x68, 0x1000),   // entry point
        (0x6c, 0x1000),   // base of code
        (0x78, 0x1000),   // section alignment
        (0x7c, 512),      // file alignment
        (0x90, 0x2000),   // size of the image
        (0x94, 512),      // size of the headers
        (0xc4, 16),       // data directories
    ] {
        put(at, &value.to_le_bytes());
    }
    put(0x9c, &10_u16.to_le_bytes()); // an EFI application
    let section = 0x58 + 240;
    put(section, b".text");
    for (at, value) in [(8, 1024_u32), (12, 0x1000), (16, 1024), (20, 512), (36, 0x6000_0020)] {
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

/// Puts the program into `/EFI/{place}` of a FAT file system that is there.
fn install(file_system: &str, place: [&str; 2], folder: &Path, program: &[u8]) {
    let file = folder.join("program.efi");
    std::fs::write(&file, program).unwrap();
    let directory = format!("::/EFI/{}", place[0]);
    run("mmd", &["-i", file_system, "::/EFI", &directory]);
    run("mcopy", &["-i", file_system, text(&file), &format!("{directory}/{}", place[1])]);
}

/// Where firmware looks for what to boot from a medium that it does not know.
const FALLBACK: [&str; 2] = ["BOOT", "BOOTX64.EFI"];

/// A bootable CD image of a few megabytes.
fn compact_disc(folder: &Path, program: &[u8]) -> Vec<u8> {
    let work = tempfile::tempdir_in(folder).unwrap();
    let (folder, tree) = (work.path(), work.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    let esp = tree.join("efi.img");
    run("mformat", &["-i", text(&esp), "-C", "-f", "2880", "::"]);
    install(text(&esp), FALLBACK, folder, program);
    std::fs::write(tree.join("padding"), vec![1; 8 << 20]).unwrap();
    let iso = folder.join("boot.iso");
    let args = ["-as", "mkisofs", "-quiet", "-o", text(&iso), "-e", "efi.img", "-no-emul-boot", text(&tree)];
    run("xorriso", &args);
    std::fs::read(iso).unwrap()
}

/// The partition of the disk, by number, first sector, sectors and id.
const PARTITION: (u32, u64, u64, &str) = (1, 2048, 131_072, "0f0e0d0c-0b0a-0908-0706-050403020100");

/// A disk with an EFI system partition and the program in a place of its own: only a boot entry leads to it.
fn disk(path: &Path, folder: &Path, program: &[u8]) {
    std::fs::File::create(path).unwrap().set_len(80 << 20).unwrap();
    let id = format!("-u1:{}", PARTITION.3);
    run("sgdisk", &["-n1:2048:+64M", "-t1:EF00", &id, text(path)]);
    let partition = format!("{}@@1M", text(path));
    run("mformat", &["-i", &partition, "-T", "131072", "-F", "::"]);
    install(&partition, ["OWN", "OWN.EFI"], folder, program);
}

/// Variables that make the program on the disk the first to boot: an entry, and the order.
fn boot_entry() -> [(&'static str, Vec<u8>); 2] {
    let id = uuid::Uuid::parse_str(PARTITION.3).unwrap().to_bytes_le();
    let mut path = vec![4, 1, 42, 0];
    path.extend(PARTITION.0.to_le_bytes());
    path.extend([PARTITION.1.to_le_bytes(), PARTITION.2.to_le_bytes()].concat());
    path.extend(id);
    path.extend([2, 2]);
    let file = utf16("\\EFI\\OWN\\OWN.EFI");
    path.extend([4, 4, file.len() as u8 + 4, 0]);
    path.extend(file);
    path.extend([0x7f, 0xff, 4, 0]);
    let mut entry = vec![1, 0, 0, 0, path.len() as u8, 0];
    entry.extend(utf16("own"));
    entry.extend(path);
    [("Boot0099", entry), ("BootOrder", vec![0x99, 0])]
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
    disk(&path_of_disk, work.path(), &program("THIS IS THE DISK", &[], SHUTDOWN));
    let mut machine = MachineConfig::new("m", MachineKind::Qemu);
    machine.memory_mib = 256;
    machine.nics[0].capture = true;
    machine.disks = vec![DiskConfig { path: Some(path_of_disk), bus: DiskBus::Virtio, ..DiskConfig::default() }];
    let lab = Lab::with(machine, "").await;
    let iso = compact_disc(work.path(), &program("THIS IS THE CD", &boot_entry(), COLD_RESET));
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

    // The boot entry that was made leads to the program on the disk, which switches the machine off.
    lab.event(after, "power", |data| data["state"] == "Off" && data["why"] == "guest").await;
    assert!(lab.console().contains("THIS IS THE DISK"), "{}", lab.console());
    assert_eq!(lab.console().matches("starting Boot0099 \"own\" from HD(1,GPT").count(), 1, "{}", lab.console());
    assert_eq!(lab.reset("ForceOff").await.status, 409);

    // Another boot from a CD leaves the entry in its place.
    let other = compact_disc(work.path(), &program("ANOTHER CD", &[], COLD_RESET));
    let images = Images::serve(other).await;
    lab.control(reqwest::Method::POST, "/machines/m/eject", json!({})).await;
    assert_eq!(lab.insert(&images.url("boot.iso")).await.status, 204);
    lab.boot_cd_once().await;
    let after = lab.now();
    assert_eq!(lab.reset("On").await.status, 204);
    lab.event(after, "power", |data| data["state"] == "Off" && data["why"] == "guest").await;
    assert!(lab.console().contains("ANOTHER CD"), "{}", lab.console());
    assert_eq!(lab.console().matches("starting Boot0099 \"own\" from HD(1,GPT").count(), 2, "{}", lab.console());

    // Forced off in the middle of the firmware's work.
    assert_eq!(lab.reset("On").await.status, 204);
    let pid = lab.machine().await["pid"].as_u64().unwrap();
    assert_eq!(lab.reset("ForceRestart").await.status, 204);
    let second = lab.machine().await["pid"].as_u64().unwrap();
    assert!(!alive(pid) && alive(second));
    assert_eq!(lab.reset("ForceOff").await.status, 204);
    assert!(!alive(second));
    assert!(lab.file("state/m/nic0-boot1.pcap").exists());

    // With Secure Boot the entry is still the first, and what it leads to is refused.
    assert_eq!(lab.patch(&path("/SecureBoot"), json!({ "SecureBootEnable": true })).await.status, 200);
    assert_eq!(lab.reset("On").await.status, 204);
    console(&lab, "failed to load Boot0099").await;
    assert_eq!(lab.reset("ForceOff").await.status, 204);
}

/// Waits until the console shows a text. Alone it takes seconds; beside other emulated machines it may take minutes.
async fn console(lab: &Lab, text: &str) {
    for _ in 0..6000 {
        if lab.console().contains(text) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("no {text:?} on the console:\n{}", lab.console());
}

#[tokio::test(flavor = "multi_thread")]
async fn secure_boot_refuses_what_nobody_signed() {
    let work = tempfile::tempdir().unwrap();
    let mut machine = MachineConfig::new("m", MachineKind::Qemu);
    machine.memory_mib = 256;
    let lab = Lab::with(machine, "").await;
    let images = Images::serve(compact_disc(work.path(), &program("THIS IS THE CD", &[], COLD_RESET))).await;
    assert_eq!(lab.patch(&path("/SecureBoot"), json!({ "SecureBootEnable": true })).await.status, 200);
    assert_eq!(lab.insert(&images.url("boot.iso")).await.status, 204);
    lab.boot_cd_once().await;
    assert_eq!(lab.reset("On").await.status, 204);
    assert!(command_line(&lab.machine().await).contains("secboot"));
    console(&lab, "Access Denied").await;
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
