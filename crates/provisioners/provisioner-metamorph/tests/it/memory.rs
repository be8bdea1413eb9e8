//! What the provisioner remembers, in memory, and read as this provisioner writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::metamorph::{AgentBoot, HostOperationStatus, OperationType, StepPhase};
use async_trait::async_trait;
use provisioner::{HistoryEntry, Purpose, Record, RecordContent, RecordError, Recorded};
use provisioner_kit::{MemoryHistory, MemoryRecord, Write};

/// Record and history of a host. Clones share them.
#[derive(Clone, Default)]
pub struct Memory {
    pub record: Arc<MemoryRecord>,
    pub history: Arc<MemoryHistory>,
    /// The host turns away when the next intent is recorded.
    turns: Arc<AtomicBool>,
}

#[async_trait]
impl Record for Memory {
    fn current(&self) -> Recorded {
        self.record.current()
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        let written = self.record.write(expected, content, purpose).await;
        if written.is_ok() && purpose == Purpose::Intent && self.turns.swap(false, Ordering::SeqCst) {
            self.record.unwanted(Some("the host goes another way"));
        }
        written
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        self.record.still_wanted().await
    }
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

    /// The host wishes something else as soon as the next intent is recorded, before what is intended is done.
    pub fn turn_after_intent(&self) {
        self.turns.store(true, Ordering::SeqCst);
    }

    /// What a version before records left of an operation.
    pub fn of_history(entry: HistoryEntry) -> Self {
        Self { record: Arc::new(MemoryRecord::of_history(vec![entry])), ..Self::default() }
    }

    /// What is recorded.
    pub fn content(&self) -> Option<RecordContent> {
        self.record.current().content
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
