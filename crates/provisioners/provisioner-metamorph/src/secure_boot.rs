//! Secure Boot follows the host's boot mode, both ways, as a step of its own: it is in force before the medium goes in. On many BMCs the change is a
//! job of the firmware's setup with a restart of its own, which would use up a boot override.
//!
//! That the BMC says so is no proof: the agent finds it in the firmware's variables. In Setup Mode there is no platform key and nothing is
//! verified, whatever the switch says.

use agent_protocol::FirmwareState;
use api::metal3::BootMode;
use api::metamorph::StepPhase;
use bmc::{Bmc, BmcError, ErrorKind, PowerAction, SecureBootSeen};
use provisioner::{Cause, Failure, Verdict};
use tokio::time::Instant;

use crate::boot::step_of;
use crate::deploy::WIPE;
use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::hub::Agent;
use crate::journal::{Operation, StepProgress};

/// Name of the step; it is in no plan, because it is seldom needed.
const SWITCH: &str = "switch-secure-boot";

/// What is said of a BMC that shows nothing of it.
const HIDDEN: &str = "the BMC does not show Secure Boot";

/// After a restart of this process: the part of the patience after which a change that is not seen is asked for again.
const ASK_AGAIN: u32 = 4;

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// The setting is as wished.
fn is_set(seen: SecureBootSeen, wanted: bool) -> bool {
    seen.enable.or(seen.current) == Some(wanted)
}

/// It is in force as well, as far as the BMC tells.
fn is_in_force(seen: SecureBootSeen, wanted: bool) -> bool {
    is_set(seen, wanted) && seen.current.is_none_or(|current| current == wanted)
}

fn setup_mode(who: &str) -> Failure {
    let text = format!(
        "switch Secure Boot on: {who} the firmware is in Setup Mode: it has no platform key, so that nothing would be verified"
    );
    Failure::new(Cause::HardwareFailed, text).advise("enroll the keys (in the firmware's setup: restore the factory keys), or set spec.bootMode to UEFI; it is tried again")
}

impl NativeHost {
    /// How Secure Boot is to be for this work; `None` where it makes no difference: a wipe boots nothing but the agent, which is signed.
    fn wanted_secure_boot(&self, operation: &Operation) -> Option<bool> {
        let wipes = operation.status().steps.iter().any(|step| step.name == WIPE);
        match self.context.boot_mode {
            _ if wipes => None,
            BootMode::Legacy => None,
            BootMode::Uefi => Some(false),
            BootMode::UefiSecureBoot => Some(true),
        }
    }

    /// Brings Secure Boot where the boot mode wants it, before a boot of the agent; `None` when it is there.
    pub async fn switch_secure_boot(
        &self,
        operation: &mut Operation,
        bmc: &dyn Bmc,
    ) -> Result<Option<Verdict<String>>, Failure> {
        let Some(wanted) = self.wanted_secure_boot(operation) else { return Ok(None) };
        let attempt = format!("switch Secure Boot {}", word(wanted));
        let (seen, hidden) = match bmc.secure_boot() {
            Ok(secure_boot) => (secure_boot.seen().await.map_err(of_bmc)?, HIDDEN.to_owned()),
            Err(lacking) => (None, lacking.to_string()),
        };
        let seen = seen.filter(|seen| seen.enable.or(seen.current).is_some());
        self.live.timers().shows_secure_boot = seen.is_some();
        let step = step_of(operation, SWITCH);
        let begun = step.phase == StepPhase::Running;
        let limit = self.shared.settings.timing.secure_boot;
        let Some(seen) = seen else {
            // A BMC whose machine is in its self-test shows nothing for a while.
            let since = *self.live.timers().secure_boot.get_or_insert_with(|| (Instant::now(), false));
            if begun && since.0.elapsed() < limit {
                return Ok(Some(Verdict::working("waiting for the BMC to show Secure Boot again", 10)));
            }
            self.live.timers().secure_boot = None;
            if begun && !wanted {
                operation.done(SWITCH, "the BMC does not show Secure Boot any more");
            }
            if !wanted {
                return Ok(None);
            }
            return Err(Failure::new(Cause::BmcRefused, format!("{attempt}: {hidden}")).advise(
                "set spec.bootMode to UEFI, or switch Secure Boot on in the firmware's setup and have the BMC's firmware updated; it is tried again",
            ));
        };
        if wanted && seen.setup_mode {
            return Err(setup_mode("the BMC says that"));
        }
        if begun && is_in_force(seen, wanted) {
            self.live.timers().secure_boot = None;
            operation.done(SWITCH, &format!("Secure Boot is {}", word(wanted)));
            return Ok(None);
        }
        // What is set and not in force yet is another's work of the firmware: it is brought to its end here.
        if !begun && is_set(seen, wanted) && seen.current.is_none_or(|current| current == wanted) {
            return Ok(None);
        }
        let asked = self.live.timers().secure_boot;
        match asked {
            Some((since, true)) if begun && since.elapsed() >= limit => {
                self.live.timers().secure_boot = None;
                if !wanted && is_set(seen, wanted) {
                    // Set, and never shown as being in force: some BMCs do not keep that up to date, and what is signed runs.
                    tracing::warn!(host = %self.context.key.name, "the BMC does not show that Secure Boot is off, though it is set so");
                    self.live.timers().shows_secure_boot = false;
                    operation.done(SWITCH, "the BMC does not show Secure Boot off, though it is set so");
                    return Ok(None);
                }
                let text =
                    format!("{attempt}: {} s after the machine's restart the BMC does not show it", limit.as_secs());
                return Err(Failure::new(Cause::BmcRefused, text).advise(
                    "look at the BMC's jobs and at the machine's console; some need a licence for it; it is tried again",
                ));
            }
            Some((_, true)) if begun => {}
            Some((since, false)) if begun && since.elapsed() < limit / ASK_AGAIN => {}
            // Recorded by a process that died: the firmware may be at work on it.
            None if begun => self.live.timers().secure_boot = Some((Instant::now(), false)),
            _ => {
                if !self.ask_for_secure_boot(operation, bmc, seen, wanted).await? {
                    return Ok(None);
                }
            }
        }
        let message = format!("waiting for the firmware to switch Secure Boot {}", word(wanted));
        operation.progress(SWITCH, StepProgress { message: message.clone(), ..StepProgress::default() }).await;
        Ok(Some(Verdict::working(message, 10)))
    }

    /// Sets it and restarts the machine, recorded before. False where it cannot be switched off from here.
    async fn ask_for_secure_boot(
        &self,
        operation: &mut Operation,
        bmc: &dyn Bmc,
        seen: SecureBootSeen,
        wanted: bool,
    ) -> Result<bool, Failure> {
        let attempt = step_of(operation, SWITCH).attempt.unwrap_or(0) + 1;
        operation.intent(SWITCH, attempt, None).await?;
        let before = bmc.calls();
        let set = if is_set(seen, wanted) { Ok(()) } else { set(bmc, wanted).await };
        if let Err(error) = set {
            if wanted || !error.kind.is_refusal() {
                return Err(of_bmc(error));
            }
            // Nobody can switch it off from here, and what is signed runs.
            tracing::warn!(host = %self.context.key.name, "Secure Boot stays on, though spec.bootMode is UEFI: {error}");
            self.live.timers().shows_secure_boot = false;
            operation.done(SWITCH, "the BMC does not switch Secure Boot off");
            return Ok(false);
        }
        match bmc.power().change(PowerAction::Restart).await {
            // Whether it was done is seen by what is in force.
            Err(error) if error.kind == ErrorKind::Unanswered => {}
            other => other.map_err(of_bmc)?,
        }
        Self::account(operation, bmc, before);
        self.shared.hub.forget_agent(self.uid());
        self.live.timers().secure_boot = Some((Instant::now(), true));
        Ok(true)
    }

    /// Whether the agent finds Secure Boot as the boot mode wants it. One that was there before this work is left for a new boot; one that was booted
    /// for it is the proof.
    pub fn proves_secure_boot(
        &self,
        operation: &Operation,
        agent: &Agent,
        booted_for_this: bool,
    ) -> Result<bool, Failure> {
        let (Some(wanted), Some(found)) = (self.wanted_secure_boot(operation), agent.firmware) else { return Ok(true) };
        let on = found.secure_boot && !found.setup_mode;
        if on == wanted {
            return Ok(true);
        }
        if !booted_for_this {
            return Ok(false);
        }
        if wanted {
            return Err(not_on(found));
        }
        if self.live.timers().shows_secure_boot {
            let text = "switch Secure Boot off: the BMC says that it is off, the agent finds it on";
            return Err(Failure::new(Cause::HardwareFailed, text)
                .advise("look at the firmware's setup, and have the BMC's firmware updated; it is tried again"));
        }
        // What the BMC does not show nobody can change from here; what is signed runs.
        tracing::warn!(host = %self.context.key.name, "Secure Boot is on, though spec.bootMode is UEFI, and the BMC does not show it");
        Ok(true)
    }
}

async fn set(bmc: &dyn Bmc, wanted: bool) -> Result<(), BmcError> {
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
