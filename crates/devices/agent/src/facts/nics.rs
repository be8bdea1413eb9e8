//! Network interfaces, from `/sys/class/net`.

use std::net::IpAddr;

use inventory::Nic;

use super::by_path::is_pci_address;
use crate::tree::Tree;

/// Most interfaces reported.
const MAX_NICS: usize = 256;

/// ARPHRD_ETHER of Linux `if_arp.h`.
const ETHERNET: i64 = 1;

/// Physical Ethernet interfaces by name; one entry for each family in which an interface has an address.
pub(super) fn nics(tree: &Tree, addresses: &[(String, IpAddr)]) -> Vec<Nic> {
    let boot = boot_mac(tree);
    let mut found = Vec::new();
    for name in tree.names("sys/class/net").into_iter().take(MAX_NICS) {
        let base = format!("sys/class/net/{name}");
        // an interface without a device is the kernel's own: loopback, bond, VLAN
        if !tree.exists(&format!("{base}/device")) || tree.number(&format!("{base}/type")) != Some(ETHERNET) {
            continue;
        }
        let Some(mac) = permanent_mac(tree, &name) else { continue };
        let nic = describe(tree, &base, &name, &mac, boot.as_deref());
        let address_of =
            |four: bool| addresses.iter().find(|(of, ip)| *of == name && ip.is_ipv4() == four && !is_link_local(*ip));
        let ips: Vec<String> =
            [address_of(true), address_of(false)].into_iter().flatten().map(|(_, ip)| ip.to_string()).collect();
        if ips.is_empty() {
            found.push(nic);
        } else {
            found.extend(ips.into_iter().map(|ip| Nic { ip: Some(ip), ..nic.clone() }));
        }
    }
    found
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xFFC0 == 0xFE80)
}

/// The interface's factory MAC address: the port of a bond reports the bond's as its current one.
pub(crate) fn permanent_mac(tree: &Tree, name: &str) -> Option<String> {
    let base = format!("sys/class/net/{name}");
    let mac =
        tree.text(&format!("{base}/bonding_slave/perm_hwaddr")).or_else(|| tree.text(&format!("{base}/address")))?;
    Some(mac.to_ascii_lowercase()).filter(|mac| mac.len() == 17 && mac != "00:00:00:00:00:00")
}

/// An interface over USB: the BMC's own, or an adapter that a person plugged in.
pub(crate) fn is_usb(tree: &Tree, name: &str) -> bool {
    tree.resolve(&format!("sys/class/net/{name}/device"))
        .is_some_and(|place| place.split('/').any(|component| component.starts_with("usb")))
}

fn describe(tree: &Tree, base: &str, name: &str, mac: &str, boot: Option<&str>) -> Nic {
    let id = |which: &str| tree.text(&format!("{base}/device/{which}"));
    let pci = tree
        .resolve(&format!("{base}/device"))
        .and_then(|path| path.rsplit('/').find(|component| is_pci_address(component)).map(str::to_owned));
    Nic {
        mac: Some(mac.to_owned()),
        model: id("vendor").zip(id("device")).map(|(vendor, device)| format!("{vendor} {device}")),
        name: Some(name.to_owned()),
        pci_address: pci,
        pxe: boot.map(|boot| boot == mac),
        speed_gbps: Some(tree.number(&format!("{base}/speed")).unwrap_or(0).max(0) / 1000),
        ..Nic::default()
    }
}

/// The interface that a network boot loader used: `BOOTIF=01-52-54-00-…` of PXELINUX and GRUB.
fn boot_mac(tree: &Tree) -> Option<String> {
    let line = tree.text("proc/cmdline")?;
    let value = line.split_whitespace().find_map(|word| word.strip_prefix("BOOTIF="))?;
    let value = value.to_ascii_lowercase().replace('-', ":");
    Some(value.strip_prefix("01:").filter(|rest| rest.len() == 17).map_or_else(|| value.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;

    #[test]
    fn a_port_with_two_addresses_appears_twice() {
        let folder = tempfile::tempdir().unwrap();
        let device = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        let net = format!("{device}/net/eth0");
        plant(
            folder.path(),
            &[
                (&format!("{device}/vendor"), "0x8086\n"),
                (&format!("{device}/device"), "0x1572\n"),
                (&format!("{net}/address"), "52:54:00:AA:00:01\n"),
                (&format!("{net}/type"), "1\n"),
                (&format!("{net}/speed"), "25000\n"),
                ("sys/devices/virtual/net/lo/address", "00:00:00:00:00:00\n"),
                ("proc/cmdline", "quiet BOOTIF=01-52-54-00-aa-00-01"),
            ],
        );
        std::fs::create_dir_all(folder.path().join("sys/class/net")).unwrap();
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, folder.path().join(at)).unwrap();
        link("../..", &format!("{net}/../../net/eth0/device"));
        link("../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0", "sys/class/net/eth0");
        link("../../devices/virtual/net/lo", "sys/class/net/lo");
        let addresses = [("eth0", "10.0.0.2"), ("eth0", "fe80::1"), ("eth0", "fd00::2"), ("lo", "127.0.0.1")]
            .map(|(name, ip)| (name.to_owned(), ip.parse().unwrap()));
        let found = nics(&Tree::new(folder.path()), &addresses);
        assert_eq!(found.len(), 2);
        let ips: Vec<&str> = found.iter().filter_map(|nic| nic.ip.as_deref()).collect();
        assert_eq!(ips, ["10.0.0.2", "fd00::2"]);
        let nic = &found[0];
        assert_eq!(nic.mac.as_deref(), Some("52:54:00:aa:00:01"));
        assert_eq!(nic.model.as_deref(), Some("0x8086 0x1572"));
        assert_eq!(nic.pci_address.as_deref(), Some("0000:01:00.0"));
        assert_eq!((nic.speed_gbps, nic.pxe), (Some(25), Some(true)));
    }
}
