//! Removal of what was deployed, with the cleaning that follows.
//!
//! `deleted` removes a system, and the node's `automated_clean` says whether the disks are cleaned after that. A node without a system (its entry was lost
//! and made again, or the last cleaning failed) is cleaned by `provide`.

use api::metamorph::OperationPhase;
use provisioner::{Cause, CleaningRequest, Deprovisioned, Method, Purpose};
use serde_json::Map;

use crate::host::IronicHost;
use crate::journal::Kind;
use crate::node::{Node, State, Verb};
use crate::orders::Standing;
use crate::show::{doing, show};
use crate::stop::{Step, Stop};
use crate::way::Goal;

impl IronicHost {
    /// Removes what was provisioned.
    pub async fn removed(&mut self, request: CleaningRequest) -> Step<Deprovisioned> {
        self.leads()?;
        let uid = self.context.key.uid.clone();
        let is_deployed = request.deployed.image.is_some() || request.deployed.method != Method::Disk;
        // The host says so by an annotation, which anybody may have set: the record has its own word on what has begun.
        let is_begun = self.journal.data.work.as_ref().is_some_and(|work| match work.kind {
            Kind::Provision => self.journal.data.unwritten.as_ref() != Some(&uid),
            Kind::Deprovision => work.phase != OperationPhase::Succeeded,
            _ => false,
        });
        if request.empty && !is_deployed && !is_begun {
            self.gives_up().await?;
            return Ok(Deprovisioned { wiped: false, untouched: true });
        }
        let ends = self.shared.memory.of(&uid, |live| live.attempt.end(request.wish.as_deref()));
        if !is_deployed && ends && self.journal.data.unwritten.as_ref() == Some(&uid) {
            self.gives_up().await?;
            return Ok(Deprovisioned { wiped: false, untouched: true });
        }
        self.context.past.knows(&self.journal.data.on_machine(), doing(Kind::Deprovision))?;
        if !self.enter(Kind::Deprovision, request.wish.as_deref(), request.restart).await? {
            let wiped = self.journal.data.work.as_ref().is_some_and(|work| work.cleaned);
            return Ok(Deprovisioned { wiped, untouched: false });
        }
        let (node, standing) = self.observe().await?;
        match standing {
            Some((_, Standing::Running)) => return Err(self.waits(&node).await),
            Some((_, Standing::Failed)) => return Err(self.fail_with(&node, Kind::Deprovision).await),
            Some((order, Standing::Elsewhere)) => return Err(self.fail_lost(&node, &order, Kind::Deprovision).await),
            Some((order, Standing::Came)) if order.removes() && (order.cleans || !request.clean) => {
                self.finish(order.cleans).await?;
                return Ok(Deprovisioned { wiped: order.cleans, untouched: false });
            }
            Some((order, Standing::Came)) if order.removes() => {
                // The disks were to be left before, and are to be cleaned now: the node goes on from where it is.
                if let Some(work) = self.journal.running() {
                    work.order = None;
                }
                self.record(Purpose::Note).await?;
            }
            Some((_, Standing::Came | Standing::NotMade)) | None => {}
        }
        Err(self.remove(&request, node).await?)
    }

    /// Work that has not begun to write is not gone on with.
    async fn gives_up(&mut self) -> Step<()> {
        if let Some(work) = self.journal.end(self.now(), OperationPhase::Cancelled, None) {
            self.record(Purpose::Note).await?;
            show(&self.context, &work, None).await;
        }
        Ok(())
    }

    /// The next order on the way; `Ok` is what to answer.
    async fn remove(&mut self, request: &CleaningRequest, node: Node) -> Step<Stop> {
        let cleans = request.clean;
        let node = match self.begun_up_to_date(node.clone()).await {
            Ok(node) => node,
            // No system stays for what its removal does not need.
            Err(Stop::Failed(failure)) if failure.cause != Cause::ProvisionerUnavailable => {
                tracing::warn!(host = %self.context.key.name, "what is deployed is removed by the node as it was described before: {}", failure.message);
                node
            }
            Err(stop) => return Err(stop),
        };
        match node.state() {
            State::Active | State::DeployFailed | State::Error | State::Rescue | State::ServiceFailed
                if node.lasting_fault().is_none() =>
            {
                if node.maintenance {
                    return Ok(self.maintain(&node, None).await);
                }
                let node = self.set_cleaning(node, cleans).await?;
                Ok(self.order(&node, Verb::Deleted, cleans, Map::new()).await)
            }
            State::Manageable if node.lasting_fault().is_none() && !node.maintenance => {
                let node = self.set_cleaning(node, cleans).await?;
                Ok(self.order(&node, Verb::Provide, cleans, Map::new()).await)
            }
            State::Available if !cleans => {
                self.finish(false).await?;
                Ok(Stop::working("what was deployed is removed", std::time::Duration::from_secs(1)))
            }
            // It has to be manageable to be cleaned; what waits for an agent is aborted on the way.
            _ => {
                let node = self.advance_as_it_is(Goal::Manageable, node, true).await?;
                Ok(self.waits(&node).await)
            }
        }
    }
}
