//! What a field is for merging: one view of the builtin table and of custom schemas (the conversion that
//! kube-openapi's `schemaconv` makes of OpenAPI).

use core_kinds::{Def, Defs, Field, ListKind, Type};
use serde_json::Value;
use structural_schema::schema::{Additional, JsonType, ListType, Schema};
use structured_merge::{Items, Scalar, Sort, Typed};

use crate::resource::{Flavor, Resource};

/// Type of a field.
#[derive(Debug, Clone, Copy)]
pub enum Ty<'a> {
    /// A custom resource: its schema, with type and metadata.
    Root(&'a Schema),
    /// A field of a custom resource, and whether a schema above it keeps unknown fields.
    Custom(&'a Schema, bool),
    /// A builtin definition.
    Def(&'static Def),
    /// A field of one.
    Field(&'static Field),
    /// An item of a builtin list or map.
    Type(&'static Type),
    /// Plain text.
    Text,
    /// Anything: maps are merged, lists are not.
    Deduced,
    /// Anything, as a whole.
    Untyped,
    /// No type at all.
    Unknown,
}

impl<'a> Ty<'a> {
    /// The type of a resource's objects.
    pub fn of(resource: &'a Resource) -> Self {
        match &resource.flavor {
            Flavor::Builtin(def) => Self::Def(def),
            Flavor::Custom { schema, .. } => Self::Root(schema),
        }
    }

    fn def(name: &str) -> Self {
        Defs::get().def(name).map_or(Self::Deduced, Self::Def)
    }

    /// Looks through references and fields.
    fn resolved(self) -> Self {
        match self {
            Self::Field(Field { ty: Type::Ref(name), .. }) | Self::Type(Type::Ref(name)) => Self::def(name),
            Self::Field(Field { ty: Type::Json, .. }) | Self::Type(Type::Json) => Self::Deduced,
            other => other,
        }
    }
}

impl Typed for Ty<'_> {
    const UNKNOWN: Self = Self::Unknown;

    fn only(self) -> Option<Sort> {
        match self.resolved() {
            Self::Root(_) | Self::Def(_) => Some(Sort::Map),
            Self::Custom(schema, _) => schema.ty.map(|ty| match ty {
                JsonType::Object => Sort::Map,
                JsonType::Array => Sort::List,
                _ => Sort::Scalar,
            }),
            Self::Field(Field { ty, .. }) | Self::Type(ty) => Some(match ty {
                Type::Map(_) => Sort::Map,
                Type::List(_) => Sort::List,
                _ => Sort::Scalar,
            }),
            Self::Text => Some(Sort::Scalar),
            Self::Deduced | Self::Untyped | Self::Unknown => None,
        }
    }

    fn atomic_map(self) -> bool {
        match self.resolved() {
            Self::Untyped => true,
            Self::Custom(schema, _) | Self::Root(schema) => schema.atomic_map,
            Self::Field(field) => field.list == ListKind::Atomic,
            Self::Def(def) => def.atomic,
            _ => false,
        }
    }

    fn items(&self) -> Items<'_> {
        match self.resolved() {
            Self::Custom(schema, _) => match &schema.list_type {
                ListType::Atomic => Items::Atomic,
                ListType::Set => Items::Set,
                ListType::Map(keys) => Items::Keys(keys),
            },
            Self::Field(field) => match (field.list, field.merge_key) {
                (ListKind::Atomic, _) | (ListKind::Plain, None) => Items::Atomic,
                (ListKind::Set, _) | (ListKind::Plain, Some("")) => Items::Set,
                (ListKind::Map(keys), _) | (ListKind::Plain, Some(keys)) => Items::Names(keys),
            },
            _ => Items::Atomic,
        }
    }

    fn item(self) -> Self {
        match self.resolved() {
            Self::Custom(schema, keep) => {
                let keep = keep || schema.preserve_unknown;
                schema.items.as_deref().map_or(Self::Untyped, |items| Self::Custom(items, keep))
            }
            Self::Field(Field { ty: Type::List(inner), .. }) | Self::Type(Type::List(inner)) => Self::Type(inner),
            _ => Self::Untyped,
        }
    }

    fn child(self, key: &str) -> Option<(Self, bool)> {
        match self.resolved() {
            Self::Root(schema) => match identity(key) {
                Some(ty) => Some((ty, true)),
                None => custom(schema, schema.preserve_unknown, true, key),
            },
            Self::Custom(schema, keep) => match identity(key) {
                Some(ty) if schema.embedded => Some((ty, true)),
                _ => custom(schema, keep || schema.preserve_unknown, schema.embedded, key),
            },
            Self::Def(def) => def.field(key).map(|field| (Self::Field(field), true)),
            Self::Field(Field { ty: Type::Map(inner), .. }) | Self::Type(Type::Map(inner)) => {
                Some((Self::Type(inner), false))
            }
            Self::Deduced => Some((Self::Deduced, false)),
            Self::Untyped => Some((Self::Untyped, false)),
            _ => None,
        }
    }

    fn scalar(self) -> Scalar {
        match self.resolved() {
            Self::Text => Scalar::String,
            Self::Custom(schema, _) => match schema.ty {
                Some(JsonType::Integer | JsonType::Number) => Scalar::Numeric,
                Some(JsonType::Boolean) => Scalar::Boolean,
                Some(JsonType::String) if schema.rules.format.as_deref().is_none_or(|f| f == "byte") => Scalar::String,
                _ => Scalar::Untyped,
            },
            Self::Field(Field { ty, .. }) | Self::Type(ty) => match ty {
                Type::String | Type::Bytes => Scalar::String,
                Type::Bool => Scalar::Boolean,
                Type::Int32 | Type::Int64 | Type::Double => Scalar::Numeric,
                _ => Scalar::Untyped,
            },
            _ => Scalar::Untyped,
        }
    }

    fn key_default(self, key: &str) -> Option<Value> {
        match self.resolved() {
            Self::Custom(schema, _) => schema.properties.get(key).and_then(|p| p.default.clone()),
            Self::Def(def) => def.field(key).and_then(|field| field.default).map(Value::from),
            _ => None,
        }
    }
}

/// The fields that every object has.
fn identity(key: &str) -> Option<Ty<'static>> {
    match key {
        "apiVersion" | "kind" => Some(Ty::Text),
        "metadata" => Some(Defs::get().object_meta().map_or(Ty::Deduced, Ty::Def)),
        _ => None,
    }
}

fn custom<'a>(schema: &'a Schema, keep: bool, object: bool, key: &str) -> Option<(Ty<'a>, bool)> {
    if let Some(inner) = schema.properties.get(key) {
        return Some((Ty::Custom(inner, keep), true));
    }
    match &schema.additional {
        Additional::Schema(inner) => Some((Ty::Custom(inner, keep), false)),
        Additional::Any => Some((Ty::Deduced, false)),
        Additional::None if keep || (schema.properties.is_empty() && !object) => Some((Ty::Deduced, false)),
        Additional::None => None,
    }
}
