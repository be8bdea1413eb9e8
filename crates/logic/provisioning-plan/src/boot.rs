//! Bringing the agent up: is the one that is there used, is one waited for, or is the machine booted?
//!
//! A boot is recorded before it happens, with a generation of its own, which belongs to the boot that reports first. So: what is recorded and has
//! not reported is gone on with, at the same generation; what has reported, was seen or is retired is never booted again; and no machine is
//! reset while an agent in the middle of this operation's work may return.

use std::time::Duration;

use api::metamorph::{AgentBoot, HostOperationStatus, OperationStep, StepPhase};

use crate::secure_boot::Proof;

/// Most boots for one operation: a machine that loses its agent so often has a fault of its own.
pub const MAX_BOOTS: u32 = 3;

/// A recorded boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Its generation.
    pub generation: u64,
    /// Its agent has reported: the generation is that boot's.
    pub bound: bool,
    /// Its work has ended.
    pub retired: bool,
}

impl From<&AgentBoot> for Boot {
    fn from(boot: &AgentBoot) -> Self {
        Self { generation: boot.generation, bound: boot.boot_id.is_some(), retired: boot.retired }
    }
}

/// What an agent does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Idle,
    /// It has ended a command, of whichever operation, and tells of it.
    Ended,
    /// A command of this operation.
    Own,
    /// A command of another operation. It cannot be stopped but by a boot, which is the proof that it has stopped.
    Other,
}

/// An agent's protocol beside this server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Older: it brings its work to its end, and gets no new one.
    Older,
    /// The same.
    Same,
    /// Newer.
    Newer,
}

/// A living agent of the recorded boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent {
    /// What it does.
    pub work: Work,
    /// What it speaks.
    pub protocol: Protocol,
    /// It says on which machine it runs.
    pub names_machine: bool,
    /// It has failed to prove that it runs on this host's machine.
    pub disproved: bool,
    /// Secure Boot as it finds it.
    pub secure_boot: Proof,
}

/// What an agent that is there is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It works for this operation, or can be given work.
    Usable,
    /// It is left for another boot.
    Unusable,
    /// It shows that another boot would not help: for this reason.
    Refused(Refusal),
}

/// Why work is refused that another boot would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Secure Boot is not as the boot mode wants it.
    SecureBoot(Proof),
    /// The agent that was booted for this comes from an old image.
    OldImage,
    /// The record names the last generation that there is: somebody has changed it.
    NoGeneration,
}

impl Agent {
    /// What it is good for; `fresh`: the recorded boot is this operation's, and its agent has not been used yet.
    #[must_use]
    pub fn judge(&self, fresh: bool) -> Judged {
        let may_be_asked = match self.work {
            Work::Idle => self.names_machine && self.protocol == Protocol::Same && !self.disproved,
            Work::Ended | Work::Own => true,
            Work::Other => false,
        };
        match self.secure_boot {
            _ if !may_be_asked => self.left(fresh),
            Proof::Fits | Proof::Tolerated => Judged::Usable,
            // It was given its work when that fitted, and is not reset in the middle of it.
            Proof::Differs if self.work == Work::Own => Judged::Usable,
            Proof::Differs => self.left(fresh),
            refused @ (Proof::NotOn | Proof::StillOn) => Judged::Refused(Refusal::SecureBoot(refused)),
        }
    }

    /// One that was booted for this operation and is older than this server comes from an old image: booting it again changes nothing.
    fn left(&self, fresh: bool) -> Judged {
        if fresh && self.protocol == Protocol::Older { Judged::Refused(Refusal::OldImage) } else { Judged::Unusable }
    }
}

/// A fact that is gathered when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// Nobody has asked.
    Unasked,
    /// The answer.
    Known(T),
}

/// Everything that counts.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The boot that this operation has recorded.
    pub own: Option<Boot>,
    /// The newest boot that any operation of the host has recorded.
    pub latest: Option<Boot>,
    /// The living agent of [`Facts::recorded`].
    pub agent: Option<Agent>,
    /// The phase of the recorded step.
    pub phase: StepPhase,
    /// Its attempts so far.
    pub attempts: u32,
    /// Generation whose medium the BMC was asked to put in, without an answer yet.
    pub inserting: Option<u64>,
    /// Generation that this process has last reset the machine for, and of which it awaits the agent.
    pub booted: Option<u64>,
    /// An agent of the recorded generation, or of a later one, has reported to this process.
    pub seen: bool,
    /// The host's newest operation has provisioned it.
    pub provisioned: bool,
    /// The newest generation that this process knows of, recorded or not.
    pub known_generation: u64,
    /// For how long this process has known the host.
    pub waited: Duration,
    /// A step of this operation was given to the recorded boot and has not ended.
    pub in_work: bool,
    /// The machine is on; `None` where the BMC does not tell, or cannot be asked.
    pub power: Fact<Option<bool>>,
    /// The medium of the recorded boot can be offered, as it was.
    pub medium: Fact<bool>,
}

/// How long an agent that was there before this process is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Any.
    pub reconnect: Duration,
    /// One that was at work.
    pub in_work: Duration,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The agent is there.
    Use,
    /// Work is refused.
    Refuse(Refusal),
    /// Look whether the medium is in, and boot from it.
    GoOnInserting,
    /// Wait for the agent of the boot that this process has asked for.
    AwaitBoot,
    /// Wait for a report, or for a reader of the medium: this process has just begun.
    AwaitReport,
    /// Say whether the machine is on.
    AskPower,
    /// Wait for the agent that was at work before this process began.
    AwaitWorker,
    /// Say whether the recorded medium can be offered again.
    AskMedium,
    /// Ask for the recorded boot once more, at the same address: whether it has happened is not known, and nobody has reported of it.
    BootRecorded,
    /// Record and ask for another boot.
    BootAnew {
        /// Attempt of the step.
        attempt: u32,
        /// Generation.
        generation: u64,
    },
    /// The machine has lost its agent too often.
    GiveUp,
}

impl Facts {
    /// The boot that counts: this operation's, else the newest.
    #[must_use]
    pub fn recorded(&self) -> Option<Boot> {
        self.own.or(self.latest)
    }

    /// The newest generation that is recorded or known: agents of older ones are not heard.
    fn newest(&self) -> u64 {
        let recorded = [self.own, self.latest].into_iter().flatten().map(|boot| boot.generation);
        recorded.fold(self.known_generation, u64::max)
    }

    /// This operation has recorded a boot of which no agent has reported, and of which one would be heard.
    fn begun(&self) -> bool {
        let open = |boot: Boot| !boot.bound && !boot.retired && boot.generation == self.newest();
        self.phase == StepPhase::Running && self.own.is_some_and(open)
    }

    /// The agent of this boot may show itself by itself: nobody has seen it come and go, and it has no reason to be gone.
    fn may_return(&self, boot: Boot) -> bool {
        // One that wrote a system has left for it.
        let left = self.own.is_none() && self.provisioned;
        !self.seen && !left && !boot.retired && (boot.bound || self.begun())
    }

    /// After a restart of this process: the agent of this boot is waited for. One that had work gets as long as it would have got from a process
    /// that knew it, unless the machine is seen to be off: a reset in the middle of its work costs more than waiting.
    fn reconnecting(&self, boot: Boot, patience: &Patience) -> Option<Decision> {
        if !self.may_return(boot) {
            return None;
        }
        if self.waited < patience.reconnect {
            return Some(Decision::AwaitReport);
        }
        if !self.in_work || self.waited >= patience.in_work {
            return None;
        }
        match self.power {
            Fact::Unasked => Some(Decision::AskPower),
            Fact::Known(Some(false)) => None,
            // A BMC that cannot be asked says nothing against it.
            Fact::Known(_) => Some(Decision::AwaitWorker),
        }
    }
}

/// What to do so that the agent runs.
#[must_use]
pub fn decide(facts: &Facts, patience: &Patience) -> Decision {
    let recorded = facts.recorded();
    match facts.agent.map(|agent| agent.judge(facts.own.is_some_and(|boot| !boot.bound))) {
        Some(Judged::Usable) => return Decision::Use,
        Some(Judged::Refused(refusal)) => return Decision::Refuse(refusal),
        Some(Judged::Unusable) | None => {}
    }
    if let Some(boot) = recorded.filter(|boot| !boot.retired) {
        if facts.begun() && facts.inserting == Some(boot.generation) {
            return Decision::GoOnInserting;
        }
        if facts.booted == Some(boot.generation) {
            return Decision::AwaitBoot;
        }
        if let Some(waiting) = facts.reconnecting(boot, patience) {
            return waiting;
        }
    }
    // One whose agent has been seen is that boot's: another needs a generation of its own.
    if facts.begun() && !facts.seen {
        match facts.medium {
            Fact::Unasked => return Decision::AskMedium,
            Fact::Known(true) => return Decision::BootRecorded,
            Fact::Known(false) => {}
        }
    }
    anew(facts)
}

fn anew(facts: &Facts) -> Decision {
    if facts.attempts >= MAX_BOOTS {
        return Decision::GiveUp;
    }
    match facts.newest().checked_add(1) {
        Some(generation) => Decision::BootAnew { attempt: facts.attempts + 1, generation },
        None => Decision::Refuse(Refusal::NoGeneration),
    }
}

/// Whether a step of the operation was given to this boot and has not ended.
#[must_use]
pub fn in_work(status: &HostOperationStatus, boot: &AgentBoot) -> bool {
    let given = |step: &OperationStep| {
        step.phase == StepPhase::Running && step.boot_id.is_some() && step.boot_id == boot.boot_id
    };
    status.steps.iter().any(given)
}
