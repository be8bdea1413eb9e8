//! Lenient reading of BMCs' JSON.

use std::io::Read as _;

use serde_json::Value;
use url::Url;

use crate::transport::MAX_BODY;
use terms::clean;

/// Longest text taken from one field, characters.
pub const MAX_FIELD: usize = 300;

/// Longest resource path, bytes.
const MAX_PATH: usize = 1024;
/// Most members that are looked at in a collection.
pub const MAX_MEMBERS: usize = 128;
/// Most values of one answer, and of all that is kept of a collection's pages. The answer with the most among those recorded, a log of HPE's, has 3,700.
pub const MAX_VALUES: usize = 100_000;
/// Bytes of a text that count as another value.
const BYTES_A_VALUE: usize = 64;

/// The values within this one, and itself.
pub fn weight(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() / BYTES_A_VALUE + weight(value)).sum(),
        Value::String(text) => text.len() / BYTES_A_VALUE,
        _ => 0,
    }
}

/// A text field, cleaned; `None` when absent, empty or not text.
pub fn text(value: &Value, field: &str) -> Option<String> {
    let text = clean(value.get(field)?.as_str()?, MAX_FIELD);
    (!text.is_empty()).then_some(text)
}

/// A field compared as an enum member: text without change, `None` when absent.
pub fn word<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// A Boolean field; some BMCs write it as text.
pub fn flag(value: &Value, field: &str) -> Option<bool> {
    match value.get(field)? {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A list of texts, bounded; a single text counts as a list of one.
pub fn words(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).take(MAX_MEMBERS).map(|item| clean(item, 100)).collect()
        }
        Some(Value::String(item)) => vec![clean(item, 100)],
        _ => Vec::new(),
    }
}

/// The path that a link points to: `{"@odata.id": "/redfish/v1/…"}`.
pub fn link(value: &Value) -> Option<String> {
    path_only(value.get("@odata.id").or_else(|| value.get("@odata.Id")).unwrap_or(value).as_str()?)
}

/// A field that is a link.
pub fn link_at(value: &Value, field: &str) -> Option<String> {
    link(value.get(field)?)
}

/// The links of a collection, or of a list.
pub fn links(list: Option<&Value>) -> Vec<String> {
    let Some(Value::Array(items)) = list else { return Vec::new() };
    items.iter().take(MAX_MEMBERS).filter_map(link).collect()
}

/// The path of a link or `Location`, which may be a whole URL: requests always go to the BMC's own address, so the host in it is ignored.
/// `None` when it is not a clean absolute path.
pub fn path_only(text: &str) -> Option<String> {
    if text.len() > MAX_PATH * 2 {
        return None;
    }
    let path = match text.split_once("://") {
        Some(("http" | "https", rest)) => &rest[rest.find('/')?..],
        Some(_) => return None,
        None => text,
    };
    let path = path.split('#').next().unwrap_or(path);
    let clean = path.starts_with('/')
        && !path.starts_with("//")
        && path.len() <= MAX_PATH
        && path.bytes().all(|b| {
            b.is_ascii_graphic() && !matches!(b, b'\\' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'|' | b'^')
        })
        && !path.split(['/', '?']).any(|segment| segment == ".." || segment == ".");
    clean.then(|| path.to_owned())
}

/// Most relative links of an answer that are made absolute.
const MAX_LINKS: usize = 4096;

/// Fields that hold links.
const LINKS: [&str; 6] =
    ["@odata.id", "@odata.Id", "target", "Members@odata.nextLink", "@Redfish.ActionInfo", "TaskMonitor"];

/// The absolute path of a link that is relative to the resource at `base` (RFC 3986, section 5); `None` if it is already absolute. For a path that
/// only lacks its first slash, `redfish/v1/…`, adds it.
pub fn absolute(base: &str, link: &str) -> Option<String> {
    if is_relative(link) { joined(&here(base)?, link) } else { None }
}

fn is_relative(link: &str) -> bool {
    !link.is_empty() && !link.starts_with(['/', '#', '?']) && link.len() <= MAX_PATH
}

/// The resource as a whole URL, for joining.
fn here(base: &str) -> Option<Url> {
    Url::parse("http://bmc.invalid").ok()?.join(base).ok()
}

/// Whether a link under this field starts below the resource itself, not beside it: `"VirtualMedia"` of the field VirtualMedia, `"Actions/…"`. RFC
/// 3986 requires the resource's own last segment first; some BMCs omit it.
fn is_below(here: &Url, field: &str, link: &str) -> bool {
    let first = link.split(['/', '?', '#']).next().unwrap_or_default();
    let last = here.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    (first == field || first == "Actions") && first != last
}

fn joined(here: &Url, link: &str) -> Option<String> {
    if link.starts_with("redfish/") {
        return path_only(&format!("/{link}"));
    }
    let there = here.join(link).ok()?;
    if there.origin() != here.origin() {
        return None;
    }
    let query = there.query().map(|query| format!("?{query}")).unwrap_or_default();
    path_only(&format!("{}{query}", there.path()))
}

/// Makes the links of a resource absolute, as many as a resource of a sound BMC can have.
pub fn make_absolute(base: &str, value: &mut Value) {
    let Some(here) = here(base) else { return };
    let mut below = here.clone();
    below.set_path(&format!("{}/", here.path().trim_end_matches('/')));
    let mut left = MAX_LINKS;
    walk([&here, &below], "", value, &mut left);
}

fn walk(bases: [&Url; 2], field: &str, value: &mut Value, left: &mut usize) {
    let [here, below] = bases;
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| walk(bases, field, item, left)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let relative = value.as_str().filter(|link| LINKS.contains(&name.as_str()) && is_relative(link));
                let Some(link) = relative.filter(|_| *left > 0) else {
                    walk(bases, name, value, left);
                    continue;
                };
                *left -= 1;
                let base = if is_below(here, field, link) { below } else { here };
                if let Some(path) = joined(base, link) {
                    *value = path.into();
                }
            }
        }
        _ => {}
    }
}

/// What a body in gzip's form (RFC 1952) holds, up to the size of an answer; any other body as it is. Some BMCs keep registries compressed, and send
/// them so whatever they are asked for.
pub fn unzipped(body: Vec<u8>) -> Vec<u8> {
    if !body.starts_with(&[0x1F, 0x8B]) {
        return body;
    }
    let mut out = Vec::new();
    let limit = u64::try_from(MAX_BODY).unwrap_or(u64::MAX).saturating_add(1);
    let read = flate2::read::GzDecoder::new(body.as_slice()).take(limit).read_to_end(&mut out);
    if read.is_ok() && out.len() <= MAX_BODY { out } else { body }
}

/// Cleans a body into valid JSON encoding (RFC 8259, 8.1): UTF-8, without the leading byte order mark or the trailing zeros that some BMCs send. A
/// byte that is not UTF-8 is read as Latin-1, so that one name typed in by a person does not make the whole body unreadable.
pub fn plain(body: Vec<u8>) -> Vec<u8> {
    let marked = body.starts_with(b"\xEF\xBB\xBF");
    let end = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if !marked && end == body.len() && std::str::from_utf8(&body).is_ok() {
        return body;
    }
    let text = body.get(if marked { 3 } else { 0 }..end).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|byte| char::from(*byte)));
    }
    out.into_bytes()
}

/// Whether two paths name the same resource: a slash at the end does not count.
pub fn same_path(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}

/// The target of an action.
pub fn action(value: &Value, name: &str) -> Option<String> {
    path_only(value.get("Actions")?.get(name)?.get("target")?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_weigh_as_many_values() {
        let long = "x".repeat(100 * BYTES_A_VALUE);
        assert_eq!(weight(&serde_json::json!({"a": [1, "b"]})), 4);
        assert_eq!(weight(&serde_json::json!({"a": long})), 102);
        assert_eq!(weight(&serde_json::json!({ long: 1 })), 102);
    }

    #[test]
    fn links_never_leave_the_bmc() {
        assert_eq!(path_only("https://evil.example/redfish/v1/x").as_deref(), Some("/redfish/v1/x"));
        assert_eq!(path_only("/a#/b/0").as_deref(), Some("/a"));
        for bad in ["", "a", "//evil/x", "ftp://x/y", "https://x", "/a/../b", "/a b", "/a\r\nX: y", "/a\\b"] {
            assert_eq!(path_only(bad), None, "{bad:?}");
        }
        assert_eq!(path_only(&format!("/{}", "a".repeat(2000))), None);
    }

    #[test]
    fn links_that_leave_out_their_resource_begin_below_it() {
        let mut system = serde_json::json!({
            "VirtualMedia": { "@odata.id": "VirtualMedia" },
            "Bios": { "@odata.id": "1/Bios" },
            "Links": { "ManagedBy": [{ "@odata.id": "../Managers/BMC" }], "Chassis": [{ "@odata.id": "2" }] },
            "Actions": {
                "#ComputerSystem.Reset": { "target": "Actions/ComputerSystem.Reset" },
                "Oem": { "#X.Y": { "target": "1/Actions/X.Y" } },
            },
        });
        make_absolute("/redfish/v1/Systems/1", &mut system);
        for (place, path) in [
            ("/VirtualMedia/@odata.id", "/redfish/v1/Systems/1/VirtualMedia"),
            ("/Bios/@odata.id", "/redfish/v1/Systems/1/Bios"),
            ("/Links/ManagedBy/0/@odata.id", "/redfish/v1/Managers/BMC"),
            ("/Links/Chassis/0/@odata.id", "/redfish/v1/Systems/2"),
            ("/Actions/#ComputerSystem.Reset/target", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"),
            ("/Actions/Oem/#X.Y/target", "/redfish/v1/Systems/1/Actions/X.Y"),
        ] {
            assert_eq!(system.pointer(place).unwrap(), path, "{place}");
        }
        let mut systems = serde_json::json!({ "Systems": { "@odata.id": "Systems" } });
        make_absolute("/redfish/v1/Systems", &mut systems);
        assert_eq!(systems["Systems"]["@odata.id"], "/redfish/v1/Systems", "its own last segment is no folder");
    }

    #[test]
    fn bodies_become_utf_8_without_marks_and_zeros() {
        for (body, plain_text) in [
            (&b"{\"a\":1}"[..], "{\"a\":1}"),
            (b"\xEF\xBB\xBF{}", "{}"),
            (b"{}\0\0\0", "{}"),
            (b"\xEF\xBB\xBF{}\n\0", "{}\n"),
            (b"\"Schrank f\xFCr T\xC3\xBCren\"", "\"Schrank für Türen\""),
            (b"\0\0", ""),
            (b"", ""),
        ] {
            assert_eq!(String::from_utf8(plain(body.to_vec())).unwrap(), plain_text);
        }
        // UTF-16 stays invalid.
        let utf16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(serde_json::from_slice::<Value>(&plain(utf16)).is_err());
    }

    #[test]
    fn relative_links_are_relative_to_their_resource() {
        let base = "/redfish/v1/Systems/1";
        for (link, path) in [
            ("2", Some("/redfish/v1/Systems/2")),
            ("1/Bios?x=y#z", Some("/redfish/v1/Systems/1/Bios?x=y")),
            ("../Managers", Some("/redfish/v1/Managers")),
            ("../../../../../etc", Some("/etc")),
            ("redfish/v1/Chassis", Some("/redfish/v1/Chassis")),
            ("/redfish/v1", None),
            ("//evil/x", None),
            ("https://evil/x", None),
            ("mailto:x", None),
            ("", None),
        ] {
            assert_eq!(absolute(base, link).as_deref(), path, "{link:?}");
        }
    }
}
