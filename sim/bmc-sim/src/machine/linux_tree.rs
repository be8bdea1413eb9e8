//! A made-up Linux tree for a fake machine: the files of `/sys`, `/proc` and `/dev` from which an agent learns its hardware, laid out like the
//! kernel's (Documentation/ABI of Linux), with files as disks.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::{
    config::{DiskBus, DiskConfig, MachineConfig},
    machine::{MachineError, firmware::GLOBAL_VARIABLE},
    switch_port,
};

/// Writes a tree below a root.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    /// A file with a line end, as sysfs files have it.
    fn line(&self, path: &str, content: impl AsRef<str>) -> Result<(), MachineError> {
        self.file(path, format!("{}\n", content.as_ref()).as_bytes())
    }

    fn file(&self, path: &str, content: &[u8]) -> Result<(), MachineError> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(MachineError::file("making the folder", parent))?;
        }
        fs::write(&path, content).map_err(MachineError::file("writing", &path))
    }

    fn folder(&self, path: &str) -> Result<(), MachineError> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(MachineError::file("making the folder", &path))
    }

    /// A link at `path` to `target`, both below the root, made relative as sysfs does.
    fn link(&self, path: &str, target: &str) -> Result<(), MachineError> {
        let up = "../".repeat(path.matches('/').count());
        self.raw_link(path, Path::new(&format!("{up}{target}")))
    }

    fn raw_link(&self, path: &str, target: &Path) -> Result<(), MachineError> {
        let link = self.root.join(path);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent).map_err(MachineError::file("making the folder", parent))?;
        }
        match fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(MachineError::file("replacing the link", &link)(error));
            }
            _ => {}
        }
        symlink(target, &link).map_err(MachineError::file("making the link", &link))
    }
}

/// Name of disk `index` in `/dev`: its place among the disks of its bus.
#[must_use]
pub fn disk_name(config: &MachineConfig, index: usize) -> String {
    let Some(disk) = config.disks.get(index) else { return String::new() };
    let place = config.disks.iter().take(index).filter(|other| other.bus == disk.bus).count();
    let letter = char::from(b'a' + u8::try_from(place % 26).unwrap_or(0));
    match disk.bus {
        DiskBus::Scsi => format!("sd{letter}"),
        DiskBus::Virtio => format!("vd{letter}"),
        DiskBus::Nvme => format!("nvme{place}n1"),
    }
}

/// Where the firmware's variables are.
#[must_use]
pub fn efivars(root: &Path) -> PathBuf {
    root.join("sys/firmware/efi/efivars")
}

/// Creates the tree. Keeps existing disks; everything else is rewritten.
///
/// # Errors
/// A file cannot be written.
pub fn fabricate(config: &MachineConfig, root: &Path) -> Result<(), MachineError> {
    let tree = Tree { root };
    identity(&tree, config)?;
    processors_and_memory(&tree, config)?;
    for index in 0..config.nics.len() {
        nic(&tree, config, index)?;
    }
    loopback(&tree)?;
    tree.folder("sys/class/block")?;
    tree.folder("sys/block")?;
    for (index, disk) in config.disks.iter().enumerate() {
        disk_devices(&tree, config, index, disk)?;
        disk_file(&tree, config, index, disk)?;
    }
    for folder in ["sys/firmware/efi/efivars", "sys/module", "sys/bus/pci/drivers/virtio-pci", "run", "tmp", "etc"] {
        tree.folder(folder)?;
    }
    tree.line("sys/firmware/efi/fw_platform_size", "64")?;
    tree.line("proc/cmdline", "BOOT_IMAGE=/vmlinuz console=ttyS0,115200 console=tty0 quiet")?;
    refresh(root, config.secure_boot)
}

/// Rewrites the files that change at each start: the boot id, and the firmware's Secure Boot variables.
///
/// # Errors
/// A file cannot be written.
pub fn refresh(root: &Path, secure_boot: bool) -> Result<(), MachineError> {
    let tree = Tree { root };
    tree.line("proc/sys/kernel/random/boot_id", Uuid::new_v4().to_string())?;
    // Four bytes of attributes, then the value.
    let variables = "sys/firmware/efi/efivars";
    tree.file(&format!("{variables}/SecureBoot-{GLOBAL_VARIABLE}"), &[6, 0, 0, 0, u8::from(secure_boot)])?;
    tree.file(&format!("{variables}/SetupMode-{GLOBAL_VARIABLE}"), &[6, 0, 0, 0, 0])
}

fn identity(tree: &Tree<'_>, config: &MachineConfig) -> Result<(), MachineError> {
    let serial = config.system_serial();
    let uuid = config.system_uuid().to_string();
    for (name, value) in [
        ("sys_vendor", config.manufacturer.as_str()),
        ("product_name", &config.model),
        ("product_serial", &serial),
        ("product_uuid", &uuid),
        ("product_sku", "8675309"),
        ("product_family", "Rack"),
        ("product_version", "1.0"),
        ("board_vendor", &config.manufacturer),
        ("board_name", "Mainboard"),
        ("board_serial", &format!("B{serial}")),
        ("chassis_vendor", &config.manufacturer),
        ("chassis_serial", &format!("C{serial}")),
        ("chassis_type", "23"),
        ("bios_vendor", &config.manufacturer),
        ("bios_version", "P79 v1.45"),
        ("bios_date", "12/06/2017"),
        ("bios_release", "1.45"),
    ] {
        tree.line(&format!("sys/devices/virtual/dmi/id/{name}"), value)?;
    }
    tree.link("sys/class/dmi/id", "sys/devices/virtual/dmi/id")?;
    tree.line("proc/sys/kernel/hostname", &config.id)?;
    tree.line("proc/sys/kernel/osrelease", "6.1.0-fake-amd64")?;
    tree.line("proc/sys/kernel/ostype", "Linux")?;
    tree.line("proc/version", "Linux version 6.1.0-fake-amd64")
}

fn processors_and_memory(tree: &Tree<'_>, config: &MachineConfig) -> Result<(), MachineError> {
    let mut text = String::new();
    for cpu in 0..config.cpus {
        text += &format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
             model name\t: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz\nstepping\t: 4\ncpu MHz\t\t: 2100.000\n\
             cache size\t: 22528 KB\nphysical id\t: 0\nsiblings\t: {count}\ncore id\t\t: {cpu}\n\
             cpu cores\t: {count}\nfpu\t\t: yes\nflags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca \
             cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx lm constant_tsc rep_good nopl pni pclmulqdq ssse3 \
             cx16 sse4_1 sse4_2 popcnt aes xsave avx hypervisor lahf_lm\naddress sizes\t: 46 bits physical, 48 bits \
             virtual\n\n",
            count = config.cpus
        );
        let base = format!("sys/devices/system/cpu/cpu{cpu}");
        tree.line(&format!("{base}/topology/core_id"), cpu.to_string())?;
        tree.line(&format!("{base}/topology/physical_package_id"), "0")?;
        tree.line(&format!("{base}/cpufreq/cpuinfo_max_freq"), "3700000")?;
    }
    tree.file("proc/cpuinfo", text.as_bytes())?;
    let range = if config.cpus > 1 { format!("0-{}", config.cpus - 1) } else { "0".to_owned() };
    for name in ["online", "present", "possible"] {
        tree.line(&format!("sys/devices/system/cpu/{name}"), &range)?;
    }
    let total = u64::from(config.memory_mib) * 1024;
    let memory = [("MemTotal", total), ("MemFree", total * 9 / 10), ("MemAvailable", total * 9 / 10), ("SwapTotal", 0)];
    let lines: String = memory.iter().map(|(name, kib)| format!("{:<16}{kib:>8} kB\n", format!("{name}:"))).collect();
    tree.file("proc/meminfo", lines.as_bytes())
}

fn pci_device(tree: &Tree<'_>, slot: &str, ids: [&str; 2], class: &str) -> Result<String, MachineError> {
    let base = format!("sys/devices/pci0000:00/{slot}");
    let [vendor, device] = ids;
    for (name, value) in [("vendor", vendor), ("device", device), ("class", class), ("enable", "1")] {
        tree.line(&format!("{base}/{name}"), value)?;
    }
    tree.line(&format!("{base}/uevent"), format!("PCI_CLASS={}\nPCI_SLOT_NAME={slot}", &class[2..]))?;
    tree.link(&format!("{base}/subsystem"), "sys/bus/pci")?;
    tree.link(&format!("sys/bus/pci/devices/{slot}"), &base)?;
    Ok(base)
}

fn nic(tree: &Tree<'_>, config: &MachineConfig, index: usize) -> Result<(), MachineError> {
    let name = config.nic_name(index);
    let slot = format!("0000:00:{:02x}.0", 3 + index);
    let device = pci_device(tree, &slot, ["0x8086", "0x1572"], "0x020000")?;
    let base = format!("{device}/net/{name}");
    let up = !config.nics.get(index).is_some_and(|nic| nic.unplugged);
    for (file, value) in [
        ("address", config.mac(index)),
        ("carrier", u8::from(up).to_string()),
        ("operstate", if up { "up" } else { "down" }.to_owned()),
        ("speed", if up { "10000" } else { "-1" }.to_owned()),
        ("duplex", "full".to_owned()),
        ("mtu", "1500".to_owned()),
        ("type", "1".to_owned()),
        ("addr_len", "6".to_owned()),
        ("addr_assign_type", "0".to_owned()),
        ("ifindex", (index + 2).to_string()),
        ("flags", "0x1003".to_owned()),
        ("uevent", format!("INTERFACE={name}\nIFINDEX={}", index + 2)),
    ] {
        tree.line(&format!("{base}/{file}"), value)?;
    }
    let heard = config.nics.get(index).map(|nic| nic.lldp.as_slice()).unwrap_or_default();
    if !heard.is_empty() {
        // The agent reads there what a cable would bring, a frame a line.
        let frames = heard.iter().filter_map(switch_port::frame);
        let lines: Vec<String> = frames.map(|frame| frame.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        tree.line(&format!("lldp/{name}"), lines.join("\n"))?;
    }
    tree.link(&format!("{base}/device"), &device)?;
    tree.link(&format!("{base}/subsystem"), "sys/class/net")?;
    tree.link(&format!("{device}/driver"), "sys/bus/pci/drivers/i40e")?;
    tree.folder("sys/bus/pci/drivers/i40e")?;
    tree.link(&format!("sys/class/net/{name}"), &base)
}

fn loopback(tree: &Tree<'_>) -> Result<(), MachineError> {
    let base = "sys/devices/virtual/net/lo";
    for (file, value) in
        [("address", "00:00:00:00:00:00"), ("carrier", "1"), ("type", "772"), ("mtu", "65536"), ("ifindex", "1")]
    {
        tree.line(&format!("{base}/{file}"), value)?;
    }
    tree.link("sys/class/net/lo", base)
}

/// Device and block folders of a disk, by the customs of its bus.
fn disk_devices(tree: &Tree<'_>, config: &MachineConfig, index: usize, disk: &DiskConfig) -> Result<(), MachineError> {
    let name = disk_name(config, index);
    let slot = format!("0000:00:{:02x}.0", 16 + (index % 16));
    let serial = config.disk_serial(index);
    let wwn = config.disk_wwn(index);
    let vendor = format!("{:<8}", disk.vendor);
    let model = format!("{:<16}", disk.model);
    let (device, block, by_path, major) = match disk.bus {
        DiskBus::Scsi => {
            let pci = pci_device(tree, &slot, ["0x1000", "0x005d"], "0x010400")?;
            let device = format!("{pci}/host{index}/target{index}:0:0/{index}:0:0:0");
            tree.line(&format!("{device}/vendor"), &vendor)?;
            tree.line(&format!("{device}/model"), &model)?;
            tree.line(&format!("{device}/rev"), "1.0 ")?;
            tree.line(&format!("{device}/type"), "0")?;
            tree.line(&format!("{device}/serial"), &serial)?;
            tree.line(&format!("{device}/wwid"), format!("naa.{}", wwn.trim_start_matches("0x")))?;
            let mut page = vec![0, 0x80, 0, u8::try_from(serial.len()).unwrap_or(u8::MAX)];
            page.extend_from_slice(serial.as_bytes());
            tree.file(&format!("{device}/vpd_pg80"), &page)?;
            tree.link(&format!("{device}/subsystem"), "sys/bus/scsi")?;
            let block = format!("{device}/block/{name}");
            (device, block, format!("pci-{slot}-scsi-0:0:0:0"), 8)
        }
        DiskBus::Nvme => {
            let pci = pci_device(tree, &slot, ["0x8086", "0x0a54"], "0x010802")?;
            let device = format!("{pci}/nvme/{}", name.trim_end_matches("n1"));
            tree.line(&format!("{device}/model"), &disk.model)?;
            tree.line(&format!("{device}/serial"), &serial)?;
            tree.line(&format!("{device}/firmware_rev"), "1.0")?;
            tree.line(&format!("{device}/transport"), "pcie")?;
            let block = format!("{device}/{name}");
            tree.line(&format!("{block}/wwid"), format!("eui.{}", wwn.trim_start_matches("0x")))?;
            (device, block, format!("pci-{slot}-nvme-1"), 259)
        }
        DiskBus::Virtio => {
            let pci = pci_device(tree, &slot, ["0x1af4", "0x1042"], "0x010000")?;
            let device = format!("{pci}/virtio{index}");
            tree.line(&format!("{device}/vendor"), "0x1af4")?;
            tree.line(&format!("{device}/device"), "0x0002")?;
            let block = format!("{device}/block/{name}");
            tree.line(&format!("{block}/serial"), &serial)?;
            (device, block, format!("pci-{slot}"), 254)
        }
    };
    for (file, value) in [
        ("size", (disk.size_bytes / 512).to_string()),
        ("removable", "0".to_owned()),
        ("ro", "0".to_owned()),
        ("hidden", "0".to_owned()),
        ("dev", format!("{major}:{}", index * 16)),
        ("uevent", format!("MAJOR={major}\nMINOR={}\nDEVNAME={name}\nDEVTYPE=disk", index * 16)),
        ("queue/rotational", u8::from(disk.rotational).to_string()),
        ("queue/logical_block_size", disk.logical_sector_size.to_string()),
        ("queue/physical_block_size", disk.logical_sector_size.max(4096).to_string()),
        ("queue/discard_max_bytes", "2147450880".to_owned()),
        ("queue/write_zeroes_max_bytes", "2147450880".to_owned()),
    ] {
        tree.line(&format!("{block}/{file}"), value)?;
    }
    tree.link(&format!("{block}/device"), &device)?;
    tree.link(&format!("{block}/subsystem"), "sys/class/block")?;
    tree.link(&format!("sys/block/{name}"), &block)?;
    tree.link(&format!("sys/class/block/{name}"), &block)?;
    tree.raw_link(&format!("dev/disk/by-path/{by_path}"), Path::new(&format!("../../{name}")))?;
    tree.raw_link(&format!("dev/disk/by-id/wwn-{wwn}"), Path::new(&format!("../../{name}")))
}

/// The disk itself: a sparse file, or a link to the file that was given.
fn disk_file(tree: &Tree<'_>, config: &MachineConfig, index: usize, disk: &DiskConfig) -> Result<(), MachineError> {
    let name = disk_name(config, index);
    let mut path = tree.root.join("dev").join(&name);
    tree.folder("dev")?;
    if let Some(given) = &disk.path {
        let given = std::path::absolute(given).map_err(MachineError::file("finding the disk", given))?;
        tree.raw_link(&format!("dev/{name}"), &given)?;
        path = given;
    }
    let size = ensure_sparse(&path, disk.size_bytes)?;
    if size != disk.size_bytes {
        // A file that was given has the size that it has.
        let sysfs = format!("sys/block/{name}/size");
        tree.line(&sysfs, (size / 512).to_string())?;
    }
    Ok(())
}

/// Creates a sparse file of `size` bytes if none exists; returns the file's size.
///
/// # Errors
/// The file cannot be made.
pub fn ensure_sparse(path: &Path, size: u64) -> Result<u64, MachineError> {
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(MachineError::file("opening the disk", path))?;
    let found = file.metadata().map_err(MachineError::file("opening the disk", path))?.len();
    if found > 0 {
        return Ok(found);
    }
    file.set_len(size).map_err(MachineError::file("making the disk", path))?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MachineKind;

    #[test]
    fn the_tree_reads_like_linux() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut config = MachineConfig::new("node-7", MachineKind::Fake);
        config.cpus = 3;
        let kinds = [DiskBus::Scsi, DiskBus::Nvme, DiskBus::Virtio, DiskBus::Scsi];
        config.disks =
            kinds.map(|bus| DiskConfig { bus, size_bytes: 1 << 20, ..DiskConfig::default() }).into_iter().collect();
        fabricate(&config, root).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap().trim().to_owned();
        assert_eq!(read("sys/class/net/eno1/address"), config.mac(0));
        assert_eq!(read("sys/class/net/eno1/device/vendor"), "0x8086");
        for (index, name) in ["sda", "nvme0n1", "vda", "sdb"].into_iter().enumerate() {
            assert_eq!(disk_name(&config, index), name);
            assert_eq!(read(&format!("sys/block/{name}/size")), "2048");
            assert_eq!(read(&format!("sys/class/block/{name}/queue/logical_block_size")), "512");
            assert_eq!(fs::metadata(root.join("dev").join(name)).unwrap().len(), 1 << 20);
        }
        assert_eq!(read("sys/block/sda/device/model"), "Virtual Disk");
        assert_eq!(read("sys/block/nvme0n1/device/serial"), config.disk_serial(1));
        assert_eq!(read("sys/block/vda/serial"), config.disk_serial(2));
        let target = fs::canonicalize(root.join("dev/disk/by-path/pci-0000:00:10.0-scsi-0:0:0:0")).unwrap();
        assert_eq!(target, fs::canonicalize(root.join("dev/sda")).unwrap());
        assert!(fs::canonicalize(root.join("sys/block/sda")).unwrap().ends_with("0:0:0:0/block/sda"));
        assert_eq!(read("proc/cpuinfo").matches("processor\t:").count(), 3);

        let boot = read("proc/sys/kernel/random/boot_id");
        fs::write(root.join("dev/sda"), vec![1; 1 << 20]).unwrap();
        fabricate(&config, root).unwrap();
        assert_ne!(read("proc/sys/kernel/random/boot_id"), boot);
        assert_eq!(fs::read(root.join("dev/sda")).unwrap()[5], 1, "a disk outlives a restart");
    }

    #[test]
    fn a_given_disk_is_linked_and_keeps_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("given.raw");
        fs::write(&file, vec![0; 8192]).unwrap();
        let mut config = MachineConfig::new("n", MachineKind::Fake);
        config.disks[0].path = Some(file);
        let root = folder.path().join("root");
        fabricate(&config, &root).unwrap();
        assert_eq!(fs::read_to_string(root.join("sys/block/sda/size")).unwrap(), "16\n");
        assert_eq!(fs::metadata(root.join("dev/sda")).unwrap().len(), 8192);
    }
}
