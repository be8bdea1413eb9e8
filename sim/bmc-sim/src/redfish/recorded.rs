//! The resources in `data/`: recorded ones, adapted for a service, and the simulator's own.
//!
//! The recorded tree is a slice: it links to resources that are not in it. A service must not link to missing resources (DSP0266, "Links"), so such
//! links are removed, and so are the copyright notes, which only mockups may carry.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde_json::{Map, Value, json};

include!(concat!(env!("OUT_DIR"), "/recorded.rs"));

/// The system's id in the recorded tree, which each machine replaces by its own.
pub const RECORDED_ID: &str = "437XR1138R2";

/// Type of the session service's resource.
pub const SESSION_SERVICE_TYPE: &str = "#SessionService.v1_1_9.SessionService";
/// Type of the task service's resource.
pub const TASK_SERVICE_TYPE: &str = "#TaskService.v1_2_1.TaskService";
/// Type of the files in the collection of schemas.
pub const SCHEMA_FILE_TYPE: &str = "#JsonSchemaFile.v1_1_5.JsonSchemaFile";

/// Paths that are served from the machine's state, not from a table.
const LIVE: [&str; 7] = [
    "/redfish/v1/EventService/Subscriptions",
    "/redfish/v1/JsonSchemas",
    "/redfish/v1/SessionService",
    "/redfish/v1/SessionService/Sessions",
    "/redfish/v1/TaskService",
    "/redfish/v1/TaskService/Tasks",
    "/redfish",
];

/// Types of resources that are not in a table.
const LIVE_TYPES: [&str; 10] = [
    super::sessions::SESSION_TYPE,
    SESSION_SERVICE_TYPE,
    "#SessionCollection.SessionCollection",
    super::tasks::TASK_TYPE,
    TASK_SERVICE_TYPE,
    "#TaskCollection.TaskCollection",
    super::events::DESTINATION_TYPE,
    "#EventDestinationCollection.EventDestinationCollection",
    SCHEMA_FILE_TYPE,
    "#JsonSchemaFileCollection.JsonSchemaFileCollection",
];

/// The resources by path, as JSON text with the recorded system's id.
static SERVED: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let all = || RECORDED.iter().chain(SERVICES);
    let known: BTreeSet<&str> = all().map(|(path, _)| *path).chain(LIVE).collect();
    let prepared = all().filter_map(|(path, text)| {
        let mut body = serde_json::from_str(text).ok()?;
        prune(&mut body, &known, 0);
        Some((*path, body.to_string()))
    });
    prepared.collect()
});

/// Schemas of all resources, as `ComputerSystem.v1_22_0`, or `ChassisCollection` where they have no versions, with their types.
pub static SCHEMAS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let types = SERVED.values().filter_map(|text| {
        let body: Value = serde_json::from_str(text).ok()?;
        body["@odata.type"].as_str().map(str::to_owned)
    });
    let named = types
        .chain(LIVE_TYPES.map(str::to_owned))
        .chain(super::part_types::TYPES.map(str::to_owned))
        .filter_map(|kind| {
            let (schema, name) = kind.strip_prefix('#')?.rsplit_once('.')?;
            let schema = if schema.contains('.') { schema } else { name };
            Some((schema.to_owned(), kind))
        });
    named.collect()
});

/// Paths of the recorded resources and their text as recorded, with the recorded system's id.
pub fn recorded_paths() -> impl Iterator<Item = (&'static str, &'static str)> {
    RECORDED.iter().copied()
}

/// The text of the resource at a path with the recorded system's id, ready to be served.
#[must_use]
pub fn served(path: &str) -> Option<&'static str> {
    SERVED.get(path).map(String::as_str)
}

/// Whether something is served at a link's target.
fn leads_somewhere(target: &str, known: &BTreeSet<&str>) -> bool {
    let path = target.split('#').next().unwrap_or_default().trim_end_matches('/');
    !target.starts_with("/redfish") || known.contains(path)
}

/// Whether a value is a link to a resource that is not served.
fn is_dangling(value: &Value, known: &BTreeSet<&str>) -> bool {
    let target = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("@odata.id"));
    target.and_then(Value::as_str).is_some_and(|target| !leads_somewhere(target, known))
}

/// Removes broken links and copyright notes. Recorded resources are not deep; below a bound nothing is changed.
fn prune(value: &mut Value, known: &BTreeSet<&str>, depth: usize) {
    match value {
        Value::Object(fields) if depth < 16 => prune_fields(fields, known, depth),
        Value::Array(items) if depth < 16 => items.iter_mut().for_each(|item| prune(item, known, depth + 1)),
        _ => {}
    }
}

fn prune_fields(fields: &mut Map<String, Value>, known: &BTreeSet<&str>, depth: usize) {
    fields.retain(|name, value| match (name.as_str(), &*value) {
        ("@Redfish.Copyright", _) => false,
        ("@Redfish.ActionInfo" | "DataSourceUri" | "TargetComponentURI" | "Uri", Value::String(target)) => {
            leads_somewhere(target, known)
        }
        (_, value) => !is_dangling(value, known),
    });
    let mut counts = Vec::new();
    for (name, value) in fields.iter_mut() {
        if let Value::Array(items) = value {
            let before = items.len();
            items.retain(|item| !is_dangling(item, known));
            if items.len() != before {
                counts.push((format!("{name}@odata.count"), items.len()));
            }
        }
        prune(value, known, depth + 1);
    }
    for (name, count) in counts {
        if let Some(value) = fields.get_mut(&name) {
            *value = json!(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_nothing_are_left_out() {
        let known = BTreeSet::from(["/redfish/v1/A"]);
        let mut body = json!({
            "@Redfish.Copyright": "somebody",
            "A": { "@odata.id": "/redfish/v1/A" },
            "B": { "@odata.id": "/redfish/v1/B" },
            "C": [{ "@odata.id": "/redfish/v1/A#/x" }, { "@odata.id": "/redfish/v1/C" }],
            "C@odata.count": 2,
            "D": { "DataSourceUri": "/redfish/v1/D", "Reading": 3 },
            "E": { "Uri": "http://elsewhere/e" },
        });
        prune(&mut body, &known, 0);
        let left = json!({
            "A": { "@odata.id": "/redfish/v1/A" },
            "C": [{ "@odata.id": "/redfish/v1/A#/x" }],
            "C@odata.count": 1,
            "D": { "Reading": 3 },
            "E": { "Uri": "http://elsewhere/e" },
        });
        assert_eq!(body, left);
    }

    #[test]
    fn schemas_are_named_by_type() {
        assert_eq!(SCHEMAS["Session.v1_7_1"], "#Session.v1_7_1.Session");
        assert_eq!(SCHEMAS["ChassisCollection"], "#ChassisCollection.ChassisCollection");
        assert!(SCHEMAS.len() > 40);
    }
}
