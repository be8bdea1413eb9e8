//! What a process knows of an attempt to provision a host.

/// Whether a deprovisioning follows an attempt that this process was asked for. Any other follows what somebody else may have done with the machine, such
/// as a host that was provisioned externally: then no record of one's own writes says what is on its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Attempt {
    /// None is known.
    #[default]
    Unknown,
    /// It was asked for.
    Asked,
    /// It was ended by the deprovisioning with this wish.
    Ended(Option<String>),
}

impl Attempt {
    /// A provisioning is asked for.
    pub fn ask(&mut self) {
        *self = Self::Asked;
    }

    /// Ends it by the deprovisioning with this wish; asked again, the answer is the same. False if there is none to end.
    #[must_use]
    pub fn end(&mut self, wish: Option<&str>) -> bool {
        match self {
            Self::Unknown => false,
            Self::Asked => {
                *self = Self::Ended(wish.map(ToOwned::to_owned));
                true
            }
            Self::Ended(by) => by.as_deref() == wish,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_ended_by_one_wish_and_not_by_the_next() {
        let mut attempt = Attempt::default();
        assert!(!attempt.end(Some("a")));
        attempt.ask();
        assert!(attempt.end(Some("a")) && attempt.end(Some("a")) && !attempt.end(Some("b")) && !attempt.end(None));
        attempt.ask();
        assert!(attempt.end(None));
    }
}
