//! Registration, adoption, release.

use api::metamorph::OperationPhase;
use async_trait::async_trait;
use provisioner::{
    AdoptRequest, Manage, Outcome, Purpose, RegisterRequest, Registered, ReleaseRequest, Verdict, Waiting,
};
use serde_json::Value;

use crate::causes;
use crate::fault::Fault;
use crate::host::{IronicHost, LATER, SOON};
use crate::image::{image_fields, instance_capabilities};
use crate::names::instance_uuid;
use crate::node::{Node, State, Verb};
use crate::patch::Changes;
use crate::show::show;
use crate::stop::{Step, Stop, answer};

/// Why a node is put into maintenance before it is removed.
const REASON: &str = "let go by metamorph";

impl IronicHost {
    /// Takes over what is on the machine.
    pub async fn adopted(&mut self, request: AdoptRequest) -> Step<()> {
        self.leads()?;
        let node = self.fresh().await?;
        match node.state() {
            State::Enroll => Err(Stop::Waiting(Waiting::Registration {
                reason: "Ironic has not verified access to the BMC".to_owned(),
            })),
            State::Verifying | State::Adopting => Err(Stop::working(node.doing(), self.soon(SOON))),
            State::Active if node.maintenance && node.lasting_fault().is_none() && !self.context.deleting => {
                Err(self.maintain(&node, None).await)
            }
            State::Manageable if node.maintenance && node.lasting_fault().is_none() => {
                Err(self.maintain(&node, None).await)
            }
            // It was made ready to be deployed, though a system is on it.
            State::Available => Err(self.nudge(&node, Verb::Manage).await),
            State::Manageable => {
                let node = self.describe_deployed(&request, node).await?;
                Err(self.nudge(&node, Verb::Adopt).await)
            }
            State::AdoptFailed if request.restart => Err(self.nudge(&node, Verb::Adopt).await),
            State::AdoptFailed => {
                Err(causes::failure("have Ironic take over what is on the machine", node.error()).into())
            }
            _ => Ok(()),
        }
    }

    /// What is on the machine, as if Ironic had deployed it.
    async fn describe_deployed(&self, request: &AdoptRequest, node: Node) -> Step<Node> {
        let mut changes = Changes::default();
        let method = &request.deployed.method;
        if let Some(image) = &request.deployed.image {
            let mut fields = image_fields(method, image, None);
            fields.push(("capabilities", Some(instance_capabilities(self.context.boot_mode))));
            changes.members("instance_info", &node.instance_info, fields);
            self.deploys_by(method, &node, &mut changes);
        }
        let instance = instance_uuid(&self.context.key.uid);
        changes.field("instance_uuid", node.instance_uuid.clone().map(Value::from), Some(instance.into()));
        self.change("describe what is deployed", node, changes).await
    }

    async fn released(&mut self, request: ReleaseRequest) -> Step<()> {
        self.leads()?;
        if let Some(work) = self.journal.end(self.now(), OperationPhase::Cancelled, None) {
            self.note().await?;
            show(&self.context, &work, None).await;
        }
        if self.uuid().is_empty() {
            return Ok(());
        }
        match self.let_go(request.force).await {
            Err(Stop::Failed(failure))
                if request.force && failure.cause == provisioner::Cause::ProvisionerUnavailable =>
            {
                tracing::warn!(host = %self.context.key.name, "let go by force, its node may be left in Ironic: {}", failure.message);
                self.context
                    .machine
                    .note(&format!("let go by force; a node may be left in Ironic: {}", failure.message))
                    .await;
            }
            other => other?,
        }
        let data = &mut self.journal.data;
        if data.node.is_some() || data.medium.is_some() || !data.subscriptions.is_empty() {
            (data.node, data.medium) = (None, None);
            data.subscriptions.clear();
            self.note().await?;
        }
        self.shared.memory.forget(&self.context.key.uid);
        Ok(())
    }

    /// Records; a namespace that goes takes no new objects.
    async fn note(&mut self) -> Step<()> {
        match self.record(Purpose::Note).await {
            Err(error) if self.context.deleting && !error.not_leading => {
                tracing::warn!(host = %self.context.key.name, %error, "let go");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// Removes the node. What is on the machine, and its power, are left.
    async fn let_go(&mut self, force: bool) -> Step<()> {
        let node = match self.fresh().await {
            Ok(node) => node,
            Err(Stop::Waiting(Waiting::Registration { .. })) => return Ok(()),
            Err(stop) => return Err(stop),
        };
        let waits = Stop::working(node.doing(), self.soon(LATER));
        match node.state() {
            State::Enroll => {}
            state if state.holds_lock() => return Err(Stop::working(node.doing(), self.soon(SOON))),
            // An inspection changes nothing.
            State::InspectWait => return Err(self.nudge(&node, Verb::Abort).await),
            State::DeployWait if force && !self.aborts_deployments().await? => {
                return Err(self.nudge(&node, Verb::Deleted).await);
            }
            state if state.waits() && force => return Err(self.nudge(&node, Verb::Abort).await),
            state if state.waits() => return Err(waits),
            State::Available | State::Manageable if node.instance_uuid.is_some() => {
                let mut changes = Changes::default();
                changes.field("instance_uuid", node.instance_uuid.clone().map(Value::from), None);
                self.change("take the instance from the node", node.clone(), changes).await?;
            }
            State::Available | State::Manageable => {}
            _ if !node.maintenance => {
                self.eject(&node).await;
                return Err(self.maintain(&node, Some(REASON)).await);
            }
            _ => {}
        }
        self.leads()?;
        let client = self.client()?;
        client.ordered(self.now(), &node.uuid).await;
        match client.delete(&node.uuid).await {
            Ok(()) | Err(Fault::NotFound(_)) => Ok(()),
            Err(fault) => Err(self.heed("remove the node", fault)),
        }
    }

    /// Takes out the medium that was put in, if Ironic still can.
    async fn eject(&self, node: &Node) {
        if self.journal.data.medium.is_none() {
            return;
        }
        if let Ok(client) = self.client()
            && let Err(fault) = client.detach(&node.uuid).await
        {
            tracing::warn!(host = %self.context.key.name, %fault, "a medium may be left in the machine");
        }
    }
}

#[async_trait]
impl Manage for IronicHost {
    async fn register(&mut self, request: RegisterRequest) -> Outcome<Registered> {
        answer(self.registered(request).await)
    }

    async fn adopt(&mut self, request: AdoptRequest) -> Outcome<()> {
        answer(self.adopted(request).await)
    }

    async fn release(&mut self, request: ReleaseRequest) -> Outcome<()> {
        let verdict = answer(self.released(request).await)?;
        Ok(match verdict {
            // What is not known is gone.
            Verdict::Waiting(Waiting::Registration { .. }) => Verdict::Done(()),
            other => other,
        })
    }
}
