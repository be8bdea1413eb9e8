//! Which version of the contract two programs use. Pure.

/// The versions that a program speaks, from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub lowest: u32,
    /// The highest.
    pub highest: u32,
}

impl Versions {
    /// What this program speaks of a kind whose version is this one ([`provisioner::Resource::VERSION`]): that and the one before, so that two programs may
    /// be updated one after the other.
    #[must_use]
    pub const fn ours(version: u32) -> Self {
        Self { lowest: if version > 1 { version - 1 } else { version }, highest: version }
    }

    /// The version that both use: the highest that both speak.
    ///
    /// # Errors
    /// A sentence that says who has to be updated, if there is none.
    pub fn agree(self, theirs: Self) -> Result<u32, String> {
        let (ours, said) = (self.shown(), theirs.shown());
        if theirs.lowest == 0 || theirs.highest < theirs.lowest {
            return Err(format!("it says that it speaks {said} of the contract, which are no versions"));
        }
        let common = self.highest.min(theirs.highest);
        if common >= self.lowest.max(theirs.lowest) {
            return Ok(common);
        }
        let older = if theirs.highest < self.lowest { "the provisioner" } else { "this server" };
        Err(format!("it speaks {said} of the contract, and this server {ours}: update {older}"))
    }

    fn shown(self) -> String {
        if self.lowest == self.highest {
            format!("version {}", self.lowest)
        } else {
            format!("versions {} to {}", self.lowest, self.highest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(lowest: u32, highest: u32) -> Versions {
        Versions { lowest, highest }
    }

    #[test]
    fn programs_that_are_one_version_apart_understand_each_other_and_others_are_refused() {
        // Each speaks its own version and the one before.
        for (ours, theirs, expected) in [
            (of(3, 4), of(3, 4), Ok(4)),
            (of(3, 4), of(2, 3), Ok(3)),
            (of(3, 4), of(4, 5), Ok(4)),
            (of(3, 4), of(1, 2), Err("update the provisioner")),
            (of(3, 4), of(5, 6), Err("update this server")),
            (of(1, 1), of(1, 2), Ok(1)),
            (of(1, 1), of(2, 3), Err("versions 2 to 3 of the contract, and this server version 1: update this server")),
            (of(1, 1), of(0, 0), Err("no versions")),
            (of(1, 1), of(9, 3), Err("no versions")),
        ] {
            match (ours.agree(theirs), expected) {
                (Ok(version), Ok(expected)) => assert_eq!(version, expected),
                (Err(said), Err(expected)) => assert!(said.contains(expected), "{said}"),
                (found, expected) => panic!("{found:?}, and {expected:?} was expected"),
            }
        }
        assert_eq!(Versions::ours(1), of(1, 1));
        assert_eq!(Versions::ours(4), of(3, 4));
    }
}
