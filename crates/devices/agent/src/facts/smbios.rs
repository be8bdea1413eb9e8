//! The firmware's SMBIOS tables, structure by structure.
//!
//! Source: DMTF DSP0134 (SMBIOS reference specification), 6.1 structure header, 6.1.3 text strings. The tables come from the firmware and are read as
//! hostile input.

use crate::tree::{Tree, clean};

/// Most bytes of the tables.
const MAX_TABLES: u64 = 1 << 20;

const END_OF_TABLE: u8 = 127;

/// The tables, if the system has any.
pub(super) fn tables(tree: &Tree) -> Option<Vec<u8>> {
    tree.bytes("sys/firmware/dmi/tables/DMI", MAX_TABLES)
}

/// One structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Structure<'a> {
    /// What it describes.
    pub kind: u8,
    bytes: &'a [u8],
    strings: &'a [u8],
}

/// The structures of these tables, up to the end or the first one that is damaged.
pub(super) fn structures(tables: &[u8]) -> impl Iterator<Item = Structure<'_>> {
    let mut rest = tables;
    std::iter::from_fn(move || {
        let &[kind, length, ..] = rest.first_chunk::<4>()?;
        let bytes = rest.get(..usize::from(length)).filter(|bytes| bytes.len() >= 4)?;
        if kind == END_OF_TABLE {
            return None;
        }
        // The strings end with two zero bytes.
        let behind = &rest[usize::from(length)..];
        let Some(end) = behind.windows(2).position(|pair| pair == [0, 0]) else {
            rest = &[];
            return Some(Structure { kind, bytes, strings: &[] });
        };
        rest = &behind[end + 2..];
        Some(Structure { kind, bytes, strings: &behind[..end] })
    })
}

impl<'a> Structure<'a> {
    pub fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// So many bytes from this place on.
    pub fn slice(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        self.bytes.get(at..)?.get(..length)
    }

    pub fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    pub fn double(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    pub fn quad(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// The text whose number is at this place; `None` where there is none, or only blanks.
    pub fn text(&self, at: usize) -> Option<String> {
        let number = usize::from(self.byte(at)?).checked_sub(1)?;
        let text = clean(self.strings.split(|byte| *byte == 0).nth(number)?).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A structure with these strings, of which the last ends with two zero bytes.
    pub fn structure(kind: u8, body: &[u8], strings: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, u8::try_from(body.len() + 4).unwrap(), 0, 0];
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(strings);
        bytes
    }

    #[test]
    fn structures_end_with_the_table() {
        let mut tables = structure(4, &[2, 9, 0], b"one\0 two \0\0");
        tables.extend(structure(1, &[1], b"\0\0"));
        tables.extend(structure(127, &[], b"\0\0"));
        tables.extend(structure(4, &[], b"\0\0"));
        let all: Vec<_> = structures(&tables).collect();
        assert_eq!(all.iter().map(|one| one.kind).collect::<Vec<_>>(), [4, 1]);
        assert_eq!((all[0].text(4).as_deref(), all[0].text(5), all[0].text(6)), (Some("two"), None, None));
        assert_eq!((all[1].text(4), all[1].text(9), all[1].word(4)), (None, None, None));
    }

    proptest! {
        #[test]
        fn no_table_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for one in structures(&bytes) {
                let _ = (one.text(4), one.byte(5), one.word(6), one.double(7), one.quad(8));
            }
        }
    }
}
