//! A partition: of a table, or one to be added.

use uuid::Uuid;

/// Partition type of the EFI system partition (UEFI specification 2.10, table 5.7).
pub const ESP_TYPE: Uuid = Uuid::from_u128(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b);

/// MBR type of the EFI system partition (UEFI specification 2.10, 5.2.2).
pub(crate) const ESP_MBR_TYPE: u8 = 0xef;

/// A partition's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionType {
    /// GPT type GUID.
    Guid(Uuid),
    /// MBR type byte.
    Byte(u8),
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number as the system counts: from 1; MBR logical partitions from 5.
    pub number: u32,
    /// First sector, in the disk's logical sectors.
    pub first_lba: u64,
    /// Number of logical sectors.
    pub sectors: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Its type.
    pub kind: PartitionType,
    /// Unique GUID (GPT only).
    pub unique: Option<Uuid>,
    /// Name (GPT only; empty without).
    pub name: String,
}

impl Partition {
    /// Whether the type is that of an EFI system partition.
    pub fn is_esp(&self) -> bool {
        matches!(self.kind, PartitionType::Guid(ESP_TYPE) | PartitionType::Byte(ESP_MBR_TYPE))
    }
}

/// Consecutive sectors, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A partition to add.
pub(crate) struct NewPartition<'a> {
    /// GPT type.
    pub(crate) gpt_type: Uuid,
    /// MBR type.
    pub(crate) mbr_type: u8,
    /// GPT name; the unique GUID is derived from it.
    pub(crate) name: &'a str,
    /// Size wanted, in bytes.
    pub(crate) wanted: u64,
    /// Size needed at least, in bytes.
    pub(crate) needed: u64,
}
