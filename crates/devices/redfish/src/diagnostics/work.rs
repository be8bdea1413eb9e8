//! What the BMC works at (schemas Task, Job), and the BMC itself (schema Manager).

use diagnosis::{Evidence, Manager, Reading, Task, TaskKind};
use jiff::Timestamp;
use serde_json::Value;

use super::facts::{level, percent, rollup, time_at};
use super::reader::{Miss, Reader};
use crate::json::{link_at, links, word};

/// Most tasks that are read one by one.
const MOST: usize = 3;
/// Most tasks that are kept.
const MAX_TASKS: usize = 32;

impl Reader<'_> {
    /// The BMC that is behind the system; `Null` if it is not shown.
    pub async fn manager(&mut self, system: &Value, root: &Value, found: &mut Evidence) -> Value {
        let linked = links(system.get("Links").and_then(|links| links.get("ManagedBy"))).into_iter().next();
        let path = match (linked, link_at(root, "Managers")) {
            (Some(path), _) => Some(path),
            (None, Some(list)) => {
                self.get(&list).await.ok().and_then(|list| links(list.get("Members")).into_iter().next())
            }
            (None, None) => None,
        };
        let Some(path) = path else {
            found.manager = Reading::NotAvailable("the BMC shows no manager".to_owned());
            return Value::Null;
        };
        match self.get(&path).await {
            Ok(manager) => {
                let elapsed = i64::try_from(self.elapsed().as_secs()).unwrap_or_default();
                let now = self.budget.now.as_second().saturating_add(elapsed);
                let clock = time_at(&manager, "DateTime");
                note_standstill(found, clock);
                found.manager = Reading::Read(Manager {
                    model: self.text(&manager, "Model"),
                    firmware: self.text(&manager, "FirmwareVersion"),
                    health: rollup(&manager),
                    state: manager.get("Status").and_then(|status| self.text(status, "State")),
                    clock_skew_seconds: clock.map(|clock| clock.as_second().saturating_sub(now)),
                    full_logs: Vec::new(),
                    last_reset: time_at(&manager, "LastResetTime"),
                });
                manager
            }
            Err(miss) => {
                found.manager = miss.reading();
                Value::Null
            }
        }
    }

    /// Tasks, and jobs where the service has them.
    pub async fn tasks(&mut self, root: &Value) -> Reading<Vec<Task>> {
        let mut found = Vec::new();
        let mut missed: Option<Miss> = None;
        let mut any = false;
        for (field, list) in [("Tasks", "Tasks"), ("JobService", "Jobs")] {
            let Some(service) = link_at(root, field) else { continue };
            // The collections are where the standard has them (DSP0268), which saves a call each.
            let path = format!("{}/{list}", service.trim_end_matches('/'));
            match self.members(list, &path, MOST).await {
                Ok(members) => {
                    any = true;
                    // The newest are at the end of most lists, and at the beginning of some: both ends are kept by the bound.
                    found.extend(members.iter().map(|(_, value)| self.task(value)));
                }
                Err(miss) => missed = missed.or(Some(miss)),
            }
        }
        match missed {
            _ if any => {
                found.truncate(MAX_TASKS);
                Reading::Read(found)
            }
            Some(miss) => miss.reading(),
            None => Reading::NotAvailable("the BMC has neither tasks nor jobs".to_owned()),
        }
    }

    fn task(&self, value: &Value) -> Task {
        let text = |fields: [&str; 2]| fields.iter().find_map(|field| self.text(value, field));
        let name = text(["Name", "JobName"]).unwrap_or_default();
        Task {
            id: text(["Id", "@odata.id"]).unwrap_or_default(),
            kind: kind(&name),
            name,
            state: text(["TaskState", "JobState"]),
            health: ["TaskStatus", "JobStatus"].iter().find_map(|field| level(word(value, field)?)),
            percent: percent(value, "PercentComplete"),
            started: time_at(value, "StartTime").or_else(|| time_at(value, "CreatedTime")),
            ended: time_at(value, "EndTime"),
            messages: self.messages(value),
        }
    }
}

/// For how long the machine's start has not gone on: both times are of the BMC's clock.
fn note_standstill(found: &mut Evidence, clock: Option<Timestamp>) {
    if let (Reading::Read(boot), Some(clock)) = (&mut found.boot, clock)
        && let Some(progress) = &mut boot.progress
    {
        let seconds = progress.at.map(|at| clock.as_second().saturating_sub(at.as_second()));
        progress.unchanged_seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    }
}

/// What a task is about, by its name.
fn kind(name: &str) -> TaskKind {
    let name = name.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if is(&["firmware", "update"]) => TaskKind::Firmware,
        () if is(&["virtual media", "virtualmedia"]) => TaskKind::VirtualMedia,
        () if is(&["raid", "volume", "virtual disk"]) => TaskKind::Raid,
        () if is(&["bios"]) => TaskKind::Bios,
        () => TaskKind::Other,
    }
}
