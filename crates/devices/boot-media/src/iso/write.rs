//! Lays out an ISO 9660 image: headers in memory, contents left where they are.
//!
//! Deterministic: every date is the same fixed one, order follows the names. Layout: system area, descriptors, path
//! tables, directories, boot catalog, then the files in the order given.

use std::collections::BTreeMap;

use super::{FIRST_DESCRIPTOR, FLAG_DIRECTORY, RECORD_HEADER, SECTOR, STANDARD_ID};

/// 2020-01-01 00:00:00 UTC in a directory record (ECMA-119 9.1.5).
const RECORD_DATE: [u8; 7] = [120, 1, 1, 0, 0, 0, 0];
/// The same in a volume descriptor (ECMA-119 8.4.26.1).
const VOLUME_DATE: &[u8; 17] = b"2020010100000000\0";
/// No date (ECMA-119 8.4.26.1).
const NO_DATE: &[u8; 17] = b"0000000000000000\0";

/// A file to lay out.
pub(crate) struct FileSpec<'a> {
    /// Path with `/` between components and none in front.
    pub path: &'a str,
    /// Length in bytes, below 4 GiB.
    pub len: u64,
}

/// A laid out image: the bytes before the files, and where each file begins.
pub(crate) struct Layout {
    /// Everything before the first file, a whole number of sectors.
    pub head: Vec<u8>,
    /// Byte offset of each file, in the order given.
    pub offsets: Vec<u64>,
    /// Length of the whole image in bytes, a whole number of sectors.
    pub len: u64,
}

/// Why [`layout`] failed; callers choose the paths, so it is their error.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A path has an empty component, a bad character, or is used twice.
    #[error("{0:?} is no usable path on an ISO 9660 image")]
    Path(String),
    /// A file or the image is too large for its fields.
    #[error("{0} does not fit an ISO 9660 image: below 4 GiB a file and 8 TiB in all")]
    Size(String),
}

#[derive(Default)]
struct Directory {
    /// Children by name: index of the file, or of the directory.
    children: BTreeMap<String, Child>,
    parent: usize,
    sector: u64,
    sectors: u64,
}

#[derive(Clone, Copy)]
enum Child {
    File(usize),
    Directory(usize),
}

/// One directory record before its position is known.
struct Record {
    identifier: Vec<u8>,
    system_use: Vec<u8>,
    target: Child,
}

/// Lays out `files` under `volume` (a label of at most 32 d-characters); file number `boot` is the UEFI boot image. Without
/// one there is neither boot record nor catalog, and no firmware starts anything from it.
pub(crate) fn layout(volume: &str, files: &[FileSpec<'_>], boot: Option<usize>) -> Result<Layout, LayoutError> {
    let mut directories = tree(files)?;
    // 16 primary descriptor, 17 boot record, 18 terminator, 19 and 20 path tables, then directories, then the catalog
    let first_directory = FIRST_DESCRIPTOR + 5;
    let records: Vec<Vec<Record>> = (0..directories.len()).map(|index| records(&directories, index)).collect();
    let mut sector = first_directory;
    for (directory, records) in directories.iter_mut().zip(&records) {
        directory.sector = sector;
        directory.sectors = directory_size(records) / SECTOR;
        sector += directory.sectors;
    }
    let catalog = sector;
    sector += 1;
    let head_sectors = sector;
    let mut extents = Vec::with_capacity(files.len());
    for file in files {
        let size = u32::try_from(file.len).map_err(|_| LayoutError::Size(file.path.to_owned()))?;
        extents.push((sector, size));
        sector += file.len.div_ceil(SECTOR);
    }
    let total = u32::try_from(sector).map_err(|_| LayoutError::Size("the whole".to_owned()))?;

    let mut head = vec![0; to_usize(head_sectors * SECTOR)];
    for (index, records) in records.iter().enumerate() {
        let bytes = directory_bytes(&directories, index, records, &extents);
        put(&mut head, directories[index].sector, &bytes);
    }
    let (little, big) = path_tables(&directories);
    put(&mut head, FIRST_DESCRIPTOR + 3, &little);
    put(&mut head, FIRST_DESCRIPTOR + 4, &big);
    put(&mut head, FIRST_DESCRIPTOR, &primary_descriptor(volume, total, &directories[0], little.len()));
    let terminator = [&[255], &STANDARD_ID[..], &[1]].concat();
    if let Some(boot) = boot {
        put(&mut head, FIRST_DESCRIPTOR + 1, &boot_record(catalog));
        put(&mut head, FIRST_DESCRIPTOR + 2, &terminator);
        let (boot_sector, boot_size) = extents.get(boot).copied().unwrap_or_default();
        put(&mut head, catalog, &boot_catalog(boot_sector, boot_size));
    } else {
        put(&mut head, FIRST_DESCRIPTOR + 1, &terminator);
    }
    let offsets = extents.iter().map(|(sector, _)| sector * SECTOR).collect();
    Ok(Layout { head, offsets, len: u64::from(total) * SECTOR })
}

fn put(head: &mut [u8], sector: u64, bytes: &[u8]) {
    let start = to_usize(sector * SECTOR);
    head[start..start + bytes.len()].copy_from_slice(bytes);
}

/// Offsets in the head are a few hundred kilobytes at most.
fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Cannot overflow: the total was checked to fit.
fn to_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn tree(files: &[FileSpec<'_>]) -> Result<Vec<Directory>, LayoutError> {
    let mut directories = vec![Directory::default()];
    for (number, file) in files.iter().enumerate() {
        let bad = || LayoutError::Path(file.path.to_owned());
        let mut at = 0;
        let mut components = file.path.split('/').peekable();
        while let Some(component) = components.next() {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if component.is_empty() || component.len() > 64 || !component.bytes().all(plain) || component == ".." {
                return Err(bad());
            }
            let known = directories[at].children.get(component).copied();
            let last = components.peek().is_none();
            at = match known {
                Some(Child::Directory(index)) if !last => index,
                Some(_) => return Err(bad()),
                None if last => {
                    directories[at].children.insert(component.to_owned(), Child::File(number));
                    at
                }
                None => {
                    let index = directories.len();
                    directories.push(Directory { parent: at, ..Directory::default() });
                    directories[at].children.insert(component.to_owned(), Child::Directory(index));
                    index
                }
            };
        }
    }
    Ok(directories)
}

/// Records of a directory without `.` and `..`, sorted by identifier as ECMA-119 9.3 asks.
fn records(directories: &[Directory], index: usize) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for (name, child) in &directories[index].children {
        let directory = matches!(child, Child::Directory(_));
        let mut attempt = 0;
        let identifier = loop {
            let candidate = identifier(name, directory, attempt);
            if records.iter().all(|record| record.identifier != candidate) {
                break candidate;
            }
            attempt += 1;
        };
        let mode: u32 = if directory { 0o040_555 } else { 0o100_444 };
        let mut system_use = posix_attributes(mode, if directory { 2 } else { 1 });
        system_use.extend_from_slice(b"NM");
        system_use.extend_from_slice(&[u8::try_from(name.len() + 5).unwrap_or(u8::MAX), 1, 0]);
        system_use.extend_from_slice(name.as_bytes());
        records.push(Record { identifier, system_use, target: *child });
    }
    records.sort_by(|a, b| a.identifier.cmp(&b.identifier));
    records
}

/// An identifier of level 1 (ECMA-119 7.5 and 7.6): eight and three upper-case characters, the version behind.
fn identifier(name: &str, directory: bool, attempt: usize) -> Vec<u8> {
    let clean = |text: &str, len: usize| -> String {
        let upper = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        upper.take(len).collect()
    };
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !directory && !stem.is_empty() => (stem, extension),
        _ => (name, ""),
    };
    let suffix = if attempt == 0 { String::new() } else { attempt.to_string() };
    let stem = clean(stem, 8 - suffix.len().min(7)) + &suffix;
    if directory { stem.into_bytes() } else { format!("{stem}.{};1", clean(extension, 3)).into_bytes() }
}

/// Both byte orders of a 32-bit number (ECMA-119 7.3.3).
fn both32(value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// Both byte orders of a 16-bit number (ECMA-119 7.2.3).
fn both16(value: u16) -> [u8; 4] {
    let (l, b) = (value.to_le_bytes(), value.to_be_bytes());
    [l[0], l[1], b[0], b[1]]
}

/// Rock Ridge `PX`: mode, links, user 0, group 0.
fn posix_attributes(mode: u32, links: u32) -> Vec<u8> {
    let mut entry = b"PX\x24\x01".to_vec();
    for value in [mode, links, 0, 0] {
        entry.extend_from_slice(&both32(value));
    }
    entry
}

/// Rock Ridge's first entries, which stand in the root's own record: `SP`, and `ER` naming RRIP_1991A.
fn root_entries() -> Vec<u8> {
    let mut entries = b"SP\x07\x01\xbe\xef\x00".to_vec();
    entries.extend_from_slice(b"ER\x12\x01\x0a\x00\x00\x01RRIP_1991A");
    entries
}

fn record_len(identifier: &[u8], system_use: &[u8]) -> usize {
    (RECORD_HEADER + identifier.len()).next_multiple_of(2) + system_use.len().next_multiple_of(2)
}

fn record(identifier: &[u8], system_use: &[u8], extent: (u64, u32), flags: u8) -> Vec<u8> {
    let len = record_len(identifier, system_use);
    let mut bytes = Vec::with_capacity(len);
    bytes.push(u8::try_from(len).unwrap_or(u8::MAX));
    bytes.push(0);
    bytes.extend_from_slice(&both32(to_u32(extent.0)));
    bytes.extend_from_slice(&both32(extent.1));
    bytes.extend_from_slice(&RECORD_DATE);
    bytes.extend_from_slice(&[flags, 0, 0]);
    bytes.extend_from_slice(&both16(1));
    bytes.push(u8::try_from(identifier.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(identifier);
    bytes.resize((RECORD_HEADER + identifier.len()).next_multiple_of(2), 0);
    bytes.extend_from_slice(system_use);
    bytes.resize(len, 0);
    bytes
}

fn system_use(root: bool) -> Vec<u8> {
    let mut entries = if root { root_entries() } else { Vec::new() };
    entries.extend(posix_attributes(0o040_555, 2));
    entries
}

/// Bytes of a directory, a whole number of sectors: no record crosses a sector's end (ECMA-119 6.8.1.1).
fn directory_size(records: &[Record]) -> u64 {
    let parent = record_len(&[1], &system_use(false));
    // counted with the longer record of the root, so that all directories are counted alike
    let mut offset = record_len(&[0], &system_use(true)) as u64 + parent as u64;
    for record in records {
        let len = record_len(&record.identifier, &record.system_use) as u64;
        if offset % SECTOR + len > SECTOR {
            offset = offset.next_multiple_of(SECTOR);
        }
        offset += len;
    }
    offset.next_multiple_of(SECTOR)
}

fn directory_bytes(directories: &[Directory], index: usize, records: &[Record], extents: &[(u64, u32)]) -> Vec<u8> {
    let extent = |index: usize| {
        let directory: &Directory = &directories[index];
        (directory.sector, to_u32(directory.sectors * SECTOR))
    };
    let mut bytes = record(&[0], &system_use(index == 0), extent(index), FLAG_DIRECTORY);
    bytes.extend(record(&[1], &system_use(false), extent(directories[index].parent), FLAG_DIRECTORY));
    for entry in records {
        let (place, flags) = match entry.target {
            Child::File(number) => (extents[number], 0),
            Child::Directory(number) => (extent(number), FLAG_DIRECTORY),
        };
        let next = record(&entry.identifier, &entry.system_use, place, flags);
        let sector = to_usize(SECTOR);
        if bytes.len() % sector + next.len() > sector {
            bytes.resize(bytes.len().next_multiple_of(sector), 0);
        }
        bytes.extend(next);
    }
    bytes.resize(to_usize(directories[index].sectors * SECTOR), 0);
    bytes
}

/// Path tables in both byte orders (ECMA-119 9.4), sorted by level, parent and name.
fn path_tables(directories: &[Directory]) -> (Vec<u8>, Vec<u8>) {
    let (mut little, mut big) = (Vec::new(), Vec::new());
    let mut queue = vec![(0_usize, vec![0_u8], 1_u16)];
    let mut number = 0;
    while number < queue.len() {
        let (index, identifier, parent) = queue[number].clone();
        number += 1;
        let own_number = u16::try_from(number).unwrap_or(u16::MAX);
        for record in records(directories, index) {
            if let Child::Directory(child) = record.target {
                queue.push((child, record.identifier, own_number));
            }
        }
        let sector = to_u32(directories[index].sector);
        let len = u8::try_from(identifier.len()).unwrap_or(u8::MAX);
        for (table, sector, parent) in [
            (&mut little, sector.to_le_bytes(), parent.to_le_bytes()),
            (&mut big, sector.to_be_bytes(), parent.to_be_bytes()),
        ] {
            table.extend_from_slice(&[len, 0]);
            table.extend_from_slice(&sector);
            table.extend_from_slice(&parent);
            table.extend_from_slice(&identifier);
            table.resize(table.len().next_multiple_of(2), 0);
        }
    }
    (little, big)
}

/// Primary volume descriptor (ECMA-119 8.4).
fn primary_descriptor(volume: &str, sectors: u32, root: &Directory, path_table: usize) -> Vec<u8> {
    let mut d = vec![0; to_usize(SECTOR)];
    let text = |d: &mut [u8], at: usize, len: usize, text: &str| {
        d[at..at + len].fill(b' ');
        let bytes = &text.as_bytes()[..text.len().min(len)];
        d[at..at + bytes.len()].copy_from_slice(bytes);
    };
    d[0] = 1;
    d[1..6].copy_from_slice(STANDARD_ID);
    d[6] = 1;
    text(&mut d, 8, 32, "");
    text(&mut d, 40, 32, volume);
    d[80..88].copy_from_slice(&both32(sectors));
    d[120..124].copy_from_slice(&both16(1));
    d[124..128].copy_from_slice(&both16(1));
    d[128..132].copy_from_slice(&both16(2048));
    d[132..140].copy_from_slice(&both32(to_u32(path_table as u64)));
    d[140..144].copy_from_slice(&to_u32(FIRST_DESCRIPTOR + 3).to_le_bytes());
    d[148..152].copy_from_slice(&to_u32(FIRST_DESCRIPTOR + 4).to_be_bytes());
    let root_record = record(&[0], &[], (root.sector, to_u32(root.sectors * SECTOR)), FLAG_DIRECTORY);
    d[156..190].copy_from_slice(&root_record);
    for (at, len, value) in [(190, 128, ""), (318, 128, ""), (446, 128, ""), (574, 128, "METAMORPH"), (702, 111, "")] {
        text(&mut d, at, len, value);
    }
    for (at, date) in [(813, VOLUME_DATE), (830, VOLUME_DATE), (847, NO_DATE), (864, VOLUME_DATE)] {
        d[at..at + 17].copy_from_slice(date);
    }
    d[881] = 1;
    d
}

/// Boot record descriptor (El Torito 1.0, figure 7).
fn boot_record(catalog: u64) -> Vec<u8> {
    let mut d = vec![0; to_usize(SECTOR)];
    d[1..6].copy_from_slice(STANDARD_ID);
    d[6] = 1;
    d[7..30].copy_from_slice(b"EL TORITO SPECIFICATION");
    d[71..75].copy_from_slice(&to_u32(catalog).to_le_bytes());
    d
}

/// Boot catalog with one entry for UEFI, platform 0xEF (UEFI specification 2.10, 13.3.2.1; El Torito 1.0, figures 2, 3).
fn boot_catalog(sector: u64, size: u32) -> Vec<u8> {
    let mut validation = [0_u8; 32];
    validation[0] = 1;
    validation[1] = 0xEF;
    validation[30..].copy_from_slice(&[0x55, 0xAA]);
    let sum = validation.chunks(2).fold(0_u16, |sum, pair| sum.wrapping_add(u16::from_le_bytes([pair[0], pair[1]])));
    validation[28..30].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    let mut entry = [0_u8; 32];
    entry[0] = 0x88; // bootable, no emulation
    // In sectors of 512 bytes; 0 means "to the end of the medium", for images too large for the field.
    let sectors = u16::try_from(size.div_ceil(512)).unwrap_or(0);
    entry[6..8].copy_from_slice(&sectors.to_le_bytes());
    entry[8..12].copy_from_slice(&to_u32(sector).to_le_bytes());
    [validation, entry].concat()
}
