//! Nodes, as plain data.

use std::collections::HashSet;

use core_kinds::quantity;
use serde_json::{Value, json};

use crate::checks::{all_invalid, formats, list, member, text};
use crate::object::{Object, child};
use crate::resource::Resource;
use crate::status::{FieldError, FieldErrorKind};
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    short_names: &["no"],
    namespaced: false,
    status: true,
    strategy: &Node,
    ..Kind::NEW
};

/// The rules of Nodes.
#[derive(Debug)]
struct Node;

impl Strategy for Node {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn prepare_create(&self, object: &mut Object) {
        prepare_create(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn warnings(&self, _: &Writing<'_>, object: &Object) -> Vec<String> {
        warnings(object)
    }

    fn keeps_first_status(&self) -> bool {
        true
    }

    fn parts_take_metadata(&self) -> bool {
        true
    }

    fn registry_folder(&self, _: &Resource) -> String {
        "minions".to_owned()
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("spec.unschedulable", "")]
    }

    fn if_absent(&self, label: &str, _: &Object) -> String {
        if label == "spec.unschedulable" { "false".to_owned() } else { String::new() }
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}

/// Allocatable resources default to the capacity.
fn defaults(object: &mut Object) {
    let status = child(object, "status");
    if status.get("allocatable").is_none_or(Value::is_null)
        && let Some(capacity) = status.get("capacity").filter(|c| c.is_object()).cloned()
    {
        status.insert("allocatable".into(), capacity);
    }
    sync_pod_cidrs(object);
}

/// Taints a new node as not ready (upstream's admission plug-in TaintNodesByCondition).
fn prepare_create(object: &mut Object) {
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let spec = child(object, "spec");
    spec.shift_remove("configSource");
    if !spec.get("taints").is_some_and(Value::is_array) {
        spec.insert("taints".into(), json!([]));
    }
    if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut)
        && !taints.iter().any(|t| text(t, "key") == NOT_READY && text(t, "effect") == "NoSchedule")
    {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// Keeps `podCIDR` equal to the first of `podCIDRs`.
fn sync_pod_cidrs(object: &mut Object) {
    let spec = child(object, "spec");
    let one = spec.get("podCIDR").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = spec.get("podCIDRs").and_then(|c| c.get(0)).and_then(Value::as_str).unwrap_or_default().to_owned();
    if !one.is_empty() && first != one {
        spec.insert("podCIDRs".into(), json!([one]));
    } else if one.is_empty() && !first.is_empty() {
        spec.insert("podCIDR".into(), json!(first));
    }
}

/// Validates a Node. Upstream validates an update by the rules of creation first, then by those of updates.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    let spec = member(object, "spec");
    taints(list(spec, "taints"), errors);
    resources(object, errors);
    let cidrs = list(spec, "podCIDRs");
    for (at, cidr) in cidrs.iter().enumerate() {
        formats::legacy_cidr(&format!("spec.podCIDRs[{at}]"), cidr.as_str().unwrap_or_default(), errors);
    }
    if cidrs.len() > 1 && !(cidrs.len() == 2 && dual(cidrs)) {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.push(FieldError::invalid("spec.podCIDRs", &json!(cidrs), detail));
    }
    let Some(old) = old else { return };
    resources(object, errors);
    let addresses = list(member(object, "status"), "addresses");
    let mut seen = HashSet::new();
    for (at, address) in addresses.iter().enumerate() {
        if !seen.insert(address) {
            errors.push(FieldError::duplicate(format!("status.addresses[{at}]"), address));
        }
    }
    let before = member(old, "spec");
    let old_cidrs = list(before, "podCIDRs");
    let fixed = |key: &str, name: &str| {
        let detail = format!("node updates may not change {name} except from \"\" to valid");
        FieldError::forbidden(format!("spec.{key}"), detail)
    };
    if !old_cidrs.is_empty() {
        let changed = if old_cidrs.len() == cidrs.len() {
            old_cidrs.iter().zip(cidrs).filter(|(a, b)| a != b).count()
        } else {
            1
        };
        errors.extend((0..changed).map(|_| fixed("podCIDRs", "podCIDR")));
    }
    let provider = text(before, "providerID");
    if !provider.is_empty() && provider != text(spec, "providerID") {
        errors.push(fixed("providerID", "providerID"));
    }
    taints(list(spec, "taints"), errors);
    if text(spec, "externalID") != text(before, "externalID") {
        errors.push(FieldError::forbidden("spec.externalID", "may not be updated"));
    }
}

fn dual(cidrs: &[Value]) -> bool {
    let four = |v: &Value| v.as_str().and_then(formats::cidr).map(|(ip, _)| ip.is_ipv4());
    let families: Vec<Option<bool>> = cidrs.iter().map(four).collect();
    families.contains(&Some(true)) && families.contains(&Some(false))
}

fn resources(object: &Object, errors: &mut Vec<FieldError>) {
    let status = member(object, "status");
    for part in ["capacity", "allocatable"] {
        for (name, amount) in status.get(part).and_then(Value::as_object).into_iter().flatten() {
            let nanos = amount.as_str().and_then(quantity::nanos).unwrap_or_default();
            let field = format!("status.{part}.{name}");
            if nanos < 0 {
                errors.push(FieldError::invalid(&field, amount, "must be greater than or equal to 0"));
            }
            let whole = matches!(name.as_str(), "pods" | "services" | "secrets" | "configmaps") || name.contains('/');
            if whole && nanos % 1_000_000_000 != 0 {
                errors.push(FieldError::invalid(&field, amount, "must be an integer"));
            }
        }
    }
}

fn taints(taints: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (at, taint) in taints.iter().enumerate() {
        let field = format!("metadata.taints[{at}]");
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        all_invalid(&format!("{field}.key"), &json!(key), names::qualified_name(key), errors);
        let bad = names::label_value(value);
        if !bad.is_empty() {
            errors.push(FieldError::invalid(format!("{field}.value"), &json!(value), bad.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(format!("{field}.effect"), ""));
        } else if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.push(FieldError::not_supported(format!("{field}.effect"), &json!(effect), &known));
        }
        if !seen.insert((key, effect)) {
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::of_struct(FieldErrorKind::Duplicate, field, &go_taint(taint), detail));
        }
    }
}

/// The taint as upstream's internal type prints it.
fn go_taint(taint: &Value) -> Value {
    json!({"Key": text(taint, "key"), "Value": text(taint, "value"), "Effect": text(taint, "effect"),
        "TimeAdded": taint.get("timeAdded")})
}

/// Warnings for the client of a Node.
fn warnings(object: &Object) -> Vec<String> {
    let spec = member(object, "spec");
    let mut out = Vec::new();
    if spec.get("configSource").is_some_and(|c| !c.is_null()) {
        out.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(spec, "externalID").is_empty() {
        out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    out
}
