//! A record that outlives processes, and what one process knows of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use provisioner::{MAX_RECORD_BYTES, MayAct, Purpose, Record, RecordContent, RecordError, Recorded, Resource};

use crate::trail::{Point, Trail, What};

/// Texts that are secret wherever the kit hands them over.
pub const SECRETS: [&str; 3] = ["kit-secret-password", "kit-secret-user-data", "kit-secret-pull"];

/// What is recorded, as the Kubernetes API has it.
#[derive(Default)]
pub struct Store(Mutex<Recorded>);

impl Store {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is there.
    pub fn now(&self) -> Recorded {
        self.lock().clone()
    }

    /// Somebody else replaces it: the revision grows.
    pub fn replace(&self, content: Option<RecordContent>) {
        let mut now = self.lock();
        now.revision += 1;
        now.content = content;
    }

    /// Somebody deletes it.
    pub fn delete(&self) {
        *self.lock() = Recorded::default();
    }
}

/// One process: the provisioner that it has made, whether it leads, and what it has read of the record.
pub struct Process<R: Resource> {
    /// Counts the processes of a run.
    pub id: u64,
    /// Its provisioner.
    pub provisioner: Arc<R::Provisioner>,
    /// It may act on machines.
    pub leads: Arc<AtomicBool>,
    /// Its view of the record.
    pub record: Arc<ProcessRecord>,
}

/// Whether the flag is set, as provisioners ask it.
pub fn may_act(leads: &Arc<AtomicBool>) -> MayAct {
    let leads = Arc::clone(leads);
    Arc::new(move || leads.load(Ordering::SeqCst))
}

/// The record as one process knows it: what it has read or written last.
pub struct ProcessRecord {
    store: Arc<Store>,
    trail: Trail,
    leads: Arc<AtomicBool>,
    known: Mutex<Recorded>,
}

impl ProcessRecord {
    /// What a process reads when it starts.
    pub fn new(store: Arc<Store>, trail: Trail, leads: Arc<AtomicBool>) -> Self {
        let known = Mutex::new(store.now());
        Self { store, trail, leads, known }
    }

    /// The process reads it again.
    pub fn read_again(&self) {
        *self.known() = self.store.now();
    }

    fn known(&self) -> MutexGuard<'_, Recorded> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        let failed = |why: String| Err(RecordError::new("the record", why));
        let text = content.data.to_string();
        if text.len() > MAX_RECORD_BYTES {
            return failed(format!("{} bytes are to be recorded, {MAX_RECORD_BYTES} are accepted", text.len()));
        }
        if !self.leads.load(Ordering::SeqCst) {
            return Err(RecordError::not_leading("the record"));
        }
        let mut now = self.store.lock();
        if now.revision != expected {
            *self.known() = now.clone();
            return failed(format!("revision {} is there, and not {expected}", now.revision));
        }
        *now = Recorded { revision: expected + 1, content: Some(content), earlier: Vec::new() };
        *self.known() = now.clone();
        self.trail.enter(What::Write(purpose), &format!("revision {}", now.revision));
        if SECRETS.iter().any(|secret| text.contains(secret)) {
            self.trail.enter(What::Leak, &format!("a secret in revision {} of the record", now.revision));
        }
        Ok(now.revision)
    }
}

#[async_trait]
impl Record for ProcessRecord {
    fn current(&self) -> Recorded {
        self.known().clone()
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        self.trail.point(Point::BeforeWrite).await;
        let revision = self.put(expected, content, purpose)?;
        self.trail.point(Point::AfterWrite).await;
        if purpose == Purpose::Intent && !self.leads.load(Ordering::SeqCst) {
            return Err(RecordError::not_leading("the record"));
        }
        Ok(revision)
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        if self.leads.load(Ordering::SeqCst) { Ok(()) } else { Err(RecordError::not_leading("the record")) }
    }
}
