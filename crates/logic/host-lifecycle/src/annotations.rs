//! Annotations that carry wishes, read from untrusted text.

use std::collections::BTreeMap;

use api::metal3::{BareMetalHost, InspectionMode, ProvisioningState as State, annotation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Longest annotation value that is parsed, in bytes (Kubernetes allows 256 KiB for all annotations together).
const MAX_VALUE: usize = 256 * 1024;

/// A wish to reboot, or to be kept off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reboot {
    /// The one-shot annotation is there.
    pub(crate) once: bool,
    /// An annotation with a key of its own is there: the host stays off until it is removed.
    pub(crate) held_off: bool,
    /// One of them asks for the hard way.
    pub(crate) hard: bool,
}

/// Value of a reboot annotation (baremetal-operator `docs/api.md`, "Reboot annotation").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RebootValue {
    hard: bool,
    force: bool,
    /// Names of unknown fields.
    unknown: Vec<String>,
}

/// The reboot annotations of a host; with `forced_only` only those with `force`.
///
/// One that cannot be parsed asks for nothing and is dropped with an Event (upstream reboots the host softly).
pub(crate) fn reboot(host: &BareMetalHost, forced_only: bool) -> Reboot {
    let mut wish = Reboot::default();
    for (key, value) in reboot_annotations(host) {
        let Ok(parsed) = reboot_value(value) else { continue };
        if forced_only && !parsed.force {
            continue;
        }
        if key == annotation::REBOOT {
            wish.once = true;
        } else {
            wish.held_off = true;
        }
        wish.hard |= parsed.hard;
    }
    wish
}

/// Key of an annotation that keeps the host off.
pub(crate) fn holds_off(host: &BareMetalHost) -> Option<&str> {
    reboot_annotations(host)
        .find(|(key, value)| *key != annotation::REBOOT && reboot_value(value).is_ok())
        .map(|(key, _)| key)
}

/// Whether the one-shot reboot annotation has `force`: during inspection or provisioning, the agent is then booted again (upstream's
/// `forceReboot`). One with a key of its own only keeps a host off once it is at rest.
#[must_use]
pub fn is_reboot_forced(host: &BareMetalHost) -> bool {
    reboot(host, true).once
}

/// Reboot annotations that cannot be read: the key, and what is wrong, a sentence.
pub(crate) fn reboot_faults(host: &BareMetalHost) -> Vec<(String, String)> {
    host.metadata.annotations.as_ref().map(reboot_faults_in).unwrap_or_default()
}

/// The same of any object's annotations.
pub(crate) fn reboot_faults_in(annotations: &BTreeMap<String, String>) -> Vec<(String, String)> {
    reboots_in(annotations)
        .filter_map(|(key, value)| {
            reboot_value(value).err().map(|what| (key.to_owned(), format!("annotation {key}: {what}")))
        })
        .collect()
}

/// Unknown fields in reboot annotations, a sentence per annotation.
pub(crate) fn reboot_surplus(host: &BareMetalHost) -> Vec<String> {
    let read = reboot_annotations(host).filter_map(|(key, value)| Some((key, reboot_value(value).ok()?)));
    read.filter(|(_, value)| !value.unknown.is_empty())
        .map(|(key, value)| {
            format!("annotation {key}: {} says nothing here; known are mode and force", value.unknown.join(", "))
        })
        .collect()
}

fn reboot_annotations(host: &BareMetalHost) -> impl Iterator<Item = (&str, &str)> {
    host.metadata.annotations.iter().flat_map(reboots_in)
}

fn reboots_in(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).filter(|(key, _)| {
        key.strip_prefix(annotation::REBOOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Parses a value as Go's decoder does: field names in any case, null ignored, unknown fields accepted.
fn reboot_value(text: &str) -> Result<RebootValue, String> {
    if text.is_empty() {
        return Ok(RebootValue::default());
    }
    bounded(text)?;
    let allowed = "allowed is {\"mode\":\"hard\" or \"soft\",\"force\":true or false}";
    let given: Value = serde_json::from_str(text).map_err(|e| format!("not JSON ({e}); {allowed}"))?;
    let fields = match given {
        Value::Null => return Ok(RebootValue::default()),
        Value::Object(fields) => fields,
        _ => return Err(format!("no JSON object; {allowed}")),
    };
    let mut read = RebootValue::default();
    for (name, value) in fields {
        match (name.to_ascii_lowercase().as_str(), value) {
            ("mode" | "force", Value::Null) => {}
            ("mode", Value::String(mode)) if matches!(mode.as_str(), "" | "soft" | "hard") => {
                read.hard = mode == "hard";
            }
            ("mode", other) => return Err(format!("its mode is {other}; {allowed}")),
            ("force", Value::Bool(force)) => read.force = force,
            ("force", other) => return Err(format!("its force is {other}; {allowed}")),
            _ => read.unknown.push(name.chars().take(64).collect()),
        }
    }
    Ok(read)
}

/// A wish to let go of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Detached {
    /// Do not delete the host while it is detached.
    pub(crate) delay_deletion: bool,
    /// In any state, even if work is under way.
    pub(crate) force: bool,
}

impl Detached {
    /// Whether a host in this state can be detached: when available or provisioned, or by force while work is under way.
    pub(crate) const fn applies(self, state: State) -> bool {
        match state {
            State::Available | State::Ready | State::Provisioned | State::ExternallyProvisioned => true,
            State::Inspecting
            | State::Preparing
            | State::Provisioning
            | State::Deprovisioning
            | State::PoweringOffBeforeDelete => self.force,
            State::None | State::Unmanaged | State::Registering | State::MatchProfile | State::Deleting => false,
        }
    }
}

/// Says that the wish to detach the host waits for the end of its work, or that its deletion does not wait for it.
pub(crate) fn detaches_later(host: &BareMetalHost, state: State) -> Option<&'static str> {
    let wish = detached(host)?;
    if matches!(state, State::Registering | State::MatchProfile) && !host.is_deleting() {
        return Some(if wish.force || host.spec.externally_provisioned == Some(true) {
            "the host is detached when its registration has ended, as the annotation baremetalhost.metal3.io/detached asks"
        } else {
            "the host is detached when it is available, as the annotation baremetalhost.metal3.io/detached asks: with {\"force\":true} it is when its \
             registration has ended"
        });
    }
    let works =
        !matches!(state, State::None | State::Unmanaged | State::Registering | State::MatchProfile | State::Deleting);
    (works && !wish.applies(state)).then_some(match (host.is_deleting(), wish.delay_deletion) {
        (false, _) => {
            "the host is detached when this has ended, as the annotation baremetalhost.metal3.io/detached asks: with {\"force\":true} alone it \
             would not wait"
        }
        (true, false) => {
            "the host is being deleted, and is not detached first: in the middle of work the annotation baremetalhost.metal3.io/detached counts \
             with {\"force\":true} only"
        }
        (true, true) => {
            "the host is being deleted, and is not detached first: in the middle of work the annotation baremetalhost.metal3.io/detached counts \
             with {\"force\":true,\"deleteAction\":\"delay\"} only"
        }
    })
}

/// Whether a host that is deleted is to be let go first, after which its deletion waits for its annotation.
pub(crate) fn detaches_before_deletion(host: &BareMetalHost) -> bool {
    let state = host.state();
    host.is_deleting() && detached(host).is_some_and(|wish| wish.delay_deletion && wish.applies(state))
}

/// Says that the deletion of a detached host waits for its annotation.
pub(crate) fn deletion_waits(host: &BareMetalHost, is_detached: bool) -> Option<&'static str> {
    (is_detached && host.is_deleting() && detached(host)?.delay_deletion).then_some(
        "its deletion waits until the annotation baremetalhost.metal3.io/detached says {\"deleteAction\":\"delete\"}, which leaves the machine \
         as it is, or is removed, which has it emptied",
    )
}

/// What is wrong with the value of the detached annotation, where it is meant to be its JSON.
pub(crate) fn detached_fault(host: &BareMetalHost) -> Option<String> {
    let key = annotation::DETACHED;
    let (_, fault) = detached_value(host.annotation(key)?);
    fault.map(|what| {
        format!(
            "annotation {key}: {what}; it detaches the host without force, and a deletion of the host waits until it is corrected; allowed \
             is {{\"force\":true or false,\"deleteAction\":\"delay\" or \"delete\"}}"
        )
    })
}

/// What is wrong with the word by which a discovered host is approved: another than the two that are known, or one where there is nothing to approve.
pub(crate) fn approve_fault(host: &BareMetalHost) -> Option<String> {
    let (key, word) = (annotation::APPROVE, host.annotation(annotation::APPROVE)?);
    if !matches!(word, "true" | "false") {
        let word = short(&Value::from(word));
        return Some(format!(
            "annotation {key}: {word} approves nothing and refuses nothing; write \"true\" or \"false\""
        ));
    }
    let why = match host.annotation(annotation::DISCOVERED_BY) {
        None => "the host was not discovered",
        Some(_) if host.spec.bmc.is_some() => "the host has BMC details already",
        Some(_) => return None,
    };
    Some(format!("annotation {key}: it has no effect, because {why}"))
}

/// Whether this is what [`detached_fault`] said.
pub(crate) fn is_detached_fault(message: &str) -> bool {
    message.strip_prefix("annotation ").is_some_and(|rest| rest.starts_with(annotation::DETACHED))
}

/// The detached annotation; a value that is not its JSON is free text.
pub(crate) fn detached(host: &BareMetalHost) -> Option<Detached> {
    host.annotation(annotation::DETACHED).map(|text| detached_value(text).0)
}

/// Parses a value as Go's decoder does: field names in any case, null ignored. What is not understood may be the wish to keep the host: it is
/// neither let go by force nor deleted by it.
fn detached_value(text: &str) -> (Detached, Option<String>) {
    let unclear = |what: String| (Detached { delay_deletion: true, force: false }, Some(what));
    if let Err(what) = bounded(text) {
        return unclear(what);
    }
    let fields = match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => fields,
        Ok(other @ (Value::Array(_) | Value::String(_) | Value::Bool(false))) => {
            return unclear(format!("{} is no JSON object", short(&other)));
        }
        Ok(_) => return (Detached::default(), None),
        Err(error) if text.trim_start().starts_with('{') => return unclear(format!("not JSON ({error})")),
        Err(_) => return (Detached::default(), None),
    };
    let mut wish = Detached::default();
    for (name, value) in fields {
        match (name.to_ascii_lowercase().as_str(), value) {
            ("force" | "deleteaction", Value::Null) => {}
            ("force", Value::Bool(force)) => wish.force = force,
            ("force", other) => return unclear(format!("its force is {}", short(&other))),
            ("deleteaction", Value::String(action)) if matches!(action.as_str(), "" | "delay" | "delete") => {
                wish.delay_deletion = action == "delay";
            }
            ("deleteaction", other) => return unclear(format!("its deleteAction is {}", short(&other))),
            _ => return unclear(format!("{} says nothing here", short(&Value::String(name)))),
        }
    }
    (wish, None)
}

/// A value as a message shows it.
fn short(value: &Value) -> String {
    value.to_string().chars().take(64).collect()
}

/// Whether the host is to be let go even in the middle of work, and though its machine does not answer.
#[must_use]
pub fn detached_by_force(host: &BareMetalHost) -> bool {
    detached(host).is_some_and(|wish| wish.force)
}

/// Whether the host is not to be inspected.
#[must_use]
pub fn inspection_disabled(host: &BareMetalHost) -> bool {
    host.spec.inspection_mode == Some(InspectionMode::Disabled)
        || host.annotation(annotation::INSPECT) == Some("disabled")
}

/// Whether another inspection is asked for.
pub(crate) fn inspection_requested(host: &BareMetalHost) -> bool {
    host.annotation(annotation::INSPECT).is_some() && !inspection_disabled(host)
}

/// Whether another inspection is asked for of a host that is not to be inspected at all.
pub(crate) fn inspection_requested_in_vain(host: &BareMetalHost) -> bool {
    host.annotation(annotation::INSPECT).is_some_and(|value| value != "disabled") && inspection_disabled(host)
}

/// Reads JSON in which every field must be one that the type knows.
///
/// # Errors
/// What is wrong, a clause.
pub(crate) fn strict<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, String> {
    match lenient(text)? {
        (_, Some(path)) => Err(format!("unknown field {path}")),
        (typed, None) => Ok(typed),
    }
}

/// Reads JSON, with the first field that says something and that the type does not know.
///
/// # Errors
/// What is wrong, a clause.
pub(crate) fn lenient<T: DeserializeOwned + Serialize>(text: &str) -> Result<(T, Option<String>), String> {
    bounded(text)?;
    let given = match serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))? {
        given @ Value::Object(_) => given,
        // As Go's decoder: null says nothing.
        Value::Null => Value::Object(Map::new()),
        _ => return Err("no JSON object".to_owned()),
    };
    let typed: T = serde_json::from_value(given.clone()).map_err(|e| e.to_string())?;
    let known = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    Ok((typed, unknown(&given, &known)))
}

/// The first field of `given` that `known` lost although it says something.
fn unknown(given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(key, value)| match known.get(key) {
            Some(other) => unknown(value, other).map(|rest| format!("{key}.{rest}")),
            None if says_nothing(value) => None,
            None => Some(key.clone()),
        }),
        (Value::Array(given), Value::Array(known)) => given.iter().zip(known).find_map(|(g, k)| unknown(g, k)),
        _ => None,
    }
}

/// Values that writing back leaves out.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn bounded(text: &str) -> Result<(), String> {
    if text.len() > MAX_VALUE {
        Err(format!("it has {} bytes, at most {MAX_VALUE} are read", text.len()))
    } else {
        Ok(())
    }
}
