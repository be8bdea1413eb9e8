//! What is remembered of a host's machine, so that no other machine is ever mistaken for it.

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
    /// Its machine was recorded, or accepted, before this host's own.
    pub is_older: bool,
    /// Its host is in the same namespace: one tenant has both.
    #[serde(default)]
    pub is_near: bool,
    /// Its host exists, and still has the BMC address that is recorded.
    #[serde(default)]
    pub is_there: bool,
    /// This server vouches for the record: nobody has made it up.
    #[serde(default)]
    pub is_sealed: bool,
    /// What is recorded.
    pub record: MachineRecordSpec,
}

/// One host's record. In a server it is a MachineRecord.
#[async_trait]
pub trait Machine: Send + Sync {
    /// What is recorded of this host's machine. A host declared under an earlier host's name with another BMC begins without a record.
    ///
    /// # Errors
    /// When it cannot be read: nothing may be done to the machine then.
    async fn recorded(&self) -> Result<Option<MachineRecordSpec>, RecordError>;

    /// The records of all other hosts, and that of an earlier host of this name, which had another BMC: it is not this host's.
    ///
    /// # Errors
    /// When they cannot be read.
    async fn others(&self) -> Result<Vec<OtherMachine>, RecordError>;

    /// Replaces the record and returns what was recorded. Durable when it returns. A new [`MachineRecordSpec::accepted`], one without a time, uses up
    /// the host's consent and is reported by an Event. For a host that is being deleted this is best effort: its namespace may refuse new objects.
    ///
    /// # Errors
    /// When it cannot be written.
    async fn record(&self, record: MachineRecordSpec) -> Result<MachineRecordSpec, RecordError>;

    /// The same, with the next write of the host's [`crate::Record`] and as durable as that: for what is seen just before something is recorded
    /// anyway. It carries no new consent.
    fn record_with_next(&self, record: MachineRecordSpec);

    /// Reports a difference that does not decide (an Event).
    async fn note(&self, text: &str);

    /// Reports that the machine does not boot its live system by itself each time, and what follows from that (an Event).
    async fn boots_once(&self, text: &str);

    /// Reports that the host was let go while its disks were being changed: on which, and what becomes of it (an Event).
    async fn interrupted(&self, text: &str);
}
