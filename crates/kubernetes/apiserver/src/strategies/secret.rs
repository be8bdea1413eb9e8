//! Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::data::{MAX_DATA, immutable, keys, size, too_long};
use crate::checks::{annotation, member, text, unchanged};
use crate::object::{Object, child};
use crate::status::FieldError;
use crate::strategy::{Findings, Kind, MetadataChecks, Strategy, Writing};

/// The kind's row in the table.
pub const KIND: Kind = Kind { kind: "Secret", plural: "secrets", strategy: &Secret, ..Kind::NEW };

/// The rules of Secrets.
#[derive(Debug)]
struct Secret;

impl Strategy for Secret {
    fn defaults(&self, object: &mut Object) {
        defaults(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        validate(object, writing.old, &mut found.errors);
    }

    fn warnings(&self, _: &Writing<'_>, object: &Object) -> Vec<String> {
        warnings(object)
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::CoreTwice
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("type", "")]
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}

/// Puts plain data into the data, and says what kind of Secret it is.
fn defaults(object: &mut Object) {
    if let Some(Value::Object(plain)) = object.shift_remove("stringData") {
        let data = child(object, "data");
        for (key, value) in plain {
            data.insert(key, json!(STANDARD.encode(value.as_str().unwrap_or_default())));
        }
    }
    if member(object, "type").as_str().unwrap_or_default().is_empty() {
        object.insert("type".into(), json!("Opaque"));
    }
}

/// Checks a Secret.
fn validate(object: &Object, old: Option<&Object>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        unchanged("type", member(object, "type"), member(old, "type"), errors);
        immutable(object, old, &["data"], errors);
    }
    let data = member(object, "data");
    keys("data", data, errors);
    if size(data, true) > MAX_DATA {
        errors.push(too_long("data"));
    }
    secret_type(object, data, errors);
}

fn decoded(data: &Value, key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(data.get(key)?.as_str()?).ok()
}

fn secret_type(object: &Object, data: &Value, errors: &mut Vec<FieldError>) {
    let mut need = |key: &str| {
        let there = data.get(key).is_some();
        if !there {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
        there
    };
    match member(object, "type").as_str().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            if annotation(object, NAME).unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{NAME}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" if need(".dockercfg") => json_object(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" if need(".dockerconfigjson") => {
            json_object(data, ".dockerconfigjson", errors);
        }
        "kubernetes.io/basic-auth" if data.get("username").is_none() && data.get("password").is_none() => {
            need("username");
            need("password");
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            errors.push(FieldError::required("data[ssh-privatekey]", ""));
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
}

/// The value must be a JSON object; the error is in the words of Go's decoder.
fn json_object(data: &Value, key: &str, errors: &mut Vec<FieldError>) {
    let bytes = decoded(data, key).unwrap_or_default();
    let trimmed = bytes.trim_ascii();
    let why = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(Value::Array(_)) => unfit("array"),
        Ok(Value::String(_)) => unfit("string"),
        Ok(Value::Bool(_)) => unfit("bool"),
        Ok(Value::Number(_)) => unfit("number"),
        Err(error) if trimmed.is_empty() || error.is_eof() => "unexpected end of JSON input".to_owned(),
        Err(_) if literal(trimmed).is_some() => literal(trimmed).unwrap_or_default(),
        Err(error) => {
            let line: usize = bytes.split(|b| *b == b'\n').take(error.line() - 1).map(|l| l.len() + 1).sum();
            let at = bytes.get(line + error.column().saturating_sub(1)).or(trimmed.first()).copied();
            format!("invalid character '{}' looking for beginning of value", char::from(at.unwrap_or_default()))
        }
    };
    errors.push(FieldError::invalid(format!("data[{key}]"), &json!("<secret contents redacted>"), why));
}

/// What Go says of a word that begins like a literal and goes on otherwise.
fn literal(text: &[u8]) -> Option<String> {
    let word = ["null", "true", "false"].into_iter().find(|w| w.as_bytes().first() == text.first())?;
    let (at, wanted) = word.bytes().enumerate().find(|(at, b)| text.get(*at) != Some(b))?;
    let found = char::from(*text.get(at)?);
    Some(format!("invalid character '{found}' in literal {word} (expecting '{}')", char::from(wanted)))
}

fn unfit(what: &str) -> String {
    format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
}

/// Warnings for the client of a TLS Secret without PEM data.
fn warnings(object: &Object) -> Vec<String> {
    if member(object, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    let data = member(object, "data");
    let pem = |key: &str| decoded(data, key).is_some_and(|d| String::from_utf8_lossy(&d).contains("-----BEGIN "));
    let missing = [("tls.crt", "certificate"), ("tls.key", "key")].into_iter().find(|(key, _)| !pem(key));
    missing.map(|(_, what)| format!("tls: failed to find any PEM data in {what} input")).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validation_errors(ty: &str, data: Value) -> Vec<String> {
        let Value::Object(secret) = json!({"metadata": {}, "type": ty, "data": data}) else { panic!() };
        let mut errors = Vec::new();
        validate(&secret, None, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn secrets_have_the_keys_of_their_type() {
        assert_eq!(validation_errors("kubernetes.io/tls", json!({"tls.crt": ""})), ["data[tls.key]: Required value"]);
        assert_eq!(validation_errors("kubernetes.io/basic-auth", json!({})).len(), 2);
        assert!(validation_errors("kubernetes.io/basic-auth", json!({"password": ""})).is_empty());
        assert_eq!(
            validation_errors("kubernetes.io/dockercfg", json!({".dockercfg": STANDARD.encode("[]")})),
            ["data[.dockercfg]: Invalid value: \"<secret contents redacted>\": json: cannot unmarshal array into Go \
              value of type map[string]interface {}"]
        );
        assert_eq!(
            validation_errors("kubernetes.io/dockerconfigjson", json!({".dockerconfigjson": STANDARD.encode("xyz")})),
            [
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for \
              beginning of value"
            ]
        );
        assert_eq!(validation_errors("kubernetes.io/ssh-auth", json!({})), ["data[ssh-privatekey]: Required value"]);
        assert_eq!(
            validation_errors("kubernetes.io/service-account-token", json!({})),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]
        );
    }

    #[test]
    fn sizes_count_bytes_and_not_base64() {
        let data = json!({"k": STANDARD.encode(vec![0u8; MAX_DATA])});
        assert!(validation_errors("Opaque", data).is_empty());
        let data = json!({"k": STANDARD.encode(vec![0u8; MAX_DATA + 1])});
        assert_eq!(validation_errors("Opaque", data), ["data: Too long: may not be more than 1048576 bytes"]);
    }
}
