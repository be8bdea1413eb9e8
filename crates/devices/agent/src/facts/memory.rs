//! Memory: the installed amount by the firmware's SMBIOS tables, else the kernel's total.
//!
//! Source: DMTF DSP0134 (SMBIOS reference specification), 7.18 memory device, 7.20 memory array mapped address.

use super::smbios::{Structure, structures, tables};
use crate::tree::Tree;

const MEMORY_DEVICE: u8 = 17;
const MAPPED_ADDRESS: u8 = 19;

/// Memory types that are no main memory: ROM, flash (DSP0134 7.18.2).
const NOT_MAIN: [u8; 4] = [0x06, 0x08, 0x09, 0x0A];

/// Memory technologies that are storage: NVDIMM-F, NVDIMM-P, persistent memory (DSP0134 7.18.6).
const STORAGE: [u8; 3] = [0x05, 0x06, 0x07];

/// Memory in MiB.
pub(super) fn mebibytes(tree: &Tree) -> Option<i64> {
    let plugged = tables(tree).and_then(|tables| sum(&tables));
    plugged.and_then(|bytes| i64::try_from(bytes >> 20).ok()).or_else(|| total(tree))
}

/// `MemTotal` in MiB.
fn total(tree: &Tree) -> Option<i64> {
    let text = tree.text("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? / 1024)
}

/// Bytes of all memory devices, else of all mapped ranges; `None` if the tables have neither.
fn sum(tables: &[u8]) -> Option<u64> {
    let (mut devices, mut ranges) = (0_u64, 0_u64);
    for structure in structures(tables) {
        match structure.kind {
            MEMORY_DEVICE => devices = devices.saturating_add(device_bytes(&structure)),
            MAPPED_ADDRESS => ranges = ranges.saturating_add(range_bytes(&structure)),
            _ => {}
        }
    }
    [devices, ranges].into_iter().find(|bytes| *bytes > 0)
}

fn device_bytes(device: &Structure<'_>) -> u64 {
    let is = |at: usize, kinds: &[u8]| device.byte(at).is_some_and(|kind| kinds.contains(&kind));
    if is(0x12, &NOT_MAIN) || is(0x28, &STORAGE) {
        return 0;
    }
    match device.word(0x0C) {
        None | Some(0 | 0xFFFF) => 0,
        Some(0x7FFF) => u64::from(device.double(0x1C).unwrap_or(0) & 0x7FFF_FFFF) << 20,
        Some(size) if size & 0x8000 != 0 => u64::from(size & 0x7FFF) << 10,
        Some(size) => u64::from(size) << 20,
    }
}

fn range_bytes(range: &Structure<'_>) -> u64 {
    let (Some(start), Some(end)) = (range.double(4), range.double(8)) else { return 0 };
    if start == u32::MAX {
        let (Some(start), Some(end)) = (range.quad(0x0F), range.quad(0x17)) else { return 0 };
        return end.checked_sub(start).map_or(0, |bytes| bytes.saturating_add(1));
    }
    end.checked_sub(start).map_or(0, |kib| (u64::from(kib) + 1) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::smbios::tests::structure;
    use proptest::prelude::*;

    fn module(size: u16, extended: u32, technology: u8) -> Vec<u8> {
        let mut body = vec![0; 0x54 - 4];
        body[8..10].copy_from_slice(&size.to_le_bytes());
        body[0x18..0x1C].copy_from_slice(&extended.to_le_bytes());
        body[0x24] = technology;
        structure(17, &body, b"DIMM A1\0Maker\0\0")
    }

    #[test]
    fn modules_are_summed_whatever_way_their_size_is_told() {
        let mut tables = structure(0, &[1, 2, 3], b"\0\0");
        tables.extend(module(16384, 0, 3));
        tables.extend(module(0x7FFF, 65536, 3));
        tables.extend(module(0, 0, 2));
        tables.extend(module(0xFFFF, 0, 2));
        tables.extend(module(0x7FFF, 131_072, 7));
        tables.extend(structure(127, &[], b"\0\0"));
        tables.extend(module(4096, 0, 3));
        assert_eq!(sum(&tables), Some((16384 + 65536) << 20));
    }

    #[test]
    fn mapped_ranges_serve_where_no_module_says() {
        let mut body = Vec::new();
        body.extend(0_u32.to_le_bytes());
        body.extend((1024_u32 * 1024 - 1).to_le_bytes());
        assert_eq!(sum(&structure(19, &body, b"\0\0")), Some(1 << 30));
    }

    proptest! {
        #[test]
        fn no_table_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            sum(&bytes);
        }
    }
}
