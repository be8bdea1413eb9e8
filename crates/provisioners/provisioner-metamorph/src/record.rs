//! Writing into the operation's record what it may become, and nothing else ([`provisioning_plan::record`]).

use crate::journal::Operation;
use crate::remembered::WriteNews;
use api::metamorph::OperationPhase;
use provisioner::{Cause, Failure};
use provisioning_plan::record::{Change, Refused, check, may_become};
use provisioning_plan::steps::Step;

/// Records that the step is about to have its effect. Durable when it returns.
pub async fn intend(operation: &mut Operation, step: Step, attempt: u32, boot_id: Option<&str>) -> Result<(), Failure> {
    check(operation.status(), step, Change::Intend { attempt, boot_id }).map_err(|why| refused(step.name(), &why))?;
    // A live system may write to the disks as an agent does, and the firmware may boot it as soon as its medium is in.
    match step {
        Step::WriteImage => operation.tells(WriteNews::Ordered),
        Step::InsertLive | Step::BootLive => operation.tells(WriteNews::Live),
        _ => {}
    }
    operation.intent(step.name(), attempt, boot_id).await.map_err(Failure::from)
}

/// Notes that the step is done; durable with the next write.
pub fn done(operation: &mut Operation, step: Step, text: &str) -> Result<(), Failure> {
    check(operation.status(), step, Change::Done).map_err(|why| refused(step.name(), &why))?;
    operation.done(step.name(), text);
    Ok(())
}

/// Closes the operation successfully. Durable when it returns.
pub async fn succeed(operation: &mut Operation, text: &str) -> Result<(), Failure> {
    let phase = operation.status().phase;
    if !may_become(phase, OperationPhase::Succeeded) {
        return Err(refused("the end", &Refused::Ended(phase)));
    }
    operation.finish(Ok(text)).await.map_err(Failure::from)
}

fn refused(what: &str, why: &Refused) -> Failure {
    Failure::new(Cause::Internal, format!("record {what} in the operation: {why}"))
        .advise("somebody else has changed the host's record; the work is begun anew")
}
