//! Definitions as OpenAPI 3.0 schemas: built-in kinds from their table, custom ones from stored definitions.
//! [`super::v2`] adapts them to 2.0.

use std::collections::BTreeSet;

use core_kinds::{Def, Defs, Field, ListKind, Type};
use serde_json::{Map, Value, json};

use super::common::Custom;
use super::custom;
use crate::resource::{Catalog, Flavor, Resource};

/// Prefix of every reference.
pub const PREFIX: &str = "#/components/schemas/";

/// Object metadata.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";

/// Description of every `apiVersion`.
pub const API_VERSION: &str = "APIVersion defines the form that this object is in: its group and version.";
/// Description of every `kind`.
pub const KIND: &str = "Kind of this representation.";
/// Description of every object's `metadata`.
pub const METADATA: &str = "Standard object's metadata.";

/// Groups and versions in which kube-apiserver accepts DeleteOptions and watch events.
const COMMON: &str = "v1 admission.k8s.io/v1 admission.k8s.io/v1beta1 admissionregistration.k8s.io/v1 \
    admissionregistration.k8s.io/v1alpha1 admissionregistration.k8s.io/v1beta1 apiextensions.k8s.io/v1 \
    apiextensions.k8s.io/v1beta1 apiregistration.k8s.io/v1 apiregistration.k8s.io/v1beta1 apps/v1 apps/v1beta1 \
    apps/v1beta2 authentication.k8s.io/v1 authentication.k8s.io/v1alpha1 authentication.k8s.io/v1beta1 \
    authorization.k8s.io/v1 authorization.k8s.io/v1beta1 autoscaling/v1 autoscaling/v2 autoscaling/v2beta1 \
    autoscaling/v2beta2 batch/v1 batch/v1beta1 certificates.k8s.io/v1 certificates.k8s.io/v1alpha1 \
    certificates.k8s.io/v1beta1 coordination.k8s.io/v1 coordination.k8s.io/v1alpha2 coordination.k8s.io/v1beta1 \
    discovery.k8s.io/v1 discovery.k8s.io/v1beta1 events.k8s.io/v1 events.k8s.io/v1beta1 extensions/v1beta1 \
    flowcontrol.apiserver.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1beta1 flowcontrol.apiserver.k8s.io/v1beta2 \
    flowcontrol.apiserver.k8s.io/v1beta3 imagepolicy.k8s.io/v1alpha1 internal.apiserver.k8s.io/v1alpha1 \
    networking.k8s.io/v1 networking.k8s.io/v1beta1 node.k8s.io/v1 node.k8s.io/v1alpha1 node.k8s.io/v1beta1 policy/v1 \
    policy/v1beta1 rbac.authorization.k8s.io/v1 rbac.authorization.k8s.io/v1alpha1 rbac.authorization.k8s.io/v1beta1 \
    resource.k8s.io/v1 resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1 resource.k8s.io/v1beta2 scheduling.k8s.io/v1 \
    scheduling.k8s.io/v1alpha1 scheduling.k8s.io/v1beta1 storage.k8s.io/v1 storage.k8s.io/v1alpha1 \
    storage.k8s.io/v1beta1 storagemigration.k8s.io/v1alpha1";

/// Groups among them that documents of custom resources leave out.
const NOT_OF_CUSTOM: [&str; 4] =
    ["admission.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "imagepolicy.k8s.io"];

/// Name of a resource's definition.
pub fn name_of(resource: &Resource) -> String {
    match &resource.flavor {
        Flavor::Builtin(def) => def.name.to_owned(),
        Flavor::Custom { .. } => custom_name(resource, &resource.kind),
    }
}

/// Name of the definition of a resource's list.
pub fn list_name_of(resource: &Resource) -> String {
    match &resource.flavor {
        Flavor::Builtin(def) => format!("{}List", def.name),
        Flavor::Custom { .. } => custom_name(resource, &resource.list_kind),
    }
}

/// A name such as `io.example.v1.Thing`.
fn custom_name(resource: &Resource, kind: &str) -> String {
    let group: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{kind}", group.join("."), resource.version)
}

/// The documents that definitions are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Version 2.0, all resources.
    Everything,
    /// Version 3.0, built-in kinds.
    Builtin,
    /// Version 3.0, custom resources.
    Custom,
}

/// All built-in definitions, and those of the resources that `wanted` selects.
pub fn definitions(
    catalog: &Catalog,
    custom: &Custom,
    of: Of,
    wanted: impl Fn(&Resource) -> bool,
) -> Map<String, Value> {
    let mut out = primitives();
    for def in Defs::get().all() {
        out.insert(def.name.to_owned(), definition(def, of));
    }
    for resource in catalog.all().filter(|r| wanted(r)) {
        let name = name_of(resource);
        let list = match resource.flavor {
            Flavor::Builtin(_) => builtin_list(resource, &name),
            Flavor::Custom { .. } => {
                let key = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
                let (schema, list) = custom::schemas(resource, custom.get(&key), of == Of::Everything);
                out.insert(name, schema);
                list
            }
        };
        out.insert(list_name_of(resource), list);
    }
    out
}

/// The extension value for group, version and kind.
pub fn gvk(resource: &Resource, kind: &str) -> Value {
    json!([{"group": resource.group, "version": resource.version, "kind": kind}])
}

/// Definitions with a special JSON form.
fn primitives() -> Map<String, Value> {
    let schema = "Stands for any value.";
    let extensions = |name: &str| format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{name}");
    let mut out = Map::new();
    let mut add = |name: &str, value: Value| out.insert(name.to_owned(), value);
    add(
        TIME,
        json!({"type": "string", "format": "date-time", "description": "A time in the form of RFC 3339, in seconds."}),
    );
    add(
        MICRO_TIME,
        json!({"type": "string", "format": "date-time", "description": "A time in the form of RFC 3339, in microseconds."}),
    );
    add(
        QUANTITY,
        json!({"oneOf": [{"type": "string"}, {"type": "number"}], "description":
            "An amount: a number with or without a suffix for its power, binary (Ki, Mi, Gi, Ti, Pi, Ei) or decimal (n, u, m, \
             k, M, G, T, P, E), or an exponent of ten (12e6). At most three decimal places are kept."}),
    );
    add(
        INT_OR_STRING,
        json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string",
            "description": "A number of 32 bits, or text."}),
    );
    add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        json!({"type": "object", "description":
            "A set of fields as a tree: f:NAME is a field, k:KEYS and v:VALUE an item of a list, and . the thing itself."}),
    );
    add("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", json!({"type": "object", "description": "A patch of any type."}));
    add(
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        json!({"type": "object", "description": "An object of any kind."}),
    );
    add(&extensions("JSON"), json!({"description": schema}));
    add(&extensions("JSONSchemaPropsOrArray"), json!({"description": "A schema, or a list of schemas."}));
    add(&extensions("JSONSchemaPropsOrBool"), json!({"description": "A schema, or whether anything goes."}));
    add(&extensions("JSONSchemaPropsOrStringArray"), json!({"description": "A schema, or a list of names."}));
    out
}

/// A reference, wrapped in `allOf` if it has a description or default.
pub fn refer(name: &str, doc: &str, default: bool) -> Value {
    let reference = json!({"$ref": format!("{PREFIX}{name}")});
    if doc.is_empty() && !default {
        return reference;
    }
    let mut out = json!({"allOf": [reference]});
    if default {
        out["default"] = json!({});
    }
    if !doc.is_empty() {
        out["description"] = json!(doc);
    }
    out
}

/// The list type of a resource.
pub fn list(resource: &Resource, items: Value, metadata: Value) -> Value {
    let kind = &resource.list_kind;
    json!({"type": "object", "description": format!("A list of objects of the kind {}.", resource.kind), "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": metadata,
            "items": {"type": "array", "description": "The objects.", "items": items}},
        "x-kubernetes-group-version-kind": gvk(resource, kind)})
}

/// Metadata of a list.
pub fn list_meta(default: bool) -> Value {
    refer(LIST_META, "Metadata of the list.", default)
}

fn builtin_list(resource: &Resource, name: &str) -> Value {
    list(resource, refer(name, "", true), list_meta(true))
}

fn definition(def: &Def, of: Of) -> Value {
    let properties: Map<String, Value> = def.fields.iter().map(|f| (f.name.to_owned(), field(f))).collect();
    let mut out = json!({"type": "object", "description": def.doc});
    if !properties.is_empty() {
        out["properties"] = Value::Object(properties);
    }
    if !def.required.is_empty() {
        out["required"] = json!(def.required);
    }
    if def.atomic {
        out["x-kubernetes-map-type"] = json!("atomic");
    }
    if let Some(kinds) = kinds(def, of) {
        out["x-kubernetes-group-version-kind"] = Value::Array(kinds);
    }
    out
}

fn kinds(def: &Def, of: Of) -> Option<Vec<Value>> {
    if let DELETE_OPTIONS | WATCH_EVENT = def.name {
        let kind = def.name.rsplit('.').next().unwrap_or_default();
        let all = COMMON.split_whitespace().map(|gv| gv.split_once('/').unwrap_or(("", gv)));
        let listed = all.filter(|(group, _)| of != Of::Custom || !NOT_OF_CUSTOM.contains(group));
        return Some(
            listed.map(|(group, version)| json!({"group": group, "version": version, "kind": kind})).collect(),
        );
    }
    def.gvk.map(|(group, version, kind)| vec![json!({"group": group, "version": version, "kind": kind})])
}

fn field(field: &Field) -> Value {
    let zero = field.always && !field.optional || field.zero;
    let mut out = ty(&field.ty, field, zero, field.doc);
    out["description"] = json!(field.doc);
    if let Some(value) = field.default {
        out["default"] = json!(value);
    }
    if let Some(key) = field.merge_key {
        out["x-kubernetes-patch-strategy"] = json!("merge");
        if !key.is_empty() {
            out["x-kubernetes-patch-merge-key"] = json!(key);
        }
    }
    match field.list {
        ListKind::Plain => {}
        ListKind::Atomic if matches!(field.ty, Type::Map(_)) => out["x-kubernetes-map-type"] = json!("atomic"),
        ListKind::Atomic => out["x-kubernetes-list-type"] = json!("atomic"),
        ListKind::Set => out["x-kubernetes-list-type"] = json!("set"),
        ListKind::Map(key) => {
            out["x-kubernetes-list-type"] = json!("map");
            out["x-kubernetes-list-map-keys"] = json!(key.split(',').collect::<Vec<_>>());
        }
    }
    out
}

/// The schema of a type; with `zero`, its zero value is the default.
fn ty(of: &Type, field: &Field, zero: bool, doc: &str) -> Value {
    let plain = |name: &str, format: &str, value: Value| {
        let mut out = json!({"type": name});
        if !format.is_empty() {
            out["format"] = json!(format);
        }
        if zero {
            out["default"] = value;
        }
        out
    };
    match of {
        Type::String => {
            let mut out = plain("string", "", json!(""));
            if !field.choices.is_empty() {
                out["enum"] = json!(field.choices);
            }
            out
        }
        Type::Bool => plain("boolean", "", json!(false)),
        Type::Int32 => plain("integer", "int32", json!(0)),
        Type::Int64 => plain("integer", "int64", json!(0)),
        Type::Double => plain("number", "double", json!(0)),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time => refer(TIME, doc, false),
        Type::MicroTime => refer(MICRO_TIME, doc, false),
        Type::Quantity => refer(QUANTITY, doc, false),
        Type::IntOrString => refer(INT_OR_STRING, doc, false),
        Type::Json => field.refer.map_or_else(|| json!({}), |name| refer(name, doc, false)),
        Type::Map(inner) => json!({"type": "object", "additionalProperties": ty(inner, field, true, "")}),
        Type::List(inner) => json!({"type": "array", "items": ty(inner, field, true, "")}),
        Type::Ref(name) => refer(name, doc, !field.optional || doc.is_empty()),
    }
}

/// Drops definitions that are not reachable from `from` by references with the prefix `prefix`.
pub fn keep_reached<'a>(schemas: &mut Map<String, Value>, from: impl Iterator<Item = &'a Value>, prefix: &str) {
    let mut reached = BTreeSet::new();
    let mut work: Vec<String> = Vec::new();
    from.for_each(|value| references(value, prefix, &mut work));
    while let Some(name) = work.pop() {
        if let Some(schema) = schemas.get(&name)
            && reached.insert(name)
        {
            references(schema, prefix, &mut work);
        }
    }
    schemas.retain(|name, _| reached.contains(name));
}

fn references(value: &Value, prefix: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => out.extend(text.strip_prefix(prefix).map(str::to_owned)),
                    other => references(other, prefix, out),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|v| references(v, prefix, out)),
        _ => {}
    }
}
