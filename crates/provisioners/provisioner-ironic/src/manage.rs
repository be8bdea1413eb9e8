//! Registration, adoption, release.

use std::time::Duration;

use api::metamorph::OperationPhase;
use async_trait::async_trait;
use provisioner::{
    AdoptRequest, Cause, Deployed, Failure, Manage, Method, Outcome, Purpose, RegisterRequest, Registered,
    ReleaseRequest, Verdict, Waiting,
};
use provisioning_plan::in_use::{Recorded, Runs, began};
use serde_json::Value;

use crate::causes;
use crate::host::{IronicHost, LATER, SOON};
use crate::image::{image_fields, instance_capabilities};
use crate::journal::Running;
use crate::names::instance_uuid;
use crate::node::{Node, State, Verb};
use crate::patch::Changes;
use crate::show::show;
use crate::stop::{Step, Stop, answer};

/// Why a node is put into maintenance before it is removed.
const REASON: &str = "let go by metamorph";
/// How long a host that is let go by force waits for work of Ironic's to be broken off, seconds.
const FORCED: i64 = 300;

impl IronicHost {
    /// Takes over what is on the machine.
    pub async fn adopted(&mut self, request: AdoptRequest) -> Step<()> {
        self.leads()?;
        self.remembers_what_runs().await;
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
            // Cleaning and inspection of a machine in use are broken off.
            State::CleanWait | State::CleanHold | State::InspectWait => Err(self.nudge(&node, Verb::Abort).await),
            State::Cleaning | State::Inspecting => Err(Stop::working(node.doing(), self.soon(SOON))),
            State::CleanFailed | State::InspectFailed | State::Available
                if node.maintenance && node.lasting_fault().is_none() =>
            {
                Err(self.maintain(&node, None).await)
            }
            // It was made ready to be deployed, though a system is on it.
            State::Available | State::CleanFailed | State::InspectFailed => Err(self.nudge(&node, Verb::Manage).await),
            State::Manageable => {
                let node = self.describe_deployed(&request, node).await?;
                Err(self.nudge(&node, Verb::Adopt).await)
            }
            State::AdoptFailed if request.restart => Err(self.nudge(&node, Verb::Adopt).await),
            State::AdoptFailed => {
                Err(causes::failure("have Ironic take over what is on the machine", node.error()).into())
            }
            State::Active
            | State::Servicing
            | State::ServiceWait
            | State::ServiceHold
            | State::ServiceFailed
            | State::Rescue => self.runs(&request.deployed).await,
            State::Deploying
            | State::DeployWait
            | State::DeployHold
            | State::DeployFailed
            | State::Deleting
            | State::Error
            | State::Other => {
                let text = format!(
                    "have Ironic take over what is on the machine: {}, so what is on it is not what the host says",
                    node.doing()
                );
                Err(Failure::new(Cause::ProvisionerFailed, text)
                    .advise("bring the node to the state manageable or active with Ironic's own tools, or deprovision the host")
                    .into())
            }
        }
    }

    /// Records what runs on the machine.
    async fn runs(&mut self, deployed: &Deployed) -> Step<()> {
        if deployed.externally {
            return self.leaves_to_others().await;
        }
        if deployed.image.is_none() && deployed.method == Method::Disk {
            return Ok(());
        }
        // An old status tells of less than the record.
        let told = deployed.wish.as_deref().and_then(began);
        let is_another = |owner: &str| owner != self.context.key.uid;
        let is_news = match self.journal.data.on_machine() {
            Recorded::Runs(known) => told.is_some_and(|told| {
                known.began().is_none_or(|began| told > began || told == began && is_another(&known.owner))
            }),
            _ => true,
        };
        if is_news {
            let (wish, owner) = (deployed.wish.clone(), self.context.key.uid.clone());
            self.journal.data.runs = Some(Running { wish, owner, number: self.journal.data.number });
            self.journal.data.given_away = None;
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    /// Records that others decide about what is on the machine: it is in use for as long as this host has it.
    async fn leaves_to_others(&mut self) -> Step<()> {
        if self.journal.data.leave_to_others(Some(self.context.key.uid.clone())) {
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    /// Whether the host's status knows what is on the machine, before it is booted or worked at.
    ///
    /// # Errors
    /// The machine is in use: the status is an older one.
    pub fn nothing_ends(&self, attempt: &str) -> Result<(), Failure> {
        if self.journal.data.given_away.as_ref() == Some(&self.context.key.uid) {
            return Ok(());
        }
        self.context.past.knows(&self.journal.data.on_machine(), attempt)
    }

    /// Keeps what the host says its machine runs in the record where that does not say so yet: a status may be lost, and a host be let go while Ironic is away.
    pub async fn remembers_what_runs(&mut self) {
        let Some(deployed) = self.context.deployed.clone().filter(|_| !self.context.deleting) else { return };
        let is_known = !matches!(self.journal.data.on_machine(), Recorded::Runs(Runs { wish: None, .. }));
        if !deployed.externally && is_known {
            return;
        }
        if let Err(stop) = self.runs(&deployed).await {
            // It is written with the next look or work.
            tracing::debug!(host = %self.context.key.name, ?stop, "record what the machine runs");
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
        self.taken();
        if !request.force {
            self.shared.memory.of(&self.context.key.uid, |live| live.forced = None);
        }
        let stop = self.let_go(request.force).await;
        if let Err(stop) = stop {
            let Some(why) = Some(&stop).filter(|_| request.force).and_then(|stop| self.left_by_force(stop)) else {
                return Err(stop);
            };
            tracing::warn!(host = %self.context.key.name, "let go by force, its node may be left in Ironic: {why}");
            self.context.machine.note(&format!("let go by force; a node may be left in Ironic: {why}")).await;
        }
        let data = &mut self.journal.data;
        let externally = self.context.deployed.as_ref().is_some_and(|deployed| deployed.externally);
        // Nothing of it is this host's any more when that is deleted.
        let owner = (!self.context.deleting).then(|| self.context.key.uid.clone());
        let is_left = externally && data.leave_to_others(owner);
        let is_known = data.node.is_some() || data.ironic.is_some();
        if is_known || is_left || data.medium.is_some() || !data.subscriptions.is_empty() {
            (data.node, data.medium) = (None, None);
            // Attached again it gets the Ironic of its namespace, or the one that still has its node.
            (data.ironic, data.endpoint) = (None, None);
            (data.owner, data.given_away) = (None, None);
            data.subscriptions.clear();
            self.note().await?;
        }
        self.shared.memory.forget(&self.context.key.uid);
        Ok(())
    }

    /// Why a host that is let go by force is not kept for this any longer; nothing while it is to be waited for.
    fn left_by_force(&self, stop: &Stop) -> Option<String> {
        let now = self.now();
        let (since, is_locked) = self
            .shared
            .memory
            .of(&self.context.key.uid, |live| (*live.forced.get_or_insert(now), live.locked.is_some()));
        let long = now.duration_since(since).as_secs() >= FORCED;
        match stop {
            Stop::Failed(failure) => {
                (long || failure.cause == Cause::ProvisionerUnavailable).then(|| failure.message.clone())
            }
            Stop::Waiting(Waiting::Busy { reason, .. }) => Some(reason.clone()),
            Stop::Waiting(Waiting::Registration { .. }) => None,
            Stop::Waiting(other) => long.then(|| format!("{other:?}")),
            Stop::Working(working) => (long || is_locked).then(|| working.step.clone()),
        }
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
        let node = match self.read().await {
            Ok(node) => node,
            Err(Stop::Waiting(Waiting::Registration { .. })) => return Ok(()),
            Err(stop) => return Err(stop),
        };
        if !self.is_own(&node) {
            let text = format!(
                "let go; the node {}, which its status names, is not this host's, and is left in Ironic",
                node.shown()
            );
            tracing::warn!(host = %self.context.key.name, "{text}");
            self.context.machine.note(&text).await;
            return Ok(());
        }
        let waits = Stop::working(node.doing(), self.soon(LATER));
        let goes_as_it_is = force && node.state() == State::DeployWait && !self.aborts_deployments().await?;
        match node.state() {
            State::Enroll => {}
            state if state.holds_lock() => return Err(Stop::working(node.doing(), self.soon(SOON))),
            // An inspection changes nothing.
            State::InspectWait => return Err(self.nudge(&node, Verb::Abort).await),
            // A deployment that cannot be aborted: removing the system would clean its disks: the node goes as it is.
            _ if goes_as_it_is && !node.maintenance => return Err(self.maintain(&node, Some(REASON)).await),
            _ if goes_as_it_is => {}
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
        client.ordered(self.now(), &node.uuid);
        match client.delete(&node.uuid).await {
            Ok(()) => Ok(()),
            Err(fault) if fault.is_without(&node.uuid) => Ok(()),
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
        let forced = request.force;
        let verdict = match answer(self.released(request).await) {
            // The host does not know that it has a node: it is not to go and leave that behind.
            Err(failure)
                if !forced
                    && failure.cause == Cause::ProvisionerUnavailable
                    && self.context.provisioning_id.is_empty()
                    && self.journal.data.node.is_some() =>
            {
                let reason = format!(
                    "{}; the host waits for that, so that its node does not stay, or for the annotation {}={{\"force\":true}}",
                    failure.message,
                    api::metal3::annotation::DETACHED
                );
                Verdict::Waiting(Waiting::Busy { reason, look_again: Duration::from_secs(LATER) })
            }
            other => other?,
        };
        Ok(match verdict {
            // What is not known is gone.
            Verdict::Waiting(Waiting::Registration { .. }) => Verdict::Done(()),
            other => other,
        })
    }
}
