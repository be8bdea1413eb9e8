//! Device paths of boot entries: a partition and a file on it.
//!
//! Source: UEFI specification 2.10, 10.3 (nodes), 10.3.5.1 (hard drive), 10.3.5.4 (file path).

/// Longest device path that is read, in bytes.
const MAX_PATH: usize = 16 << 10;

const MEDIA: u8 = 0x04;
const HARD_DRIVE: u8 = 0x01;
const FILE_PATH: u8 = 0x04;
const END: u8 = 0x7F;
const END_WHOLE: u8 = 0xFF;
const HARD_DRIVE_LENGTH: u16 = 42;
const FORMAT_GPT: u8 = 2;
const SIGNATURE_GUID: u8 = 2;

/// A GPT partition, as a hard drive node names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardDrive {
    /// Number, from 1.
    pub number: u32,
    /// First logical block.
    pub start: u64,
    /// Length in logical blocks.
    pub blocks: u64,
    /// Unique GUID, in the bytes' order of the partition table.
    pub guid: [u8; 16],
}

/// What a boot entry of ours points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath {
    /// The partition.
    pub partition: HardDrive,
    /// File on it, `\EFI\debian\shimx64.efi`.
    pub file: String,
}

/// Writes a device path: partition, file, end. `None` when the file's name is too long for a node.
#[must_use]
pub fn encode(path: &FilePath) -> Option<Vec<u8>> {
    let mut bytes = vec![MEDIA, HARD_DRIVE];
    bytes.extend(HARD_DRIVE_LENGTH.to_le_bytes());
    bytes.extend(path.partition.number.to_le_bytes());
    bytes.extend(path.partition.start.to_le_bytes());
    bytes.extend(path.partition.blocks.to_le_bytes());
    bytes.extend(path.partition.guid);
    bytes.extend([FORMAT_GPT, SIGNATURE_GUID]);
    let name: Vec<u8> = path.file.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    let length = u16::try_from(name.len() + 4).ok()?;
    bytes.extend([MEDIA, FILE_PATH]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(name);
    bytes.extend([END, END_WHOLE, 4, 0]);
    (bytes.len() <= MAX_PATH).then_some(bytes)
}

/// The nodes of a path: type, subtype and data; `None` when the path is damaged.
fn nodes(bytes: &[u8]) -> Option<Vec<(u8, u8, &[u8])>> {
    let mut rest = bytes.get(..bytes.len().min(MAX_PATH))?;
    let mut found = Vec::new();
    loop {
        let header = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
        let node = rest.get(..length).filter(|node| node.len() >= 4)?;
        if header[0] & 0x7F == END && header[1] == END_WHOLE {
            return Some(found);
        }
        found.push((header[0], header[1], &node[4..]));
        rest = &rest[length..];
    }
}

fn hard_drive(data: &[u8]) -> Option<HardDrive> {
    let (number, rest) = data.split_first_chunk::<4>()?;
    let (start, rest) = rest.split_first_chunk::<8>()?;
    let (blocks, rest) = rest.split_first_chunk::<8>()?;
    let (guid, rest) = rest.split_first_chunk::<16>()?;
    (rest == [FORMAT_GPT, SIGNATURE_GUID]).then_some(HardDrive {
        number: u32::from_le_bytes(*number),
        start: u64::from_le_bytes(*start),
        blocks: u64::from_le_bytes(*blocks),
        guid: *guid,
    })
}

/// The GPT partition that a path begins at or passes through, if any. Hostile input.
#[must_use]
pub fn partition(bytes: &[u8]) -> Option<HardDrive> {
    nodes(bytes)?.into_iter().find_map(|(kind, sub, data)| match (kind, sub) {
        (MEDIA, HARD_DRIVE) => hard_drive(data),
        _ => None,
    })
}

/// Partition and file of a path that has both. Hostile input.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<FilePath> {
    let partition = partition(bytes)?;
    let name =
        nodes(bytes)?.into_iter().find_map(|(kind, sub, data)| ((kind, sub) == (MEDIA, FILE_PATH)).then_some(data))?;
    let units: Vec<u16> = name.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect();
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    Some(FilePath { partition, file: String::from_utf16(&units[..end]).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u32, start: u64, blocks: u64, guid: [u8; 16], file in "[^\\x00]{0,200}") {
            let path = FilePath { partition: HardDrive { number, start, blocks, guid }, file };
            let bytes = encode(&path).unwrap();
            prop_assert_eq!(decode(&bytes), Some(path));
            for end in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..end]), None);
            }
        }

        #[test]
        fn no_path_makes_it_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = partition(&bytes);
        }
    }

    #[test]
    fn the_bytes_are_those_of_efibootmgr() {
        let partition = HardDrive { number: 1, start: 2048, blocks: 4096, guid: [0xAB; 16] };
        let bytes = encode(&FilePath { partition, file: "\\a".into() }).unwrap();
        let mut want = vec![4, 1, 42, 0, 1, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0];
        want.extend([0xAB; 16]);
        want.extend([2, 2, 4, 4, 10, 0, b'\\', 0, b'a', 0, 0, 0, 0x7F, 0xFF, 4, 0]);
        assert_eq!(bytes, want);
    }
}
