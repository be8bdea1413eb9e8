//! Finds a file on an ISO 9660 image by its path. The image is hostile: every size, depth and offset is bounded.

use std::io;

use thiserror::Error;

use super::{FIRST_DESCRIPTOR, FLAG_DIRECTORY, FLAG_MULTI_EXTENT, RECORD_HEADER, SECTOR, STANDARD_ID};
use crate::read_at::ReadAt;

/// Descriptors looked at before giving up.
const MAX_DESCRIPTORS: u64 = 16;
/// Largest directory read, in bytes.
const MAX_DIRECTORY: u64 = 1 << 20;
/// Deepest path.
const MAX_DEPTH: usize = 8;

/// Position of a file's contents on the image, in bytes. Always wholly inside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Why a file was not found.
#[derive(Debug, Error)]
pub enum IsoError {
    /// The image could not be read.
    #[error("reading the image at byte {offset} failed")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: io::Error,
    },
    /// No primary volume descriptor.
    #[error("this is no ISO 9660 image: no primary volume descriptor was found")]
    NotIso,
    /// A structure breaks the standard or a limit.
    #[error("the ISO 9660 image is damaged: {0}")]
    Damaged(&'static str),
    /// No such path.
    #[error("there is no {0:?} on the image")]
    NotFound(String),
    /// Something of that name, which is no plain file in one extent.
    #[error("{0:?} on the image is not a plain file")]
    NotAFile(String),
}

/// Finds `path` (components separated by `/`). Names are Rock Ridge names where a record has one, else the plain
/// identifier without version, compared without case.
///
/// # Errors
/// [`IsoError`]; a hostile image cannot make this read more than a bounded number of bytes.
pub fn find_file<R: ReadAt + ?Sized>(reader: &R, path: &str) -> Result<Extent, IsoError> {
    let components: Vec<&str> = path.split('/').filter(|component| !component.is_empty()).collect();
    if components.is_empty() || components.len() > MAX_DEPTH {
        return Err(IsoError::NotFound(path.to_owned()));
    }
    let mut at = root(reader)?;
    for (depth, component) in components.iter().enumerate() {
        let directory = load(reader, at)?;
        let found = search(reader, &directory, component)?.ok_or_else(|| IsoError::NotFound(path.to_owned()))?;
        let last = depth + 1 == components.len();
        let is_directory = found.flags & FLAG_DIRECTORY != 0;
        if last == is_directory || found.flags & FLAG_MULTI_EXTENT != 0 {
            return Err(IsoError::NotAFile(path.to_owned()));
        }
        at = found.extent;
    }
    Ok(at)
}

struct Found {
    extent: Extent,
    flags: u8,
}

fn read<R: ReadAt + ?Sized>(reader: &R, offset: u64, buffer: &mut [u8]) -> Result<(), IsoError> {
    reader.read_exact_at(offset, buffer).map_err(|source| IsoError::Read { offset, source })
}

fn root<R: ReadAt + ?Sized>(reader: &R) -> Result<Extent, IsoError> {
    let mut descriptor = vec![0; 2048];
    for index in FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + MAX_DESCRIPTORS {
        if (index + 1) * SECTOR > reader.len() {
            break;
        }
        read(reader, index * SECTOR, &mut descriptor)?;
        if descriptor[1..6] != STANDARD_ID[..] || descriptor[0] == 255 {
            break;
        }
        if descriptor[0] == 1 {
            if descriptor[128..130] != [0, 8] {
                return Err(IsoError::Damaged("its logical blocks do not have 2048 bytes"));
            }
            return extent(reader, &descriptor[156..190]);
        }
    }
    Err(IsoError::NotIso)
}

/// Extent of a directory record, checked to lie inside the image.
fn extent<R: ReadAt + ?Sized>(reader: &R, record: &[u8]) -> Result<Extent, IsoError> {
    let number = |at: usize| {
        let bytes = record.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        bytes.map(|bytes| u64::from(u32::from_le_bytes(bytes))).ok_or(IsoError::Damaged("a record is cut off"))
    };
    let extended = u64::from(record.get(1).copied().unwrap_or_default());
    let (offset, len) = ((number(2)? + extended) * SECTOR, number(10)?);
    if offset + len > reader.len() {
        return Err(IsoError::Damaged("an extent reaches beyond the end"));
    }
    Ok(Extent { offset, len })
}

fn load<R: ReadAt + ?Sized>(reader: &R, at: Extent) -> Result<Vec<u8>, IsoError> {
    if at.len > MAX_DIRECTORY {
        return Err(IsoError::Damaged("a directory is larger than 1 MiB"));
    }
    let mut bytes = vec![0; usize::try_from(at.len).unwrap_or_default()];
    read(reader, at.offset, &mut bytes)?;
    Ok(bytes)
}

fn search<R: ReadAt + ?Sized>(reader: &R, directory: &[u8], wanted: &str) -> Result<Option<Found>, IsoError> {
    for sector in directory.chunks(2048) {
        let mut rest = sector;
        while let Some(&len) = rest.first() {
            let len = usize::from(len);
            if len == 0 {
                break; // the rest of the sector is unused
            }
            if len <= RECORD_HEADER || len > rest.len() {
                return Err(IsoError::Damaged("a directory record has an impossible length"));
            }
            let (record, next) = rest.split_at(len);
            rest = next;
            let identifier_len = usize::from(record[32]);
            let identifier = record
                .get(RECORD_HEADER..RECORD_HEADER + identifier_len)
                .ok_or(IsoError::Damaged("an identifier is cut off"))?;
            if identifier == [0] || identifier == [1] {
                continue; // the directory itself and its parent
            }
            let system_use = record.get((RECORD_HEADER + identifier_len).next_multiple_of(2)..).unwrap_or_default();
            let matches = match rock_ridge_name(system_use) {
                Some(name) => name == wanted.as_bytes(),
                None => plain_name(identifier).eq_ignore_ascii_case(wanted.as_bytes()),
            };
            if matches {
                return Ok(Some(Found { extent: extent(reader, record)?, flags: record[25] }));
            }
        }
    }
    Ok(None)
}

/// The identifier without version and without the dot of an empty extension.
fn plain_name(identifier: &[u8]) -> &[u8] {
    let end = identifier.iter().position(|&byte| byte == b';').unwrap_or(identifier.len());
    let name = &identifier[..end];
    name.strip_suffix(b".").unwrap_or(name)
}

/// The name in Rock Ridge `NM` entries; continuation areas are not followed, our own writer needs none.
fn rock_ridge_name(mut system_use: &[u8]) -> Option<Vec<u8>> {
    let mut name: Option<Vec<u8>> = None;
    while system_use.len() >= 4 {
        let len = usize::from(system_use[2]);
        if len < 4 || len > system_use.len() {
            break;
        }
        let (entry, rest) = system_use.split_at(len);
        if entry.starts_with(b"NM") && len >= 5 && entry[4] & 0b110 == 0 {
            name.get_or_insert_default().extend_from_slice(&entry[5..]);
        }
        system_use = rest;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iso::write::{FileSpec, layout};

    fn image() -> (Vec<u8>, Vec<u64>) {
        let files = [
            FileSpec { path: "esp.img", len: 5000 },
            FileSpec { path: ".disk/info", len: 3 },
            FileSpec { path: "boot/grub/grub.cfg", len: 0 },
            FileSpec { path: "a-long-name-with-minus.json", len: 2049 },
            FileSpec { path: "a-long-name-with-minus.text", len: 1 },
        ];
        let layout = layout("METAMORPH", &files, Some(0)).unwrap();
        let mut image = layout.head;
        image.resize(usize::try_from(layout.len).unwrap(), 0xEE);
        (image, layout.offsets)
    }

    #[test]
    fn written_files_are_found_at_their_places() {
        let (image, offsets) = image();
        let found = |path| find_file(&image, path).unwrap();
        assert_eq!(found("esp.img"), Extent { offset: offsets[0], len: 5000 });
        assert_eq!(found("/.disk/info"), Extent { offset: offsets[1], len: 3 });
        assert_eq!(found("boot/grub/grub.cfg"), Extent { offset: offsets[2], len: 0 });
        assert_eq!(found("a-long-name-with-minus.json"), Extent { offset: offsets[3], len: 2049 });
        assert_eq!(found("a-long-name-with-minus.text"), Extent { offset: offsets[4], len: 1 });
    }

    #[test]
    fn what_is_not_there_says_so() {
        let (image, _) = image();
        assert!(matches!(find_file(&image, "boot/grub/other"), Err(IsoError::NotFound(_))));
        assert!(matches!(find_file(&image, "boot/grub"), Err(IsoError::NotAFile(_))));
        assert!(matches!(find_file(&image, "esp.img/x"), Err(IsoError::NotAFile(_))));
        assert!(matches!(find_file(&image, ""), Err(IsoError::NotFound(_))));
        assert!(matches!(find_file(&image, "a/b/c/d/e/f/g/h/i"), Err(IsoError::NotFound(_))));
        assert!(matches!(find_file(&vec![0_u8; 50_000], "x"), Err(IsoError::NotIso)));
        assert!(matches!(find_file(&Vec::<u8>::new(), "x"), Err(IsoError::NotIso)));
    }

    #[test]
    fn plain_identifiers_serve_where_rock_ridge_is_missing() {
        let (mut image, offsets) = image();
        for at in 0..image.len() - 1 {
            if &image[at..at + 2] == b"NM" {
                image[at..at + 2].copy_from_slice(b"XX");
            }
        }
        assert_eq!(find_file(&image, "Esp.Img").unwrap().offset, offsets[0]);
        assert_eq!(find_file(&image, "_disk/info").unwrap().offset, offsets[1]);
    }

    #[test]
    fn many_files_fill_several_sectors() {
        let names: Vec<String> = (0..100).map(|n| format!("dir/name-{n:03}-with-some-length.bin")).collect();
        let files: Vec<FileSpec<'_>> = names.iter().map(|path| FileSpec { path, len: 1 }).collect();
        let layout = layout("X", &files, Some(0)).unwrap();
        let mut image = layout.head;
        image.resize(usize::try_from(layout.len).unwrap(), 0);
        for (name, offset) in names.iter().zip(layout.offsets) {
            assert_eq!(find_file(&image, name).unwrap(), Extent { offset, len: 1 });
        }
    }

    #[test]
    fn impossible_paths_are_refused() {
        for paths in [&["a//b"][..], &["../x"], &["a b"], &["a", "a"], &["a", "a/b"], &["a/b", "a"], &[""]] {
            let files: Vec<FileSpec<'_>> = paths.iter().map(|path| FileSpec { path, len: 1 }).collect();
            assert!(layout("X", &files, Some(0)).is_err(), "{paths:?}");
        }
        let huge = [FileSpec { path: "a", len: 1 << 32 }];
        assert!(layout("X", &huge, Some(0)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damaged_images_never_panic_nor_leave_the_image(changes in proptest::collection::vec((16_u64 * 2048..27 * 2048, 0_u8..), 1..40), len in 0_usize..60_000) {
            let (mut image, _) = image();
            for (at, value) in changes {
                if let Some(byte) = image.get_mut(usize::try_from(at).unwrap()) {
                    *byte = value;
                }
            }
            let cut = len.min(image.len());
            for image in [&image[..], &image[..cut]] {
                for path in ["boot/grub/grub.cfg", "esp.img"] {
                    if let Ok(extent) = find_file(image, path) {
                        assert!(extent.offset + extent.len <= image.len() as u64);
                    }
                }
            }
        }
    }
}
