//! Logs of system and manager (schemas LogService, LogEntry): the newest entries, those about who has used the BMC left out.

use std::collections::BTreeMap;

use diagnosis::{LogEntry, Logs, Reading};
use serde_json::Value;

use super::facts::{args, last, number, time};
use super::reader::{Miss, Reader};
use super::vendors;
use crate::json::{flag, link, link_at, links, word};
use crate::logs::{AUDIT, is_audit, rank};

/// Most logs that are read.
const MAX_LOGS: usize = 4;
/// Entries at the end of a list that goes on.
const LAST: u64 = 64;
/// Entries that are read one by one where a list has only their links.
const ONE_BY_ONE: usize = 3;
/// Most entries of a list that are looked at.
const MAX_LOOKED_AT: usize = 4096;
/// Most entries of a log that are kept.
const MAX_KEPT: usize = 160;

impl Reader<'_> {
    /// What the BMC has written down about the hardware.
    pub async fn logs(&mut self, root: &Value, system: &Value, manager: &Value) -> Reading<Logs> {
        let lists = [link_at(system, "LogServices"), link_at(manager, "LogServices")];
        let (mut paths, mut missed) = (Vec::new(), None);
        for list in lists.into_iter().flatten() {
            match self.get(&list).await {
                Ok(list) => paths.extend(links(list.get("Members"))),
                Err(miss) => missed = Some(miss),
            }
        }
        paths.sort_by_key(|path| rank(path));
        paths.dedup();
        paths.retain(|path| rank(path) != AUDIT);
        if paths.is_empty() {
            return missed.map_or_else(
                || Reading::NotAvailable("the BMC lists no log of the hardware".to_owned()),
                Miss::reading,
            );
        }
        for path in paths.iter().skip(MAX_LOGS) {
            self.skip(format!("log {}", self.clean(last(path))), "others tell more of the hardware");
        }
        let mut entries: Vec<LogEntry> = Vec::new();
        let mut read = false;
        for path in paths.iter().take(MAX_LOGS) {
            match self.log(path).await {
                Ok(found) => {
                    read = true;
                    entries.extend(found);
                }
                Err(miss) => {
                    let name = self.clean(last(path));
                    self.missed(&format!("log {name}"), &miss);
                    missed = Some(miss);
                }
            }
        }
        if !read {
            return missed.map_or_else(|| Reading::NotAvailable("no log shows its entries".to_owned()), Miss::reading);
        }
        let registry = self.registry_texts(root, &entries).await;
        Reading::Read(Logs { entries, registry })
    }

    /// The newest entries of one log.
    async fn log(&mut self, path: &str) -> Result<Vec<LogEntry>, Miss> {
        let service = self.get(path).await?;
        let name = self.clean(last(path));
        let Some(list) = link_at(&service, "Entries") else {
            return Err(Miss::Failed("it names no entries".to_owned()));
        };
        let (values, total) = self.list(&list).await?;
        let full =
            number(&service, "MaxNumberOfRecords").zip(total).is_some_and(|(most, total)| most > 0 && total >= most);
        if full && word(&service, "OverWritePolicy") == Some("NeverOverWrites") {
            self.full_logs.push(name.clone());
        }
        let kept = values.iter().filter(|entry| !is_audit(entry) && !vendors::tells_of_users(entry));
        let mut entries: Vec<LogEntry> = kept.map(|entry| self.entry(&name, entry)).collect();
        // The newest first; those without a time as they stand.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.created));
        let left = total.unwrap_or(values.len() as u64).saturating_sub(values.len().min(MAX_KEPT) as u64);
        if left > 0 {
            self.skip(format!("log {name}"), format!("{left} older entries were not read"));
        }
        entries.truncate(MAX_KEPT);
        Ok(entries)
    }

    /// The entries of a list that may be the newest, and how many there are. A list may be in either order; where it rises, its end is asked for.
    async fn list(&mut self, path: &str) -> Result<(Vec<Value>, Option<u64>), Miss> {
        let first = match self.get(path).await {
            Ok(first) => first,
            // Too much for one answer: a part of it, where the service can give one.
            Err(Miss::Failed(why)) => match self.get(&format!("{path}?$top=20")).await {
                Ok(first) => first,
                Err(_) => return Err(Miss::Failed(why)),
            },
            Err(miss) => return Err(miss),
        };
        let total = number(&first, "Members@odata.count");
        let mut found = members(&first);
        if !found.is_empty()
            && found.iter().all(|entry| word(entry, "Message").is_none() && entry.get("Created").is_none())
        {
            let ends = found.len().saturating_sub(ONE_BY_ONE);
            let mut read = Vec::new();
            for (at, entry) in found.iter().enumerate() {
                if let Some(path) = link(entry).filter(|_| at < ONE_BY_ONE || at >= ends) {
                    match self.get(&path).await {
                        Ok(entry) => read.push(entry),
                        Err(miss @ Miss::Spent(_)) => {
                            self.missed("log entries", &miss);
                            break;
                        }
                        Err(_) => {}
                    }
                }
            }
            return Ok((read, total));
        }
        let count = total.unwrap_or_default();
        let written = |entry: Option<&Value>| entry.and_then(|entry| word(entry, "Created").and_then(time));
        let rises = written(found.first()) <= written(found.last());
        if rises && first.get("Members@odata.nextLink").is_some() && count > found.len() as u64 {
            let end = format!("{path}?$skip={}", count.saturating_sub(LAST).max(found.len() as u64));
            match self.get(&end).await {
                Ok(page) => {
                    let first_ids: Vec<Option<String>> =
                        found.iter().map(|entry| word(entry, "Id").map(str::to_owned)).collect();
                    let page = members(&page);
                    found.extend(
                        page.into_iter().filter(|entry| !first_ids.contains(&word(entry, "Id").map(str::to_owned))),
                    );
                }
                Err(miss) => self.missed("the end of a log", &miss),
            }
        }
        Ok((found, total))
    }

    fn entry(&self, log: &str, entry: &Value) -> LogEntry {
        let clean = |text: &str| self.clean(text);
        let text = |field: &str| self.text(entry, field);
        let written = text("Created").or_else(|| text("EventTimestamp")).unwrap_or_default();
        let origin = entry.get("Links").and_then(|links| link_at(links, "OriginOfCondition"));
        let mut found = LogEntry {
            log: log.to_owned(),
            id: text("Id").unwrap_or_default(),
            created: time(&written),
            written,
            severity: text("Severity").or_else(|| text("MessageSeverity")),
            message_id: text("MessageId"),
            args: args(entry, &clean),
            text: text("Message").unwrap_or_default(),
            resolution: text("Resolution").filter(|text| !text.eq_ignore_ascii_case("none")),
            sensor_type: text("SensorType"),
            component: origin.filter(|path| is_below(path)).map(|path| self.clean(last(&path))),
            resolved: flag(entry, "Resolved"),
        };
        vendors::add(&mut found, entry, clean);
        found
    }

    /// Texts of messages that entries only name.
    async fn registry_texts(
        &mut self,
        root: &Value,
        entries: &[LogEntry],
    ) -> BTreeMap<String, diagnosis::RegistryText> {
        let lacks = |entry: &&LogEntry| {
            let bad = entry.severity.as_deref().is_none_or(|word| !word.eq_ignore_ascii_case("OK"));
            bad && (entry.text.is_empty() || entry.resolution.is_none())
        };
        let ids: Vec<String> = entries.iter().filter(lacks).filter_map(|entry| entry.message_id.clone()).collect();
        self.registry(root, ids).await
    }
}

/// Whether a path is that of something below a system, chassis or manager, not of one of these: an origin that is the whole machine names no part.
fn is_below(path: &str) -> bool {
    path.split('/').filter(|segment| !segment.is_empty()).count() > 4
}

fn members(list: &Value) -> Vec<Value> {
    let Some(Value::Array(items)) = list.get("Members") else { return Vec::new() };
    items.iter().filter(|item| item.is_object()).take(MAX_LOOKED_AT).cloned().collect()
}
