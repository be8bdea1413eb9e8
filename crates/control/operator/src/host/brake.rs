//! Limits that keep one mistake from emptying a site: few hosts at a time begin to be deprovisioned, power comes on in steps, and a namespace
//! can be frozen.
//!
//! A host's status records when its deprovisioning began, so the limit outlives this process; what this process admitted counts even before the
//! watch shows it, and after the host is deleted.

use std::time::Duration;

use api::metal3::{BareMetalHost, InspectionMode, OperationalStatus, ProvisioningState as State, annotation};
use host_lifecycle::{Action, Change, HostEvent, Next, Outcome, PowerWish, Step, late_event, renew_conditions};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::begun::{Brake, SKEW, deprovisioned_since, lock};
use super::context::Context;
use super::emptied::Refused;
use super::error::ReconcileError;
use super::fetched::Fetched;
use super::freeze::frozen;
use crate::metrics::Delay;

/// Window of the deprovisioning limit.
const WINDOW: SignedDuration = SignedDuration::from_secs(600);
/// Window of the power-on limit.
const POWER_WINDOW: SignedDuration = SignedDuration::from_secs(10);
/// How soon a delayed host is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Between an error's message and why it is not tried again.
const BEHIND: &str = " — Delayed: ";

/// The error's own message.
fn before(message: &str) -> &str {
    message.split(BEHIND).next().unwrap_or_default()
}

/// Why a host does not go on.
struct Held {
    delay: Delay,
    /// A sentence for its status; `None` if the delay is a matter of seconds.
    why: Option<String>,
    look_again: Duration,
}

impl Held {
    /// Its turn to power on comes in a moment.
    const STEP: Self = Self { delay: Delay::PowerOnStep, why: None, look_again: Duration::from_secs(1) };
}

/// Whether the host's inspection boots its machine: a fast one asks the BMC alone.
fn boots_for_inspection(host: &BareMetalHost) -> bool {
    host.spec.inspection_mode != Some(InspectionMode::Fast)
}

impl Brake {
    /// The change to write instead of the decision, if the host has to wait or has just stopped waiting.
    pub async fn hold(
        &self,
        context: &Context,
        fetched: &Fetched,
        decided: &Step,
    ) -> Result<Option<Change>, ReconcileError> {
        let host = &fetched.host;
        if host.annotation(annotation::PAUSED).is_some() {
            return Ok(None);
        }
        let now = context.settings.clock.now();
        // A host that waits for its turn needs no read of its namespace: after an outage that would be one per host and second.
        let held = if self.is_out_of_step(context, host, decided) {
            Some(Held::STEP)
        } else {
            let namespace = host.namespace().unwrap_or_default();
            let frozen = if has_effect(host, decided) { frozen(&context.client, &namespace).await } else { Ok(None) };
            match frozen.map_err(ReconcileError::api("read the host's namespace"))? {
                Some(why) => Some(Held { delay: Delay::Frozen, why: Some(why), look_again: LOOK_AGAIN }),
                None => self.exceeded(context, host, decided),
            }
        };
        if held.is_some() {
            context.heard.waits(&host.uid().unwrap_or_default(), host.state());
        }
        context.metrics.braked(host, held.as_ref().map(|held| held.delay), now);
        let delayed = host.status.as_ref().is_some_and(|s| s.operational_status == OperationalStatus::Delayed);
        let says_why = host.status.as_ref().is_some_and(|status| status.error_message.contains(BEHIND));
        // Whether the provisioner has capacity by now is up to its answer.
        if held.is_none() && if delayed { tells_of_room(decided) } else { !says_why } {
            return Ok(None);
        }
        let mut status = host.status.clone().unwrap_or_default();
        let mut events = Vec::new();
        let next = match held {
            // A host that waits for capacity goes on reporting that.
            Some(Held { why: None, look_again, .. }) if !delayed || tells_of_room(decided) => Next::After(look_again),
            Some(Held { why: None, .. }) => {
                status.operational_status = OperationalStatus::Ok;
                status.error_message.clear();
                Next::Now
            }
            Some(Held { why: Some(why), look_again, .. }) => {
                if !status.error_message.ends_with(&why) {
                    events.push(HostEvent { reason: "Delayed", message: why.clone(), warning: true });
                    // The error stays visible; why it is not retried is appended.
                    status.error_message = match status.error_type {
                        Some(_) => format!("{}{BEHIND}{why}", before(&status.error_message)),
                        None => why,
                    };
                }
                if status.error_type.is_none() {
                    status.operational_status = OperationalStatus::Delayed;
                }
                Next::After(look_again)
            }
            None if delayed => {
                status.operational_status = OperationalStatus::Ok;
                status.error_message.clear();
                Next::Now
            }
            None => {
                status.error_message = before(&status.error_message).to_owned();
                Next::Now
            }
        };
        if host.status.as_ref() != Some(&status) {
            renew_conditions(&fetched.view(context), &mut status);
            events.extend(late_event(&fetched.view(context), &status));
            status.last_updated = Some(api::Time(now));
        }
        Ok(Some(Change {
            status,
            add_finalizer: false,
            remove_annotations: Vec::new(),
            answer: None,
            set_architecture: None,
            hardware_data: None,
            erasure: None,
            steps: None,
            children: Vec::new(),
            events,
            next,
        }))
    }

    /// Whether the decision powers the machine on while enough others have just come on.
    fn is_out_of_step(&self, context: &Context, host: &BareMetalHost, decided: &Step) -> bool {
        let (now, limit) = (context.settings.clock.now(), context.settings.power_on_limit);
        limit > 0
            && self.comes_on(context, host, decided)
            && lock(&self.powered).is_full(&host.uid().unwrap_or_default(), now, POWER_WINDOW, limit)
    }

    /// Whether the machine is off and this decision powers it on, directly or by booting it for work that begins.
    fn comes_on(&self, context: &Context, host: &BareMetalHost, decided: &Step) -> bool {
        let off = host.status.as_ref().is_none_or(|status| !status.powered_on);
        off && match decided {
            Step::Act(Action::SetPower(PowerWish::On)) => true,
            Step::Act(Action::Inspect { .. }) if !boots_for_inspection(host) => false,
            Step::Act(Action::Inspect { .. }) => self.is_uninspected(context, &host.uid().unwrap_or_default()),
            step if asks_for_room(step) => lock(&self.unbooted).contains(&host.uid().unwrap_or_default()),
            _ if begins(host, decided, State::Inspecting) => boots_for_inspection(host),
            _ => begins(host, decided, State::Provisioning),
        }
    }

    /// Whether the host's first inspection has not begun, by this process's memory or the host's record.
    fn is_uninspected(&self, context: &Context, uid: &str) -> bool {
        lock(&self.unbooted).contains(uid) || context.machines.is_blank(uid)
    }

    /// Notes a conclusion that moves the host to inspection: no decision precedes it, so the brake applies to the call that boots the machine.
    pub fn concluded(&self, host: &BareMetalHost, change: &Change) {
        let to_inspection = change.status.provisioning.state == State::Inspecting && host.state() == State::Registering;
        if to_inspection && boots_for_inspection(host) && !change.status.powered_on {
            lock(&self.unbooted).insert(host.uid().unwrap_or_default());
        }
    }

    /// Notes the end of a call that switches the power, with its answer if there is one: one that has failed leaves its place to another host.
    pub fn switched(&self, uid: &str, action: &Action, outcome: Option<&Outcome>) {
        let worked = matches!(
            outcome,
            Some(
                Outcome::Done
                    | Outcome::Power(_)
                    | Outcome::PowerTold { .. }
                    | Outcome::Working { .. }
                    | Outcome::Accepted { .. }
            )
        );
        if *action == Action::SetPower(PowerWish::On) && !worked {
            lock(&self.powered).give_back(uid);
        }
    }

    /// Notes the answer to an admitted call: work that could not begin, for want of capacity say, has switched nothing on, and takes its turn again when
    /// it begins.
    pub fn answered(&self, context: &Context, host: &BareMetalHost, action: &Action, outcome: &Outcome) {
        if !asks_for_room(&Step::Act(action.clone())) {
            return;
        }
        let uid = host.uid().unwrap_or_default();
        match outcome {
            Outcome::Working { .. }
            | Outcome::Accepted { .. }
            | Outcome::Inspected(_)
            | Outcome::Done
            | Outcome::Wiped
            | Outcome::Untouched => {
                lock(&self.unbooted).remove(&uid);
            }
            Outcome::Busy { .. } if host.status.as_ref().is_none_or(|status| !status.powered_on) => {
                lock(&self.unbooted).insert(uid.clone());
                lock(&self.powered).give_back(&uid);
            }
            _ if !matches!(action, Action::Inspect { .. }) => {}
            _ if self.is_uninspected(context, &uid) => lock(&self.powered).give_back(&uid),
            _ => {}
        }
    }

    fn exceeded(&self, context: &Context, host: &BareMetalHost, decided: &Step) -> Option<Held> {
        let (now, uid) = (context.settings.clock.now(), host.uid().unwrap_or_default());
        let most = context.settings.power_on_limit;
        if self.comes_on(context, host, decided) {
            let is_late = most > 0 && lock(&self.powered).admit(&uid, now, POWER_WINDOW, most).is_err();
            return is_late.then_some(Held::STEP);
        }
        let limit = context.settings.deprovisioning_limit;
        if limit == 0 || !begins(host, decided, State::Deprovisioning) {
            return None;
        }
        let mut emptied = lock(&self.emptied);
        for other in context.hosts.store().map(kube::runtime::reflector::Store::state).unwrap_or_default() {
            if let (Some(start), Some(uid_of_other)) = (deprovisioned_since(&other), other.uid())
                && uid_of_other != uid
                && now.duration_since(start) < WINDOW
                && start <= now + SKEW
            {
                emptied.note(uid_of_other, other.namespace().unwrap_or_default(), start);
            }
        }
        let namespace = host.namespace().unwrap_or_default();
        let refused = emptied.admit(&uid, &namespace, now, WINDOW, limit).err()?;
        let minutes = WINDOW.as_secs() / 60;
        let why = match refused {
            Refused::Full(free) => format!(
                "{limit} hosts have begun to be deprovisioned within {minutes} minutes, which is the limit (--deprovisioning-limit); the next may \
                 begin at {}",
                Timestamp::from_second(free.as_second()).unwrap_or(free)
            ),
            Refused::OthersFirst => format!(
                "{limit} hosts may begin to be deprovisioned within {minutes} minutes (--deprovisioning-limit), and others that wait come first"
            ),
        };
        Some(Held { delay: Delay::DeprovisioningLimit, why: Some(why), look_again: LOOK_AGAIN })
    }
}

/// Whether the answer tells whether the provisioner has capacity: until then the host goes on saying that it has none.
const fn tells_of_room(decided: &Step) -> bool {
    let others = matches!(
        decided,
        Step::Act(Action::Register { .. } | Action::Adopt | Action::ReadPower | Action::SetPower(_) | Action::Release)
    );
    others || asks_for_room(decided)
}

/// Whether a provisioner without capacity would not begin the call.
const fn asks_for_room(decided: &Step) -> bool {
    matches!(
        decided,
        Step::Act(
            Action::Inspect { .. }
                | Action::Prepare { .. }
                | Action::Service { .. }
                | Action::Provision
                | Action::Deprovision { .. }
                | Action::Erase { .. }
                | Action::RunSteps { .. }
        )
    )
}

/// Whether the decision moves the host to this state.
fn begins(host: &BareMetalHost, decided: &Step, state: State) -> bool {
    matches!(decided, Step::Change(change) if change.status.provisioning.state == state) && host.state() != state
}

/// Whether the decision affects the machine, or begins work that does.
fn has_effect(host: &BareMetalHost, decided: &Step) -> bool {
    match decided {
        Step::Act(
            Action::Inspect { .. }
            | Action::Prepare { .. }
            | Action::Service { .. }
            | Action::AttachMedia { .. }
            | Action::DetachMedia
            | Action::SetPower(_)
            | Action::Provision
            | Action::Deprovision { .. }
            | Action::Erase { .. }
            | Action::RunSteps { .. },
        ) => true,
        Step::Act(_) => false,
        Step::Change(_) => {
            [State::Inspecting, State::Provisioning, State::Deprovisioning].iter().any(|to| begins(host, decided, *to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_on_that_has_failed_leaves_its_place_to_another_host() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let (on, off) = (Action::SetPower(PowerWish::On), Action::SetPower(PowerWish::HardOff));
        let failed = Outcome::Failed { message: "no answer".into(), retry: provisioner::Retry::Later };
        let is_free_after = |action: &Action, outcome: Option<&Outcome>| {
            let brake = Brake::default();
            assert_eq!(lock(&brake.powered).admit("a", now, POWER_WINDOW, 1), Ok(()));
            brake.switched("a", action, outcome);
            lock(&brake.powered).admit("b", now, POWER_WINDOW, 1).is_ok()
        };
        assert!(is_free_after(&on, Some(&failed)) && is_free_after(&on, None));
        assert!(!is_free_after(&on, Some(&Outcome::Done)) && !is_free_after(&on, Some(&Outcome::Power(true))));
        assert!(!is_free_after(&off, Some(&failed)));
    }
}
