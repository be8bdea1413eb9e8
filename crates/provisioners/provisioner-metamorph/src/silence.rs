//! A machine was reset to boot the agent, and the agent is silent: what the BMC shows of it tells the cause. Where the boot cannot have
//! come about, it is asked for once more.

use std::time::Duration;

use api::metamorph::AgentBoot;
use bmc::{Bmc, BmcError, BootStanding, Drive};
use provisioner::{Cause, Failure, Outcome};
use provisioning_plan::silence::{self, LOOKED_INTO, Sight, Silence};
use provisioning_plan::steps::Step;

use crate::boot::amount;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::media::Reads;

/// What the BMC says of a boot from the medium.
struct BootSight {
    standing: BootStanding,
    drive: Drive,
}

impl BootSight {
    /// Looked at now. Two calls.
    async fn of(bmc: &dyn Bmc, urls: &[String]) -> Result<Self, BmcError> {
        let standing = bmc.boot_device()?.standing().await?;
        Ok(Self { standing, drive: bmc.virtual_media()?.drive(urls).await? })
    }
}

impl NativeHost {
    /// The agent of this boot has not reported for `limit` since the reset.
    pub async fn silent(&self, operation: &mut Operation, boot: &AgentBoot, limit: Duration) -> Outcome<String> {
        let (before, now) = (self.live.timers().read_before, self.shared.media.reads(self.uid()));
        let again = self.live.timers().again == Some(boot.generation);
        // A BMC that keeps what it has read reads nothing the second time.
        let earlier = if again { self.live.timers().read_first } else { 0 };
        let read = now.bytes.saturating_sub(before.bytes).max(earlier);
        let mut sight = None;
        let mut tried = String::new();
        if read < LOOKED_INTO {
            let (bmc, _) = self.proven(Effect::Boot).await?;
            let calls = bmc.calls();
            let medium = self.medium_of(boot)?;
            if let Some(medium) = &medium {
                sight = match BootSight::of(bmc.as_ref(), &medium.urls).await {
                    Ok(sight) => Some(sight),
                    Err(error) => {
                        tracing::info!(host = %self.context.key.name, %error, "how the boot stands cannot be read");
                        None
                    }
                };
            }
            Self::account(operation, bmc.as_ref(), calls);
            // A boot that another operation asked for is that one's.
            let own = operation.status().boot.as_ref().is_some_and(|own| own.generation == boot.generation);
            let seen = self.shared.hub.has_seen(self.uid(), boot.generation);
            let ended = silence::Boot { read, own, again, seen, medium: medium.is_some() };
            if let Some(medium) = medium.filter(|_| ended.once_more()) {
                let silence = Silence::of(sight.as_ref().map(shown), read, false);
                tracing::warn!(host = %self.context.key.name, "no agent after {} s: {}; it is booted once more", limit.as_secs(), silence.found());
                let message = format!("{}; the boot is asked for once more", silence.found());
                operation.progress(Step::BootAgent.name(), StepProgress { message, ..StepProgress::default() }).await;
                self.intend_again(operation).await?;
                {
                    let mut timers = self.live.timers();
                    (timers.booted, timers.again, timers.read_first) = (None, Some(boot.generation), read);
                }
                return self.bring_up(operation, boot, &medium, bmc).await;
            }
            tried = if again { ", a second time".to_owned() } else { String::new() };
        }
        self.live.timers().booted = None;
        let silence = Silence::of(sight.as_ref().map(shown), read, self.live.timers().override_forgotten);
        let reads = Reads { bytes: read, requests: now.requests };
        Err(self.told(silence, &format!("{} s after the reset{tried}", limit.as_secs()), reads, sight.as_ref()))
    }

    fn told(&self, silence: Silence, when: &str, reads: Reads, sight: Option<&BootSight>) -> Failure {
        let mut text = format!("boot the agent: {when} it has not reported; {}", silence.found());
        if reads.bytes > 0 {
            text = format!("{text} ({} of the medium have been read)", amount(reads.bytes));
        }
        if let Some(progress) = sight.and_then(|sight| sight.standing.progress.as_ref()) {
            text = format!("{text}; the BMC says of its boot: {progress}");
        }
        let base = self.media_bases();
        let advice = match silence {
            Silence::Ejected => {
                "look in the BMC's log for who took it out: a person at its console, or a restart of the BMC".to_owned()
            }
            Silence::Off => "switch the machine on and look at its front panel and the BMC's log".to_owned(),
            Silence::ResetIgnored => "reset the machine by hand and look at its console; restart the BMC".to_owned(),
            Silence::OverrideForgotten => {
                "put virtual media first in the firmware's boot order, and look for a newer firmware of the BMC"
                    .to_owned()
            }
            Silence::NeverRead if reads.requests > 0 => {
                format!("the BMC reaches {base}; check that the firmware's boot order allows virtual media (USB CD)")
            }
            Silence::NeverRead => format!(
                "check that the BMC reaches {base}: it has not asked for the medium at all; and that the firmware's boot order allows virtual media"
            ),
            Silence::LookedInto | Silence::ReadAndSilent => format!(
                "look at the machine's console; its boot order must allow virtual media, and its network reach {} (spec.preprovisioningNetworkDataName, or DHCP)",
                self.bases.agents.join(" or ")
            ),
        };
        Failure::new(Cause::AgentSilent, text).advise(format!("{advice}; it is tried again"))
    }
}

/// What the plan reads off it.
fn shown(sight: &BootSight) -> Sight {
    let has_medium = match sight.drive {
        Drive::Medium => Some(true),
        Drive::Another | Drive::Empty => Some(false),
        Drive::Unknown => None,
    };
    Sight { has_medium, powered_on: sight.standing.powered_on, override_ahead: sight.standing.override_ahead }
}
