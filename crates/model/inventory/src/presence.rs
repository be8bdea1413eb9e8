//! Which of the disks that an inspection knew are still there.

use crate::{DiskType, RootDeviceHints, Storage};

/// Folder of the disks' names that encode the disk's place.
pub const BY_PATH: &str = "/dev/disk/by-path/";

impl RootDeviceHints {
    /// Whether the hints identify exactly this disk: by a property of its own, or by its place (`/dev/disk/by-path/…`). A name or an address that another disk may
    /// have at the next boot (`/dev/sda`, the SCSI address) identifies the one that had it among those `known`, from an inspection. Hints that many disks may match
    /// (a size, a model) identify none.
    #[must_use]
    pub fn names(&self, disk: &Storage, known: &[Storage]) -> bool {
        let by_place = self.device_name.as_ref().is_some_and(|name| name.starts_with(BY_PATH));
        if by_place || [&self.serial_number, &self.wwn, &self.wwn_with_extension].iter().any(|hint| hint.is_some()) {
            return self.mismatch(disk).is_none();
        }
        let moves = self.device_name.is_some() || self.hctl.is_some();
        moves && known.iter().any(|had| self.mismatch(had).is_none() && had.is_there(disk))
    }
}

impl Storage {
    /// The name for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.name.as_deref().unwrap_or("(unnamed disk)");
        match self.serial_number.as_deref().map(str::trim).filter(|serial| !serial.is_empty()) {
            Some(serial) => format!("{name} (serial number {serial})"),
            None => name.to_owned(),
        }
    }

    /// Whether its names imply a network: udev's for Fibre Channel and iSCSI. A local NVMe disk has a name by its place, one of a fabric has none.
    #[must_use]
    pub fn seems_remote(&self) -> bool {
        let mut places = self.places().peekable();
        if places.peek().is_none() {
            return self.disk_type == Some(DiskType::NVME);
        }
        places.any(|place| place.contains("-fc-") || place.contains("-iscsi-"))
    }

    /// Names by place.
    fn places(&self) -> impl Iterator<Item = &str> {
        let names = self.name.iter().chain(&self.alternate_names).map(String::as_str);
        names.filter(|name| name.starts_with(BY_PATH))
    }

    /// World wide name, in its longest known form.
    fn unique(&self) -> Option<String> {
        plain(self.wwn_with_extension.as_ref()).or_else(|| plain(self.wwn.as_ref()))
    }

    /// Whether it is this disk, or the one that has replaced it.
    fn is_there(&self, found: &Self) -> bool {
        match (self.unique(), found.unique()) {
            (Some(one), Some(other)) if one == other => return true,
            // Units of one controller share its serial number.
            (Some(_), Some(_)) => {}
            _ => {
                let serials = (plain(self.serial_number.as_ref()), plain(found.serial_number.as_ref()));
                if serials.0.is_some() && serials.0 == serials.1 {
                    return true;
                }
            }
        }
        if self.places().any(|place| found.places().any(|other| other == place)) {
            return true;
        }
        let nameless = self.unique().is_none() && plain(self.serial_number.as_ref()).is_none();
        // Names that the kernel gives, as another program's inspection may have them alone.
        let mut names = found.name.iter().chain(&found.alternate_names);
        nameless
            && self.places().next().is_none()
            && self.name.is_some()
            && names.any(|name| self.name.as_ref() == Some(name))
    }
}

/// The text without insignificant differences; `None` if nothing remains.
fn plain(text: Option<&String>) -> Option<String> {
    text.map(|text| text.trim().to_ascii_lowercase()).filter(|text| !text.is_empty())
}

/// Disks of an earlier inspection that are absent. A disk with another one in its place counts as replaced, not as absent. A disk behind a network
/// may be absent, unless the hints name it.
#[must_use]
pub fn absent<'a>(expected: &'a [Storage], found: &[Storage], named: &RootDeviceHints) -> Vec<&'a Storage> {
    let needed = expected.iter().filter(|disk| !disk.seems_remote() || named.names(disk, expected));
    needed.filter(|disk| !found.iter().any(|other| disk.is_there(other))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(place: &str, serial: &str, wwn: &str) -> Storage {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Storage {
            name: some(place),
            serial_number: some(serial),
            wwn: some(wwn),
            disk_type: Some(DiskType::SSD),
            ..Storage::default()
        }
    }

    fn place(name: &str) -> String {
        format!("{BY_PATH}{name}")
    }

    #[test]
    fn a_disk_is_there_by_its_name_its_number_or_its_place() {
        let (one, two) = (place("pci-0000:00:1f.2-ata-1"), place("pci-0000:00:1f.2-ata-2"));
        let none = RootDeviceHints::default();
        let kernels =
            |name: &str| Storage { alternate_names: vec![name.to_owned()], ..disk(&one, "S1", "0x5000c500a1b2c3d4") };
        let cases = [
            ("the same", disk(&one, "S1", "0x5000c500a1b2c3d4"), disk(&one, "S1", "0x5000c500a1b2c3d4"), true),
            ("moved", disk(&one, "S1", "0x5000C500A1B2C3D4"), disk(&two, "", "0x5000c500a1b2c3d4 "), true),
            ("moved, by serial number", disk(&one, "s1", ""), disk(&two, " S1", ""), true),
            ("exchanged in its place", disk(&one, "S1", "0x5000c500a1b2c3d4"), disk(&one, "S2", "0x5"), true),
            ("another elsewhere", disk(&one, "S1", "0x5000c500a1b2c3d4"), disk(&two, "S2", "0x5"), false),
            ("another unit of its controller", disk(&one, "RAID", "0x6001"), disk(&two, "RAID", "0x6002"), false),
            ("nameless", disk("/dev/vda", "", ""), disk("/dev/vda", "", ""), true),
            ("nameless and gone", disk("/dev/vda", "", ""), disk("/dev/vdb", "", ""), false),
            ("known by the kernel's name alone", disk("/dev/sda", "", ""), kernels("/dev/sda"), true),
            ("known so, and gone", disk("/dev/sdb", "", ""), kernels("/dev/sda"), false),
            (
                "a name that moves says nothing of one with a number",
                disk("/dev/sda", "S1", ""),
                disk("/dev/sda", "S2", ""),
                false,
            ),
        ];
        for (why, expected, found, is_there) in cases {
            assert_eq!(absent(&[expected], &[found], &none).is_empty(), is_there, "{why}");
        }
        assert_eq!(absent(&[disk(&one, "S1", "")], &[], &none).len(), 1);
        assert!(absent(&[], &[], &none).is_empty());
    }

    #[test]
    fn what_a_network_carries_may_be_gone_unless_it_is_named() {
        let fc = disk(&place("pci-0000:08:00.1-fc-0x5006016-lun-2"), "L2", "");
        let iscsi = disk(&place("ip-192.0.2.1:3260-iscsi-iqn.2001-04.example:x-lun-1"), "I1", "");
        let fabric = Storage { disk_type: Some(DiskType::NVME), ..disk("/dev/nvme1n1", "N1", "") };
        let local = Storage { disk_type: Some(DiskType::NVME), ..disk(&place("pci-0000:01:00.0-nvme-1"), "N2", "") };
        let expected = [fc, iscsi, fabric, local];
        let gone = |named: &RootDeviceHints| -> Vec<String> {
            absent(&expected, &[], named).iter().filter_map(|disk| disk.serial_number.clone()).collect()
        };
        assert_eq!(gone(&RootDeviceHints::default()), ["N2"]);
        let named = RootDeviceHints { serial_number: Some("l2".into()), ..RootDeviceHints::default() };
        assert_eq!(gone(&named), ["L2", "N2"]);
        let broad = RootDeviceHints { rotational: Some(false), ..RootDeviceHints::default() };
        assert!(!broad.names(&expected[0], &expected), "what fits many names none");
    }

    #[test]
    fn a_name_that_moves_names_the_disk_that_had_it() {
        let called = |name: &str, serial: &str, wwn: &str| Storage {
            alternate_names: vec![name.to_owned()],
            hctl: Some(format!("{}:0:0:0", name.len())),
            ..disk("", serial, wwn)
        };
        let by = |name: &str| RootDeviceHints { device_name: Some(name.into()), ..RootDeviceHints::default() };
        let known = [called("/dev/sda", "S1", "0x51"), called("/dev/sdab", "S2", "0x52")];
        let (one, moved) = (called("/dev/sda", "S1", "0x51"), called("/dev/sdab", "S1", "0x51"));
        let other = called("/dev/sda", "L7", "0x60");
        for (hints, found, names, why) in [
            (by("/dev/sda"), &one, true, "as it was"),
            (by("/dev/sda"), &moved, true, "the disk, whatever its name is now"),
            (by("/dev/sda"), &other, false, "another disk has the name now"),
            (by("/dev/sdc"), &one, false, "no disk had the name"),
            (
                RootDeviceHints { hctl: Some("8:0:0:0".into()), ..RootDeviceHints::default() },
                &other,
                false,
                "its address",
            ),
            (
                RootDeviceHints { hctl: Some("8:0:0:0".into()), ..RootDeviceHints::default() },
                &one,
                true,
                "its own address",
            ),
            (RootDeviceHints { serial_number: Some("L7".into()), ..by("/dev/sda") }, &other, true, "its number"),
        ] {
            assert_eq!(hints.names(found, &known), names, "{why}");
        }
        assert!(!by("/dev/sda").names(&one, &[]), "nothing is known of what had the name");
        let placed = disk(&place("pci-0000:08:00.1-fc-0x5006016-lun-2"), "", "");
        assert!(by(placed.name.as_ref().unwrap()).names(&placed, &[]), "a place needs no inspection");
    }
}
