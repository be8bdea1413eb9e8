//! Fields that are free in JSON, and how protobuf has them.

use crate::{Def, Defs, Field};

/// How a field that is free in JSON is written: all but schemas as one field with the JSON text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Free {
    /// `JSON`, `FieldsV1`, `RawExtension`: field 1 is the text.
    Text,
    /// `JSONSchemaPropsOrBool`: field 1 a boolean, field 2 a schema.
    SchemaOrBool,
    /// `JSONSchemaPropsOrArray`: field 1 a schema, field 2 schemas.
    SchemaOrSchemas,
    /// `JSONSchemaPropsOrStringArray`: field 1 a schema, field 2 texts.
    SchemaOrTexts,
}

pub(super) fn free(field: &Field) -> Free {
    match field.name {
        "items" => Free::SchemaOrSchemas,
        "additionalItems" | "additionalProperties" => Free::SchemaOrBool,
        "dependencies" => Free::SchemaOrTexts,
        _ => Free::Text,
    }
}

pub(super) fn schema_def() -> Option<&'static Def> {
    Defs::get().def("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
}
