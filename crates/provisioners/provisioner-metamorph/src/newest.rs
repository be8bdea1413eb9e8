//! What is asked of the journal, and told to it: the newest operation, the settings that one makes, how far a step is.

use std::collections::BTreeMap;

use api::metamorph::{HostOperationStatus, OperationPhase, OperationType};
use serde::{Deserialize, Serialize};

/// The newest operation of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Newest {
    /// Unique, as in the record.
    pub id: String,
    /// Kind of work.
    pub operation: OperationType,
    /// Where it is.
    pub phase: OperationPhase,
    /// Its steps.
    pub status: HostOperationStatus,
    /// The wish that it is for.
    pub wish: Option<String>,
}

impl Newest {
    /// It is of this kind and has succeeded.
    pub fn succeeded(&self, operation: OperationType) -> bool {
        self.operation == operation && self.phase == OperationPhase::Succeeded
    }

    /// It is for this wish.
    pub fn is_for(&self, wish: Option<&str>) -> bool {
        is_for(self.wish.as_deref(), wish)
    }
}

/// A missing wish, on either side, matches any.
pub fn is_for(named: Option<&str>, wish: Option<&str>) -> bool {
    match (named, wish) {
        (Some(named), Some(wish)) => named == wish,
        _ => true,
    }
}

/// How far a step is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepProgress {
    /// 0 to 100.
    pub percent: Option<u32>,
    /// Bytes moved.
    pub bytes: Option<u64>,
    /// Bytes to move.
    pub total_bytes: Option<u64>,
    /// What is happening.
    pub message: String,
}

/// Settings of the firmware that an operation makes: requests after the first do not name them again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirmwareWork {
    /// What is to be in force, by name.
    pub settings: BTreeMap<String, String>,
    /// Address of the BMC's job for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}
