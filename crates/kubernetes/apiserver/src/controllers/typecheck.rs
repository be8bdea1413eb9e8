//! Type errors in a policy's expressions. They are reported in the status and block nothing
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/validating`, typechecking).

use std::collections::BTreeSet;

use cel::Env;
use cel::schema::decl::DeclType;
use core_kinds::{Def, Defs, Type as FieldType};
use serde_json::{Map, Value, json};

use crate::admission::expressions::{common, declare, with_variables};
use crate::checks::text;
use crate::object::{Object, strings};
use crate::resource::{Flavor, Resource};
use crate::status::ApiResult;
use crate::verbs::Backend;

/// Bounds the work: only the first `MAX_CHECKS / MAX_KINDS` validations are checked, each against every kind.
const MAX_CHECKS: usize = 20_000;
/// Bytes of all warnings about one policy: the status is stored with the policy.
const MAX_WARNINGS: usize = 1 << 20;
/// Kinds per rule: the search for kinds stops at a rule that reaches this number.
const MAX_KINDS: usize = 10;

/// Group, version and kind.
type Gvk = (String, String, String);

/// Type-checks a policy's expressions. Returns field paths with their errors.
pub async fn check(backend: &Backend, policy: &Object) -> ApiResult<Vec<(String, String)>> {
    let none = Value::Null;
    let spec = policy.get("spec").unwrap_or(&none);
    let params = match spec.get("paramKind") {
        Some(kind) => {
            let version = text(kind, "apiVersion");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            type_of(backend, &(group.to_owned(), version.to_owned(), text(kind, "kind").to_owned())).await?
        }
        None => None,
    };
    let mut kinds = Vec::new();
    for gvk in kinds_of(backend, spec) {
        if let Some(object) = type_of(backend, &gvk).await? {
            kinds.push((gvk, environment(spec, &object, params.as_ref())));
        }
    }
    let mut found = Vec::new();
    let mut left = MAX_WARNINGS;
    for (at, validation) in items(spec, "validations").enumerate().take(MAX_CHECKS / MAX_KINDS) {
        for key in ["expression", "messageExpression"] {
            let source = text(validation, key);
            if source.is_empty() && key == "messageExpression" {
                continue;
            }
            let messages: Vec<String> = kinds
                .iter()
                .filter_map(|((group, version, kind), env)| {
                    let wrong = env.compile(source).err()?;
                    Some(format!("{group}/{version}, Kind={kind}: {wrong}\n"))
                })
                .collect();
            if !messages.is_empty() {
                let message = messages.join("\n");
                let Some(less) = left.checked_sub(message.len()) else { return Ok(found) };
                left = less;
                found.push((format!("spec.validations[{at}].{key}"), message));
            }
        }
    }
    Ok(found)
}

/// The environment of expressions for objects of one type.
fn environment(spec: &Value, object: &DeclType, params: Option<&DeclType>) -> Env {
    let env = common().declared("object", object).declared("oldObject", object);
    let mut env = with_variables(env.variable("authorizer", cel::authorizer_type()));
    if let Some(params) = params {
        env = env.declared("params", params);
    }
    for variable in items(spec, "variables").take(MAX_CHECKS / MAX_KINDS) {
        let program = env.compile(text(variable, "expression"));
        declare(&mut env, text(variable, "name"), &program);
    }
    env
}

fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The kinds that a policy's rules name, in order. Rules with wildcards name none.
fn kinds_of(backend: &Backend, spec: &Value) -> BTreeSet<Gvk> {
    let catalog = backend.registry.catalog();
    let mut found = BTreeSet::new();
    let none = Value::Null;
    for rule in items(spec.get("matchConstraints").unwrap_or(&none), "resourceRules") {
        let sorted = |key: &str| {
            let mut list = strings(rule.get(key));
            list.sort();
            list
        };
        let (groups, versions) = (sorted("apiGroups"), sorted("apiVersions"));
        if groups.iter().chain(&versions).any(|t| t.contains('*')) {
            continue;
        }
        let mut count = 0;
        for (group, version) in groups.iter().flat_map(|g| versions.iter().map(move |v| (g, v))) {
            for plural in sorted("resources").iter().filter(|r| !r.contains(['*', '/'])) {
                let plural = plural.to_lowercase();
                // An empty group matches every group here, as upstream.
                let matching = catalog.all().filter(|r| {
                    (group.is_empty() || r.group == *group)
                        && r.version == *version
                        && (r.plural == plural || r.singular == plural)
                });
                for resource in matching {
                    found.insert((resource.group.clone(), resource.version.clone(), resource.kind.clone()));
                    count += 1;
                    if count == MAX_KINDS {
                        return found;
                    }
                }
            }
        }
    }
    found
}

/// The type of a kind's objects; `None` if the kind is not served or has no usable schema.
async fn type_of(backend: &Backend, (group, version, kind): &Gvk) -> ApiResult<Option<DeclType>> {
    let catalog = backend.registry.catalog();
    let served = catalog.all().find(|r| r.group == *group && r.version == *version && r.kind == *kind);
    let Some(served) = served else { return Ok(None) };
    let schema = match &served.flavor {
        Flavor::Builtin(def) => expanded(def, &mut vec![def.name]),
        Flavor::Custom { .. } => {
            let mut schema = schema_of(backend, served).await?.unwrap_or_else(|| json!({"type": "object"}));
            if let (Some(fields), Some(meta)) = (schema.as_object_mut(), Defs::get().object_meta()) {
                let properties = fields.entry("properties").or_insert_with(|| json!({}));
                properties["apiVersion"] = json!({"type": "string"});
                properties["kind"] = json!({"type": "string"});
                properties["metadata"] = expanded(meta, &mut vec![meta.name]);
            }
            schema
        }
    };
    Ok(DeclType::from_schema(&schema, true, kind))
}

/// The schema of a custom resource's version in its definition.
async fn schema_of(backend: &Backend, resource: &Resource) -> ApiResult<Option<Value>> {
    let catalog = backend.registry.catalog();
    let Some(definitions) = catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions") else {
        return Ok(None);
    };
    let key = definitions.key("", &format!("{}.{}", resource.plural, resource.group));
    let Some(stored) = backend.stored(&key).await? else { return Ok(None) };
    let definition = backend.load(definitions, &stored)?;
    let none = Value::Null;
    let mut versions = items(definition.get("spec").unwrap_or(&none), "versions");
    let version = versions.find(|v| text(v, "name") == resource.version);
    Ok(version.and_then(|v| v.pointer("/schema/openAPIV3Schema")).cloned())
}

/// Expands a definition to a schema without references; a recursive reference becomes an untyped object.
fn expanded(def: &Def, within: &mut Vec<&'static str>) -> Value {
    let mut properties = Map::new();
    for field in &def.fields {
        properties.insert(field.name.to_owned(), expanded_type(&field.ty, within));
    }
    json!({"type": "object", "properties": properties})
}

fn expanded_type(ty: &FieldType, within: &mut Vec<&'static str>) -> Value {
    match ty {
        FieldType::String | FieldType::Quantity => json!({"type": "string"}),
        FieldType::Bool => json!({"type": "boolean"}),
        FieldType::Int32 | FieldType::Int64 => json!({"type": "integer"}),
        FieldType::Double => json!({"type": "number"}),
        FieldType::Time | FieldType::MicroTime => json!({"type": "string", "format": "date-time"}),
        FieldType::Bytes => json!({"type": "string", "format": "byte"}),
        FieldType::IntOrString => json!({"x-kubernetes-int-or-string": true}),
        FieldType::Json => json!({}),
        FieldType::Map(of) => json!({"type": "object", "additionalProperties": expanded_type(of, within)}),
        FieldType::List(of) => json!({"type": "array", "items": expanded_type(of, within)}),
        FieldType::Ref(name) => match Defs::get().def(name) {
            Some(def) if !within.contains(name) => {
                within.push(name);
                let schema = expanded(def, within);
                within.pop();
                schema
            }
            _ => json!({"type": "object"}),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn warnings_of(rules: Value, spec: Value) -> Vec<(String, String)> {
        let (backend, _dir) = Backend::for_tests();
        let mut spec = spec;
        spec["matchConstraints"] = json!({ "resourceRules": rules });
        let Value::Object(policy) = json!({ "spec": spec }) else { return Vec::new() };
        check(&backend, &policy).await.unwrap()
    }

    #[tokio::test]
    async fn types_of_builtin_kinds_are_known() {
        let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "services/status"]}]);
        let spec = json!({"variables": [{"name": "data", "expression": "object.data"}], "validations": [
            {"expression": "object.data.all(k, object.data[k] != '') && variables.data.size() > 0"},
            {"expression": "object.data > 1", "messageExpression": "object.metadata.nme"},
        ]});
        let found = warnings_of(rules.clone(), spec).await;
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["spec.validations[1].expression", "spec.validations[1].messageExpression"]);
        assert!(
            found[0].1.starts_with("/v1, Kind=ConfigMap: ERROR: <input>:1:13: found no matching overload for '_>_'")
        );
        assert!(found[1].1.contains("undefined field 'nme'"), "{found:?}");
        let wild = json!([{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
        assert!(warnings_of(wild, json!({"validations": [{"expression": "object.x > '1'"}]})).await.is_empty());
        let params = json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"},
            "validations": [{"expression": "params.type == 1"}]});
        assert!(warnings_of(rules, params).await[0].1.contains("(string, int)"));
    }
}
