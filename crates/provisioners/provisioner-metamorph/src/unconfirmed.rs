//! A machine was reset to boot the agent, and the BMC has not confirmed it. The boot goes on, for the machine may be on its way; what the BMC shows of it
//! meanwhile is told, and a machine that stays off is switched on, which does nothing to one that is on by then.

use std::time::Duration;

use api::metamorph::AgentBoot;
use bmc::{Bmc, BmcError, Drive, PowerAction};
use provisioner::{Cause, Failure, Retry};
use tokio::time::Instant;

use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::Operation;
use crate::live::untold;

/// How long after such a reset the BMC is looked at for it. One that shares its machine's port may lose its link when that starts, and some show the power that
/// they saw seconds ago.
pub const UNCONFIRMED: Duration = Duration::from_secs(20);

/// How long a machine is seen to be off before it counts as one that was not reset: a restart may switch it off and on.
const OFF_STILL: Duration = Duration::from_secs(10);

impl NativeHost {
    /// Looks at the machine, and returns what there is to tell of it, with its end; empty if nothing.
    ///
    /// # Errors
    /// That the BMC is silent: an error of the host, which ends no boot.
    pub async fn look_for_reset(
        &self,
        operation: &mut Operation,
        boot: &AgentBoot,
        said: &str,
    ) -> Result<String, Failure> {
        let looked = self.proven(Effect::Look).await;
        let is_off = matches!(&looked, Ok((_, sight)) if sight.powered_on == Some(false));
        let since = self.live.timers().off_since.filter(|_| is_off).or_else(|| is_off.then(Instant::now));
        self.live.timers().off_since = since;
        let mut failure = match looked {
            Ok(_) if since.is_none_or(|since| since.elapsed() < OFF_STILL) => return Ok(String::new()),
            Ok(_) => return self.start(operation, boot).await,
            Err(failure) => failure,
        };
        match failure.cause {
            Cause::RecordUnavailable | Cause::NotLeading => Err(failure),
            // A deletion counts what keeps it, and goes on without a wipe in the end.
            Cause::BmcUnreachable if !self.context.deleting => {
                failure.message = format!("boot the agent: the reset was not confirmed ({said}): {}", failure.message);
                failure.retry = Retry::Waiting;
                Err(failure)
            }
            // Whatever is done to the machine later asks for itself.
            _ => Ok(format!("{}; ", failure.message)),
        }
    }

    /// Switches the machine on, if it is this operation's boot and its medium is in: it was not reset, and would start what is on its disk else.
    async fn start(&self, operation: &mut Operation, boot: &AgentBoot) -> Result<String, Failure> {
        self.live.timers().off_since = None;
        if operation.status().boot.as_ref().is_none_or(|own| own.generation != boot.generation) {
            // It is booted for this operation.
            self.live.timers().booted = None;
            return Ok("the machine is off; ".to_owned());
        }
        let Some(medium) = self.medium_of(boot).ok().flatten() else { return Ok("the machine is off; ".to_owned()) };
        let bmc = match self.proven(Effect::Boot).await {
            Ok((bmc, _)) => bmc,
            Err(failure) if matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) => {
                return Err(failure);
            }
            Err(failure) => return Ok(format!("the machine is off; {}; ", failure.message)),
        };
        self.still_wanted().await?;
        let calls = bmc.calls();
        let started = start_from_medium(bmc.as_ref(), &medium.urls).await;
        Self::account(operation, bmc.as_ref(), calls);
        Ok(match started {
            Ok(Start::Done) => {
                tracing::warn!(host = %self.context.key.name, "the machine was off after a reset that was not confirmed: it is switched on");
                let mut timers = self.live.timers();
                (timers.booted, timers.unanswered) = (Some((boot.generation, Instant::now())), None);
                timers.tried = timers.booted;
                timers.power.restarted();
                "the machine was off, and is switched on; ".to_owned()
            }
            Ok(Start::Moot) => String::new(),
            Ok(Start::NoMedium) => "the machine is off, and the medium is not seen in its drive any more; ".to_owned(),
            Err(error) => format!("the machine is off, and switching it on has failed ({}); ", untold(&error)),
        })
    }
}

/// What has become of a machine that was seen to be off.
enum Start {
    /// It has been switched on.
    Done,
    /// It is not off any more.
    Moot,
    /// Its medium is not seen to be in.
    NoMedium,
}

/// Switches the machine on if it starts from its medium then.
async fn start_from_medium(bmc: &dyn Bmc, urls: &[String]) -> Result<Start, BmcError> {
    let device = bmc.boot_device()?;
    if device.standing().await?.powered_on != Some(false) {
        return Ok(Start::Moot);
    }
    if bmc.virtual_media()?.drive(urls).await? != Drive::Medium {
        return Ok(Start::NoMedium);
    }
    // An override that is shown may be another one.
    device.once_from_medium().await?;
    bmc.power().change(PowerAction::On).await.map(|()| Start::Done)
}
