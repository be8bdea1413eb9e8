//! PriorityClasses: stored for those who run pods; nothing here does.

use serde_json::json;

use crate::checks::{member, unchanged};
use crate::object::{Object, name};
use crate::status::FieldError;
use crate::strategy::{Findings, Generation, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    short_names: &["pc"],
    namespaced: false,
    strategy: &PriorityClass,
    ..Kind::NEW
};

/// The highest priority that is not the system's.
const MAX_PRIORITY: i64 = 1_000_000_000;

/// The system's own classes: name, priority, description.
pub const SYSTEM: [(&str, i64, &str); 2] = [
    ("system-node-critical", 2_000_001_000, "For pods that their node cannot do without, not even elsewhere."),
    ("system-cluster-critical", 2_000_000_000, "For pods that the cluster cannot do without, wherever they run."),
];

/// The rules of PriorityClasses.
#[derive(Debug)]
struct PriorityClass;

impl Strategy for PriorityClass {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn generation(&self) -> Generation {
        // Upstream gives them one and never counts on.
        Generation::First
    }
}

/// Fills in what a PriorityClass leaves open.
fn defaults(object: &mut Object) {
    if member(object, "preemptionPolicy").is_null() {
        object.insert("preemptionPolicy".into(), json!("PreemptLowerPriority"));
    }
}

/// Checks a PriorityClass.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let value = |object: &Object| member(object, "value").as_i64().unwrap_or_default();
    if let Some(old) = old {
        if value(object) != value(old) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        let policy = |object: &Object| member(object, "preemptionPolicy").clone();
        unchanged("preemptionPolicy", &policy(object), &policy(old), errors);
        return;
    }
    let name = name(object);
    if name.starts_with("system-") {
        let global = member(object, "globalDefault") == &json!(true);
        let why = match SYSTEM.iter().find(|(known, ..)| *known == name) {
            None => format!("{name} is not a known system priority class"),
            Some((_, wanted, _)) if *wanted != value(object) => {
                format!("value of {name} PriorityClass must be {wanted}")
            }
            Some(_) if global => format!("globalDefault of {name} PriorityClass must be false"),
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let detail =
                format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if value(object) > MAX_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        errors.push(FieldError::forbidden("value", detail));
    }
    let policy = member(object, "preemptionPolicy");
    match policy.as_str() {
        None | Some("Never" | "PreemptLowerPriority") => {}
        Some("") => errors.push(FieldError::required("preemptionPolicy", "")),
        Some(_) => {
            let known = ["PreemptLowerPriority", "Never"];
            errors.push(FieldError::not_supported("preemptionPolicy", policy, &known));
        }
    }
}
