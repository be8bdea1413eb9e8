//! Logs of a machine on request: what its BMC has written, and what the agents that ran on it have.
//!
//! Nothing is done to the machine: the BMC is asked for no more than its logs, and only if the machine is the host's. Who may see a host need not see what
//! its BMC and agents were given: words that look like secrets are taken out.

use std::time::Duration;

use api::metamorph::CollectedLog;
use async_trait::async_trait;
use bmc::{BmcLog, LogEntry};
use provisioner::{Failure, Logs, Outcome, Verdict};
use tokio::time::timeout;

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;
use crate::redaction::without_secrets;

/// Time for reading all logs of a BMC.
const WITHIN: Duration = Duration::from_secs(120);
/// Whose log it is that agents write.
const AGENT: &str = "agent";

#[async_trait]
impl Logs for NativeHost {
    async fn collect(&mut self) -> Outcome<Vec<CollectedLog>> {
        let said = self.shared.hub.said(self.uid());
        let text: String = said.lines().flat_map(|line| [without_secrets(line), "\n".to_owned()]).collect();
        let omitted = u32::try_from(said.omitted()).ok().filter(|omitted| *omitted > 0);
        let missing = text.is_empty().then(|| {
            "this server has heard no agent of the host since it was started, or it was let go since".to_owned()
        });
        let agent = CollectedLog { source: AGENT.to_owned(), text, omitted, missing };
        // An agent's log is there all the same if the BMC fails, and may say why.
        let mut logs = match self.of_bmc().await {
            Ok(logs) => logs,
            Err(failure) if agent.text.is_empty() => return Err(failure),
            Err(failure) => vec![lacking(&failure.text())],
        };
        logs.push(agent);
        Ok(Verdict::Done(logs))
    }
}

impl NativeHost {
    async fn of_bmc(&self) -> Result<Vec<CollectedLog>, Failure> {
        let (bmc, _) = self.proven(Effect::Look).await?;
        let logs = match bmc.logs() {
            Ok(logs) => logs,
            Err(lacking_logs) => return Ok(vec![lacking(&lacking_logs.to_string())]),
        };
        let Ok(read) = timeout(WITHIN, logs.all()).await else {
            return Ok(vec![lacking(&format!(
                "the BMC's logs were not read to the end within {} s",
                WITHIN.as_secs()
            ))]);
        };
        let read = read.map_err(of_bmc)?;
        if read.is_empty() {
            return Ok(vec![lacking("the BMC lists no log of the hardware")]);
        }
        Ok(read.iter().map(shown).collect())
    }
}

/// Why there is no log of the BMC's.
fn lacking(why: &str) -> CollectedLog {
    CollectedLog { source: "bmc".to_owned(), missing: Some(why.to_owned()), ..CollectedLog::default() }
}

/// The log with its newest entry last.
fn shown(log: &BmcLog) -> CollectedLog {
    let line = |entry: &LogEntry| {
        let (created, severity) = (entry.created.as_deref(), entry.severity.as_deref());
        format!("{} {}: {}\n", created.unwrap_or("-"), severity.unwrap_or("-"), without_secrets(&entry.message))
    };
    let older = log.more.filter(|older| *older > 0);
    CollectedLog {
        source: format!("bmc/{}", log.name),
        text: log.entries.iter().rev().map(line).collect(),
        omitted: older.map(|older| u32::try_from(older).unwrap_or(u32::MAX)),
        missing: log.unread.clone().or_else(|| log.entries.is_empty().then(|| "it is empty".to_owned())),
    }
}
