//! A record in memory that can fail as a real one does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use provisioner::{HistoryEntry, MAX_RECORD_BYTES, Purpose, Record, RecordContent, RecordError, Recorded};

/// One write, with what was there before.
#[derive(Clone, Debug)]
pub struct Write {
    /// What was there.
    pub before: Option<RecordContent>,
    /// What is written.
    pub content: RecordContent,
    /// For what.
    pub purpose: Purpose,
}

type Rule = Box<dyn Fn(&Write) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    recorded: Recorded,
    fails: Option<(Rule, bool)>,
    unwanted: Option<String>,
    hangs: bool,
    writes: Vec<Write>,
}

/// One host's record.
#[derive(Default)]
pub struct MemoryRecord(Mutex<State>);

impl MemoryRecord {
    /// The record of a host that only has a history, of a version before records.
    #[must_use]
    pub fn of_history(earlier: Vec<HistoryEntry>) -> Self {
        let recorded = Recorded { earlier, ..Recorded::default() };
        Self(Mutex::new(State { recorded, ..State::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next write that matches the rule fails, as if the process died before it.
    pub fn fail_before(&self, rule: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        self.lock().fails = Some((Box::new(rule), false));
    }

    /// The next write that matches the rule succeeds, and its answer is lost, as if the process died after it.
    pub fn fail_after(&self, rule: impl Fn(&Write) -> bool + Send + Sync + 'static) {
        self.lock().fails = Some((Box::new(rule), true));
    }

    /// The host has changed since calls under way were decided on, and how; `None` if it is as it was.
    pub fn unwanted(&self, why: Option<&str>) {
        self.lock().unwanted = why.map(ToOwned::to_owned);
    }

    /// From now on, no write ends before its time.
    pub fn hangs(&self, hangs: bool) {
        self.lock().hangs = hangs;
    }

    /// All writes that were made, the oldest first.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// Somebody edits it by hand, or another process writes it.
    pub fn edit(&self, edit: impl FnOnce(&mut RecordContent)) {
        let mut state = self.lock();
        state.recorded.revision += 1;
        edit(state.recorded.content.get_or_insert_default());
    }

    /// Somebody replaces it by a backup.
    pub fn restore(&self, revision: u64, content: RecordContent) {
        self.lock().recorded = Recorded { revision, content: Some(content), earlier: Vec::new() };
    }

    /// Somebody deletes it.
    pub fn delete(&self) {
        self.lock().recorded = Recorded::default();
    }
}

#[async_trait]
impl Record for MemoryRecord {
    fn current(&self) -> Recorded {
        self.lock().recorded.clone()
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        if self.lock().hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.lock();
        let failed = |why: &str| Err(RecordError::new("the record", why));
        if state.recorded.revision != expected {
            return failed("another revision is there");
        }
        if content.data.to_string().len() > MAX_RECORD_BYTES {
            return failed("it is too large");
        }
        if let Some(why) = state.unwanted.as_deref().filter(|_| purpose == Purpose::Intent) {
            return failed(why);
        }
        let write = Write { before: state.recorded.content.clone(), content: content.clone(), purpose };
        let fails = state.fails.take_if(|(rule, _)| rule(&write)).map(|(_, after)| after);
        if fails == Some(false) {
            return failed("the process dies before it");
        }
        let revision = expected + 1;
        state.recorded = Recorded { revision, content: Some(content), earlier: Vec::new() };
        state.writes.push(write);
        if fails == Some(true) { failed("the process dies after it") } else { Ok(revision) }
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        let why = self.lock().unwanted.clone();
        why.map_or(Ok(()), |why| Err(RecordError::new("the record", why)))
    }
}
