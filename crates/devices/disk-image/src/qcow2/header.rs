//! The header, and which images are not written.

use crate::error::Error;

/// `QFI\xfb`.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Bytes of the header that are looked at: all of version 3's with the compression type.
pub(super) const HEADER_BYTES: usize = 112;

/// Largest L1 table, in bytes: QEMU's own limit.
const MAX_L1: u64 = 32 << 20;

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterCompression {
    Zlib,
    Zstd,
}

/// The parsed header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    pub(super) virtual_size: u64,
    pub(super) l1_offset: u64,
    pub(super) l1_entries: u32,
    pub(super) compression: ClusterCompression,
}

fn be32(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

pub(super) fn be64(data: &[u8], at: usize) -> u64 {
    data.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_be_bytes)
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported { what: format!("qcow2 {what}") }
}

impl Header {
    /// Reads the first bytes of a file (fewer if the file is shorter).
    ///
    /// # Errors
    /// [`Error::CorruptImage`], [`Error::Unsupported`], [`Error::Truncated`], [`Error::LimitExceeded`].
    pub(super) fn parse(data: &[u8]) -> Result<Self, Error> {
        if data.len() < 72 {
            return Err(Error::Truncated { what: "the qcow2 header".into(), expected: 72, found: data.len() as u64 });
        }
        if !data.starts_with(&MAGIC) {
            return Err(Error::corrupt(
                "the image is declared qcow2 but does not begin like one; check spec.image.format and the address",
            ));
        }
        let version = be32(data, 4);
        if !(2..=3).contains(&version) {
            return Err(unsupported(&format!("version {version}; versions 2 and 3 are read")));
        }
        if be64(data, 8) != 0 {
            return Err(unsupported("image with a backing file; flatten it with qemu-img convert"));
        }
        if be32(data, 32) != 0 {
            return Err(unsupported("encryption; decrypt the image with qemu-img convert"));
        }
        let compression = if version == 3 { features(data)? } else { ClusterCompression::Zlib };
        let header = Self {
            version,
            cluster_bits: be32(data, 20),
            virtual_size: be64(data, 24),
            l1_entries: be32(data, 36),
            l1_offset: be64(data, 40),
            compression,
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), Error> {
        if !(9..=21).contains(&self.cluster_bits) {
            let reason = format!("qcow2 clusters of 2^{} bytes; 512 bytes to 2 MiB are possible", self.cluster_bits);
            return Err(Error::corrupt(reason));
        }
        if self.virtual_size == 0 {
            return Err(Error::corrupt("the qcow2 image has a virtual size of 0 bytes"));
        }
        Ok(())
    }

    /// Checks the header's description of the L1 table.
    ///
    /// # Errors
    /// [`Error::CorruptImage`], [`Error::LimitExceeded`].
    pub(super) fn check_l1(&self) -> Result<(), Error> {
        let l1_bytes = u64::from(self.l1_entries) * 8;
        if l1_bytes > MAX_L1 {
            let what = format!("the qcow2 L1 table has {l1_bytes} bytes");
            return Err(Error::LimitExceeded { what, limit: MAX_L1 });
        }
        if u64::from(self.l1_entries) < self.l1_needed() {
            return Err(Error::corrupt(format!(
                "the qcow2 L1 table has {} entries; a disk of {} bytes needs {}",
                self.l1_entries,
                self.virtual_size,
                self.l1_needed()
            )));
        }
        if self.l1_offset == 0 || !self.l1_offset.is_multiple_of(self.cluster_size()) || self.l1_offset >> 56 != 0 {
            return Err(Error::corrupt(format!("the qcow2 L1 table cannot be at byte {}", self.l1_offset)));
        }
        Ok(())
    }

    /// Bytes per cluster.
    pub(super) fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Entries per L2 table.
    pub(super) fn l2_entries(&self) -> u64 {
        self.cluster_size() / 8
    }

    /// Clusters of the disk.
    pub(super) fn clusters(&self) -> u64 {
        self.virtual_size.div_ceil(self.cluster_size())
    }

    /// L1 entries that the disk needs; further ones are not looked at.
    pub(super) fn l1_needed(&self) -> u64 {
        self.clusters().div_ceil(self.l2_entries())
    }
}

/// Incompatible features of version 3, and the compression type.
fn features(data: &[u8]) -> Result<ClusterCompression, Error> {
    let header_length = be32(data, 100);
    if header_length < 104 {
        return Err(Error::corrupt(format!("a qcow2 header of {header_length} bytes; version 3 has 104 at least")));
    }
    let bits = be64(data, 72);
    let refused = [
        (0, "image that was not closed properly (dirty bit); repair it with qemu-img check -r all"),
        (1, "image marked corrupt; repair it with qemu-img check -r all"),
        (2, "image with an external data file; flatten it with qemu-img convert"),
        (4, "extended L2 entries; rewrite it with qemu-img convert"),
    ];
    if let Some((_, what)) = refused.iter().find(|(bit, _)| bits >> bit & 1 == 1) {
        return Err(unsupported(what));
    }
    if bits & !0b1000 != 0 {
        return Err(unsupported(&format!("image with unknown incompatible features {:#x}", bits & !0b1000)));
    }
    let kind = if header_length > 104 { data.get(104).copied().unwrap_or(0) } else { 0 };
    match (kind, bits >> 3 & 1) {
        (0, 0) => Ok(ClusterCompression::Zlib),
        (1, 1) => Ok(ClusterCompression::Zstd),
        (0 | 1, _) => Err(Error::corrupt("the qcow2 compression type contradicts its feature bit")),
        (kind, _) => Err(unsupported(&format!("compression type {kind}; zlib and zstd are read"))),
    }
}
