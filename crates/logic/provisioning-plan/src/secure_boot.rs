//! Secure Boot follows the boot mode both ways, as a recorded step before a boot of the agent: set it, restart the machine, verify it.
//!
//! What the BMC reports is no proof: the agent reads the firmware's variables. In Setup Mode there is no platform key and nothing is verified,
//! whatever the setting says.

use std::time::Duration;

/// A process that only found the switch recorded requests it again after the limit divided by this.
pub const ASK_AGAIN: u32 = 4;

/// What the BMC shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The setting, in force from a later boot on.
    pub enable: Option<bool>,
    /// In force since the last boot.
    pub current: Option<bool>,
    /// The setting means nothing.
    pub setup_mode: bool,
}

impl Observed {
    /// It tells something.
    #[must_use]
    pub const fn tells(&self) -> bool {
        self.enable.is_some() || self.current.is_some()
    }

    /// The setting is as wanted.
    #[must_use]
    pub fn is_set(&self, wanted: bool) -> bool {
        self.enable.or(self.current) == Some(wanted)
    }

    /// It is in force as well, as far as the BMC tells.
    fn is_in_force(&self, wanted: bool) -> bool {
        self.is_set(wanted) && self.current.is_none_or(|current| current == wanted)
    }
}

/// What the firmware is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For so long.
    pub age: Duration,
    /// By a process that has asked for the change; else by one that has found it recorded.
    pub asked: bool,
}

/// Everything that counts before a boot of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// How it is to be; `None` where it makes no difference.
    pub wanted: Option<bool>,
    /// What the BMC shows; `None` if it shows nothing, or nothing that tells.
    pub observed: Option<Observed>,
    /// The switch is recorded as under way.
    pub begun: bool,
    /// The wait, if there is one.
    pub waiting: Option<Waiting>,
    /// How long the firmware may take.
    pub limit: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is as wanted, or makes no difference.
    Go,
    /// The switch has ended like this, and the boot goes on.
    Ended(End),
    /// Wait until the BMC shows it again: its machine is in its self-test.
    AwaitSight,
    /// Wait for the firmware.
    AwaitFirmware,
    /// Record the intent, set it if that is still to be done, restart the machine.
    Switch {
        /// The setting is not as wanted.
        set: bool,
    },
    /// It cannot be as wanted.
    Fail(Fault),
}

/// How a switch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In force.
    InForce,
    /// Off was wanted, and the BMC does not show it any more.
    Vanished,
    /// Off was wanted and is set, but never shown in force: some BMCs do not update that, and signed code runs anyway.
    NeverObserved,
}

/// Why it cannot be as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The BMC does not show it.
    NotObserved,
    /// There is no platform key.
    SetupMode,
    /// The machine has restarted, and it is not in force.
    NotInForce,
}

/// What to do before a boot of the agent.
#[must_use]
pub fn decide(facts: &Facts) -> Decision {
    let Some(wanted) = facts.wanted else { return Decision::Go };
    let Some(observed) = facts.observed.filter(Observed::tells) else { return unseen(facts, wanted) };
    if wanted && observed.setup_mode {
        return Decision::Fail(Fault::SetupMode);
    }
    if observed.is_in_force(wanted) {
        return if facts.begun { Decision::Ended(End::InForce) } else { Decision::Go };
    }
    // A setting that is not in force yet is a pending change of another client: complete it here.
    let switch = Decision::Switch { set: !observed.is_set(wanted) };
    if !facts.begun {
        return switch;
    }
    match facts.waiting {
        Some(Waiting { age, asked: true }) if age >= facts.limit => {
            if !wanted && observed.is_set(wanted) {
                Decision::Ended(End::NeverObserved)
            } else {
                Decision::Fail(Fault::NotInForce)
            }
        }
        Some(Waiting { age, asked: false }) if age >= facts.limit / ASK_AGAIN => switch,
        // Even if a process that died recorded it, wait at first: the firmware may be at work on it.
        _ => Decision::AwaitFirmware,
    }
}

fn unseen(facts: &Facts, wanted: bool) -> Decision {
    let over = facts.waiting.is_some_and(|waiting| waiting.age >= facts.limit);
    match (facts.begun, wanted) {
        (true, _) if !over => Decision::AwaitSight,
        (_, true) => Decision::Fail(Fault::NotObserved),
        (true, false) => Decision::Ended(End::Vanished),
        (false, false) => Decision::Go,
    }
}

/// What an agent finds in the firmware's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// In force.
    pub on: bool,
    /// The setting means nothing.
    pub setup_mode: bool,
}

/// What an agent's finding comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// As wanted, or it makes no difference.
    Fits,
    /// Not as wanted, with an agent from before this work: a new boot replaces it.
    Differs,
    /// On was wanted, and switched on.
    NotOn,
    /// Off was wanted, and the BMC says that it is off.
    StillOn,
    /// Off was wanted, and the BMC does not show it: it cannot be changed from here, and signed code runs anyway.
    Tolerated,
}

/// Judges the agent's finding. An agent from before this work is replaced by a new boot; one booted for it is the proof.
#[must_use]
pub fn proof(wanted: Option<bool>, found: Option<Found>, booted_for_this: bool, bmc_shows: bool) -> Proof {
    let (Some(wanted), Some(found)) = (wanted, found) else { return Proof::Fits };
    if (found.on && !found.setup_mode) == wanted {
        Proof::Fits
    } else if !booted_for_this {
        Proof::Differs
    } else if wanted {
        Proof::NotOn
    } else if bmc_shows {
        Proof::StillOn
    } else {
        Proof::Tolerated
    }
}
