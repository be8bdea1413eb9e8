//! The entries of `metadata.managedFields`: parsed, validated, sorted, capped and encoded (apimachinery
//! `util/managedfields/internal`: `managedfields.go` and `capmanagers.go`).

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use structured_merge::Set;

use crate::change::Change;
use crate::object::{Object, metadata, metadata_mut};
use crate::status::{FieldError, FieldErrorKind};

/// Most update entries before the oldest are merged.
const MAX_UPDATERS: usize = 10;
/// Manager of merged entries.
const ANCIENT: &str = "ancient-changes";
/// Longest name of a manager, in bytes.
pub const MAX_MANAGER: usize = 128;
/// Longest name of a subresource in an entry, in bytes.
const MAX_SUBRESOURCE: usize = 256;
/// Limit of repetitions of a manager's name in errors, in bytes: each error contains the whole name.
const MAX_REPEATED: usize = 64 << 10;

/// How a manager got its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields of an entry, parsed only when needed.
#[derive(Debug, Clone)]
pub enum Fields {
    /// As stored.
    Raw(Value),
    /// Parsed.
    Set(Set),
}

/// One manager's fields.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Name of the manager.
    pub manager: String,
    /// How it got them.
    pub operation: Operation,
    /// Version that the names of the fields are of.
    pub api_version: String,
    /// Subresource that they were written through; empty for the object itself.
    pub subresource: String,
    /// When it last changed something: seconds since 1970.
    pub time: Option<i64>,
    /// The fields.
    pub fields: Fields,
}

impl Entry {
    /// The fields, parsed.
    pub fn set(&self) -> Cow<'_, Set> {
        match &self.fields {
            Fields::Set(set) => Cow::Borrowed(set),
            Fields::Raw(raw) => Cow::Owned(Set::parse(raw).unwrap_or_default()),
        }
    }

    /// Whether no field is owned.
    pub fn is_empty(&self) -> bool {
        match &self.fields {
            Fields::Set(set) => set.is_empty(),
            Fields::Raw(raw) => raw.as_object().is_none_or(Map::is_empty),
        }
    }

    /// The key by which upstream distinguishes and sorts entries.
    pub fn identity(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |key: &str, value: &str| {
            if !value.is_empty() {
                parts.push(format!("\"{key}\":{}", Value::from(value)));
            }
        };
        part("manager", &self.manager);
        part("operation", self.operation.name());
        if self.operation == Operation::Update {
            part("apiVersion", &self.api_version);
        }
        part("subresource", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }

    /// Whether another entry has the same manager, operation and subresource, and for updates the same version.
    pub fn same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The manager's name in conflict messages.
    pub fn called(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }

    fn into_json(self) -> Value {
        let mut out = Map::new();
        let mut put = |key: &str, value: String| {
            if !value.is_empty() {
                out.insert(key.to_owned(), Value::String(value));
            }
        };
        put("manager", self.manager);
        put("operation", self.operation.name().to_owned());
        put("apiVersion", self.api_version);
        let time = self.time.and_then(|s| jiff::Timestamp::from_second(s).ok());
        put("time", time.map(|t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default());
        put("fieldsType", "FieldsV1".to_owned());
        let fields = match self.fields {
            Fields::Raw(raw) => raw,
            Fields::Set(set) => set.to_fields(),
        };
        out.insert("fieldsV1".to_owned(), fields);
        if !self.subresource.is_empty() {
            out.insert("subresource".to_owned(), Value::String(self.subresource));
        }
        Value::Object(out)
    }
}

/// Whether `metadata.managedFields` resets all managers: an empty list, or one empty entry.
pub fn is_reset(value: &Value) -> bool {
    let empty = |entry: &Value| {
        entry.as_object().is_some_and(|e| e.values().all(|v| v.is_null() || v.as_str().is_some_and(str::is_empty)))
    };
    match value.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => empty(one),
        _ => false,
    }
}

/// Parses `metadata.managedFields`. With `parse` the field sets are parsed, and so validated and normalized; without,
/// they are trusted, for entries that the server itself stored.
pub fn decode(value: Option<&Value>, parse: bool) -> Result<Vec<Entry>, String> {
    let mut out: Vec<Entry> = Vec::new();
    for (at, value) in value.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let entry = decode_entry(at, value, parse)?;
        match out.iter_mut().find(|e| e.same_manager(&entry)) {
            Some(taken) => *taken = entry,
            None => out.push(entry),
        }
    }
    Ok(out)
}

fn decode_entry(at: usize, value: &Value, parse: bool) -> Result<Entry, String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match text("operation").as_str() {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType").as_str() {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
    }
    let raw = value.get("fieldsV1").cloned().unwrap_or_else(|| json!({}));
    let fields = if parse {
        Fields::Set(Set::parse(&raw).map_err(|e| format!("error decoding set: {e}"))?)
    } else {
        Fields::Raw(raw)
    };
    Ok(Entry {
        manager: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
        time: text("time").parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second),
        fields,
    })
}

/// Encodes `metadata.managedFields` in upstream's order; `None` without entries.
pub fn encode(mut entries: Vec<Entry>) -> Option<Value> {
    if entries.is_empty() {
        return None;
    }
    entries.sort_by(|a, b| {
        let key = |e: &Entry| (e.operation, e.time.unwrap_or(0));
        key(a)
            .cmp(&key(b))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| a.api_version.cmp(&b.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    Some(entries.into_iter().map(Entry::into_json).collect())
}

/// Merges the oldest update entries by version while there are too many.
pub fn cap(entries: &mut Vec<Entry>) {
    let updaters = |all: &[Entry]| all.iter().filter(|e| e.operation == Operation::Update).count();
    let mut left = updaters(entries);
    if left <= MAX_UPDATERS {
        return;
    }
    let mut oldest: Vec<Entry> = entries.iter().filter(|e| e.operation == Operation::Update).cloned().collect();
    oldest.sort_by_cached_key(|e| (e.time.unwrap_or(0), e.identity()));
    let mut first: Vec<Entry> = Vec::new();
    for entry in oldest {
        if left <= MAX_UPDATERS {
            break;
        }
        let Some(earlier) = first.iter().find(|f| f.api_version == entry.api_version) else {
            first.push(entry);
            continue;
        };
        let bucket = Entry {
            manager: ANCIENT.to_owned(),
            operation: Operation::Update,
            subresource: String::new(),
            time: entry.time,
            ..entry.clone()
        };
        let mut set = entry.set().into_owned();
        match entries.iter().position(|e| e.same_manager(&bucket)) {
            Some(at) => set = set.union(&entries.remove(at).set()),
            None => {
                set = set.union(&earlier.set());
                entries.retain(|e| !e.same_manager(earlier));
            }
        }
        entries.retain(|e| !e.same_manager(&entry));
        entries.push(Entry { fields: Fields::Set(set), ..bucket });
        left -= 1;
    }
}

/// Whether two lists of entries are equal except for their times, and whether any time differs.
pub fn same_but_times(a: Option<&Value>, b: Option<&Value>) -> (bool, bool) {
    let (Some(a), Some(b)) = (a.and_then(Value::as_array), b.and_then(Value::as_array)) else { return (false, false) };
    let mut times = false;
    let same = a.len() == b.len()
        && a.iter().zip(b).all(|(x, y)| {
            times |= x.get("time") != y.get("time");
            let (Some(x), Some(y)) = (x.as_object(), y.as_object()) else { return false };
            let covers = |p: &Map<String, Value>, q: &Map<String, Value>| {
                p.iter().all(|(key, value)| key == "time" || q.get(key) == Some(value))
            };
            covers(x, y) && covers(y, x)
        });
    (same, times)
}

/// Restores entries that webhooks made invalid, and warns the client (apiserver
/// `endpoints/handlers/fieldmanager/admission.go`).
pub fn restore(object: &mut Object, entries: Option<Value>, change: &Change) {
    let now = metadata(object).get("managedFields");
    if now == entries.as_ref() {
        return;
    }
    let Err(why) = decode(now, true) else { return };
    change.warn(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests: {why}"
    ));
    match entries {
        Some(entries) => metadata_mut(object).insert("managedFields".into(), entries),
        None => metadata_mut(object).shift_remove("managedFields"),
    };
}

/// Validates `metadata.managedFields` before an object is stored.
pub fn validate(entries: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (at, entry) in entries.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let path = format!("metadata.managedFields[{at}]");
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let (operation, sort) = (text("operation"), text("fieldsType"));
        if !matches!(operation, "Apply" | "Update") {
            let what = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(format!("{path}.operation"), &json!(operation), what));
        }
        if !matches!(sort, "" | "FieldsV1") {
            errors.push(FieldError::invalid(format!("{path}.fieldsType"), &json!(sort), "must be `FieldsV1`"));
        }
        validate_manager(text("manager"), &format!("{path}.manager"), errors);
        if text("subresource").len() > MAX_SUBRESOURCE {
            errors.push(too_long(format!("{path}.subresource"), MAX_SUBRESOURCE));
        }
    }
}

/// Validates the name of a manager.
pub fn validate_manager(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if name.len() > MAX_MANAGER {
        errors.push(too_long(path.to_owned(), MAX_MANAGER));
    }
    let most = (MAX_REPEATED / name.len().max(1)).max(1);
    for (at, c) in name.char_indices().filter(|(_, c)| !printable(*c)).take(most) {
        let what = format!("invalid character {} (at position {at})", unicode(c));
        errors.push(FieldError::invalid(path, &json!(name), what));
    }
}

/// Whether Go's `unicode.IsPrint` says yes: letters, marks, numbers, punctuation, symbols and the plain space.
pub fn printable(c: char) -> bool {
    c == ' '
        || !(c.is_control()
            || c.is_whitespace()
            || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}'))
}

/// A character as Go's `%#U` prints it.
fn unicode(c: char) -> String {
    let code = format!("U+{:04X}", u32::from(c));
    if printable(c) { format!("{code} '{c}'") } else { code }
}

fn too_long(field: String, most: usize) -> FieldError {
    let detail = format!("may not be more than {most} bytes");
    FieldError { kind: FieldErrorKind::TooLong, field, value: String::new(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, time: i64, field: &str) -> Entry {
        Entry {
            manager: manager.to_owned(),
            operation: Operation::Update,
            api_version: "v1".to_owned(),
            subresource: String::new(),
            time: Some(time),
            fields: Fields::Raw(json!({format!("f:{field}"): {}})),
        }
    }

    #[test]
    fn the_oldest_updaters_become_ancient() {
        let mut all: Vec<Entry> = (0..12).map(|n| entry(&format!("m{n:02}"), n, &format!("x{n:02}"))).collect();
        all.push(Entry { operation: Operation::Apply, ..entry("applier", 0, "y") });
        cap(&mut all);
        assert_eq!(all.iter().filter(|e| e.operation == Operation::Update).count(), 10);
        let ancient = all.iter().find(|e| e.manager == ANCIENT).unwrap();
        assert_eq!(ancient.set().paths(), [".x00", ".x01", ".x02"]);
        assert_eq!(ancient.time, Some(2));
        assert!(all.iter().any(|e| e.manager == "m03") && !all.iter().any(|e| e.manager == "m02"));
        let again = all.clone();
        cap(&mut all);
        assert_eq!(encode(again), encode(all), "there is nothing more to join");
    }

    #[test]
    fn entries_are_sorted_and_read_back() {
        let all = vec![
            entry("b", 2, "x"),
            entry("a", 2, "y"),
            entry("z", 1, "w"),
            Entry { operation: Operation::Apply, ..entry("c", 9, "v") },
        ];
        let value = encode(all).unwrap();
        let names: Vec<&str> = value.as_array().unwrap().iter().map(|e| e["manager"].as_str().unwrap()).collect();
        assert_eq!(names, ["c", "z", "a", "b"]);
        assert_eq!(value[1]["time"], "1970-01-01T00:00:01Z");
        assert_eq!(encode(decode(Some(&value), true).unwrap()).unwrap(), value);
        assert_eq!(encode(vec![]), None);
    }

    #[test]
    fn entries_that_webhooks_spoil_are_put_back() {
        let change = Change::by_controller(crate::route::Verb::Create, "test");
        let good = encode(vec![entry("a", 1, "x")]);
        let mut object = Object::new();
        metadata_mut(&mut object).insert("managedFields".into(), json!([{"manager": "hook"}]));
        restore(&mut object, good.clone(), &change);
        assert_eq!(metadata(&object).get("managedFields"), good.as_ref());
        assert!(change.take_warnings()[0].ends_with("please fix your requests: operation must be `Apply` or `Update`"));
        let sound = encode(vec![entry("b", 1, "y")]);
        metadata_mut(&mut object).insert("managedFields".into(), sound.clone().unwrap());
        restore(&mut object, good, &change);
        assert_eq!(metadata(&object).get("managedFields"), sound.as_ref(), "sound entries of a webhook stay");
        assert!(change.take_warnings().is_empty());
    }

    #[test]
    fn bad_entries_are_reported() {
        let read = |value: Value| decode(Some(&json!([value])), true).unwrap_err();
        assert_eq!(read(json!({"operation": "Delete"})), "operation must be `Apply` or `Update`");
        assert_eq!(read(json!({"operation": "Update"})), "apiVersion must not be empty");
        assert_eq!(
            read(json!({"operation": "Update", "apiVersion": "v1"})),
            "missing fieldsType in managed fields entry 0"
        );
        assert!(is_reset(&json!([])) && is_reset(&json!([{}])) && !is_reset(&json!([{"manager": "x"}])));
        let mut errors = Vec::new();
        validate_manager(&format!("a\n{}", "x".repeat(128)), "fieldManager", &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts[0], "fieldManager: Too long: may not be more than 128 bytes");
        assert!(texts[1].ends_with("invalid character U+000A (at position 1)"), "{}", texts[1]);
    }

    #[test]
    fn errors_about_a_name_of_a_client_do_not_explode() {
        let length = |name: &str| {
            let mut errors = Vec::new();
            validate_manager(name, "fieldManager", &mut errors);
            errors.iter().map(|e| e.value.len()).sum::<usize>()
        };
        assert!(length(&"\u{1}".repeat(1 << 20)) < 8 << 20);
        assert!(length(&"\u{1}".repeat(20_000)) < 1 << 20);
        let mut errors = Vec::new();
        validate_manager(&"\u{1}".repeat(MAX_MANAGER), "fieldManager", &mut errors);
        assert_eq!(errors.len(), MAX_MANAGER, "all are told of a name that could be one");
    }
}
