//! Named formats (`library/format.go`; the rules are apimachinery's).

use std::sync::Arc;

use base64::Engine;

use super::ext::Ext;
use super::{regexes, time, url};
use crate::eval::Outcome;
use crate::value::Value;

/// A named format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    name: &'static str,
}

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const UUID: &str = "(?i)^[0-9A-F]{8}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{12}$";

impl Format {
    fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|n| **n == name).map(|name| Self { name })
    }

    /// What the cost of validation is counted by: the length of upstream's pattern.
    pub(crate) fn max_regex_size(self) -> u64 {
        match self.name {
            "dns1123Label" | "dns1035Label" | "dns1123LabelPrefix" | "dns1035LabelPrefix" => 30,
            "labelValue" => 40,
            "uuid" => 70,
            "byte" => 84,
            "uri" => 1103,
            "date" | "datetime" => 71,
            _ => 60,
        }
    }

    fn check(self, text: &str) -> Vec<String> {
        let masked = if self.name.ends_with("Prefix") && text.len() > 1 {
            text.strip_suffix('-').map(|t| format!("{t}a")).unwrap_or_else(|| text.to_owned())
        } else {
            text.to_owned()
        };
        match self.name {
            "dns1123Label" | "dns1123LabelPrefix" => label(&masked),
            "dns1123Subdomain" | "dns1123SubdomainPrefix" => subdomain(&masked),
            "dns1035Label" | "dns1035LabelPrefix" => limited(
                &masked,
                63,
                LABEL_1035,
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
                &["my-name", "abc-123"],
            ),
            "qualifiedName" => qualified(text),
            "labelValue" => limited(
                text,
                63,
                &format!("({QUALIFIED})?"),
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
                &["MyValue", "my_value", "12345"],
            ),
            "uri" => url::Url::parse(text).err().into_iter().collect(),
            "uuid" => one(regexes::compile(UUID).is_ok_and(|r| r.is_match(text)), "does not match the UUID format"),
            "byte" => one(
                base64::engine::general_purpose::STANDARD.decode(text).is_ok() && !text.is_empty(),
                "invalid base64",
            ),
            "date" => one(text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(), "invalid date"),
            _ => one(time::parse_timestamp(text).is_some(), "invalid datetime"),
        }
    }
}

fn one(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn limited(text: &str, most: usize, pattern: &str, message: &str, examples: &[&str]) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > most {
        errors.push(format!("must be no more than {most} bytes"));
    }
    if !regexes::compile(&format!("^{pattern}$")).is_ok_and(|r| r.is_match(text)) {
        let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
        let examples = examples.join(" or ");
        errors.push(format!("{message} (e.g. {examples}regex used for validation is '{pattern}')"));
    }
    errors
}

fn label(text: &str) -> Vec<String> {
    limited(
        text,
        63,
        LABEL,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
        &["my-name", "123-abc"],
    )
}

fn subdomain(text: &str) -> Vec<String> {
    limited(
        text,
        253,
        &format!("{LABEL}(\\.{LABEL})*"),
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
        &["example.com"],
    )
}

fn qualified(text: &str) -> Vec<String> {
    let message = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let parts: Vec<&str> = text.split('/').collect();
    let (prefix, name) = match parts.as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                limited(
                    "/",
                    63,
                    QUALIFIED,
                    message.trim_start_matches("name part "),
                    &["MyName", "my.name", "123-abc"]
                )
                .join("")
            )];
        }
    };
    let mut errors = Vec::new();
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            errors.push("prefix part must be non-empty".to_owned());
        } else {
            errors.extend(subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
        }
    }
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    errors.extend(limited(name, usize::MAX, QUALIFIED, message, &["MyName", "my.name", "123-abc"]));
    errors
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let ext = |f: Format| Value::Ext(Arc::new(Ext::Format(f)));
    Some(Ok(match (name, args) {
        ("format.named", [Value::String(s)]) => Value::Optional(Format::named(s).map(|f| Arc::new(ext(f)))),
        ("validate", [Value::Ext(own), Value::String(s)]) => {
            let Ext::Format(format) = **own else { return None };
            let errors = format.check(s);
            Value::Optional((!errors.is_empty()).then(|| Arc::new(Value::strings(errors))))
        }
        (name, []) => ext(Format::named(name.strip_prefix("format.")?)?),
        _ => return None,
    }))
}
