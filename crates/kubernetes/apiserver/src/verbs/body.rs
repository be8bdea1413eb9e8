//! The body of a create, an update or a question as an object: read, found to be of the wanted kind, decoded, and what a
//! strict decoder says of it told or refused.
//!
//! Follows `runtime/serializer` of apimachinery, `transformDecodeError` of apiserver, and for custom resources the
//! decoders in `customresource_handler.go` of apiextensions-apiserver.

use core_kinds::protobuf::{self, BadBody};
use core_kinds::{Def, Defs, decode as typed};
use gojson::Node;
use serde_json::{Value, json};
use structural_schema::schema::Schema;

use super::strategy::{self, Unfit};
use crate::builtin::registered;
use crate::media;
use crate::object::{self, Object};
use crate::request::{FieldValidation, Request};
use crate::resource::{Flavor, Resource};
use crate::status::{ApiError, ApiResult, FieldError};

/// The bytes of a body that errors show.
const SHOWN: usize = 30;

/// The kind that a body must be of.
pub struct Wanted<'a> {
    /// Its group, empty for core.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Its name.
    pub kind: &'a str,
}

impl<'a> Wanted<'a> {
    /// The kind of a resource.
    pub fn of(resource: &'a Resource) -> Self {
        Self { group: &resource.group, version: &resource.version, kind: &resource.kind }
    }

    /// A body that says nothing of what it is.
    fn unrecognized(&self, why: &str, body: &[u8]) -> ApiError {
        let (kind, shown) = (self.kind, summary(body));
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
    }

    /// A body of which something is wrong besides.
    fn cannot(&self, said: &Said, why: &str) -> ApiError {
        let version = gotext::quote(&said.version);
        ApiError::bad_request(format!("{} in version {version} cannot be handled as a {}: {why}", said.kind, self.kind))
    }

    fn unfit(&self, said: &Said, why: String) -> Unfit {
        Unfit::Value { error: self.cannot(said, &why), why }
    }

    fn mismatch(&self, said: &Said) -> ApiError {
        let given = object::api_version(&said.group, &said.version);
        let own = object::api_version(self.group, self.version);
        ApiError::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({own})"
        ))
    }
}

/// What a body says it is; what it leaves out is as wanted.
#[derive(Clone)]
struct Said {
    group: String,
    version: String,
    kind: String,
}

impl Said {
    fn complete(mut self, wanted: &Wanted<'_>) -> Self {
        if self.kind.is_empty() {
            wanted.kind.clone_into(&mut self.kind);
        }
        if self.group.is_empty() && self.version.is_empty() {
            wanted.group.clone_into(&mut self.group);
            wanted.version.clone_into(&mut self.version);
        }
        if self.version.is_empty() && self.group == wanted.group {
            wanted.version.clone_into(&mut self.version);
        }
        self
    }
}

/// The object of the body, of the resource's kind and with its defaults.
pub fn object(request: &mut Request, resource: &Resource) -> ApiResult<Object> {
    let wanted = Wanted::of(resource);
    let mut object = match &resource.flavor {
        Flavor::Builtin(def) => own(request, &wanted, def)?,
        Flavor::Custom { schema, .. } => custom(request, resource, schema)?,
    };
    strategy::fill(resource, &mut object);
    Ok(object)
}

/// The object of the body as one of the server's own kinds; defaults are still to come.
pub fn own(request: &mut Request, wanted: &Wanted<'_>, def: &Def) -> ApiResult<Object> {
    let body = request.body.clone();
    let mut object = if request.content_type == media::PROTOBUF {
        let default = object::api_version(wanted.group, wanted.version);
        let object = protobuf::decode(&body, Some((&default, wanted.kind))).map_err(|e| match e {
            BadBody { kind: Some((kind, version)), text } => {
                wanted.cannot(&Said { group: String::new(), version, kind }, &text)
            }
            BadBody { kind: None, text } => wanted.unrecognized(&text, &body),
        })?;
        let said = said(&Node::of_members(&object)).map_err(|why| wanted.unrecognized(&why, &body))?.complete(wanted);
        fits(wanted, &said, &Node::of_members(&object))?;
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
        fits(wanted, &said, &node)?;
        let (object, told) = typed::read(def, &node).map_err(|why| wanted.cannot(&said, &why))?;
        let strict: Vec<String> = doubled.into_iter().chain(told.iter().map(ToString::to_string)).collect();
        request.tell(strict).map_err(|why| wanted.cannot(&said, &why))?;
        if said.version != wanted.version || said.group != wanted.group {
            return Err(wanted.mismatch(&said));
        }
        object
    };
    object.insert("apiVersion".into(), json!(object::api_version(wanted.group, wanted.version)));
    object.insert("kind".into(), json!(wanted.kind));
    Ok(object)
}

/// Refuses an object that says to be of another kind or version than the resource's.
pub fn identify(resource: &Resource, object: &Object) -> Result<(), Unfit> {
    let (wanted, node) = (Wanted::of(resource), Node::of_members(object));
    let said = said(&node).map_err(|why| wanted.unrecognized(&why, b""))?.complete(&wanted);
    fits(&wanted, &said, &node)?;
    if said.version == wanted.version && said.group == wanted.group {
        Ok(())
    } else {
        Err(wanted.mismatch(&said).into())
    }
}

/// The options of a deletion. The error is the bare text of the decoder's.
pub fn options(request: &Request) -> Result<Object, String> {
    let body = &request.body;
    if request.content_type == media::PROTOBUF {
        return protobuf::decode(body, Some(("v1", "DeleteOptions"))).map_err(|e| e.text);
    }
    let yaml;
    let node = if request.content_type == "application/yaml" {
        yaml = gojson::from_yaml(body)?;
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
    Ok(typed::read(def, &node)?.0)
}

/// A body in JSON; other forms are refused.
fn parsed<'b>(request: &Request, wanted: &Wanted<'_>, body: &'b [u8]) -> ApiResult<Node<'b>> {
    media::readable(&request.content_type)?;
    gojson::parse(body)
        .map_err(|why| wanted.unrecognized(&format!("couldn't get version/kind; json parse error: {why}"), body))
}

/// What a document says it is. Go's own decoder reads this: for it keys are the same in upper and lower case.
fn said(node: &Node<'_>) -> Result<Said, String> {
    let failed =
        |why: String| Err(format!("couldn't get version/kind; json parse error: json: cannot unmarshal {why}"));
    let (mut version, mut kind) = (String::new(), String::new());
    match node {
        Node::Null => {}
        Node::Object(members) => {
            let mut wrong = None;
            for (key, value) in members {
                let (field, into) = match key.to_ascii_lowercase().as_str() {
                    "apiversion" => ("apiVersion", &mut version),
                    "kind" => ("kind", &mut kind),
                    _ => continue,
                };
                match value {
                    Node::Null => {}
                    Node::String(text) => text.as_ref().clone_into(into),
                    other => {
                        let of = other.kind();
                        wrong.get_or_insert_with(|| format!("{of} into Go struct field .{field} of type string"));
                    }
                }
            }
            if let Some(why) = wrong {
                return failed(why);
            }
        }
        other => {
            let ty = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
            return failed(format!("{} into Go value of type {ty}", other.kind()));
        }
    }
    let (group, version) = match version.split_once('/') {
        Some(("", "")) => (String::new(), String::new()),
        Some((_, rest)) if rest.contains('/') => return Err(format!("unexpected GroupVersion string: {version}")),
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), version),
    };
    Ok(Said { group, version, kind })
}

/// Another kind than the wanted one is refused, in the way in which upstream stumbles over it.
fn fits(wanted: &Wanted<'_>, said: &Said, node: &Node<'_>) -> Result<(), Unfit> {
    if said.kind == wanted.kind && said.group == wanted.group && said.version == wanted.version {
        return Ok(());
    }
    let api_version = object::api_version(&said.group, &said.version);
    if !registered::known(wanted.group, &said.group, &said.version, &said.kind) {
        let (kind, version) = (gotext::quote(&said.kind), gotext::quote(&api_version));
        let why = format!("no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:110\"");
        return Err(wanted.unfit(said, why));
    }
    if registered::same((wanted.group, wanted.kind), (&said.group, &said.kind)) {
        // Another form of what is wanted, of the same or another group: refused once it is decoded.
        return Ok(());
    }
    if let Some(def) = Defs::get().kind(&said.group, &said.version, &said.kind) {
        typed::read(def, node).map_err(|why| wanted.unfit(said, why))?;
    }
    let (version, kind, own) = (&said.version, &said.kind, wanted.kind);
    let package = registered::package(wanted.group, wanted.kind);
    Err(wanted.unfit(said, format!("converting ({version}.{kind}) to ({package}.{own}): unknown conversion")))
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
            // Every version of the definition has its schema; for one that there is not, nothing is known.
            other = Schema::default();
            Some(&other)
        }
        None => None,
    };
    strategy::shape(schema, &mut object, &mut unknown).map_err(|why| wanted.cannot(&said, &why))?;
    strict.extend(unknown.iter().map(|p| format!("unknown field \"{p}\"")));
    request.tell(strict).map_err(|why| wanted.cannot(&said, &why))?;
    if said.version != resource.version || said.group != resource.group {
        return Err(wanted.mismatch(&said));
    }
    if said.kind != resource.kind {
        let error = FieldError::invalid("kind", &json!(said.kind), format!("must be {}", resource.kind));
        return Err(ApiError::invalid(&resource.group, &said.kind, object::name(&object), &[error]));
    }
    Ok(object)
}

/// An object that says its kind, and what it says; here nothing is assumed, and keys are what they are.
fn kinded(value: Value) -> Option<(Object, Said)> {
    let Value::Object(object) = value else { return None };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let said = Said { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() };
    if said.kind.is_empty() { None } else { Some((object, said)) }
}

/// The beginning of a body: its text if it looks like JSON, else in hexadecimal.
fn summary(body: &[u8]) -> String {
    use std::fmt::Write as _;
    let (start, more) = (&body[..body.len().min(SHOWN)], if body.len() > SHOWN { " ..." } else { "" });
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut text = String::with_capacity(2 * SHOWN + 4);
            for byte in start {
                let _ = write!(text, "{byte:02x}");
            }
            text + more
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, String, String), String> {
        said(&gojson::parse(text.as_bytes()).unwrap()).map(|s| (s.group, s.version, s.kind))
    }

    #[test]
    fn what_a_body_is_shows_in_any_case_of_its_keys() {
        let core = |version: &str, kind: &str| Ok((String::new(), version.to_owned(), kind.to_owned()));
        assert_eq!(read(r#"{"APIVERSION":"v1","Kind":"A","kind":null}"#), core("v1", "A"));
        assert_eq!(read("null"), core("", ""));
        assert_eq!(read(r#"{"apiVersion":"/"}"#), core("", ""));
        assert_eq!(read(r#"{"apiVersion":"g/v1"}"#), Ok(("g".to_owned(), "v1".to_owned(), String::new())));
        assert_eq!(read(r#"{"apiVersion":"a/b/c"}"#).unwrap_err(), "unexpected GroupVersion string: a/b/c");
        let told = read(r#"{"kind":5,"apiVersion":[]}"#).unwrap_err();
        assert_eq!(
            told,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"
        );
    }

    #[test]
    fn bodies_are_shown_as_text_or_bytes() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"[]"), "5b5d");
        assert_eq!(summary(b"{"), "{");
        assert_eq!(summary(&[b'{'; 31]), format!("{} ...", "{".repeat(30)));
        assert_eq!(summary(&[0xff; 31]), format!("{} ...", "ff".repeat(30)));
    }
}
