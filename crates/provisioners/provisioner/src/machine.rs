//! What is remembered of a host's machine, so that no other is ever taken for it.

use api::metamorph::MachineRecordSpec;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::RecordError;

/// Another host's record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OtherMachine {
    /// `namespace/name`, or `of another namespace`: for messages.
    pub host: String,
    /// The host that it was made for still exists; a record outlives it.
    pub exists: bool,
    /// The machine that it tells of was recorded, or accepted, before this host's own.
    pub is_older: bool,
    /// Its host is in the same namespace: one tenant has both.
    #[serde(default)]
    pub is_near: bool,
    /// What is recorded.
    pub record: MachineRecordSpec,
}

/// One host's record. In a server it is a MachineRecord.
#[async_trait]
pub trait Machine: Send + Sync {
    /// What is recorded of this host's machine. A host that is declared under an earlier one's name, for another BMC, begins without.
    ///
    /// # Errors
    /// When it cannot be read: nothing may be done to the machine then.
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError>;

    /// The records of all other hosts.
    ///
    /// # Errors
    /// When they cannot be read.
    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError>;

    /// Replaces the record; gives what was recorded. Durable when it returns. A record with a new [`MachineRecordSpec::accepted`], one without a
    /// time, uses up the consent that the host carries, and is made known. For a host that is being deleted it is an attempt: its namespace may
    /// take no new objects.
    ///
    /// # Errors
    /// When it cannot be written.
    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError>;

    /// The same, with the next write of the host's [`crate::Record`] and as durable as that: for what is seen just before something is recorded
    /// anyway. It carries no new consent.
    fn record_with_next(&self, record: MachineRecordSpec);

    /// Makes known that something differs which does not decide (an Event).
    async fn note(&self, text: &str);
}
