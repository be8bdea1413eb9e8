//! A machine was reset to boot the agent, and the agent is silent: what the BMC shows identifies the cause. If the boot cannot have happened, it
//! is requested once more.

use std::time::Duration;

use api::metamorph::AgentBoot;
use bmc::{Bmc, BmcError, BootStanding, Drive, LogEntry};
use provisioner::{Cause, Failure, Outcome};
use provisioning_plan::silence::{self, LOOKED_INTO, Sight, Silence};
use provisioning_plan::steps::Step;
use tokio::time::timeout;

use crate::boot::amount;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::journal::{Operation, StepProgress};
use crate::media::Reads;

/// Length of the part of a medium's name that identifies it.
const TELLING: usize = 16;

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

/// Most entries of the BMC's log that are reported.
const MAX_ENTRIES: usize = 2;
/// Time for reading the log.
const LOG_TIME: Duration = Duration::from_secs(60);
/// Longest part of an entry in a message, characters.
const MAX_ENTRY: usize = 160;

/// The newest critical entries of the BMC's log, which may name the cause; none if it cannot be read.
async fn log_of(bmc: &dyn Bmc) -> Vec<LogEntry> {
    let Ok(logs) = bmc.logs() else { return Vec::new() };
    match timeout(LOG_TIME, logs.newest_critical(MAX_ENTRIES)).await {
        Ok(Ok(entries)) => entries,
        Ok(Err(error)) => {
            tracing::info!(%error, "the BMC's log cannot be read");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// The entries in one sentence, without addresses, because a medium's address is secret.
fn describe_log(entries: &[LogEntry], urls: &[String]) -> Option<String> {
    let secrets: Vec<&str> = urls.iter().filter_map(|url| url.rsplit('/').next()?.get(..TELLING)).collect();
    let is_hidden = |word: &str| word.contains("://") || secrets.iter().any(|secret| word.contains(secret));
    let entries = entries.iter().take(MAX_ENTRIES).map(|entry| {
        let words = entry.message.split_whitespace().map(|word| if is_hidden(word) { "[hidden]" } else { word });
        let text: String = words.collect::<Vec<_>>().join(" ").chars().take(MAX_ENTRY).collect();
        let time = entry.created.as_deref().map(|time| format!(" ({time})")).unwrap_or_default();
        format!("\"{text}\"{time}")
    });
    let entries: Vec<String> = entries.collect();
    (!entries.is_empty()).then(|| format!("the newest critical entries of the BMC's log are {}", entries.join(", ")))
}

impl NativeHost {
    /// The agent of this boot has not reported for `limit` since the reset.
    pub async fn silent(&self, operation: &mut Operation, boot: &AgentBoot, limit: Duration) -> Outcome<String> {
        let (before, now) = (self.live.timers().read_before, self.shared.media.reads(self.uid()));
        let again = self.live.timers().again == Some(boot.generation);
        // A BMC that caches the medium reads nothing the second time.
        let earlier = if again { self.live.timers().read_first } else { 0 };
        let read = now.bytes.saturating_sub(before.bytes).max(earlier);
        let mut sight = None;
        let (mut tried, mut log) = (String::new(), None);
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
            let urls = medium.as_ref().map(|medium| medium.urls.clone()).unwrap_or_default();
            // A boot of another operation is not repeated here.
            let current = operation.status().boot.as_ref().is_some_and(|current| current.generation == boot.generation);
            let seen = self.shared.hub.has_seen(self.uid(), boot.generation);
            let ended = silence::Boot { read, current, again, seen, medium: medium.is_some() };
            if let Some(medium) = medium.filter(|_| ended.once_more()) {
                let silence = Silence::of(sight.as_ref().map(observed), read, false);
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
            let calls = bmc.calls();
            log = describe_log(&log_of(bmc.as_ref()).await, &urls);
            Self::account(operation, bmc.as_ref(), calls);
            tried = if again { ", a second time".to_owned() } else { String::new() };
        }
        self.live.timers().booted = None;
        let silence = Silence::of(sight.as_ref().map(observed), read, self.live.timers().override_forgotten);
        let reads = Reads { bytes: read, requests: now.requests };
        let mut failure =
            self.failure(silence, &format!("{} s after the reset{tried}", limit.as_secs()), reads, sight.as_ref());
        if let Some(log) = log {
            failure.message = format!("{}; {log}", failure.message);
        }
        if let Some(guess) = self.guess() {
            failure.message = format!("{}; {guess}", failure.message);
        }
        Err(failure)
    }

    fn failure(&self, silence: Silence, when: &str, reads: Reads, sight: Option<&BootSight>) -> Failure {
        let mut text = format!("boot the agent: {when} it has not reported; {}", silence.found());
        if reads.bytes > 0 {
            text = format!("{text} ({} of the medium have been read)", amount(reads.bytes));
        }
        // A machine that has read its system was reset.
        let unanswered = self.live.timers().unanswered.clone().filter(|_| silence != Silence::ReadAndSilent);
        if let Some(said) = unanswered {
            text = format!("{text}; the reset was not confirmed: {said}");
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
fn observed(sight: &BootSight) -> Sight {
    let has_medium = match sight.drive {
        Drive::Medium => Some(true),
        Drive::Another | Drive::Empty => Some(false),
        Drive::Unknown => None,
    };
    Sight { has_medium, powered_on: sight.standing.powered_on, override_ahead: sight.standing.override_ahead }
}
