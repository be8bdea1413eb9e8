//! A machine record in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use provisioner::{Machine, OtherMachine, RecordError};

/// Which machine the host is, as far as it has been recorded, beside other hosts' machines.
#[derive(Debug, Default)]
pub struct MemoryMachine {
    record: Mutex<Option<MachineRecordSpec>>,
    others: Mutex<Vec<OtherMachine>>,
    interrupted: Mutex<Vec<String>>,
    boots_once: Mutex<Vec<String>>,
}

impl MemoryMachine {
    /// Another host's record is there from now on.
    pub fn add_other(&self, other: OtherMachine) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(other);
    }

    /// What was said of work that was broken off when the host was let go.
    pub fn interruptions(&self) -> Vec<String> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What was said of machines that do not boot their live system each time.
    pub fn said_to_boot_once(&self) -> Vec<String> {
        self.boots_once.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<MachineRecordSpec>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Machine for MemoryMachine {
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError> {
        Ok(self.lock().clone())
    }

    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError> {
        Ok(self.others.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        *self.lock() = Some(record.clone());
        Ok(record)
    }

    fn record_with_next(&self, record: MachineRecordSpec) {
        *self.lock() = Some(record);
    }

    async fn note(&self, _text: &str) {}

    async fn boots_once(&self, text: &str) {
        self.boots_once.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }

    async fn interrupted(&self, text: &str) {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }
}
