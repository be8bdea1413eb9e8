//! Secure Boot follows the host's boot mode, both ways, as a step of its own: it is in force before the medium goes in. On many BMCs the change is a
//! job of the firmware's setup with a restart of its own, which would use up a boot override.
//!
//! What the BMC reports is no proof: the agent reads the firmware's variables. In Setup Mode there is no platform key and nothing is verified,
//! whatever the setting says.

use agent_protocol::FirmwareState;
use api::metal3::BootMode;
use api::metamorph::StepPhase;
use bmc::{Bmc, BmcError, ErrorKind, PowerAction, SecureBootSeen};
use provisioner::{Cause, Failure, Verdict};
use provisioning_plan::secure_boot::{self, Decision, End, Facts, Fault, Found, Observed, Proof, Waiting};
use provisioning_plan::steps::{Step, Work};
use tokio::time::{Duration, Instant};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::hub::Agent;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::live::{SecureBootWait, unconfirmed, untold};
use crate::record::{done, intend};

/// The message for a BMC that shows nothing of it.
const HIDDEN: &str = "the BMC does not show Secure Boot";

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// What the plan reads off what the BMC shows.
const fn observed(seen: SecureBootSeen) -> Observed {
    Observed { enable: seen.enable, current: seen.current, setup_mode: seen.setup_mode }
}

fn setup_mode(who: &str) -> Failure {
    let text = format!(
        "switch Secure Boot on: {who} the firmware is in Setup Mode: it has no platform key, so that nothing would be verified"
    );
    Failure::new(Cause::HardwareFailed, text).advise("enroll the keys (in the firmware's setup: restore the factory keys), or set spec.bootMode to UEFI; it is tried again")
}

impl NativeHost {
    /// How Secure Boot has to be for this work; `None` if it makes no difference: a wipe boots only the agent, which is signed.
    fn wanted_secure_boot(&self, operation: &Operation) -> Option<bool> {
        let wipes = Work::Clean.recorded(operation.status()) == Work::Clean;
        match self.context.boot_mode {
            _ if wipes => None,
            BootMode::Legacy => None,
            BootMode::Uefi => Some(false),
            BootMode::UefiSecureBoot => Some(true),
        }
    }

    /// Switches Secure Boot as the boot mode wants it, before a boot that is this effect; `None` when that is done.
    pub async fn switch_secure_boot(
        &self,
        operation: &mut Operation,
        bmc: &dyn Bmc,
        effect: Effect,
    ) -> Result<Option<Verdict<String>>, Failure> {
        let Some(wanted) = self.wanted_secure_boot(operation) else { return Ok(None) };
        let (seen, hidden) = match bmc.secure_boot() {
            Ok(secure_boot) => (secure_boot.seen().await.map_err(of_bmc)?, HIDDEN.to_owned()),
            Err(lacking) => (None, lacking.to_string()),
        };
        let observed = seen.map(observed).filter(Observed::tells);
        let wait = {
            let mut timers = self.live.timers();
            timers.shows_secure_boot = observed.is_some();
            timers.secure_boot.clone()
        };
        let waiting = wait.as_ref().map(|wait| Waiting { age: wait.since.elapsed(), asked: wait.asked });
        let step = Step::SwitchSecureBoot.recorded(operation.status());
        let begun = step.phase == StepPhase::Running;
        let limit = self.shared.settings.timing.secure_boot;
        let decision = secure_boot::decide(&Facts { wanted: Some(wanted), observed, begun, waiting, limit });
        match decision {
            Decision::AwaitSight | Decision::AwaitFirmware => {
                let found = || SecureBootWait { since: Instant::now(), asked: false, unanswered: None };
                self.live.timers().secure_boot.get_or_insert_with(found);
            }
            Decision::Go | Decision::Ended(_) | Decision::Fail(Fault::NotObserved | Fault::NotInForce) => {
                self.live.timers().secure_boot = None;
            }
            Decision::Switch { .. } | Decision::Fail(Fault::SetupMode) => {}
        }
        match decision {
            Decision::Go => return Ok(None),
            // A BMC whose machine is in its self-test shows nothing for a while.
            Decision::AwaitSight => {
                return Ok(Some(Verdict::working("waiting for the BMC to show Secure Boot again", 10)));
            }
            Decision::Ended(end) => return self.switch_ended(operation, wanted, end).map(|()| None),
            Decision::Fail(fault) => {
                let unanswered = wait.and_then(|wait| wait.unanswered);
                return Err(not_switched(wanted, fault, limit, &hidden, unanswered.as_deref()));
            }
            Decision::AwaitFirmware => {}
            Decision::Switch { set } => {
                // Do not restart the machine for a boot that cannot happen.
                bmc.virtual_media().map_err(of_bmc)?.find().await.map_err(of_bmc)?;
                let attempt = step.attempt.unwrap_or(0).saturating_add(1);
                intend(operation, Step::SwitchSecureBoot, attempt, None).await?;
                if !self.ask_to_switch(operation, bmc, effect, (wanted, set)).await? {
                    return Ok(None);
                }
            }
        }
        let unanswered = self.live.timers().secure_boot.as_ref().and_then(|wait| wait.unanswered.clone());
        let said = unanswered.map(|said| unconfirmed(&said)).unwrap_or_default();
        let message = format!("waiting for the firmware to switch Secure Boot {}{said}", word(wanted));
        let progress = StepProgress { message: message.clone(), ..StepProgress::default() };
        operation.progress(Step::SwitchSecureBoot.name(), progress).await;
        Ok(Some(Verdict::working(message, 10)))
    }

    fn switch_ended(&self, operation: &mut Operation, wanted: bool, end: End) -> Result<(), Failure> {
        let text = match end {
            End::InForce => format!("Secure Boot is {}", word(wanted)),
            End::Vanished => "the BMC does not show Secure Boot any more".to_owned(),
            End::NeverObserved => {
                tracing::warn!(host = %self.context.key.name, "the BMC does not show that Secure Boot is off, though it is set so");
                self.live.timers().shows_secure_boot = false;
                "the BMC does not show Secure Boot off, though it is set so".to_owned()
            }
        };
        done(operation, Step::SwitchSecureBoot, &text)
    }

    /// Sets it if `set`, and restarts the machine; false if the BMC refuses to switch it off.
    async fn ask_to_switch(
        &self,
        operation: &mut Operation,
        bmc: &dyn Bmc,
        effect: Effect,
        (wanted, set): (bool, bool),
    ) -> Result<bool, Failure> {
        let before = bmc.calls();
        let sent = if set { switch(bmc, wanted).await } else { Ok(()) };
        if let Err(error) = sent {
            if wanted || !error.kind.is_refusal() {
                return Err(of_bmc(error));
            }
            // It cannot be switched off from here, and signed code runs anyway.
            tracing::warn!(host = %self.context.key.name, "Secure Boot stays on, though spec.bootMode is UEFI: {error}");
            self.live.timers().shows_secure_boot = false;
            done(operation, Step::SwitchSecureBoot, "the BMC does not switch Secure Boot off")?;
            return Ok(false);
        }
        // A slow BMC has taken minutes for the setting.
        let (bmc, _) = self.proven(effect).await?;
        let bmc = bmc.as_ref();
        self.still_wanted().await?;
        let unanswered = match bmc.power().change(PowerAction::Restart).await {
            // What is in force later shows whether it happened.
            Err(error) if error.kind == ErrorKind::Unanswered => {
                tracing::warn!(host = %self.context.key.name, "{error}; waiting for Secure Boot all the same");
                Some(untold(&error))
            }
            other => other.map(|()| None).map_err(of_bmc)?,
        };
        Self::account(operation, bmc, before);
        self.shared.hub.forget_agent(self.uid());
        let mut timers = self.live.timers();
        timers.secure_boot = Some(SecureBootWait { since: Instant::now(), asked: true, unanswered });
        timers.power.restarted();
        Ok(true)
    }

    /// Judges the agent's finding of Secure Boot.
    pub fn secure_boot_proof(&self, operation: &Operation, agent: &Agent, booted_for_this: bool) -> Proof {
        let found = agent.firmware.map(|found| Found { on: found.secure_boot, setup_mode: found.setup_mode });
        let shows = self.live.timers().shows_secure_boot;
        secure_boot::proof(self.wanted_secure_boot(operation), found, booted_for_this, shows)
    }
}

/// Why it cannot be brought where the boot mode wants it. `unanswered`: what came back of the restart for it, if that does not tell whether it was made.
fn not_switched(wanted: bool, fault: Fault, limit: Duration, hidden: &str, unanswered: Option<&str>) -> Failure {
    let attempt = format!("switch Secure Boot {}", word(wanted));
    match fault {
        Fault::SetupMode => setup_mode("the BMC says that"),
        Fault::NotObserved => Failure::new(Cause::BmcRefused, format!("{attempt}: {hidden}")).advise(
            "set spec.bootMode to UEFI, or switch Secure Boot on in the firmware's setup and have the BMC's firmware updated; it is tried again",
        ),
        Fault::NotInForce => {
            let seconds = limit.as_secs();
            let text = match unanswered {
                None => format!("{attempt}: {seconds} s after the machine's restart the BMC does not show it"),
                Some(said) => format!(
                    "{attempt}: {seconds} s after the machine was to restart the BMC does not show it; the restart was not confirmed: {said}"
                ),
            };
            Failure::new(Cause::BmcRefused, text).advise(
                "look at the BMC's jobs and at the machine's console; some need a licence for it; it is tried again",
            )
        }
    }
}

/// The agent that was booted for this finds it otherwise.
pub fn disproved(proof: Proof, agent: Option<&Agent>) -> Failure {
    if proof == Proof::NotOn {
        return not_on(agent.and_then(|agent| agent.firmware).unwrap_or_default());
    }
    let text = "switch Secure Boot off: the BMC says that it is off, the agent finds it on";
    Failure::new(Cause::HardwareFailed, text)
        .advise("look at the firmware's setup, and have the BMC's firmware updated; it is tried again")
}

async fn switch(bmc: &dyn Bmc, wanted: bool) -> Result<(), BmcError> {
    bmc.secure_boot()?.set(wanted).await
}

/// What the agent has found instead of Secure Boot.
fn not_on(found: FirmwareState) -> Failure {
    if found.setup_mode {
        return setup_mode("the agent finds that");
    }
    let how = if found.uefi { "finds it off" } else { "was not started by UEFI" };
    Failure::new(Cause::HardwareFailed, format!("switch Secure Boot on: the BMC says that it is on, the agent {how}"))
        .advise("look at the firmware's setup, and have the BMC's firmware updated; it is tried again")
}
