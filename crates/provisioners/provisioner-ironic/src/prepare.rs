//! RAID, settings and firmware: by cleaning of an empty machine, by servicing of one in use.

use api::metamorph::OperationPhase;
use async_trait::async_trait;
use provisioner::{
    AdoptRequest, Cause, Failure, Outcome, Prepare, PrepareRequest, Purpose, Retry, Service, ServiceRequest,
};
use serde_json::{Map, Value};

use crate::host::{IronicHost, SOON};
use crate::journal::Kind;
use crate::node::{Node, State, Verb};
use crate::orders::Standing;
use crate::patch::Changes;
use crate::show::{doing, show};
use crate::steps::{Preparation, firmware, raid};
use crate::stop::{Step, Stop, answer};
use crate::way::Goal;

fn wrong(kind: Kind, text: String) -> Failure {
    let mut failure = Failure::new(Cause::InvalidRequest, format!("{}: {text}", doing(kind)));
    failure.retry = Retry::AfterChange;
    failure
}

fn with(name: &str, steps: &[Value]) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), Value::Array(steps.to_vec()))])
}

impl IronicHost {
    fn is_under_way(&self, kind: Kind, wish: Option<&str>) -> bool {
        self.journal.data.work.as_ref().is_some_and(|work| work.is_for(kind, wish) && !work.phase.is_final())
    }

    /// Whether the last work was of this kind, and goes on or was ended before it came to its end.
    fn is_left_undone(&self, kind: Kind) -> bool {
        let undone = |phase| matches!(phase, OperationPhase::Running | OperationPhase::Cancelled);
        self.journal.data.work.as_ref().is_some_and(|work| work.kind == kind && undone(work.phase))
    }

    async fn prepared(&mut self, request: PrepareRequest) -> Step<()> {
        self.leads()?;
        self.shared.memory.of(&self.context.key.uid, |live| live.attempt.rests());
        let own = self.address()?.driver.raid.unwrap_or("no-raid");
        let (wished, actual) = (request.raid.as_ref(), request.actual_raid.as_ref());
        let mut plan =
            raid(own, wished, actual, &request.root_device_hints).map_err(|text| wrong(Kind::Prepare, text))?;
        plan.steps.extend(firmware(&request.firmware));
        let wish = request.wish.as_deref();
        if !self.is_under_way(Kind::Prepare, wish) && (plan.steps.is_empty() || !request.unprepared && !request.restart)
        {
            // Nothing differs, or it was accepted and has been done. What is made for another wish is wished no more.
            if self.is_left_undone(Kind::Prepare) {
                return self.broken_off(Kind::Prepare).await;
            }
            self.fresh().await?;
            return Ok(());
        }
        self.nothing_ends("prepare the machine")?;
        if !self.enter(Kind::Prepare, wish, request.restart).await? {
            return Ok(());
        }
        self.go_on(Kind::Prepare, plan).await
    }

    async fn serviced(&mut self, request: ServiceRequest) -> Step<()> {
        self.leads()?;
        let wish = request.wish.as_deref();
        let steps = firmware(&request.firmware);
        if !self.is_under_way(Kind::Service, wish) && (steps.is_empty() || !request.unprepared && !request.restart) {
            self.fresh().await?;
            return Ok(());
        }
        if !self.enter(Kind::Service, wish, request.restart).await? {
            return Ok(());
        }
        self.go_on(Kind::Service, Preparation { steps, ..Preparation::default() }).await
    }

    async fn go_on(&mut self, kind: Kind, plan: Preparation) -> Step<()> {
        let (node, standing) = self.observe().await?;
        match standing {
            Some((_, Standing::Running)) => return Err(self.waits(&node).await.accepted()),
            Some((_, Standing::Failed)) => return Err(self.fail_with(&node, kind).await),
            Some((order, Standing::Elsewhere)) => return Err(self.fail_lost(&node, &order, kind).await),
            Some((order, Standing::Came)) if matches!(order.verb, Verb::Clean | Verb::Service) => {
                return self.finish(false).await;
            }
            Some((_, Standing::Came | Standing::NotMade)) | None => {}
        }
        if kind == Kind::Service {
            return Err(self.service_now(node, &plan).await?);
        }
        let node = self.advance(Goal::Manageable, node, false).await?;
        if !plan.volumes.is_empty() || plan.raid_interface.is_some() {
            self.set_volumes(&node, &plan).await?;
        }
        Err(self.order(&node, Verb::Clean, false, with("clean_steps", &plan.steps)).await.accepted_if_ordered(self))
    }

    async fn set_volumes(&self, node: &Node, plan: &Preparation) -> Step<()> {
        let mut changes = Changes::default();
        if let Some(interface) = &plan.raid_interface {
            let now = node.raid_interface.clone().map(Value::from);
            changes.field("raid_interface", now, Some(interface.clone().into()));
        }
        let node = self.change("say how volumes are made", node.clone(), changes).await?;
        if plan.volumes.is_empty() {
            return Ok(());
        }
        self.leads()?;
        let client = self.client()?;
        client.ordered(self.now(), &node.uuid);
        let set = client.raid(&node.uuid, plan.volumes.clone()).await;
        set.map_err(|fault| self.heed("say which volumes are made", fault))
    }

    async fn service_now(&mut self, node: Node, plan: &Preparation) -> Step<Stop> {
        let node = self.begun_up_to_date(node).await?;
        match node.state() {
            State::Active | State::ServiceFailed if node.maintenance && node.lasting_fault().is_none() => {
                Ok(self.maintain(&node, None).await)
            }
            State::Active | State::ServiceFailed if node.lasting_fault().is_none() => {
                let steps = with("service_steps", &plan.steps);
                Ok(self.order(&node, Verb::Service, false, steps).await.accepted_if_ordered(self))
            }
            State::ServiceWait | State::ServiceHold => Ok(self.order(&node, Verb::Abort, false, Map::new()).await),
            // Its entry was lost and made again: what is on it is taken over first, which touches nothing.
            State::Manageable | State::Available | State::AdoptFailed => {
                let deployed = self.context.deployed.clone().unwrap_or_default();
                self.adopted(AdoptRequest { deployed, restart: true }).await?;
                Ok(self.waits(&node).await)
            }
            _ if node.lasting_fault().is_some() => Ok(self.fail_faulty(&node).await),
            state if state.is_at_work() => Ok(self.waits(&node).await),
            _ => {
                let text = format!("{}: {}, and nothing is deployed", doing(Kind::Service), node.doing());
                Ok(self.fail(Failure::new(Cause::ProvisionerFailed, text)).await)
            }
        }
    }

    /// Ends work that is not wished any more.
    async fn broken_off(&mut self, kind: Kind) -> Step<()> {
        self.leads()?;
        let is_of_kind = self.journal.data.work.as_ref().is_some_and(|work| work.kind == kind);
        if !is_of_kind {
            return Ok(());
        }
        if let Some(work) = self.journal.end(self.now(), OperationPhase::Cancelled, None) {
            self.record(Purpose::Intent).await?;
            show(&self.context, &work, None).await;
        }
        let node = self.fresh().await?;
        match (kind, node.state()) {
            (Kind::Prepare, State::CleanWait | State::CleanHold)
            | (Kind::Service, State::ServiceWait | State::ServiceHold) => Err(self.nudge(&node, Verb::Abort).await),
            (Kind::Service, State::ServiceFailed) => Err(self.leave_service(&node).await),
            (Kind::Prepare, State::CleanFailed) if node.maintenance => Err(self.maintain(&node, None).await),
            (Kind::Prepare, State::CleanFailed) => Err(self.nudge(&node, Verb::Manage).await),
            (Kind::Prepare, State::Cleaning) | (Kind::Service, State::Servicing) => {
                Err(Stop::working(node.doing(), self.soon(SOON)))
            }
            _ => Ok(()),
        }
    }
}

impl Stop {
    /// The targets are taken if the order that the answer is of was taken.
    fn accepted_if_ordered(self, host: &IronicHost) -> Self {
        let id = host.journal.data.work.as_ref().map(crate::journal::Work::order_id);
        let taken = host.shared.memory.of(&host.context.key.uid, |live| live.accepted.is_some() && live.accepted == id);
        if taken { self.accepted() } else { self }
    }
}

#[async_trait]
impl Prepare for IronicHost {
    async fn prepare(&mut self, request: PrepareRequest) -> Outcome<()> {
        answer(self.prepared(request).await)
    }

    async fn abort(&mut self) -> Outcome<()> {
        answer(self.broken_off(Kind::Prepare).await)
    }
}

#[async_trait]
impl Service for IronicHost {
    async fn service(&mut self, request: ServiceRequest) -> Outcome<()> {
        answer(self.serviced(request).await)
    }

    async fn abort(&mut self) -> Outcome<()> {
        answer(self.broken_off(Kind::Service).await)
    }
}
