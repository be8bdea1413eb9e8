//! What is wrong with a machine or its BMC, by name: settings that can be changed while the simulator runs. A machine with an ailment shows it as a real one would: in the
//! resource of the part, in the health of all that is above it, in the log, and in how it starts.
//!
//! Rules about single requests are in `faults`; an ailment changes the whole tree.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

macro_rules! ailments {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// One ailment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Ailment {
            $($(#[$doc])* $name,)+
        }

        impl Ailment {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

ailments! {
    /// Power supply 2 has failed.
    PsuLost,
    /// Power supply 2 has no input voltage.
    PsuInputLost,
    /// The limit of power is below what the machine draws.
    PowerCapped,
    /// Fan 1 stands still.
    FanFailed,
    /// The intake is too hot.
    OverTemperature,
    /// Memory module 1 has failed its test and is disabled.
    DimmFailed,
    /// Memory module 3 is not there any more.
    DimmMissing,
    /// The log is full of corrected errors of memory, which are years old: 64 of 65 entries.
    CorrectableEccNoise,
    /// Memory module 1 had an error that could not be corrected.
    UncorrectableEcc,
    /// Processor 1 has failed.
    CpuFailed,
    /// Disk 0 has failed.
    DriveFailed,
    /// Disk 0 expects to fail.
    DrivePredicted,
    /// Disk 0 is not there any more.
    DriveMissing,
    /// Disk 0 belongs to another controller's array.
    DriveForeign,
    /// The storage controller has failed.
    ControllerFailed,
    /// Port 1 of the network card has no link.
    NicLinkDown,
    /// The network card is not there any more.
    NicMissing,
    /// The chassis is open.
    Intrusion,
    /// The account is locked after failed sign-ins.
    AccountLocked,
    /// The account's password must be changed first.
    PasswordChangeRequired,
    /// The account may only read.
    PrivilegeTooSmall,
    /// No session is free.
    SessionLimit,
    /// The BMC has just been started and serves nothing yet.
    BmcStarting,
    /// The machine does not come beyond the initialization of memory.
    BootStuckMemory,
    /// Nor beyond that of PCI devices.
    BootStuckPci,
    /// It does not find anything to start.
    BootStuckOs,
    /// It takes boot overrides and starts from its disk.
    OverrideIgnored,
    /// The BMC does not reach servers of media.
    MediaUnreachable,
    /// The BMC does not trust servers of media.
    MediaCertificate,
    /// Virtual media are not licensed.
    MediaUnlicensed,
    /// The BMC's clock stands at its epoch.
    #[serde(rename = "clock-1970")]
    Clock1970,
    /// A page of the log leads to itself.
    LogLoop,
    /// The log has 100,000 entries.
    #[serde(rename = "log-100k")]
    Log100k,
    /// A message of the log has ten megabytes.
    LogLongMessage,
    /// The log has messages with escapes of terminals, HTML and format strings.
    LogEscapes,
    /// The log is full and takes no more.
    LogFull,
    /// The log's entries name messages of a registry that is not there.
    RegistryMissing,
    /// An update of firmware has failed.
    TaskFailed,
    /// An update of firmware is under way.
    TaskRunning,
}

/// The ailments of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Ailments(BTreeSet<Ailment>);

impl Ailments {
    /// Whether it has this one.
    #[must_use]
    pub fn has(&self, ailment: Ailment) -> bool {
        self.0.contains(&ailment)
    }

    /// Whether it has any of these.
    #[must_use]
    pub fn any(&self, ailments: &[Ailment]) -> bool {
        ailments.iter().any(|ailment| self.has(*ailment))
    }

    /// All that it has.
    pub fn iter(&self) -> impl Iterator<Item = Ailment> {
        self.0.iter().copied()
    }
}

impl FromIterator<Ailment> for Ailments {
    fn from_iter<T: IntoIterator<Item = Ailment>>(ailments: T) -> Self {
        Self(ailments.into_iter().collect())
    }
}
