//! The record of a volume, in its status: written by compare-and-swap of the whole object.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::core::Status;
use provisioner::{MAX_RECORD_BYTES, MayAct, Purpose, Record, RecordContent, RecordError, Recorded};

use crate::kind::{StorageVolume, VolumeRecord};

/// Most attempts at a write while others change what the call is not about, such as labels.
const MAX_CONFLICTS: usize = 4;

/// One volume's record, for one call.
pub struct StatusRecord {
    api: Api<StorageVolume>,
    may_act: MayAct,
    /// What the call was decided on.
    decided: StorageVolume,
    /// As it was read or written last.
    known: Mutex<StorageVolume>,
}

impl StatusRecord {
    /// The record of this object, on which a call was decided.
    #[must_use]
    pub fn new(api: Api<StorageVolume>, decided: StorageVolume, may_act: MayAct) -> Self {
        Self { api, may_act, known: Mutex::new(decided.clone()), decided }
    }

    /// The object as it was read or written last.
    pub fn latest(&self) -> StorageVolume {
        self.known().clone()
    }

    fn known(&self) -> MutexGuard<'_, StorageVolume> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, why: impl Into<String>) -> RecordError {
        RecordError::new(format!("StorageVolume {}", self.decided.name_any()), why)
    }

    async fn read(&self) -> Result<StorageVolume, RecordError> {
        let found = self.api.get(&self.decided.name_any()).await;
        let found = found.map_err(|error| self.failed(error.to_string()))?;
        self.is_same(&found)?;
        self.known().clone_from(&found);
        Ok(found)
    }

    fn is_same(&self, found: &StorageVolume) -> Result<(), RecordError> {
        if self.decided.metadata.uid == found.metadata.uid {
            return Ok(());
        }
        Err(self.failed("it is another object of this name"))
    }

    /// Whether the object is still what was decided on.
    fn is_wanted(&self, found: &StorageVolume) -> Result<(), RecordError> {
        self.is_same(found)?;
        let (before, now) = (&self.decided.metadata, &found.metadata);
        if before.generation != now.generation || before.deletion_timestamp != now.deletion_timestamp {
            return Err(self.failed("what is wished has changed since: it is asked anew"));
        }
        Ok(())
    }

    fn leads(&self) -> Result<(), RecordError> {
        if (self.may_act)() { Ok(()) } else { Err(RecordError::not_leading("the volume")) }
    }
}

fn recorded(volume: &StorageVolume) -> Recorded {
    let Some(record) = volume.status.as_ref().and_then(|status| status.record.clone()) else {
        return Recorded::default();
    };
    let content = RecordContent { provisioner: record.provisioner, version: record.version, data: record.data };
    Recorded { revision: record.revision, content: Some(content), earlier: Vec::new() }
}

fn is_conflict(status: &Status) -> bool {
    status.code == 409
}

#[async_trait]
impl Record for StatusRecord {
    fn current(&self) -> Recorded {
        recorded(&self.known())
    }

    async fn write(&self, expected: u64, content: RecordContent, purpose: Purpose) -> Result<u64, RecordError> {
        if content.data.to_string().len() > MAX_RECORD_BYTES || !content.data.is_object() {
            return Err(self.failed(format!("a record is an object of at most {MAX_RECORD_BYTES} bytes")));
        }
        for _ in 0..MAX_CONFLICTS {
            self.leads()?;
            let mut object = self.latest();
            self.is_same(&object)?;
            let found = recorded(&object).revision;
            if found != expected {
                return Err(self.failed(format!("revision {found} is there, and not {expected}: it is read again")));
            }
            // The write is of the version that was looked at: between this look and the write nothing can have come.
            if purpose == Purpose::Intent {
                self.is_wanted(&object)?;
            }
            object.status.get_or_insert_default().record = Some(VolumeRecord {
                revision: expected + 1,
                provisioner: content.provisioner.clone(),
                version: content.version,
                data: content.data.clone(),
            });
            match self.api.replace_status(&self.decided.name_any(), &PostParams::default(), &object).await {
                Ok(written) => {
                    *self.known() = written;
                    return Ok(expected + 1);
                }
                Err(kube::Error::Api(status)) if is_conflict(&status) => {
                    self.read().await?;
                }
                Err(error) => return Err(self.failed(error.to_string())),
            }
        }
        Err(self.failed("others change it all the time: it is tried again"))
    }

    async fn still_wanted(&self) -> Result<(), RecordError> {
        self.leads()?;
        let found = self.read().await?;
        self.is_wanted(&found)
    }
}
