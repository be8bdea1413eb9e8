//! What happens to an object between decoding and storage, the same way for all kinds.

use core_kinds::{Defs, canonical, decode as typed};
use serde_json::{Value, json};

use super::meta;
use crate::builtin::strategy as own;
use crate::change::Change;
use crate::crd;
use crate::fields::managed;
use crate::given::Given;
use crate::object::{self, Object, is_deleting, meta_str, metadata, metadata_mut};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// Checks types, drops unknown fields (their paths go to `unknown`) and fills in defaults.
pub fn decode(resource: &Resource, object: &mut Object, unknown: &mut Vec<String>) -> Result<(), Unfit> {
    identify(resource, object)?;
    match &resource.flavor {
        Flavor::Builtin(def) => typed::decode(def, object, unknown).map_err(|why| Unfit::value(resource, why))?,
        Flavor::Custom { schema, .. } => {
            shape(Some(schema), object, unknown).map_err(|why| Unfit::value(resource, why))?
        }
    }
    fill(resource, object);
    Ok(())
}

/// The same for what was not decoded from a body but put together within: there a null stays what it is where there is
/// no default for it, and is refused later if it may not be.
pub fn settle_made(resource: &Resource, object: &mut Object) -> Result<(), Unfit> {
    let Flavor::Custom { schema, .. } = &resource.flavor else { return decode(resource, object, &mut Vec::new()) };
    identify(resource, object)?;
    let coerced = prune(Some(schema), object, &mut Vec::new())
        .and_then(|()| crd::embedded::coerce(schema, object, &mut Vec::new()));
    coerced.map_err(|why| Unfit::value(resource, why))?;
    fill(resource, object);
    Ok(())
}

/// Why an object cannot be brought into the form of its kind.
pub enum Unfit {
    /// One of its values does not fit.
    Value {
        /// The decoder's own words.
        why: String,
        /// The same as a request is answered.
        error: ApiError,
    },
    /// It is an object of another kind or version.
    Other(ApiError),
}

impl Unfit {
    fn value(resource: &Resource, why: String) -> Self {
        let (kind, version) = (&resource.kind, &resource.version);
        let text = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}");
        Self::Value { why, error: ApiError::bad_request(text) }
    }

    /// What is wrong, without the words about a request's body.
    pub fn bare(self) -> String {
        match self {
            Self::Value { why, .. } => why,
            Self::Other(error) => error.message,
        }
    }
}

impl From<ApiError> for Unfit {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

impl From<Unfit> for ApiError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Value { error, .. } | Unfit::Other(error) => error,
        }
    }
}

/// Brings a custom resource into the shape that its schema and object metadata have; without a schema only the latter.
pub fn shape(
    schema: Option<&structural_schema::schema::Schema>,
    object: &mut Object,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    prune(schema, object, unknown)?;
    if let Some(schema) = schema {
        structural_schema::default::drop_nulls(schema, object);
        crd::embedded::coerce(schema, object, unknown)?;
    }
    Ok(())
}

/// Drops what neither object metadata nor the schema knows.
fn prune(
    schema: Option<&structural_schema::schema::Schema>,
    object: &mut Object,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    decode_metadata(object, unknown)?;
    if let Some(schema) = schema {
        structural_schema::prune::prune(schema, object, unknown);
    }
    Ok(())
}

/// Fills in the defaults of a decoded object.
pub fn fill(resource: &Resource, object: &mut Object) {
    if let Flavor::Custom { schema, .. } = &resource.flavor {
        structural_schema::default::apply_object(schema, object);
    }
    own::defaults(resource, object);
    settle(resource, object);
}

/// An own kind in the form that Go's encoder gives it.
fn settle(resource: &Resource, object: &mut Object) {
    if let Flavor::Builtin(def) = &resource.flavor {
        canonical::settle_sent(def, object);
    }
}

/// The object must be of the resource's kind and version.
fn identify(resource: &Resource, object: &mut Object) -> Result<(), Unfit> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let wanted = resource.api_version();
    let other_version = !api_version.is_empty() && api_version != wanted;
    let other_kind = !kind.is_empty() && kind != resource.kind;
    match &resource.flavor {
        Flavor::Custom { .. } => {
            if kind.is_empty() {
                let body = gotext::json(&Value::Object(object.clone()));
                let start: String = body.chars().take(30).collect();
                let more = if body.len() > 30 { " ..." } else { "" };
                let text = format!(
                    "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({start}{more})",
                    resource.kind
                );
                return Err(ApiError::bad_request(text).into());
            }
            if other_version {
                let text = format!(
                    "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
                );
                return Err(ApiError::bad_request(text).into());
            }
            if other_kind {
                let why = format!("must be {}", resource.kind);
                let error = FieldError::invalid("kind", &json!(kind), why);
                return Err(ApiError::invalid(&resource.group, &kind, object::name(object), &[error]).into());
            }
        }
        Flavor::Builtin(_) if other_version || other_kind => super::body::identify(resource, object)?,
        Flavor::Builtin(_) => {}
    }
    object.insert("apiVersion".into(), json!(wanted));
    object.insert("kind".into(), json!(resource.kind));
    Ok(())
}

fn decode_metadata(object: &mut Object, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(def) = Defs::get().object_meta() else { return Ok(()) };
    match object.get_mut("metadata") {
        None | Some(Value::Null) => {
            object.insert("metadata".into(), json!({}));
        }
        Some(Value::Object(meta)) => {
            let mut found = Vec::new();
            typed::decode(def, meta, &mut found)?;
            unknown.extend(found.into_iter().map(|p| format!("metadata.{p}")));
        }
        Some(other) => {
            let kind = gotext::json_type(other);
            return Err(format!("json: cannot unmarshal {kind} into Go value of type v1.ObjectMeta"));
        }
    }
    Ok(())
}

/// Sets the namespace, or refuses one that is not the request's.
pub fn fit_namespace(resource: &Resource, object: &mut Object, ns: &str) -> ApiResult<()> {
    let given = meta_str(object, "namespace").to_owned();
    if !resource.namespaced {
        metadata_mut(object).shift_remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != ns {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata_mut(object).insert("namespace".into(), json!(ns));
    Ok(())
}

/// Drops what clients cannot say of a new object.
pub fn wipe(object: &mut Object) {
    let meta = metadata_mut(object);
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        meta.shift_remove(key);
    }
}

/// Sets what only the server may set on a new object.
pub fn prepare_create(resource: &Resource, object: &mut Object, given: &Given) {
    let meta = metadata_mut(object);
    meta.shift_remove("resourceVersion");
    meta.insert("uid".into(), json!(given.uid()));
    meta.insert("creationTimestamp".into(), json!(given.stamp()));
    // Upstream gives PriorityClasses one and never counts on.
    if counts_generations(resource) || resource.group == "scheduling.k8s.io" {
        meta.insert("generation".into(), json!(1));
    }
    if resource.status && !resource.is("", "nodes") {
        object.shift_remove("status");
    }
    own::prepare_create(resource, object);
    settle(resource, object);
}

/// The default of a custom resource's status. It was taken from the new object, but whoever reads it finds it.
pub fn default_status(resource: &Resource, object: &mut Object) {
    let Flavor::Custom { schema, .. } = &resource.flavor else { return };
    let Some(status) = schema.property("status").filter(|s| s.default.is_some()) else { return };
    if let Some(default) = status.default.as_ref().filter(|_| !object.contains_key("status")) {
        let mut value = default.clone();
        structural_schema::default::apply(status, &mut value);
        object.insert("status".into(), value);
    }
}

/// Whether the kind counts changes of its desired state.
pub fn counts_generations(resource: &Resource) -> bool {
    matches!(resource.flavor, Flavor::Custom { .. })
        || matches!(
            resource.group.as_str(),
            "apiextensions.k8s.io" | "discovery.k8s.io" | "networking.k8s.io" | "policy" | crate::admission::GROUP
        )
}

/// Makes `new` what an update by `sub` may make of `old`.
pub fn prepare_update(resource: &Resource, new: &mut Object, old: &Object, sub: &str) {
    match sub {
        "status" | "finalize" if keeps_metadata_of_parts(resource) => {
            keep_metadata(new, old);
            let other = if sub == "status" { "spec" } else { "status" };
            set_or_remove(new, other, old.get(other).cloned());
            own::defaults(resource, new);
        }
        "status" | "approval" => {
            let status = new.shift_remove("status");
            let owners = metadata_mut(new).shift_remove("managedFields");
            // All but the status, which is most of many an object.
            *new = old.iter().filter(|(key, _)| *key != "status").map(|(k, v)| (k.clone(), v.clone())).collect();
            set_or_remove(metadata_mut(new), "managedFields", owners);
            set_or_remove(new, "status", status);
            own::prepare_part(resource, new, old, sub);
        }
        _ => {
            keep_metadata(new, old);
            if resource.status && !resource.is("", "namespaces") {
                set_or_remove(new, "status", old.get("status").cloned());
            }
            own::prepare_update(resource, new, old);
            own::defaults(resource, new);
        }
    }
    settle(resource, new);
    if counts_generations(resource) {
        let before = metadata(old).get("generation").and_then(Value::as_i64).unwrap_or(1);
        let moved = desired_differs(resource, new, old);
        metadata_mut(new).insert("generation".into(), json!(if moved { before + 1 } else { before }));
    }
}

/// Whether a write of a part of an object takes its metadata too: so it is for the core kinds, and for no others.
fn keeps_metadata_of_parts(resource: &Resource) -> bool {
    resource.group.is_empty()
}

/// Refuses what nobody may change of what an object is; webhooks can try, too. Upstream asks twice.
pub fn same_identity(resource: &Resource, new: &Object, old: &Object, sub: &str) -> ApiResult<()> {
    if !sub.is_empty() && !keeps_metadata_of_parts(resource) {
        return Ok(());
    }
    let member = |object: &Object, key: &str| metadata(object).get(key).filter(|v| !v.is_null()).cloned();
    let immutable = |key: &str| {
        let shown = member(new, key).unwrap_or_else(|| json!(""));
        FieldError::invalid(format!("metadata.{key}"), &shown, "field is immutable")
    };
    let changed = |key: &str| match key {
        "name" => object::name(new) != object::name(old),
        // What is left out stays, and so does what was set once.
        "deletionTimestamp" => member(old, key).is_none() && member(new, key).is_some(),
        key => member(new, key).is_some_and(|given| Some(&given) != member(old, key).as_ref() && given != json!("")),
    };
    let fixed = ["name", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let fixed: Vec<FieldError> = fixed.into_iter().filter(|key| changed(key)).map(immutable).collect();
    if fixed.is_empty() {
        return Ok(());
    }
    let mut errors = Vec::new();
    meta::unnamed(new, &mut errors);
    errors.extend(fixed.iter().chain(&fixed).cloned());
    if checks_again(resource) {
        meta::own_name(resource, new, &mut errors);
    }
    Err(ApiError::invalid(&resource.group, &resource.kind, object::name(new), &errors))
}

/// Kinds of which a changed object is checked like a new one, too.
fn checks_again(resource: &Resource) -> bool {
    resource.group.is_empty()
        && matches!(resource.plural.as_str(), "configmaps" | "secrets" | "services" | "serviceaccounts")
}

fn set_or_remove(object: &mut Object, key: &str, value: Option<Value>) {
    match value {
        Some(value) => object.insert(key.to_owned(), value),
        None => object.shift_remove(key),
    };
}

fn keep_metadata(new: &mut Object, old: &Object) {
    let before = metadata(old);
    let meta = metadata_mut(new);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "name",
        "namespace",
        "generateName",
        "generation",
    ] {
        set_or_remove(meta, key, before.get(key).cloned());
    }
    meta.shift_remove("selfLink");
    for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match meta.get(key) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            _ => false,
        };
        if empty {
            meta.shift_remove(key);
        }
    }
}

/// Whether the parts differ whose changes move the generation. The order of keys does not matter.
fn desired_differs(resource: &Resource, a: &Object, b: &Object) -> bool {
    let counts =
        |key: &str| !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !resource.status);
    let differs = |x: &Object, y: &Object| x.iter().any(|(k, v)| counts(k) && y.get(k) != Some(v));
    // Consumers of slices look for them by label.
    let labels = |o: &Object| metadata(o).get("labels").cloned();
    differs(a, b) || differs(b, a) || resource.group == "discovery.k8s.io" && labels(a) != labels(b)
}

/// Tells what is allowed but unwise.
pub fn warn(resource: &Resource, object: &Object, old: Option<&Object>, change: &Change) {
    if resource.group == "apiextensions.k8s.io" && change.sub.is_empty() {
        let before = old.map(crd::definition::unknown_formats).unwrap_or_default();
        for format in crd::definition::unknown_formats(object).into_iter().filter(|f| !before.contains(f)) {
            change.warn(format!("unrecognized format {}", gotext::quote(&format)));
        }
    }
    let told = match &resource.flavor {
        Flavor::Custom { .. } if !change.sub.is_empty() => Vec::new(),
        Flavor::Custom { .. } => meta::finalizer_warnings(object, old),
        Flavor::Builtin(_) => own::warnings(resource, object, old.is_none()),
    };
    told.into_iter().for_each(|w| change.warn(w));
}

/// Checks an object before it is stored; `old` is its former state. Rules that fail on what did not change are told as
/// warnings of the change.
pub fn validate(resource: &Resource, object: &Object, old: Option<&Object>, change: &Change) -> ApiResult<()> {
    let sub = change.sub.as_str();
    let mut errors = Vec::new();
    let core_event = resource.is("", "events");
    if core_event && old.is_none() {
        // Upstream looks at the rest first, and at the metadata only if that is good.
        errors = own::validate(resource, object, old, sub);
    }
    match old {
        _ if !errors.is_empty() => {}
        None => meta::validate(resource, object, &mut errors),
        Some(old) if core_event => meta::validate_changed_event(object, old, &mut errors),
        Some(old) => {
            meta::validate_update(object, old, checks_again(resource), &mut errors);
        }
    }
    managed::validate(metadata(object).get("managedFields"), &mut errors);
    match &resource.flavor {
        Flavor::Builtin(_) if resource.group == "apiextensions.k8s.io" && sub == "status" => {
            crd::definition::validate_status(object, &mut errors);
        }
        Flavor::Builtin(_) if core_event && old.is_none() => {}
        Flavor::Builtin(_) => {
            if resource.group != "apiextensions.k8s.io" && !core_event {
                meta::core_finalizers(object, &mut errors);
            }
            errors.extend(own::validate(resource, object, old, sub));
        }
        Flavor::Custom { .. } => {
            let told = crd::check::validate(resource, object, old, sub, &mut errors);
            told.into_iter().for_each(|w| change.warn(w));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Both groups of Events are one kind within, and that is the core one.
    let group = if resource.group == "events.k8s.io" { "" } else { &resource.group };
    Err(ApiError::invalid(group, &resource.kind, object::name(object), &errors))
}

/// Whether nothing keeps an object any more whose deletion has begun.
pub fn may_go(resource: &Resource, object: &Object) -> bool {
    let held = resource.is("", "namespaces")
        && !object::strings(object.get("spec").and_then(|s| s.get("finalizers"))).is_empty();
    is_deleting(object) && object::finalizers(object).is_empty() && !held
}
