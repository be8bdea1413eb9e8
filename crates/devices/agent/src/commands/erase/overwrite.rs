//! Overwriting a disk, and proving it: a pattern that depends on the place is written everywhere, and samples are read back past every cache of this
//! system.
//!
//! Zeros would prove less: a disk may answer zeros for what it has only forgotten where it lies. The pattern fits nothing that lay there before, and no
//! place has another one's. In the end the first and the last MiB are zeroed, so that nobody takes the pattern for something.

use disk_image::Disk;

/// Bytes written at once.
const STEP: u64 = 1 << 20;
/// Bytes of the beginning and of the end that are zeroed.
const ENDS: u64 = 1 << 20;
/// Samples that are read back, and their length in bytes.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 4096;

/// Called after each step with the bytes that are done; false when it is to stop.
pub(super) type Tell<'a> = &'a dyn Fn(u64) -> bool;

/// The pattern's eight bytes at this place (a splitmix64 of place and seed).
fn word(seed: u64, place: u64) -> u64 {
    let mut mixed = seed.wrapping_add((place + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

/// The pattern from this offset on, a multiple of eight.
fn fill(seed: u64, offset: u64, room: &mut [u8]) {
    for (index, bytes) in room.chunks_mut(8).enumerate() {
        let word = word(seed, offset / 8 + index as u64).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Overwrites the disk.
///
/// # Errors
/// What could not be written, or what was read back instead.
pub(super) fn overwrite(disk: &dyn Disk, seed: u64, tell: Tell<'_>) -> Result<String, String> {
    let size = disk.size();
    let mut room = vec![0; usize::try_from(STEP).unwrap_or(1 << 20)];
    let mut at = 0;
    while at < size {
        let step = STEP.min(size - at);
        let piece = &mut room[..usize::try_from(step).unwrap_or(0)];
        fill(seed, at, piece);
        disk.write_at(at, piece).map_err(|error| format!("{at} of {size} bytes were written, then: {error}"))?;
        at += step;
        if !tell(at) {
            return Err(format!("stopped after {at} of {size} bytes"));
        }
    }
    disk.flush().map_err(|error| format!("all was written, and may not have come to the disk: {error}"))?;
    let mut wanted = vec![0; usize::try_from(SAMPLE.min(size)).unwrap_or(0)];
    let mut found = wanted.clone();
    let mut read = 0;
    for sample in 0..SAMPLES {
        let Some(offset) = place(seed, sample, size) else { break };
        fill(seed, offset, &mut wanted);
        disk.read_at(offset, &mut found).map_err(|error| format!("reading back what was written failed: {error}"))?;
        if found != wanted {
            return Err(format!("at byte {offset} something else is read back than was written"));
        }
        read += 1;
    }
    let ends = ENDS.min(size);
    let zeros = vec![0; usize::try_from(ends).unwrap_or(0)];
    for offset in [0, size - ends] {
        disk.write_at(offset, &zeros).map_err(|error| format!("zeroing its ends failed: {error}"))?;
    }
    disk.flush().map_err(|error| format!("zeroing its ends failed: {error}"))?;
    Ok(format!("{size} bytes written, {read} samples of {} bytes read back as written", wanted.len()))
}

/// Where the sample of this number lies: the first at the beginning, the second at the end, the others anywhere.
fn place(seed: u64, sample: u64, size: u64) -> Option<u64> {
    let last = size.checked_sub(SAMPLE.min(size))? / SAMPLE * SAMPLE;
    Some(match sample {
        0 => 0,
        1 => last,
        _ => word(!seed, sample) % (last / SAMPLE + 1) * SAMPLE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk_image::{Error, FileDisk};

    const MIB: u64 = 1 << 20;

    fn disk(size: u64) -> (tempfile::TempDir, FileDisk) {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&folder.path().join("disk"), size, 512).unwrap();
        (folder, disk)
    }

    /// A disk that takes what is written from this place on and keeps nothing of it.
    struct Forgetful(FileDisk, u64);

    impl Disk for Forgetful {
        fn name(&self) -> &str {
            self.0.name()
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn logical_sector_size(&self) -> u32 {
            512
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
            if offset >= self.1 { Ok(()) } else { self.0.write_at(offset, data) }
        }
        fn make_zero(&self, offset: u64, length: u64) -> Result<(), Error> {
            self.0.make_zero(offset, length)
        }
        fn flush(&self) -> Result<(), Error> {
            Ok(())
        }
        fn reread_partition_table(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn every_byte_is_another_and_the_ends_are_zero() {
        for size in [512, 4096, MIB, 3 * MIB + 512 * 7] {
            let (_folder, disk) = disk(size);
            let secret = vec![0xA5; usize::try_from(size).unwrap()];
            disk.write_at(0, &secret).unwrap();
            let said = overwrite(&disk, 7, &|_| true).unwrap();
            assert!(said.starts_with(&format!("{size} bytes written, 64 samples")), "{said}");
            let mut now = vec![0; secret.len()];
            disk.read_at(0, &mut now).unwrap();
            let ends = usize::try_from(ENDS.min(size)).unwrap();
            assert!(now[..ends].iter().chain(&now[now.len() - ends..]).all(|byte| *byte == 0));
            let longest = now.chunk_by(|a, b| *a == 0xA5 && *b == 0xA5).map(<[u8]>::len).max();
            assert!(longest < Some(6), "a run of {longest:?} bytes of what was there");
        }
    }

    #[test]
    fn a_disk_that_keeps_nothing_is_found_out() {
        for from in [0, 2 * MIB] {
            let (_folder, file) = disk(4 * MIB);
            let error = overwrite(&Forgetful(file, from), 7, &|_| true).unwrap_err();
            assert!(error.contains("something else is read back"), "{error}");
        }
    }

    #[test]
    fn it_stops_when_it_is_told_to() {
        let (_folder, disk) = disk(8 * MIB);
        let error = overwrite(&disk, 7, &|done| done < 3 * MIB).unwrap_err();
        assert_eq!(error, format!("stopped after {} of {} bytes", 3 * MIB, 8 * MIB));
    }

    #[test]
    fn no_two_places_have_the_same() {
        let words: std::collections::BTreeSet<u64> = (0..10_000).map(|place| word(1, place)).collect();
        assert_eq!(words.len(), 10_000);
    }
}
