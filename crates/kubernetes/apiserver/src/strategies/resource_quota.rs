//! ResourceQuotas. What of them is enforced is in [`crate::quota`].

use core_kinds::quantity;
use serde_json::{Value, json};

use crate::checks::{all_invalid, member, unchanged};
use crate::object::Object;
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    short_names: &["quota"],
    status: true,
    strategy: &ResourceQuota,
    ..Kind::NEW
};

/// Names without a domain that a quota may have and whose amounts need not be whole.
const AMOUNTS: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Those whose amounts are numbers of objects.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];

/// The rules of ResourceQuotas.
#[derive(Debug)]
struct ResourceQuota;

impl Strategy for ResourceQuota {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, writing.sub, &mut found.errors);
    }

    fn parts_take_metadata(&self) -> bool {
        true
    }
}

fn amounts(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names: Vec<(&String, &Value)> = list.as_object().into_iter().flatten().collect();
    names.sort_by_key(|(name, _)| *name);
    for (name, amount) in names {
        let field = format!("{path}[{name}]");
        let wrong = names::qualified_name(name);
        let well_formed = wrong.is_empty();
        all_invalid(&field, &json!(name), wrong, errors);
        if !name.contains('/')
            && !AMOUNTS.iter().chain(&WHOLE).any(|known| known == name)
            && !name.starts_with("hugepages-")
        {
            let general = well_formed.then_some("must be a standard resource type or fully qualified");
            for detail in general.into_iter().chain(["must be a standard resource for quota"]) {
                errors.push(FieldError::invalid(&field, &json!(name), detail));
            }
        }
        let nanos = amount.as_str().and_then(quantity::nanos).unwrap_or_default();
        if nanos < 0 {
            errors.push(FieldError::invalid(&field, amount, "must be greater than or equal to 0"));
        }
        if WHOLE.contains(&name.as_str()) && nanos % 1_000_000_000 != 0 {
            errors.push(FieldError::invalid(&field, amount, "must be an integer"));
        }
    }
}

/// Checks a ResourceQuota as `sub` writes it.
fn validate(object: &Object, old: Option<&Object>, sub: &str, errors: &mut Vec<FieldError>) {
    if sub == "status" {
        let status = member(object, "status");
        for part in ["hard", "used"] {
            amounts(status.get(part).unwrap_or(&Value::Null), &format!("status.{part}"), errors);
        }
        return;
    }
    let spec = member(object, "spec");
    amounts(spec.get("hard").unwrap_or(&Value::Null), "spec.hard", errors);
    if let Some(old) = old {
        let scopes = |object: &Object| member(object, "spec").get("scopes").cloned().unwrap_or_default();
        unchanged("spec.scopes", &scopes(object), &scopes(old), errors);
    }
}
