//! Requests: HostOperations that somebody other than the host's controller has created, to have a host inspected again, rebooted or rebuilt. Pure.
//!
//! A request is done once, and now, or not at all: what cannot be done to the host as it is when the request is first seen is refused, so that no old word
//! takes effect on a later day. The way of one that is taken:
//!
//! ```text
//! status Running: the intent ──▶ annotations of the host: the wish ──▶ status, step Ask: the record ──▶ the host's own work ──▶ status: the end
//! ```
//!
//! The wish is one of the annotations that people set by hand (for a rebuild: one of ours), and beside it stands which request has set it
//! ([`annotation::REQUEST`]). It is written once, to the very version of the host that was decided on. What it brings about is the
//! host's own work, with its own HostOperations: a request waits for its end, and shows the host's error meanwhile.

use std::collections::BTreeMap;

use api::Time;
use api::metal3::{BareMetalHost, ProvisioningState as State, annotation};
use api::metamorph::{
    HostOperation, HostOperationStatus, OperationError, OperationPhase, OperationStep, OperationType, RebootMode,
    StepPhase,
};
use jiff::{SignedDuration, Timestamp};

use crate::annotations::inspection_disabled;

/// Name of the step that writes the host's annotations.
const ASK: &str = "ask-host";
/// Name of the step that waits for the host's work.
const WAIT: &str = "wait-for-host";
/// A request that is older when it is first seen is not taken any more.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);
/// Longest message that is taken over from the host, in bytes.
const MAX_MESSAGE: usize = 1024;

/// What a decision about a request is made from.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The request, as last read.
    pub request: &'a HostOperation,
    /// The host that it names, as last read.
    pub host: Option<&'a BareMetalHost>,
    /// Name of another request that the host's annotation names and that has not ended.
    pub other: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// What is to be done about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestStep {
    /// Nothing, until the request or the host changes.
    Nothing,
    /// Write this status, and decide again.
    Status(Box<HostOperationStatus>),
    /// Write these annotations to the host, to the very version that was decided on, and decide again. `None` is removed.
    Annotate(BTreeMap<&'static str, Option<String>>),
}

/// Whether a HostOperation is a request: those that the host's controller has written are controlled by the host.
#[must_use]
pub fn is_request(operation: &HostOperation) -> bool {
    let owners = operation.metadata.owner_references.iter().flatten();
    !owners.into_iter().any(|owner| owner.controller == Some(true))
}

/// What annotations call the request: `name/uid`.
#[must_use]
pub fn mark(request: &HostOperation) -> String {
    let (name, uid) = (request.metadata.name.as_deref(), request.metadata.uid.as_deref());
    format!("{}/{}", name.unwrap_or_default(), uid.unwrap_or_default())
}

/// Whether this HostOperation asks for the host's rebuild now, as the annotation with this value says. `None` is one that does not exist. One that was
/// taken long ago and has not come to it, as in a backup that is restored, does not.
#[must_use]
pub fn is_rebuild_of(value: &str, operation: Option<&HostOperation>, host: &BareMetalHost, now: Timestamp) -> bool {
    operation.is_some_and(|request| {
        is_request(request)
            && request.spec.operation == OperationType::Rebuild
            && mark(request) == value
            && status(request).phase == OperationPhase::Running
            && is_fresh(status(request).start_time.as_ref(), now)
            && status(request).host_uid.is_some()
            && status(request).host_uid == host.metadata.uid
    })
}

/// Decides about a request.
#[must_use]
pub fn decide_request(view: &RequestView<'_>) -> RequestStep {
    let status = status(view.request);
    let host = view.host.filter(|host| status.host_uid.is_none() || host.metadata.uid == status.host_uid);
    match status.phase {
        OperationPhase::Pending => RequestStep::Status(Box::new(match refusal(view) {
            Some((cause, message, advice)) => ended(view, OperationPhase::Failed, Err((cause, &message, advice))),
            None => taken(view),
        })),
        OperationPhase::Running => match host {
            None => failed(view, "HostGone", "the host that it was for is not there any more", "create another one"),
            Some(host) => under_way(view, host),
        },
        // It is not the host's any more.
        _ => match host.and_then(|host| host.annotation(annotation::REQUEST)) {
            Some(value) if value == mark(view.request) => {
                RequestStep::Annotate(BTreeMap::from([(annotation::REQUEST, None)]))
            }
            _ => RequestStep::Nothing,
        },
    }
}

/// Whether the word of this time may still be taken.
fn is_fresh(time: Option<&Time>, now: Timestamp) -> bool {
    time.is_some_and(|time| now.duration_since(time.0) <= LONGEST_WAIT)
}

fn status(request: &HostOperation) -> HostOperationStatus {
    request.status.clone().unwrap_or_default()
}

/// Cause, message and advice of a refusal.
type Refusal = (&'static str, String, &'static str);

/// Why a new request is not taken.
fn refusal(view: &RequestView<'_>) -> Option<Refusal> {
    let spec = &view.request.spec;
    let instead = match spec.operation {
        OperationType::Inspect | OperationType::Reboot | OperationType::Rebuild => None,
        OperationType::Provision => Some("set spec.image of the host"),
        OperationType::Deprovision => Some("remove spec.image of the host"),
        OperationType::Prepare | OperationType::Service => {
            Some("change the host's spec.raid or spec.firmware, its HostFirmwareSettings or HostFirmwareComponents")
        }
    };
    if let Some(advice) = instead {
        let text = format!("the type {:?} is not done on request: what is declared decides about it", spec.operation);
        return Some(("NotOnRequest", text, advice));
    }
    if spec.wish.is_some() {
        return Some(("NotOnRequest", "spec.wish is the controller's".to_owned(), "create one without it"));
    }
    let Some(host) = view.host else {
        let text = format!("there is no BareMetalHost \"{}\" in this namespace", clip(&spec.host.name));
        return Some(("HostNotFound", text, "correct spec.host.name in another request"));
    };
    if spec.host.uid.is_some() && spec.host.uid != host.metadata.uid {
        let text = "the BareMetalHost of this name has another uid than spec.host.uid says";
        return Some(("HostNotFound", text.to_owned(), "find out which host is meant"));
    }
    if !is_fresh(view.request.metadata.creation_timestamp.as_ref(), view.now) {
        let text = "it was created more than an hour before anybody could see to it";
        return Some(("Expired", text.to_owned(), "create another one, if it is still wanted"));
    }
    if let Some(other) = view.other {
        let text = format!("the HostOperation \"{other}\" for this host has not ended");
        return Some(("NotNow", text, "create another one when that has"));
    }
    not_now(spec.operation, host).map(|text| ("NotNow", text, "create another one when the host is ready for it"))
}

/// Why this cannot be done to the host as it is.
fn not_now(operation: OperationType, host: &BareMetalHost) -> Option<String> {
    if host.is_deleting() {
        return Some("the host is being deleted".to_owned());
    }
    for (key, what) in [(annotation::PAUSED, "paused"), (annotation::DETACHED, "detached")] {
        if host.annotation(key).is_some() {
            return Some(format!("the host is {what} (annotation {key})"));
        }
    }
    let asked = wish(operation, RebootMode::Soft).0;
    if let Some(value) = host.annotation(asked) {
        return Some(match (asked, value) {
            (annotation::INSPECT, "disabled") => format!("inspection is disabled (annotation {asked})"),
            _ => format!("somebody has asked for it already (annotation {asked})"),
        });
    }
    let (state, name) = (host.state(), host.state().as_str());
    match operation {
        OperationType::Inspect if !matches!(state, State::Available | State::Ready) => {
            Some(format!("the host is {name}, and only one that is available is inspected again"))
        }
        OperationType::Inspect if inspection_disabled(host) => {
            Some("inspection is disabled (spec.inspectionMode)".to_owned())
        }
        OperationType::Reboot if !in_use(state) => {
            Some(format!("the host is {name}, and only one with a system of its own is rebooted"))
        }
        OperationType::Reboot if !host.spec.online => Some("the host is to be off (spec.online)".to_owned()),
        OperationType::Rebuild if state != State::Provisioned => {
            Some(format!("the host is {name}, and only one that is provisioned is rebuilt"))
        }
        OperationType::Rebuild if !host.spec.online => {
            Some("the host is to be off (spec.online): it would be wiped and not provisioned again".to_owned())
        }
        _ => None,
    }
}

fn in_use(state: State) -> bool {
    matches!(state, State::Provisioned | State::ExternallyProvisioned)
}

/// The annotation that asks the host for it, and its value. A rebuild's is the request's mark.
fn wish(operation: OperationType, mode: RebootMode) -> (&'static str, Option<&'static str>) {
    match (operation, mode) {
        (OperationType::Reboot, RebootMode::Soft) => (annotation::REBOOT, Some("{\"mode\":\"soft\"}")),
        (OperationType::Reboot, RebootMode::Hard) => (annotation::REBOOT, Some("{\"mode\":\"hard\"}")),
        (OperationType::Rebuild, _) => (annotation::REBUILD, None),
        _ => (annotation::INSPECT, Some("")),
    }
}

/// The status of a request that is taken: the intent, before the host hears of it.
fn taken(view: &RequestView<'_>) -> HostOperationStatus {
    let step = |name: &str, phase| OperationStep { name: name.to_owned(), phase, ..OperationStep::default() };
    let begun = Some(time(view.now));
    let ask = OperationStep { start_time: begun.clone(), attempt: Some(1), ..step(ASK, StepPhase::Running) };
    HostOperationStatus {
        phase: OperationPhase::Running,
        start_time: begun,
        current_step: Some(ASK.to_owned()),
        progress: Some("0/2".to_owned()),
        message: Some("the host is asked".to_owned()),
        steps: vec![ask, step(WAIT, StepPhase::Pending)],
        host_uid: view.host.and_then(|host| host.metadata.uid.clone()),
        ..HostOperationStatus::default()
    }
}

fn under_way(view: &RequestView<'_>, host: &BareMetalHost) -> RequestStep {
    let operation = view.request.spec.operation;
    let mode = view.request.spec.reboot.as_ref().map(|options| options.mode).unwrap_or_default();
    let (key, value) = wish(operation, mode);
    let own = mark(view.request);
    let status = status(view.request);
    let asked = status.steps.first().is_some_and(|step| step.phase == StepPhase::Done);
    if !asked {
        if host.annotation(annotation::REQUEST) == Some(own.as_str()) {
            return RequestStep::Status(Box::new(waits(view, &status, "the host has been asked")));
        }
        if !is_fresh(status.start_time.as_ref(), view.now) {
            let text = "more than an hour ago it was to be asked of the host, and was not";
            return failed(view, "Expired", text, "create another one, if it is still wanted");
        }
        if let Some(other) = view.other {
            let text = format!("the HostOperation \"{other}\" for this host came first");
            return failed(view, "NotNow", &text, "create another one when that has ended");
        }
        if let Some(why) = not_now(operation, host) {
            return failed(view, "NotNow", &why, "create another one when the host is ready for it");
        }
        let value = value.map_or_else(|| own.clone(), str::to_owned);
        return RequestStep::Annotate(BTreeMap::from([(annotation::REQUEST, Some(own)), (key, Some(value))]));
    }
    if host.is_deleting() {
        return failed(view, "HostGone", "the host is being deleted", "nothing is to be done");
    }
    let since = status.start_time.as_ref().map(|time| time.0);
    let outcome = match host.annotation(key) {
        Some(_) => Outcome::Open(message_of(host, "the host has not come to it yet")),
        None => match operation {
            OperationType::Reboot => rebooted(host),
            OperationType::Rebuild => rebuilt(host, since),
            _ => inspected(host, since),
        },
    };
    match outcome {
        Outcome::Open(message) => {
            let now = waits(view, &status, &message);
            if now == status { RequestStep::Nothing } else { RequestStep::Status(Box::new(now)) }
        }
        Outcome::Done(message) => RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&message)))),
        Outcome::Dropped(message) => failed(view, "Withdrawn", message, "create another one, if it is still wanted"),
    }
}

/// How the work that the host was asked for stands.
enum Outcome {
    Open(String),
    Done(String),
    /// The host does it no more.
    Dropped(&'static str),
}

fn rebooted(host: &BareMetalHost) -> Outcome {
    let on = host.status.as_ref().is_some_and(|status| status.powered_on);
    match host.state() {
        state if !in_use(state) => Outcome::Dropped("what was on the host is being removed"),
        _ if !host.spec.online => Outcome::Dropped("the host is to be off now (spec.online)"),
        _ if on => Outcome::Done("the host has seen to it, and the machine is on".to_owned()),
        _ => Outcome::Open(message_of(host, "the machine is off, and is to come on")),
    }
}

fn inspected(host: &BareMetalHost, since: Option<Timestamp>) -> Outcome {
    let inspection = host.status.as_ref().map(|status| status.operation_history.inspect.clone()).unwrap_or_default();
    match host.state() {
        State::Available | State::Ready if is_since(inspection.start.as_ref(), since) => {
            Outcome::Done("the hardware has been inspected".to_owned())
        }
        State::Available | State::Ready => Outcome::Dropped("the annotation was removed before the host came to it"),
        State::Inspecting | State::Preparing => Outcome::Open(message_of(host, "the host is under way")),
        // From preparing, it went on with what its spec asks for.
        State::Provisioning | State::Provisioned if is_since(inspection.end.as_ref(), since) => {
            Outcome::Done("the hardware has been inspected".to_owned())
        }
        _ => Outcome::Dropped("the host is not inspected any more"),
    }
}

fn rebuilt(host: &BareMetalHost, since: Option<Timestamp>) -> Outcome {
    let history = host.status.as_ref().map(|status| status.operation_history.clone()).unwrap_or_default();
    let anew = is_since(history.deprovision.end.as_ref(), since) && is_since(history.provision.end.as_ref(), since);
    let asks_for_nothing = host.spec.image.is_none() && host.spec.custom_deploy.is_none();
    match host.state() {
        State::Provisioned if anew => Outcome::Done("the host has been provisioned anew".to_owned()),
        State::Provisioned => Outcome::Dropped("the annotation was removed before the host came to it"),
        State::Available | State::Ready if asks_for_nothing => {
            Outcome::Dropped("the host is empty, and its spec asks for nothing any more")
        }
        State::Available | State::Ready if !host.spec.online => {
            Outcome::Dropped("the host is empty, and is to be off now (spec.online)")
        }
        State::Deprovisioning | State::Preparing | State::Available | State::Ready | State::Provisioning => {
            Outcome::Open(message_of(host, "the host is under way"))
        }
        _ => Outcome::Dropped("the host is not rebuilt any more"),
    }
}

/// Whether a time of the host's history is not before the request was taken. Both are of whole seconds.
fn is_since(time: Option<&Time>, since: Option<Timestamp>) -> bool {
    time.zip(since).is_some_and(|(time, since)| time.0.as_second() >= since.as_second())
}

/// What keeps the host from it, or what is going on.
fn message_of(host: &BareMetalHost, otherwise: &str) -> String {
    for (key, what) in [(annotation::PAUSED, "paused"), (annotation::DETACHED, "detached")] {
        if host.annotation(key).is_some() {
            return format!("the host is {what}, and nothing is done to it (annotation {key})");
        }
    }
    let error = host.status.as_ref().map(|status| status.error_message.as_str()).unwrap_or_default();
    if error.is_empty() {
        return format!("{otherwise} (it is {})", host.state().as_str());
    }
    clip(error)
}

fn clip(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default().to_owned()
}

/// The status of a request whose host has been asked.
fn waits(view: &RequestView<'_>, status: &HostOperationStatus, message: &str) -> HostOperationStatus {
    let mut status = status.clone();
    if let [ask, wait, ..] = status.steps.as_mut_slice()
        && ask.phase != StepPhase::Done
    {
        ask.phase = StepPhase::Done;
        ask.end_time = Some(time(view.now));
        wait.phase = StepPhase::Running;
        wait.start_time = Some(time(view.now));
    }
    status.current_step = Some(WAIT.to_owned());
    status.progress = Some("1/2".to_owned());
    status.message = Some(message.to_owned());
    status
}

fn failed(view: &RequestView<'_>, cause: &'static str, message: &str, advice: &'static str) -> RequestStep {
    RequestStep::Status(Box::new(ended(view, OperationPhase::Failed, Err((cause, message, advice)))))
}

/// The last status.
fn ended(
    view: &RequestView<'_>,
    phase: OperationPhase,
    how: Result<&str, (&'static str, &str, &'static str)>,
) -> HostOperationStatus {
    let mut status = status(view.request);
    let (message, error) = match how {
        Ok(message) => (message, None),
        Err((cause, message, advice)) => {
            let error = OperationError {
                cause: cause.to_owned(),
                message: message.to_owned(),
                advice: Some(advice.to_owned()),
            };
            (message, Some(error))
        }
    };
    for step in status.steps.iter_mut().filter(|step| step.phase == StepPhase::Running) {
        step.phase = if error.is_none() { StepPhase::Done } else { StepPhase::Failed };
        step.end_time = Some(time(view.now));
        step.error.clone_from(&error);
    }
    let done = status.steps.iter().filter(|step| step.phase == StepPhase::Done).count();
    status.progress = (!status.steps.is_empty()).then(|| format!("{done}/{}", status.steps.len()));
    status.phase = phase;
    status.end_time = Some(time(view.now));
    status.message = Some(message.to_owned());
    status.error = error;
    status
}

/// A time as objects hold it, of whole seconds.
fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
