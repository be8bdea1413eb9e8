//! How makers write their logs.
//!
//! - HPE (iLO, schema HpeLogEntry): severity `Repaired`, class and code, whether it is repaired, what to do; a memory module stands in the message as `(Processor 2, DIMM 4)`.
//! - Dell (iDRAC, schema DellLCLogEntry): category; `MessageId` after a prefix with the iDRAC's version.
//! - Supermicro: no severity; the part stands after an `@` in the message.

use diagnosis::LogEntry;
use serde_json::Value;

use crate::json::{flag, word};

/// Adds what only the vendor's part of an entry says.
pub(super) fn add(found: &mut LogEntry, entry: &Value, clean: impl Fn(&str) -> String) {
    if let Some(hpe) = oem(entry, &["Hpe", "Hp"]) {
        let severity = word(hpe, "Severity").unwrap_or_default();
        let repaired = severity.eq_ignore_ascii_case("Repaired") || flag(hpe, "Repaired") == Some(true);
        // An entry without either is about something that happened, not about a state.
        found.resolved = found.resolved.or(repaired.then_some(true)).or_else(|| flag(hpe, "Repaired"));
        found.resolution = found
            .resolution
            .take()
            .or_else(|| word(hpe, "RecommendedAction").map(&clean))
            .filter(|text| !text.is_empty());
        found.sensor_type = found.sensor_type.take().or_else(|| word(hpe, "ClassDescription").map(&clean));
        if found.severity.is_none() && !severity.is_empty() {
            found.severity = Some(clean(severity));
        }
        found.component = found.component.take().or_else(|| module(&found.text));
    }
    if found.args == ["ArrayOfMessageArgs"] {
        // Supermicro X10 writes this in place of arguments.
        found.args.clear();
    }
    if oem(entry, &["Supermicro"]).is_some() || found.component.is_none() {
        let named = found.text.rsplit_once('@').map(|(_, part)| part.trim());
        let part = named.filter(|part| !part.is_empty() && part.len() <= 40 && !part.contains('.'));
        if let Some(part) = part {
            found.component = Some(part.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}

/// The module of HPE's `(Processor 2, DIMM 4)`, as its place is called (Memory, `DeviceLocator`).
fn module(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("(Processor ")?;
    let (processor, rest) = rest.split_once(", DIMM ")?;
    let (module, _) = rest.split_once(')')?;
    let is_number = |text: &str| (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(processor) && is_number(module)).then(|| format!("PROC {processor} DIMM {module}"))
}

/// Whether an entry is about who has used the BMC, by the vendor's categories. Dell's is known elsewhere.
pub(super) fn tells_of_users(entry: &Value) -> bool {
    let Some(hpe) = oem(entry, &["Hpe", "Hp"]) else { return false };
    let categories = hpe.get("Categories").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    categories.iter().filter_map(Value::as_str).any(|word| matches!(word, "Administration" | "Security"))
}

fn oem<'a>(entry: &'a Value, names: &[&str]) -> Option<&'a Value> {
    let oem = entry.get("Oem")?;
    names.iter().find_map(|name| oem.get(name)).filter(|vendor| vendor.is_object())
}
