//! A change in the making: status, events and the rest, with the rules that hold for every change.

use std::time::Duration;

use api::Time;
use api::metal3::{
    BareMetalHostStatus, CredentialsStatus, ErrorType, OperationMetric, OperationalStatus, ProvisioningState as State,
    annotation,
};
use api::metamorph::{Erasure, StepsReport};
use inventory::Inspected;
use jiff::SignedDuration;
use terms::Retry;

use crate::annotations::{self, detached_by_force, is_reboot_forced};
use crate::budget;
use crate::children::ChildWrite;
use crate::conditions;
use crate::request_view::Answer;
use crate::retry::{self, GIVE_UP_AFTER};
use crate::step::{Change, HostEvent, Next, Outcome, Step};
use crate::told;
use crate::transitions;
use crate::view::View;
use crate::wishes;

/// Longest `status.errorMessage` in bytes.
const MAX_MESSAGE: usize = 4096;
/// Longest Event message in bytes (Kubernetes refuses more).
const MAX_EVENT: usize = 1024;
/// What keeps a host from being detached, and how that is ended.
const DETACH_WAITS: &str = "; the host is to be detached, which waits for this: the value {\"force\":true} of its annotation detaches it at once";
/// Shortest pause between looks at work.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// Longest pause between looks at work.
const LONGEST_LOOK: Duration = Duration::from_secs(600);
/// Most failures that stay counted while something blocks the host: fewer than end an erase, or a deletion's patience.
const MAX_KEPT: i64 = 2;
/// How long after a registration a provisioner that does not know the machine has forgotten it at once.
const JUST_REGISTERED: Duration = Duration::from_secs(60);

/// A change in the making.
pub(crate) struct Draft<'v> {
    /// What it is made from.
    pub(crate) view: &'v View<'v>,
    /// The status to be.
    pub(crate) status: BareMetalHostStatus,
    add_finalizer: bool,
    remove_annotations: Vec<String>,
    answer: Option<Answer>,
    set_architecture: Option<String>,
    hardware_data: Option<Box<Inspected>>,
    erasure: Option<Box<Erasure>>,
    steps: Option<Box<StepsReport>>,
    children: Vec<ChildWrite>,
    events: Vec<HostEvent>,
    /// When the next attempt is made, if one has failed.
    next_attempt: Option<Next>,
}

impl<'v> Draft<'v> {
    /// A change that changes nothing yet.
    pub(crate) fn new(view: &'v View<'v>) -> Self {
        Self {
            view,
            status: view.status().clone(),
            add_finalizer: false,
            remove_annotations: Vec::new(),
            answer: None,
            set_architecture: None,
            hardware_data: None,
            erasure: None,
            steps: None,
            children: Vec::new(),
            events: Vec::new(),
            next_attempt: None,
        }
    }

    /// The state to be.
    pub(crate) fn state(&self) -> State {
        self.status.provisioning.state
    }

    /// Moves to a state if the table allows it. Clears the error, and records when the new state's work begins.
    pub(crate) fn go(&mut self, to: State) {
        let allowed = transitions::allows(self.state(), to);
        debug_assert!(allowed, "the table has no transition from {:?} to {to:?}", self.state());
        if !allowed {
            return;
        }
        self.status.provisioning.state = to;
        self.clear_error();
        self.status.error_count = 0;
        let now = self.now();
        // Rounds of the same work never begin in the same second: their start times distinguish them.
        let begun = |metric: &mut OperationMetric| {
            let next = metric.start.as_ref().and_then(|last| last.0.checked_add(SignedDuration::from_secs(1)).ok());
            let start = next.filter(|next| next.as_second() > now.0.as_second()).map_or_else(|| now.clone(), Time);
            *metric = OperationMetric { start: Some(start), end: None };
        };
        let spec = &self.view.host.spec;
        match to {
            State::Registering => begun(&mut self.status.operation_history.register),
            State::Inspecting => begun(&mut self.status.operation_history.inspect),
            State::Provisioning => begun(&mut self.status.operation_history.provision),
            State::Deprovisioning => begun(&mut self.status.operation_history.deprovision),
            _ => {}
        }
        if matches!(to, State::Registering | State::Inspecting | State::Provisioning) {
            self.status.provisioning.boot_mode = Some(spec.boot_mode.unwrap_or_default());
        }
    }

    /// The time, as the API writes it.
    pub(crate) fn now(&self) -> Time {
        Time(self.view.now)
    }

    /// Forgets the error; failures stay counted until work goes forward.
    pub(crate) fn clear_error(&mut self) {
        let of_service = matches!(self.status.error_type, None | Some(ErrorType::Servicing));
        let is_provisioned = matches!(self.state(), State::Provisioned | State::ExternallyProvisioned);
        // A failure of something else does not end a service, if the provisioner still serves it.
        let goes_on = self.view.settings.served.service && conditions::is_being_serviced(&self.status);
        let serviced = is_provisioned && !of_service && goes_on;
        self.status.error_type = None;
        self.status.error_message.clear();
        self.status.operational_status = match (self.state(), self.status.operational_status) {
            (_, OperationalStatus::Detached) => OperationalStatus::Detached,
            (State::Unmanaged, _) => OperationalStatus::Discovered,
            _ if serviced => OperationalStatus::Servicing,
            _ => OperationalStatus::Ok,
        };
    }

    /// Notes that work of this class succeeded: clears its error, and the count of failures if no other error remains.
    pub(crate) fn work_succeeded(&mut self, kind: ErrorType) {
        if self.status.error_type == Some(kind) {
            self.clear_error();
        }
        self.no_longer_delayed();
        if self.status.error_type.is_none() {
            self.status.error_count = 0;
        }
    }

    /// Records an error without an attempt behind it (a fault visible in the objects). Repeating it changes nothing.
    pub(crate) fn fault(&mut self, kind: ErrorType, message: &str) {
        self.fault_as(kind, kind.event_reason(), message);
    }

    /// [`Self::fault`] with an Event reason of its own.
    pub(crate) fn fault_as(&mut self, kind: ErrorType, reason: &'static str, message: &str) {
        let message = clip(&unmarked(message), MAX_MESSAGE);
        if self.status.error_type != Some(kind) || self.status.error_message != message {
            self.record_error(kind, reason, message);
        }
    }

    /// Records a failed attempt, and says when to try again.
    pub(crate) fn fail(&mut self, kind: ErrorType, message: &str, class: Retry) -> Next {
        // Nothing goes on without a detachment that the deletion waits for.
        let deleting = self.view.host.is_deleting() && !annotations::detaches_before_deletion(self.view.host);
        let left = GIVE_UP_AFTER.saturating_sub(self.status.error_count.max(0));
        let until = match left {
            _ if !deleting => String::new(),
            ..=0 => String::new(),
            1 => "; the host is being deleted, which goes on without after another failure".to_owned(),
            left => format!("; the host is being deleted, which goes on without after {left} more failures"),
        };
        let until = if self.waits_to_detach() { DETACH_WAITS.to_owned() } else { until };
        let message = format!("{}{until}", clip(&unmarked(message), MAX_MESSAGE - until.len()));
        self.record_error(kind, kind.event_reason(), message);
        let next = match class {
            // A deletion skips the work after enough failures, and never waits for an edit.
            _ if deleting && self.status.error_count > GIVE_UP_AFTER => Next::Now,
            Retry::AfterChange if !deleting => Next::Wait,
            Retry::AfterChange
            | Retry::Later
            | Retry::Waiting
            | Retry::Held
            | Retry::AnotherMachine
            | Retry::Unknown => Next::After(retry::delay(self.view, &self.status)),
        };
        self.next_attempt = Some(next);
        next
    }

    /// The host is to be detached, which waits for its work.
    fn waits_to_detach(&self) -> bool {
        let host = self.view.host;
        !host.is_deleting() && annotations::detached(host).is_some() && !detached_by_force(host)
    }

    fn record_error(&mut self, kind: ErrorType, reason: &'static str, message: String) {
        self.status.operational_status = OperationalStatus::Error;
        self.status.error_type = Some(kind);
        self.status.error_count = self.status.error_count.max(0).saturating_add(1);
        self.events.push(HostEvent { reason, message: clip(&message, MAX_EVENT), warning: true });
        self.status.error_message = message;
    }

    /// Ends the delay: a provisioner that works has capacity.
    pub(crate) fn no_longer_delayed(&mut self) {
        if self.status.operational_status == OperationalStatus::Delayed {
            if self.status.error_type.is_some() {
                self.status.operational_status = OperationalStatus::Error;
            } else {
                self.status.operational_status = OperationalStatus::Ok;
                self.status.error_message.clear();
            }
        }
    }

    /// When work is looked at again.
    pub(crate) fn look(again: Duration) -> Next {
        Next::After(again.clamp(SHORTEST_LOOK, LONGEST_LOOK))
    }

    /// The provisioner has no capacity.
    fn delayed(mut self, kind: ErrorType, message: &str, look_again: Duration) -> Change {
        if self.status.error_type == Some(kind) {
            self.clear_error();
        }
        if self.status.operational_status == OperationalStatus::Ok {
            self.event("Delayed", message);
        }
        if self.status.error_type.is_none() && self.status.operational_status != OperationalStatus::Detached {
            self.status.operational_status = OperationalStatus::Delayed;
            self.status.error_message = clip(message, MAX_MESSAGE);
        }
        self.finish(Self::look(look_again))
    }

    /// Has the machine registered again, because the provisioner does not know it: no credentials count as good until then.
    pub(crate) fn register_anew(mut self) -> Change {
        self.status.good_credentials = CredentialsStatus::default();
        // Not at once: a provisioner that never remembers must not be asked in a tight loop.
        let poll = self.view.settings.secret_poll;
        self.finish(Next::After(poll))
    }

    /// The machine was registered a moment ago: a provisioner that does not know it all the same may never.
    fn was_just_registered(&self) -> bool {
        let register = &self.status.operation_history.register;
        // Of a provisioned host it ends with its adoption.
        let last = register.end.as_ref().or(register.start.as_ref());
        last.is_some_and(|last| self.view.now.duration_since(last.0).unsigned_abs() < JUST_REGISTERED)
    }

    /// Says so. Nothing was attempted: it is no failure of the work, by which a machine would be switched off more harshly, or its work begun anew.
    fn forgets_at_once(&mut self, kind: ErrorType, message: &str) {
        let failures = if self.status.error_type.is_some() { self.status.error_count.max(0) } else { 0 };
        self.fault(kind, message);
        self.status.error_count = failures;
    }

    /// Requests the boot image that the work needs, and waits for it.
    fn wait_for_image(mut self) -> Change {
        let view = self.view;
        let served = &view.settings.served;
        let wished = wishes::boot_image(view.host, &served.boot_images, served.architectures.first());
        if view.children.boot_image.is_none_or(|image| image.spec != wished) {
            self.write_child(ChildWrite::BootImage(Box::new(wished)));
        }
        self.finish(Next::After(view.settings.image_poll))
    }

    /// Reads an answer other than success: still working, failed, or not valid for the call.
    pub(crate) fn not_done(mut self, kind: ErrorType, work: &str, outcome: Outcome) -> Change {
        let (message, class) = match outcome {
            Outcome::Working { look_again } | Outcome::Accepted { look_again } => {
                // This attempt supersedes the last failure, which stays counted, and what blocked a deletion.
                let was_held = self.view.host.is_deleting() && self.status.error_type == Some(ErrorType::Registration);
                if self.status.error_type == Some(kind) || was_held {
                    self.clear_error();
                }
                self.no_longer_delayed();
                return self.finish(Self::look(look_again));
            }
            Outcome::Busy { message, look_again } => return self.delayed(kind, &message, look_again),
            Outcome::NeedsRegistration if kind != ErrorType::Registration => {
                let message = format!("The provisioner does not know the machine of which it is asked {work}");
                if !self.view.host.is_deleting() {
                    // Work under way has a time budget, by which that is told.
                    let is_at_rest = matches!(kind, ErrorType::PowerManagement | ErrorType::ProvisionedRegistration);
                    if is_at_rest && self.was_just_registered() {
                        self.forgets_at_once(kind, &message);
                    }
                    return self.register_anew();
                }
                // A deletion asks again, but not forever.
                self.status.good_credentials = CredentialsStatus::default();
                (message, Retry::Later)
            }
            Outcome::NeedsImage
                if !self.view.settings.served.boot_images.is_empty() && !self.view.host.is_deleting() =>
            {
                return self.wait_for_image();
            }
            Outcome::Blocked { message } if !self.view.host.is_deleting() => {
                // Nothing was attempted: this adds to no failures, and earlier ones do not make the wait much longer. What ends after so many, as erasing
                // does, must not go on for ever.
                let failures = self.status.error_count.clamp(1, MAX_KEPT);
                self.fault(kind, &message);
                self.status.error_count = failures;
                let poll = self.view.settings.secret_poll;
                return self.finish(Next::After(poll));
            }
            Outcome::Blocked { message } => (message, Retry::Later),
            Outcome::Failed { message, retry } => (message, retry),
            other => {
                let answer = other.name();
                (format!("The provisioner answered \"{answer}\", which does not fit {work}"), Retry::Later)
            }
        };
        let next = self.fail(kind, &message, class);
        self.finish(next)
    }

    /// Adds an Event.
    pub(crate) fn event(&mut self, reason: &'static str, message: &str) {
        self.events.push(HostEvent { reason, message: clip(message, MAX_EVENT), warning: false });
    }

    /// Adds an Event that warns.
    pub(crate) fn warn(&mut self, reason: &'static str, message: &str) {
        self.events.push(HostEvent { reason, message: clip(message, MAX_EVENT), warning: true });
    }

    /// Warns that the host is deleted while its own machine is left running, because it is not the one at hand.
    pub(crate) fn left_running(&mut self, why: &str) {
        self.warn("LeftRunning", &format!("The host is deleted; its machine is left running, not wiped: {why}"));
    }

    /// Adds the host's finalizer.
    pub(crate) fn add_finalizer(&mut self) {
        self.add_finalizer = true;
    }

    /// Removes an annotation, if the host has it.
    pub(crate) fn remove_annotation(&mut self, key: &str) {
        if self.view.host.annotation(key).is_some() && !self.remove_annotations.iter().any(|k| k == key) {
            self.remove_annotations.push(key.to_owned());
        }
    }

    /// Answers the request that the host's annotation names, if there is one.
    pub(crate) fn answer(&mut self, answer: Answer) {
        self.answer = self.view.host.annotation(annotation::REQUEST).map(|_| answer);
    }

    /// Notes that the agent's reboot, which an annotation forced, is under way.
    pub(crate) fn agent_booted_anew(&mut self) {
        if is_reboot_forced(self.view.host) {
            self.remove_annotation(annotation::REBOOT);
            self.event("AgentRebooted", "The agent is booted anew, as the annotation reboot.metal3.io asks by force");
        }
    }

    /// The system that a one-shot reboot annotation was for is not on the machine any more, or has only just been booted: no other is rebooted by it
    /// (baremetal-operator `clearRebootAnnotations`).
    pub(crate) fn drop_reboot(&mut self) {
        if self.view.host.annotation(annotation::REBOOT).is_some() {
            self.remove_annotation(annotation::REBOOT);
            let what = "The annotation reboot.metal3.io is dropped: the system that it was set for is not on the machine, or has just been booted";
            self.event("RebootDropped", what);
        }
    }

    /// Uses up the consent to overwrite another owner's disk.
    pub(crate) fn use_up_consent(&mut self) {
        self.remove_annotation(annotation::OVERWRITE_OWNER);
    }

    /// Fills `spec.architecture`.
    pub(crate) fn set_architecture(&mut self, architecture: String) {
        self.set_architecture = Some(architecture);
    }

    /// Has an object beside the host written.
    pub(crate) fn write_child(&mut self, write: ChildWrite) {
        self.children.push(write);
    }

    /// Has the HardwareData written.
    pub(crate) fn write_hardware_data(&mut self, found: Box<Inspected>) {
        self.hardware_data = Some(found);
    }

    /// Tells the request that has asked for it what has become of the disks.
    pub(crate) fn tell_erasure(&mut self, erasure: Box<Erasure>) {
        self.erasure = Some(erasure);
    }

    /// Tells the request that has asked for it what has become of steps of hardware managers.
    pub(crate) fn tell_steps(&mut self, report: Box<StepsReport>) {
        self.steps = Some(report);
    }

    /// The change with its conditions updated, and a new time stamp if anything else differs.
    pub(crate) fn finish(mut self, next: Next) -> Change {
        let next = match (next, budget::ends_in(self.view, &self.status)) {
            (Next::After(wait), Some(left)) => Next::After(wait.min(left)),
            (next, _) => next,
        };
        conditions::update(self.view, &mut self.status, self.next_attempt);
        let old = self.view.status();
        self.events.extend(told::late_event(self.view, &self.status));
        self.status.last_updated.clone_from(&old.last_updated);
        if self.status != *old {
            self.status.last_updated = Some(self.now());
        }
        self.seal(next)
    }

    /// The change as it is: the status is left exactly as drafted.
    pub(crate) fn seal(mut self, next: Next) -> Change {
        if next == Next::Gone {
            self.children.extend(self.view.children.releases());
        }
        Change {
            status: self.status,
            add_finalizer: self.add_finalizer,
            remove_annotations: self.remove_annotations,
            answer: self.answer,
            set_architecture: self.set_architecture,
            hardware_data: self.hardware_data,
            erasure: self.erasure,
            steps: self.steps,
            children: self.children,
            events: self.events,
            next,
        }
    }

    /// [`Self::finish`], as a step.
    pub(crate) fn step(self, next: Next) -> Step {
        Step::Change(Box::new(self.finish(next)))
    }
}

/// A transition and nothing else.
pub(crate) fn through(view: &View<'_>, to: State) -> Step {
    let mut draft = Draft::new(view);
    draft.go(to);
    draft.step(Next::Now)
}

/// A step that does nothing but wait.
pub(crate) fn idle(view: &View<'_>, next: Next) -> Step {
    Draft::new(view).step(next)
}

/// What a BMC, an agent or a spec says, such that it does not look like what this server puts behind an error. The same words give the same.
fn unmarked(message: &str) -> String {
    message.replace("— Cause:", "- Cause:").replace("— Delayed:", "- Delayed:")
}

/// The text, cut to at most `max` bytes at a character's boundary.
pub(crate) fn clip(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max.saturating_sub('…'.len_utf8()));
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::clip;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(clip("short", 10), "short");
        let cut = clip(&"ä".repeat(20), 11);
        assert!(cut.len() <= 11 && cut.starts_with("ää") && cut.ends_with('…'), "{cut}");
    }
}
