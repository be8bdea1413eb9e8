//! Evidence of why a host does not do what it should: what its BMC says, and what this server knows by itself.
//!
//! Nothing is done to the machine, and nothing is booted for it. It also looks when the BMC lets nobody in: then the way to it is the evidence. The connection that the host has
//! is used, or else one of its own, which is ended afterwards. The BMC is sent a password only if it is the recorded one, as for all else (`redfish/src/session.rs`), and of a
//! machine that is not the host's nothing is told.
//!
//! While the firmware applies settings, the BMC is left alone: its answers would say little, and some BMCs are slow enough then.

use std::sync::Arc;

use agent_protocol::AgentState;
use async_trait::async_trait;
use bmc::{Bmc, BmcError, ErrorKind};
use diagnosis::{Access, AgentFacts, Connection, Contact, Evidence, MOST_CALLS, MediumReads, PowerFacts, Reading};
use inventory::BmcPin;
use jiff::{SignedDuration, Timestamp};
use machine_identity::Common;
use provisioner::{Cause, Diagnose, EvidenceBudget, Failure, Outcome, Verdict};
use tokio::time::{Duration, Instant, timeout};

use crate::differences::differences;
use crate::host::NativeHost;
use crate::media::Reads;
use crate::redaction::without_secrets;

/// Longest time of one look.
const MOST_TIME: Duration = Duration::from_secs(120);
/// Lines of the agent's that are shown.
const MAX_LINES: usize = 24;
/// Longest line, characters.
const MAX_LINE: usize = 300;
const FLASHING: &str = "the firmware applies settings: the BMC is left alone meanwhile";

#[async_trait]
impl Diagnose for NativeHost {
    async fn evidence(&mut self, budget: EvidenceBudget) -> Outcome<Box<Evidence>> {
        let look = bmc::EvidenceBudget {
            now: (self.context.now)(),
            calls: budget.calls.min(MOST_CALLS),
            bytes: budget.bytes,
            time: Duration::from_millis(budget.milliseconds).min(MOST_TIME),
        };
        Ok(Verdict::Done(Box::new(self.gathered(&look).await?)))
    }
}

impl NativeHost {
    /// All evidence that there is now, within the budget.
    ///
    /// # Errors
    /// Another process leads, or the record cannot be read.
    pub async fn gathered(&self, budget: &bmc::EvidenceBudget) -> Result<Evidence, Failure> {
        if !(self.context.may_act)() {
            return Err(Failure::new(Cause::NotLeading, "look for what is wrong: another process leads"));
        }
        let mut found = if self.live.timers().firmware.is_some() {
            left_alone(budget.now)
        } else {
            self.of_machine(budget).await?
        };
        found.ours.medium = self.medium_reads(budget.now);
        found.ours.agent = self.agent_facts(budget.now);
        self.note_media(&mut found);
        found.differences = match (self.context.hardware.as_deref(), found.parts.read()) {
            (Some(before), Some(parts)) => Reading::Read(differences(before, parts, &found.whole)),
            (None, _) => Reading::NotAvailable("the host has no HardwareData".to_owned()),
            (_, None) => Reading::Skipped("the parts were not read".to_owned()),
        };
        Ok(self.without_medium(found).bounded())
    }

    /// Without the id of the host's medium, wherever a BMC has written it: who may read a diagnosis may not fetch the medium.
    fn without_medium(&self, found: Evidence) -> Evidence {
        match self.shared.media.offered_id(self.uid()) {
            Some(id) if !id.is_empty() => found.with_texts(|text| text.replace(&id, "[hidden]")),
            _ => found,
        }
    }

    /// What the BMC says.
    async fn of_machine(&self, budget: &bmc::EvidenceBudget) -> Result<Evidence, Failure> {
        let recorded = self.context.machine.recorded().await?;
        let pin = recorded.as_ref().map(|record| record.pin.clone()).unwrap_or_default();
        let (bmc, own) = match self.for_evidence(&pin).await {
            Ok(connection) => connection,
            Err(error) => return Ok(unread(budget.now, &error.to_string())),
        };
        let found = match bmc.diagnostics() {
            // The reader keeps to its time by itself; this is for one that does not.
            Ok(diagnostics) => timeout(budget.time * 2, diagnostics.evidence(budget))
                .await
                .map_err(|_| Failure::new(Cause::BmcUnreachable, "look for what is wrong: the BMC took too long")),
            Err(lacking) => Ok(without_diagnostics(bmc.as_ref(), budget.now, &lacking.to_string()).await),
        };
        let sight = match (&found, recorded.and_then(|record| record.bmc)) {
            (Ok(found), Some(before)) if tells_of_machine(found) => Some((before, bmc.look().await)),
            _ => None,
        };
        let known = machine_identity::is_pinned(&pin) && machine_identity::holds(&pin, &bmc.pin());
        if own {
            bmc.close().await;
            if let Ok(found) = &found
                && is_refused(found)
                && let Ok(access) = self.access()
            {
                self.live.note_refused(&self.shared.connectors, access, bmc);
            }
        }
        let mut found = found?;
        match sight {
            None => {}
            // It is not known whose machine was read.
            Some((_, Err(_))) if known => {}
            Some((_, Err(error))) => {
                withhold(&mut found, &format!("which machine answers there could not be read ({error})"));
            }
            Some((before, Ok(sight))) => {
                if let machine_identity::Finding::Mismatch { differences } =
                    machine_identity::compare(&before, &sight.evidence, &Common::default())
                {
                    let why = format!("another machine than the host's answers there ({})", differences.join("; "));
                    withhold(&mut found, &why);
                    // What its BMC has said is another host's, too.
                    if let Reading::Read(access) = &mut found.access {
                        access.answers.clear();
                        (access.account, access.root) = (Reading::Failed(why.clone()), Reading::Failed(why));
                    }
                    (found.skipped, found.whole) = (Vec::new(), Vec::new());
                }
            }
        }
        Ok(found)
    }

    /// The connection that the host has, or a new one that was not tried yet and is the caller's to end.
    async fn for_evidence(&self, pin: &BmcPin) -> Result<(Arc<dyn Bmc>, bool), BmcError> {
        let access = self.access()?;
        if let Some(bmc) = self.live.open(&self.shared.connectors, access).await {
            return Ok((bmc, false));
        }
        // What was refused is known: an account is not brought nearer to its lock by asking why.
        if let Some(bmc) = self.live.refused_with(&self.shared.connectors, access) {
            return Ok((bmc, false));
        }
        let bmc = crate::live::unopened(&self.shared.connectors, access, pin)?;
        Ok((bmc, true))
    }

    /// What was read of the medium that the machine was to boot from.
    fn medium_reads(&self, now: Timestamp) -> Reading<MediumReads> {
        let Some((reads, size)) = self.shared.media.offered_reads(self.uid()) else {
            return Reading::NotAvailable("no medium is on offer for the host".to_owned());
        };
        let Reads { requests, bytes } = reads.counted;
        Reading::Read(MediumReads {
            inserted: self.last_start().map(|at| before(now, at)),
            first: reads.first.map(|at| before(now, at)),
            last: reads.last.map(|at| before(now, at)),
            bytes,
            size: Some(size),
            requests,
            tls_refused: 0,
        })
    }

    /// When the machine was last to start from the medium that is on offer, whether its agent is still waited for or was given up.
    fn last_start(&self) -> Option<Instant> {
        self.shared.media.offered_id(self.uid())?;
        let newest = self.journal.latest_boot()?.generation;
        let (booted, tried) = {
            let timers = self.live.timers();
            (timers.booted, timers.tried)
        };
        booted.or(tried).filter(|(generation, _)| *generation == newest).map(|(_, at)| at)
    }

    /// What the agent has said.
    fn agent_facts(&self, now: Timestamp) -> Reading<AgentFacts> {
        let started = self.live.timers().booted.map(|(_, at)| before(now, at));
        let agent = self.shared.hub.last_agent(self.uid());
        let said = self.shared.hub.said(self.uid());
        let lines: Vec<&str> = said.lines().collect();
        if started.is_none() && agent.is_none() && lines.is_empty() {
            return Reading::NotAvailable(
                "this server has booted no agent on the machine since it was started".to_owned(),
            );
        }
        let newest = lines.len().saturating_sub(MAX_LINES);
        let step = agent.as_ref().and_then(|agent| match &agent.state {
            AgentState::Idle => None,
            AgentState::Running { command, .. } | AgentState::Finished { command, .. } => {
                Some(terms::clean(&command.step, MAX_LINE))
            }
        });
        Reading::Read(AgentFacts {
            started,
            heard: agent.map(|agent| before(now, agent.seen)),
            step,
            lines: lines[newest..].iter().map(|line| terms::clean(&without_secrets(line), MAX_LINE)).collect(),
            ..AgentFacts::default()
        })
    }

    /// Which drive has this server's medium, and what the machine was to boot.
    fn note_media(&self, found: &mut Evidence) {
        let ours: Vec<String> = self.bases.media.iter().filter_map(|base| host_of(base)).collect();
        if let Reading::Read(media) = &mut found.media {
            for slot in &mut media.slots {
                slot.ours = slot.image_host.as_ref().map(|host| ours.contains(host));
            }
        }
        let booted = self.live.timers().booted.is_some() || self.last_start().is_some();
        if let Reading::Read(boot) = &mut found.boot
            && booted
        {
            boot.wanted_target = Some("Cd".to_owned());
        }
    }
}

/// Host and port of an address.
fn host_of(base: &str) -> Option<String> {
    let url = url::Url::parse(base).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

/// The time at which this was, by the clock that says `now`.
fn before(now: Timestamp, at: Instant) -> Timestamp {
    let elapsed = SignedDuration::try_from(at.elapsed()).unwrap_or_default();
    now.checked_sub(elapsed).unwrap_or(now)
}

/// Evidence without a word of the BMC's.
fn unread(now: Timestamp, why: &str) -> Evidence {
    let mut found = Evidence { taken: Some(now), ..Evidence::default() };
    found.access = Reading::Failed(without_secrets(why));
    withhold(&mut found, why);
    found
}

/// Of a BMC whose protocol has nothing for a diagnosis, a look tells whether it can be reached, and the power.
async fn without_diagnostics(bmc: &dyn Bmc, now: Timestamp, lacking: &str) -> Evidence {
    let mut found = unread(now, lacking);
    match bmc.look().await {
        Ok(sight) => {
            let state = sight.powered_on.map(|on| if on { "On" } else { "Off" }.to_owned());
            found.power = Reading::Read(PowerFacts { state, ..PowerFacts::default() });
        }
        Err(error) => {
            let connection = Connection {
                contact: contact(error.kind),
                status: error.status(),
                text: without_secrets(&error.to_string()),
                tries: 1,
            };
            found.access = Reading::Read(Access { connection: Reading::Read(connection), ..Access::default() });
        }
    }
    found
}

/// Whether anything is told of the machine or its BMC.
const fn tells_of_machine(found: &Evidence) -> bool {
    found.power.read().is_some()
        || found.parts.read().is_some()
        || found.logs.read().is_some()
        || found.tasks.read().is_some()
        || found.manager.read().is_some()
}

/// Whether the BMC has refused user and password.
fn is_refused(found: &Evidence) -> bool {
    let answers = found.access.read().map(|access| access.answers.as_slice()).unwrap_or_default();
    answers.iter().any(|answer| answer.sign_in && matches!(answer.status, Some(400..=403)))
}

/// How a connection ended, as far as a failed call tells.
const fn contact(kind: ErrorKind) -> Contact {
    match kind {
        ErrorKind::Timeout => Contact::TimedOut,
        ErrorKind::TlsNotTrusted => Contact::UnknownAuthority,
        ErrorKind::NoCommonTls => Contact::Handshake,
        ErrorKind::AnotherBmc => Contact::NotThePinned,
        ErrorKind::Unauthorized | ErrorKind::SessionLimit | ErrorKind::Busy { .. } | ErrorKind::Rejected { .. } => {
            Contact::Answered
        }
        _ => Contact::Other,
    }
}

fn left_alone(now: Timestamp) -> Evidence {
    let skipped = || FLASHING.to_owned();
    Evidence {
        taken: Some(now),
        access: Reading::Skipped(skipped()),
        power: Reading::Skipped(skipped()),
        boot: Reading::Skipped(skipped()),
        media: Reading::Skipped(skipped()),
        parts: Reading::Skipped(skipped()),
        tasks: Reading::Skipped(skipped()),
        logs: Reading::Skipped(skipped()),
        manager: Reading::Skipped(skipped()),
        ..Evidence::default()
    }
}

/// Takes out what is told of the machine.
fn withhold(found: &mut Evidence, why: &str) {
    let failed = || without_secrets(why);
    found.power = Reading::Failed(failed());
    found.boot = Reading::Failed(failed());
    found.media = Reading::Failed(failed());
    found.parts = Reading::Failed(failed());
    found.tasks = Reading::Failed(failed());
    found.logs = Reading::Failed(failed());
    found.manager = Reading::Failed(failed());
}
