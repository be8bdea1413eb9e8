//! Inspection, by Ironic's agent or by the BMC alone.

use async_trait::async_trait;
use inventory::Inspected;
use provisioner::{Inspect, InspectRequest, Outcome, Purpose};
use serde_json::{Map, Value};

use crate::details::details;
use crate::fault::Fault;
use crate::host::IronicHost;
use crate::image::capabilities;
use crate::journal::Kind;
use crate::node::{Node, State, Verb};
use crate::orders::Standing;
use crate::patch::Changes;
use crate::stop::{Step, answer};
use crate::way::Goal;

impl IronicHost {
    async fn inspected(&mut self, request: InspectRequest) -> Step<Box<Inspected>> {
        self.leads()?;
        self.shared.memory.of(&self.context.key.uid, |live| live.attempt.rests());
        self.nothing_ends("inspect the machine")?;
        let under_way = self.enter(Kind::Inspect, request.wish.as_deref(), request.restart).await?;
        if !under_way {
            // It has been done, and the answer was lost.
            let node = self.fresh().await?;
            return self.found(&node).await;
        }
        let (node, standing) = self.observe().await?;
        if let Some((order, standing)) = standing {
            match standing {
                Standing::Running if request.force_reboot && node.state() == State::InspectWait => {
                    return Err(self.boot_again().await);
                }
                Standing::Running => return Err(self.waits(&node).await),
                Standing::Failed => return Err(self.fail_with(&node, Kind::Inspect).await),
                Standing::Elsewhere => return Err(self.fail_lost(&node, &order, Kind::Inspect).await),
                Standing::Came if order.verb == Verb::Inspect => {
                    let found = self.found(&node).await?;
                    self.finish(false).await?;
                    return Ok(found);
                }
                Standing::Came | Standing::NotMade => {}
            }
        }
        let node = self.advance(Goal::Manageable, node, false).await?;
        let node = self.describe(&request, node).await?;
        Err(self.order(&node, Verb::Inspect, false, Map::new()).await)
    }

    /// What the inspection is to know: boot mode, architecture, by which interface.
    async fn describe(&self, request: &InspectRequest, node: Node) -> Step<Node> {
        let address = self.address()?;
        let mut changes = Changes::default();
        let modes = capabilities(node.properties.get("capabilities"), self.context.boot_mode);
        changes.member("properties", &node.properties, "capabilities", Some(modes.into()));
        if let Some(architecture) = &self.context.architecture {
            changes.member("properties", &node.properties, "cpu_arch", Some(architecture.clone().into()));
        }
        let wished = address
            .interfaces(Self::is_fast(request.mode))
            .into_iter()
            .find(|(field, _)| *field == "inspect_interface");
        if let Some((field, wished)) = wished {
            changes.field(field, node.inspect_interface.clone().map(Value::from), Some(wished.into()));
        }
        self.change("describe the node", node, changes).await
    }

    /// What Ironic keeps of the last inspection.
    async fn found(&self, node: &Node) -> Step<Box<Inspected>> {
        let kept = match self.client()?.inventory(&node.uuid).await {
            Ok(kept) => kept,
            // Not every interface has one.
            Err(fault @ Fault::NotFound(_)) if !fault.is_without(&node.uuid) => Value::Null,
            Err(fault) => return Err(self.heed("read what the inspection found", fault)),
        };
        Ok(Box::new(details(&kept, &node.properties)))
    }

    /// The system that the work runs in is ended; the work then begins anew. The order is forgotten first, so that its end is not taken for a failure.
    pub async fn boot_again(&mut self) -> crate::stop::Stop {
        if let Some(work) = self.journal.running() {
            work.order = None;
        }
        if let Err(error) = self.record(Purpose::Intent).await {
            return error.into();
        }
        // A list does not tell whose the node is.
        let node = &match self.fresh().await {
            Ok(node) => node,
            Err(stop) => return stop,
        };
        let verb = match (node.state(), self.aborts_deployments().await) {
            (_, Err(stop)) => return stop,
            (State::DeployWait, Ok(false)) => Verb::Deleted,
            _ => Verb::Abort,
        };
        if verb == Verb::Deleted {
            return self.order(node, verb, node.automated_clean != Some(false), Map::new()).await.accepted();
        }
        self.nudge(node, verb).await.accepted()
    }
}

#[async_trait]
impl Inspect for IronicHost {
    async fn inspect(&mut self, request: InspectRequest) -> Outcome<Box<Inspected>> {
        answer(self.inspected(request).await)
    }
}
