//! Small facts of resources: status, messages, times, numbers.

use diagnosis::{Message, Part, PartKind};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;
use terms::HealthLevel;

use super::reader::Reader;
use crate::json::{flag, word};

/// Most messages of one thing.
const MAX_MESSAGES: usize = 8;
/// Most arguments of a message.
const MAX_ARGS: usize = 8;

/// A word for health, in Redfish's spelling.
pub(super) fn level(word: &str) -> Option<HealthLevel> {
    match word {
        "OK" => Some(HealthLevel::OK),
        "Warning" => Some(HealthLevel::Warning),
        "Critical" => Some(HealthLevel::Critical),
        _ => None,
    }
}

/// `Status.Health`, or else its rollup.
pub(super) fn health(value: &Value) -> Option<HealthLevel> {
    let status = value.get("Status")?;
    word(status, "Health").and_then(level).or_else(|| word(status, "HealthRollup").and_then(level))
}

/// The worse of `Status.Health` and its rollup: how it is with all below.
pub(super) fn rollup(value: &Value) -> Option<HealthLevel> {
    let status = value.get("Status")?;
    ["HealthRollup", "Health"].iter().filter_map(|field| word(status, field).and_then(level)).max()
}

/// How many members of a list without whole members are read one by one: none where all is said to be well.
pub(super) fn depth(health: Option<HealthLevel>, most: usize) -> usize {
    match health {
        Some(HealthLevel::OK) => 0,
        None => most / 2,
        Some(_) => most,
    }
}

/// The first of the values of this level that is worse.
pub(super) fn worse(a: Option<HealthLevel>, b: Option<HealthLevel>) -> Option<HealthLevel> {
    a.max(b)
}

/// A time as the BMC writes it. One without a zone is taken for UTC; what is no time is none.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    if text.len() > 64 {
        return None;
    }
    let zoned = text.parse::<Timestamp>().ok();
    zoned.or_else(|| text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp()))
}

/// A field that is a time.
pub(super) fn time_at(value: &Value, field: &str) -> Option<Timestamp> {
    time(word(value, field)?)
}

/// A number that counts; some BMCs write it as text or as a fraction.
pub(super) fn number(value: &Value, field: &str) -> Option<u64> {
    match value.get(field)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            let number = number.as_f64().filter(|number| (0.0..1e15).contains(number))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1e15")]
            Some(number as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A percentage.
pub(super) fn percent(value: &Value, field: &str) -> Option<u8> {
    number(value, field).map(|number| u8::try_from(number.min(100)).unwrap_or(100))
}

/// The last segment of a path.
pub(super) fn last(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// The messages of an answer (`error`), a task (`Messages`) or a resource, with their ids as written.
pub(super) fn messages(value: &Value, clean: impl Fn(&str) -> String) -> Vec<Message> {
    let error = value.get("error").unwrap_or(value);
    let list = error.get("@Message.ExtendedInfo").or_else(|| error.get("Messages"));
    let items = match list {
        Some(Value::Array(items)) => items.as_slice(),
        Some(single @ Value::Object(_)) => std::slice::from_ref(single),
        _ => {
            let code = word(error, "code").map(&clean).unwrap_or_default();
            let text = word(error, "message").map(&clean).unwrap_or_default();
            let told = !(code.is_empty() && text.is_empty());
            return told.then(|| Message { id: code, text, ..Message::default() }).into_iter().collect();
        }
    };
    items.iter().take(MAX_MESSAGES).map(|item| message(item, &clean)).collect()
}

/// One message.
pub(super) fn message(item: &Value, clean: &impl Fn(&str) -> String) -> Message {
    let text = |fields: &[&str]| fields.iter().find_map(|field| word(item, field)).map(clean);
    Message {
        id: text(&["MessageId", "MessageID"]).unwrap_or_default(),
        args: args(item, clean),
        text: text(&["Message"]).unwrap_or_default(),
        severity: text(&["MessageSeverity", "Severity"]).filter(|word| !word.is_empty()),
        resolution: text(&["Resolution"]).filter(|text| !text.is_empty()),
    }
}

/// `MessageArgs`, those that are texts.
pub(super) fn args(item: &Value, clean: &impl Fn(&str) -> String) -> Vec<String> {
    let list = item.get("MessageArgs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().take(MAX_ARGS).filter_map(Value::as_str).map(clean).collect()
}

impl Reader<'_> {
    /// What every part tells in the same way (schemas with `Status`, `Location`, `Model`).
    pub fn part(&self, kind: PartKind, path: &str, value: &Value) -> Part {
        let text = |field: &str| self.text(value, field);
        let label = ["Location", "PhysicalLocation"].iter().find_map(|place| {
            let place = value.get(place)?;
            let place = if let Value::Array(places) = place { places.first()? } else { place };
            self.text(place.get("PartLocation")?, "ServiceLabel")
        });
        let slot = label.or_else(|| text("DeviceLocator")).or_else(|| text("Socket")).or_else(|| text("Id"));
        let status = value.get("Status").unwrap_or(&Value::Null);
        let conditions = status.get("Conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let clean = |text: &str| self.clean(text);
        Part {
            kind,
            slot: slot.unwrap_or_else(|| self.clean(last(path))),
            name: text("Model").or_else(|| text("Name")),
            part_number: text("PartNumber"),
            serial: text("SerialNumber"),
            health: health(value),
            state: self.text(status, "State"),
            conditions: conditions.iter().take(MAX_MESSAGES).map(|item| message(item, &clean)).collect(),
            failure_predicted: flag(value, "FailurePredicted"),
            ..Part::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_read_as_bmcs_write_them() {
        for (text, second) in [
            ("2024-08-08T18:48:07-05:00", Some(1_723_160_887)),
            ("2025-04-04T18:17:40Z", Some(1_743_790_660)),
            ("2025-04-04T18:17:40", Some(1_743_790_660)),
            ("1970-01-01T00:00:10Z", Some(10)),
            ("0000-00-00T00:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(time(text).map(Timestamp::as_second), second, "{text}");
        }
        assert_eq!(time(&"2".repeat(1_000_000)), None);
    }

    #[test]
    fn numbers_are_read_in_any_form_and_nothing_else_is_one() {
        let value = json!({ "a": 3, "b": "7", "c": 2.9, "d": -1, "e": "x", "f": null, "g": 1e300 });
        let read = ["a", "b", "c", "d", "e", "f", "g"].map(|field| number(&value, field));
        assert_eq!(read, [Some(3), Some(7), Some(2), None, None, None, None]);
    }

    #[test]
    fn how_deep_is_gone_follows_from_health() {
        assert_eq!([None, Some(HealthLevel::OK), Some(HealthLevel::Warning)].map(|level| depth(level, 8)), [4, 0, 8]);
    }
}
