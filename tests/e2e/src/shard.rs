//! Which part of a long enumeration this run does.

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

/// One of so many parts; each item of an enumeration is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    part: usize,
    parts: usize,
}

impl Shard {
    /// Everything.
    pub const ALL: Self = Self { part: 1, parts: 1 };

    /// What `METAMORPH_SHARD` says (`deploy/shard` prints it); without it, everything.
    ///
    /// # Errors
    /// When it is neither `all` nor PART/PARTS.
    pub fn from_environment() -> anyhow::Result<Self> {
        match std::env::var("METAMORPH_SHARD") {
            Ok(text) => {
                Self::parse(&text).with_context(|| format!("METAMORPH_SHARD is {text:?}, not all or PART/PARTS"))
            }
            Err(_) => Ok(Self::ALL),
        }
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        if text == "all" {
            return Ok(Self::ALL);
        }
        let (part, parts) = text.split_once('/').context("there is no slash")?;
        let (part, parts) = (part.parse()?, parts.parse()?);
        ensure!((1..=parts).contains(&part), "there is no part {part} of {parts}");
        Ok(Self { part, parts })
    }

    /// One of `parts` larger ones, of which this is a piece: for what is so important that each run does more of it. `parts` divides the
    /// number of parts that there are.
    #[must_use]
    pub fn one_of(self, parts: usize) -> Self {
        if self.parts.is_multiple_of(parts) { Self { part: (self.part - 1) % parts + 1, parts } } else { self }
    }

    /// Whether the item of this name is in it: in the same part in each run, whatever else the enumeration holds.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        let digest = Sha256::digest(name.as_bytes());
        usize::from(digest[0]) % self.parts == self.part - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_part_holds_the_smaller_one() {
        for part in 1..=16 {
            let small = Shard::parse(&format!("{part}/16")).unwrap();
            let large = small.one_of(4);
            for index in 0..200 {
                let name = format!("after {index}");
                assert!(!small.has(&name) || large.has(&name));
            }
            assert_eq!((large.parts, Shard::ALL.one_of(4)), (4, Shard::ALL));
        }
    }

    #[test]
    fn each_item_is_in_one_part() {
        let parts: Vec<Shard> = ["1/3", "2/3", "3/3"].map(|text| Shard::parse(text).unwrap()).to_vec();
        for index in 0..10 {
            let name = format!("before api PUT {index}");
            assert_eq!(parts.iter().filter(|part| part.has(&name)).count(), 1);
            assert!(Shard::parse("all").unwrap().has(&name));
        }
        for part in parts {
            assert!((0..30).any(|index| part.has(&format!("after {index}"))));
        }
        for wrong in ["", "0/3", "4/3", "3", "a/b", "-1/2"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
