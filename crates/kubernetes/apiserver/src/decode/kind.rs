//! The kind that a body must have, and the kind that it declares.
//!
//! Follows `runtime/serializer` of apimachinery and `transformDecodeError` of apiserver.

use std::fmt::Display;

use core_kinds::{Defs, decode as typed};
use gojson::Node;

use crate::object::{self, Object};
use crate::registered;
use crate::resource::Resource;
use crate::status::ApiError;

/// Bytes of a body that errors quote.
const MAX_QUOTED: usize = 30;

/// The kind that a body must have.
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

    /// The error for a body whose kind cannot be determined.
    pub fn unrecognized(&self, why: impl Display, body: &[u8]) -> ApiError {
        let (kind, printed) = (self.kind, summary(body));
        ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({printed})"
        ))
    }

    /// The error for a body that cannot be decoded.
    pub fn cannot(&self, said: &Said, why: impl Display) -> ApiError {
        let version = gotext::quote(&said.version);
        ApiError::bad_request(format!("{} in version {version} cannot be handled as a {}: {why}", said.kind, self.kind))
    }

    /// The error for a body with an invalid value.
    fn unfit(&self, said: &Said, why: impl Display) -> Unfit {
        Unfit::Value { error: self.cannot(said, &why), why: why.to_string() }
    }

    /// The error for a body of another version.
    pub fn mismatch(&self, said: &Said) -> ApiError {
        let given = object::api_version(&said.group, &said.version);
        let expected = object::api_version(self.group, self.version);
        ApiError::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        ))
    }
}

/// The kind that a body declares, with defaults for what it omits.
#[derive(Clone)]
pub struct Said {
    /// Its group, empty for core.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Its kind.
    pub kind: String,
}

impl Said {
    /// Fills in what is omitted from `wanted`.
    pub fn complete(mut self, wanted: &Wanted<'_>) -> Self {
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

/// Why an object does not match its kind.
pub enum Unfit {
    /// One of its values is invalid.
    Value {
        /// The decoder's text, for the client alone.
        why: String,
        /// The error for a request with this body.
        error: ApiError,
    },
    /// It is an object of another kind or version.
    Other(ApiError),
}

impl Unfit {
    /// The error for an invalid value in an object of this resource.
    pub fn value(resource: &Resource, why: impl Display) -> Self {
        let (kind, version) = (&resource.kind, &resource.version);
        let text = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}");
        Self::Value { why: why.to_string(), error: ApiError::bad_request(text) }
    }

    /// The bare text, without the part about a request's body.
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

/// Refuses an object that declares another kind or version than the resource's.
pub fn identify(resource: &Resource, object: &Object) -> Result<(), Unfit> {
    let (wanted, node) = (Wanted::of(resource), Node::of_members(object));
    let said = said(&node).map_err(|why| wanted.unrecognized(&why, b""))?.complete(&wanted);
    check_kind(&wanted, &said, &node)?;
    if said.version == wanted.version && said.group == wanted.group {
        Ok(())
    } else {
        Err(wanted.mismatch(&said).into())
    }
}

/// What a document says it is. Go's own decoder reads this: for it keys are the same in upper and lower case.
pub fn said(node: &Node<'_>) -> Result<Said, String> {
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

/// Refuses another kind than the wanted one, with the error at which upstream fails.
pub fn check_kind(wanted: &Wanted<'_>, said: &Said, node: &Node<'_>) -> Result<(), Unfit> {
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
        // Another version of the wanted kind, possibly of another group: refused after decoding.
        return Ok(());
    }
    if let Some(def) = Defs::get().kind(&said.group, &said.version, &said.kind) {
        typed::read(def, node).map_err(|why| wanted.unfit(said, why))?;
    }
    let (version, kind, target) = (&said.version, &said.kind, wanted.kind);
    let package = registered::package(wanted.group, wanted.kind);
    Err(wanted.unfit(said, format!("converting ({version}.{kind}) to ({package}.{target}): unknown conversion")))
}

/// The beginning of a body: text if it looks like JSON, else hexadecimal.
fn summary(body: &[u8]) -> String {
    use std::fmt::Write as _;
    let (start, more) = (&body[..body.len().min(MAX_QUOTED)], if body.len() > MAX_QUOTED { " ..." } else { "" });
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let mut text = String::with_capacity(2 * MAX_QUOTED + 4);
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
        let error = read(r#"{"kind":5,"apiVersion":[]}"#).unwrap_err();
        assert_eq!(
            error,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string"
        );
    }

    #[test]
    fn bodies_are_quoted_as_text_or_bytes() {
        assert_eq!(summary(b""), "<empty>");
        assert_eq!(summary(b"[]"), "5b5d");
        assert_eq!(summary(b"{"), "{");
        assert_eq!(summary(&[b'{'; 31]), format!("{} ...", "{".repeat(30)));
        assert_eq!(summary(&[0xff; 31]), format!("{} ...", "ff".repeat(30)));
    }
}
