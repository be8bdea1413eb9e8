//! Work that takes its time: recorded, ordered, looked at until it is over, recorded as ended.

use api::metamorph::OperationPhase;
use provisioner::{Cause, Failure, Purpose, Waiting};
use serde_json::{Map, Value};

use crate::causes;
use crate::fault::Fault;
use crate::host::{IronicHost, LATER, SOON};
use crate::journal::{Kind, Running, Work};
use crate::node::{Node, Verb};
use crate::orders::{Order, Standing};
use crate::show::{doing, show};
use crate::stop::{Step, Stop};
use crate::way::{Goal, Way, way};

impl IronicHost {
    /// The work for this wish: true if it is under way, which it is from now on unless it has ended well.
    ///
    /// # Errors
    /// The failure that it ended with, if the host has not been told.
    pub async fn enter(&mut self, kind: Kind, wish: Option<&str>, restart: bool) -> Step<bool> {
        let known = self.journal.data.work.clone().filter(|work| work.is_for(kind, wish));
        match known {
            Some(work) if work.phase == OperationPhase::Succeeded => {
                show(&self.context, &work, None).await;
                Ok(false)
            }
            Some(Work { id, phase: OperationPhase::Failed, failure: Some(failure), .. })
                if !restart && self.tells(&id) =>
            {
                Err(failure.into())
            }
            Some(work) if work.phase == OperationPhase::Running => Ok(true),
            _ => {
                self.leads()?;
                let (work, ended) = self.journal.begin(&self.context, kind, wish);
                self.record(Purpose::Intent).await?;
                if let Some(ended) = ended {
                    show(&self.context, &ended, None).await;
                }
                show(&self.context, &work, None).await;
                Ok(true)
            }
        }
    }

    /// Notes that the host gets the failure of this work; false if it already has.
    fn tells(&self, id: &str) -> bool {
        let before = self.shared.memory.of(&self.context.key.uid, |live| live.reported.replace(id.to_owned()));
        before.as_deref() != Some(id)
    }

    /// The node with the standing of the last order. While that is carried out, what was seen a moment ago is enough; anything else is concluded of the node
    /// as this call has read it, whole.
    pub async fn observe(&self) -> Step<(Node, Option<(Order, Standing)>)> {
        if self.journal.data.work.as_ref().is_some_and(|work| work.order.is_some()) {
            let (node, is_whole) = self.see().await?;
            let standing = self.standing(&node);
            if matches!(standing, Some((_, Standing::Running))) {
                return Ok((node, standing));
            }
            if is_whole {
                return Ok((self.proves(node)?, standing));
            }
        }
        let node = self.fresh().await?;
        let standing = self.standing(&node);
        Ok((node, standing))
    }

    /// The last order of the work under way, and what has become of it.
    fn standing(&self, node: &Node) -> Option<(Order, Standing)> {
        let work = self.journal.data.work.as_ref()?;
        let order = work.order.clone()?;
        let id = work.order_id();
        let accepted = self.shared.memory.of(&self.context.key.uid, |live| live.accepted.as_ref() == Some(&id));
        let standing = order.standing(node, accepted);
        Some((order, standing))
    }

    /// Orders a verb of the work under way: recorded before it is made. What is returned is never "done".
    pub async fn order(&mut self, node: &Node, verb: Verb, cleans: bool, with: Map<String, Value>) -> Stop {
        match self.try_order(node, verb, cleans, with).await {
            Ok(stop) | Err(stop) => stop,
        }
    }

    async fn try_order(&mut self, node: &Node, verb: Verb, cleans: bool, with: Map<String, Value>) -> Step<Stop> {
        self.leads()?;
        let now = self.now();
        if let Some(left) = self.client()?.gate(|gate| gate.closed_for(now)) {
            return Ok(self.busy("Ironic had no room a moment ago".to_owned(), left));
        }
        self.has_room(node, verb, cleans).await?;
        let Some(work) = self.journal.running() else {
            return Ok(Failure::new(Cause::Internal, "order something of Ironic: no work is under way").into());
        };
        let kind = work.kind;
        let order = Order::of(verb, work.orders.saturating_add(1), node, cleans);
        if !work.order.as_ref().is_some_and(|known| known.is_same(&order)) {
            work.orders = order.number;
            work.order = Some(order);
            if verb == Verb::Active {
                self.journal.data.unwritten = None;
            }
            self.record(Purpose::Intent).await?;
        }
        let client = self.client()?;
        client.ordered(now, &node.uuid);
        self.still().await?;
        let made = client.provision(&node.uuid, verb, with).await;
        match made {
            Ok(()) => {
                client.gate(crate::fleet::Gate::open);
                self.taken();
                let id = self.journal.data.work.as_ref().map(Work::order_id);
                self.shared.memory.of(&self.context.key.uid, |live| live.accepted = id);
                self.says(&format!("Ironic was told to {} the node", verb.target())).await;
                // A machine that boots for it is not done with it soon.
                let takes_time = boots(node, verb, cleans) && !self.one()?.site.fakes;
                Ok(Stop::working(doing(kind), self.soon(if takes_time { LATER } else { SOON })))
            }
            Err(Fault::Refused { status: 400, text }) => match self.outdated(node, doing(kind), text).await {
                Stop::Failed(failure) if failure.cause != Cause::ProvisionerUnavailable => Ok(self.fail(failure).await),
                other => Ok(other),
            },
            Err(fault) => Ok(self.heed(doing(kind), fault)),
        }
    }

    /// Machines that boot over the network share a limited number of places.
    async fn has_room(&self, node: &Node, verb: Verb, cleans: bool) -> Step<()> {
        let needs_network = !node.boot_interface.as_deref().is_some_and(|boot| boot.contains("virtual-media"));
        if !boots(node, verb, cleans) || !needs_network || self.address()?.driver.iso {
            return Ok(());
        }
        let one = self.one()?;
        let others = one
            .client
            .network_boots(&self.context.now, &node.uuid)
            .await
            .map_err(|fault| self.heed("list the nodes", fault))?;
        if others < one.site.provisioning_limit {
            return Ok(());
        }
        let reason = format!("{others} machines boot over the network of the Ironic \"{}\" already", one.site.name);
        Err(self.busy(reason, self.soon(LATER)))
    }

    /// Shows what is being done in the work under way.
    pub async fn says(&self, message: &str) {
        if let Some(work) = self.journal.data.work.as_ref().filter(|work| !work.phase.is_final()) {
            show(&self.context, work, Some(message)).await;
        }
    }

    /// Ironic is at work: shown, and looked at again.
    pub async fn waits(&self, node: &Node) -> Stop {
        let said = match node.lasting_fault() {
            Some(fault) => format!("{}, and in maintenance for a {fault}", node.doing()),
            // Ironic ends what waits for an agent too long, but for nodes in maintenance.
            None if node.maintenance && node.state().waits() => {
                format!(
                    "{}, and in maintenance, in which Ironic ends no wait: take the node out of maintenance",
                    node.doing()
                )
            }
            None => node.doing(),
        };
        self.says(&said).await;
        // Work that has just begun may have been ordered by another process a moment ago.
        let work = self.journal.data.work.as_ref();
        let is_new = work.is_some_and(|work| {
            work.order.is_none() && self.now().duration_since(work.begun).as_secs() < i64::try_from(LATER).unwrap_or(0)
        });
        Stop::working(said, self.soon(if is_new { SOON } else { LATER }))
    }

    /// The work has failed: recorded before it is told.
    pub async fn fail(&mut self, failure: Failure) -> Stop {
        let ended = self.journal.end(self.now(), OperationPhase::Failed, Some(failure.clone()));
        if let Err(error) = self.record(Purpose::Note).await {
            return error.into();
        }
        if let Some(work) = ended {
            show(&self.context, &work, None).await;
            self.tells(&work.id);
        }
        failure.into()
    }

    /// It has failed with what the node says.
    pub async fn fail_with(&mut self, node: &Node, kind: Kind) -> Stop {
        self.fail(causes::failure(doing(kind), node.error())).await
    }

    /// Nothing can be ordered of the node, and nobody knows for how long.
    pub async fn fail_faulty(&mut self, node: &Node) -> Stop {
        self.retell_credentials(node).await;
        let failure = faulty(node).unwrap_or_else(|| {
            let text = format!("use the node: {}, of which this version does not know", node.doing());
            Failure::new(Cause::ProvisionerFailed, text).advise("bring it to another state with Ironic's own tools")
        });
        self.fail(failure).await
    }

    /// What was ordered is not to be seen any more.
    pub async fn fail_lost(&mut self, node: &Node, order: &Order, kind: Kind) -> Stop {
        let text = format!(
            "{}: it was told to {} the node, and now {}: it has lost the node since, or somebody has ordered something else",
            doing(kind),
            order.verb.target(),
            node.doing()
        );
        self.fail(Failure::new(Cause::ProvisionerFailed, text)).await
    }

    /// The work has come to its end: recorded, then shown.
    pub async fn finish(&mut self, cleaned: bool) -> Step<()> {
        if cleaned {
            self.journal.data.unwritten = Some(self.context.key.uid.clone());
        }
        if let Some(work) = self.journal.running() {
            work.cleaned = cleaned;
            let (kind, wish, number) = (work.kind, work.wish.clone(), work.number);
            if matches!(kind, Kind::Provision | Kind::Deprovision) {
                let owner = self.context.key.uid.clone();
                self.journal.data.runs = (kind == Kind::Provision).then_some(Running { wish, owner, number });
                self.journal.data.given_away = None;
            }
        }
        let ended = self.journal.end(self.now(), OperationPhase::Succeeded, None);
        self.record(Purpose::Note).await?;
        if let Some(work) = ended {
            show(&self.context, &work, None).await;
        }
        Ok(())
    }

    /// Before the first order of a work, the node is as the host wishes.
    pub async fn begun_up_to_date(&self, node: Node) -> Step<Node> {
        let begins = self.journal.data.work.as_ref().is_some_and(|work| work.order.is_none());
        if begins { self.up_to_date(node, true).await } else { Ok(node) }
    }

    /// Has the node described as the host wishes, and brings it to where work begins; `Ok` when it is there.
    pub async fn advance(&mut self, goal: Goal, node: Node, removes: bool) -> Step<Node> {
        let node = self.begun_up_to_date(node).await?;
        self.advance_as_it_is(goal, node, removes).await
    }

    /// Brings the node, as it is described, to where work begins; `Ok` when it is there. With `removes`, or with its owner's consent, a system that is on it may be removed, without cleaning.
    pub async fn advance_as_it_is(&mut self, goal: Goal, node: Node, removes: bool) -> Step<Node> {
        let removes = removes || self.journal.data.given_away.as_ref() == Some(&self.context.key.uid);
        let aborts = self.aborts_deployments().await?;
        match way(goal, &node, removes, aborts) {
            Way::There => Ok(node),
            Way::Put(Verb::Deleted) => {
                // While its agent is waited for a node cannot be changed.
                let node = if node.state().waits() { node } else { self.set_cleaning(node, false).await? };
                let cleans = node.automated_clean != Some(false);
                Err(self.order(&node, Verb::Deleted, cleans, Map::new()).await)
            }
            Way::Put(Verb::Provide) => {
                let cleans = self.context.cleaning != api::metal3::CleaningMode::Disabled;
                let node = self.set_cleaning(node, cleans).await?;
                Err(self.order(&node, Verb::Provide, cleans, Map::new()).await)
            }
            // Recorded, too: a process that has not read what another has ordered meanwhile learns of it by that.
            Way::Put(verb) => Err(self.order(&node, verb, false, Map::new()).await),
            Way::LeaveMaintenance => Err(self.maintain(&node, None).await),
            Way::Wait => Err(self.waits(&node).await),
            Way::Faulty => Err(self.fail_faulty(&node).await),
            Way::Register => {
                let reason = "Ironic has not verified access to the BMC".to_owned();
                Err(Stop::Waiting(Waiting::Registration { reason }))
            }
            Way::Deployed => {
                let text = format!("use the machine: {}, so a system is on it", node.doing());
                Err(self
                    .fail(Failure::new(Cause::MachineInUse, text).advise("have the host deprovisioned first"))
                    .await)
            }
        }
    }
}

/// What Ironic itself has put the node into maintenance for.
pub fn faulty(node: &Node) -> Option<Failure> {
    let fault = node.lasting_fault()?;
    let said = node.maintenance_reason.as_deref().or(node.error()).map(causes::shown);
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    let text = format!("use the node: Ironic has put it into maintenance for a {fault}{said}");
    Some(Failure::new(Cause::BmcUnreachable, text))
}

/// Whether the machine boots Ironic's agent for this order, if that is not running.
fn boots(node: &Node, verb: Verb, cleans: bool) -> bool {
    match verb {
        Verb::Active | Verb::Clean => true,
        Verb::Inspect => node.inspect_interface.as_deref().is_none_or(|interface| interface == "agent"),
        Verb::Provide | Verb::Deleted => cleans,
        _ => false,
    }
}
