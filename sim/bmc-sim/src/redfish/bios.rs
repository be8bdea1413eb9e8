//! The firmware's settings: attributes in force, and those that the next restart brings, which are all that the settings resource shows.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{
    actions::{unknown, wrong_value},
    answer::Answer,
    recorded::served,
};
use crate::bmc::Bmc;

/// The attributes by the registry that is served.
static REGISTRY: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let text = served("/redfish/v1/Registries/BiosAttributeRegistry.1.0.0/Registry").unwrap_or_default();
    let registry: Value = serde_json::from_str(text).unwrap_or_default();
    registry["RegistryEntries"]["Attributes"].as_array().cloned().unwrap_or_default()
});

/// Lays this machine's values over the recorded ones.
pub fn lay(bmc: &Bmc, body: &mut Value) {
    let state = bmc.system();
    body["Attributes"]["SerialNumber"] = json!(bmc.config.system_serial());
    for (name, value) in state.bios {
        // A password is never shown.
        body["Attributes"][&name] = if is_password(&name) { Value::Null } else { value };
    }
    if let Some((time, dropped)) = state.bios_applied {
        let settings = &mut body["@Redfish.Settings"];
        settings["Time"] = json!(time.to_string());
        settings["Messages"] = if dropped.is_empty() {
            json!([{ "MessageId": "Base.1.18.Success", "Message": "The settings were applied.", "MessageSeverity": "OK" }])
        } else {
            let related: Vec<String> = dropped.iter().map(|name| format!("#/Attributes/{name}")).collect();
            json!([{ "MessageId": "Base.1.18.PropertyValueError", "Message": "The firmware did not take the settings.",
                "MessageSeverity": "Warning", "RelatedProperties": related }])
        };
    }
}

fn entry(name: &str) -> Option<&'static Value> {
    REGISTRY.iter().find(|entry| entry["AttributeName"] == name)
}

fn is_password(name: &str) -> bool {
    entry(name).is_some_and(|entry| entry["Type"] == "Password")
}

/// Takes a change for the next restart, whole or not at all.
///
/// # Errors
/// The refusal, which names the attribute.
pub fn patch(bmc: &Bmc, patch: &Map<String, Value>) -> Result<(), Answer> {
    let mut wanted = Map::new();
    for (name, value) in patch {
        match (name.as_str(), value) {
            ("Attributes", Value::Object(attributes)) => wanted.clone_from(attributes),
            ("@Redfish.SettingsApplyTime", time) if time["ApplyTime"] == "OnReset" => {}
            ("@Redfish.SettingsApplyTime" | "Attributes", value) => return Err(wrong_value(name, value)),
            (other, _) => return Err(unknown(other)),
        }
    }
    for (name, value) in &wanted {
        check(name, value)?;
    }
    bmc.change_system(|system| system.bios_pending.extend(wanted));
    Ok(())
}

fn check(name: &str, value: &Value) -> Result<(), Answer> {
    let Some(entry) = entry(name) else { return Err(unknown(name)) };
    if entry["ReadOnly"] == true {
        let message = format!("The property {name} cannot be changed.");
        return Err(Answer::error(400, "PropertyNotWritable", message, &[name]));
    }
    let bound = |field: &str, or: i64| entry[field].as_i64().unwrap_or(or);
    let is_valid = match entry["Type"].as_str().unwrap_or_default() {
        "Enumeration" => entry["Value"].as_array().is_some_and(|all| all.iter().any(|one| one["ValueName"] == *value)),
        "Integer" => value
            .as_i64()
            .is_some_and(|number| (bound("LowerBound", i64::MIN)..=bound("UpperBound", i64::MAX)).contains(&number)),
        "Boolean" => value.is_boolean(),
        _ => value.as_str().is_some_and(|text| {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            (bound("MinLength", 0)..=bound("MaxLength", i64::MAX)).contains(&length)
        }),
    };
    if is_valid { Ok(()) } else { Err(wrong_value(name, value)) }
}
