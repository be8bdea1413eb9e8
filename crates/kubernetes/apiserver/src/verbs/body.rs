//! The body of a create, an update or a review as an object: parsed, checked for its kind and decoded. Strict
//! decoding errors become warnings or refusals.
//!
//! Follows `runtime/serializer` of apimachinery, `transformDecodeError` of apiserver, and for custom resources the
//! decoders in `customresource_handler.go` of apiextensions-apiserver.

use core_kinds::protobuf::{self, BadBody};
use core_kinds::{Def, Defs, decode as typed};
use gojson::Node;
use serde_json::{Value, json};
use structural_schema::schema::Schema;

use crate::decode::kind::{Said, Wanted, check_kind, said};
use crate::decode::{fill, shape};
use crate::media;
use crate::object::{self, Object};
use crate::request::{FieldValidation, Request};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// The object of the body, of the resource's kind and with its defaults.
pub fn object(request: &mut Request, resource: &Resource) -> ApiResult<Object> {
    let wanted = Wanted::of(resource);
    let mut object = match &resource.flavor {
        Flavor::Builtin(def) => decode_builtin(request, &wanted, def)?,
        Flavor::Custom { schema, .. } => custom(request, resource, schema)?,
    };
    fill(resource, &mut object);
    Ok(object)
}

/// The object of the body as a built-in kind, before defaulting.
pub fn decode_builtin(request: &mut Request, wanted: &Wanted<'_>, def: &Def) -> ApiResult<Object> {
    let body = request.body.clone();
    let mut object = if request.content_type == media::PROTOBUF {
        let default = object::api_version(wanted.group, wanted.version);
        let object = protobuf::decode(&body, Some((&default, wanted.kind))).map_err(|e| match e {
            BadBody { kind: Some((kind, version)), why } => {
                wanted.cannot(&Said { group: String::new(), version, kind }, &why)
            }
            BadBody { kind: None, why } => wanted.unrecognized(&why, &body),
        })?;
        let said = said(&Node::of_members(&object)).map_err(|why| wanted.unrecognized(&why, &body))?.complete(wanted);
        check_kind(wanted, &said, &Node::of_members(&object))?;
        object
    } else {
        let yaml;
        let (node, doubled) = match request.content_type.as_str() {
            "application/yaml" => {
                yaml = gojson::from_yaml(&body).map_err(|why| wanted.unrecognized(&why, &body))?;
                (Node::of(&yaml.value), yaml.doubled.clone())
            }
            _ => (parsed(request, wanted, &body)?, None),
        };
        let said = said(&node).map_err(|why| wanted.unrecognized(&why, &body))?.complete(wanted);
        check_kind(wanted, &said, &node)?;
        let (object, errors) = typed::read(def, &node).map_err(|why| wanted.cannot(&said, &why))?;
        let strict: Vec<String> = doubled.into_iter().chain(errors.iter().map(ToString::to_string)).collect();
        request.report_strict_errors(strict).map_err(|why| wanted.cannot(&said, &why))?;
        if said.version != wanted.version || said.group != wanted.group {
            return Err(wanted.mismatch(&said));
        }
        object
    };
    object.insert("apiVersion".into(), json!(object::api_version(wanted.group, wanted.version)));
    object.insert("kind".into(), json!(wanted.kind));
    Ok(object)
}

/// The options of a deletion. The error is the decoder's bare text, which the client gets as it is.
pub fn options(request: &Request) -> Result<Object, String> {
    let body = &request.body;
    if request.content_type == media::PROTOBUF {
        return protobuf::decode(body, Some(("v1", "DeleteOptions"))).map_err(|bad| bad.why.to_string());
    }
    let yaml;
    let node = if request.content_type == "application/yaml" {
        yaml = gojson::from_yaml(body).map_err(|why| why.to_string())?;
        Node::of(&yaml.value)
    } else {
        gojson::parse(body).map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?
    };
    let said = said(&node)?;
    if !matches!(said.kind.as_str(), "DeleteOptions" | "") {
        let version = object::api_version(&said.group, &said.version);
        let (kind, version) = (gotext::quote(&said.kind), gotext::quote(&version));
        return Err(format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:110\""
        ));
    }
    let def = Defs::get().kind("", "v1", "DeleteOptions").ok_or("no options")?;
    Ok(typed::read(def, &node).map_err(|why| why.to_string())?.0)
}

/// A body in JSON; other forms are refused.
fn parsed<'b>(request: &Request, wanted: &Wanted<'_>, body: &'b [u8]) -> ApiResult<Node<'b>> {
    media::readable(&request.content_type)?;
    gojson::parse(body)
        .map_err(|why| wanted.unrecognized(format!("couldn't get version/kind; json parse error: {why}"), body))
}

/// The object of the body as a custom resource.
fn custom(request: &mut Request, resource: &Resource, schema: &Schema) -> ApiResult<Object> {
    let wanted = Wanted::of(resource);
    let body = request.body.clone();
    if request.content_type == media::PROTOBUF {
        let why = "object *unstructured.Unstructured does not implement the protobuf marshalling interface and cannot \
                   be encoded to a protobuf message";
        let said = Said { group: String::new(), version: wanted.version.to_owned(), kind: wanted.kind.to_owned() };
        return Err(wanted.cannot(&said, why));
    }
    let yaml;
    let (node, mut strict) = if request.content_type == "application/yaml" {
        yaml = gojson::from_yaml(&body).map_err(|why| wanted.unrecognized(&why, &body))?;
        (Node::of(&yaml.value), yaml.doubled.clone().into_iter().collect())
    } else {
        (parsed(request, &wanted, &body)?, Vec::new())
    };
    let assumed = said(&node).map_err(|why| wanted.unrecognized(&why, &body))?.complete(&wanted);
    let (value, twice) = node.to_value().map_err(|why| wanted.cannot(&assumed, &why))?;
    strict.extend(twice.iter().map(|p| format!("duplicate field {}", gotext::quote(p))));
    let Some((mut object, said)) = kinded(value) else {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(&body));
        let lenient = request.field_validation() == FieldValidation::Ignore;
        return Err(if lenient { wanted.cannot(&assumed, &why) } else { wanted.unrecognized(&why, &body) });
    };
    let mut unknown = Vec::new();
    let same_kind = said.group == resource.group && said.kind == resource.kind;
    let other;
    let schema = match same_kind.then_some(said.version == resource.version) {
        Some(true) => Some(schema),
        Some(false) => {
            // Another version than the request's: decoded with an empty schema here, refused as a mismatch below.
            other = Schema::default();
            Some(&other)
        }
        None => None,
    };
    shape(schema, &mut object, &mut unknown).map_err(|why| wanted.cannot(&said, &why))?;
    strict.extend(unknown.iter().map(|p| format!("unknown field \"{p}\"")));
    request.report_strict_errors(strict).map_err(|why| wanted.cannot(&said, &why))?;
    if said.version != resource.version || said.group != resource.group {
        return Err(wanted.mismatch(&said));
    }
    if said.kind != resource.kind {
        let error = FieldError::invalid("kind", &json!(said.kind), format!("must be {}", resource.kind));
        return Err(ApiError::invalid(&resource.group, &said.kind, object::name(&object), &[error]));
    }
    Ok(object)
}

/// The object with its group, version and kind; `None` without a kind. Nothing is defaulted, and keys match exactly.
fn kinded(value: Value) -> Option<(Object, Said)> {
    let Value::Object(object) = value else { return None };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let said = Said { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() };
    if said.kind.is_empty() { None } else { Some((object, said)) }
}
