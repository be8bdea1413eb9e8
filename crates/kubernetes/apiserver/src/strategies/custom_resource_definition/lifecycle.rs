//! A definition's own defaults, stored versions and conditions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::definition;
use crate::crd::names;
use crate::object::{Object, child, strings};

/// Finalizer that keeps a definition until its objects are deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in names and conversion.
pub fn defaults(crd: &mut Object) {
    let Some(Value::Object(spec)) = crd.get_mut("spec") else { return };
    complete_names(child(spec, "names"));
    if spec.get("conversion").is_none() {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.shift_remove("preserveUnknownFields");
    }
}

fn complete_names(names: &mut Object) {
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (key, made) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() && !kind.is_empty() {
            names.insert(key.to_owned(), json!(made));
        }
    }
}

/// The status of a new definition: nothing is accepted yet.
pub fn first_status(crd: &mut Object) {
    crd.insert("status".into(), json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}}));
    remember_storage(crd);
}

/// Adds the storage version to the stored ones.
pub fn remember_storage(crd: &mut Object) {
    let storage = crd
        .get("spec")
        .and_then(|s| s.get("versions"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .and_then(|v| v.get("name"))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let status = child(crd, "status");
    let mut stored = strings(status.get("storedVersions"));
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
    }
    status.insert("storedVersions".into(), if stored.is_empty() { Value::Null } else { json!(stored) });
}

/// Names used by other definitions of a group.
#[derive(Default)]
pub struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    /// Adds the accepted names of a definition.
    pub fn add(&mut self, crd: &Object) {
        let Some(accepted) = crd.get("status").and_then(|s| s.get("acceptedNames")) else { return };
        let text = |key: &str| accepted.get(key).and_then(Value::as_str).map(str::to_owned);
        self.resources.extend(text("plural"));
        self.resources.extend(text("singular"));
        self.resources.extend(strings(accepted.get("shortNames")));
        self.kinds.extend(text("kind"));
        self.kinds.extend(text("listKind"));
    }
}

/// Sets the accepted names and the conditions of a definition.
pub fn establish(crd: &mut Object, taken: &Taken, now: &str) {
    let wanted = crd.get("spec").and_then(|s| s.get("names")).cloned().unwrap_or_default();
    if definition::protected(&names(crd).0) {
        let (status, reason, message) = definition::approval_state(crd);
        let conditions = child(crd, "status");
        set_condition(conditions, "KubernetesAPIApprovalPolicyConformant", status == "True", reason, &message, now);
    }
    let status = child(crd, "status");
    if status.get("acceptedNames") == Some(&wanted) {
        return;
    }
    let conflict = accept(child(status, "acceptedNames"), &wanted, taken);
    let text = |at: usize| {
        conflict.as_ref().map_or(["NoConflicts", "no conflicts found"][at], |c| if at == 0 { c.0 } else { &c.1 })
    };
    set_condition(status, "NamesAccepted", conflict.is_none(), text(0), text(1), now);
    if crate::crd::established_status(status) {
        return;
    }
    if conflict.is_none() {
        set_condition(status, "Established", true, "InitialNamesAccepted", "the initial names have been accepted", now);
    } else {
        set_condition(status, "Established", false, "NotAccepted", "not all names are accepted", now);
    }
}

/// Accepts the wanted names that are free. The condition reports the last conflict.
fn accept(accepted: &mut Object, wanted: &Value, taken: &Taken) -> Option<(&'static str, String)> {
    let mut conflict = None;
    let in_use = |name: &str| format!("{} is already in use", gotext::quote(name));
    let mut one = |accepted: &mut Object, key: &str, reason: &'static str, used: &BTreeSet<String>| {
        let asked = wanted.get(key).and_then(Value::as_str).unwrap_or_default();
        let accepted_name = accepted.get(key).and_then(Value::as_str).unwrap_or_default();
        if asked != accepted_name && used.contains(asked) {
            conflict = Some((reason, in_use(asked)));
        } else if asked.is_empty() {
            accepted.shift_remove(key);
        } else {
            accepted.insert(key.to_owned(), json!(asked));
        }
    };
    one(accepted, "plural", "PluralConflict", &taken.resources);
    one(accepted, "singular", "SingularConflict", &taken.resources);
    let (asked, accepted_names) = (strings(wanted.get("shortNames")), strings(accepted.get("shortNames")));
    let used: Vec<String> = asked
        .iter()
        .filter(|n| !accepted_names.contains(n) && taken.resources.contains(*n))
        .map(|n| in_use(n))
        .collect();
    let short = match used.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    };
    let mut late = None;
    match short {
        Some(text) => late = Some(("ShortNamesConflict", text)),
        None => set_list(accepted, "shortNames", &asked),
    }
    one(accepted, "kind", "KindConflict", &taken.kinds);
    one(accepted, "listKind", "ListKindConflict", &taken.kinds);
    set_list(accepted, "categories", &strings(wanted.get("categories")));
    match conflict {
        Some(found @ ("KindConflict" | "ListKindConflict", _)) => Some(found),
        other => late.or(other),
    }
}

fn set_list(object: &mut Object, key: &str, list: &[String]) {
    if list.is_empty() {
        object.shift_remove(key);
    } else {
        object.insert(key.to_owned(), json!(list));
    }
}

/// Sets one condition; the time moves only when the status does.
pub fn set_condition(status: &mut Object, ty: &str, good: bool, reason: &str, message: &str, now: &str) {
    let wanted = if good { "True" } else { "False" };
    if !status.get("conditions").is_some_and(Value::is_array) {
        status.insert("conditions".into(), json!([]));
    }
    let Some(Value::Array(list)) = status.get_mut("conditions") else { return };
    let found = list.iter().position(|c| c.get("type").and_then(Value::as_str) == Some(ty));
    let time = match found {
        Some(at) if list[at].get("status").and_then(Value::as_str) == Some(wanted) => {
            list[at].get("lastTransitionTime").cloned().unwrap_or_else(|| json!(now))
        }
        _ => json!(now),
    };
    let condition =
        json!({"type": ty, "status": wanted, "lastTransitionTime": time, "reason": reason, "message": message});
    match found {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}
