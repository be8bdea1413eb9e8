//! Annotations that carry wishes, read from untrusted text.

use api::metal3::{BareMetalHost, InspectionMode, annotation};
use serde::Deserialize;
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

/// Value of a reboot annotation (baremetal-operator `docs/api.md`, «Reboot annotation»).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RebootValue {
    hard: bool,
    force: bool,
    /// Fields that say nothing to anybody.
    unknown: Vec<String>,
}

/// The reboot annotations of a host; with `forced_only` those that insist.
///
/// One that cannot be read asks for nothing: it is dropped with a word (upstream reboots the host the soft way).
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

/// Reboot annotations that cannot be read: the key, and what is wrong, a sentence.
pub(crate) fn reboot_faults(host: &BareMetalHost) -> Vec<(String, String)> {
    reboot_annotations(host)
        .filter_map(|(key, value)| {
            reboot_value(value).err().map(|what| (key.to_owned(), format!("annotation {key}: {what}")))
        })
        .collect()
}

/// Fields in reboot annotations that say nothing, a sentence each.
pub(crate) fn reboot_surplus(host: &BareMetalHost) -> Vec<String> {
    let read = reboot_annotations(host).filter_map(|(key, value)| Some((key, reboot_value(value).ok()?)));
    read.filter(|(_, value)| !value.unknown.is_empty())
        .map(|(key, value)| {
            format!("annotation {key}: {} says nothing here; known are mode and force", value.unknown.join(", "))
        })
        .collect()
}

fn reboot_annotations(host: &BareMetalHost) -> impl Iterator<Item = (&str, &str)> {
    let all = host.metadata.annotations.iter().flatten();
    all.map(|(k, v)| (k.as_str(), v.as_str())).filter(|(key, _)| {
        key.strip_prefix(annotation::REBOOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Reads a value as Go's decoder does: names of fields in any case, null says nothing, other fields are left.
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

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DetachedValue {
    #[serde(default)]
    delete_action: String,
    #[serde(default)]
    force: bool,
}

/// The detached annotation; a value that is not its JSON is free text.
pub(crate) fn detached(host: &BareMetalHost) -> Option<Detached> {
    let text = host.annotation(annotation::DETACHED)?;
    let value: DetachedValue = bounded(text).ok().and_then(|()| serde_json::from_str(text).ok()).unwrap_or_default();
    Some(Detached { delay_deletion: value.delete_action == "delay", force: value.force })
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
    host.annotation(annotation::INSPECT) == Some("") && !inspection_disabled(host)
}

/// Reads JSON in which every field must be one that the type knows.
///
/// # Errors
/// What is wrong, a clause.
pub(crate) fn strict<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, String> {
    bounded(text)?;
    let given = match serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))? {
        given @ Value::Object(_) => given,
        // As Go's decoder: null says nothing.
        Value::Null => Value::Object(Map::new()),
        _ => return Err("no JSON object".to_owned()),
    };
    let typed: T = serde_json::from_value(given.clone()).map_err(|e| e.to_string())?;
    let known = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    match unknown(&given, &known) {
        Some(path) => Err(format!("unknown field {path}")),
        None => Ok(typed),
    }
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
