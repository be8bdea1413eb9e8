//! ISO 9660 (ECMA-119) with Rock Ridge names (IEEE P1282) and one UEFI boot image (El Torito).
//!
//! [`write`] lays out an image as segments; [`find_file`] finds a file on one, within bounds.

mod read;
pub(crate) mod write;

pub use read::{Extent, IsoError, find_file};

/// Bytes of a logical sector (ECMA-119 6.1.2; every CD has this size).
pub const SECTOR: u64 = 2048;

/// Sector of the first volume descriptor (ECMA-119 6.2.1).
const FIRST_DESCRIPTOR: u64 = 16;

/// Standard identifier in every volume descriptor (ECMA-119 8.1.2).
const STANDARD_ID: &[u8; 5] = b"CD001";

/// Flag of a directory in a directory record (ECMA-119 9.1.6).
const FLAG_DIRECTORY: u8 = 0x02;

/// Flag of a file in several extents (ECMA-119 9.1.6).
const FLAG_MULTI_EXTENT: u8 = 0x80;

/// Fixed part of a directory record (ECMA-119 9.1).
const RECORD_HEADER: usize = 33;
