//! Registration, adoption, release and power.

use async_trait::async_trait;
use provisioner::{Cause, Failure, Manage, Outcome, Power, PowerRequest, RegisterRequest, Registered, Verdict};
use tokio::time::{Duration, Instant};

use crate::control::PowerAction;
use crate::host::NativeHost;

#[async_trait]
impl Manage for NativeHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        if request.credentials_changed {
            self.live.close().await;
        }
        let powered_on = match self.connected().await? {
            (_, Some(facts)) => {
                tracing::info!(host = %self.context.key.name, model = %facts.model, "BMC access checked");
                facts.powered_on
            }
            (bmc, None) => Some(bmc.powered_on().await?),
        };
        let id = if self.context.provisioning_id.is_empty() {
            self.context.key.uid.clone()
        } else {
            self.context.provisioning_id.clone()
        };
        Ok(Verdict::Done(Registered { id, powered_on }))
    }

    async fn adopt(&mut self) -> Outcome<()> {
        self.settle_with_journal();
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self) -> Outcome<()> {
        if self.context.bmc.is_some() {
            let bmc = self.bmc().await?;
            if self.context.journal.latest_boot().is_some() && !self.live.timers().ejected {
                bmc.eject().await?;
            }
        }
        self.live.close().await;
        self.shared.media.withdraw(self.uid());
        self.shared.hub.forget(self.uid());
        self.shared.live.forget(self.uid());
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// Acknowledges an agent's leave whose operation is recorded as ended.
    pub fn settle_with_journal(&self) {
        let newest = self.context.journal.newest();
        self.settle(newest.as_ref().map(|(name, _, phase)| (name.as_str(), *phase)));
    }
}

#[async_trait]
impl Power for NativeHost {
    async fn power_state(&mut self) -> Outcome<bool> {
        self.settle_with_journal();
        let on = self.bmc().await?.powered_on().await?;
        Ok(Verdict::Done(on))
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.settle_with_journal();
        let bmc = self.bmc().await?;
        let wanted = request == PowerRequest::On;
        if bmc.powered_on().await? == wanted {
            *self.live.timers() = Default::default();
            if !wanted {
                self.shared.hub.forget_agent(self.uid());
            }
            return Ok(Verdict::Done(wanted));
        }
        let timing = self.shared.settings.timing;
        let now = Instant::now();
        // A resident agent has nothing mounted: cutting its power harms nobody, and it has no ACPI daemon to ask.
        let soft = request == PowerRequest::SoftOff && self.shared.hub.any_agent(self.uid()).is_none();
        let timers = *self.live.timers();
        let grace_over = timers.soft_off.is_some_and(|since| now.duration_since(since) >= timing.soft_power_off);
        if soft && !grace_over {
            if timers.soft_off.is_none() {
                self.live.timers().soft_off = Some(now);
                bmc.power(PowerAction::SoftOff).await?;
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
                bmc.power(if wanted { PowerAction::On } else { PowerAction::HardOff }).await?;
            }
        }
        Ok(Verdict::working(
            if wanted { "waiting for the machine to power on" } else { "waiting for the power to go" },
            1,
        ))
    }
}

fn stuck(wanted: bool, waited: Duration) -> Failure {
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
