//! Creates a FAT volume (FAT12 or FAT16, Microsoft's FAT specification 1.03) from files that are all known in advance.
//!
//! The bytes depend on the content alone: fixed timestamps, files laid out one after the other.

use std::borrow::Cow;

use crate::disk::Disk;
use crate::error::Error;

/// Smallest cluster, in bytes: right for both sector sizes.
pub(crate) const CLUSTER: u64 = 4096;

/// Largest cluster, in bytes.
const MAX_CLUSTER: u64 = 32 << 10;

/// Fewer clusters make a FAT12, more than [`MAX_FAT16`] a FAT32; some programs are off by a few at the borders, so those
/// are kept clear of.
const MIN_FAT16: u64 = 4085;
const MAX_FAT16: u64 = 65_500;
const CLEAR: u64 = 16;

/// Entries of the root folder.
const ROOT_ENTRIES: u64 = 512;

/// Bytes of a folder's entry.
const ENTRY: usize = 32;

/// 1980-01-01.
const DATE: u16 = 0x0021;

const ATTRIBUTE_LABEL: u8 = 0x08;
const ATTRIBUTE_FOLDER: u8 = 0x10;
const ATTRIBUTE_FILE: u8 = 0x20;
const ATTRIBUTE_LONG_NAME: u8 = 0x0f;

/// UTF-16 units of a name in one entry.
const NAME_UNITS: usize = 13;

/// A file or folder for the volume. At most nine per folder; names are ASCII.
pub(crate) enum Node<'a> {
    /// Name, content.
    File(&'a str, &'a [u8]),
    /// Name, content.
    Folder(&'a str, Vec<Node<'a>>),
}

impl Node<'_> {
    fn name(&self) -> &str {
        match self {
            Self::File(name, _) | Self::Folder(name, _) => name,
        }
    }
}

/// A finished volume: pieces of bytes at places, zeros elsewhere.
pub(crate) struct Volume<'a> {
    length: u64,
    pieces: Vec<(u64, Cow<'a, [u8]>)>,
}

impl Volume<'_> {
    /// Writes the volume to its place on a disk, zeros included.
    pub(crate) fn write_to(&self, disk: &dyn Disk, offset: u64) -> Result<(), Error> {
        disk.make_zero(offset, self.length)?;
        self.pieces.iter().try_for_each(|(at, data)| disk.write_at(offset + at, data))
    }

    /// All of its bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or_default()];
        for (at, data) in &self.pieces {
            let at = usize::try_from(*at).unwrap_or(usize::MAX);
            if let Some(place) = at.checked_add(data.len()).and_then(|end| bytes.get_mut(at..end)) {
                place.copy_from_slice(data);
            }
        }
        bytes
    }
}

/// Where things are on a volume.
struct Layout {
    sector: u64,
    cluster: u64,
    clusters: u64,
    fat_sectors: u64,
    sectors: u64,
}

impl Layout {
    /// For a volume of at most `length` bytes.
    fn new(sector: u64, length: u64) -> Option<Self> {
        let mut cluster = CLUSTER;
        while length / cluster > MAX_FAT16 && cluster < MAX_CLUSTER {
            cluster *= 2;
        }
        let root = ROOT_ENTRIES * ENTRY as u64 / sector;
        let sectors = (length / sector).min(MAX_FAT16 * cluster / sector);
        // Enough for the most there can be; a little less room for data does no harm.
        let fat_sectors = ((length / cluster).min(MAX_FAT16) + 2).checked_mul(2)?.div_ceil(sector);
        let data = sectors.checked_sub(1 + 2 * fat_sectors + root)?;
        let mut clusters = data / (cluster / sector);
        if (MIN_FAT16 - CLEAR..MIN_FAT16 + CLEAR).contains(&clusters) {
            clusters = MIN_FAT16 - CLEAR - 1;
        }
        let sectors = 1 + 2 * fat_sectors + root + clusters * (cluster / sector);
        (clusters > 0).then_some(Self { sector, cluster, clusters, fat_sectors, sectors })
    }

    fn is_fat16(&self) -> bool {
        self.clusters >= MIN_FAT16
    }

    fn fat_at(&self, copy: u64) -> u64 {
        (1 + copy * self.fat_sectors) * self.sector
    }

    fn root_at(&self) -> u64 {
        self.fat_at(2)
    }

    fn cluster_at(&self, cluster: u64) -> u64 {
        self.root_at() + ROOT_ENTRIES * ENTRY as u64 + (cluster - 2) * self.cluster
    }

    /// The boot sector; its code is a jump to itself.
    fn boot_sector(&self, label: &[u8; 11], id: u32) -> Vec<u8> {
        let mut boot = vec![0; 512];
        let mut put = |at: usize, bytes: &[u8]| boot[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[0xeb, 0x3c, 0x90]);
        put(3, b"METAMRPH");
        put(11, &(self.sector as u16).to_le_bytes());
        put(13, &[(self.cluster / self.sector) as u8, 1, 0, 2]);
        put(17, &(ROOT_ENTRIES as u16).to_le_bytes());
        match u16::try_from(self.sectors) {
            Ok(sectors) => put(19, &sectors.to_le_bytes()),
            Err(_) => put(32, &(self.sectors as u32).to_le_bytes()),
        }
        put(21, &[0xf8]);
        put(22, &(self.fat_sectors as u16).to_le_bytes());
        put(24, &[63, 0, 255, 0]);
        put(36, &[0x80, 0, 0x29]);
        put(39, &id.to_le_bytes());
        put(43, label);
        put(54, if self.is_fat16() { b"FAT16   " } else { b"FAT12   " });
        put(62, &[0xeb, 0xfe]);
        put(510, &[0x55, 0xaa]);
        boot
    }

    /// The file allocation table with these entries.
    fn fat(&self, entries: &[u16]) -> Vec<u8> {
        if self.is_fat16() {
            return entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        }
        let pairs = entries.chunks(2).flat_map(|pair| {
            let (first, second) = (pair[0] & 0xfff, pair.get(1).map_or(0, |entry| entry & 0xfff));
            [first as u8, (first >> 8 | second << 4) as u8, (second >> 4) as u8]
        });
        pairs.collect()
    }
}

/// Makes a volume.
///
/// # Errors
/// Gives the bytes that there are for files if they are too few.
pub(crate) fn make<'a>(
    sector: u64,
    length: u64,
    label: &[u8; 11],
    id: u32,
    root: &[Node<'a>],
) -> Result<Volume<'a>, u64> {
    let layout = Layout::new(sector, length).ok_or(0_u64)?;
    let media = [0xfff8, 0xffff];
    let mut builder = Builder { layout: &layout, fat: media.to_vec(), pieces: Vec::new() };
    let mut entries = entry(label, ATTRIBUTE_LABEL, 0, 0).to_vec();
    entries.extend(builder.folder(root, 0)?);
    let Builder { fat, mut pieces, .. } = builder;
    let table = layout.fat(&fat);
    pieces.push((0, Cow::Owned(layout.boot_sector(label, id))));
    pieces.push((layout.fat_at(0), Cow::Owned(table.clone())));
    pieces.push((layout.fat_at(1), Cow::Owned(table)));
    pieces.push((layout.root_at(), Cow::Owned(entries)));
    Ok(Volume { length: layout.sectors * sector, pieces })
}

struct Builder<'l, 'a> {
    layout: &'l Layout,
    fat: Vec<u16>,
    pieces: Vec<(u64, Cow<'a, [u8]>)>,
}

impl<'a> Builder<'_, 'a> {
    /// Allocates consecutive clusters for this many bytes and returns the first; 0 for none.
    fn take(&mut self, bytes: usize) -> Result<u16, u64> {
        let count = (bytes as u64).div_ceil(self.layout.cluster);
        let first = self.fat.len() as u64;
        if first + count > self.layout.clusters + 2 {
            return Err(self.layout.clusters * self.layout.cluster);
        }
        if count == 0 {
            return Ok(0);
        }
        self.fat.extend((first + 1..first + count).map(|next| next as u16));
        self.fat.push(0xffff);
        Ok(first as u16)
    }

    fn put(&mut self, first: u16, data: Cow<'a, [u8]>) {
        if first != 0 {
            self.pieces.push((self.layout.cluster_at(u64::from(first)), data));
        }
    }

    /// Lays out a folder's content and gives its entries. `cluster` is the folder's first cluster, 0 for the root.
    fn folder(&mut self, nodes: &[Node<'a>], cluster: u16) -> Result<Vec<u8>, u64> {
        let mut entries = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let short = short_name(node.name(), index);
            entries.extend(long_name(node.name(), &short));
            match node {
                Node::File(_, data) => {
                    let first = self.take(data.len())?;
                    self.put(first, Cow::Borrowed(data));
                    entries.extend(entry(&short, ATTRIBUTE_FILE, first, data.len() as u32));
                }
                Node::Folder(_, nodes) => {
                    let names: usize = nodes.iter().map(|node| 1 + node.name().len().div_ceil(NAME_UNITS)).sum();
                    let first = self.take((2 + names) * ENTRY)?;
                    let mut content = entry(b".          ", ATTRIBUTE_FOLDER, first, 0).to_vec();
                    content.extend(entry(b"..         ", ATTRIBUTE_FOLDER, cluster, 0));
                    content.extend(self.folder(nodes, first)?);
                    self.put(first, Cow::Owned(content));
                    entries.extend(entry(&short, ATTRIBUTE_FOLDER, first, 0));
                }
            }
        }
        Ok(entries)
    }
}

/// A folder's entry.
fn entry(name: &[u8; 11], attribute: u8, first: u16, length: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..11].copy_from_slice(name);
    entry[11] = attribute;
    for at in [16, 18, 24] {
        entry[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[26..28].copy_from_slice(&first.to_le_bytes());
    entry[28..].copy_from_slice(&length.to_le_bytes());
    entry
}

/// A name of eight and three characters, different for each place in a folder: `META_D~1JSO`.
fn short_name(name: &str, index: usize) -> [u8; 11] {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let fitting =
        |text: &str| text.bytes().filter(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).collect::<Vec<_>>();
    let mut short = [b' '; 11];
    let mut stem = fitting(stem);
    stem.truncate(6);
    stem.extend([b'~', b'1' + index.min(8) as u8]);
    let mut extension = fitting(extension);
    extension.truncate(3);
    short[..stem.len()].copy_from_slice(&stem);
    short[8..8 + extension.len()].copy_from_slice(&extension);
    short.make_ascii_uppercase();
    short
}

/// The entries of a long name, which precede the short one's.
fn long_name(name: &str, short: &[u8; 11]) -> Vec<u8> {
    let sum = short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
    let mut units: Vec<u16> = name.encode_utf16().collect();
    let parts = units.len().div_ceil(NAME_UNITS);
    if !units.len().is_multiple_of(NAME_UNITS) {
        units.push(0);
        units.resize(parts * NAME_UNITS, 0xffff);
    }
    let mut entries = Vec::new();
    for (index, part) in units.chunks(NAME_UNITS).enumerate().rev() {
        let bytes: Vec<u8> = part.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let mut entry = [0; ENTRY];
        entry[0] = (index + 1) as u8 | if index + 1 == parts { 0x40 } else { 0 };
        entry[1..11].copy_from_slice(&bytes[..10]);
        entry[11] = ATTRIBUTE_LONG_NAME;
        entry[13] = sum;
        entry[14..26].copy_from_slice(&bytes[10..22]);
        entry[28..32].copy_from_slice(&bytes[22..]);
        entries.extend(entry);
    }
    entries
}
