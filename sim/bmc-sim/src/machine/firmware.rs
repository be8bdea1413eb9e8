//! The disk that UEFI firmware would boot on a fake machine: the target of a boot entry whose partition exists, else the first disk with an EFI
//! system partition.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// The vendor GUID of the boot variables (UEFI specification, 3.3).
pub const GLOBAL_VARIABLE: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// C12A7328-F81F-11D2-BA4B-00A0C93EC93B as it lies on a disk.
const EFI_SYSTEM: [u8; 16] =
    [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];
/// Longest partition table that is read.
const MAX_TABLE: u64 = 1 << 20;
/// Longest variable that is read.
const MAX_VARIABLE: u64 = 64 << 10;
/// Most boot entries that are tried.
const MAX_ENTRIES: usize = 64;

/// The boot target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// The disk.
    pub disk: PathBuf,
    /// The boot entry, such as `Boot0001`; none when the disk was found by its EFI system partition.
    pub entry: Option<String>,
    /// The entry's description.
    pub description: Option<String>,
}

struct Partition {
    kind: [u8; 16],
    id: [u8; 16],
}

/// Returns what the firmware boots from `disks` (each with its logical sector size in bytes). Consumes `BootNext`.
#[must_use]
pub fn find_boot(efivars: &Path, disks: &[(PathBuf, u64)]) -> Option<Found> {
    let tables: Vec<(&PathBuf, Vec<Partition>)> = disks
        .iter()
        .filter_map(|(path, sector)| match File::open(path).and_then(|file| partitions(&file, *sector)) {
            Ok(table) => Some((path, table)),
            Err(error) => {
                tracing::debug!(disk = %path.display(), %error, "no partition table");
                None
            }
        })
        .collect();
    for number in boot_numbers(efivars) {
        let name = format!("Boot{number:04X}");
        let Some(entry) = variable(efivars, &name).as_deref().and_then(parse_entry) else { continue };
        let named = tables.iter().find(|(_, table)| table.iter().any(|partition| partition.id == entry.partition));
        if let Some((disk, _)) = named {
            return Some(Found { disk: (*disk).clone(), entry: Some(name), description: Some(entry.description) });
        }
    }
    let bootable = tables.iter().find(|(_, table)| table.iter().any(|partition| partition.kind == EFI_SYSTEM));
    bootable.map(|(disk, _)| Found { disk: (*disk).clone(), entry: None, description: None })
}

/// `BootNext`, which is removed, then `BootOrder`.
fn boot_numbers(efivars: &Path) -> Vec<u16> {
    let mut bytes = variable(efivars, "BootNext").unwrap_or_default();
    bytes.truncate(2);
    if !bytes.is_empty()
        && let Err(error) = std::fs::remove_file(variable_path(efivars, "BootNext"))
    {
        tracing::warn!(%error, "using up BootNext");
    }
    bytes.extend(variable(efivars, "BootOrder").unwrap_or_default());
    bytes.as_chunks::<2>().0.iter().take(MAX_ENTRIES).map(|pair| u16::from_le_bytes(*pair)).collect()
}

fn variable_path(efivars: &Path, name: &str) -> PathBuf {
    efivars.join(format!("{name}-{GLOBAL_VARIABLE}"))
}

/// A variable's value in efivarfs, without the four bytes of attributes.
fn variable(efivars: &Path, name: &str) -> Option<Vec<u8>> {
    let path = variable_path(efivars, name);
    if std::fs::metadata(&path).ok()?.len() > MAX_VARIABLE {
        return None;
    }
    Some(std::fs::read(&path).ok()?.split_at_checked(4)?.1.to_vec())
}

struct Entry {
    description: String,
    partition: [u8; 16],
}

/// Parses a load option (UEFI specification, 3.1.3) that is active and whose path begins at a GPT partition.
fn parse_entry(data: &[u8]) -> Option<Entry> {
    let (attributes, rest) = data.split_first_chunk::<4>()?;
    let active = u32::from_le_bytes(*attributes) & 1 == 1;
    let (path_length, rest) = rest.split_first_chunk::<2>()?;
    let units: Vec<u16> = rest.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    let end = units.iter().position(|unit| *unit == 0)?;
    let description = String::from_utf16_lossy(units.get(..end)?);
    let mut path = rest.get((end + 1) * 2..)?.get(..usize::from(u16::from_le_bytes(*path_length)))?;
    // Device path nodes: type, subtype, length. A hard drive node is 4.1 and 42 bytes long (10.3.5.1).
    while let Some((header, _)) = path.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let node = path.get(..length).filter(|node| node.len() >= 4)?;
        if header[..2] == [4, 1] && node.len() == 42 && node[40..42] == [2, 2] && active {
            return Some(Entry { description, partition: node[24..40].try_into().ok()? });
        }
        if header[0] == 0x7f {
            return None;
        }
        path = path.get(length..)?;
    }
    None
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The partitions of a disk with a protective MBR and a GPT with valid checksums (UEFI specification, 5.3).
fn partitions(file: &File, sector: u64) -> io::Result<Vec<Partition>> {
    let mut mbr = [0; 512];
    file.read_exact_at(&mut mbr, 0)?;
    let protective = (0..4).any(|slot| mbr[446 + slot * 16 + 4] == 0xee);
    if mbr[510..] != [0x55, 0xaa] || !protective {
        return Err(bad("no protective MBR"));
    }
    let mut header = vec![0; sector as usize];
    file.read_exact_at(&mut header, sector)?;
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = u32_at(12) as usize;
    if &header[..8] != b"EFI PART" || !(92..=header.len()).contains(&length) {
        return Err(bad("no GPT header"));
    }
    let mut checked = header[..length].to_vec();
    checked[16..20].fill(0);
    if crc32fast::hash(&checked) != u32_at(16) {
        return Err(bad("the GPT header's checksum does not hold"));
    }
    let table_at = u64::from(u32_at(72)) | (u64::from(u32_at(76)) << 32);
    let (count, size, checksum) = (u64::from(u32_at(80)), u64::from(u32_at(84)), u32_at(88));
    if size < 128 || count.checked_mul(size).is_none_or(|bytes| bytes > MAX_TABLE) {
        return Err(bad("a GPT of impossible size"));
    }
    let mut table = vec![0; (count * size) as usize];
    file.read_exact_at(&mut table, table_at.checked_mul(sector).ok_or_else(|| bad("a GPT beyond the disk"))?)?;
    if crc32fast::hash(&table) != checksum {
        return Err(bad("the partition table's checksum does not hold"));
    }
    let mut found = Vec::new();
    for entry in table.chunks_exact(size as usize) {
        let (kind, rest) = entry.split_first_chunk::<16>().ok_or_else(|| bad("a short GPT entry"))?;
        let (id, _) = rest.split_first_chunk::<16>().ok_or_else(|| bad("a short GPT entry"))?;
        if *kind != [0; 16] {
            found.push(Partition { kind: *kind, id: *id });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; 16] = [7; 16];

    fn disk(path: &Path, sector: usize, kind: [u8; 16]) {
        let mut bytes = vec![0; 64 * sector];
        bytes[450] = 0xee;
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        let table = 2 * sector;
        bytes[table..table + 16].copy_from_slice(&kind);
        bytes[table + 16..table + 32].copy_from_slice(&ID);
        let checksum = crc32fast::hash(&bytes[table..table + 4 * 128]);
        let header = &mut bytes[sector..sector + 92];
        header[..8].copy_from_slice(b"EFI PART");
        for (at, value) in [(12, 92_u32), (72, 2), (80, 4), (84, 128), (88, checksum)] {
            header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = crc32fast::hash(header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        std::fs::write(path, bytes).unwrap();
    }

    fn entry(partition: [u8; 16]) -> Vec<u8> {
        let mut data = vec![7, 0, 0, 0, 1, 0, 0, 0, 46, 0];
        data.extend("os\0".encode_utf16().flat_map(u16::to_le_bytes));
        let mut node = vec![4, 1, 42, 0];
        node.extend([0; 20]);
        node.extend(partition);
        node.extend([2, 2]);
        data.extend(node);
        data.extend([0x7f, 0xff, 4, 0]);
        data
    }

    #[test]
    fn a_disk_boots_by_its_system_partition_or_its_entry() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        disk(&a, 512, EFI_SYSTEM);
        disk(&b, 4096, [9; 16]);
        let disks = [(b.clone(), 4096), (a.clone(), 512)];
        let found = find_boot(folder.path(), &disks).unwrap();
        assert_eq!((found.disk, found.entry), (a.clone(), None));

        std::fs::write(variable_path(folder.path(), "BootOrder"), [7, 0, 0, 0, 0x0a, 0, 1, 0]).unwrap();
        std::fs::write(variable_path(folder.path(), "Boot0001"), entry(ID)).unwrap();
        std::fs::write(variable_path(folder.path(), "Boot000A"), entry([8; 16])).unwrap();
        let found = find_boot(folder.path(), &disks).unwrap();
        assert_eq!((found.disk, found.entry.as_deref()), (b, Some("Boot0001")));
        assert_eq!(found.description.as_deref(), Some("os"));

        std::fs::write(variable_path(folder.path(), "BootNext"), [7, 0, 0, 0, 1, 0]).unwrap();
        assert_eq!(boot_numbers(folder.path()), [1, 10, 1]);
        assert_eq!(boot_numbers(folder.path()), [10, 1]);
    }

    #[test]
    fn a_damaged_table_does_not_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for at in [450, 510, 512 + 24, 1024 + 3] {
            disk(&path, 512, EFI_SYSTEM);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(find_boot(folder.path(), &[(path.clone(), 512)]), None, "byte {at}");
        }
        std::fs::write(&path, [0; 100]).unwrap();
        assert_eq!(find_boot(folder.path(), &[(path, 512)]), None);
    }

    #[test]
    fn damaged_entries_are_passed_over() {
        let whole = entry(ID)[4..].to_vec();
        assert_eq!(parse_entry(&whole).unwrap().partition, ID);
        for length in 0..whole.len() {
            assert!(parse_entry(&whole[..length]).is_none(), "{length}");
        }
        let mut endless = whole.clone();
        endless[12] = 1;
        endless[14..16].fill(0);
        assert!(parse_entry(&endless).is_none());
        let mut inactive = whole;
        inactive[0] = 0;
        assert!(parse_entry(&inactive).is_none());
    }
}
