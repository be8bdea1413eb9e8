//! The EFI system partition image that El Torito points at: FAT16, the same bytes each time. Its files are read where they are.
//!
//! Format: Microsoft, "FAT32 File System Specification" 1.03 (it covers FAT12 and FAT16). One folder, `EFI/BOOT`, with
//! contiguous files whose names have eight and three characters, which is all that a boot loader needs.

use std::io;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::read_at::{FileAt, ReadAt as _};

const SECTOR: usize = 512;
const FATS: usize = 2;
const ROOT_ENTRIES: usize = 512;
const ENTRY: usize = 32;
/// A volume with fewer clusters is taken for FAT12, one with more for FAT32.
const CLUSTERS: std::ops::Range<usize> = 4085..65_525;
/// Fixed volume serial number: a random one would make every image different.
const VOLUME_ID: u32 = 0x4D65_7461;
/// 2020-01-01 as the directory stores it: years since 1980, month, day.
const DATE: u16 = 40 << 9 | 1 << 5 | 1;
const END_OF_CHAIN: u16 = 0xFFFF;
const ATTRIBUTE_VOLUME: u8 = 0x08;
const ATTRIBUTE_DIRECTORY: u8 = 0x10;
const ATTRIBUTE_ARCHIVE: u8 = 0x20;
/// Flags for a lower-case name and extension (an extension of Windows NT, understood by Linux and mtools).
const LOWER_CASE: u8 = 0x18;

/// The volume's layout, in sectors and clusters.
struct Geometry {
    sectors_per_cluster: usize,
    clusters: usize,
    fat_sectors: usize,
}

impl Geometry {
    /// The smallest FAT16 volume with room for so many bytes in so many files.
    fn new(lens: impl Iterator<Item = usize> + Clone) -> Option<Self> {
        for sectors_per_cluster in [1, 2, 4, 8] {
            let cluster = sectors_per_cluster * SECTOR;
            let used: usize = lens.clone().map(|len| len.div_ceil(cluster)).sum();
            let clusters = (used + 2).max(CLUSTERS.start + 16);
            if CLUSTERS.contains(&clusters) {
                return Some(Self {
                    sectors_per_cluster,
                    clusters,
                    fat_sectors: ((clusters + 2) * 2).div_ceil(SECTOR),
                });
            }
        }
        None
    }

    fn data_sector(&self) -> usize {
        1 + FATS * self.fat_sectors + ROOT_ENTRIES * ENTRY / SECTOR
    }

    fn sectors(&self) -> usize {
        self.data_sector() + self.clusters * self.sectors_per_cluster
    }

    /// Byte offset of a cluster; the first has number 2.
    fn offset(&self, cluster: usize) -> usize {
        (self.data_sector() + (cluster - 2) * self.sectors_per_cluster) * SECTOR
    }
}

/// The image of an EFI system partition. Its files stay where they are: in memory is what is around them.
#[derive(Debug)]
pub(crate) struct Esp {
    /// Everything before the first file: boot sector, allocation tables, folders.
    head: Arc<[u8]>,
    /// The files, with their offsets in the image.
    files: Vec<(u64, Arc<FileAt>)>,
    /// Length of the image; what is in neither is zero.
    len: u64,
}

impl Esp {
    /// The image with `files` (name in `EFI/BOOT`, contents).
    ///
    /// # Errors
    /// `InvalidInput` for a name that is not of eight and three characters, for more than twelve files, and for contents
    /// too large for FAT16.
    pub(crate) fn new(files: Vec<(&str, Arc<FileAt>)>) -> io::Result<Self> {
        let lens: Vec<(&str, u64)> = files.iter().map(|(name, file)| (*name, file.len())).collect();
        let Volume { head, offsets, len } = layout(&lens)?;
        let files = offsets.into_iter().zip(files).map(|(offset, (_, file))| (offset, file)).collect();
        Ok(Self { head: head.into(), files, len })
    }

    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn head(&self) -> &Arc<[u8]> {
        &self.head
    }

    pub(crate) fn files(&self) -> &[(u64, Arc<FileAt>)] {
        &self.files
    }

    /// SHA-256 of the image.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn digest(&self) -> io::Result<[u8; 32]> {
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
        hash.update(&self.head);
        let mut end = self.head.len();
        for (offset, file) in &self.files {
            zeros(&mut hash, offset.saturating_sub(end));
            let mut at = 0;
            while at < file.len() {
                let part = usize::try_from(file.len() - at).unwrap_or(usize::MAX).min(buffer.len());
                file.read_exact_at(at, &mut buffer[..part])?;
                hash.update(&buffer[..part]);
                at += part as u64;
            }
            end = offset + file.len();
        }
        zeros(&mut hash, self.len.saturating_sub(end));
        Ok(hash.finalize().into())
    }
}

fn zeros(hash: &mut Sha256, mut count: u64) {
    let block = [0; 4096];
    while count > 0 {
        let part = count.min(block.len() as u64);
        hash.update(&block[..usize::try_from(part).unwrap_or_default()]);
        count -= part;
    }
}

/// Where everything is in an image.
#[derive(Debug, PartialEq, Eq)]
struct Volume {
    head: Vec<u8>,
    offsets: Vec<u64>,
    len: u64,
}

fn layout(files: &[(&str, u64)]) -> io::Result<Volume> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
    if files.len() > 12 {
        return Err(invalid("more than twelve files"));
    }
    let lens: Vec<usize> = files.iter().map(|(_, len)| usize::try_from(*len).unwrap_or(usize::MAX)).collect();
    let geometry =
        Geometry::new(lens.iter().copied()).ok_or_else(|| invalid("the files are too large for a FAT16 volume"))?;
    let (efi, boot, mut next) = (2_usize, 3_usize, 4_usize);
    let mut head = vec![0; geometry.offset(next)];
    head[..SECTOR].copy_from_slice(&boot_sector(&geometry));
    let mut offsets = Vec::with_capacity(files.len());
    let mut fat = vec![0xFFF8, END_OF_CHAIN, END_OF_CHAIN, END_OF_CHAIN];
    let mut folder =
        [entry(b".          ", ATTRIBUTE_DIRECTORY, 0, boot, 0), entry(b"..         ", ATTRIBUTE_DIRECTORY, 0, efi, 0)]
            .concat();
    for ((name, _), len) in files.iter().zip(&lens) {
        let (short, case) = short_name(name).ok_or_else(|| invalid(&format!("{name:?} is no short name")))?;
        let clusters = len.div_ceil(geometry.sectors_per_cluster * SECTOR);
        let first = if clusters == 0 { 0 } else { next };
        folder.extend(entry(&short, ATTRIBUTE_ARCHIVE, case, first, *len));
        offsets.push(geometry.offset(next) as u64);
        fat.extend((1..clusters).map(|index| low16(next + index)));
        fat.extend((clusters > 0).then_some(END_OF_CHAIN));
        next += clusters;
    }
    let mut put = |offset: usize, bytes: &[u8]| head[offset..offset + bytes.len()].copy_from_slice(bytes);
    let fat: Vec<u8> = fat.into_iter().flat_map(u16::to_le_bytes).collect();
    for copy in 0..FATS {
        put((1 + copy * geometry.fat_sectors) * SECTOR, &fat);
    }
    let root =
        [entry(b"METAMORPH  ", ATTRIBUTE_VOLUME, 0, 0, 0), entry(b"EFI        ", ATTRIBUTE_DIRECTORY, 0, efi, 0)];
    put((1 + FATS * geometry.fat_sectors) * SECTOR, &root.concat());
    let efi_folder = [
        entry(b".          ", ATTRIBUTE_DIRECTORY, 0, efi, 0),
        entry(b"..         ", ATTRIBUTE_DIRECTORY, 0, 0, 0), // the root is written as cluster 0
        entry(b"BOOT       ", ATTRIBUTE_DIRECTORY, 0, boot, 0),
    ];
    put(geometry.offset(efi), &efi_folder.concat());
    put(geometry.offset(boot), &folder);
    Ok(Volume { head, offsets, len: (geometry.sectors() * SECTOR) as u64 })
}

/// Cluster numbers of FAT16 fit; checked when the geometry was chosen.
fn low16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn boot_sector(geometry: &Geometry) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let mut put = |offset: usize, bytes: &[u8]| sector[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &[0xEB, 0x3C, 0x90]);
    put(3, b"METAMORP");
    put(11, &low16(SECTOR).to_le_bytes());
    put(13, &[u8::try_from(geometry.sectors_per_cluster).unwrap_or(u8::MAX)]);
    put(14, &[1, 0, u8::try_from(FATS).unwrap_or(u8::MAX)]);
    put(17, &low16(ROOT_ENTRIES).to_le_bytes());
    let sectors = geometry.sectors();
    match u16::try_from(sectors) {
        Ok(small) => put(19, &small.to_le_bytes()),
        Err(_) => put(32, &u32::try_from(sectors).unwrap_or(u32::MAX).to_le_bytes()),
    }
    put(21, &[0xF8]); // fixed medium
    put(22, &low16(geometry.fat_sectors).to_le_bytes());
    put(24, &[32, 0, 64, 0]); // sectors of a track, heads: of no use
    put(36, &[0x80, 0, 0x29]);
    put(39, &VOLUME_ID.to_le_bytes());
    put(43, b"METAMORPH  FAT16   ");
    put(510, &[0x55, 0xAA]);
    sector
}

fn entry(name: &[u8; 11], attributes: u8, case: u8, cluster: usize, len: usize) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..11].copy_from_slice(name);
    entry[11] = attributes;
    entry[12] = case;
    for at in [16, 18, 24] {
        entry[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    entry[26..28].copy_from_slice(&low16(cluster).to_le_bytes());
    entry[28..].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    entry
}

/// The name as a directory stores it, and how its case is to be shown.
fn short_name(name: &str) -> Option<([u8; 11], u8)> {
    let (stem, extension) = name.split_once('.')?;
    let plain =
        |text: &str, len| !text.is_empty() && text.len() <= len && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let lower = name == name.to_ascii_lowercase();
    if !plain(stem, 8) || !plain(extension, 3) || !(lower || name == name.to_ascii_uppercase()) {
        return None;
    }
    let mut short = [b' '; 11];
    short[..stem.len()].copy_from_slice(stem.to_ascii_uppercase().as_bytes());
    short[8..8 + extension.len()].copy_from_slice(extension.to_ascii_uppercase().as_bytes());
    Some((short, if lower { LOWER_CASE } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_image() {
        let files = [("BOOTX64.EFI", 900_000), ("grubx64.efi", 4)];
        assert_eq!(layout(&files).unwrap(), layout(&files).unwrap());
    }

    /// Loaders of four megabytes, of which the server had a second copy in memory for as long as it ran.
    #[test]
    fn little_of_the_image_is_in_memory() {
        let volume = layout(&[("BOOTX64.EFI", 1 << 20), ("grubx64.efi", 4 << 20)]).unwrap();
        assert!(volume.head.len() < 80 << 10 && volume.len > 5 << 20, "{} of {}", volume.head.len(), volume.len);
    }

    #[test]
    fn the_digest_is_that_of_the_bytes() {
        let file = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut file, bytes).unwrap();
            Arc::new(FileAt::new(file).unwrap())
        };
        let (one, two) = (vec![7; 70_001], b"grub".to_vec());
        let esp = Esp::new(vec![("BOOTX64.EFI", file(&one)), ("grubx64.efi", file(&two))]).unwrap();
        let mut image = esp.head.to_vec();
        for ((offset, _), bytes) in esp.files.iter().zip([&one, &two]) {
            image.resize(usize::try_from(*offset).unwrap(), 0);
            image.extend(bytes);
        }
        image.resize(usize::try_from(esp.len).unwrap(), 0);
        assert_eq!(esp.digest().unwrap()[..], Sha256::digest(&image)[..]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(layout(&[("toolongname.efi", 0)]).is_err());
        assert!(layout(&[("Mixed.efi", 0)]).is_err());
        assert!(layout(&[("noextension", 0)]).is_err());
        assert!(layout(&[("A.EFI", 0); 13]).is_err());
        assert!(layout(&[("A.EFI", 300 << 20)]).is_err());
        assert!(layout(&[("A.EFI", 40 << 20)]).is_ok(), "larger files get larger clusters");
    }
}
