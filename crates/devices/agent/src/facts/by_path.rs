//! The name of a disk under `/dev/disk/by-path`, computed from its place in sysfs.
//!
//! There is no udev in the agent's system, and root device hints name disks this way: the rules here give the names that
//! udev's path_id gives (systemd, `src/udev/udev-builtin-path_id.c`, behaviour only).

/// Reads attributes of sysfs, by path below the root of the tree.
pub trait Attributes {
    /// Text of an attribute.
    fn text(&self, path: &str) -> Option<String>;
    /// Names in a folder.
    fn names(&self, path: &str) -> Vec<String>;
}

impl Attributes for crate::tree::Tree {
    fn text(&self, path: &str) -> Option<String> {
        Self::text(self, path)
    }
    fn names(&self, path: &str) -> Vec<String> {
        Self::names(self, path)
    }
}

/// Names below `/dev/disk/by-path`: the present one first, then an older form where udev keeps one.
///
/// `path` is the disk's folder in sysfs (`sys/devices/pci0000:00/…/block/sda`), all links resolved.
#[must_use]
pub fn by_path(path: &str, attributes: &dyn Attributes) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').collect();
    if let Some(session) = parts.iter().rposition(|part| is_numbered(part, "session")) {
        return Place { parts: &parts, attributes }.iscsi(session).into_iter().collect();
    }
    let Some(pci) = parts.iter().rposition(|part| is_pci_address(part)) else { return Vec::new() };
    let place = Place { parts: &parts, attributes };
    let prefix = format!("pci-{}", parts[pci]);
    let join = |tail: &str| format!("{prefix}-{tail}");
    let below = &parts[pci + 1..];
    if below.iter().any(|part| is_numbered(part, "virtio")) && !below.iter().any(|part| is_numbered(part, "host")) {
        return vec![prefix];
    }
    if below.contains(&"nvme") {
        return place.nvme().map(|tail| join(&tail)).into_iter().collect();
    }
    place.scsi().iter().map(|tail| join(tail)).collect()
}

/// `0000:00:1f.2`.
pub(crate) fn is_pci_address(part: &str) -> bool {
    let Some((domain, rest)) = part.split_once(':') else { return false };
    let Some((bus, rest)) = rest.split_once(':') else { return false };
    let Some((slot, function)) = rest.split_once('.') else { return false };
    let hex = |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (4..=8).contains(&domain.len()) && hex(domain, domain.len()) && hex(bus, 2) && hex(slot, 2) && hex(function, 1)
}

/// `host7` for the prefix `host`.
pub(crate) fn is_numbered(part: &str, prefix: &str) -> bool {
    part.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// host, channel, target and logical unit of a SCSI device's folder.
pub(crate) fn hctl(part: &str) -> Option<[u64; 4]> {
    let mut numbers = part.split(':').map(|number| number.parse::<u64>().ok());
    let found = [numbers.next()??, numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(found)
}

struct Place<'a> {
    parts: &'a [&'a str],
    attributes: &'a dyn Attributes,
}

impl Place<'_> {
    /// Path up to and with part `index`.
    fn upto(&self, index: usize) -> String {
        self.parts[..=index].join("/")
    }

    fn nvme(&self) -> Option<String> {
        let path = self.parts.join("/");
        let nsid = self.attributes.text(&format!("{path}/nsid")).or_else(|| {
            let (_, namespace) = self.parts.last()?.rsplit_once('n')?;
            namespace.parse::<u32>().ok().map(|number| number.to_string())
        })?;
        Some(format!("nvme-{nsid}"))
    }

    fn scsi(&self) -> Vec<String> {
        let device = self.parts.iter().rposition(|part| hctl(part).is_some());
        let host = self.parts.iter().rposition(|part| is_numbered(part, "host"));
        let (Some(device), Some(host)) = (device, host) else { return Vec::new() };
        let Some(address) = hctl(self.parts[device]).filter(|_| host > 0 && host < device) else { return Vec::new() };
        let before = &self.parts[..host];
        if self.parts.iter().any(|part| part.starts_with("rport-")) {
            return self.fibre_channel(host, device, address).into_iter().collect();
        }
        if let Some(end) = self.parts.iter().rposition(|part| part.starts_with("end_device-")) {
            return self.sas(end, address).into_iter().collect();
        }
        if before.last().is_some_and(|part| is_numbered(part, "ata")) {
            return self.ata(host - 1, address);
        }
        let [number, channel, target, lun] = address;
        let base = self.lowest_host(host).unwrap_or(number).min(number);
        let tail = format!("scsi-{}:{channel}:{target}:{lun}", number - base);
        // a USB interface: 1-2.1:1.0
        let usb = before.iter().rev().find_map(|part| {
            let (bus, port) = part.split_once('-')?;
            (bus.parse::<u32>().is_ok() && port.contains(':')).then_some(port)
        });
        vec![usb.map_or_else(|| tail.clone(), |port| format!("usb-0:{port}-{tail}"))]
    }

    /// Hosts are numbered anew at each start; udev counts from the lowest of the same parent.
    fn lowest_host(&self, host: usize) -> Option<u64> {
        let names = self.attributes.names(&self.upto(host - 1));
        names.iter().filter_map(|name| name.strip_prefix("host")?.parse().ok()).min()
    }

    fn ata(&self, port: usize, [_, channel, target, _]: [u64; 4]) -> Vec<String> {
        let path = format!("{}/ata_port/{}/port_no", self.upto(port), self.parts[port]);
        let Some(number) = self.attributes.text(&path) else { return Vec::new() };
        let now = if channel != 0 { format!("ata-{number}.{channel}.0") } else { format!("ata-{number}.{target}") };
        vec![now, format!("ata-{number}")]
    }

    fn sas(&self, end: usize, [.., lun]: [u64; 4]) -> Option<String> {
        let class = |index: usize, kind: &str, name: &str| {
            let path = self.upto(index);
            self.attributes.text(&format!("{path}/{kind}/{}/{name}", self.parts[index]))
        };
        let lun = lun_text(lun);
        let phys = class(end.checked_sub(1)?, "sas_port", "num_phys");
        if phys.is_some_and(|count| count != "1") {
            return Some(format!("sas-{}-{lun}", class(end, "sas_device", "sas_address")?));
        }
        let phy = class(end, "sas_device", "phy_identifier")?;
        let above = end.checked_sub(2)?;
        let expander = self.parts[above].starts_with("expander-").then(|| class(above, "sas_device", "sas_address"));
        Some(match expander.flatten() {
            Some(expander) => format!("sas-exp{expander}-phy{phy}-{lun}"),
            None => format!("sas-phy{phy}-{lun}"),
        })
    }

    fn fibre_channel(&self, host: usize, device: usize, [.., lun]: [u64; 4]) -> Option<String> {
        let target = (host..device).rev().find(|index| self.parts[*index].starts_with("target"))?;
        let path = format!("{}/fc_transport/{}/port_name", self.upto(target), self.parts[target]);
        Some(format!("fc-{}-{}", self.attributes.text(&path)?, lun_text(lun)))
    }

    /// By portal, target and unit, independent of the network card.
    fn iscsi(&self, session: usize) -> Option<String> {
        let [.., lun] = self.parts.iter().rev().find_map(|part| hctl(part))?;
        let path = self.upto(session);
        let number = self.parts[session].strip_prefix("session")?;
        let target = self.attributes.text(&format!("{path}/iscsi_session/session{number}/targetname"))?;
        let connection = format!("{path}/connection{number}:0/iscsi_connection/connection{number}:0");
        let address = self.attributes.text(&format!("{connection}/persistent_address"))?;
        let port = self.attributes.text(&format!("{connection}/persistent_port"))?;
        // a name is one part of a path
        let name = format!("ip-{address}:{port}-iscsi-{target}-{}", lun_text(lun));
        (!name.contains('/')).then_some(name)
    }
}

/// Small logical units are decimal, others are in the hexadecimal of their eight-byte address.
fn lun_text(lun: u64) -> String {
    if lun < 256 {
        return format!("lun-{lun}");
    }
    // the kernel stores the four levels with the lowest first
    let swapped = (0..4).fold(0_u64, |sum, level| (sum << 16) | (lun >> (16 * level)) & 0xFFFF);
    format!("lun-0x{swapped:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    struct Fixed(BTreeMap<&'static str, &'static str>);

    impl Attributes for Fixed {
        fn text(&self, path: &str) -> Option<String> {
            self.0.get(path).map(|text| (*text).to_owned())
        }
        fn names(&self, path: &str) -> Vec<String> {
            let inside = self.0.keys().filter_map(|key| key.strip_prefix(path)?.strip_prefix('/'));
            inside.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect()
        }
    }

    /// Places of disks as seen on machines, and the name udev gives there.
    #[test]
    fn names_are_those_of_udev() {
        let sas = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/host0/port-0:0/end_device-0:0";
        let exp = "sys/devices/pci0000:80/0000:81:00.0/host0/port-0:0/expander-0:0/port-0:0:3/end_device-0:0:3";
        let fc = "sys/devices/pci0000:00/0000:08:00.1/host7/rport-7:0-1/target7:0:1";
        let iscsi = "sys/devices/platform/host3/session1";
        let leak = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let attributes = Fixed(BTreeMap::from([
            ("sys/devices/pci0000:00/0000:00:1f.2/ata3/ata_port/ata3/port_no", "3"),
            ("sys/devices/pci0000:00/0000:00:10.0/host4/x", ""),
            ("sys/devices/pci0000:00/0000:00:10.0/host5/x", ""),
            (leak(format!("{sas}/sas_device/end_device-0:0/phy_identifier")), "4"),
            (leak(format!("{}/sas_port/port-0:0/num_phys", sas.rsplit_once('/').unwrap().0)), "1"),
            (leak(format!("{exp}/sas_device/end_device-0:0:3/phy_identifier")), "7"),
            (leak(format!("{}/sas_port/port-0:0:3/num_phys", exp.rsplit_once('/').unwrap().0)), "1"),
            (
                leak(format!("{}/sas_device/expander-0:0/sas_address", exp.rsplitn(3, '/').last().unwrap())),
                "0x500056b3",
            ),
            (leak(format!("{fc}/fc_transport/target7:0:1/port_name")), "0x5006016"),
            (leak(format!("{iscsi}/iscsi_session/session1/targetname")), "iqn.2001-04.example:x"),
            (leak(format!("{iscsi}/connection1:0/iscsi_connection/connection1:0/persistent_address")), "192.0.2.9"),
            (leak(format!("{iscsi}/connection1:0/iscsi_connection/connection1:0/persistent_port")), "3260"),
        ]));
        let cases: &[(&str, &[&str])] = &[
            ("sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda", &["pci-0000:00:04.0"]),
            (
                "sys/devices/pci0000:00/0000:00:05.0/virtio2/host2/target2:0:0/2:0:0:1/block/sda",
                &["pci-0000:00:05.0-scsi-0:0:0:1"],
            ),
            (
                "sys/devices/pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0/block/sda",
                &["pci-0000:00:1f.2-ata-3.0", "pci-0000:00:1f.2-ata-3"],
            ),
            ("sys/devices/pci0000:00/0000:00:1c.0/0000:01:00.0/nvme/nvme0/nvme0n1", &["pci-0000:01:00.0-nvme-1"]),
            (
                "sys/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/host6/target6:0:0/6:0:0:0/block/sdb",
                &["pci-0000:00:14.0-usb-0:2:1.0-scsi-0:0:0:0"],
            ),
            (
                "sys/devices/pci0000:00/0000:00:10.0/host5/target5:2:0/5:2:0:0/block/sda",
                &["pci-0000:00:10.0-scsi-1:2:0:0"],
            ),
            (leak(format!("{sas}/target0:0:0/0:0:0:0/block/sda")), &["pci-0000:81:00.0-sas-phy4-lun-0"]),
            (leak(format!("{exp}/target0:0:3/0:0:3:0/block/sdd")), &["pci-0000:81:00.0-sas-exp0x500056b3-phy7-lun-0"]),
            (leak(format!("{fc}/7:0:1:2/block/sdc")), &["pci-0000:08:00.1-fc-0x5006016-lun-2"]),
            (
                leak(format!("{iscsi}/target3:0:0/3:0:0:1/block/sde")),
                &["ip-192.0.2.9:3260-iscsi-iqn.2001-04.example:x-lun-1"],
            ),
            ("sys/devices/virtual/block/loop0", &[]),
        ];
        for (path, want) in cases {
            assert_eq!(by_path(path, &attributes), *want, "{path}");
        }
        assert_eq!(lun_text(0x4001_0000), "lun-0x0000400100000000");
    }

    proptest! {
        #[test]
        fn any_path_is_taken(parts in prop::collection::vec(
            prop_oneof![
                Just("0000:00:1f.2".to_owned()), Just("ata1".to_owned()), Just("host1".to_owned()),
                Just("nvme".to_owned()), Just("virtio0".to_owned()), Just("1:0:0:0".to_owned()),
                Just("rport-1:0-0".to_owned()), Just("end_device-1:0".to_owned()), Just("1-2:1.0".to_owned()),
                "[a-z0-9:.-]{0,8}",
            ], 0..10)) {
            for name in by_path(&parts.join("/"), &Fixed(BTreeMap::new())) {
                prop_assert!(name.starts_with("pci-") && !name.contains('/'));
            }
        }
    }
}
