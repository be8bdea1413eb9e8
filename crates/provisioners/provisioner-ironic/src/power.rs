//! Power, by Ironic: it keeps what it was told, and forces a machine back to it.

use async_trait::async_trait;
use provisioner::{Cause, Failure, Outcome, Power, PowerRequest, PowerWish, Purpose, Retry};

use crate::causes;
use crate::fault::Fault;
use crate::host::{IronicHost, SOON};
use crate::node::{Node, State, Verb};
use crate::stop::{Step, Stop, answer};
use crate::work::faulty;

/// How long a system has to end itself, seconds: baremetal-operator's.
const SOFT: u64 = 180;

impl IronicHost {
    async fn switched(&mut self, request: PowerRequest) -> Step<bool> {
        self.leads()?;
        let uid = self.context.key.uid.clone();
        self.shared.memory.of(&uid, |live| live.attempt.rests());
        let wished = request.power == PowerWish::On;
        self.remembers_what_runs().await;
        let node = self.fresh().await;
        // One that is off is not switched.
        let is_off = !self.context.disable_power_off && node.as_ref().is_ok_and(|node| node.is_on() == Some(false));
        if self.context.deleting && !wished && !is_off {
            self.context.past.knows_before_deletion(&self.journal.data.on_machine())?;
        }
        let node = node?;
        // Power that must never be cut is switched off and on at once, at least once.
        let reboots = !wished && self.context.disable_power_off;
        if !reboots {
            self.restart_is_over().await?;
        }
        let target = match (request.power, reboots) {
            (PowerWish::On, _) => "power on",
            (PowerWish::SoftOff, false) => "soft power off",
            (PowerWish::SoftOff, true) => "soft rebooting",
            (PowerWish::HardOff, false) => "power off",
            (PowerWish::HardOff, true) => "rebooting",
        };
        // Maintenance that somebody else has begun is left to them.
        let is_own = !node.maintenance || node.fault.as_deref() == Some("service failure");
        if wished && node.state() == State::ServiceFailed && is_own {
            // It may be on with the agent. Ironic starts its system again when the service is broken off, which it does not do in maintenance.
            return Err(self.leave_service(&node).await);
        }
        if node.is_on() == Some(wished) && !reboots {
            self.shared.memory.of(&uid, |live| live.power = None);
            return Ok(wished);
        }
        if node.target_power_state.as_ref().is_some_and(|target| !target.is_empty()) {
            return Err(Stop::working(format!("waiting for the machine to {target}"), self.soon(SOON)));
        }
        let before = self.shared.memory.of(&uid, |live| live.power.take());
        // A new attempt has ordered nothing yet: what the node still shows of the last one does not count.
        if before.is_some() {
            if let Some(error) = node.error() {
                self.restart_is_over().await?;
                return Err(causes::failure(&format!("have Ironic switch the machine: {target}"), Some(error)).into());
            }
            if reboots && before == Some(target) && self.journal.data.restart && node.is_on() == Some(true) {
                // It is asked again if the host cannot note it.
                self.shared.memory.of(&uid, |live| live.power = before);
                return Ok(true);
            }
        }
        let is_over = self.shared.memory.of(&uid, |live| live.restart_is_over);
        if reboots && before.is_none() && self.journal.data.restart && !is_over {
            return Err(restarted_perhaps().into());
        }
        if let Some(stop) = self.in_the_way(&node).await {
            return Err(stop);
        }
        let node = self.up_to_date(node, false).await?;
        if node.lasting_fault().is_some() {
            // It may know old ones only.
            self.retell_credentials(&node).await;
        }
        if reboots {
            self.shared.memory.of(&uid, |live| live.restart_is_over = true);
            if !std::mem::replace(&mut self.journal.data.restart, true) {
                self.record(Purpose::Intent).await?;
            }
        }
        Err(self.switch(&node, target).await)
    }

    /// Work of Ironic's that keeps power from being switched. When the host is deleted, what waits for an agent is ended.
    async fn in_the_way(&self, node: &Node) -> Option<Stop> {
        let state = node.state();
        if !state.is_at_work() {
            return None;
        }
        let keeps_cleaning = node.target_provision_state.as_deref() == Some("available")
            && self.context.cleaning != api::metal3::CleaningMode::Disabled;
        let ends = self.context.deleting
            && (state == State::InspectWait || matches!(state, State::CleanWait | State::CleanHold) && !keeps_cleaning);
        if ends {
            return Some(self.nudge(node, Verb::Abort).await);
        }
        Some(Stop::working(node.doing(), self.soon(SOON)))
    }

    /// The host wishes no restart, or it was not made: the next one that is asked for is another.
    async fn restart_is_over(&mut self) -> Step<()> {
        if std::mem::take(&mut self.journal.data.restart) {
            self.shared.memory.of(&self.context.key.uid, |live| (live.power, live.restart_is_over) = (None, true));
            self.record(Purpose::Note).await?;
        }
        Ok(())
    }

    async fn switch(&mut self, node: &Node, target: &'static str) -> Stop {
        let doing = format!("have Ironic switch the machine: {target}");
        let client = match self.client() {
            Ok(client) => client,
            Err(failure) => return failure.into(),
        };
        client.ordered(self.now(), &node.uuid);
        if let Err(stop) = self.still().await {
            return stop;
        }
        self.shared.memory.of(&self.context.key.uid, |live| live.restart_is_over = false);
        let is_soft = target.starts_with("soft");
        let mut made = client.power(&node.uuid, target, is_soft.then_some(SOFT)).await;
        if is_soft && matches!(made, Err(Fault::Refused { status: 400, .. })) {
            // Not every BMC can ask the system.
            let hard = if target == "soft rebooting" { "rebooting" } else { "power off" };
            made = client.power(&node.uuid, hard, None).await;
        }
        match made {
            Ok(()) => {
                self.taken();
                self.shared.memory.of(&self.context.key.uid, |live| live.power = Some(target));
                Stop::working(doing, self.soon(SOON))
            }
            Err(fault) if may_be_taken(&fault) => self.heed(&doing, fault),
            Err(fault) => match self.restart_is_over().await {
                Ok(()) => self.heed(&doing, fault),
                Err(stop) => stop,
            },
        }
    }

    async fn seen(&mut self) -> Step<Option<bool>> {
        self.leads()?;
        self.shared.memory.of(&self.context.key.uid, |live| live.attempt.rests());
        self.restart_is_over().await?;
        self.remembers_what_runs().await;
        let node = self.look().await?;
        if node.lasting_fault().is_none() {
            return Ok(node.is_on());
        }
        // What is listed may be a moment old, and only the host's own node is told anything.
        let node = self.fresh().await?;
        let Some(mut failure) = faulty(&node) else { return Ok(node.is_on()) };
        self.retell_credentials(&node).await;
        // No work has failed: it is looked again as often as at any host, and its next reboot is as polite as any.
        failure.retry = Retry::Waiting;
        Err(failure.into())
    }

    /// Has Ironic end a service that has failed, by which it starts the machine's own system.
    pub async fn leave_service(&self, node: &Node) -> Stop {
        if node.maintenance { self.maintain(node, None).await } else { self.nudge(node, Verb::Abort).await }
    }
}

#[async_trait]
impl Power for IronicHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        answer(self.seen().await)
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        answer(self.switched(request).await)
    }
}

/// Whether Ironic may have taken an order: it has answered nothing that can be read, or has stumbled (500), which it does also after it has given the order to a
/// conductor.
fn may_be_taken(fault: &Fault) -> bool {
    matches!(fault, Fault::Unreachable { .. } | Fault::Unreadable { .. } | Fault::Refused { status: 500.., .. })
}

/// Whether Ironic has restarted the machine is not known: a node does not tell.
fn restarted_perhaps() -> Failure {
    let text = "have Ironic restart the machine: its answer was lost or tells nothing, or the server ended before it had noted that, and the node does not show whether the restart was made";
    let mut failure = Failure::new(Cause::ProvisionerUnavailable, text).advise(
        "look at the machine's console or its uptime; if it was not restarted, set the annotation reboot.metal3.io again: a restart is not repeated unasked",
    );
    failure.retry = Retry::Unknown;
    failure
}
