//! Samples of a disk before and after its own erase command: they cannot prove that it has erased, and they can prove that it has not.

use disk_image::Disk;
use sha2::{Digest, Sha256};

/// How many, and their length in bytes.
const SAMPLES: u64 = 64;
const SAMPLE: u64 = 4096;

/// What one place held.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// It cannot be read.
    Unreadable,
    /// One byte over and over: an empty place, before as after.
    Nothing,
    /// Something of this digest.
    Data([u8; 32]),
}

/// Samples of a disk.
pub(super) struct Samples(Vec<Held>);

impl Samples {
    /// Reads them: at both ends, and evenly between.
    pub(super) fn of(disk: &dyn Disk) -> Self {
        let length = SAMPLE.min(disk.size());
        let last = (disk.size() - length) / SAMPLE;
        let mut room = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut held = Vec::new();
        for sample in 0..SAMPLES {
            let place = u64::try_from(u128::from(last) * u128::from(sample) / u128::from(SAMPLES - 1)).unwrap_or(0);
            held.push(match disk.read_at(place * SAMPLE, &mut room) {
                Err(_) => Held::Unreadable,
                Ok(()) if room.iter().all(|byte| *byte == room[0]) => Held::Nothing,
                Ok(()) => Held::Data(Sha256::digest(&room).into()),
            });
        }
        Self(held)
    }

    /// How many hold the same data as before.
    fn kept(&self, after: &Self) -> usize {
        self.0.iter().zip(&after.0).filter(|(before, now)| matches!(before, Held::Data(_)) && before == now).count()
    }

    /// What they show.
    ///
    /// # Errors
    /// Data that were there before are there now.
    pub(super) fn compared(&self, after: &Self) -> Result<String, String> {
        let data = self.0.iter().filter(|held| matches!(held, Held::Data(_))).count();
        match (self.kept(after), data) {
            (0, 0) => Ok("no sample held data before, so none shows anything".to_owned()),
            (0, data) => Ok(format!("{data} samples held data before, none of them holds the same now")),
            (kept, _) => Err(format!("{kept} of {data} samples read as before")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk_image::FileDisk;

    #[test]
    fn one_sample_that_is_as_before_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&folder.path().join("disk"), 8 << 20, 512).unwrap();
        let empty = Samples::of(&disk);
        assert!(empty.compared(&Samples::of(&disk)).unwrap().contains("none shows anything"));
        let data: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 512 + at) as u8).collect();
        disk.write_at(0, &data).unwrap();
        let before = Samples::of(&disk);
        assert_eq!(before.compared(&before).unwrap_err(), "64 of 64 samples read as before");
        // all but the end is erased
        disk.make_zero(0, (8 << 20) - 4096).unwrap();
        assert_eq!(before.compared(&Samples::of(&disk)).unwrap_err(), "1 of 64 samples read as before");
        disk.make_zero(0, 8 << 20).unwrap();
        assert!(before.compared(&Samples::of(&disk)).unwrap().starts_with("64 samples held data"));
    }
}
