//! Bringing a machine up from its medium: medium in, boot override, reset. If a BMC does not answer the insertion in time, its medium keeps the
//! same address until it is in: another address would restart everything.

use std::sync::Arc;

use api::metamorph::AgentBoot;
use bmc::{Bmc, BmcError, Drive, ErrorKind, Insertion, PowerAction};
use provisioner::{Cause, Failure, Outcome, Verdict};
use provisioning_plan::steps::Step;
use tokio::time::Instant;

use crate::boot::amount;
use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::live::untold;
use crate::media::{Offered, Reads};
use crate::record::intend;
use crate::unconfirmed::UNCONFIRMED;

/// Seconds between looks at a BMC that is inserting a medium.
const LOOK_AGAIN: u64 = 10;

impl NativeHost {
    /// Medium in, boot from it once, reset.
    pub async fn bring_up(
        &self,
        operation: &mut Operation,
        boot: &AgentBoot,
        medium: &Offered,
        bmc: Arc<dyn Bmc>,
    ) -> Outcome<String> {
        self.shared.hub.expect(self.key(), Some(boot));
        let calls = bmc.calls();
        let read = self.shared.media.reads(self.uid());
        // The firmware may boot any medium that is in, and a single drive has to be free.
        if let Some(working) = self.test_medium_first_out(bmc.as_ref()).await? {
            return Ok(Verdict::Working(working));
        }
        if let Some(working) = self.data_medium_out(bmc.as_ref(), false).await? {
            return Ok(Verdict::Working(working));
        }
        if let Some(working) = self.live_medium_out(bmc.as_ref()).await? {
            return Ok(Verdict::Working(working));
        }
        self.live.timers().ejected = false;
        let certificates = self.shared.settings.media_certificates.pem();
        let inserted = match bmc.virtual_media() {
            Ok(media) => media.insert(&medium.urls, certificates.as_deref()).await,
            Err(lacking) => Err(lacking.keeps_from("insert the medium")),
        };
        Self::account(operation, bmc.as_ref(), calls);
        match inserted {
            Ok(Insertion::Done) => self.boot_from(operation, boot).await,
            Ok(Insertion::Pending) => {
                tracing::info!(host = %self.context.key.name, "the BMC has not answered in time; the medium is waited for");
                let since = Instant::now();
                self.live.timers().inserting = Some((boot.generation, since));
                Ok(self.still_inserting(operation, since).await)
            }
            Err(error) => Err(self.not_inserted(error, read)),
        }
    }

    /// Checks whether the medium that the BMC was asked to insert at `since` is in, and continues from there.
    pub async fn go_on_inserting(
        &self,
        operation: &mut Operation,
        boot: &AgentBoot,
        since: Instant,
    ) -> Outcome<String> {
        let over = since.elapsed() >= self.shared.settings.timing.insertion;
        let looked = self.look_at_drive(boot).await;
        let ended = match &looked {
            Ok(drive) => over || matches!(drive, Drive::Medium | Drive::Unknown),
            // Some BMCs answer nothing at all while they read a medium.
            Err(failure) => over || failure.cause != Cause::BmcUnreachable,
        };
        if !ended {
            return Ok(self.still_inserting(operation, since).await);
        }
        self.live.timers().inserting = None;
        let drive = looked?;
        if matches!(drive, Drive::Medium | Drive::Unknown) {
            self.intend_again(operation).await?;
            return self.boot_from(operation, boot).await;
        }
        let (seconds, read) = (since.elapsed().as_secs(), self.shared.media.reads(self.uid()));
        let text = format!(
            "insert the medium: {seconds} s after the BMC was asked, the medium is not in its drive; it has read {} of it",
            amount(read.bytes)
        );
        Err(Failure::new(Cause::BmcRefused, text)
            .advise("look at the BMC's log and restart the BMC; it is tried again"))
    }

    /// Records the same intent again after a wait, so that the machine is reset only if the host has not changed.
    pub async fn intend_again(&self, operation: &mut Operation) -> Result<(), Failure> {
        let attempt = Step::BootAgent.recorded(operation.status()).attempt.unwrap_or(1);
        intend(operation, Step::BootAgent, attempt, None).await
    }

    async fn look_at_drive(&self, boot: &AgentBoot) -> Result<Drive, Failure> {
        let Some(medium) = self.medium_of(boot)? else {
            return Err(Failure::new(Cause::Internal, "insert the medium: it is no longer on offer"));
        };
        let (bmc, _) = self.proven(Effect::Boot).await?;
        let media = bmc.virtual_media().map_err(of_bmc)?;
        media.drive(&medium.urls).await.map_err(of_bmc)
    }

    async fn still_inserting(&self, operation: &mut Operation, since: Instant) -> Verdict<String> {
        let seconds = since.elapsed().as_secs();
        let read = amount(self.shared.media.reads(self.uid()).bytes);
        let message =
            format!("the BMC has not answered that the medium is in; waiting for {seconds} s, it has read {read}");
        operation
            .progress(Step::BootAgent.name(), StepProgress { message: message.clone(), ..StepProgress::default() })
            .await;
        Verdict::working(message, LOOK_AGAIN)
    }

    /// The medium is in: boot from it once, reset.
    async fn boot_from(&self, operation: &mut Operation, boot: &AgentBoot) -> Outcome<String> {
        // The insertion took time, be it seconds: the host may wish otherwise, and another machine may be behind the BMC.
        let asked = async {
            self.still_wanted().await?;
            self.proven(Effect::Boot).await
        };
        let (bmc, _) = match asked.await {
            Ok(proven) => proven,
            Err(failure) => {
                // If the boot is wished again later, it continues from here.
                self.live.timers().inserting = Some((boot.generation, Instant::now()));
                return Err(failure);
            }
        };
        let calls = bmc.calls();
        let result = self.boot_from_calls(boot, bmc.as_ref()).await;
        Self::account(operation, bmc.as_ref(), calls);
        result?;
        let is_confirmed = self.live.timers().unanswered.is_none();
        Ok(Verdict::working("booting the agent", if is_confirmed { 30 } else { UNCONFIRMED.as_secs() }))
    }

    async fn boot_from_calls(&self, boot: &AgentBoot, bmc: &dyn Bmc) -> Result<(), Failure> {
        let device = bmc.boot_device().map_err(of_bmc)?;
        device.once_from_medium().await.map_err(of_bmc)?;
        // After a boot that did not happen, check whether the BMC keeps the override.
        let again = self.live.timers().again == Some(boot.generation);
        let kept = if again { device.standing().await.ok().and_then(|standing| standing.override_ahead) } else { None };
        {
            let mut timers = self.live.timers();
            timers.override_forgotten = kept == Some(false);
            timers.read_before = self.shared.media.reads(self.uid());
            timers.off_since = None;
        }
        let unanswered = match bmc.power().change(PowerAction::Restart).await {
            // A boot will show soon, and a second reset would undo it.
            Err(error) if error.kind == ErrorKind::Unanswered => {
                tracing::warn!(host = %self.context.key.name, "{error}; waiting for the agent all the same");
                Some(untold(&error))
            }
            other => other.map(|()| None).map_err(of_bmc)?,
        };
        let mut timers = self.live.timers();
        timers.booted = Some((boot.generation, Instant::now()));
        timers.tried = timers.booted;
        timers.power.restarted();
        timers.unanswered = unanswered;
        Ok(())
    }

    /// The failure of an insertion. A BMC that refuses a medium has often tried to read it first; `before` is what was read before the request.
    fn not_inserted(&self, error: BmcError, before: Reads) -> Failure {
        // A BMC without a drive has not failed to reach the server.
        let refused = error.kind.is_refusal() && error.kind != ErrorKind::Unsupported;
        let mut failure = of_bmc(error);
        if !refused {
            return failure;
        }
        let base = self.media_bases();
        let now = self.shared.media.reads(self.uid());
        if now.requests > before.requests {
            let read = amount(now.bytes.saturating_sub(before.bytes));
            failure.message =
                format!("{}; it reaches {base} and has read {read} of the medium from there", failure.message);
            return failure;
        }
        let reach = format!("check that the BMC reaches {base}");
        let advice = failure.advice.as_ref().map_or_else(|| reach.clone(), |advice| format!("{reach}; {advice}"));
        failure.advise(advice)
    }
}
