//! Requests: HostOperations that somebody other than the host's controller has created, to have a host inspected again, rebooted, rebuilt or erased, steps of its hardware managers run, its logs
//! read, or its locating light switched. Pure.
//!
//! A request is done once, and now, or not at all: what cannot be done to the host as it is when the request is first seen is refused, so that no old word
//! takes effect on a later day. The way of one that is taken:
//!
//! ```text
//! status Running: the intent ──▶ annotation of the request: taken ──▶ annotations of the host: the wish ──▶ status, step Ask: the record ──▶ the host's own work
//! ──▶ status: the end
//! ```
//!
//! The wish is one of the annotations that people set by hand (for a rebuild, an erasure and steps: one of ours), and beside it stands which request has set it
//! ([`annotation::REQUEST`]). It is written once, to the very version of the host that was decided on, and taken back if the host has not come to it within
//! an hour. What it brings about is the host's own work, with its own HostOperations: a request waits for its end, and shows the host's error meanwhile.
//!
//! That it is done is said on evidence: an inspection or a deprovisioning that has begun at another time than the last one before, and its end; of a reboot, what the
//! host has answered ([`Answer`]); of an erasure and of steps, what the host's controller has written to the request's own status of each disk or step. An annotation that is gone is
//! none: anybody may have removed it.
//!
//! A host whose logs are read is not asked, and nothing is done to it; nor is one whose locating light is switched. The request goes from Running to its end by [`crate::conclude_collection`].

use std::collections::BTreeMap;

use api::Time;
use api::metal3::{BareMetalHost, ErrorType, ProvisioningState as State, annotation};
use api::metamorph::{
    AgentStep, EraseOptions, Erasure, HostOperation, HostOperationStatus, OperationError, OperationPhase,
    OperationStep, OperationType, RebootMode, StepPhase, WorkBefore,
};
use jiff::Timestamp;

use crate::annotations::{self, inspection_disabled};
use crate::asked_steps;
use crate::host_rules;
use crate::request_age::{AHEAD, is_ahead, is_fresh, stale};
use crate::request_spec::unsaid;
use crate::request_view::{
    Answer, RequestStep, RequestView, answer, is_live, is_marked, is_name, is_taken, is_unasked, mark, status,
};
use crate::test_medium::{asks_for_test, not_tested};

/// Name of the step that writes the host's annotations.
const ASK: &str = "ask-host";
/// Name of the step that reads logs.
const COLLECT: &str = "collect-logs";
/// Name of the step that switches the locating light.
const LIGHT: &str = "switch-light";
/// Name of the step that waits for the host's work.
const WAIT: &str = "wait-for-host";
/// Longest message that is taken over from the host, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Whether this HostOperation asks for the host's rebuild now, as the annotation with this value says. `None` is one that does not exist. One that was
/// taken long ago and has not come to it, as in a backup that is restored, does not.
#[must_use]
pub fn is_rebuild_of(value: &str, operation: Option<&HostOperation>, host: &BareMetalHost, now: Timestamp) -> bool {
    operation.is_some_and(|request| {
        let status = status(request);
        is_live(request)
            && request.spec.operation == OperationType::Rebuild
            && mark(request) == value
            && status.phase == OperationPhase::Running
            && is_fresh(status.start_time.as_ref(), now)
            && status.host_uid.is_some()
            && status.host_uid == host.metadata.uid
    })
}

/// What this HostOperation asks to be erased now, as the host's annotation with this value says; `None` where it asks for nothing. What has not begun is not
/// begun an hour after it was taken. What has begun goes on to its end, which is where the report is written.
#[must_use]
pub fn erase_of<'a>(
    value: &str,
    operation: Option<&'a HostOperation>,
    host: &BareMetalHost,
    now: Timestamp,
) -> Option<&'a EraseOptions> {
    let request = on_empty(value, operation, host, now)?;
    request.spec.erase.as_ref().filter(|_| request.spec.operation == OperationType::Erase)
}

/// Which steps of hardware managers this HostOperation asks for now, as the host's annotation with this value says; none are only listed. `None` where it
/// asks for nothing. As [`erase_of`].
#[must_use]
pub fn steps_of<'a>(
    value: &str,
    operation: Option<&'a HostOperation>,
    host: &BareMetalHost,
    now: Timestamp,
) -> Option<&'a [AgentStep]> {
    let request = on_empty(value, operation, host, now)?;
    (request.spec.operation == OperationType::Steps).then_some(request.spec.steps.as_slice())
}

/// The request that the host's annotation with this value names, if it may still be done to the empty machine, or is being done.
fn on_empty<'a>(
    value: &str,
    operation: Option<&'a HostOperation>,
    host: &BareMetalHost,
    now: Timestamp,
) -> Option<&'a HostOperation> {
    let request = operation.filter(|request| is_live(request) && mark(request) == value)?;
    let status = status(request);
    let is_its = status.phase == OperationPhase::Running && status.host_uid.is_some();
    let begun = host.state() == State::Deprovisioning && has_begun(host, status.before.as_ref());
    let is_told = status.erasure.is_some() || status.steps_report.is_some();
    let may_begin = !is_told && is_fresh(status.start_time.as_ref(), now);
    (is_its && status.host_uid == host.metadata.uid && (begun || may_begin)).then_some(request)
}

/// Whether the host has begun to be emptied since the request was taken.
fn has_begun(host: &BareMetalHost, before: Option<&WorkBefore>) -> bool {
    let start = host.status.as_ref().and_then(|status| status.operation_history.deprovision.start.as_ref());
    start.is_some() && before.is_some_and(|before| before.deprovision.as_ref() != start)
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
            None => failed(view, "HostGone", GONE, "create another one"),
            Some(_) if is_unasked(view.request.spec.operation) => call(view, &status),
            Some(host) => under_way(view, host),
        },
        // It is not the host's any more.
        _ => match host.map(|host| is_marked(host, view.request)) {
            Some(true) => RequestStep::Annotate(BTreeMap::from([(annotation::REQUEST, None)])),
            _ => RequestStep::Nothing,
        },
    }
}

/// Why a request ends whose host was deleted, or declared again.
pub(crate) const GONE: &str = "the host that it was for is not there any more";

/// What is to be done for a request whose host is not asked. What only reads is read whenever that can be; a light is switched and a medium put in once, and
/// not on a word of long ago.
fn call(view: &RequestView<'_>, status: &HostOperationStatus) -> RequestStep {
    let has_effect = view.request.spec.operation == OperationType::Locate || asks_for_test(view.request);
    if has_effect && !is_fresh(status.start_time.as_ref(), view.now) {
        let what = if asks_for_test(view.request) { "make the test" } else { "switch the light" };
        let what = format!("for more than an hour nobody came to {what}, or the BMC was busy");
        let (cause, text) = stale(status.start_time.as_ref(), view.now, "taken", &what);
        return failed(view, cause, &text, ANOTHER);
    }
    if has_effect && !is_taken(view.request) {
        return RequestStep::Take;
    }
    RequestStep::Collect
}

/// Cause, message and advice of a refusal.
type Refusal = (&'static str, String, &'static str);

/// Why a new request is not taken.
fn refusal(view: &RequestView<'_>) -> Option<Refusal> {
    let spec = &view.request.spec;
    let instead = match spec.operation {
        OperationType::Inspect
        | OperationType::Reboot
        | OperationType::Rebuild
        | OperationType::Erase
        | OperationType::Steps
        | OperationType::CollectLogs
        | OperationType::Diagnose
        | OperationType::Locate => None,
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
    if is_taken(view.request) {
        let text = format!("it has been taken before (annotation {}), and its status was lost", annotation::TAKEN);
        return Some(("Expired", text, "create another one without that annotation, if it is still wanted"));
    }
    if spec.wish.is_some() {
        return Some(("NotOnRequest", "spec.wish is the controller's".to_owned(), "create one without it"));
    }
    if let Some(why) = unsaid(spec).or_else(|| asked_steps::fault(&spec.steps)) {
        return Some(("InvalidRequest", why, "create another one that is right"));
    }
    let Some(host) = view.host.filter(|_| is_name(&spec.host.name)) else {
        let text = format!("there is no BareMetalHost \"{}\" in this namespace", clip(&spec.host.name));
        return Some(("HostNotFound", text, "correct spec.host.name in another request"));
    };
    if spec.host.uid.is_some() && spec.host.uid != host.metadata.uid {
        let text = "the BareMetalHost of this name has another uid than spec.host.uid says";
        return Some(("HostNotFound", text.to_owned(), "find out which host is meant"));
    }
    let created = view.request.metadata.creation_timestamp.as_ref();
    if !is_fresh(created, view.now) {
        let what = "it was created more than an hour before anybody could see to it";
        let (cause, text) = stale(created, view.now, "created", what);
        return Some((cause, text, ANOTHER));
    }
    if let Some(other) = view.other {
        let text = format!("the HostOperation \"{other}\" for this host has not ended");
        return Some(("NotNow", text, "create another one when that has"));
    }
    if let Some(why) = not_tested(view.request, host) {
        return Some(("NotNow", why, READY));
    }
    if let Some(why) = view.unserved {
        let advice = match spec.operation {
            OperationType::Diagnose => "ask for a diagnosis without it (spec.diagnose)",
            OperationType::Steps => "see docs/agent-ipa.md for machines that have such steps",
            _ => "erase the machine by other means",
        };
        return Some(("NotServed", why.to_owned(), advice));
    }
    if is_unasked(spec.operation) {
        return None;
    }
    let lacks = || view.lacking.map(str::to_owned);
    not_now(spec.operation, host).or_else(lacks).map(|text| ("NotNow", text, READY))
}

/// Advice where the host is not ready.
pub(crate) const READY: &str = "create another one when the host is ready for it";

/// What keeps a host from being provisioned again, or has it lose what is not meant; a sentence.
pub(crate) fn unfit(host: &BareMetalHost) -> Option<String> {
    if host.spec.externally_provisioned == Some(true) {
        return Some("somebody else provisions it (spec.externallyProvisioned)".to_owned());
    }
    if host.spec.image.as_ref().is_none_or(|image| image.url.is_empty()) && host.spec.custom_deploy.is_none() {
        return Some("its spec asks for nothing to be provisioned".to_owned());
    }
    let kinds = &[ErrorType::Provisioning, ErrorType::Preparation, ErrorType::Registration];
    host_rules::first(host, kinds).or_else(|| host_rules::of_image(host)).map(|violation| violation.message)
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
    let other = [annotation::ERASE, annotation::STEPS].into_iter().find(|key| host.annotation(key).is_some());
    if let Some(key) = other.filter(|_| is_on_empty(operation)) {
        return Some(format!("something else is to be done to its machine (annotation {key})"));
    }
    if (operation == OperationType::Rebuild || is_on_empty(operation))
        && host.annotation(annotation::INSPECT) == Some("")
    {
        return Some(format!("it is to be inspected again (annotation {})", annotation::INSPECT));
    }
    cannot(operation, host)
}

/// Why this cannot be done to a host with this spec, in this state.
fn cannot(operation: OperationType, host: &BareMetalHost) -> Option<String> {
    let (state, name) = (host.state(), host.state().as_str());
    match operation {
        OperationType::Inspect if !matches!(state, State::Available | State::Ready) => {
            Some(format!("the host is {name}, and only one that is available is inspected again"))
        }
        OperationType::Inspect if inspection_disabled(host) => {
            Some("inspection is disabled (spec.inspectionMode)".to_owned())
        }
        OperationType::Inspect if host.spec.externally_provisioned == Some(true) => {
            Some("somebody else provisions the host (spec.externallyProvisioned)".to_owned())
        }
        OperationType::Reboot if !in_use(state) => {
            Some(format!("the host is {name}, and only one with a system of its own is rebooted"))
        }
        OperationType::Reboot if !host.spec.online => Some("the host is to be off (spec.online)".to_owned()),
        OperationType::Reboot => {
            let held = annotations::holds_off(host).filter(|_| host.spec.disable_power_off != Some(true));
            held.map(|key| format!("the host is kept off (annotation {})", clip(key)))
        }
        OperationType::Rebuild if state != State::Provisioned => {
            Some(format!("the host is {name}, and only one that is provisioned is rebuilt"))
        }
        OperationType::Rebuild if !host.spec.online => {
            Some("the host is to be off (spec.online): it would be wiped and not provisioned again".to_owned())
        }
        OperationType::Rebuild => unfit(host),
        OperationType::Erase if !matches!(state, State::Available | State::Ready) => {
            Some(format!("the host is {name}, and only one that is available is erased"))
        }
        OperationType::Steps if !matches!(state, State::Available | State::Ready) => {
            Some(format!("the host is {name}, and steps are run on one that is available"))
        }
        OperationType::Erase | OperationType::Steps => unfit_to_erase(host),
        _ => None,
    }
}

/// Whether it is done to the machine of an available host, which is `deprovisioning` meanwhile, and told by a report.
const fn is_on_empty(operation: OperationType) -> bool {
    matches!(operation, OperationType::Erase | OperationType::Steps)
}

/// Who uses an available host, or is about to; a sentence.
pub(crate) fn unfit_to_erase(host: &BareMetalHost) -> Option<String> {
    if host.spec.externally_provisioned == Some(true) {
        return Some("somebody else provisions it (spec.externallyProvisioned)".to_owned());
    }
    if host.spec.consumer_ref.is_some() {
        return Some("somebody has it (spec.consumerRef)".to_owned());
    }
    if host.spec.image.is_some() || host.spec.custom_deploy.is_some() {
        return Some("it is to be provisioned (spec.image, spec.customDeploy)".to_owned());
    }
    None
}

fn in_use(state: State) -> bool {
    matches!(state, State::Provisioned | State::ExternallyProvisioned)
}

/// The annotation that asks the host for it, and its value. A rebuild's, an erasure's and that of steps is the request's mark.
fn wish(operation: OperationType, mode: RebootMode) -> (&'static str, Option<&'static str>) {
    match (operation, mode) {
        (OperationType::Reboot, RebootMode::Soft) => (annotation::REBOOT, Some("{\"mode\":\"soft\"}")),
        (OperationType::Reboot, RebootMode::Hard) => (annotation::REBOOT, Some("{\"mode\":\"hard\"}")),
        (OperationType::Rebuild, _) => (annotation::REBUILD, None),
        (OperationType::Erase, _) => (annotation::ERASE, None),
        (OperationType::Steps, _) => (annotation::STEPS, None),
        _ => (annotation::INSPECT, Some("")),
    }
}

/// The status of a request that is taken: the intent, before the host hears of it.
fn taken(view: &RequestView<'_>) -> HostOperationStatus {
    let (first, message) = match view.request.spec.operation {
        OperationType::Locate => (LIGHT, "the BMC is asked to switch the light"),
        operation if is_unasked(operation) => (COLLECT, "the host is read"),
        _ => (ASK, "the host is asked"),
    };
    let is_asked = first == ASK;
    let step = |name: &str, phase| OperationStep { name: name.to_owned(), phase, ..OperationStep::default() };
    let begun = Some(time(view.now));
    let ask = OperationStep { start_time: begun.clone(), attempt: Some(1), ..step(first, StepPhase::Running) };
    let wait = is_asked.then(|| step(WAIT, StepPhase::Pending));
    HostOperationStatus {
        phase: OperationPhase::Running,
        start_time: begun,
        current_step: Some(first.to_owned()),
        progress: Some(if is_asked { "0/2" } else { "0/1" }.to_owned()),
        message: Some(message.to_owned()),
        steps: std::iter::once(ask).chain(wait).collect(),
        host_uid: view.host.and_then(|host| host.metadata.uid.clone()),
        before: view.host.map(|host| {
            let history = host.status.as_ref().map(|status| &status.operation_history);
            WorkBefore {
                inspect: history.and_then(|history| history.inspect.start.clone()),
                deprovision: history.and_then(|history| history.deprovision.start.clone()),
            }
        }),
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
    let fresh = is_fresh(status.start_time.as_ref(), view.now);
    let value = value.map_or_else(|| own.clone(), str::to_owned);
    if !asked {
        if is_marked(host, view.request) {
            return RequestStep::Status(Box::new(waits(view, &status, "the host has been asked")));
        }
        if !fresh {
            let what = "more than an hour ago it was to be asked of the host, and was not";
            let (cause, text) = stale(status.start_time.as_ref(), view.now, "taken", what);
            return failed(view, cause, &text, ANOTHER);
        }
        if let Some(other) = view.other {
            let text = format!("the HostOperation \"{other}\" for this host came first");
            return failed(view, "NotNow", &text, "create another one when that has ended");
        }
        if let Some(why) = not_now(operation, host) {
            return failed(view, "NotNow", &why, READY);
        }
        if !is_taken(view.request) {
            return RequestStep::Take;
        }
        return RequestStep::Annotate(BTreeMap::from([(annotation::REQUEST, Some(own)), (key, Some(value))]));
    }
    if host.is_deleting() {
        return failed(view, "HostGone", "the host is being deleted", "nothing is to be done");
    }
    let Some(before) = status.before.clone() else {
        let text = "what the host had done before was not recorded, so that nobody can tell whether it has been done";
        return failed(view, "Withdrawn", text, "look at the host, and create another one, if it is still wanted");
    };
    let ongoing = is_ongoing(operation, host, &before);
    let is_there = host.annotation(key) == Some(value.as_str());
    // The host's controller writes the report first, and is done when its host is.
    if let Some(erasure) = status.erasure.as_ref().filter(|_| !(ongoing && is_there)) {
        return erased(view, erasure);
    }
    if let Some(report) = status.steps_report.as_ref().filter(|_| !(ongoing && is_there)) {
        return match asked_steps::ended(&view.request.spec.steps, report) {
            Ok(text) => RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&clip(&text))))),
            Err(text) => failed(
                view,
                "StepFailed",
                &clip(&text),
                "status.stepsReport tells of each; put it right and create another one",
            ),
        };
    }
    let outcome = match host.annotation(key) {
        // The host has not come to it.
        Some(_) if is_there => match cannot(operation, host).filter(|_| !ongoing) {
            Some(why) => Outcome::TakeBack(why),
            None if !fresh && !ongoing => Outcome::TakeBack(match is_ahead(status.start_time.as_ref(), view.now) {
                true => format!("the time at which it was taken is ahead of this server's clock: {AHEAD}"),
                false => "the host has not come to it within an hour".to_owned(),
            }),
            None if ongoing => Outcome::Open(message_of(host, "the host is under way")),
            None => Outcome::Open(message_of(host, "the host has not come to it yet")),
        },
        Some(_) => Outcome::Dropped(format!("somebody has changed the annotation {key}")),
        None => match operation {
            OperationType::Reboot => rebooted(host, answer(host, view.request)),
            OperationType::Rebuild => rebuilt(host, &before),
            OperationType::Erase | OperationType::Steps => untold(operation, host, &before),
            _ => inspected(host, &before),
        },
    };
    follow(view, &status, key, fresh, outcome)
}

/// Whether the host does it, with the annotation still there.
fn is_ongoing(operation: OperationType, host: &BareMetalHost, before: &WorkBefore) -> bool {
    match operation {
        OperationType::Inspect => host.state() == State::Inspecting,
        OperationType::Erase | OperationType::Steps => {
            host.state() == State::Deprovisioning && has_begun(host, Some(before))
        }
        _ => false,
    }
}

/// What is written of how the work stands.
fn follow(
    view: &RequestView<'_>,
    status: &HostOperationStatus,
    key: &'static str,
    fresh: bool,
    outcome: Outcome,
) -> RequestStep {
    match outcome {
        Outcome::Open(message) => {
            let now = waits(view, status, &message);
            if now == *status { RequestStep::Nothing } else { RequestStep::Status(Box::new(now)) }
        }
        Outcome::Done(message) => RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&message)))),
        Outcome::TakeBack(why) if taken_back(status) == Some(&why) => {
            RequestStep::Annotate(BTreeMap::from([(key, None)]))
        }
        Outcome::TakeBack(why) => {
            // Recorded first: when the annotation is gone, this says who has removed it.
            let mut now = waits(view, status, &why);
            if let Some(wait) = now.steps.get_mut(1) {
                wait.message = Some(why);
            }
            RequestStep::Status(Box::new(now))
        }
        Outcome::Dropped(message) => {
            let late = !fresh && (message == REMOVED || taken_back(status).is_some());
            let cause = match late {
                true if is_ahead(status.start_time.as_ref(), view.now) => "ClocksDiffer",
                true => "Expired",
                false => "Withdrawn",
            };
            failed(view, cause, taken_back(status).unwrap_or(&message), ANOTHER)
        }
    }
}

/// Why the wish was to be taken back from the host.
fn taken_back(status: &HostOperationStatus) -> Option<&str> {
    status.steps.get(1)?.message.as_deref()
}

/// Advice where something else has come in between.
pub(crate) const ANOTHER: &str = "create another one, if it is still wanted";

/// How the work that the host was asked for stands.
enum Outcome {
    Open(String),
    Done(String),
    /// The host has not come to it, and is not to: why.
    TakeBack(String),
    /// The host does it no more.
    Dropped(String),
}

const REMOVED: &str = "the annotation was removed before the host came to it";

fn rebooted(host: &BareMetalHost, answer: Option<&str>) -> Outcome {
    let on = host.status.as_ref().is_some_and(|status| status.powered_on);
    let unknown = answer == Some(Answer::Unknown.as_str());
    match host.state() {
        _ if answer.is_none() => Outcome::Dropped(format!(
            "the annotation {} was removed, in which the host would have answered: nobody knows whether it has been done",
            annotation::REQUEST
        )),
        _ if answer == Some("") => Outcome::Dropped(REMOVED.to_owned()),
        _ if unknown => Outcome::Dropped(
            "the machine may have been restarted: the answer was lost or tells nothing, or the server ended before it was recorded"
                .to_owned(),
        ),
        state if !in_use(state) => Outcome::Dropped("what was on the host is being removed".to_owned()),
        _ if on => Outcome::Done("the machine was switched off, or restarted, and is on".to_owned()),
        _ if !host.spec.online => Outcome::Dropped("the host is to be off now (spec.online)".to_owned()),
        _ => Outcome::Open(message_of(host, "the machine is off, and is to come on")),
    }
}

fn inspected(host: &BareMetalHost, before: &WorkBefore) -> Outcome {
    let inspection = host.status.as_ref().map(|status| status.operation_history.inspect.clone()).unwrap_or_default();
    let begun = inspection.start.is_some() && inspection.start != before.inspect;
    match host.state() {
        _ if begun && inspection.end.is_some() => Outcome::Done("the hardware has been inspected".to_owned()),
        State::Inspecting if begun => Outcome::Open(message_of(host, "the host is under way")),
        _ if begun => Outcome::Dropped("the inspection was given up".to_owned()),
        _ => Outcome::Dropped(REMOVED.to_owned()),
    }
}

fn rebuilt(host: &BareMetalHost, before: &WorkBefore) -> Outcome {
    let history = host.status.as_ref().map(|status| status.operation_history.clone()).unwrap_or_default();
    let begun = history.deprovision.start.is_some() && history.deprovision.start != before.deprovision;
    let asks_for_nothing = host.spec.image.is_none() && host.spec.custom_deploy.is_none();
    match host.state() {
        _ if !begun => Outcome::Dropped(REMOVED.to_owned()),
        State::Provisioned if history.provision.end.is_some() => {
            Outcome::Done("the host has been provisioned anew".to_owned())
        }
        State::Available | State::Ready if asks_for_nothing => {
            Outcome::Dropped("the host is empty, and its spec asks for nothing any more".to_owned())
        }
        State::Available | State::Ready if !host.spec.online => {
            Outcome::Dropped("the host is empty, and is to be off now (spec.online)".to_owned())
        }
        State::ExternallyProvisioned => Outcome::Dropped("somebody else provisions the host now".to_owned()),
        State::Deprovisioning
        | State::Inspecting
        | State::Preparing
        | State::Available
        | State::Ready
        | State::Provisioning
        | State::Provisioned => Outcome::Open(message_of(host, "the host is under way")),
        state => Outcome::Dropped(format!("the host is {}, and not rebuilt any more", state.as_str())),
    }
}

/// Most disks that a message names.
const MAX_NAMED: usize = 4;

/// The end of an erasure, by its report.
fn erased(view: &RequestView<'_>, erasure: &Erasure) -> RequestStep {
    let aim = view.request.spec.erase.as_ref().map(|options| options.method.aim()).unwrap_or_default();
    let nothing = erasure.disks.is_empty().then_some("no disk was found");
    if let Some(why) = erasure.given_up.as_deref().or(nothing) {
        let text = format!("it was given up: {}", clip(why));
        return failed(view, "NotErased", &text, "correct it, and create another one");
    }
    let open: Vec<String> =
        erasure.disks.iter().filter(|disk| disk.result < aim).map(|disk| clip(&disk.describe())).collect();
    if open.is_empty() {
        let message = format!("{} disks are {aim:?}", erasure.disks.len());
        return RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&message))));
    }
    let named = open.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    let text = format!("{} of {} disks are not {aim:?}: {named}", open.len(), erasure.disks.len());
    let advice =
        "status.erasure.disks tells of each disk why; put it right and create another one, or destroy the disk";
    failed(view, "NotErased", &clip(&text), advice)
}

/// An erasure, or steps, of which nothing is told.
fn untold(operation: OperationType, host: &BareMetalHost, before: &WorkBefore) -> Outcome {
    let text = match operation {
        _ if !has_begun(host, Some(before)) => REMOVED,
        OperationType::Steps => {
            "the annotation was removed in the middle: what has become of the steps is not known, and one that had begun runs to its end"
        }
        _ => {
            "the annotation was removed in the middle: what has become of the disks is not known, and a drive may be locked until the host is erased again"
        }
    };
    Outcome::Dropped(text.to_owned())
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

pub(crate) fn clip(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_MESSAGE)).unwrap_or_default().to_owned()
}

/// The status of a request whose host has been asked.
fn waits(view: &RequestView<'_>, status: &HostOperationStatus, message: &str) -> HostOperationStatus {
    let mut status = status.clone();
    if let Some(wait) = status.steps.get_mut(1) {
        wait.message = None;
    }
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

pub(crate) fn failed(view: &RequestView<'_>, cause: &str, message: &str, advice: &str) -> RequestStep {
    RequestStep::Status(Box::new(ended(view, OperationPhase::Failed, Err((cause, message, advice)))))
}

/// The last status.
pub(crate) fn ended(
    view: &RequestView<'_>,
    phase: OperationPhase,
    how: Result<&str, (&str, &str, &str)>,
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
