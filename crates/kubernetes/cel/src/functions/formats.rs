//! Named formats (`library/format.go`).

use std::sync::Arc;

use base64::Engine;

use super::{regexes, time};
use crate::ext::Ext;
use crate::ext::format::Format;
use crate::ext::url::Url;
use crate::value::{Outcome, Value};

const UUID: &str = "(?i)^[0-9A-F]{8}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{4}-?[0-9A-F]{12}$";

impl Format {
    fn check(self, text: &str) -> Vec<String> {
        match self.name {
            "dns1123Label" => names::dns_1123_label(text),
            "dns1123LabelPrefix" => names::dns_1123_label(&names::masked(text)),
            "dns1123Subdomain" => names::dns_1123_subdomain(text),
            "dns1123SubdomainPrefix" => names::dns_1123_subdomain(&names::masked(text)),
            "dns1035Label" => names::dns_1035_label(text),
            "dns1035LabelPrefix" => names::dns_1035_label(&names::masked(text)),
            "qualifiedName" => names::qualified_name(text),
            "labelValue" => names::label_value(text),
            "uri" => Url::parse(text).err().into_iter().collect(),
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

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    let ext = |f: Format| Value::Ext(Arc::new(Ext::Format(f)));
    Some(Ok(match (name, args) {
        ("format.named", [Value::String(s)]) => Value::Optional(Format::named(s).map(|f| Arc::new(ext(f)))),
        ("validate", [Value::Ext(receiver), Value::String(s)]) => {
            let Ext::Format(format) = **receiver else { return None };
            let errors = format.check(s);
            Value::Optional((!errors.is_empty()).then(|| Arc::new(Value::strings(errors))))
        }
        (name, []) => ext(Format::named(name.strip_prefix("format.")?)?),
        _ => return None,
    }))
}
