//! How to boot a disk: its EFI system partition and the loader in it, read without mounting.

use std::io::Read;

use fatfs::{Dir, FileSystem, FsOptions};

use crate::disk::Disk;
use crate::error::Error;
use crate::partition::{DiskId, Partition, Table};
use crate::volume::{Extent, VolumeReader, is_fat};

/// Most entries of one folder that are looked at.
const MAX_ENTRIES: usize = 512;

/// Longest boot description that is read, in bytes.
const MAX_CSV: u64 = 64 << 10;

/// Longest label, in characters.
const MAX_LABEL: usize = 128;

type Folder<'a, 'd> = Dir<'a, VolumeReader<'d>>;

/// The firmware's architecture, which is in the loaders' names (UEFI specification 2.10, 3.5.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BootArch {
    /// x86-64.
    X64,
    /// 64-bit Arm.
    Aa64,
}

impl BootArch {
    /// The architecture of this program; x86-64 if it is unknown.
    pub fn native() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aa64 } else { Self::X64 }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::X64 => "X64",
            Self::Aa64 => "AA64",
        }
    }
}

/// A disk's EFI system partition, with the data for a boot entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootInfo {
    /// Identity of the disk.
    pub disk: DiskId,
    /// The EFI system partition.
    pub esp: Partition,
    /// The loader; `None` if none exists for this architecture, or the file system cannot be read.
    pub loader: Option<Loader>,
}

/// A boot loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// Path in the firmware's notation: `\EFI\debian\shimx64.efi`.
    pub path: String,
    /// Name for the boot menu, if the system brings one.
    pub label: Option<String>,
    /// Options for the loader; usually empty.
    pub options: String,
    /// It is the fallback loader `\EFI\BOOT\BOOT….EFI`.
    pub fallback: bool,
}

/// Finds the EFI system partition and its loader: the one named in a `BOOT….CSV` (as shim's fallback program reads it), else `\EFI\BOOT\BOOT….EFI`.
/// Of several such partitions, the first with a loader counts. `None` without any.
///
/// # Errors
/// [`Error::Disk`].
pub fn read_boot_info(disk: &dyn Disk, arch: BootArch) -> Result<Option<BootInfo>, Error> {
    let Some(table) = Table::read(disk, u64::from(disk.logical_sector_size()))? else { return Ok(None) };
    let table = table.describe();
    let mut first = None;
    for esp in table.partitions.into_iter().filter(Partition::is_esp) {
        let loader = find_loader(disk, &esp, arch);
        let found = loader.is_some();
        let info = BootInfo { disk: table.id, esp, loader };
        if found {
            return Ok(Some(info));
        }
        first.get_or_insert(info);
    }
    Ok(first)
}

fn find_loader(disk: &dyn Disk, esp: &Partition, arch: BootArch) -> Option<Loader> {
    let mut reader = VolumeReader::new(disk, Extent { offset: esp.offset, length: esp.length });
    if !is_fat(&reader.array_at::<512>(0)?) {
        return None;
    }
    std::io::Seek::rewind(&mut reader).ok()?;
    let system = FileSystem::new(reader, FsOptions::new()).ok()?;
    let root = system.root_dir();
    let (efi_name, efi) = folder(&root, "EFI")?;
    let vendors: Vec<String> = names(&efi, true);
    let candidates = vendors.iter().filter(|name| !name.eq_ignore_ascii_case("BOOT"));
    candidates.filter_map(|vendor| from_csv(&efi, &efi_name, vendor, arch)).next().or_else(|| {
        let (boot_name, boot) = folder(&efi, "BOOT")?;
        let loader = file(&boot, &format!("BOOT{}.EFI", arch.suffix()))?;
        let path = format!("\\{efi_name}\\{boot_name}\\{loader}");
        Some(Loader { path, label: None, options: String::new(), fallback: true })
    })
}

/// Names of a folder's folders or files.
fn names(dir: &Folder<'_, '_>, folders: bool) -> Vec<String> {
    let entries = dir.iter().take(MAX_ENTRIES).map_while(Result::ok).filter(|entry| entry.is_dir() == folders);
    entries.map(|entry| entry.file_name()).filter(|name| name != "." && name != "..").collect()
}

/// The folder of this name in any case, and its name as written.
fn folder<'a, 'd>(dir: &Folder<'a, 'd>, name: &str) -> Option<(String, Folder<'a, 'd>)> {
    let mut entries = dir.iter().take(MAX_ENTRIES).map_while(Result::ok);
    let entry = entries.find(|entry| entry.is_dir() && entry.file_name().eq_ignore_ascii_case(name))?;
    Some((entry.file_name(), entry.to_dir()))
}

/// The file of this name in any case: its name as written.
fn file(dir: &Folder<'_, '_>, name: &str) -> Option<String> {
    names(dir, false).into_iter().find(|found| found.eq_ignore_ascii_case(name))
}

fn from_csv(efi: &Folder<'_, '_>, efi_name: &str, vendor: &str, arch: BootArch) -> Option<Loader> {
    let (vendor, dir) = folder(efi, vendor)?;
    let wanted = [format!("BOOT{}.CSV", arch.suffix()), "BOOT.CSV".to_owned()];
    let csv = wanted.iter().find_map(|name| file(&dir, name))?;
    let mut data = Vec::new();
    let mut entries = dir.iter().take(MAX_ENTRIES).map_while(Result::ok);
    let entry = entries.find(|entry| entry.file_name() == csv)?;
    entry.to_file().take(MAX_CSV).read_to_end(&mut data).ok()?;
    let text = decode(&data);
    text.lines().find_map(|line| {
        let mut columns = line.splitn(4, ',').map(str::trim);
        let loader = columns.next().filter(|name| is_file_name(name))?;
        let loader = file(&dir, loader)?;
        let label: String = columns.next()?.chars().filter(|c| !c.is_control()).take(MAX_LABEL).collect();
        let options: String = columns.next().unwrap_or("").chars().filter(|c| !c.is_control()).take(1024).collect();
        Some(Loader {
            path: format!("\\{efi_name}\\{vendor}\\{loader}"),
            label: (!label.is_empty()).then_some(label),
            options,
            fallback: false,
        })
    })
}

fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 255 && !name.contains(['\\', '/', ':']) && !name.starts_with('.')
}

/// UTF-16 (little endian, with or without its mark), or ASCII as some distributions ship by mistake.
fn decode(data: &[u8]) -> String {
    let data = data.strip_prefix(&[0xff, 0xfe]).unwrap_or(data);
    if !data.contains(&0) {
        return String::from_utf8_lossy(data).into_owned();
    }
    let units: Vec<u16> = data.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    String::from_utf16_lossy(&units)
}
