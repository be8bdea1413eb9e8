//! Work that takes its time: recorded, told to the machine once, looked at until it is over, recorded as ended.

use std::time::Duration;

use api::metamorph::OperationPhase;
use provisioner::{Cause, Failure, Outcome, Purpose, Retry, Verdict, Waiting, Working};

use crate::host::FixtureHost;
use crate::journal::{Kind, Work, show};
use crate::machines::{Effect, Job, Leaves, Standing, Trouble};

/// What an image weighs, for progress.
const IMAGE_BYTES: u64 = 4 << 30;
/// Longest time between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What is to be done.
pub struct Plan {
    /// Kind of work.
    pub kind: Kind,
    /// How it shows on the machine.
    pub effect: Effect,
    /// What it leaves there.
    pub leaves: Leaves,
    /// How long it takes.
    pub time: Duration,
    /// The last attempt failed: begin anew.
    pub restart: bool,
    /// The machine is to be booted anew in the middle of it.
    pub force_reboot: bool,
}

impl FixtureHost {
    /// Brings the work for this wish one step on.
    pub async fn work(&mut self, plan: Plan, wish: Option<&str>, consent: Option<&str>) -> Outcome<()> {
        if let Some(waiting) = self.ready()? {
            return Ok(Verdict::Waiting(waiting));
        }
        let known = self.journal.data.work.clone().filter(|work| work.is_for(plan.kind, wish));
        match known {
            Some(work) if work.phase == OperationPhase::Succeeded => {
                show(&self.context, &work, None).await;
                Ok(Verdict::Done(()))
            }
            Some(Work { id, phase: OperationPhase::Failed, failure: Some(failure), .. })
                if !plan.restart && self.shared.memory.tells(&self.context.key.uid, &id) =>
            {
                Err(failure)
            }
            Some(work) if work.phase == OperationPhase::Running => self.go_on(plan, work, consent).await,
            _ => self.begin(plan, wish, consent).await,
        }
    }

    /// The machine that answers is the one that the host has had before, if it has had one.
    ///
    /// # Errors
    /// When it is another one.
    pub fn is_the_hosts(&self) -> Result<(), Failure> {
        let found = self.serial();
        let Some(known) = self.journal.data.machine.as_ref().filter(|known| **known != found) else { return Ok(()) };
        let text = format!("use the machine: it is {found}, and the host's is {known}");
        let mut failure = Failure::new(Cause::AnotherMachine, text).advise("correct spec.bmc.address or the cables");
        failure.retry = Retry::Later;
        Err(failure)
    }

    /// Why the machine must not be worked on.
    fn refused(&self, plan: &Plan, consent: Option<&str>) -> Result<Option<Waiting>, Failure> {
        self.is_the_hosts()?;
        let owner = self.owner();
        let found = self.look(|machine| machine.system.clone()).map(|(_, found)| found);
        let foreign = found.filter(|found| !found.is_empty() && *found != owner);
        if let Some(owner) = foreign
            && matches!(plan.leaves, Leaves::System(..) | Leaves::Emptiness)
            && consent != Some(owner.as_str())
        {
            let text = format!("{}: the disk carries the mark of {owner}", plan.kind.step());
            let advice = format!("to overwrite it, annotate the host with metamorph.metal3.io/overwrite-owner={owner}");
            return Err(Failure::new(Cause::ForeignOwner, text).advise(advice));
        }
        let busy = self.look(|machine| machine.has(Trouble::Busy));
        let reason = || "the fixture's machine was made busy".to_owned();
        Ok(busy.then(|| Waiting::Busy { reason: reason(), look_again: Duration::from_secs(5) }))
    }

    async fn begin(&mut self, plan: Plan, wish: Option<&str>, consent: Option<&str>) -> Outcome<()> {
        if let Some(waiting) = self.refused(&plan, consent)? {
            return Ok(Verdict::Waiting(waiting));
        }
        let serial = self.serial();
        self.journal.data.machine.get_or_insert(serial);
        let (work, ended) = self.journal.begin(&self.context, plan.kind, wish);
        if plan.kind == Kind::Provision {
            self.journal.data.unwritten = None;
        }
        self.record(Purpose::Intent).await?;
        if let Some(ended) = ended {
            show(&self.context, &ended, None).await;
        }
        show(&self.context, &work, None).await;
        self.order(&plan, &work).await
    }

    /// Gives the machine its order, whose intent is recorded: a later process repeats it, and the machine carries it out once.
    async fn order(&mut self, plan: &Plan, work: &Work) -> Outcome<()> {
        let job = Job { id: work.id.clone(), effect: plan.effect, leaves: plan.leaves.clone() };
        let (time, now) = (plan.time, self.now());
        let answer = self.tell(job.effect, |machine| Ok((machine.begin(job, time, now), ()))).await;
        match answer {
            Ok(()) => Ok(self.working(work, 0, plan.time)),
            Err(failure) if matches!(failure.cause, Cause::NotLeading | Cause::BmcUnreachable) => Err(failure),
            Err(failure) => self.fail(failure).await,
        }
    }

    async fn go_on(&mut self, plan: Plan, work: Work, consent: Option<&str>) -> Outcome<()> {
        let now = self.now();
        match self.look(|machine| machine.standing(&work.id, now)) {
            Standing::Unknown => match self.refused(&plan, consent)? {
                Some(waiting) => Ok(Verdict::Waiting(waiting)),
                None => self.order(&plan, &work).await,
            },
            Standing::Running { .. } if plan.force_reboot => {
                let (id, time) = (work.id.clone(), plan.time);
                self.tell(Effect::Restart, |machine| Ok((machine.begin_again(&id, time, now), ()))).await?;
                show(&self.context, &work, Some(0)).await;
                Ok(Verdict::Working(Working { accepted: true, ..self.progress(&work, 0, time) }))
            }
            Standing::Running { percent, left } => {
                show(&self.context, &work, Some(percent)).await;
                Ok(self.working(&work, percent, left))
            }
            Standing::Done => {
                let ended = self.journal.end(now, OperationPhase::Succeeded, None);
                if plan.leaves == Leaves::Emptiness {
                    self.journal.data.unwritten = Some(self.context.key.uid.clone());
                }
                self.record(Purpose::Note).await?;
                if let Some(ended) = ended {
                    show(&self.context, &ended, None).await;
                }
                Ok(Verdict::Done(()))
            }
            Standing::Failed => {
                let text = format!("{}: the machine says that it has failed", plan.kind.step());
                let failure = Failure::new(Cause::HardwareFailed, text).of("fixture");
                self.fail(failure.advise("it is tried again")).await
            }
        }
    }

    /// The work has failed: recorded before it is told.
    async fn fail(&mut self, failure: Failure) -> Outcome<()> {
        let ended = self.journal.end(self.now(), OperationPhase::Failed, Some(failure.clone()));
        self.record(Purpose::Note).await?;
        if let Some(work) = ended {
            show(&self.context, &work, None).await;
            self.shared.memory.tells(&self.context.key.uid, &work.id);
        }
        Err(failure)
    }

    fn working(&self, work: &Work, percent: u8, left: Duration) -> Verdict<()> {
        Verdict::Working(self.progress(work, percent, left))
    }

    fn progress(&self, work: &Work, percent: u8, left: Duration) -> Working {
        let bytes = (work.kind == Kind::Provision).then(|| IMAGE_BYTES / 100 * u64::from(percent));
        Working {
            step: work.kind.step().to_owned(),
            percent: Some(percent),
            bytes,
            accepted: matches!(work.kind, Kind::Prepare | Kind::Service),
            look_again: left.min(LOOK_AGAIN),
        }
    }
}
