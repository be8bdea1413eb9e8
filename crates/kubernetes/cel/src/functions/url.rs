//! URLs (`library/urls.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ext::Ext;
use crate::ext::url::{Url, port_of};
use crate::fault::Fault;
use crate::value::{Key, Map, Outcome, Value};

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let (a, b) = (bytes.next()?, bytes.next()?);
                let digit = |b: u8| (b as char).to_digit(16);
                out.push((digit(a)? * 16 + digit(b)?) as u8);
            }
            b => out.push(b),
        }
    }
    String::from_utf8(out).ok()
}

fn query(text: &str) -> Value {
    let mut found: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    for pair in text.split('&').filter(|p| !p.is_empty() && !p.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (decoded(key), decoded(value)) {
            found.entry(Key::String(key.into())).or_default().push(Value::string(&value));
        }
    }
    let entries = found.into_iter().map(|(k, v)| (k, Value::list(v))).collect();
    Value::Map(Arc::new(Map { entries, hidden: 0 }))
}

pub(super) fn call(name: &str, args: &[Value]) -> Option<Outcome> {
    Some(match (name, args) {
        ("url", [Value::String(s)]) => Url::parse(s)
            .map(|u| Value::Ext(Arc::new(Ext::Url(u))))
            .map_err(|e| Fault::new(format!("URL parse error during conversion from string: {e}"))),
        ("isURL", [Value::String(s)]) => Ok(Value::Bool(Url::parse(s).is_ok())),
        (name, [Value::Ext(receiver)]) => {
            let Ext::Url(url) = &**receiver else { return None };
            Ok(match name {
                "getScheme" => Value::string(&url.scheme),
                "getHost" => Value::string(&url.host),
                "getHostname" => Value::string(url.hostname()),
                "getPort" => Value::string(port_of(&url.host)),
                "getEscapedPath" => Value::string(&url.path),
                "getQuery" => query(&url.query),
                _ => return None,
            })
        }
        _ => return None,
    })
}
