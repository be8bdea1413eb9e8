//! What a definition may say: group, names, scope, versions, columns, subresources, selectable fields, conversion.
//!
//! Upstream: apiextensions `pkg/apis/apiextensions/validation`. It looks at definitions in a form of its own, in which
//! what all versions have in common is above them; paths in errors are those of that form.

use names::{dns_1035_label, dns_1123_subdomain, joined};
use serde_json::{Value, json};
use structural_schema::structural::{self, flag, listed, ty};
use structural_schema::{formats, rules};

use super::schema_rules::{validate_defaults, validate_schema};
use crate::crd::{established, names};
use crate::object::{Object, metadata, strings};
use crate::status::FieldError;

const APPROVED: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What is wrong with a definition; `old` is its former state.
pub fn validate(crd: &Object, old: Option<&Object>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let known = old.and_then(|o| o.get("spec")).map_or(&[][..], |s| listed(s, "versions"));
    of_spec(spec, known, &mut errors);
    if let Some(old) = old {
        immutable(spec, old, &mut errors);
    }
    validate_status(crd, &mut errors);
    stored_versions(crd, spec, &mut errors);
    approval(crd, old, &mut errors);
    if flag(spec, "preserveUnknownFields")
        && !old.is_some_and(|o| o.get("spec").is_some_and(|s| flag(s, "preserveUnknownFields")))
    {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    errors
}

/// Formats of texts in a definition's schemas that nothing is checked for.
pub fn unknown_formats(crd: &Object) -> Vec<String> {
    let mut out = Vec::new();
    for version in crd.get("spec").map(|s| listed(s, "versions")).into_iter().flatten() {
        formats_of(version.get("schema").unwrap_or(&Value::Null), &mut out);
    }
    out
}

fn formats_of(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(format) = map.get("format").and_then(Value::as_str)
                && ty(value) == "string"
                && !formats::known(format)
            {
                out.push(format.to_owned());
            }
            map.values().for_each(|v| formats_of(v, out));
        }
        Value::Array(list) => list.iter().for_each(|v| formats_of(v, out)),
        _ => {}
    }
}

/// What is wrong with a definition's status.
pub fn validate_status(crd: &Object, errors: &mut Vec<FieldError>) {
    if let Some(accepted) = crd.get("status").and_then(|s| s.get("acceptedNames")) {
        of_names(accepted, "status.acceptedNames", errors);
    }
}

/// A version with what is its own alone.
struct Version<'a> {
    whole: &'a Value,
    schema: Option<&'a Value>,
    subresources: Option<&'a Value>,
    columns: Option<&'a Value>,
    selectable: Option<&'a Value>,
}

fn part<'a>(version: &'a Value, key: &str) -> Option<&'a Value> {
    version.get(key).filter(|v| !v.is_null() && v.as_array().is_none_or(|l| !l.is_empty()))
}

/// What all versions have in common, taken out of them.
fn common<'a>(
    versions: &mut [Version<'a>],
    of: for<'v> fn(&'v mut Version<'a>) -> &'v mut Option<&'a Value>,
) -> Option<&'a Value> {
    let first = *of(versions.first_mut()?);
    if versions.iter_mut().any(|v| *of(v) != first) {
        return None;
    }
    for version in versions {
        *of(version) = None;
    }
    first
}

fn of_spec(spec: &Value, known: &[Value], errors: &mut Vec<FieldError>) {
    group(spec, errors);
    match spec.get("scope").and_then(Value::as_str).unwrap_or_default() {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(FieldError::not_supported("spec.scope", &json!(other), &["Cluster", "Namespaced"])),
    }
    let mut versions: Vec<Version<'_>> = listed(spec, "versions")
        .iter()
        .map(|whole| Version {
            whole,
            schema: part(whole, "schema"),
            subresources: part(whole, "subresources"),
            columns: part(whole, "additionalPrinterColumns"),
            selectable: part(whole, "selectableFields"),
        })
        .collect();
    let subresources = common(&mut versions, |v| &mut v.subresources);
    let schema = common(&mut versions, |v| &mut v.schema);
    let columns = common(&mut versions, |v| &mut v.columns);
    let selectable = common(&mut versions, |v| &mut v.selectable);
    let open = |s: Option<&Value>| s.and_then(|s| s.get("openAPIV3Schema")).is_some_and(Value::is_object);
    if !open(schema) {
        for (at, _) in versions.iter().enumerate().filter(|(_, v)| !open(v.schema)) {
            errors.push(FieldError::required(format!("spec.versions[{at}].schema.openAPIV3Schema"), ""));
        }
    }
    let preserve = flag(spec, "preserveUnknownFields");
    let has_default = versions.iter().filter_map(|v| part(v.whole, "schema")).any(has_defaults);
    if preserve && has_default {
        errors.push(FieldError::invalid(
            "spec.preserveUnknownFields",
            &json!(true),
            "must be false in order to use defaults in the schema",
        ));
    }
    of_versions(&versions, subresources, known, errors);
    version_list(&versions, spec.get("versions").is_some_and(Value::is_array), errors);
    if let Some(first) =
        versions.first().and_then(|v| v.whole.get("name")).and_then(Value::as_str).filter(|n| !n.is_empty())
        && let Some(why) = joined(dns_1035_label(first))
    {
        errors.push(FieldError::invalid("spec.version", &json!(first), why));
    }
    let wanted = spec.get("names").unwrap_or(&Value::Null);
    for key in ["plural", "singular", "kind", "listKind"] {
        if wanted.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    of_names(wanted, "spec.names", errors);
    let status = |s: Option<&Value>| s.and_then(|s| s.get("status")).is_some_and(Value::is_object);
    let any_status = status(subresources) || versions.iter().any(|v| status(v.subresources));
    of_schema(schema, any_status, known, "spec.validation", errors);
    of_subresources(subresources, "spec.subresources", errors);
    of_columns(columns, "spec.additionalPrinterColumns", errors);
    if let Some(fields) = selectable {
        match schema.and_then(|s| s.get("openAPIV3Schema")) {
            None => errors.push(FieldError::invalid(
                "spec.selectableFields",
                &json!(""),
                "may only be set when validations.schema is included",
            )),
            Some(schema) => of_selectable(fields, schema, "spec.selectableFields", errors),
        }
    }
    super::conversion::validate(spec, errors);
}

fn group(spec: &Value, errors: &mut Vec<FieldError>) {
    let group = spec.get("group").and_then(Value::as_str).unwrap_or_default();
    let wrong = dns_1123_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !wrong.is_empty() {
        errors.push(FieldError::invalid("spec.group", &json!(group), wrong.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
}

fn has_defaults(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(k, v)| {
            (k == "default" && !v.is_null() && !v.get("type").is_some_and(Value::is_string)) || has_defaults(v)
        }),
        Value::Array(list) => list.iter().any(has_defaults),
        _ => false,
    }
}

fn of_versions(versions: &[Version<'_>], shared: Option<&Value>, known: &[Value], errors: &mut Vec<FieldError>) {
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        let name = version.whole.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Some(why) = joined(dns_1035_label(name)) {
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), why));
        }
        let warning = version.whole.get("deprecationWarning").and_then(Value::as_str);
        for why in deprecation(flag(version.whole, "deprecated"), warning) {
            errors.push(FieldError::invalid(format!("{path}.deprecationWarning"), &json!(warning), why));
        }
        let subresources = version.subresources.or(shared);
        let status = subresources.and_then(|s| s.get("status")).is_some_and(Value::is_object);
        of_schema(version.schema, status, known, &format!("{path}.schema"), errors);
        of_subresources(version.subresources, &format!("{path}.subresources"), errors);
        of_columns(version.columns, &format!("{path}.additionalPrinterColumns"), errors);
        if let Some(fields) = version.selectable {
            let at = format!("{path}.selectableFields");
            match version.schema.and_then(|s| s.get("openAPIV3Schema")) {
                Some(schema) => of_selectable(fields, schema, &at, errors),
                None => errors.push(FieldError::invalid(
                    at,
                    &json!(""),
                    "may only be set when `version.schema.openAPIV3Schema` is not included",
                )),
            }
        }
    }
}

fn deprecation(deprecated: bool, warning: Option<&str>) -> Vec<String> {
    let Some(warning) = warning else { return Vec::new() };
    if !deprecated {
        return vec!["can only be set for deprecated versions".to_owned()];
    }
    let mut errors = Vec::new();
    if warning.len() > 256 {
        errors.push("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        errors.push("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !gotext::printable(*c)) {
        errors
            .push(format!("must only contain printable UTF-8 characters; non-printable character found at index {at}"));
    }
    errors
}

fn version_list(versions: &[Version<'_>], given: bool, errors: &mut Vec<FieldError>) {
    let name = |v: &Version<'_>| v.whole.get("name").cloned().unwrap_or_default();
    let printed: Vec<String> = versions
        .iter()
        .map(|v| {
            let text = |key: &str| v.whole.get(key).map_or("null".to_owned(), gotext::json);
            let json = |part: Option<&Value>| part.map_or("null".to_owned(), gotext::json);
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":{},\
                 \"Subresources\":{},\"AdditionalPrinterColumns\":{},\"SelectableFields\":{}}}",
                text("name"),
                flag(v.whole, "served"),
                flag(v.whole, "storage"),
                flag(v.whole, "deprecated"),
                text("deprecationWarning"),
                json(v.schema),
                json(v.subresources),
                json(v.columns),
                json(v.selectable)
            )
        })
        .collect();
    let value = if given { format!("[{}]", printed.join(",")) } else { "null".to_owned() };
    let wrong = |detail: &str| FieldError {
        value: value.clone(),
        ..FieldError::invalid("spec.versions", &Value::Null, detail)
    };
    if (1..versions.len()).any(|at| versions[..at].iter().any(|v| name(v) == name(&versions[at]))) {
        errors.push(wrong("must contain unique version names"));
    }
    if versions.iter().filter(|v| flag(v.whole, "storage")).count() != 1 {
        errors.push(wrong("must have exactly one version marked as storage version"));
    }
}

fn of_names(given: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = |key: &str| given.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["plural", "singular", "kind", "listKind"] {
        let value = text(key);
        let mixed = matches!(key, "kind" | "listKind");
        let checked = if mixed { value.to_lowercase() } else { value.to_owned() };
        if let Some(why) = joined(dns_1035_label(&checked)).filter(|_| !value.is_empty()) {
            let lead = if mixed { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(value), format!("{lead}{why}")));
        }
    }
    let mut each = |key: &str| {
        for (at, name) in strings(given.get(key)).iter().enumerate() {
            if let Some(why) = joined(dns_1035_label(name)) {
                errors.push(FieldError::invalid(format!("{path}.{key}[{at}]"), &json!(name), why));
            }
        }
    };
    each("shortNames");
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let at = format!("{path}.listKind");
        errors.push(FieldError::invalid(at, &json!(text("listKind")), "kind and listKind may not be the same"));
    }
    let mut each = |key: &str| {
        for (at, name) in strings(given.get(key)).iter().enumerate() {
            if let Some(why) = joined(dns_1035_label(name)) {
                errors.push(FieldError::invalid(format!("{path}.{key}[{at}]"), &json!(name), why));
            }
        }
    };
    each("categories");
}

/// `known` are the versions that the definition had: rules of a schema that one of them has are not checked again.
fn of_schema(given: Option<&Value>, status: bool, known: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let Some(schema) = given.and_then(|g| g.get("openAPIV3Schema")).filter(|s| s.is_object()) else { return };
    let path = format!("{path}.openAPIV3Schema");
    let before = errors.len();
    if status {
        root_fields(schema, &path, errors);
    }
    if flag(schema, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = structural::unsupported(schema);
    let mut structural = false;
    if unsupported.is_none() {
        let mut found = structural::validate(schema, &path);
        if found.is_empty() {
            found = validate_defaults(schema, &path);
        }
        structural = found.is_empty();
        errors.extend(found);
    }
    let found = validate_schema(schema, &path);
    let checked = known.iter().any(|v| v.pointer("/schema/openAPIV3Schema") == Some(schema));
    let rules = if structural && !checked { rules::check_schema(schema, &path, &found) } else { Vec::new() };
    errors.extend(found.into_iter().chain(rules));
    if let Some(why) = unsupported.filter(|_| errors.len() == before) {
        errors.push(FieldError::invalid(path, &json!(""), why));
    }
}

/// With a status subresource, the root must make sense for the status alone too.
fn root_fields(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const ALLOWED: &str = "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
        Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields \
        XValidations";
    if !ty(schema).is_empty() && ty(schema) != "object" {
        let detail =
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(ty(schema)), detail));
        return;
    }
    let refused = [
        "$schema",
        "$ref",
        "id",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "nullable",
        "default",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    if refused.iter().any(|key| part(schema, key).is_some_and(|v| v != &Value::Bool(false))) {
        let detail = format!(
            "only [{ALLOWED}] fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(FieldError::invalid(path, schema, detail));
    }
}

fn simple_path(text: &str, path: &str) -> Option<FieldError> {
    (!text.starts_with('.'))
        .then(|| FieldError::invalid(path, &json!(text), "must be a simple json path starting with ."))
}

fn of_subresources(given: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(scale) = given.and_then(|g| g.get("scale")).filter(|s| s.is_object()) else { return };
    for (key, below) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let text = scale.get(key).and_then(Value::as_str).unwrap_or_default();
        let at = format!("{path}.scale.{key}");
        if text.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if let Some(error) = simple_path(text, &at) {
            errors.push(error);
        } else if !text.starts_with(below) {
            let detail = format!("should be a json path under {}", below.trim_end_matches('.'));
            errors.push(FieldError::invalid(at, &json!(text), detail));
        }
    }
    let text = scale.get("labelSelectorPath").and_then(Value::as_str).unwrap_or_default();
    let at = format!("{path}.scale.labelSelectorPath");
    if text.is_empty() {
    } else if let Some(error) = simple_path(text, &at) {
        errors.push(error);
    } else if !text.starts_with(".spec.") && !text.starts_with(".status.") {
        errors.push(FieldError::invalid(at, &json!(text), "should be a json path under either .spec or .status"));
    }
}

fn of_columns(given: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (at, column) in given.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let text = |key: &str| column.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = format!("{path}[{at}]");
        if text("name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let detail = format!("must be one of {}", TYPES.join(","));
        if text("type").is_empty() {
            errors.push(FieldError::required(format!("{path}.type"), detail));
        } else if !TYPES.contains(&text("type")) {
            errors.push(FieldError::invalid(format!("{path}.type"), &json!(text("type")), detail));
        }
        if !text("format").is_empty() && !FORMATS.contains(&text("format")) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            errors.push(FieldError::invalid(format!("{path}.format"), &json!(text("format")), detail));
        }
        let at = format!("{path}.JSONPath");
        if text("jsonPath").is_empty() {
            errors.push(FieldError::required(at, ""));
        } else {
            errors.extend(simple_path(text("jsonPath"), &at));
        }
    }
}

fn of_selectable(fields: &Value, schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<String> = Vec::new();
    for (at, field) in fields.as_array().into_iter().flatten().enumerate() {
        let text = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        let at = format!("{path}[{at}].jsonPath");
        if text.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        let found = match field_at(text, schema) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(at, &json!(text), format!("is an invalid path: {why}")));
                continue;
            }
        };
        if text.starts_with(".metadata") {
            errors.push(FieldError::invalid(at.as_str(), &json!(text), "must not point to fields in metadata"));
        }
        if !matches!(ty(found), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats \
                          are allowed.";
            errors.push(FieldError::invalid(at.as_str(), &json!(text), detail));
        }
        if seen.iter().any(|s| s == text) {
            errors.push(FieldError::duplicate(at, &json!(text)));
        } else {
            seen.push(text.to_owned());
        }
    }
    if seen.len() > 8 {
        errors.push(FieldError::too_many(path, seen.len() as u64, 8));
    }
}

/// The signs and names of a path.
fn path_tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = match rest.find(['.', '[', ']']) {
            Some(0) => 1,
            Some(end) => end,
            None => rest.len(),
        };
        let (token, left) = rest.split_at(end);
        tokens.push(token);
        rest = left;
    }
    tokens
}

/// The schema of the field at a path of names.
fn field_at<'a>(text: &str, schema: &'a Value) -> Result<&'a Value, String> {
    let mut here = schema;
    let mut tokens = path_tokens(text).into_iter();
    while let Some(token) = tokens.next() {
        match token {
            "." => {}
            "[" => return Err("array notation is not allowed".to_owned()),
            other => return Err(format!("expected [ or . but got: {other}")),
        }
        let name = tokens.next().ok_or("unexpected end of JSON path")?;
        let below = match here.get("properties").filter(|p| p.is_object()) {
            Some(properties) => properties.get(name),
            None => here.get("additionalProperties").filter(|a| a.is_object()),
        };
        here = below.ok_or("does not refer to a valid field")?;
    }
    Ok(here)
}

fn immutable(spec: &Value, old: &Object, errors: &mut Vec<FieldError>) {
    let fields: &[&str] =
        if established(old) { &["scope", "names.kind", "group", "names.plural"] } else { &["group", "names.plural"] };
    for field in fields {
        let pointer = format!("/{}", field.replace('.', "/"));
        let now = spec.pointer(&pointer).unwrap_or(&Value::Null);
        if old.get("spec").and_then(|s| s.pointer(&pointer)) != Some(now) {
            errors.push(FieldError::invalid(format!("spec.{field}"), now, "field is immutable"));
        }
    }
}

fn stored_versions(crd: &Object, spec: &Value, errors: &mut Vec<FieldError>) {
    let stored = strings(crd.get("status").and_then(|s| s.get("storedVersions")));
    let at = "status.storedVersions";
    if stored.is_empty() {
        errors.push(FieldError::invalid(at, &Value::Null, "must have at least one stored version"));
        return;
    }
    let versions = listed(spec, "versions");
    let name = |v: &Value| v.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for version in versions.iter().filter(|v| flag(v, "storage") && !stored.contains(&name(v))) {
        errors.push(FieldError::invalid(
            at,
            &json!(stored),
            format!("must have the storage version {}", name(version)),
        ));
    }
    for (index, gone) in stored.iter().enumerate().filter(|(_, s)| !versions.iter().any(|v| name(v) == **s)) {
        let detail = format!(
            "missing from spec.versions; {gone} was previously a storage version, and must remain in spec.versions until a \
             storage migration ensures no data remains persisted in {gone} and removes {gone} from status.storedVersions"
        );
        errors.push(FieldError::invalid(format!("{at}[{index}]"), &json!(gone), detail));
    }
}

/// Whether the group is one of Kubernetes' own, whose APIs want approval.
pub fn protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|suffix| group == *suffix || group.ends_with(&format!(".{suffix}")))
}

/// State of the approval: status and reason of the condition, and its text.
pub fn approval_state(crd: &Object) -> (&'static str, &'static str, String) {
    let given =
        metadata(crd).get("annotations").and_then(|a| a.get(APPROVED)).and_then(Value::as_str).unwrap_or_default();
    let url = given.parse::<http::Uri>().is_ok_and(|u| u.scheme().is_some() && u.host().is_some());
    if given.is_empty() {
        let text = format!("protected groups must have approval annotation \"{APPROVED}\", {SEE}");
        ("False", "MissingAnnotation", text)
    } else if given.starts_with("unapproved") {
        ("False", "UnapprovedAnnotation", format!("not approved: {}", gotext::quote(given)))
    } else if url {
        ("True", "ApprovedAnnotation", format!("approved in {given}"))
    } else {
        let text = format!(
            "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason starting with \
             \"unapproved\", {SEE}"
        );
        ("False", "InvalidAnnotation", text)
    }
}

fn approval(crd: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if !protected(&names(crd).0) {
        return;
    }
    let (_, reason, text) = approval_state(crd);
    if old.is_some_and(|old| approval_state(old).1 == reason) {
        return;
    }
    let at = format!("metadata.annotations[{APPROVED}]");
    let given = metadata(crd).get("annotations").and_then(|a| a.get(APPROVED)).cloned().unwrap_or_default();
    match reason {
        "MissingAnnotation" => errors.push(FieldError::required(at, text)),
        "InvalidAnnotation" => errors.push(FieldError::invalid(at, &given, text)),
        _ => {}
    }
}
