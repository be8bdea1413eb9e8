//! Bringing the agent up: use the running agent, wait for one, or boot the machine?
//!
//! A boot is recorded before it happens, with its own generation, which belongs to the first boot that reports. So a recorded boot without a
//! report is continued at the same generation; one that has reported, was seen or is retired is never repeated; and no machine is reset while an
//! agent may return in the middle of this operation's work, unless the reset is forced.

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
    /// It has ended a command, of any operation, and reports that.
    Ended,
    /// A command of this operation.
    Own,
    /// A command of another operation. Only a boot stops it, and proves that it has stopped.
    Other,
}

/// An agent's protocol beside this server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Older: it finishes its work and gets no new work.
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

/// Whether a living agent is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It works for this operation, or can be given work.
    Usable,
    /// Not usable: another boot replaces it.
    Unusable,
    /// Not usable, and another boot would not help, for this reason.
    Refused(Refusal),
}

/// Why work is refused although the agent could be booted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Secure Boot is not as the boot mode wants it.
    SecureBoot(Proof),
    /// The agent that was booted for this comes from an old image.
    OldImage,
    /// The record names the last possible generation: it was edited.
    NoGeneration,
}

impl Agent {
    /// Whether it is usable; `fresh`: the recorded boot is this operation's, and its agent has not been used yet.
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
            // It matched when it got its work, and is not reset in the middle of it.
            Proof::Differs if self.work == Work::Own => Judged::Usable,
            Proof::Differs => self.left(fresh),
            refused @ (Proof::NotOn | Proof::StillOn) => Judged::Refused(Refusal::SecureBoot(refused)),
        }
    }

    /// An agent that was booted for this operation and speaks an older protocol comes from an old image: another boot changes nothing.
    fn left(&self, fresh: bool) -> Judged {
        if fresh && self.protocol == Protocol::Older { Judged::Refused(Refusal::OldImage) } else { Judged::Unusable }
    }
}

/// A fact that is gathered when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// Not gathered yet.
    Unasked,
    /// The answer.
    Known(T),
}

/// Everything that counts.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The boot that this operation has recorded.
    pub current: Option<Boot>,
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
    /// Another boot is requested, even if the agent is still awaited or at work.
    pub forced: bool,
}

/// How long to wait for an agent that was running before this process started.
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
    /// Gather whether the machine is on.
    AskPower,
    /// Wait for the agent that was at work before this process began.
    AwaitWorker,
    /// Gather whether the recorded medium can be offered again.
    AskMedium,
    /// Repeat the recorded boot at the same address: whether it happened is unknown, and no agent has reported.
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
        self.current.or(self.latest)
    }

    /// Another boot is asked for, and this operation has one to give up. An agent that has ended its work only tells of it: it does not hang. Nor is one
    /// given up that has not had its time to report since this process began.
    fn has_to_boot_anew(&self, patience: &Patience) -> bool {
        let Some(current) = self.current.filter(|_| self.forced) else { return false };
        let ended = self.agent.is_some_and(|agent| agent.work == Work::Ended);
        let unreported = self.agent.is_none() && self.booted != Some(current.generation) && self.may_return(current);
        !(ended || unreported && self.waited < patience.reconnect)
    }

    /// The newest generation that is recorded or known: reports of older ones are refused.
    fn newest(&self) -> u64 {
        let recorded = [self.current, self.latest].into_iter().flatten().map(|boot| boot.generation);
        recorded.fold(self.known_generation, u64::max)
    }

    /// This operation has recorded a boot without a report so far, and a report would be accepted.
    fn begun(&self) -> bool {
        let open = |boot: Boot| !boot.bound && !boot.retired && boot.generation == self.newest();
        self.phase == StepPhase::Running && self.current.is_some_and(open)
    }

    /// The agent of this boot may still report by itself: this process has not seen it, and it has no reason to be gone.
    fn may_return(&self, boot: Boot) -> bool {
        // An agent that wrote a system has left for it.
        let left = self.current.is_none() && self.provisioned;
        !self.seen && !left && !boot.retired && (boot.bound || self.begun())
    }

    /// After a restart of this process, waits for the agent of this boot. One with work gets as long as from a process that knew it, unless the
    /// machine is seen to be off: a reset in the middle of its work costs more than waiting.
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
            // If the BMC cannot be asked, keep waiting.
            Fact::Known(_) => Some(Decision::AwaitWorker),
        }
    }
}

/// What to do so that the agent runs.
#[must_use]
pub fn decide(facts: &Facts, patience: &Patience) -> Decision {
    let recorded = facts.recorded();
    if facts.has_to_boot_anew(patience) {
        // What somebody asks for is no attempt that failed.
        let again = matches!(facts.phase, StepPhase::Running | StepPhase::Done) && facts.attempts > 0;
        return anew(facts, facts.attempts.saturating_add(u32::from(!again)));
    }
    match facts.agent.map(|agent| agent.judge(facts.current.is_some_and(|boot| !boot.bound))) {
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
    // A generation whose agent was seen belongs to that boot: another boot needs a new one.
    if facts.begun() && !facts.seen {
        match facts.medium {
            Fact::Unasked => return Decision::AskMedium,
            Fact::Known(true) => return Decision::BootRecorded,
            Fact::Known(false) => {}
        }
    }
    if facts.attempts >= MAX_BOOTS {
        return Decision::GiveUp;
    }
    anew(facts, facts.attempts + 1)
}

fn anew(facts: &Facts, attempt: u32) -> Decision {
    match facts.newest().checked_add(1) {
        Some(generation) => Decision::BootAnew { attempt, generation },
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
