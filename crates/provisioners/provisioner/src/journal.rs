//! What a provisioner writes down: plan, intent, progress, end. In a server it is a HostOperation.

use api::metamorph::{HostOperationStatus, OperationPhase, OperationType};
use async_trait::async_trait;

use crate::Failure;

/// The journal cannot be written; the call gives up without effect and is tried again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("record {what} in the journal: {why}")]
pub struct JournalError {
    /// What was to be recorded.
    pub what: String,
    /// Why it could not be.
    pub why: String,
}

/// [`JournalError::why`] of a process that does not lead any more.
const NOT_LEADING: &str = "another process leads";

impl JournalError {
    /// Another process acts on machines.
    #[must_use]
    pub fn not_leading(what: String) -> Self {
        Self { what, why: NOT_LEADING.to_owned() }
    }

    /// Whether it is [`Self::not_leading`].
    #[must_use]
    pub fn is_not_leading(&self) -> bool {
        self.why == NOT_LEADING
    }
}

/// The newest operation of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// [`Operation::id`].
    pub id: String,
    /// Kind of work.
    pub operation: OperationType,
    /// Where it is.
    pub phase: OperationPhase,
    /// It is for what the host wishes now, not for an earlier wish of the same kind.
    pub is_current: bool,
}

impl Newest {
    /// It is of this kind and has succeeded.
    #[must_use]
    pub fn succeeded(&self, operation: OperationType) -> bool {
        self.operation == operation && self.phase == OperationPhase::Succeeded
    }
}

/// One host's journal.
#[async_trait]
pub trait Journal: Send + Sync {
    /// The operation of this type, and for the present wish, that is under way, opened with this plan if there is none. Opening cancels any
    /// other operation that is still open: a host has one operation at a time. Nothing is durable until the first
    /// [`Operation::intent`].
    async fn open(&self, operation: OperationType, plan: &[&str]) -> Result<Box<dyn Operation>, JournalError>;

    /// The newest boot of the agent that any operation of this host has recorded, with the generation that media and token are
    /// derived from.
    fn latest_boot(&self) -> Option<api::metamorph::AgentBoot>;

    /// The newest operation of this host, whatever its type. A work whose newest operation is of the same type, for the same wish, and has
    /// succeeded is done already, even if the process that did it could not say so.
    fn newest(&self) -> Option<Newest>;

    /// Addresses of BMC sessions that operations of this host have recorded.
    fn recorded_sessions(&self) -> Vec<String>;
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

/// One operation under way.
#[async_trait]
pub trait Operation: Send {
    /// Name of the operation, unique in the host's namespace.
    fn name(&self) -> &str;

    /// What no other operation ever has, not even one that takes the name of a deleted one: part of every agent command's identity.
    /// Settled with the first [`Operation::intent`].
    fn id(&self) -> String;

    /// What is recorded.
    fn status(&self) -> &HostOperationStatus;

    /// Notes the agent's boot; durable with the next [`Operation::intent`] or [`Operation::finish`].
    fn set_boot(&mut self, boot: api::metamorph::AgentBoot);

    /// Notes calls made to the BMC and the address of its session; durable with the next write.
    fn set_bmc(&mut self, calls: u32, session: Option<String>);

    /// Records that `step` is about to have its effect (attempt and agent's boot with it). Durable when it returns.
    async fn intent(&mut self, step: &str, attempt: u32, boot_id: Option<&str>) -> Result<(), JournalError>;

    /// Notes that `step` is done; durable with the next write.
    fn done(&mut self, step: &str, message: &str);

    /// Shows progress; written at most every 5 s.
    async fn progress(&mut self, step: &str, progress: StepProgress);

    /// Closes the operation, successfully or not. Durable when it returns.
    async fn finish(&mut self, result: Result<&str, &Failure>) -> Result<(), JournalError>;
}
