//! A machine record in memory.

use std::sync::{Mutex, PoisonError};

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use provisioner::{Machine, OtherMachine, RecordError};

/// Which machine the host is, as far as it has been recorded.
#[derive(Debug, Default)]
pub struct MemoryMachine(Mutex<Option<MachineRecordSpec>>);

#[async_trait]
impl Machine for MemoryMachine {
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError> {
        Ok(Vec::new())
    }

    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.clone());
        Ok(record)
    }

    fn record_with_next(&self, record: MachineRecordSpec) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
    }

    async fn note(&self, _text: &str) {}
}
