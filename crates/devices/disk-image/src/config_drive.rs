//! The config drive: a small FAT volume labelled `config-2` with OpenStack's layout, at the disk's end; and removal of those from earlier
//! deployments, which cloud-init might read instead.

use uuid::Uuid;

use crate::disk::Disk;
use crate::error::Error;
use crate::fat::{self, CLUSTER, Node};
use crate::partition::Table;
use crate::partition::entry::NewPartition;
use crate::volume::{Extent, VolumeKind, has_label};

/// The label that cloud-init, ignition's metadata agents and cloudbase-init look for.
pub const CONFIG_LABEL: &str = "config-2";

/// Folders of `openstack/` with the files: cloud-init takes the newest dated one that it knows (its `sources/helpers/openstack.py`, `OS_VERSIONS`)
/// and warns if there is only `latest`, which other programs read.
const VERSIONS: [&str; 2] = ["latest", "2012-08-10"];

/// Size of the partition where there is room, in bytes.
const WANTED: u64 = 64 << 20;

/// Microsoft basic data, the GPT type for FAT volumes.
const BASIC_DATA: Uuid = Uuid::from_u128(0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7);

/// MBR type for FAT16 volumes by LBA.
const FAT16_LBA: u8 = 0x0e;

/// Largest area at a volume's beginning that is cleared, in bytes: FAT's reserved sectors, ISO 9660's descriptors.
const NEUTRALISE: u64 = 128 << 10;

/// Where and by what an ISO 9660 volume is known (ECMA-119, 8.1.2), and its sectors' size, in bytes.
const ISO_MAGIC: (usize, &[u8]) = (0x8001, b"CD001");
const ISO_SECTOR: u64 = 2048;

/// Contents of a config drive.
#[derive(Clone, Copy, Default)]
pub struct ConfigDriveFiles<'a> {
    /// `meta_data.json`; cloud-init needs `uuid` in it.
    pub meta_data: &'a [u8],
    /// `user_data`.
    pub user_data: Option<&'a [u8]>,
    /// `network_data.json`.
    pub network_data: Option<&'a [u8]>,
    /// `vendor_data.json`.
    pub vendor_data: Option<&'a [u8]>,
}

impl std::fmt::Debug for ConfigDriveFiles<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigDriveFiles(secret)")
    }
}

impl<'a> ConfigDriveFiles<'a> {
    fn files(&self) -> impl Iterator<Item = (&'static str, &'a [u8])> {
        let all = [
            ("meta_data.json", Some(self.meta_data)),
            ("user_data", self.user_data),
            ("network_data.json", self.network_data),
            ("vendor_data.json", self.vendor_data),
        ];
        all.into_iter().filter_map(|(name, data)| data.map(|data| (name, data)))
    }

    /// Bytes that a volume with these files in `folders` folders needs, a little more than exactly.
    fn needed(&self, folders: usize) -> u64 {
        // Larger volumes have larger clusters: use these for all files.
        let cluster =
            if self.files().map(|(_, data)| data.len()).sum::<usize>() > 64 << 20 { CLUSTER * 8 } else { CLUSTER };
        let files: u64 = self.files().map(|(_, data)| (data.len() as u64).next_multiple_of(cluster) + cluster).sum();
        let files = files * folders as u64;
        (files + files / 64 + (128 << 10)).next_multiple_of(cluster)
    }

    /// A number for the volume that follows from its content.
    fn volume_id(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for (name, data) in self.files() {
            hasher.update(name.as_bytes());
            hasher.update(&(data.len() as u64).to_le_bytes());
            hasher.update(data);
        }
        hasher.finalize()
    }
}

/// Where the config drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDrivePlaced {
    /// Number of its partition.
    pub partition: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Whether it replaced one from the image, in its place.
    pub reused: bool,
}

/// Adds the config drive to a disk with a partition table. Replaces an existing one, in its place if that is large enough. The same content on the
/// same disk gives the same bytes.
///
/// Write the ownership mark first, so that it gets its space.
///
/// # Errors
/// [`Error::BadPartitionTable`] without a table; [`Error::NoRoom`]; [`Error::Disk`].
pub fn write_config_drive(disk: &dyn Disk, files: &ConfigDriveFiles<'_>) -> Result<ConfigDrivePlaced, Error> {
    let sector = u64::from(disk.logical_sector_size());
    let Some(mut table) = Table::read(disk, sector)? else {
        return Err(Error::table("the disk has none, so a config drive cannot be added; use a whole-disk image"));
    };
    let folders = if files.needed(VERSIONS.len()) <= WANTED { VERSIONS.len() } else { 1 };
    let mut reused = None;
    for volume in find_config_volumes(disk)? {
        neutralise_config_volume(disk, &volume)?;
        let Some(number) = volume.partition else { continue };
        let aligned = volume.offset.is_multiple_of(sector) && volume.offset + volume.length <= disk.size();
        if reused.is_none() && aligned && volume.length >= files.needed(folders) {
            reused = Some((number, volume.offset, volume.length));
        } else {
            table.remove(number);
        }
    }
    if let Some((partition, offset, length)) = reused {
        make_volume(files, folders, length, sector)?.write_to(disk, offset)?;
        disk.flush()?;
        table.write(disk)?;
        return Ok(ConfigDrivePlaced { partition, offset, length, reused: true });
    }
    let mut add = |folders: usize| {
        let needed = files.needed(folders);
        let wanted = WANTED.max(needed.next_multiple_of(1 << 20));
        let new = NewPartition { gpt_type: BASIC_DATA, mbr_type: FAT16_LBA, name: CONFIG_LABEL, wanted, needed };
        table.add(disk, &new).map(|placed| (placed, folders))
    };
    let ((partition, span), folders) = add(folders).or_else(|error| if folders > 1 { add(1) } else { Err(error) })?;
    let (offset, length) = (span.first * sector, (span.last - span.first + 1) * sector);
    make_volume(files, folders, length, sector)?.write_to(disk, offset)?;
    disk.flush()?;
    table.write(disk)?;
    Ok(ConfigDrivePlaced { partition, offset, length, reused: false })
}

/// Adds a config drive that is a volume already (ISO 9660 or FAT, labelled by whoever made it) to a disk with a partition table, as it is. Older ones
/// are removed. As with [`write_config_drive`], the ownership mark comes first.
///
/// # Errors
/// As [`write_config_drive`]; [`Error::Unsupported`] for a volume whose sectors are smaller than the disk's, which Linux would not mount.
pub fn write_config_volume(disk: &dyn Disk, volume: &[u8]) -> Result<ConfigDrivePlaced, Error> {
    let sector = u64::from(disk.logical_sector_size());
    let is_iso = volume.get(ISO_MAGIC.0..ISO_MAGIC.0 + ISO_MAGIC.1.len()) == Some(ISO_MAGIC.1);
    if is_iso && sector > ISO_SECTOR {
        return Err(Error::Unsupported {
            what: format!("a config drive with sectors of {ISO_SECTOR} bytes on a disk with sectors of {sector} bytes"),
        });
    }
    let Some(mut table) = Table::read(disk, sector)? else {
        return Err(Error::table("the disk has none, so a config drive cannot be added; use a whole-disk image"));
    };
    for old in find_config_volumes(disk)? {
        neutralise_config_volume(disk, &old)?;
        if let Some(number) = old.partition {
            table.remove(number);
        }
    }
    let needed = (volume.len() as u64).next_multiple_of(sector.max(ISO_SECTOR));
    let wanted = WANTED.max(needed.next_multiple_of(1 << 20));
    let new = NewPartition { gpt_type: BASIC_DATA, mbr_type: FAT16_LBA, name: CONFIG_LABEL, wanted, needed };
    let (partition, span) = table.add(disk, &new)?;
    let (offset, length) = (span.first * sector, (span.last - span.first + 1) * sector);
    // What lay there before is not to be taken for a file system of its own.
    disk.make_zero(offset, length)?;
    let mut whole = volume.to_vec();
    whole.resize(usize::try_from(needed).unwrap_or(usize::MAX), 0);
    disk.write_at(offset, &whole)?;
    disk.flush()?;
    table.write(disk)?;
    Ok(ConfigDrivePlaced { partition, offset, length, reused: false })
}

/// The config drive as a volume by itself, with sectors of 512 bytes: for an agent that puts it onto a disk itself.
///
/// # Errors
/// [`Error::NoRoom`] for files that no volume holds.
pub fn config_drive_volume(files: &ConfigDriveFiles<'_>) -> Result<Vec<u8>, Error> {
    let folders = if files.needed(VERSIONS.len()) <= WANTED { VERSIONS.len() } else { 1 };
    let length = files.needed(folders).next_multiple_of(1 << 20);
    Ok(make_volume(files, folders, length, 512)?.to_bytes())
}

/// Makes the volume. Its sectors are the disk's, as Linux refuses to mount smaller ones.
fn make_volume<'a>(
    files: &ConfigDriveFiles<'a>,
    folders: usize,
    length: u64,
    sector: u64,
) -> Result<fat::Volume<'a>, Error> {
    let mut label = [b' '; 11];
    label[..CONFIG_LABEL.len()].copy_from_slice(CONFIG_LABEL.as_bytes());
    let versions = VERSIONS[..folders].iter().map(|version| {
        let nodes = files.files().map(|(name, data)| Node::File(name, data)).collect();
        Node::Folder(version, nodes)
    });
    let root = [Node::Folder("openstack", versions.collect())];
    fat::make(sector, length, &label, files.volume_id(), &root).map_err(|available| Error::NoRoom {
        what: "the files of the config drive".into(),
        needed: files.needed(folders),
        available,
        hint: String::new(),
    })
}

/// A volume labelled `config-2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigVolume {
    /// Its partition; `None` if it is the whole disk.
    pub partition: Option<u32>,
    /// First byte on the disk.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Its file system.
    pub kind: VolumeKind,
}

/// Finds the volumes labelled `config-2` (FAT or ISO 9660) on a disk: the whole disk and each partition.
///
/// # Errors
/// [`Error::Disk`].
pub fn find_config_volumes(disk: &dyn Disk) -> Result<Vec<ConfigVolume>, Error> {
    let whole = (None, Extent { offset: 0, length: disk.size() });
    let table = Table::read(disk, u64::from(disk.logical_sector_size()))?.map(|table| table.describe());
    let partitions = table.map(|table| table.partitions).unwrap_or_default();
    let partitions = partitions.iter().map(|p| (Some(p.number), Extent { offset: p.offset, length: p.length }));
    let candidates = std::iter::once(whole).chain(partitions);
    Ok(candidates
        .filter(|(_, extent)| extent.offset < disk.size())
        .filter_map(|(partition, extent)| {
            let kind = has_label(disk, extent, CONFIG_LABEL)?;
            Some(ConfigVolume { partition, offset: extent.offset, length: extent.length, kind })
        })
        .collect())
}

/// Makes a volume from [`find_config_volumes`] unrecognisable: clears its headers, but keeps partition tables and the rest of the volume.
///
/// # Errors
/// [`Error::Disk`].
pub fn neutralise_config_volume(disk: &dyn Disk, volume: &ConfigVolume) -> Result<(), Error> {
    let available = volume.length.min(disk.size().saturating_sub(volume.offset));
    // A hybrid ISO image keeps its partition table: only its descriptors are cleared.
    let from = match volume.kind {
        VolumeKind::Fat => 0,
        VolumeKind::Iso9660 => 16 * 2048,
    };
    let to = available.min(NEUTRALISE);
    if from < to {
        disk.make_zero(volume.offset + from, to - from)?;
    }
    disk.flush()
}
