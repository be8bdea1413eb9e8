//! Definitions of kinds as OpenAPI schemas. References are written for v2 or v3 by a function given.

use serde_json::{Map, Value, json};

use super::Custom;
use crate::builtin::{Def, Defs, Field, ListKind, Type};
use crate::resource::{Catalog, Flavor, Resource};

/// Makes a reference to a definition of this name, with a text.
pub type Refer = fn(&str, &str) -> Value;

pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object.";
const KIND: &str = "Kind is a string value representing the REST resource this object represents.";

/// Name of a resource's definition.
pub fn name_of(resource: &Resource) -> String {
    match &resource.flavor {
        Flavor::Builtin(def) => def.name.to_owned(),
        Flavor::Custom { .. } => {
            let mut parts: Vec<&str> = resource.group.split('.').collect();
            parts.reverse();
            format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
        }
    }
}

/// All definitions that the resources which `wanted` names need.
pub fn definitions(
    catalog: &Catalog,
    mut custom: Custom,
    refer: Refer,
    wanted: impl Fn(&Resource) -> bool,
    adapt: fn(&mut Value),
) -> Map<String, Value> {
    let mut out = Map::new();
    for def in Defs::get().all() {
        out.insert(def.name.to_owned(), own(def, refer));
    }
    for resource in catalog.all().filter(|r| wanted(r)) {
        let name = name_of(resource);
        if matches!(resource.flavor, Flavor::Custom { .. }) {
            let key = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
            let mut schema = custom.remove(&key).unwrap_or_else(|| json!({"type": "object"}));
            adapt(&mut schema);
            complete(&mut schema, resource, refer);
            out.insert(name.clone(), schema);
        }
        out.insert(format!("{name}List"), list(resource, &name, refer));
    }
    out
}

fn gvk(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "version": resource.version, "kind": kind}])
}

/// Adds what every object has to a custom resource's schema.
fn complete(schema: &mut Value, resource: &Resource, refer: Refer) {
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
    schema["properties"]["metadata"] = refer(OBJECT_META, "Standard object's metadata.");
    schema["x-kubernetes-group-version-kind"] = gvk(resource, &resource.kind);
}

fn list(resource: &Resource, name: &str, refer: Refer) -> Value {
    let kind = &resource.list_kind;
    json!({"type": "object", "description": format!("{kind} is a list of {}", resource.kind), "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": refer(LIST_META, "Standard list metadata."),
            "items": {"type": "array", "description": format!("List of {}.", resource.plural), "items": refer(name, "")}},
        "x-kubernetes-group-version-kind": gvk(resource, kind)})
}

fn own(def: &Def, refer: Refer) -> Value {
    let properties: Map<String, Value> = def.fields.iter().map(|f| (f.name.to_owned(), field(f, refer))).collect();
    let mut out = json!({"type": "object", "description": def.doc, "properties": properties});
    let required: Vec<&str> = def.fields.iter().filter(|f| f.required).map(|f| f.name).collect();
    if !required.is_empty() {
        out["required"] = json!(required);
    }
    if def.atomic {
        out["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some((group, version, kind)) = def.gvk {
        out["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": kind}]);
    }
    out
}

fn field(field: &Field, refer: Refer) -> Value {
    let mut out = ty(&field.ty, refer, field.doc);
    if let Type::Ref(_) = field.ty {
        return out;
    }
    out["description"] = json!(field.doc);
    if let Some(key) = field.merge_key {
        out["x-kubernetes-patch-strategy"] = json!("merge");
        if !key.is_empty() {
            out["x-kubernetes-patch-merge-key"] = json!(key);
        }
    }
    match field.list {
        ListKind::Plain => {}
        ListKind::Atomic if matches!(field.ty, Type::List(_)) => out["x-kubernetes-list-type"] = json!("atomic"),
        ListKind::Atomic => out["x-kubernetes-map-type"] = json!("atomic"),
        ListKind::Set => out["x-kubernetes-list-type"] = json!("set"),
        ListKind::Map(key) => {
            out["x-kubernetes-list-type"] = json!("map");
            out["x-kubernetes-list-map-keys"] = json!(key.split(',').collect::<Vec<_>>());
        }
    }
    out
}

fn ty(ty_: &Type, refer: Refer, doc: &str) -> Value {
    match ty_ {
        Type::String => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Double => json!({"type": "number", "format": "double"}),
        Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Quantity => json!({"type": "string"}),
        Type::IntOrString => json!({"type": "string", "format": "int-or-string"}),
        Type::Json => json!({}),
        Type::Map(inner) => json!({"type": "object", "additionalProperties": ty(inner, refer, "")}),
        Type::List(inner) => json!({"type": "array", "items": ty(inner, refer, "")}),
        Type::Ref(name) => refer(name, doc),
    }
}
