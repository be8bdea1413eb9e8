//! Power: the machine is looked at, the plan says what is next ([`provisioning_plan::power`]), and the order that it names is given.

use async_trait::async_trait;
use bmc::{Bmc, BmcError, ErrorKind, PowerAction};
use provisioner::{Cause, Failure, Health, HealthState, Outcome, Power, PowerRequest, PowerWish, Verdict};
use provisioning_plan::power::{Answer, Decision, Look, Patience, Unseen};
use tokio::time::Duration;

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::live::Restart;
use crate::live::{LiveHost, Timers};

/// Owner of the orders that no operation gives.
const STEADY: &str = "";

/// What the power is to be, and for what.
pub struct Aim<'a> {
    /// The wish.
    pub wish: PowerWish,
    /// The operation that wishes it.
    pub of: &'a str,
    /// What counts where the BMC does not tell.
    pub unseen: Unseen,
    /// The power may be cut.
    pub may_cut: bool,
}

/// How far the power is.
pub enum Brought {
    /// The machine is as wished.
    There,
    /// An order has been given, with this answer.
    Ordered(PowerAction, Answer),
    /// An order is outstanding, perhaps one for the other direction.
    Waiting(PowerAction),
    /// The BMC does not tell, and nothing was ordered.
    Unreported,
}

#[async_trait]
impl Power for NativeHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        self.settle(self.is_told_to_run()).await;
        self.journal.end_abandoned().await?;
        self.live.attempt().rests();
        self.journal.restart_is_over().await?;
        let (bmc, sight) = self.proven(Effect::Look).await?;
        self.health = Some(HealthState { level: sight.health, power_failure: false });
        self.remembers_what_runs().await;
        self.forgotten_test_goes().await;
        self.listens(&bmc, sight.health).await;
        let mut timers = self.live.timers();
        timers.power.saw(sight.powered_on);
        Ok(Verdict::Done(timers.power.last()))
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        let wish = request.power;
        self.settle(self.is_told_to_run()).await;
        self.journal.end_abandoned().await?;
        self.live.attempt().rests();
        let may_cut = !self.context.disable_power_off;
        if wish.on() || may_cut {
            self.journal.restart_is_over().await?;
        } else if self.journal.data().restart {
            // The host could not note it: the annotation that asked for it is still there.
            let known = self.live.timers().restart;
            match known {
                Restart::Made => return Ok(Verdict::Done(true)),
                Restart::Unknown => return Err(restarted_perhaps()),
                Restart::Over => {}
            }
        }
        // A live system is started with its medium in the drive, be it switched on or, where the power is never cut, restarted.
        self.recall_live(self.context.deployed.as_ref());
        let starts_live = self.live_matters() && (wish.on() || !may_cut);
        let effect = if starts_live { Effect::Live } else { Effect::Power };
        let seen = self.proven(effect).await;
        // One that is off is not switched.
        let is_off = seen.as_ref().is_ok_and(|(_, sight)| sight.powered_on == Some(false));
        if self.context.deleting && !wish.on() && !is_off {
            self.context.past.knows_before_deletion(&self.journal.data().on_machine())?;
        }
        let (mut bmc, mut sight) = seen?;
        // One that is as wished is not started.
        let is_so = sight.powered_on == Some(wish.on());
        if starts_live && !is_so && !self.is_live_ready() {
            if let Some(working) = self.ready_to_start(bmc.as_ref()).await? {
                return Ok(Verdict::Working(working));
            }
            // That took time, be it seconds: another machine may be behind the BMC, and this one may have been switched on.
            (bmc, sight) = self.proven(effect).await?;
            if self.context.deleting && !wish.on() && sight.powered_on != Some(false) {
                self.context.past.knows_before_deletion(&self.journal.data().on_machine())?;
            }
        }
        if wish.on() && !is_so && self.starts_without_given().await {
            (bmc, sight) = self.proven(effect).await?;
        }
        let aim = Aim { wish, of: STEADY, unseen: Unseen::Remembered, may_cut };
        let order = match self.bring_power(bmc.as_ref(), &aim, sight.powered_on).await? {
            Brought::There => {
                {
                    let mut timers = self.live.timers();
                    *timers = Timers { power: timers.power.remembered(), ..Timers::default() };
                }
                if !wish.on() {
                    self.shared.hub.forget_agent(self.uid());
                    self.journal.retire_boot().await?;
                }
                return Ok(Verdict::Done(wish.on()));
            }
            Brought::Ordered(order, answer) => {
                if !matches!(order, PowerAction::On | PowerAction::SoftOff) {
                    // In any case, the agent is gone or will report again.
                    self.shared.hub.forget_agent(self.uid());
                }
                let restarted = restarts(order);
                if restarted {
                    // The next start is another one.
                    self.live.timers().live_ready = None;
                }
                if restarted && answer == Answer::Lost {
                    return Err(restarted_perhaps());
                }
                // An effect that will not be seen cannot be awaited.
                let unseen = sight.powered_on.is_none() && order != PowerAction::SoftOff && answer == Answer::Taken;
                if restarted || unseen {
                    return Ok(Verdict::Done(order.on()));
                }
                order
            }
            Brought::Waiting(order) => order,
            Brought::Unreported => return Err(unreported()),
        };
        Ok(Verdict::working(waiting(wish, order), if order == PowerAction::SoftOff { 2 } else { 1 }))
    }
}

/// The look at the power shows it, too: the BMC is not asked twice.
#[async_trait]
impl Health for NativeHost {
    async fn state(&mut self) -> Outcome<HealthState> {
        let state = match self.health {
            Some(seen) => seen,
            None => HealthState { level: self.proven(Effect::Look).await?.1.health, power_failure: false },
        };
        Ok(Verdict::Done(state))
    }
}

/// What is waited for, in words.
const fn waiting(wish: PowerWish, order: PowerAction) -> &'static str {
    match (wish.on(), order) {
        (true, PowerAction::SoftOff | PowerAction::HardOff) => {
            "waiting for the machine to power off, as it was told before, so that it is powered on"
        }
        (true, _) => "waiting for the machine to power on",
        (false, PowerAction::SoftOff) => "waiting for the machine to power off",
        (false, PowerAction::HardOff) => "waiting for the power to go",
        (false, _) => "waiting for the machine to power on, as it was told before, so that it is powered off",
    }
}

impl NativeHost {
    /// Brings the power of a machine that shows `sight` one step on to where it is wished.
    pub async fn bring_power(&self, bmc: &dyn Bmc, aim: &Aim<'_>, sight: Option<bool>) -> Result<Brought, Failure> {
        let timing = self.shared.settings.timing;
        let patience = Patience { soft: timing.soft_power_off, hard: timing.power_change };
        let look = Look {
            wish: aim.wish,
            of: aim.of,
            sight,
            unseen: aim.unseen,
            agent: self.shared.hub.any_agent(self.uid()).is_some(),
            may_cut: aim.may_cut,
            now: self.live.since.elapsed(),
        };
        let decision = self.live.timers().power.decide(&look, &patience);
        match decision {
            Decision::Done => Ok(Brought::There),
            Decision::Wait { order, .. } => Ok(Brought::Waiting(order)),
            Decision::Unreported => Ok(Brought::Unreported),
            Decision::Failed { answered, after } => Err(stuck(aim.wish.on(), answered, after)),
            Decision::Ask(order) => self.order_power(bmc, aim.of, order, sight.is_some()).await,
        }
    }

    async fn order_power(
        &self,
        bmc: &dyn Bmc,
        of: &str,
        order: PowerAction,
        observed: bool,
    ) -> Result<Brought, Failure> {
        self.still_wanted().await?;
        let unseen = restarts(order);
        if unseen {
            self.live.timers().restart = Restart::Over;
            self.journal.restarts().await?;
            self.live.timers().restart = Restart::Unknown;
        }
        let sending = Sending { live: &self.live, order, of, observed };
        let sent = bmc.power().change(order).await;
        let answer = answer(order, sent.as_ref().err());
        sending.ended(answer);
        match answer {
            _ if !unseen => {}
            Answer::Taken => self.live.timers().restart = Restart::Made,
            Answer::Lost => {}
            // It is asked for again.
            Answer::Unclear | Answer::Refused | Answer::NotGiven => self.journal.restart_is_over().await?,
        }
        match (order, answer, sent) {
            (_, Answer::Taken, _)
            // The BMC cannot do a soft power-off: the power is cut next.
            | (PowerAction::SoftOff, Answer::Refused, _)
            // The machine will show whether it happened.
            | (_, Answer::Lost, _) => Ok(Brought::Ordered(order, answer)),
            (_, _, sent) => sent.map(|()| Brought::Ordered(order, answer)).map_err(of_bmc),
        }
    }

    /// Cuts the power for this operation; true once the machine is seen off, or was cut off if the BMC does not show its power.
    pub async fn hard_off(&self, bmc: &dyn Bmc, of: &str) -> Result<bool, Failure> {
        let seen = bmc.look().await.map_err(of_bmc)?.powered_on;
        let aim = Aim { wish: PowerWish::HardOff, of, unseen: Unseen::Ordered, may_cut: true };
        Ok(match self.bring_power(bmc, &aim, seen).await? {
            Brought::There => true,
            // An effect that the BMC does not show cannot be awaited.
            Brought::Ordered(_, Answer::Taken) => seen.is_none(),
            Brought::Ordered(..) | Brought::Waiting(_) | Brought::Unreported => false,
        })
    }
}

/// An order on its way. One whose call is abandoned may still be carried out: it counts as one whose answer was lost.
struct Sending<'a> {
    live: &'a LiveHost,
    order: PowerAction,
    of: &'a str,
    observed: bool,
}

impl Sending<'_> {
    fn ended(self, answer: Answer) {
        self.note(answer);
        std::mem::forget(self);
    }

    fn note(&self, answer: Answer) {
        let Self { live, order, of, observed } = *self;
        live.timers().power.answered(order, answer, of, observed, live.since.elapsed());
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.note(Answer::Lost);
    }
}

/// Nothing shows whether such an order was carried out.
const fn restarts(order: PowerAction) -> bool {
    matches!(order, PowerAction::Restart | PowerAction::SoftRestart)
}

/// The result of this order, whose exchange ended like this.
fn answer(order: PowerAction, error: Option<&BmcError>) -> Answer {
    match error.map(|error| &error.kind) {
        None => Answer::Taken,
        Some(ErrorKind::Unanswered | ErrorKind::Timeout) => Answer::Lost,
        Some(ErrorKind::Unreachable) => Answer::Unclear,
        // It may be carried out all the same. What else is ordered is seen, or ordered again.
        Some(kind) if restarts(order) && kind.is_refusal() && !kind.is_definite_refusal() => Answer::Lost,
        Some(kind) if kind.is_refusal() => Answer::Refused,
        Some(_) => Answer::NotGiven,
    }
}

/// A power change that the BMC has accepted, or may have, and that does not happen.
fn stuck(wanted: bool, answered: bool, waited: Duration) -> Failure {
    let word = if wanted { "on" } else { "off" };
    let answer = if answered { "the BMC accepted it, but" } else { "the BMC's answer was lost, and" };
    let text = format!("power the machine {word}: {answer} {} s later the machine is not {word}", waited.as_secs());
    Failure::new(Cause::BmcRefused, text)
        .advise("look at the machine's front panel and the BMC's log; it is tried again")
}

/// Whether the machine was restarted is not known: some BMCs show it, by the time of the last reset, and this one has not.
fn restarted_perhaps() -> Failure {
    let text = "restart the machine: the BMC's answer was lost or tells nothing, or the server ended before it had noted that, and the BMC does not show whether the restart was made";
    let mut failure = Failure::new(Cause::BmcUnreachable, text).advise(
        "look at the machine's console or its uptime; if it was not restarted, set the annotation reboot.metal3.io again: a restart is not repeated unasked",
    );
    failure.retry = provisioner::Retry::Unknown;
    failure
}

/// The BMC does not report the power when it must.
pub fn unreported() -> Failure {
    let mut failure = Failure::new(Cause::BmcRefused, "the BMC does not tell the machine's power any more")
        .advise("look at the machine's console, and at the BMC; it is looked at again");
    failure.retry = provisioner::Retry::Waiting;
    failure
}
