//! What people see of a work: one entry of the history.

use api::Time;
use api::metamorph::{HostOperationStatus, OperationError, OperationPhase, OperationStep, OperationType, StepPhase};
use jiff::Timestamp;
use provisioner::{HistoryEntry, HostContext, Tell, operation_name};

use crate::journal::{Kind, Work};

const fn operation(kind: Kind) -> OperationType {
    match kind {
        Kind::Inspect => OperationType::Inspect,
        Kind::Prepare => OperationType::Prepare,
        Kind::Provision => OperationType::Provision,
        Kind::Deprovision => OperationType::Deprovision,
        Kind::Service => OperationType::Service,
    }
}

/// What the work is, a clause.
pub const fn doing(kind: Kind) -> &'static str {
    match kind {
        Kind::Inspect => "have Ironic inspect the machine",
        Kind::Prepare => "have Ironic change volumes, settings and firmware",
        Kind::Provision => "have Ironic deploy the machine",
        Kind::Deprovision => "have Ironic remove what was deployed",
        Kind::Service => "have Ironic change settings and firmware of the machine in use",
    }
}

/// Shows a work, with what is being done now.
pub async fn show(context: &HostContext, work: &Work, message: Option<&str>) {
    let time = |at: Timestamp| Timestamp::from_second(at.as_second()).ok().map(Time);
    let error = work.failure.as_ref().map(|failure| OperationError {
        cause: failure.cause.as_str().to_owned(),
        message: failure.message.clone(),
        advice: failure.what_to_do().map(ToOwned::to_owned),
    });
    let phase = match work.phase {
        OperationPhase::Pending => StepPhase::Pending,
        OperationPhase::Running => StepPhase::Running,
        OperationPhase::Succeeded => StepPhase::Done,
        OperationPhase::Failed | OperationPhase::Cancelled => StepPhase::Failed,
    };
    let step = doing(work.kind).to_owned();
    let said = work.failure.as_ref().map(|failure| failure.message.as_str()).or(message).unwrap_or(&step).to_owned();
    let status = HostOperationStatus {
        phase: work.phase,
        start_time: time(work.begun),
        end_time: work.ended.and_then(time),
        current_step: Some(step.clone()),
        progress: Some(if phase == StepPhase::Done { "1/1" } else { "0/1" }.to_owned()),
        message: Some(said),
        steps: vec![OperationStep {
            name: step,
            phase,
            start_time: time(work.begun),
            end_time: work.ended.and_then(time),
            attempt: Some(1),
            error: error.clone(),
            ..OperationStep::default()
        }],
        error,
        ..HostOperationStatus::default()
    };
    let operation = operation(work.kind);
    let id = format!("{}/{}", operation_name(&context.key.name, work.number, operation), work.id);
    let entry = HistoryEntry { number: work.number, id, operation, wish: work.wish.clone(), status };
    let when = if message.is_some() { Tell::Soon } else { Tell::Now };
    context.history.tell(&entry, when).await;
}
