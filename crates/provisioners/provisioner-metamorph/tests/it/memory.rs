//! What the provisioner remembers, in memory, and read as this provisioner writes it.

use std::sync::Arc;

use api::metamorph::{AgentBoot, HostOperationStatus, OperationType, StepPhase};
use provisioner::{HistoryEntry, RecordContent};
use provisioner_kit::{MemoryHistory, MemoryRecord, Write};

/// Record and history of a host. Clones share them.
#[derive(Clone, Default)]
pub struct Memory {
    pub record: Arc<MemoryRecord>,
    pub history: Arc<MemoryHistory>,
}

/// The operation in a record.
pub fn operation(content: &RecordContent) -> HistoryEntry {
    serde_json::from_value(content.data["operation"].clone()).expect("an operation was begun")
}

/// What a write is of: `finish`, or the step that is intended.
fn what(write: &Write) -> String {
    let now = operation(&write.content);
    if now.status.phase.is_final() {
        return "finish".into();
    }
    let before = write.before.as_ref().map(operation).filter(|before| before.number == now.number);
    let steps = before.map(|before| before.status.steps).unwrap_or_default();
    let changed = now.status.steps.iter().find(|step| {
        step.phase == StepPhase::Running
            && !steps.iter().any(|old| (&old.name, old.phase, old.attempt) == (&step.name, step.phase, step.attempt))
    });
    changed.map(|step| step.name.clone()).unwrap_or_default()
}

impl Memory {
    /// The next recording of this (`finish`, or a step's intent) is not made, as if the process died before it.
    pub fn die_before(&self, step: &str) {
        let step = step.to_owned();
        self.record.fail_before(move |write| what(write) == step);
    }

    /// What a version before records left of an operation.
    pub fn of_history(entry: HistoryEntry) -> Self {
        Self { record: Arc::new(MemoryRecord::of_history(vec![entry])), history: Arc::default() }
    }

    /// What is recorded.
    pub fn content(&self) -> Option<RecordContent> {
        provisioner::Record::current(self.record.as_ref()).content
    }

    /// The newest operation that is recorded.
    pub fn newest(&self) -> HistoryEntry {
        operation(&self.content().expect("something is recorded"))
    }

    /// Its kind and where it is.
    pub fn last(&self) -> (OperationType, HostOperationStatus) {
        let newest = self.newest();
        (newest.operation, newest.status)
    }

    /// All that people see.
    pub fn all(&self) -> Vec<(OperationType, HostOperationStatus)> {
        self.history.all().into_iter().map(|entry| (entry.operation, entry.status)).collect()
    }

    /// The newest boot that is recorded.
    pub fn latest_boot(&self) -> Option<AgentBoot> {
        serde_json::from_value(self.content()?.data["boot"].clone()).ok()
    }
}
