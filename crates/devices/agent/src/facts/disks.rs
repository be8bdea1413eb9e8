//! Disks a system could be installed on, from `/sys/block`.

use inventory::{DiskType, Storage};

use super::{by_path, short};
use crate::tree::{Tree, clean};

/// Most disks reported.
const MAX_DISKS: usize = 512;

/// Block devices that are no disks by their names: memory, loops, drives of the kernel's own making, optical and floppy.
const NOT_DISKS: [&str; 11] = ["loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd", "zd", "drbd", "rbd"];

/// Most bytes of a page of vital product data.
const MAX_PAGE: u64 = 4096;

/// A disk with the kernel's name for it.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Name below `/dev`, such as `sda`.
    pub device: String,
    /// Its facts.
    pub storage: Storage,
    /// The network that it is reached through, which other machines may be on; `None` for the machine's own disks.
    pub network: Option<&'static str>,
}

impl Disk {
    /// The name in messages: the persistent one where it exists.
    #[must_use]
    pub fn name(&self) -> String {
        self.storage.name.clone().unwrap_or_else(|| format!("/dev/{}", self.device))
    }

    /// Whether both are the same disk, as by two paths, by their world wide names; `None` if one has none.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> Option<bool> {
        let [one, two] =
            [self, other].map(|disk| disk.storage.wwn_with_extension.as_ref().or(disk.storage.wwn.as_ref()));
        Some(one?.eq_ignore_ascii_case(two?))
    }
}

/// All disks, `sda` before `sdb` before `sdaa`. Removable ones (sticks, card readers, media of the BMC) are left out, and so
/// are hidden paths of a multipath disk and disks that cannot be written.
#[must_use]
pub fn disks(tree: &Tree) -> Vec<Disk> {
    let fit = named(tree).into_iter().filter(|name| standing(tree, name) == Standing::Fit);
    fit.filter_map(|name| disk(tree, name)).take(MAX_DISKS).collect()
}

/// Disks that [`disks`] leaves out though data may be on them, each with the reason: those that cannot be written, and those that show no room. Optical
/// drives, hidden paths and removable media on USB, such as those of a BMC, are none.
#[must_use]
pub fn unusable(tree: &Tree) -> Vec<(Storage, &'static str)> {
    let names = named(tree).into_iter().filter_map(|name| match standing(tree, &name) {
        Standing::Unfit(why) => Some((name, why)),
        _ => None,
    });
    names.filter_map(|(name, why)| Some((disk(tree, name)?.storage, why))).take(MAX_DISKS).collect()
}

/// What a block device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// A disk that a system could be installed on.
    Fit,
    /// A disk of the machine all the same: why it is none to install on.
    Unfit(&'static str),
    /// No disk, or a medium that comes and goes.
    Nothing,
}

fn standing(tree: &Tree, device: &str) -> Standing {
    let base = format!("sys/block/{device}");
    let flag = |name: &str| tree.number(&format!("{base}/{name}")) == Some(1);
    let has_room = tree.number(&format!("{base}/size")).is_some_and(|sectors| sectors > 0);
    let on_usb = || tree.resolve(&base).is_some_and(|place| place.split('/').any(|part| part.starts_with("usb")));
    match () {
        () if flag("hidden") || !tree.exists(&format!("{base}/device")) => Standing::Nothing,
        () if flag("removable") && (!has_room || on_usb()) => Standing::Nothing,
        () if flag("removable") => Standing::Unfit("it is removable, and is left as it is: take it out"),
        () if !has_room => Standing::Unfit("it shows no room at all (size 0): it may have failed, or be locked"),
        () if flag("ro") => Standing::Unfit("it cannot be written (read-only): it may be protected, or have failed"),
        () => Standing::Fit,
    }
}

/// Block devices that are disks by their names, in the kernel's order.
fn named(tree: &Tree) -> Vec<String> {
    let mut names = tree.names("sys/block");
    names.retain(|name| !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)) && !is_boot_area(name));
    names.sort_by(|a, b| stem(a).cmp(stem(b)).then(a.len().cmp(&b.len())).then(a.cmp(b)));
    names
}

/// Letters in front: `nvme` of `nvme0n1`, `sd` of `sda`.
fn stem(name: &str) -> &str {
    let end = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    if end == name.len() { name.get(..2).unwrap_or(name) } else { &name[..end] }
}

/// Boot and protected areas of an eMMC.
fn is_boot_area(name: &str) -> bool {
    name.starts_with("mmcblk") && (name.contains("boot") || name.contains("rpmb"))
}

fn disk(tree: &Tree, device: String) -> Option<Disk> {
    let base = format!("sys/block/{device}");
    let flag = |name: &str| tree.number(&format!("{base}/{name}")) == Some(1);
    let size = tree.number(&format!("{base}/size")).unwrap_or(0).checked_mul(512)?;
    let text = |name: &str| tree.text(&format!("{base}/{name}")).map(|text| short(&text));
    let place = tree.resolve(&base).unwrap_or_default();
    let mut names: Vec<String> =
        by_path::by_path(&place, tree).into_iter().map(|name| format!("/dev/disk/by-path/{name}")).collect();
    names.push(format!("/dev/{device}"));
    let name = names.remove(0);
    let rotational = flag("queue/rotational");
    let wwn = Wwn::find(tree, &base);
    let storage = Storage {
        alternate_names: names,
        hctl: scsi_address(tree, &base),
        model: text("device/model"),
        name: Some(name),
        rotational: Some(rotational),
        serial_number: text("serial").or_else(|| page_80(tree, &base)).or_else(|| text("device/serial")),
        size_bytes: Some(size),
        disk_type: Some(match rotational {
            _ if device.starts_with("nvme") => DiskType::NVME,
            true => DiskType::HDD,
            false => DiskType::SSD,
        }),
        vendor: text("device/vendor"),
        wwn: wwn.name,
        wwn_vendor_extension: wwn.extension,
        wwn_with_extension: wwn.whole,
    };
    let network = network(tree, &base, &place);
    Some(Disk { device, storage, network })
}

/// The network between the machine and the disk, by its sysfs path and its drivers.
fn network(tree: &Tree, base: &str, place: &str) -> Option<&'static str> {
    let parts: Vec<&str> = place.split('/').collect();
    if parts.iter().any(|part| part.starts_with("rport-")) {
        return Some("Fibre Channel");
    }
    if parts.iter().any(|part| by_path::is_numbered(part, "session")) {
        return Some("iSCSI");
    }
    if let Some(host) = parts.iter().rposition(|part| by_path::is_numbered(part, "host")) {
        let path = format!("{}/scsi_host/{}/proc_name", parts[..=host].join("/"), parts[host]);
        return (tree.text(&path).as_deref() == Some("ib_srp")).then_some("SRP");
    }
    // the controller, or, of a disk with several of them, its subsystem, in which they are
    let device = format!("{base}/device");
    let controllers = tree.names(&device).into_iter().filter(|name| by_path::is_numbered(name, "nvme"));
    let mut controllers = controllers.map(|name| format!("{device}/{name}")).chain([device.clone()]);
    let fabric = |controller: String| {
        let transport = tree.text(&format!("{controller}/transport"));
        transport.is_some_and(|transport| matches!(transport.as_str(), "fc" | "rdma" | "tcp" | "loop"))
    };
    controllers.any(fabric).then_some("NVMe over Fabrics")
}

/// SCSI address, the name of the device's folder.
fn scsi_address(tree: &Tree, base: &str) -> Option<String> {
    let path = tree.resolve(&format!("{base}/device"))?;
    let last = path.rsplit('/').next()?;
    by_path::hctl(last).map(|_| last.to_owned())
}

/// Serial number by page 0x80 of the vital product data (SPC-4, 7.8.19): four bytes of header, then text.
fn page_80(tree: &Tree, base: &str) -> Option<String> {
    let page = tree.bytes(&format!("{base}/device/vpd_pg80"), MAX_PAGE)?;
    let (header, rest) = page.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let text = clean(rest.get(..length).unwrap_or(rest));
    (header[1] == 0x80 && !text.is_empty()).then(|| short(&text))
}

/// World wide name in udev's three forms.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wwn {
    name: Option<String>,
    whole: Option<String>,
    extension: Option<String>,
}

impl Wwn {
    fn find(tree: &Tree, base: &str) -> Self {
        let page = tree.bytes(&format!("{base}/device/vpd_pg83"), MAX_PAGE).and_then(|page| naa_of_page_83(&page));
        if let Some(naa) = page {
            return Self::from_naa(&naa);
        }
        match tree.text(&format!("{base}/wwid")).or_else(|| tree.text(&format!("{base}/device/wwid"))) {
            Some(id) => match id.strip_prefix("naa.") {
                Some(naa) => Self::from_naa(naa),
                // NVMe: `eui.…` or `nvme.…`, which udev takes as it is
                None if id.starts_with("eui.") || id.starts_with("nvme.") => {
                    let id = Some(short(&id));
                    Self { name: id.clone(), whole: id, extension: None }
                }
                None => Self::default(),
            },
            None => Self::default(),
        }
    }

    /// A name of 16 digits; type 6 has 16 more, which are the vendor's extension.
    fn from_naa(naa: &str) -> Self {
        let naa = naa.to_ascii_lowercase();
        if !matches!(naa.len(), 16 | 32) || !naa.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Self::default();
        }
        let (name, extension) = naa.split_at(16);
        Self {
            name: Some(format!("0x{name}")),
            whole: Some(format!("0x{naa}")),
            extension: (!extension.is_empty()).then(|| format!("0x{extension}")),
        }
    }
}

/// The NAA name of the logical unit in page 0x83 (SPC-4, 7.8.6), in hexadecimal digits.
fn naa_of_page_83(page: &[u8]) -> Option<String> {
    let (header, rest) = page.split_first_chunk::<4>()?;
    if header[1] != 0x83 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let mut rest = rest.get(..length).unwrap_or(rest);
    while let Some((descriptor, after)) = rest.split_first_chunk::<4>() {
        let (kind, association) = (descriptor[1] & 0x0F, descriptor[1] >> 4 & 3);
        let value = after.get(..usize::from(descriptor[3]))?;
        if kind == 3 && association == 0 && matches!(value.len(), 8 | 16) {
            return Some(hex::encode(value));
        }
        rest = &after[value.len()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;
    use proptest::prelude::*;
    use std::path::Path;

    fn block(root: &Path, name: &str, device: &str, inside: &str, files: &[(&str, &str)]) {
        let place = format!("{device}/{inside}{name}");
        plant(root, &[(&format!("{place}/size"), "16777216\n"), (&format!("{place}/queue/rotational"), "0\n")]);
        for (file, content) in files {
            plant(root, &[(&format!("{place}/{file}"), content)]);
        }
        std::os::unix::fs::symlink(root.join(device), root.join(&place).join("device")).unwrap();
        std::fs::create_dir_all(root.join("sys/block")).unwrap();
        std::os::unix::fs::symlink(root.join(&place), root.join("sys/block").join(name)).unwrap();
    }

    #[test]
    fn each_bus_tells_its_facts_in_its_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        let pci = "sys/devices/pci0000:00";
        let scsi = format!("{pci}/0000:00:10.0/host0/target0:0:0/0:0:0:0");
        plant(
            root,
            &[
                (&format!("{scsi}/vendor"), "ATA     \n"),
                (&format!("{scsi}/model"), "Model X  \n"),
                (&format!("{scsi}/vpd_pg80"), "\0\u{1}\0\u{8}"),
                (&format!("{scsi}/wwid"), "naa.600508b1001c4d5f0102030405060708\n"),
            ],
        );
        std::fs::write(root.join(&scsi).join("vpd_pg80"), b"\0\x80\0\x08  SN 1  more").unwrap();
        block(root, "sda", &scsi, "block/", &[("queue/rotational", "1")]);
        let virtio = format!("{pci}/0000:00:04.0/virtio1");
        plant(root, &[(&format!("{virtio}/vendor"), "0x1af4\n")]);
        block(root, "vda", &virtio, "block/", &[("serial", "VS")]);
        let nvme = format!("{pci}/0000:00:05.0/nvme/nvme0");
        plant(root, &[(&format!("{nvme}/serial"), "NS\n"), (&format!("{nvme}/model"), "Quick\n")]);
        block(root, "nvme0n1", &nvme, "", &[("wwid", "eui.0025385b71b00c3f")]);
        block(root, "sdb", &format!("{pci}/0000:00:11.0/host1/target1:0:0/1:0:0:0"), "block/", &[("removable", "1")]);
        block(root, "sr0", &format!("{pci}/0000:00:12.0/host2/target2:0:0/2:0:0:0"), "block/", &[]);

        let found = disks(&Tree::new(root));
        let names: Vec<&str> = found.iter().map(|disk| disk.device.as_str()).collect();
        assert_eq!(names, ["nvme0n1", "sda", "vda"]);
        let [nvme, sda, vda] = [&found[0].storage, &found[1].storage, &found[2].storage];
        assert_eq!(sda.name.as_deref(), Some("/dev/disk/by-path/pci-0000:00:10.0-scsi-0:0:0:0"));
        assert_eq!(sda.alternate_names, ["/dev/sda"]);
        assert_eq!(sda.serial_number.as_deref(), Some("SN 1"));
        assert_eq!(sda.hctl.as_deref(), Some("0:0:0:0"));
        assert_eq!(sda.wwn.as_deref(), Some("0x600508b1001c4d5f"));
        assert_eq!(sda.wwn_with_extension.as_deref(), Some("0x600508b1001c4d5f0102030405060708"));
        assert_eq!(sda.wwn_vendor_extension.as_deref(), Some("0x0102030405060708"));
        assert_eq!((sda.disk_type, sda.size_bytes), (Some(DiskType::HDD), Some(8 << 30)));
        assert_eq!((vda.serial_number.as_deref(), vda.vendor.as_deref()), (Some("VS"), Some("0x1af4")));
        assert_eq!(vda.name.as_deref(), Some("/dev/disk/by-path/pci-0000:00:04.0"));
        assert_eq!((nvme.disk_type, nvme.wwn.as_deref()), (Some(DiskType::NVME), Some("eui.0025385b71b00c3f")));
        assert_eq!(nvme.serial_number.as_deref(), Some("NS"));
    }

    #[test]
    fn disks_that_are_left_out_are_told_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        let pci = "sys/devices/pci0000:00";
        let scsi = |host: &str, at: &str| format!("{pci}/{at}/{host}/target0:0:0/0:0:0:0");
        block(root, "sda", &scsi("host0", "0000:00:10.0"), "block/", &[]);
        block(root, "sdb", &scsi("host1", "0000:00:11.0"), "block/", &[("ro", "1"), ("serial", "RO")]);
        block(root, "sdc", &scsi("host2", "0000:00:12.0"), "block/", &[("size", "0")]);
        block(root, "sdd", &scsi("host3", "0000:00:13.0"), "block/", &[("removable", "1")]);
        // A stick of the BMC; an empty card reader; an optical drive; a hidden path; what has no device.
        let usb = scsi("host4", "0000:00:14.0/usb1/1-1/1-1:1.0");
        block(root, "sde", &usb, "block/", &[("removable", "1"), ("ro", "1")]);
        block(root, "sdf", &scsi("host5", "0000:00:15.0"), "block/", &[("removable", "1"), ("size", "0")]);
        block(root, "sr0", &scsi("host6", "0000:00:16.0"), "block/", &[("ro", "1")]);
        block(root, "nvme0c0n1", &format!("{pci}/0000:00:17.0/nvme/nvme0"), "", &[("hidden", "1"), ("ro", "1")]);
        plant(root, &[("sys/block/pmem0/size", "0\n")]);
        let tree = Tree::new(root);
        let fit: Vec<String> = disks(&tree).into_iter().map(|disk| disk.device).collect();
        assert_eq!(fit, ["sda"]);
        let left = unusable(&tree);
        let told: Vec<(&str, bool)> = left
            .iter()
            .zip(["read-only", "size 0", "removable"])
            .map(|((disk, why), word)| (disk.alternate_names[0].as_str(), why.contains(word)))
            .collect();
        assert_eq!(told, [("/dev/sdb", true), ("/dev/sdc", true), ("/dev/sdd", true)]);
        assert_eq!((left.len(), left[0].0.serial_number.as_deref()), (3, Some("RO")));
    }

    #[test]
    fn what_a_network_carries_is_told_from_the_machines_own() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        let pci = "sys/devices/pci0000:00";
        let fabrics = "sys/devices/virtual/nvme-fabrics/ctl/nvme1";
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys2";
        let local = format!("{pci}/0000:00:05.0/nvme/nvme0");
        plant(
            root,
            &[
                (&format!("{local}/transport"), "pcie\n"),
                (&format!("{fabrics}/transport"), "tcp\n"),
                (&format!("{subsystem}/nvme2/transport"), "rdma\n"),
                (&format!("{subsystem}/nvme3/transport"), "rdma\n"),
                (&format!("{pci}/0000:00:09.0/host9/scsi_host/host9/proc_name"), "ib_srp\n"),
                (&format!("{pci}/0000:00:0a.0/host10/scsi_host/host10/proc_name"), "megaraid_sas\n"),
            ],
        );
        block(root, "sda", &format!("{pci}/0000:08:00.1/host7/rport-7:0-1/target7:0:1/7:0:1:2"), "block/", &[]);
        block(root, "sdb", "sys/devices/platform/host3/session1/target3:0:0/3:0:0:1", "block/", &[]);
        block(root, "sdc", &format!("{pci}/0000:00:09.0/host9/target9:0:0/9:0:0:0"), "block/", &[]);
        block(root, "sdd", &format!("{pci}/0000:00:0a.0/host10/target10:0:0/10:0:0:0"), "block/", &[]);
        block(root, "nvme0n1", &local, "", &[]);
        block(root, "nvme1n1", fabrics, "", &[]);
        block(root, "nvme2n1", subsystem, "", &[]);
        let found = disks(&Tree::new(root));
        let found: Vec<(&str, Option<&str>)> = found.iter().map(|d| (d.device.as_str(), d.network)).collect();
        let want = [
            ("nvme0n1", None),
            ("nvme1n1", Some("NVMe over Fabrics")),
            ("nvme2n1", Some("NVMe over Fabrics")),
            ("sda", Some("Fibre Channel")),
            ("sdb", Some("iSCSI")),
            ("sdc", Some("SRP")),
            ("sdd", None),
        ];
        assert_eq!(found, want);
    }

    #[test]
    fn many_disks_keep_the_kernels_order() {
        let mut names = ["sdaa", "vda", "sdb", "nvme10n1", "nvme2n1", "sda"];
        names.sort_by(|a, b| stem(a).cmp(stem(b)).then(a.len().cmp(&b.len())).then(a.cmp(b)));
        assert_eq!(names, ["nvme2n1", "nvme10n1", "sda", "sdb", "sdaa", "vda"]);
    }

    #[test]
    fn page_83_gives_the_units_name_and_not_the_ports() {
        let page = [
            &[0, 0x83, 0, 24][..],
            &[1, 0x93, 0, 8, 1, 1, 1, 1, 1, 1, 1, 1],
            &[1, 0x03, 0, 8, 0x50, 2, 0x53, 0x85, 1, 2, 3, 4],
        ]
        .concat();
        assert_eq!(naa_of_page_83(&page).as_deref(), Some("5002538501020304"));
        assert_eq!(Wwn::from_naa("5002538501020304").extension, None);
    }

    proptest! {
        #[test]
        fn no_page_makes_it_fail(page in prop::collection::vec(any::<u8>(), 0..300)) {
            naa_of_page_83(&page);
        }
    }
}
