//! Inspection in band: boot the agent, ask it.

use agent_protocol::{Action, ErrorCode, Outcome as AgentOutcome};
use api::metamorph::{OperationPhase, OperationType};
use async_trait::async_trait;
use inventory::HardwareDetails;
use provisioner::{Cause, Failure, Inspect, InspectRequest, Outcome, Retry, Verdict};
use provisioning_plan::record::may_become;
use provisioning_plan::steps::{Step, Work};

use crate::commands::Ran;
use crate::deploy::ABSENT;
use crate::failures::of_command;
use crate::host::NativeHost;
use crate::journal::Operation;
use crate::record::{done, succeed};

/// Largest hardware details that are kept: two copies of them must fit into objects of 1.5 MiB.
const MAX_HARDWARE_BYTES: usize = 256 << 10;

#[async_trait]
impl Inspect for NativeHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<HardwareDetails>> {
        self.settle_with_journal().await;
        self.live.attempt().rests();
        self.unheard(OperationType::Inspect, request.wish.as_deref(), request.restart)?;
        let mut operation = self.open(Work::Inspect, request.wish.as_deref()).await?;
        self.insists(request.force_reboot);
        let result = self.inspect_steps(&mut operation).await;
        let result = self.closing(&mut operation, result).await;
        self.forced(&operation, result)
    }
}

impl NativeHost {
    async fn inspect_steps(&self, operation: &mut Operation) -> Outcome<Box<HardwareDetails>> {
        let boot_id = match self.ensure_agent(operation).await?.done() {
            Ok(boot_id) => boot_id,
            Err(not_yet) => return Ok(not_yet),
        };
        match self.run(operation, Step::CollectInventory, &boot_id, Action::Inspect).await? {
            Ran::Working(working) => Ok(Verdict::Working(working)),
            Ran::Finished(id, AgentOutcome::Inspected { hardware, marks, .. }) => {
                let bytes = serde_json::to_vec(&hardware).map_or(usize::MAX, |v| v.len());
                if bytes > MAX_HARDWARE_BYTES {
                    let text = format!(
                        "take the hardware details: the agent reports {bytes} bytes, {MAX_HARDWARE_BYTES} are accepted"
                    );
                    return Err(Failure::new(Cause::HardwareFailed, text));
                }
                for mark in &marks {
                    tracing::info!(host = %self.context.key.name, place = %mark.place, owner = %mark.owner, "owner's mark found");
                }
                self.record_agent(&boot_id).await?;
                let text = format!("{} disks, {} network interfaces", hardware.storage.len(), hardware.nics.len());
                done(operation, Step::CollectInventory, &text)?;
                succeed(operation, "inspected").await?;
                self.shared.hub.acknowledge(self.uid(), &id);
                Ok(Verdict::Done(hardware))
            }
            Ran::Finished(id, outcome) => Err(self.unexpected(&id, &outcome)),
        }
    }

    /// The failure behind an unexpected outcome. The agent may forget the outcome only once it is recorded: [`Self::closing`].
    pub fn unexpected(&self, id: &agent_protocol::CommandId, outcome: &AgentOutcome) -> Failure {
        match outcome {
            AgentOutcome::Failed(error) if id.step == Step::WipeDisks.name() && error.code == ErrorCode::NoDisk => {
                Failure::new(Cause::HardwareFailed, error.message.clone()).advise(ABSENT)
            }
            AgentOutcome::Failed(error) => of_command(error),
            _ => Failure::new(
                Cause::Internal,
                format!("run {} on the agent: it answered with the outcome of other work", id.step),
            ),
        }
    }

    /// Closes the operation if its work has failed, so that the history shows the failure; the failure itself goes on to the host.
    pub async fn closing<T: Send>(&self, operation: &mut Operation, result: Outcome<T>) -> Outcome<T> {
        let failure = match result {
            Ok(verdict) => return Ok(verdict),
            Err(failure) => failure,
        };
        if matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading)
            || matches!(failure.retry, Retry::Waiting | Retry::Held)
        {
            // What was done is recorded or will be looked at again: no failure of the host.
            if !matches!(failure.cause, Cause::RecordUnavailable | Cause::NotLeading) {
                operation.waits(&failure).await;
            }
            return Err(failure);
        }
        self.live.timers().booted = None;
        if !may_become(operation.status().phase, OperationPhase::Failed) {
            return Err(failure);
        }
        match operation.finish(Err(&failure)).await {
            Ok(()) => {}
            Err(error) if self.context.deleting => {
                tracing::warn!(host = %self.context.key.name, %error, "the failed operation could not be closed");
            }
            // The agent keeps the outcome until it is recorded: the call is made again.
            Err(error) => return Err(error.into()),
        }
        self.settle_with_journal().await;
        Err(failure)
    }
}
