//! Logs of system and manager (schemas LogService, LogEntry): the newest critical entries for a diagnosis, or the newest of each log for people.
//!
//! A log has thousands of entries, in either order, paged or whole: reads the first page, and also the last one if it has the newest.

use bmc::{BmcError, BmcLog, LogEntry, MAX_COLLECTED, MAX_LOG_ENTRIES};
use serde_json::Value;

use crate::client::Client;
use crate::json::MAX_FIELD;
use crate::json::{flag, link, link_at, links, text, word};
use crate::resources::drive_name;
use terms::clean;

const WHAT: &str = "read the BMC's log";
/// Most logs that are read.
const MAX_LOGS: usize = 3;
/// Most entries of a page that are looked at.
const MAX_LOOKED_AT: usize = 4096;
/// How much of a list of entries is read.
#[derive(Clone, Copy)]
struct Depth {
    /// Entries at the end of a list that goes on.
    last: u64,
    /// Entries read one by one at each end of a list that has only their links.
    one_by_one: usize,
}

/// For a diagnosis.
const GLANCE: Depth = Depth { last: 50, one_by_one: 2 };
/// For people.
const COLLECTION: Depth = Depth { last: MAX_COLLECTED as u64, one_by_one: 8 };
/// Longest name of a log, characters.
const MAX_NAME: usize = 64;

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
            for entry in self.entries(&entries, GLANCE).await?.into_iter().flat_map(|entries| entries.found) {
                found.extend(self.critical(&entry));
            }
        }
        // All times of one BMC have the same format; entries without one sort as old.
        found.sort_by(|a: &LogEntry, b| b.created.cmp(&a.created));
        found.dedup();
        found.truncate(most.min(MAX_LOG_ENTRIES));
        Ok(found)
    }

    /// The newest entries of each log that is not about who has signed in.
    ///
    /// # Errors
    /// [`BmcError`] when a request fails; a log that the BMC does not show says so.
    pub async fn collected_logs(&self) -> Result<Vec<BmcLog>, BmcError> {
        let mut found = Vec::new();
        for path in self.logs().await? {
            let name = clean(&drive_name(&path), MAX_NAME).replace(' ', "-");
            if rank(&path) == AUDIT {
                continue;
            }
            let list = self.get_optional(&path).await?.and_then(|log| link_at(&log, "Entries"));
            let read = match &list {
                Some(list) => self.entries(list, COLLECTION).await?,
                None => None,
            };
            let Some(read) = read else {
                let unread = Some("the BMC does not show its entries, or their list is too long to be read".to_owned());
                found.push(BmcLog { name, unread, ..BmcLog::default() });
                continue;
            };
            let more = read.total.map(|total| total.saturating_sub(read.found.len() as u64));
            let mut entries: Vec<LogEntry> =
                read.found.iter().filter(|entry| !is_audit(entry)).filter_map(|entry| self.entry(entry)).collect();
            entries.sort_by(|a, b| b.created.cmp(&a.created));
            entries.dedup();
            let cut = entries.len().saturating_sub(MAX_COLLECTED) as u64;
            entries.truncate(MAX_COLLECTED);
            let more = more.map(|more| more.saturating_add(cut)).or((cut > 0).then_some(cut));
            found.push(BmcLog { name, entries, more, unread: None });
        }
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

    /// The entries of a list that may be the newest, as many as `depth` says; `None` if the BMC does not show it.
    async fn entries(&self, list: &str, depth: Depth) -> Result<Option<Entries>, BmcError> {
        let Some(first) = self.get_optional(list).await? else { return Ok(None) };
        let total = first.get("Members@odata.count").and_then(Value::as_u64);
        let mut found = members(&first);
        if found.iter().all(|entry| word(entry, "Message").is_none()) {
            let ends = found.len().saturating_sub(depth.one_by_one);
            let mut read = Vec::new();
            for (at, entry) in found.iter().enumerate() {
                if let Some(path) = link(entry).filter(|_| at < depth.one_by_one || at >= ends) {
                    read.extend(self.get_optional(&path).await?);
                }
            }
            return Ok(Some(Entries { found: read, total }));
        }
        let count = total.unwrap_or_default();
        let rises =
            found.first().and_then(|entry| word(entry, "Created")) <= found.last().and_then(|e| word(e, "Created"));
        if rises && first.get("Members@odata.nextLink").is_some() && count > found.len() as u64 {
            let last = format!("{list}?$skip={}", count.saturating_sub(depth.last));
            found.extend(self.get_optional(&last).await?.map(|page| members(&page)).unwrap_or_default());
        }
        Ok(Some(Entries { found, total }))
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
        let severity = severity(entry)?;
        if !severity.eq_ignore_ascii_case("Critical") || flag(entry, "Resolved") == Some(true) {
            return None;
        }
        self.entry(entry)
    }

    /// The entry, if it says something.
    fn entry(&self, entry: &Value) -> Option<LogEntry> {
        // Hidden before it is cut: half a password is too much.
        let whole = word(entry, "Message")?;
        let whole = whole.get(..whole.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default();
        let message = clean(&self.core.without_secrets(whole), MAX_FIELD);
        if message.is_empty() {
            return None;
        }
        let severity = severity(entry).map(|severity| clean(severity, MAX_WORD)).filter(|word| !word.is_empty());
        Some(LogEntry { created: text(entry, "Created").filter(|time| is_time(time)), severity, message })
    }
}

/// Entries of a list, and how many the BMC says that there are.
struct Entries {
    found: Vec<Value>,
    total: Option<u64>,
}

fn severity(entry: &Value) -> Option<&str> {
    word(entry, "Severity").or_else(|| word(entry, "MessageSeverity"))
}

/// Whether it is about who has used the BMC, from where: iDRAC writes such entries, of the category Audit, among those about the hardware.
pub(crate) fn is_audit(entry: &Value) -> bool {
    let of_vendor = |vendor: &Value| word(vendor, "Category").is_some_and(|word| word.eq_ignore_ascii_case("audit"));
    entry.get("Oem").and_then(Value::as_object).is_some_and(|oem| oem.values().any(of_vendor))
        || word(entry, "MessageId").is_some_and(|id| id.rsplit('.').next().is_some_and(tells_of_users))
}

/// Whether messages of this id are about who has used the BMC: Dell's, and those of DMTF's registries.
fn tells_of_users(id: &str) -> bool {
    id.starts_with("USR") || ["Session", "Login", "Logout", "Authentication"].iter().any(|word| id.contains(word))
}

/// Longest word for a severity, characters.
const MAX_WORD: usize = 16;
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

/// The rank of logs about other things than the hardware.
pub(crate) const AUDIT: u8 = 2;

/// Ranks logs: hardware first, then unknown ones, then audit logs and dumps.
pub(crate) fn rank(path: &str) -> u8 {
    let name = drive_name(path);
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if is(&["audit", "security", "journal", "dump", "crash", "session", "login"])
            || matches!(name.as_str(), "sl" | "iel") =>
        {
            AUDIT
        }
        () if is(&["iml", "sel", "event", "fault", "log1"]) => 0,
        () => 1,
    }
}
