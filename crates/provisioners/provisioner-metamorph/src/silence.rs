//! A machine was reset to boot the agent, and the agent is silent: what the BMC shows of it tells the cause. Where the boot cannot have
//! come about, it is asked for once more.

use std::time::Duration;

use api::metamorph::AgentBoot;
use bmc::{Bmc, BmcError, BootStanding, Drive};
use provisioner::{Cause, Failure, Outcome};

use crate::boot::{BOOT_AGENT, amount};
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::media::Reads;

/// Firmware and BMC look into a medium without booting from it; a kernel alone has more bytes than this.
const LOOKED_INTO: u64 = 1 << 20;

/// What the BMC says of a boot from the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Why no agent has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// The medium is not in the drive any more.
    Ejected,
    /// The machine is off.
    Off,
    /// The boot from the medium is still ahead: the machine has not restarted.
    ResetIgnored,
    /// The BMC took the boot override and did not keep it.
    OverrideForgotten,
    /// The machine started from something else.
    NeverRead,
    /// The medium has been looked into since, which need not have been a boot.
    LookedInto,
    /// The machine has read its system, and it does not report.
    ReadAndSilent,
}

impl Silence {
    /// What the BMC shows, and how much of the medium has been read since the reset.
    fn of(sight: Option<&BootSight>, read: u64, override_forgotten: bool) -> Self {
        if read >= LOOKED_INTO {
            return Self::ReadAndSilent;
        }
        let unseen = if read > 0 { Self::LookedInto } else { Self::NeverRead };
        let Some(sight) = sight else { return unseen };
        if matches!(sight.drive, Drive::Empty | Drive::Another) {
            Self::Ejected
        } else if sight.standing.powered_on == Some(false) {
            Self::Off
        } else if sight.standing.override_ahead == Some(true) {
            Self::ResetIgnored
        } else if override_forgotten {
            Self::OverrideForgotten
        } else {
            unseen
        }
    }

    /// What was found, after «N s after the reset the agent has not reported».
    fn found(self) -> &'static str {
        match self {
            Self::Ejected => "the medium is no longer in the BMC's drive",
            Self::Off => "the machine is off",
            Self::ResetIgnored => {
                "the boot from the medium is still ahead: the BMC accepted the reset, but the machine has not restarted"
            }
            Self::OverrideForgotten => {
                "nothing has booted from the medium: the BMC accepted the boot override and did not keep it"
            }
            Self::NeverRead => "nothing has read the medium since, though the machine should have restarted",
            Self::LookedInto => "the firmware has looked into the medium, or the machine stopped early in its boot",
            Self::ReadAndSilent => "the machine has read its system from the medium",
        }
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
            if let Some(medium) = medium.filter(|_| own && !again && !seen) {
                let silence = Silence::of(sight.as_ref(), read, false);
                tracing::warn!(host = %self.context.key.name, "no agent after {} s: {}; it is booted once more", limit.as_secs(), silence.found());
                let message = format!("{}; the boot is asked for once more", silence.found());
                operation.progress(BOOT_AGENT, StepProgress { message, ..StepProgress::default() }).await;
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
        let silence = Silence::of(sight.as_ref(), read, self.live.timers().override_forgotten);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_silence_has_its_cause() {
        let sight = |drive, powered_on, override_ahead| {
            let standing = BootStanding { powered_on, override_ahead, progress: None };
            BootSight { standing, drive }
        };
        let (on, off) = (Some(true), Some(false));
        let used = Some(false);
        for (sight, read, forgotten, expected) in [
            (Some(sight(Drive::Medium, on, used)), 40 << 20, false, Silence::ReadAndSilent),
            (Some(sight(Drive::Empty, on, used)), 40 << 20, false, Silence::ReadAndSilent),
            (Some(sight(Drive::Empty, on, used)), 0, true, Silence::Ejected),
            (Some(sight(Drive::Another, off, None)), 0, false, Silence::Ejected),
            (Some(sight(Drive::Medium, off, Some(true))), 0, false, Silence::Off),
            (Some(sight(Drive::Medium, on, Some(true))), 64 << 10, false, Silence::ResetIgnored),
            (Some(sight(Drive::Unknown, None, Some(true))), 0, false, Silence::ResetIgnored),
            (Some(sight(Drive::Medium, on, used)), 0, true, Silence::OverrideForgotten),
            (Some(sight(Drive::Medium, on, used)), 64 << 10, false, Silence::LookedInto),
            (None, 64 << 10, false, Silence::LookedInto),
            (Some(sight(Drive::Medium, on, used)), 0, false, Silence::NeverRead),
            (Some(sight(Drive::Unknown, None, None)), 0, false, Silence::NeverRead),
            (None, 0, false, Silence::NeverRead),
        ] {
            assert_eq!(Silence::of(sight.as_ref(), read, forgotten), expected, "{sight:?} {read} {forgotten}");
        }
    }
}
