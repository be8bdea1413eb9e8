//! Which disks are volumes of a RAID controller, whose drives the system does not see, by the kernel's drivers.

use super::by_path;
use crate::tree::Tree;

/// Most controllers that are told.
const MAX_CONTROLLERS: usize = 16;

/// Where a driver puts volumes, and where drives that are passed through.
#[derive(Clone, Copy)]
enum Volumes {
    /// All that it shows.
    All,
    /// On these channels of the SCSI address (`host:channel:target:unit`).
    From(u64),
    /// On this channel.
    On(u64),
    /// What has a RAID level (`raid_level`, `N/A` for drives).
    ByLevel,
    /// What is no SAS or SATA drive (`sas_address`, empty for anything else): a volume, or an NVMe drive, which cannot be told from one.
    WithoutAddress,
}

/// Drivers of controllers that hide drives, by `scsi_host/…/proc_name`. Channels are those of Linux' `megaraid_sas.h` (`MEGASAS_MAX_PD_CHANNELS`),
/// `mpt3sas_base.h` (`RAID_CHANNEL`), `mptsas.h` (`MPTSAS_RAID_CHANNEL`) and `aacraid.h` (`CONTAINER_CHANNEL`); the address is `mpi3mr_app.c`'s.
const DRIVERS: [(&str, Volumes); 16] = [
    ("megaraid_sas", Volumes::From(2)),
    ("mpi3mr", Volumes::WithoutAddress),
    ("mpt3sas", Volumes::On(1)),
    ("mpt2sas", Volumes::On(1)),
    ("mptsas", Volumes::On(1)),
    ("aacraid", Volumes::On(0)),
    ("hpsa", Volumes::ByLevel),
    ("smartpqi", Volumes::ByLevel),
    ("megaraid", Volumes::All),
    ("arcmsr", Volumes::All),
    ("3w-9xxx", Volumes::All),
    ("3w-sas", Volumes::All),
    ("ips", Volumes::All),
    ("hptiop", Volumes::All),
    ("pmcraid", Volumes::All),
    ("mvumi", Volumes::All),
];

/// Those of plain host bus adapters as well.
const PLAIN_TOO: [&str; 4] = ["mpi3mr", "mpt3sas", "mpt2sas", "mptsas"];

fn rule(driver: &str) -> Option<Volumes> {
    DRIVERS.iter().find(|(name, _)| *name == driver).map(|(_, rule)| *rule)
}

/// The driver of the controller that this disk is a volume of.
#[must_use]
pub fn volume(tree: &Tree, device: &str) -> Option<String> {
    let base = format!("sys/block/{device}");
    let place = tree.resolve(&base)?;
    let parts: Vec<&str> = place.split('/').collect();
    let host = parts.iter().rposition(|part| by_path::is_numbered(part, "host"))?;
    let driver = tree.text(&format!("{}/scsi_host/{}/proc_name", parts[..=host].join("/"), parts[host]))?;
    let address = tree.resolve(&format!("{base}/device")).unwrap_or_default();
    let channel = address.rsplit('/').next().and_then(by_path::hctl).map(|[_, channel, ..]| channel);
    let is_volume = match rule(&driver)? {
        Volumes::All => true,
        Volumes::From(first) => channel.is_none_or(|channel| channel >= first),
        Volumes::On(one) => channel.is_none_or(|channel| channel == one),
        Volumes::ByLevel => {
            let level = tree.text(&format!("{base}/device/raid_level"));
            level.is_none_or(|level| level != "N/A")
        }
        Volumes::WithoutAddress => tree.text(&format!("{base}/device/sas_address")).is_none(),
    };
    is_volume.then_some(driver)
}

/// Controllers that may hide drives, in words: those of RAID alone, and the others that have a volume.
#[must_use]
pub fn hiding(tree: &Tree) -> Vec<String> {
    let with_volumes: Vec<String> = tree.names("sys/block").iter().filter_map(|device| volume(tree, device)).collect();
    let hosts = tree.names("sys/class/scsi_host").into_iter().filter_map(|host| {
        let driver = tree.text(&format!("sys/class/scsi_host/{host}/proc_name"))?;
        rule(&driver)?;
        (!PLAIN_TOO.contains(&driver.as_str()) || with_volumes.contains(&driver)).then(|| format!("{host} ({driver})"))
    });
    hosts.take(MAX_CONTROLLERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::plant;
    use std::path::Path;

    fn disk(root: &Path, name: &str, driver: &str, hctl: &str, level: Option<&str>) {
        let host = format!("host{}", hctl.split(':').next().unwrap());
        let controller = format!("sys/devices/pci0000:00/0000:00:1f.0/{host}");
        let device = format!("{controller}/target{hctl}/{hctl}");
        plant(
            root,
            &[
                (&format!("{controller}/scsi_host/{host}/proc_name"), driver),
                (&format!("sys/class/scsi_host/{host}/proc_name"), driver),
                (&format!("{device}/block/{name}/size"), "1"),
            ],
        );
        if let Some(level) = level {
            plant(root, &[(&format!("{device}/raid_level"), level)]);
        }
        let block = root.join(&device).join("block").join(name);
        std::os::unix::fs::symlink(root.join(&device), block.join("device")).unwrap();
        std::fs::create_dir_all(root.join("sys/block")).unwrap();
        std::os::unix::fs::symlink(block, root.join("sys/block").join(name)).unwrap();
    }

    #[test]
    fn volumes_are_told_from_drives_by_their_driver() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        let rows = [
            ("sda", "megaraid_sas", "0:2:0:0", None, true),
            ("sdb", "megaraid_sas", "0:0:4:0", None, false),
            ("sdc", "mpt3sas", "1:0:0:0", None, false),
            ("sdd", "smartpqi", "2:1:0:0", Some("RAID-5"), true),
            ("sde", "smartpqi", "2:0:0:0", Some("N/A"), false),
            ("sdf", "ahci", "3:0:0:0", None, false),
            ("sdg", "aacraid", "4:0:0:0", None, true),
            ("sdh", "arcmsr", "5:1:2:3", None, true),
        ];
        for (name, driver, hctl, level, _) in rows {
            disk(root, name, driver, hctl, level);
        }
        let tree = Tree::new(root);
        for (name, driver, .., is_volume) in rows {
            assert_eq!(volume(&tree, name), is_volume.then(|| driver.to_owned()), "{name}");
        }
        assert_eq!(hiding(&tree), ["host0 (megaraid_sas)", "host2 (smartpqi)", "host4 (aacraid)", "host5 (arcmsr)"]);
        disk(root, "sdi", "mpt3sas", "1:1:0:0", None);
        assert!(hiding(&tree).contains(&"host1 (mpt3sas)".to_owned()), "it has a volume now");

        disk(root, "sdj", "mpi3mr", "6:0:3:0", None);
        let drive = "sys/devices/pci0000:00/0000:00:1f.0/host6/target6:0:3:0/6:0:3:0";
        plant(root, &[(&format!("{drive}/sas_address"), "0x5000c500a1b2c3d5\n")]);
        assert_eq!((volume(&tree, "sdj"), hiding(&tree).iter().any(|told| told.contains("mpi3mr"))), (None, false));
        disk(root, "sdk", "mpi3mr", "6:1:0:0", None);
        assert_eq!(volume(&tree, "sdk").as_deref(), Some("mpi3mr"));
        assert!(hiding(&tree).contains(&"host6 (mpi3mr)".to_owned()));
    }
}
