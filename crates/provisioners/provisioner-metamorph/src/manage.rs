//! Registration, adoption and release.

use async_trait::async_trait;
use provisioner::{AdoptRequest, Cause, Manage, Outcome, RegisterRequest, Registered, ReleaseRequest, Verdict};

use crate::failures::of_bmc;
use crate::host::NativeHost;
use crate::identity::Effect;

#[async_trait]
impl Manage for NativeHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        if request.credentials_changed {
            self.live.close().await;
        }
        let (connected, sight) = self.proven(Effect::Look).await?;
        let (has, lacks) = bmc::capabilities(connected.as_ref());
        let has = has.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(", ");
        tracing::info!(host = %self.context.key.name, model = %sight.model, has, "BMC access checked");
        for lacking in lacks {
            tracing::info!(host = %self.context.key.name, "{lacking}");
        }
        let powered_on = sight.powered_on;
        let id = if self.context.provisioning_id.is_empty() {
            self.context.key.uid.clone()
        } else {
            self.context.provisioning_id.clone()
        };
        Ok(Verdict::Done(Registered { id, powered_on }))
    }

    async fn adopt(&mut self, _: AdoptRequest) -> Outcome<()> {
        self.settle_with_journal().await;
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        match self.journal.cancel_open("the host is let go").await {
            // A terminating namespace refuses new objects.
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
            }
            other => other?,
        }
        if self.context.bmc.is_some() {
            match self.proven(Effect::Boot).await {
                Ok((bmc, _)) if self.journal.latest_boot().is_some() && !self.live.timers().ejected => {
                    // Without a drive there is no medium.
                    if let Ok(media) = bmc.virtual_media() {
                        match media.eject().await.map_err(of_bmc) {
                            Err(failure) if request.force => {
                                tracing::warn!(host = %self.context.key.name, "let go by force, its medium may be left in the drive: {}", failure.message);
                            }
                            other => other?,
                        }
                    }
                }
                Ok(_) => {}
                // A machine that is not this host's is released as it is.
                Err(failure)
                    if matches!(failure.cause, Cause::AnotherMachine | Cause::MachineUnknown)
                        || failure.cause == Cause::RecordUnavailable && self.context.deleting =>
                {
                    tracing::warn!(host = %self.context.key.name, "let go without a call to its BMC: {}", failure.message);
                }
                Err(failure) if request.force => {
                    tracing::warn!(host = %self.context.key.name, "let go by force, its medium may be left in the drive: {}", failure.message);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.live.close().await;
        self.shared.media.withdraw(self.uid());
        self.shared.hub.forget(self.uid());
        self.shared.live.forget(&self.context.key.uid);
        self.shared.subjects.forget(&self.context.key.uid);
        Ok(Verdict::Done(()))
    }
}

impl NativeHost {
    /// Shows the newest operation to people, and acknowledges an agent's outcome whose work is over.
    pub async fn settle_with_journal(&self) {
        self.journal.show().await;
        let newest = self.journal.newest();
        self.settle(newest.as_ref().map(|newest| (newest.id.as_str(), newest.phase)));
    }
}
