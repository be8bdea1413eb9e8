//! Partition tables: reading them, fitting an image's table to its disk, adding and removing entries.

pub(crate) mod edit;
pub(crate) mod entry;
mod gpt;
mod mbr;

use uuid::Uuid;

pub use entry::{ESP_TYPE, Partition, PartitionType};
pub(crate) use gpt::Gpt;
pub(crate) use mbr::Mbr;

use crate::disk::Disk;
use crate::error::Error;

/// Kinds of partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// DOS partition table.
    Mbr,
}

/// Identifies a table's disk in a boot entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskId {
    /// The GPT's disk GUID.
    Guid(Uuid),
    /// The MBR's signature.
    Signature(u32),
}

/// A disk's partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// GPT or MBR.
    pub kind: TableKind,
    /// Identity of the disk.
    pub id: DiskId,
    /// Partitions by number.
    pub partitions: Vec<Partition>,
    /// The GPT's primary header or entries are damaged: this is the backup's content.
    pub primary_damaged: bool,
}

/// Reads the partition table that the system would see (and, for a GPT, its backup if the primary is damaged).
///
/// # Errors
/// [`Error::Disk`].
pub fn read_partitions(disk: &dyn Disk) -> Result<Option<PartitionTable>, Error> {
    Ok(Table::read(disk, u64::from(disk.logical_sector_size()))?.map(|table| table.describe()))
}

/// A table that can be changed and written.
pub(crate) enum Table {
    Gpt(Gpt),
    Mbr(Box<Mbr>),
}

impl Table {
    /// Reads a table in sectors of `sector` bytes.
    pub(crate) fn read(disk: &dyn Disk, sector: u64) -> Result<Option<Self>, Error> {
        if disk.size() < 8 * sector {
            return Ok(None);
        }
        let mbr = Mbr::read(disk, sector)?;
        if mbr.as_ref().is_none_or(Mbr::is_protective)
            && let Some(gpt) = Gpt::read(disk, sector)?
        {
            return Ok(Some(Self::Gpt(gpt)));
        }
        Ok(mbr.filter(|mbr| !mbr.is_protective() && !mbr.is_empty()).map(|mbr| Self::Mbr(Box::new(mbr))))
    }

    pub(crate) fn describe(&self) -> PartitionTable {
        match self {
            Self::Gpt(gpt) => PartitionTable {
                kind: TableKind::Gpt,
                id: DiskId::Guid(gpt.disk_guid()),
                partitions: gpt.partitions(),
                primary_damaged: gpt.primary_damaged(),
            },
            Self::Mbr(mbr) => PartitionTable {
                kind: TableKind::Mbr,
                id: DiskId::Signature(mbr.signature()),
                partitions: mbr.partitions(),
                primary_damaged: false,
            },
        }
    }
}

/// Adapts the table of a newly written image of `image_size` bytes to its disk: moves a GPT's backup to the disk's last sectors and extends its
/// protective MBR to the whole disk. Returns the kind of table; `None` without any.
///
/// # Errors
/// [`Error::BadPartitionTable`] if a partition lies beyond the disk; [`Error::Disk`].
pub(crate) fn fit_to_disk(
    disk: &dyn Disk,
    image_size: u64,
    warnings: &mut Vec<String>,
) -> Result<Option<TableKind>, Error> {
    let sector = u64::from(disk.logical_sector_size());
    if disk.size() < 8 * sector {
        return Ok(None);
    }
    let mbr = Mbr::read(disk, sector)?;
    let protective = mbr.as_ref().is_some_and(Mbr::is_protective);
    let mut gpt = Gpt::read_at(disk, sector, 1)?;
    if gpt.is_none() && protective && image_size >= 8 * sector {
        gpt = Gpt::read_at(disk, sector, image_size / sector - 1)?;
        if gpt.is_some() {
            warnings.push("the image's primary partition table is damaged: it was restored from the backup".into());
        }
    }
    if let Some(mut gpt) = gpt.filter(|_| protective) {
        gpt.fit(disk.size() / sector)?;
        gpt.write(disk)?;
        return Ok(Some(TableKind::Gpt));
    }
    let other = if sector == 512 { 4096 } else { 512 };
    if disk.size() >= 8 * other && Gpt::read_at(disk, other, 1)?.is_some() {
        warnings.push(format!(
            "the image's partition table is made for sectors of {other} bytes, the disk has {sector}: \
             the machine cannot boot from it; use an image made for this sector size"
        ));
        return Ok(None);
    }
    let Some(mbr) = mbr.filter(|mbr| !mbr.is_empty() && !mbr.is_protective()) else {
        warnings.push("the image has no partition table".into());
        return Ok(None);
    };
    mbr.check(disk)?;
    Ok(Some(TableKind::Mbr))
}
