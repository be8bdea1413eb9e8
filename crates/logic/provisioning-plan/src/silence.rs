//! A machine was reset to boot the agent, and the agent is silent: what the BMC shows identifies the cause. If the boot cannot have happened, it
//! is requested once more.

/// Firmware and BMC look into a medium without booting from it; a kernel alone has more bytes than this.
pub const LOOKED_INTO: u64 = 1 << 20;

/// Why no agent has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The medium is not in the drive any more.
    Ejected,
    /// The machine is off.
    Off,
    /// The boot from the medium is still ahead: the machine has not restarted.
    ResetIgnored,
    /// The BMC took the boot override and did not keep it.
    OverrideForgotten,
    /// The machine started from something else.
    NeverRead,
    /// The medium has been looked into since, which need not have been a boot.
    LookedInto,
    /// The machine has read its system, and it does not report.
    ReadAndSilent,
}

/// What the BMC shows of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The drive has the medium; `None` where the BMC does not say.
    pub has_medium: Option<bool>,
    /// The machine is on.
    pub powered_on: Option<bool>,
    /// A boot from the medium is still ahead.
    pub override_ahead: Option<bool>,
}

impl Silence {
    /// What the BMC shows, and how much of the medium has been read since the reset.
    #[must_use]
    pub fn of(sight: Option<Sight>, read: u64, override_forgotten: bool) -> Self {
        if read >= LOOKED_INTO {
            return Self::ReadAndSilent;
        }
        let unseen = if read > 0 { Self::LookedInto } else { Self::NeverRead };
        let Some(sight) = sight else { return unseen };
        if sight.has_medium == Some(false) {
            Self::Ejected
        } else if sight.powered_on == Some(false) {
            Self::Off
        } else if sight.override_ahead == Some(true) {
            Self::ResetIgnored
        } else if override_forgotten {
            Self::OverrideForgotten
        } else {
            unseen
        }
    }

    /// What was found, after "N s after the reset the agent has not reported".
    #[must_use]
    pub const fn found(self) -> &'static str {
        match self {
            Self::Ejected => "the medium is no longer in the BMC's drive",
            Self::Off => "the machine is off",
            // Whether the BMC has accepted the reset is not seen here.
            Self::ResetIgnored => "the boot from the medium is still ahead: the machine has not restarted",
            Self::OverrideForgotten => {
                "nothing has booted from the medium: the BMC accepted the boot override and did not keep it"
            }
            Self::NeverRead => "nothing has read the medium since, though the machine should have restarted",
            Self::LookedInto => "the firmware has looked into the medium, or the machine stopped early in its boot",
            Self::ReadAndSilent => "the machine has read its system from the medium",
        }
    }
}

/// Whether a boot that did not happen may be requested once more.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// How much of the medium has been read since its reset, or in the attempt before.
    pub read: u64,
    /// It is this operation's, not that of an earlier one.
    pub current: bool,
    /// It has been asked for once more already.
    pub again: bool,
    /// Its agent has been seen.
    pub seen: bool,
    /// Its medium is on offer.
    pub medium: bool,
}

impl Boot {
    /// A machine that has read its system is not reset under it; nor is one whose agent was there.
    #[must_use]
    pub const fn once_more(&self) -> bool {
        self.read < LOOKED_INTO && self.current && !self.again && !self.seen && self.medium
    }
}
