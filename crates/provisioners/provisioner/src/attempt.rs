//! What a process knows of an attempt to provision a host.

/// Whether a deprovisioning follows an attempt that this process alone has made, from the host at rest on. Any other follows what somebody else may have
/// done with the machine: another process, whose work the record may not know of any more, or a host that was provisioned externally. Then no record of
/// one's own writes says what is on its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Attempt {
    /// None is known.
    #[default]
    Unknown,
    /// The host has been at rest since this process looks after it: the next attempt is its own from the beginning.
    Rest,
    /// It was asked for.
    Asked,
    /// It was ended by the deprovisioning with this wish.
    Ended(Option<String>),
}

impl Attempt {
    /// The host is at rest: what is asked for is no part of a provisioning or deprovisioning.
    pub fn rests(&mut self) {
        if *self == Self::Unknown {
            *self = Self::Rest;
        }
    }

    /// A provisioning is asked for. One that another process may have begun stays unknown.
    pub fn ask(&mut self) {
        if *self != Self::Unknown {
            *self = Self::Asked;
        }
    }

    /// Ends it by the deprovisioning with this wish; asked again, the answer is the same. False if there is none to end.
    #[must_use]
    pub fn end(&mut self, wish: Option<&str>) -> bool {
        match self {
            Self::Unknown | Self::Rest => false,
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
        attempt.rests();
        assert!(!attempt.end(Some("a")));
        attempt.ask();
        attempt.rests();
        assert!(attempt.end(Some("a")) && attempt.end(Some("a")) && !attempt.end(Some("b")) && !attempt.end(None));
        attempt.ask();
        assert!(attempt.end(None));
    }

    #[test]
    fn an_attempt_that_another_process_may_have_begun_is_unknown_until_the_host_has_been_at_rest() {
        let mut attempt = Attempt::default();
        attempt.ask();
        assert!(!attempt.end(Some("a")) && !attempt.end(Some("a")));
        attempt.rests();
        assert!(!attempt.end(Some("a")));
        attempt.ask();
        assert!(attempt.end(Some("b")));
    }
}
