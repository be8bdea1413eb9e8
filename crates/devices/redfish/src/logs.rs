//! Logs of system and manager (schemas LogService, LogEntry), as far as a diagnosis needs them: the newest critical entries.
//!
//! A log has thousands of entries, in either order, paged or whole: reads the first page, and also the last one if it has the newest.

use bmc::{BmcError, LogEntry, MAX_LOG_ENTRIES};
use serde_json::Value;

use crate::client::Client;
use crate::json::{flag, link, link_at, links, text, word};
use crate::resources::drive_name;
use crate::text::{MAX_FIELD, clean};

const WHAT: &str = "read the BMC's log";
/// Most logs that are read.
const MAX_LOGS: usize = 3;
/// Most entries of a page that are looked at.
const MAX_LOOKED_AT: usize = 4096;
/// Most entries read one by one at each end of a list that has only their links.
const ONE_BY_ONE: usize = 2;
/// Entries at the end of a long log.
const LAST: u64 = 50;

impl Client {
    /// The newest critical entries, at most `most`.
    ///
    /// # Errors
    /// [`BmcError`] when the request fails; a log that the BMC does not show is left out.
    pub async fn critical_entries(&self, most: usize) -> Result<Vec<LogEntry>, BmcError> {
        let mut found = Vec::new();
        for log in self.logs().await? {
            let Some(entries) = self.get_optional(&log).await?.and_then(|log| link_at(&log, "Entries")) else {
                continue;
            };
            for entry in self.entries(&entries).await? {
                found.extend(self.critical(&entry));
            }
        }
        // All times of one BMC have the same format; entries without one sort as old.
        found.sort_by(|a: &LogEntry, b| b.created.cmp(&a.created));
        found.dedup();
        found.truncate(most.min(MAX_LOG_ENTRIES));
        Ok(found)
    }

    /// Paths of the logs of the system and its first manager, those about the hardware first.
    async fn logs(&self) -> Result<Vec<String>, BmcError> {
        let system = self.known_system(WHAT).await?;
        let manager = match self.managers(WHAT, &system).await {
            Ok(managers) => managers.into_iter().next(),
            Err(fault) if fault.status().is_some() => None,
            Err(fault) => return Err(fault.into()),
        };
        let mut lists: Vec<String> = system.logs.into_iter().collect();
        if let Some(manager) = manager {
            lists.extend(self.get_optional(&manager).await?.and_then(|manager| link_at(&manager, "LogServices")));
        }
        let mut logs = Vec::new();
        for list in lists {
            logs.extend(self.get_optional(&list).await?.map(|list| links(list.get("Members"))).unwrap_or_default());
        }
        logs.sort_by_key(|path| rank(path));
        logs.dedup();
        logs.truncate(MAX_LOGS);
        Ok(logs)
    }

    /// The entries of a list that may be the newest.
    async fn entries(&self, list: &str) -> Result<Vec<Value>, BmcError> {
        let Some(first) = self.get_optional(list).await? else { return Ok(Vec::new()) };
        let mut found = members(&first);
        if found.iter().all(|entry| word(entry, "Message").is_none()) {
            let ends = found.len().saturating_sub(ONE_BY_ONE);
            let mut read = Vec::new();
            for (at, entry) in found.iter().enumerate() {
                if let Some(path) = link(entry).filter(|_| at < ONE_BY_ONE || at >= ends) {
                    read.extend(self.get_optional(&path).await?);
                }
            }
            return Ok(read);
        }
        let count = first.get("Members@odata.count").and_then(Value::as_u64).unwrap_or_default();
        let rises =
            found.first().and_then(|entry| word(entry, "Created")) <= found.last().and_then(|e| word(e, "Created"));
        if rises && first.get("Members@odata.nextLink").is_some() && count > found.len() as u64 {
            let last = format!("{list}?$skip={}", count.saturating_sub(LAST));
            found.extend(self.get_optional(&last).await?.map(|page| members(&page)).unwrap_or_default());
        }
        Ok(found)
    }

    /// The resource, unless the BMC refuses it or the answer is unreadable: some logs exceed the limit on answers.
    async fn get_optional(&self, path: &str) -> Result<Option<Value>, BmcError> {
        match self.core.get(WHAT, path).await {
            Ok(reply) => Ok(Some(reply.value)),
            Err(fault) if fault.status().is_some() || fault.is_nonsense() => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    fn critical(&self, entry: &Value) -> Option<LogEntry> {
        let severity = word(entry, "Severity").or_else(|| word(entry, "MessageSeverity"))?;
        if !severity.eq_ignore_ascii_case("Critical") || flag(entry, "Resolved") == Some(true) {
            return None;
        }
        // Hidden before it is cut: half a password is too much.
        let whole = word(entry, "Message")?;
        let whole = whole.get(..whole.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default();
        let message = clean(&self.core.without_secrets(whole), MAX_FIELD);
        if message.is_empty() {
            return None;
        }
        Some(LogEntry { created: text(entry, "Created").filter(|time| is_time(time)), message })
    }
}

/// Longest message that is looked at, bytes.
const MAX_MESSAGE: usize = 4096;

/// Whether this is a date and time (ISO 8601) in Redfish's form, and no other text from the BMC.
fn is_time(text: &str) -> bool {
    text.len() <= 40
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "TZ:+.- ".contains(c))
}

fn members(list: &Value) -> Vec<Value> {
    let Some(Value::Array(items)) = list.get("Members") else { return Vec::new() };
    items.iter().take(MAX_LOOKED_AT).cloned().collect()
}

/// Ranks logs: hardware first, then unknown ones, then audit logs and dumps.
fn rank(path: &str) -> u8 {
    let name = drive_name(path);
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if is(&["iml", "sel", "event", "fault", "log1"]) => 0,
        () if is(&["audit", "security", "journal", "dump", "crash"]) || name == "sl" => 2,
        () => 1,
    }
}
