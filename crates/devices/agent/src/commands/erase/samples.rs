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

    /// How many could be read before and cannot be now.
    fn lost(&self, after: &Self) -> usize {
        let is_lost = |(before, now): &(&Held, &Held)| **before != Held::Unreadable && **now == Held::Unreadable;
        self.0.iter().zip(&after.0).filter(is_lost).count()
    }

    /// What they show. What cannot be read any more shows nothing, and its data may be there: only of a drive that may answer so for what it has erased
    /// (`may_forget`: an NVMe namespace, NVM Command Set 1.0, 3.2.3.2.1) is that no fault.
    ///
    /// # Errors
    /// Data that were there before are there now, or may be.
    pub(super) fn compared(&self, after: &Self, may_forget: bool) -> Result<String, String> {
        let is_data = |held: &Held| matches!(held, Held::Data(_));
        let data = self.0.iter().filter(|held| is_data(held)).count();
        let read = self.0.iter().zip(&after.0).filter(|(held, now)| is_data(held) && **now != Held::Unreadable).count();
        let lost = self.lost(after);
        match (self.kept(after), data) {
            (kept, _) if kept > 0 => return Err(format!("{kept} of {data} samples read as before")),
            _ if lost > 0 && !may_forget => {
                return Err(format!("{lost} of {SAMPLES} samples could be read before and cannot be now"));
            }
            _ => {}
        }
        let said = match (data, read) {
            (0, _) => "no sample held data before, so none shows anything".to_owned(),
            (_, 0) => format!("{data} samples held data before, of which none can be read now, so none shows anything"),
            (_, read) => format!("{read} samples held data before, none of them holds the same now"),
        };
        let unread = after.0.iter().filter(|held| **held == Held::Unreadable).count();
        Ok(if unread > 0 { format!("{said}; {unread} of {SAMPLES} samples cannot be read") } else { said })
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
        assert!(empty.compared(&Samples::of(&disk), false).unwrap().contains("none shows anything"));
        let data: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 512 + at) as u8).collect();
        disk.write_at(0, &data).unwrap();
        let before = Samples::of(&disk);
        assert_eq!(before.compared(&before, false).unwrap_err(), "64 of 64 samples read as before");
        // all but the end is erased
        disk.make_zero(0, (8 << 20) - 4096).unwrap();
        assert_eq!(before.compared(&Samples::of(&disk), false).unwrap_err(), "1 of 64 samples read as before");
        disk.make_zero(0, 8 << 20).unwrap();
        assert!(before.compared(&Samples::of(&disk), false).unwrap().starts_with("64 samples held data"));
    }

    #[test]
    fn what_cannot_be_read_any_more_is_not_erased_unless_the_drive_may_forget_it() {
        let data = |byte| Held::Data([byte; 32]);
        let before = Samples(vec![data(1), data(2), Held::Nothing, Held::Unreadable]);
        let gone = Samples(vec![Held::Unreadable; 4]);
        assert_eq!(
            before.compared(&gone, false).unwrap_err(),
            "3 of 64 samples could be read before and cannot be now"
        );
        let said = before.compared(&gone, true).unwrap();
        assert!(said.contains("none can be read now") && said.ends_with("; 4 of 64 samples cannot be read"), "{said}");
        let half = Samples(vec![Held::Unreadable, data(3), Held::Nothing, Held::Unreadable]);
        assert!(before.compared(&half, false).is_err());
        let said = before.compared(&half, true).unwrap();
        assert!(said.starts_with("1 samples held data before") && said.contains("2 of 64 samples cannot"), "{said}");
        let kept = Samples(vec![data(1), Held::Unreadable, Held::Nothing, Held::Unreadable]);
        assert!(before.compared(&kept, true).is_err());
        // What could not be read before is no loss.
        let same = Samples(vec![data(4), data(5), Held::Nothing, Held::Unreadable]);
        assert!(before.compared(&same, false).is_ok());
    }
}
