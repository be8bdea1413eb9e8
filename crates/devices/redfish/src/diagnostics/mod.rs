//! Evidence of what is wrong: the way to the BMC, power, start, drives, parts, tasks, logs, in few calls and by reading alone.
//!
//! What tells most for the fewest calls comes first. A collection is read with its members in it where the BMC offers that ([`crate::collection`]'s `$expand`); where it does
//! not, members are read one by one only below something that is not well, and what is left out is listed. Every call goes through the BMC's channel by itself and is made once: a
//! BMC that puts a request off is evidence, and is not waited for.
//!
//! A source that the BMC does not have is "not available", never "healthy". Nothing is followed that a BMC could make endless: of a log one page is read and one more at its end,
//! of a collection the first page; links lead nowhere but to the BMC itself.
//!
//! | file | what |
//! |---|---|
//! | `reader` | one call, its cost, what it has met |
//! | `access` | connection, certificate, sign-in, account |
//! | `system` | power and start, by ComputerSystem |
//! | `chassis` | supplies, fans, temperatures, intrusion, limit of power: old resources and new ones |
//! | `parts` | memory, processors, disks, network ports |
//! | `media` | virtual drives |
//! | `work` | tasks and jobs, the BMC itself |
//! | `entries` | logs; `vendors` how makers write them; `registries` texts of messages |

mod access;
mod chassis;
mod entries;
mod facts;
mod media;
mod parts;
mod reader;
mod registries;
mod system;
mod vendors;
mod work;

use bmc::EvidenceBudget;
use diagnosis::{CallError, Evidence, Reading};

use crate::client::Client;
use reader::{NO_RIGHT, Reader};

/// Failed calls of late that are shown.
const MAX_FAILED: usize = 16;
const NO_WAY: &str = "the BMC cannot be reached";

impl Client {
    /// Evidence, within the budget; see [`bmc::Diagnostics`].
    pub(crate) async fn evidence(&self, budget: &EvidenceBudget) -> Evidence {
        let failed = self.failed_calls();
        let mut reader = Reader::new(self, budget);
        let mut found = Evidence { taken: Some(budget.now), ..Evidence::default() };
        found.ours.calls = Reading::Read(failed);
        let access = reader.access().await;
        if let Some(why) = access.closed {
            let why = || if why { NO_RIGHT.to_owned() } else { NO_WAY.to_owned() };
            found.power = Reading::Skipped(why());
            found.boot = Reading::Skipped(why());
            found.media = Reading::Skipped(why());
            found.parts = Reading::Skipped(why());
            found.tasks = Reading::Skipped(why());
            found.logs = Reading::Skipped(why());
            found.manager = Reading::Skipped(why());
        } else {
            reader.read_machine(&mut found, &access.root).await;
        }
        let mut seen = access.seen;
        reader.finish_access(&mut seen);
        if let Reading::Read(manager) = &mut found.manager {
            manager.full_logs = std::mem::take(&mut reader.full_logs);
        }
        found.access = Reading::Read(seen);
        found.spent = reader.spent();
        found.skipped = std::mem::take(&mut reader.skipped);
        found.whole = std::mem::take(&mut reader.whole_kinds);
        // No place is forgotten: each text goes by here.
        found.with_texts(|text| self.core.without_secrets(text)).bounded()
    }

    /// The last calls that failed, streams of events apart. The ledger has no clock.
    fn failed_calls(&self) -> Vec<CallError> {
        let all = self.core.channel.ledger().entries();
        let failed = all.into_iter().rev().filter(|call| !call.is_beside).filter_map(|call| {
            let (status, text) = match call.outcome {
                bmc::CallOutcome::Status(status) if status < 400 => return None,
                bmc::CallOutcome::Status(status) => (Some(status), format!("answered {status}")),
                bmc::CallOutcome::Failed(kind) => (None, format!("no usable answer: {}", kind.as_str())),
                bmc::CallOutcome::Abandoned => return None,
            };
            let path = terms::clean(&call.path, 200);
            Some(CallError { call: format!("{} {path}", call.method), at: None, status, text })
        });
        let mut failed: Vec<CallError> = failed.take(MAX_FAILED).collect();
        failed.reverse();
        failed
    }
}
