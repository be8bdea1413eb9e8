//! Condenses Redfish error bodies (DSP0266, 8.6) into one sentence.

use serde_json::Value;
use terms::json_values_at_most;

use crate::json::MAX_VALUES;
use terms::clean;

/// Most messages that are read from a body.
const MAX_MESSAGES: usize = 8;
/// Most messages reported.
const MAX_PARTS: usize = 3;
/// Longest sentence, characters.
const MAX_SENTENCE: usize = 500;

/// One entry of `@Message.ExtendedInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// `MessageId` without registry and version: `PropertyUnknown` of `Base.1.8.PropertyUnknown`.
    pub key: String,
    /// Text.
    pub text: String,
    /// `MessageArgs`.
    pub args: Vec<String>,
    /// The BMC's advice.
    pub resolution: String,
    /// Last parts of `RelatedProperties`: `ProcTurboMode` of `#/Attributes/ProcTurboMode`.
    pub related: Vec<String>,
    /// `MessageSeverity`, or `Severity` in older versions.
    pub severity: String,
}

impl Message {
    /// Whether it tells of something that was not done: by its severity where it has one, else by its key.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        let is = |word: &str| self.severity.eq_ignore_ascii_case(word);
        let fine = ["success", "settingsmodified", "systemresetrequired", "resetinprogress"];
        let key = self.key.to_ascii_lowercase();
        is("Warning") && !fine.contains(&key.as_str())
            || is("Critical")
            || self.severity.is_empty() && !key.is_empty() && !fine.contains(&key.as_str())
    }
}

/// The messages in the body of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// Messages, the most telling first.
    pub messages: Vec<Message>,
}

impl ErrorBody {
    /// Parses any body. One that is not JSON, or has no messages, gives none.
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        // No error has so much to say.
        if json_values_at_most(body) > MAX_VALUES {
            return Self::default();
        }
        serde_json::from_slice::<Value>(body).map_or_else(|_| Self::default(), |value| Self::read(&value))
    }

    /// Reads an error object, the `Messages` of a task, or a resource that carries `@Message.ExtendedInfo`.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let error = value.get("error").unwrap_or(value);
        let info = error
            .get("@Message.ExtendedInfo")
            .or_else(|| value.get("@Message.ExtendedInfo"))
            .or_else(|| error.get("Messages"));
        let mut messages: Vec<Message> = match info {
            Some(Value::Array(items)) => items.iter().take(MAX_MESSAGES).filter_map(message).collect(),
            // Some BMCs leave out the list around a single entry.
            Some(single @ Value::Object(_)) => message(single).into_iter().collect(),
            Some(Value::String(text)) => vec![Message { text: clean(text, 300), ..Message::default() }],
            _ => Vec::new(),
        };
        if messages.is_empty()
            && let Some(text) = error.get("message").and_then(Value::as_str)
        {
            let key = error.get("code").and_then(Value::as_str).map(key_of).unwrap_or_default();
            messages.push(Message { key, text: clean(text, 300), ..Message::default() });
        }
        // "GeneralError" only refers to further messages.
        messages.sort_by_key(|message| message.key == "GeneralError");
        Self { messages }
    }

    /// Whether an entry has this key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.messages.iter().any(|message| message.key.eq_ignore_ascii_case(key))
    }

    /// Whether an entry's key contains this word, in any case.
    #[must_use]
    pub fn key_contains(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        self.messages.iter().any(|message| message.key.to_ascii_lowercase().contains(&word))
    }

    /// Whether an entry names this property or parameter, in its arguments or its text.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        self.messages.iter().any(|message| {
            message.args.iter().any(|arg| arg.contains(name))
                || message.related.iter().any(|related| related == name)
                || message.text.contains(name)
                || message.resolution.contains(name)
        })
    }

    /// Whether a message's text, arguments or advice contain these words, ignoring case.
    #[must_use]
    pub fn says(&self, words: &str) -> bool {
        let has = |text: &str| text.to_ascii_lowercase().contains(words);
        self.messages
            .iter()
            .any(|message| has(&message.text) || has(&message.resolution) || message.args.iter().any(|arg| has(arg)))
    }

    /// Whether the BMC has no free session. Dell: RAC0218.
    #[must_use]
    pub fn is_session_limit(&self) -> bool {
        self.has("CreateLimitReachedForResource")
            || self.has("SessionLimitExceeded")
            || self.key_contains("RAC0218")
            || self.key_contains("MaxSession")
    }

    /// Seconds after which an unavailable service wants a retry (Base registry: `ServiceTemporarilyUnavailable`).
    #[must_use]
    pub fn asked_again_after(&self) -> Option<std::time::Duration> {
        let away = |message: &&Message| message.key.eq_ignore_ascii_case("ServiceTemporarilyUnavailable");
        let seconds = self.messages.iter().find(away)?.args.first()?.trim().parse().ok()?;
        Some(std::time::Duration::from_secs(seconds))
    }

    /// One sentence for people, or `None` without messages.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let telling = self.messages.iter().any(|message| message.key != "GeneralError");
        let mut parts: Vec<String> = Vec::new();
        for message in self.messages.iter().filter(|message| !telling || message.key != "GeneralError") {
            let text = match message {
                Message { text, key, args, .. } if text.is_empty() && !args.is_empty() => {
                    format!("{key} ({})", args.join(", "))
                }
                Message { text, key, .. } if text.is_empty() => key.clone(),
                Message { text, .. } => text.clone(),
            };
            let text = text.trim_end_matches('.').to_owned();
            if !text.is_empty() && !parts.contains(&text) {
                parts.push(text);
            }
        }
        parts.truncate(MAX_PARTS);
        let resolution = self.messages.iter().map(|message| message.resolution.as_str()).find(|text| useful(text));
        if let Some(resolution) = resolution {
            parts.push(format!("the BMC advises: {}", resolution.trim_end_matches('.')));
        }
        let sentence = clean(&parts.join("; "), MAX_SENTENCE);
        (!sentence.is_empty()).then_some(sentence)
    }
}

/// Whether advice is more than a generic phrase.
fn useful(resolution: &str) -> bool {
    let lower = resolution.to_ascii_lowercase();
    !lower.is_empty()
        && lower != "none"
        && lower != "none."
        && !lower.contains("resubmit the request if the operation failed")
}

fn message(value: &Value) -> Option<Message> {
    let object = value.as_object()?;
    let text = |names: [&str; 2], most| {
        let found = names.iter().find_map(|name| object.get(*name)?.as_str());
        found.map(|found| clean(found, most)).unwrap_or_default()
    };
    // Before version 1.0 the field was called MessageID.
    let id = text(["MessageId", "MessageID"], 200);
    let args = crate::json::words(object.get("MessageArgs"));
    let words = filled(&text(["Message", "message"], MAX_TEXT), &args);
    let message = Message {
        key: key_of(&id),
        text: clean(&words, MAX_TEXT),
        args,
        resolution: text(["Resolution", "resolution"], 300),
        related: related(object.get("RelatedProperties")),
        severity: text(["MessageSeverity", "Severity"], 20),
    };
    (!message.key.is_empty() || !message.text.is_empty()).then_some(message)
}

/// The properties that a message is about, without the way to them.
fn related(list: Option<&Value>) -> Vec<String> {
    let all = crate::json::words(list).into_iter();
    all.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned()).collect()
}

/// Longest text of a message, characters.
const MAX_TEXT: usize = 300;

/// The text with its arguments for `%1` to `%9`. Placeholders inside arguments are not expanded: arguments that refer to each other would grow
/// without end.
fn filled(text: &str, args: &[String]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let digit = after.chars().nth(1).and_then(|c| c.to_digit(10)).and_then(|n| usize::try_from(n).ok());
        match digit.and_then(|n| args.get(n.checked_sub(1)?)) {
            Some(arg) => {
                out.push_str(arg);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push('%');
                rest = after.get(1..).unwrap_or_default();
            }
        }
        if out.len() > 4 * MAX_TEXT {
            break;
        }
    }
    out.push_str(rest);
    out
}

/// Last part of `Registry.1.2.Key`.
fn key_of(id: &str) -> String {
    clean(id.rsplit('.').next().unwrap_or(id), 100)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_name_each_other_do_not_grow() {
        let args: Vec<String> = (2..10).map(|n| format!("%{n}").repeat(50)).collect();
        let text = filled(&"%1".repeat(150), &args);
        assert!(text.len() < 2000, "{} bytes", text.len());
        assert_eq!(filled("the %1 of %2 is 5 % and %9", &["a".into(), "%1".into()]), "the a of %1 is 5 % and %9");
        assert_eq!(filled("%", &[]), "%");
    }

    #[test]
    fn list_single_entry_and_bare_message() {
        let list = json!({"error": {"code": "Base.1.0.GeneralError", "message": "See ExtendedInfo.", "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.0.GeneralError", "Message": "A general error."},
            {"MessageId": "Base.1.0.PropertyUnknown", "Message": "The property %1 is unknown.", "MessageArgs": ["Context"],
             "Resolution": "Remove it."}]}});
        let body = ErrorBody::read(&list);
        assert!(body.has("PropertyUnknown") && body.mentions("Context"));
        assert_eq!(body.sentence().unwrap(), "The property Context is unknown; the BMC advises: Remove it");
        let single = json!({"error": {"@Message.ExtendedInfo": {"MessageId": "Base.1.5.GeneralError", "Message": "See Resolution.",
            "Resolution": "Use JSON."}}});
        assert_eq!(ErrorBody::read(&single).sentence().unwrap(), "See Resolution; the BMC advises: Use JSON");
        let bare = json!({"error": {"code": "X.1.Y", "message": "Bad\nthing"}});
        assert_eq!(ErrorBody::read(&bare).sentence().unwrap(), "Bad thing");
        let iris = json!({"error": {"@Message.ExtendedInfo": [{"MessageID": "iLO.0.10.Busy", "MessageArgs": "x"}]}});
        assert_eq!(ErrorBody::read(&iris).sentence().unwrap(), "Busy (x)");
    }

    #[test]
    fn nothing_useful_gives_nothing() {
        for body in
            [&b""[..], b"<html>", b"[]", b"null", b"{\"error\":5}", b"{\"error\":{\"@Message.ExtendedInfo\":[1,null]}}"]
        {
            assert_eq!(ErrorBody::parse(body).sentence(), None);
        }
    }
}
