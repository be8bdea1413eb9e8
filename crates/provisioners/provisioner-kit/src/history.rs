//! A history in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use provisioner::{History, HistoryEntry, Tell};

/// What has been told, by number.
#[derive(Debug, Default)]
pub struct MemoryHistory(Mutex<BTreeMap<u64, HistoryEntry>>);

impl MemoryHistory {
    /// All pieces of work as they were told last, in the order of their numbers.
    pub fn all(&self) -> Vec<HistoryEntry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// It shows this, and nothing later of that work.
    pub fn put(&self, entry: HistoryEntry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.number, entry);
    }

    /// Somebody deletes it.
    pub fn delete(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[async_trait]
impl History for MemoryHistory {
    async fn tell(&self, entry: &HistoryEntry, _when: Tell) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.number, entry.clone());
    }
}
