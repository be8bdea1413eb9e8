//! The switch for Secure Boot in a file of OVMF's firmware variables.
//!
//! The firmware keeps it in the variable `SecureBootEnable`, which only its own setup screen changes. It is one byte
//! without a checksum, so it can be changed in place while the machine is off: keys and boot entries stay.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::FileExt,
    path::Path,
};

/// How much of a file is looked through: the variables stand at its beginning, in 528 KiB of OVMF's and in 768 KiB of AAVMF's, which is filled up to 64 MiB.
const MAX_FILE: u64 = 1 << 20;
const NAME: &str = "SecureBootEnable\0";
/// f0a30bc7-af08-4556-99c4-001009c93a44 as it lies in memory.
const VENDOR: [u8; 16] = [0xc7, 0x0b, 0xa3, 0xf0, 0x08, 0xaf, 0x56, 0x45, 0x99, 0xc4, 0, 0x10, 0x09, 0xc9, 0x3a, 0x44];
/// Length of an authenticated variable's header (`AUTHENTICATED_VARIABLE_HEADER` of EDK II): mark, state, reserved,
/// attributes, count, time, key index, name size, data size, vendor.
const HEADER: usize = 60;

/// Switches Secure Boot on or off for the next start.
///
/// # Errors
/// The file cannot be read or written, or does not hold the variable.
pub fn set_secure_boot(path: &Path, on: bool) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = Vec::new();
    (&file).take(MAX_FILE).read_to_end(&mut bytes)?;
    let places = places(&bytes);
    if places.is_empty() {
        let what = "the firmware variables hold no SecureBootEnable: they must come with keys enrolled";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    for at in places {
        if bytes.get(at) != Some(&u8::from(on)) {
            file.write_all_at(&[u8::from(on)], at as u64)?;
        }
    }
    Ok(())
}

/// Where the value of the variable lies, in each of its live copies.
fn places(bytes: &[u8]) -> Vec<usize> {
    let mut pattern = VENDOR.to_vec();
    pattern.extend(NAME.encode_utf16().flat_map(u16::to_le_bytes));
    let name_size = pattern.len() - VENDOR.len();
    let starts = bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern);
    let values = starts.filter_map(|(at, _)| {
        let start = at.checked_sub(HEADER - VENDOR.len())?;
        let header = bytes.get(start..start + HEADER)?;
        let sizes = [u32::try_from(name_size).ok()?.to_le_bytes(), 1_u32.to_le_bytes()].concat();
        // 0x3f: added; 0x3e: about to be replaced by a copy further on.
        let live = header[..2] == [0xaa, 0x55] && matches!(header[2], 0x3f | 0x3e) && header[36..44] == sizes;
        live.then_some(start + HEADER + name_size)
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(states: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xff; 77];
        for state in states {
            bytes.extend([0xaa, 0x55, *state, 0, 3, 0, 0, 0]);
            bytes.extend([0; 28]);
            bytes.extend([34, 0, 0, 0, 1, 0, 0, 0]);
            bytes.extend(VENDOR);
            bytes.extend(NAME.encode_utf16().flat_map(u16::to_le_bytes));
            bytes.extend([1, 0xff]);
        }
        bytes
    }

    #[test]
    fn live_copies_are_switched() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = store(&[0x3c, 0x3f]);
        std::fs::write(file.path(), &before).unwrap();
        set_secure_boot(file.path(), false).unwrap();
        let after = std::fs::read(file.path()).unwrap();
        let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        assert_eq!(changed, [before.len() - 2], "only the live copy's value");
        set_secure_boot(file.path(), true).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), before);

        std::fs::write(file.path(), store(&[0x3c])).unwrap();
        assert!(set_secure_boot(file.path(), true).is_err());
    }
}
