//! Settings of the firmware are made in one recorded step: hand them to the BMC, restart the machine, and read them again. They count as made when
//! they are seen in force.
//!
//! A machine in its self-test, which applies them, is left alone. A process restarts a machine once an attempt; one that only finds the change recorded
//! waits for longer than a self-test takes: what is pending then, or was never handed over, has not been restarted for. A machine in use is switched on
//! for them and never restarted: its system runs there.

use std::time::Duration;

/// A process that only found the change recorded asks for it again after the limit divided by this.
pub const ASK_AGAIN: u32 = 4;

/// The same, where the machine is in use and off: it is missed.
pub const ON_AGAIN: u32 = 30;

/// What the firmware is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For so long.
    pub age: Duration,
    /// By a process that has restarted the machine; else by one that has found the change recorded, or does not see the settings.
    pub asked: bool,
}

/// What the BMC shows of the settings that are to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// So many are not in force.
    pub open: usize,
    /// The next restart brings all of these.
    pub pending: bool,
}

/// Everything that counts.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What the BMC shows; `None` if it shows no settings at the moment.
    pub shown: Option<Shown>,
    /// The machine is on; `None` if the BMC does not tell.
    pub powered_on: Option<bool>,
    /// The change is recorded as under way.
    pub begun: bool,
    /// The BMC says that what it was given was not applied, or the job for it has failed.
    pub refused: bool,
    /// The agent that was there before reports: the machine has not been restarted.
    pub agent: bool,
    /// The machine is in use: it may be switched on, and not be restarted.
    pub in_use: bool,
    /// The wait, if there is one.
    pub waiting: Option<Waiting>,
    /// How long the firmware may take.
    pub limit: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// All are in force, and nothing was begun.
    Nothing,
    /// All are in force: the change has ended.
    InForce,
    /// Wait until the BMC shows the settings.
    AwaitSight,
    /// Wait for the firmware.
    AwaitFirmware,
    /// Record the intent, hand the settings to the BMC unless they are pending, and have the machine start.
    Set {
        /// They are still to be handed over.
        write: bool,
    },
    /// They cannot be made.
    Fail(Fault),
}

/// Why settings cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine is in use and runs: nothing was begun.
    Runs,
    /// The BMC does not show the settings.
    NotShown,
    /// The BMC took them, and they were not applied.
    NotApplied,
    /// The machine has restarted, and they are not in force.
    NotInForce,
}

/// What to do for a change of settings.
#[must_use]
pub fn decide(facts: &Facts) -> Decision {
    let over = facts.waiting.is_some_and(|waiting| waiting.age >= facts.limit);
    let Some(shown) = facts.shown else {
        // Nobody asked for the machine in use to stay off while its BMC finds its settings.
        let holds_up = facts.in_use && !facts.begun && facts.powered_on == Some(false);
        return if over || holds_up { Decision::Fail(Fault::NotShown) } else { Decision::AwaitSight };
    };
    if shown.open == 0 {
        return if facts.begun { Decision::InForce } else { Decision::Nothing };
    }
    let set = Decision::Set { write: !shown.pending };
    let runs = facts.in_use && facts.powered_on == Some(true);
    if !facts.begun {
        return if runs { Decision::Fail(Fault::Runs) } else { set };
    }
    if facts.refused {
        return Decision::Fail(Fault::NotApplied);
    }
    match facts.waiting {
        _ if over => Decision::Fail(Fault::NotInForce),
        Some(Waiting { asked: true, .. }) => Decision::AwaitFirmware,
        // Whoever has begun may be about to switch it on.
        Some(Waiting { age, .. })
            if facts.in_use && facts.powered_on == Some(false) && age >= facts.limit / ON_AGAIN =>
        {
            set
        }
        // Nothing is at work on a machine that is off, or still where it was.
        _ if !facts.in_use && (facts.agent || facts.powered_on == Some(false)) => set,
        Some(Waiting { age, .. }) if age >= facts.limit / ASK_AGAIN && !runs => set,
        // The process that died may have restarted it.
        _ => Decision::AwaitFirmware,
    }
}
