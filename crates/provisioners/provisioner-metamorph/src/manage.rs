//! Registration, adoption, release and power.

use async_trait::async_trait;
use bmc::{Bmc, PowerAction};
use provisioner::{Cause, Failure, Manage, Outcome, Power, PowerRequest, RegisterRequest, Registered, Verdict};
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::live::Timers;

#[async_trait]
impl Manage for NativeHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        if request.credentials_changed {
            self.live.close().await;
        }
        let (_, sight) = self.proven(Effect::Look).await?;
        tracing::info!(host = %self.context.key.name, model = %sight.model, "BMC access checked");
        let powered_on = sight.powered_on;
        let id = if self.context.provisioning_id.is_empty() {
            self.context.key.uid.clone()
        } else {
            self.context.provisioning_id.clone()
        };
        Ok(Verdict::Done(Registered { id, powered_on }))
    }

    async fn adopt(&mut self) -> Outcome<()> {
        self.settle_with_journal().await;
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self) -> Outcome<()> {
        match self.journal.cancel_open("the host is let go").await {
            // A namespace that goes takes no new objects.
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
            }
            other => other?,
        }
        if self.context.bmc.is_some() {
            match self.proven(Effect::Boot).await {
                Ok((bmc, _)) if self.journal.latest_boot().is_some() && !self.live.timers().ejected => {
                    // Without a drive there is no medium.
                    if let Ok(media) = bmc.virtual_media() {
                        media.eject().await.map_err(of_bmc)?;
                    }
                }
                Ok(_) => {}
                // What is not this host's machine is let go as it is.
                Err(failure)
                    if matches!(failure.cause, Cause::AnotherMachine | Cause::MachineUnknown)
                        || failure.cause == Cause::RecordUnavailable && self.context.deleting =>
                {
                    tracing::warn!(host = %self.context.key.name, "let go without a call to its BMC: {}", failure.message);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.live.close().await;
        self.shared.media.withdraw(self.uid());
        self.shared.hub.forget(self.uid());
        self.shared.live.forget(&self.context.key.uid);
        self.shared.subjects.forget(&self.context.key.uid);
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// Acknowledges an agent's leave whose operation is recorded as ended.
    pub async fn settle_with_journal(&self) {
        self.journal.show().await;
        let newest = self.journal.newest();
        self.settle(newest.as_ref().map(|newest| (newest.id.as_str(), newest.phase)));
    }
}

#[async_trait]
impl Power for NativeHost {
    async fn power_state(&mut self) -> Outcome<bool> {
        self.settle_with_journal().await;
        let (_, sight) = self.proven(Effect::Look).await?;
        let mut timers = self.live.timers();
        timers.power = sight.powered_on.or(timers.power);
        Ok(Verdict::Done(timers.power.unwrap_or(true)))
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.settle_with_journal().await;
        let (bmc, sight) = self.proven(Effect::Power).await?;
        let wanted = request == PowerRequest::On;
        // One of which nothing is known gets its order.
        let power = sight.powered_on.or(self.live.timers().power);
        if power == Some(wanted) {
            *self.live.timers() = Timers { power, ..Timers::default() };
            if !wanted {
                self.shared.hub.forget_agent(self.uid());
            }
            return Ok(Verdict::Done(wanted));
        }
        if !wanted && self.context.disable_power_off {
            return self.restart_instead(bmc.as_ref()).await;
        }
        let timing = self.shared.settings.timing;
        let now = Instant::now();
        // A resident agent has nothing mounted: cutting its power harms nobody, and it has no ACPI daemon to ask.
        let soft = request == PowerRequest::SoftOff && self.shared.hub.any_agent(self.uid()).is_none();
        let timers = self.live.timers().clone();
        let grace_over = timers.soft_off.is_some_and(|since| now.duration_since(since) >= timing.soft_power_off);
        if soft && !grace_over {
            if timers.soft_off.is_none() {
                match bmc.power().change(PowerAction::SoftOff).await {
                    Ok(()) => self.live.timers().soft_off = Some(now),
                    // A BMC that cannot ask politely: the grace is over before it began.
                    Err(error) if error.kind.is_refusal() => {
                        self.live.timers().soft_off = now.checked_sub(timing.soft_power_off).or(Some(now));
                    }
                    Err(error) => return Err(of_bmc(error)),
                }
            }
            return Ok(Verdict::working("waiting for the machine to power off", 2));
        }
        match timers.power_change {
            Some(since) if now.duration_since(since) >= timing.power_change => {
                self.live.timers().power_change = None;
                return Err(stuck(wanted, timing.power_change));
            }
            Some(_) => {}
            None => {
                self.live.timers().power_change = Some(now);
                let action = if wanted { PowerAction::On } else { PowerAction::HardOff };
                bmc.power().change(action).await.map_err(of_bmc)?;
                if sight.powered_on.is_none() {
                    // There is nothing to wait for: it will not be seen.
                    let mut timers = self.live.timers();
                    (timers.power, timers.power_change, timers.soft_off) = (Some(wanted), None, None);
                }
                if !wanted {
                    // Whether the BMC can be asked again or not: the agent is gone, or it reports once more.
                    self.shared.hub.forget_agent(self.uid());
                }
                if sight.powered_on.is_none() {
                    return Ok(Verdict::Done(wanted));
                }
            }
        }
        Ok(Verdict::working(
            if wanted { "waiting for the machine to power on" } else { "waiting for the power to go" },
            1,
        ))
    }
}

impl NativeHost {
    /// What a host gets that must not be powered off (`spec.disablePowerOff`): a restart, after which it is on. A resident agent has no
    /// ACPI daemon to ask.
    async fn restart_instead(&self, bmc: &dyn Bmc) -> Outcome<bool> {
        let agent = self.shared.hub.any_agent(self.uid()).is_some();
        let action = if agent { PowerAction::Restart } else { PowerAction::SoftRestart };
        bmc.power().change(action).await.map_err(of_bmc)?;
        self.shared.hub.forget_agent(self.uid());
        Ok(Verdict::Done(true))
    }

    /// Cuts the power; true once it is seen gone.
    pub async fn hard_off(&self, bmc: &dyn Bmc) -> Result<bool, Failure> {
        let seen = bmc.look().await.map_err(of_bmc)?.powered_on;
        if seen == Some(false) {
            self.live.timers().power_change = None;
            return Ok(true);
        }
        let limit = self.shared.settings.timing.power_change;
        let since = self.live.timers().power_change;
        match since {
            Some(since) if since.elapsed() >= limit => {
                self.live.timers().power_change = None;
                Err(stuck(false, limit))
            }
            Some(_) => Ok(false),
            None => {
                self.live.timers().power_change = Some(Instant::now());
                bmc.power().change(PowerAction::HardOff).await.map_err(of_bmc)?;
                let mut timers = self.live.timers();
                timers.power = Some(false);
                if seen.is_none() {
                    timers.power_change = None;
                }
                // What a BMC does not show cannot be waited for.
                Ok(seen.is_none())
            }
        }
    }
}

/// A power change that the BMC has accepted and that does not come.
pub fn stuck(wanted: bool, waited: Duration) -> Failure {
    let word = if wanted { "on" } else { "off" };
    Failure::new(
        Cause::BmcRefused,
        format!(
            "power the machine {word}: the BMC accepted it, but {} s later the machine is not {word}",
            waited.as_secs()
        ),
    )
    .advise("look at the machine's front panel and the BMC's log; it is tried again")
}
