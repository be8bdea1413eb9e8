//! Chooses the kernel modules that servers need, with everything these need in turn.

use std::collections::{BTreeMap, BTreeSet};

use terms::Architecture;

use super::elf::{self, ModInfo};
use super::index::{ModuleEntry, ModuleIndex, module_name};
use super::{BuildError, check_by_name};

/// Folders of which all modules are included.
const FOLDERS: &[&str] = &[
    // disks
    "kernel/drivers/ata/",
    "kernel/drivers/nvme/host/",
    "kernel/drivers/message/fusion/",
    "kernel/drivers/scsi/aacraid/",
    "kernel/drivers/scsi/hisi_sas/",
    "kernel/drivers/scsi/isci/",
    "kernel/drivers/scsi/lpfc/",
    "kernel/drivers/scsi/megaraid/",
    "kernel/drivers/scsi/mpi3mr/",
    "kernel/drivers/scsi/mpt3sas/",
    "kernel/drivers/scsi/mvsas/",
    "kernel/drivers/scsi/pm8001/",
    "kernel/drivers/scsi/qla2xxx/",
    "kernel/drivers/scsi/smartpqi/",
    // networks
    "kernel/drivers/net/bonding/",
    "kernel/drivers/net/ethernet/amazon/",
    "kernel/drivers/net/ethernet/amd/",
    "kernel/drivers/net/ethernet/aquantia/",
    "kernel/drivers/net/ethernet/atheros/",
    "kernel/drivers/net/ethernet/broadcom/",
    "kernel/drivers/net/ethernet/brocade/",
    "kernel/drivers/net/ethernet/chelsio/cxgb4/",
    "kernel/drivers/net/ethernet/chelsio/cxgb4vf/",
    "kernel/drivers/net/ethernet/cisco/enic/",
    "kernel/drivers/net/ethernet/emulex/",
    "kernel/drivers/net/ethernet/google/",
    "kernel/drivers/net/ethernet/huawei/",
    "kernel/drivers/net/ethernet/intel/",
    "kernel/drivers/net/ethernet/marvell/",
    "kernel/drivers/net/ethernet/mellanox/mlx4/",
    "kernel/drivers/net/ethernet/mellanox/mlx5/",
    "kernel/drivers/net/ethernet/microsoft/",
    "kernel/drivers/net/ethernet/netronome/",
    "kernel/drivers/net/ethernet/nvidia/",
    "kernel/drivers/net/ethernet/pensando/",
    "kernel/drivers/net/ethernet/qlogic/",
    "kernel/drivers/net/ethernet/realtek/",
    "kernel/drivers/net/ethernet/sfc/",
    "kernel/drivers/net/phy/",
    "kernel/drivers/net/hyperv/",
    "kernel/net/8021q/",
    // buses and everything between them and a disk
    "kernel/drivers/usb/host/",
    "kernel/drivers/virtio/",
    // file systems of the EFI system partition
    "kernel/fs/efivarfs/",
    "kernel/fs/fat/",
    "kernel/fs/nls/",
];

/// The same, of machines with Arm processors.
const FOLDERS_OF_AARCH64: &[&str] = &[
    "kernel/drivers/net/ethernet/apm/",
    "kernel/drivers/net/ethernet/cavium/",
    "kernel/drivers/net/ethernet/hisilicon/",
];

/// Single modules by name.
const MODULES: &[&str] = &[
    // disks
    "3w_9xxx",
    "3w_sas",
    "arcmsr",
    "hpsa",
    "hptiop",
    "hv_storvsc",
    "ipr",
    "mmc_block",
    "mtip32xx",
    "sata_nv",
    "sd_mod",
    "sdhci_acpi",
    "sdhci_pci",
    "ses",
    "sg",
    "sr_mod",
    "stex",
    "uas",
    "usb_storage",
    "virtio_blk",
    "virtio_scsi",
    "vmd",
    "vmw_pvscsi",
    "xen_blkfront",
    // networks
    "ax88179_178a",
    "cdc_ether",
    "cdc_ncm",
    "r8152",
    "rndis_host",
    "virtio_net",
    "vmxnet3",
    "xen_netfront",
    // checksums that the above look for by name
    "crc32c_generic",
    "crc32c_intel",
    "crct10dif_generic",
    "crct10dif_pclmul",
    "crc64_rocksoft_generic",
    // the BMC's local interface, a keyboard for the people at the console, randomness
    "ipmi_devintf",
    "ipmi_msghandler",
    "ipmi_si",
    "ipmi_ssif",
    "hid_generic",
    "usbhid",
    "virtio_rng",
    "hv_vmbus",
];

/// The same, of machines with Arm processors: buses that their BMC's local interface hangs on.
const MODULES_OF_AARCH64: &[&str] = &["i2c_designware_platform", "i2c_thunderx", "i2c_xgene_slimpro"];

/// Exceptions to the folders above: no server boots from them, or they are too large for their benefit.
const NOT: &[&str] = &[
    "kernel/drivers/ata/pata_",
    "kernel/drivers/net/ethernet/amd/pcnet32",
    "kernel/drivers/net/ethernet/intel/e100.ko",
    "kernel/drivers/net/ethernet/marvell/prestera/",
    "kernel/drivers/net/ethernet/qlogic/netxen/",
    "kernel/drivers/net/ethernet/sfc/falcon/",
    "kernel/drivers/usb/host/isp1",
    "kernel/drivers/usb/host/sl811",
    "kernel/drivers/virtio/virtio_mem",
];

/// Folders to skip entirely: no module above depends on one of theirs.
const HOPELESS: &[&str] = &[
    "kernel/arch/x86/kvm/",
    "kernel/drivers/accessibility/",
    "kernel/drivers/gpu/",
    "kernel/drivers/iio/",
    "kernel/drivers/media/",
    "kernel/drivers/net/can/",
    "kernel/drivers/net/wireless/",
    "kernel/drivers/staging/",
    "kernel/net/bluetooth/",
    "kernel/net/mac80211/",
    "kernel/net/netfilter/",
    "kernel/sound/",
];

/// Whether a file below `/lib/modules/<release>/` may be chosen.
pub(super) fn is_candidate(path: &str) -> bool {
    let module = path.ends_with(".ko") || path.ends_with(".ko.xz") || path.ends_with(".ko.zst");
    module && !HOPELESS.iter().any(|folder| path.starts_with(folder))
}

fn is_chosen(architecture: Architecture, path: &str) -> bool {
    let (folders, modules) = match architecture {
        Architecture::X86_64 => (&[][..], &[][..]),
        Architecture::Aarch64 => (FOLDERS_OF_AARCH64, MODULES_OF_AARCH64),
    };
    let is_in_folder = FOLDERS.iter().chain(folders).any(|folder| path.starts_with(folder));
    let name = module_name(path);
    is_in_folder && !NOT.iter().any(|not| path.starts_with(not))
        || MODULES.iter().chain(modules).any(|module| *module == name)
}

/// Chooses from `modules` (contents by path) those that servers need, and `more` by name, and builds the index of the chosen ones.
///
/// # Errors
/// A module that is damaged, or whose dependency is missing.
pub(super) fn select(
    architecture: Architecture,
    release: &str,
    modules: &BTreeMap<String, Vec<u8>>,
    builtin: &str,
    more: &[&str],
) -> Result<ModuleIndex, BuildError> {
    let builtin: BTreeSet<String> = builtin.lines().map(module_name).collect();
    let mut known = BTreeMap::new();
    let mut by_alias: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, bytes) in modules {
        let damaged = || BuildError::Module { module: path.clone(), what: "it has no readable .modinfo".to_owned() };
        let info = elf::modinfo(bytes).ok_or_else(damaged)?;
        for alias in info.aliases.iter().filter(|alias| !alias.contains(['*', ':'])) {
            by_alias.entry(alias.replace('-', "_")).or_default().push(info.name.clone());
        }
        known.insert(info.name.clone(), (path.clone(), info));
    }
    let mut queue: Vec<String> =
        modules.keys().filter(|path| is_chosen(architecture, path)).map(|path| module_name(path)).collect();
    queue.extend(more.iter().map(|name| (*name).to_owned()));
    let mut index = ModuleIndex { release: release.to_owned(), builtin, ..ModuleIndex::default() };
    while let Some(name) = queue.pop() {
        if index.modules.contains_key(&name) || index.builtin.contains(&name) {
            continue;
        }
        let missing =
            |module: &str| BuildError::Module { module: module.to_owned(), what: "the package lacks it".to_owned() };
        let (path, info): &(String, ModInfo) = known.get(&name).ok_or_else(|| missing(&name))?;
        queue.extend(info.depends.iter().cloned());
        for soft in &info.softdeps_pre {
            let found = if known.contains_key(soft) { Some(vec![soft.clone()]) } else { by_alias.get(soft).cloned() };
            queue.extend(found.unwrap_or_default());
        }
        index.aliases.extend(info.aliases.iter().map(|alias| (alias.clone(), name.clone())));
        let (depends, softdeps_pre) = (info.depends.clone(), info.softdeps_pre.clone());
        index.modules.insert(name, ModuleEntry { path: path.clone(), depends, softdeps_pre });
    }
    index.aliases.sort();
    index.aliases.dedup();
    check_by_name(&index)?;
    Ok(index)
}
