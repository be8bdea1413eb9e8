//! Kubernetes' protobuf: converts core kinds, their lists, Status, options and PartialObjectMetadata between JSON and the wire.
//!
//! A body is `k8s\0` and a `runtime.Unknown`: kind and version, then the message. `kinds.txt` has the field numbers. Like upstream's generated code,
//! always writes fields that Go holds by value, writes lists and maps if they are not empty, and sorts map keys: the bytes are the same.

mod discovery;
mod read;
mod shape;
mod wire;
mod write;

use serde_json::{Value, json};

use crate::{Def, Defs, Object};
use wire::{Reader, Wire, put_bytes, utf8, wrong_wire};

pub use wire::WireError;

const MAGIC: &[u8] = b"k8s\0";

/// A body that cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct BadBody {
    /// Kind and version, if the body's head could be read.
    pub kind: Option<(String, String)>,
    /// Why it cannot.
    pub why: BodyFault,
}

/// Why a body cannot be read, in the words of upstream's decoder.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BodyFault {
    /// There is nothing.
    #[error("empty data")]
    Empty,
    /// It does not begin as such a body does.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// Nothing follows that beginning.
    #[error("empty body")]
    EmptyBody,
    /// It names a kind that has no protobuf form.
    #[error("no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:110\"")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Group and version.
        api_version: String,
    },
    /// Its bytes are no messages.
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<BodyFault> for BadBody {
    fn from(why: BodyFault) -> Self {
        Self { kind: None, why }
    }
}

impl From<WireError> for BadBody {
    fn from(why: WireError) -> Self {
        BodyFault::from(why).into()
    }
}

/// The object of a body; version and kind are `default`'s if the body names none.
pub fn decode(body: &[u8], default: Option<(&str, &str)>) -> Result<Object, BadBody> {
    if body.is_empty() {
        return Err(BodyFault::Empty.into());
    }
    let rest = body.strip_prefix(MAGIC).ok_or(BodyFault::NoPrefix)?;
    if rest.is_empty() {
        return Err(BodyFault::EmptyBody.into());
    }
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Reader::new(rest, "Unknown") {
        match entry? {
            (1, Wire::Bytes(meta)) => {
                for entry in Reader::new(meta, "TypeMeta") {
                    match entry? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        (1, wire) => return Err(wrong_wire(&wire, "APIVersion").into()),
                        (2, wire) => return Err(wrong_wire(&wire, "Kind").into()),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (1, wire) => return Err(wrong_wire(&wire, "TypeMeta").into()),
            (2, wire) => return Err(wrong_wire(&wire, "Raw").into()),
            _ => {}
        }
    }
    if let Some((version, name)) = default {
        if api_version.is_empty() {
            version.clone_into(&mut api_version);
        }
        if kind.is_empty() {
            name.clone_into(&mut kind);
        }
    }
    let version = api_version.rsplit('/').next().unwrap_or_default().to_owned();
    let bad = |why: BodyFault| BadBody { kind: Some((kind.clone(), version.clone())), why };
    let unknown = || BodyFault::UnknownKind { kind: kind.clone(), api_version: api_version.clone() };
    let def = def_of(&api_version, &kind).ok_or_else(|| bad(unknown()))?;
    let mut object = read::message(def, raw).map_err(|why| bad(why.into()))?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(object)
}

/// The definition of a kind that has a protobuf form. Options are the same in every group.
fn def_of(api_version: &str, kind: &str) -> Option<&'static Def> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let defs = Defs::get();
    let def = match kind {
        "APIVersions" | "DeleteOptions" | "Status" => defs.kind("", "v1", kind),
        "PartialObjectMetadata" => defs.kind("meta.k8s.io", "v1", kind),
        _ => defs.kind(group, version, kind),
    };
    def.filter(|d| d.fields.iter().any(|f| !f.path.is_empty()))
}

/// The body of an object or a list; `None` if the kind has no protobuf form.
pub fn encode(value: &Value) -> Option<Vec<u8>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let object = value.as_object()?;
    let raw = match def_of(api_version, kind) {
        Some(def) => write::message(def, object),
        None if kind == "APIGroupDiscoveryList" => discovery::list(value)?,
        None => list(def_of(api_version, kind.strip_suffix("List")?)?, object, kind, api_version)?,
    };
    Some(envelope(api_version, kind, &raw))
}

fn list(item: &'static Def, object: &Object, kind: &str, api_version: &str) -> Option<Vec<u8>> {
    let meta = Defs::get().def("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")?;
    // The v1beta1 version of this list has its two fields swapped.
    let swapped = kind == "PartialObjectMetadataList" && api_version.ends_with("/v1beta1");
    let (meta_at, items_at) = if swapped { (2, 1) } else { (1, 2) };
    let empty = Object::new();
    let head = write::message(meta, object.get("metadata").and_then(Value::as_object).unwrap_or(&empty));
    let mut out = Vec::new();
    if !swapped {
        put_bytes(&mut out, meta_at, &head);
    }
    for one in object.get("items").and_then(Value::as_array).into_iter().flatten() {
        put_bytes(&mut out, items_at, &write::message(item, one.as_object().unwrap_or(&empty)));
    }
    if swapped {
        put_bytes(&mut out, meta_at, &head);
    }
    Some(out)
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Vec::new();
    put_bytes(&mut meta, 1, api_version.as_bytes());
    put_bytes(&mut meta, 2, kind.as_bytes());
    let mut out = Vec::with_capacity(raw.len() + meta.len() + 24);
    out.extend_from_slice(MAGIC);
    put_bytes(&mut out, 1, &meta);
    put_bytes(&mut out, 2, raw);
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

/// A frame of a watch: its length in four bytes, then a `WatchEvent` with the object's whole body.
pub fn frame(kind: &str, object: &Value) -> Option<Vec<u8>> {
    let body = encode(object)?;
    let mut raw = Vec::with_capacity(body.len() + 8);
    put_bytes(&mut raw, 1, &body);
    let mut event = Vec::with_capacity(raw.len() + 24);
    put_bytes(&mut event, 1, kind.as_bytes());
    put_bytes(&mut event, 2, &raw);
    let mut out = u32::try_from(event.len()).ok()?.to_be_bytes().to_vec();
    out.append(&mut event);
    Some(out)
}

#[cfg(test)]
mod tests;
