//! The six conditions of a BareMetalHost (baremetal-operator `apis/metal3.io/v1alpha1`, `internal/controller/metal3.io`).
//!
//! Types, statuses and reasons are upstream's; the messages are ours: what is going on, and what went wrong. While failed work is retried, the
//! status shows no error, but the message still does.

use addresses::text_without_secrets;
use api::Time;
use api::metal3::{
    BareMetalHost, BareMetalHostStatus, ErrorType, OperationalStatus, ProvisioningState as State, annotation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use terms::HealthLevel;

use crate::annotations;
use crate::attachment;
use crate::power_wish;
use crate::step::Next;
use crate::told::{self, BEFORE};
use crate::view::{HealthHeard, View};
use crate::wishes;

/// How it begins where an attempt has failed and is not being made again yet.
const NEXT: &str = "The next attempt is ";
/// When a service that has failed is made again.
const AT_REBOOT: &str =
    "made when the machine has been off: at the next reboot, by the annotation reboot.metal3.io, say, or power-off";

/// How the error begins that says that no more attempts are made.
pub(crate) const EXHAUSTED: &str = "Provisioning the image failed ";

/// Longest message of a condition, bytes, of which the API takes 32,768.
const MAX_MESSAGE: usize = 8192;
/// Longest cause of a fault that the condition Healthy tells.
const MAX_CAUSE: usize = 300;
/// Reason of the condition Ready while a provisioned host's firmware is changed.
const SERVICING: &str = "Servicing";
/// Reason of the condition Progressing while nothing is under way.
const AT_REST: &str = "NotProgressing";

/// A condition's type, status, reason and message.
struct Fact(&'static str, &'static str, &'static str, String);

/// Has the conditions say what the status says, where something else than a decision has changed it: a host that is made to wait, say.
pub fn renew_conditions(view: &View<'_>, status: &mut BareMetalHostStatus) {
    update(view, status, None);
}

/// Updates the conditions; a transition time changes only with its status. `next` is when the next attempt is made, if one has just failed.
pub(crate) fn update(view: &View<'_>, status: &mut BareMetalHostStatus, next: Option<Next>) {
    let waits = waits(view, status, next);
    // An error is shown alone: later writes find it at the end of the message.
    let is_detached = status.operational_status == OperationalStatus::Detached;
    let detaches = match annotations::deletion_waits(view.host, is_detached) {
        None if is_detached => None,
        None => annotations::detaches_later(view.host, status.provisioning.state),
        waits => waits,
    };
    let detaches = detaches.filter(|_| error(status).is_none());
    let held_off =
        attachment::holds_off(view).filter(|_| error(status).is_none() && !status.powered_on && !is_detached);
    let rests = waits_for_a_wish(view, status).filter(|_| error(status).is_none());
    for Fact(kind, mut value, mut reason, mut message) in facts(view, status, waits) {
        if let Some(why) = held_off.as_ref().filter(|_| kind == "Progressing") {
            (value, reason, message) = ("True", "AttachingDataImage", why.clone());
        }
        if let Some(why) = rests.as_ref().filter(|_| kind == "Progressing" && reason == AT_REST) {
            message.clone_from(why);
        }
        if kind == "Progressing" && error(status).is_none() && held_off.is_none() {
            message = told::of(view, status, reason, message);
        }
        if let Some(why) = detaches.filter(|_| kind == "Progressing" && !message.contains(BEFORE)) {
            message = format!("{message}; {why}");
        }
        let message = cut(message);
        let generation = view.host.metadata.generation;
        match status.conditions.iter_mut().find(|c| c.type_ == kind) {
            Some(old) => {
                if old.status != value {
                    old.last_transition_time = Time(view.now);
                }
                value.clone_into(&mut old.status);
                reason.clone_into(&mut old.reason);
                old.message = message;
                old.observed_generation = generation;
            }
            None => status.conditions.push(Condition {
                last_transition_time: Time(view.now),
                message,
                observed_generation: generation,
                reason: reason.to_owned(),
                status: value.to_owned(),
                type_: kind.to_owned(),
            }),
        }
    }
}

/// The message, cut with a note if it is too long for a condition: writing it would fail forever.
pub(crate) fn cut(message: String) -> String {
    if message.len() <= MAX_MESSAGE {
        return message;
    }
    let end = message.floor_char_boundary(MAX_MESSAGE);
    format!("{}… The rest is left out: the message is too long for a condition", message.get(..end).unwrap_or_default())
}

fn facts(view: &View<'_>, status: &BareMetalHostStatus, waits: Option<String>) -> [Fact; 6] {
    let progressing = progressing(status, waits);
    let healthy = healthy(status, view.health, cause(view.host));
    [manageable(status), available(status), provisioned(status), ready(status), progressing, healthy]
}

/// What a diagnosis has found of the machine's fault, as the host's annotation says; a sentence.
fn cause(host: &BareMetalHost) -> Option<String> {
    let summary: serde_json::Value = serde_json::from_str(host.annotation(annotation::DIAGNOSIS)?).ok()?;
    let text = |name: &str| summary.get(name).and_then(serde_json::Value::as_str);
    let is_found = text("trigger") == Some("Fault") && text("code").is_some();
    text("message").filter(|_| is_found).map(|message| terms::clean(message, MAX_CAUSE))
}

/// Why work on a machine in use keeps its user's wish of its power waiting. A sentence.
fn serviced(view: &View<'_>) -> String {
    let (host, reboot) = (view.host, power_wish::reboot(view));
    let then = match annotations::holds_off(host).filter(|_| reboot.held_off) {
        _ if !host.spec.online => {
            "; the machine is powered off when that has ended, as spec.online is false".to_owned()
        }
        Some(key) => format!("; the machine is powered off when that has ended, for the annotation {key}"),
        None if reboot.once => {
            format!("; the machine is rebooted when that has ended, for the annotation {}", annotation::REBOOT)
        }
        None => String::new(),
    };
    format!("The firmware is being changed{then}")
}

/// When the next attempt follows the error: no work is under way until then.
fn waits(view: &View<'_>, status: &BareMetalHostStatus, next: Option<Next>) -> Option<String> {
    let error = error(status)?;
    let when = match next? {
        // The machine is switched on without it, and not restarted for it.
        _ if status.error_type == Some(ErrorType::Servicing) => AT_REBOOT.to_owned(),
        Next::After(wait) => {
            let at = view.now.checked_add(wait).unwrap_or(view.now).as_second();
            format!("at {}", jiff::Timestamp::from_second(at).unwrap_or(view.now))
        }
        Next::Now | Next::Gone => "made at once".to_owned(),
        Next::Wait => "made when something of the host is changed".to_owned(),
    };
    Some(format!("{NEXT}{when}; {BEFORE}{error}"))
}

/// Why a host at rest does not do what it seems to be asked for: another wish of its user says so, or a service comes first. A sentence.
fn waits_for_a_wish(view: &View<'_>, status: &BareMetalHostStatus) -> Option<String> {
    let host = view.host;
    if status.operational_status == OperationalStatus::Servicing {
        return Some(serviced(view));
    }
    if host.spec.online {
        let key = annotations::holds_off(host).filter(|_| !status.powered_on && power_wish::reboot(view).held_off)?;
        return Some(format!("The machine is kept off by the annotation {key} until that is removed"));
    }
    let is_empty = matches!(status.provisioning.state, State::Available | State::Ready);
    (is_empty && wishes::image(host).is_some()).then(|| "The image is written when spec.online is true".to_owned())
}

/// The error, if there is one.
fn error(status: &BareMetalHostStatus) -> Option<&str> {
    status.error_type.map(|_| status.error_message.as_str()).filter(|message| !message.is_empty())
}

/// The error of an earlier attempt in the condition of this type.
pub(crate) fn earlier<'a>(status: &'a BareMetalHostStatus, kind: &str) -> Option<&'a str> {
    let said = status.conditions.iter().find(|c| c.type_ == kind)?;
    said.message.split_once(BEFORE).map(|(_, error)| error)
}

fn manageable(status: &BareMetalHostStatus) -> Fact {
    let failed = || error(status).unwrap_or_default().to_owned();
    let (value, reason, message) = match (status.provisioning.state, status.error_type) {
        (State::None | State::Unmanaged, _) => {
            ("False", "NotManaged", "The host has no BMC details — set spec.bmc to have it managed".to_owned())
        }
        _ if status.operational_status == OperationalStatus::Detached => {
            ("False", "NotManaged", format!("The host is detached (annotation {})", annotation::DETACHED))
        }
        (_, Some(ErrorType::Registration | ErrorType::ProvisionedRegistration)) => {
            ("False", "RegistrationFailed", failed())
        }
        (_, Some(ErrorType::PowerManagement)) => ("False", "PowerFailure", failed()),
        (State::Registering, _) => {
            ("False", "Registering", again(status, "Manageable", "Access to the BMC is being checked"))
        }
        _ if status.provisioning.id.is_empty() => ("False", "NotManaged", "The host is not registered".to_owned()),
        _ => ("True", "Manageable", "The BMC is under control".to_owned()),
    };
    Fact("Manageable", value, reason, message)
}

fn available(status: &BareMetalHostStatus) -> Fact {
    match status.provisioning.state {
        State::Available | State::Ready => {
            // As upstream, the state alone decides; the message reports an error of the access.
            let message = match error(status) {
                None => "The host can be given an image".to_owned(),
                Some(error) => format!("The host can be given an image once its error is gone: {error}"),
            };
            Fact("AvailableForProvisioning", "True", "Available", message)
        }
        state => Fact("AvailableForProvisioning", "False", "NotAvailable", is(state)),
    }
}

fn provisioned(status: &BareMetalHostStatus) -> Fact {
    let image = &status.provisioning.image.url;
    match status.provisioning.state {
        State::ExternallyProvisioned => {
            Fact("Provisioned", "True", "Provisioned", "The host is provisioned by somebody else".to_owned())
        }
        State::Provisioned if image.is_empty() => {
            Fact("Provisioned", "True", "Provisioned", "The host is provisioned".to_owned())
        }
        State::Provisioned => {
            let image = text_without_secrets(image);
            Fact("Provisioned", "True", "Provisioned", format!("The host is provisioned with {image}"))
        }
        state => Fact("Provisioned", "False", "NotProvisioned", not_provisioned(status, state)),
    }
}

/// Reports failed attempts at the same image until one succeeds or another image is wished.
fn not_provisioned(status: &BareMetalHostStatus, state: State) -> String {
    let count = status.provisioning_fail_count;
    let message = error(status).filter(|_| status.error_type == Some(ErrorType::Provisioning));
    // The message that no more attempts are made is not the failure itself.
    match message.filter(|message| !message.starts_with(EXHAUSTED)).or_else(|| earlier(status, "Provisioned")) {
        Some(last) if count > 0 => format!("{}; failed attempts: {count}; {BEFORE}{last}", is(state)),
        _ => is(state),
    }
}

/// Whether the host was being serviced when its conditions were last written, whatever has happened to it meanwhile.
pub(crate) fn is_being_serviced(status: &BareMetalHostStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.reason == SERVICING)
}

fn ready(status: &BareMetalHostStatus) -> Fact {
    let is_provisioned = matches!(status.provisioning.state, State::Provisioned | State::ExternallyProvisioned);
    let (value, reason, message) = match status.operational_status {
        // An error of the access, say: the service goes on afterwards.
        OperationalStatus::Error
            if is_provisioned && is_being_serviced(status) && status.error_type != Some(ErrorType::Servicing) =>
        {
            ("False", SERVICING, error(status).unwrap_or_default().to_owned())
        }
        OperationalStatus::Error => ("False", "Error", error(status).unwrap_or_default().to_owned()),
        OperationalStatus::Servicing => ("False", SERVICING, "The host is being serviced".to_owned()),
        OperationalStatus::Detached => ("False", "Detached", "The host is detached".to_owned()),
        _ if !is_provisioned => ("False", "NotProvisioned", is(status.provisioning.state)),
        _ => ("True", "Provisioned", "The host is provisioned and without error".to_owned()),
    };
    Fact("Ready", value, reason, message)
}

fn progressing(status: &BareMetalHostStatus, waits: Option<String>) -> Fact {
    let (value, reason, work) = match status.provisioning.state {
        _ if status.operational_status == OperationalStatus::Detached => ("False", "Detached", "The host is detached"),
        State::Registering => ("True", "Registering", "Access to the BMC is being checked"),
        State::Inspecting | State::MatchProfile => ("True", "Inspecting", "The hardware is being inspected"),
        State::Preparing => ("True", "Preparing", "The host is being prepared"),
        State::Provisioning => ("True", "Provisioning", "The image is being written"),
        State::Deprovisioning => ("True", "Deprovisioning", "What was provisioned is being removed"),
        State::PoweringOffBeforeDelete => {
            ("True", "PoweringOffBeforeDelete", "The host is being powered off before it is deleted")
        }
        State::Deleting => ("True", "Deleting", "The host is being let go"),
        _ => ("False", AT_REST, "Nothing is under way"),
    };
    let Some(error) = error(status) else {
        let message = match status.error_message.as_str() {
            why if status.operational_status == OperationalStatus::Delayed && !why.is_empty() => {
                format!("Delayed: {why}")
            }
            _ => again(status, "Progressing", work),
        };
        return Fact("Progressing", value, reason, message);
    };
    // The time of the next attempt was reported when the last one failed.
    let said = || {
        let old = status.conditions.iter().find(|c| c.type_ == "Progressing")?;
        (old.message.starts_with(NEXT) && old.message.ends_with(error)).then(|| old.message.clone())
    };
    Fact("Progressing", value, reason, waits.or_else(said).unwrap_or_else(|| format!("Waiting: {error}")))
}

/// The work, and the error of its last attempt, which is being made again.
fn again(status: &BareMetalHostStatus, kind: &str, work: &str) -> String {
    let last = error(status).or_else(|| earlier(status, kind).filter(|_| status.error_count > 0));
    last.map_or_else(|| work.to_owned(), |last| format!("{work}; {BEFORE}{last}"))
}

/// The state as a sentence.
fn is(state: State) -> String {
    match state {
        State::None => "The host is new".to_owned(),
        state => format!("The host is {}", state.as_str()),
    }
}

/// What the machine's BMC last said, which stays until it is asked again; unknown where it says nothing, and of a machine that is not the host's any more.
fn healthy(status: &BareMetalHostStatus, health: HealthHeard, cause: Option<String>) -> Fact {
    if status.operational_status == OperationalStatus::Detached {
        let message = format!("The host is detached: nobody asks its machine (annotation {})", annotation::DETACHED);
        return Fact("Healthy", "Unknown", "Unknown", message);
    }
    const WARNING: &str = "Warning";
    const CRITICAL: &str = "CriticalError";
    let said = || match status.conditions.iter().find(|c| c.type_ == "Healthy")?.reason.as_str() {
        "Healthy" => Some(HealthLevel::OK),
        WARNING => Some(HealthLevel::Warning),
        CRITICAL => Some(HealthLevel::Critical),
        _ => None,
    };
    let health = match health {
        HealthHeard::Unasked => said(),
        HealthHeard::Silence => None,
        HealthHeard::Level(level) => Some(level),
    };
    let (value, reason, message) = match health {
        Some(HealthLevel::OK) => ("True", "Healthy", "The BMC reports no fault of the machine"),
        Some(HealthLevel::Warning) => {
            ("False", WARNING, "The BMC reports that something of the machine needs attention — look at its log")
        }
        Some(HealthLevel::Critical) => (
            "False",
            CRITICAL,
            "The BMC reports that something of the machine needs attention at once — look at its log",
        ),
        None => ("Unknown", "Unknown", "Nobody has reported the machine's health"),
    };
    let message = match cause {
        Some(cause) if value == "False" => format!("The BMC reports a fault of the machine: {cause}"),
        _ => message.to_owned(),
    };
    Fact("Healthy", value, reason, message)
}
