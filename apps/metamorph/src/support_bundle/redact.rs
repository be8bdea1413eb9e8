//! What goes out of the house: objects and lines without what gives access. Pure.
//!
//! A key that names a secret hides its value, whatever that is; an address loses user, password and query; a long run of letters and digits, as tokens are,
//! is hidden, except where the key says that it is an identity or a digest. Annotations that hold JSON are read as JSON. `managedFields` are left out.

use provisioner_metamorph::without_secrets;
use serde_json::{Map, Value};
use terms::is_printable;

/// What stands in place of a secret.
pub const HIDDEN: &str = "[hidden]";
/// What kubectl keeps of what it has applied: all of an object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Words of keys whose values are secrets.
const SECRET: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "token",
    "secret",
    "apikey",
    "privatekey",
    "authorization",
    "credential",
    "cookie",
    "community",
    "seal",
];
/// Words of keys whose values are identities or digests, and no secrets: they may be long.
const IDENTITY: [&str; 15] = [
    "name",
    "namespace",
    "uid",
    "uuid",
    "kind",
    "apiversion",
    "resourceversion",
    "digest",
    "checksum",
    "fingerprint",
    "serial",
    "identity",
    "wwn",
    // Of a public key.
    "sha256",
    "discoveredkey",
];
/// Keys whose values name what stands beside them, and keys of that.
const NAMES: [&str; 5] = ["name", "key", "attribute", "attributeName", "variable"];
const VALUES: [&str; 5] = ["value", "currentValue", "pendingValue", "default", "defaultValue"];
/// Keys below one that names a secret whose values are no secrets: references.
const REFERENCE: [&str; 6] = ["name", "namespace", "kind", "apiversion", "version", "resourceversion"];
/// Words up to this length are no tokens for anybody.
const SHORT: usize = 23;
/// Most words of a text that are kept although they are long.
const MOST_WORDS: usize = 64;
/// What stands in their place meanwhile.
const PLACE: &str = "xCx";
/// Longest annotation that is read as JSON, bytes.
const MAX_JSON: usize = 256 * 1024;

/// How a value is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// As any text.
    Text,
    /// As an identity.
    Identity,
    /// As a secret.
    Secret,
}

/// The object without what gives access.
pub fn object(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    walk(value, Look::Text);
}

/// Lines of a log or a message, each by itself.
pub fn text(text: &str) -> String {
    let (text, words) = without_words(&printable(text));
    let hidden = text.split('\n').map(without_secrets).collect::<Vec<_>>().join("\n");
    words.iter().enumerate().fold(hidden, |text, (index, word)| text.replace(&placeholder(index), word))
}

/// The lines without what a terminal would obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c == '\n' || is_printable(c) { c } else { ' ' }).collect()
}

fn placeholder(index: usize) -> String {
    format!("{PLACE}{index}x")
}

/// The text with short words in place of long ones that people have made, `ServerCertificateRefusedByHost`, which are no tokens: nothing but humps of letters.
fn without_words(text: &str) -> (String, Vec<String>) {
    let (mut out, mut words) = (String::new(), Vec::new());
    if text.contains(PLACE) {
        return (text.to_owned(), words);
    }
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if word.len() > SHORT && is_camel(word) && words.len() < MOST_WORDS {
            let index = words.iter().position(|known| known == word).unwrap_or(words.len());
            if index == words.len() {
                words.push(word.to_owned());
            }
            out.push_str(&placeholder(index));
        } else {
            out.push_str(word);
        }
        let sign = behind.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or(behind.len());
        out.push_str(behind.get(..sign).unwrap_or_default());
        rest = behind.get(sign..).unwrap_or_default();
    }
    (out, words)
}

/// Letters alone, no two capitals side by side, three letters a hump on average.
fn is_camel(word: &str) -> bool {
    let bytes = word.as_bytes();
    let capitals = bytes.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let pairs = bytes.windows(2).any(|two| two.iter().all(u8::is_ascii_uppercase));
    bytes.iter().all(u8::is_ascii_alphabetic) && !pairs && capitals > 0 && capitals * 3 <= bytes.len()
}

fn plain_key(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn look(key: &str, above: Look) -> Look {
    let plain = plain_key(key);
    if above == Look::Secret {
        let refers = REFERENCE.iter().any(|end| plain.ends_with(end));
        return if refers { Look::Identity } else { Look::Secret };
    }
    let refers = ["name", "namespace", "ref", "version"].iter().any(|end| plain.ends_with(end));
    // `EncryptionKey`, `SetupPin`; the `key` of a selector or a taint is none.
    let is_key = plain.len() > 3
        && plain.ends_with("key")
        && !["publickey", "discoveredkey"].iter().any(|end| plain.ends_with(end));
    let is_pin = key.ends_with("Pin") || key.ends_with("PIN");
    if (SECRET.iter().any(|word| plain.contains(word)) || is_key || is_pin) && !refers {
        return Look::Secret;
    }
    if IDENTITY.iter().any(|word| plain.ends_with(word)) { Look::Identity } else { Look::Text }
}

fn walk(value: &mut Value, how: Look) {
    match value {
        Value::Object(fields) => {
            // `{ name: PASSWORD, value: … }`.
            let told =
                NAMES.iter().filter_map(|by| fields.get(*by)?.as_str()).any(|name| look(name, how) == Look::Secret);
            fields.iter_mut().for_each(|(key, value)| match key.as_str() {
                "annotations" if value.is_object() => annotations(value.as_object_mut()),
                // Arguments of a step, JSON as text: who asks for it says what is in them.
                "args" if value.is_string() => *value = HIDDEN.into(),
                key if told && VALUES.contains(&key) => walk(value, Look::Secret),
                _ => walk(value, look(key, how)),
            });
        }
        Value::Array(items) => {
            // `--password` and then what it is.
            let mut told = false;
            for item in items {
                let tells = item.as_str().is_some_and(|said| {
                    said.starts_with('-') && !said.contains('=') && look(said, Look::Text) == Look::Secret
                });
                walk(item, if told { Look::Secret } else { how });
                told = tells;
            }
        }
        Value::String(said) => *said = string(said, how),
        // A number may be a PIN.
        Value::Number(_) if how == Look::Secret => *value = HIDDEN.into(),
        Value::Number(_) | Value::Bool(_) | Value::Null => {}
    }
}

fn string(said: &str, how: Look) -> String {
    match how {
        Look::Secret if said.is_empty() => String::new(),
        Look::Secret => HIDDEN.to_owned(),
        Look::Identity if said.contains("://") || said.contains('@') => ::addresses::text_without_secrets(said),
        Look::Identity => said.to_owned(),
        Look::Text => text(said),
    }
}

fn annotations(all: Option<&mut Map<String, Value>>) {
    for (key, value) in all.into_iter().flatten() {
        if key == LAST_APPLIED {
            *value = "[left out]".into();
            continue;
        }
        let how = look(key, Look::Text);
        let Value::String(said) = value else {
            walk(value, how);
            continue;
        };
        let json = said.starts_with(['{', '[']) && said.len() <= MAX_JSON && how != Look::Secret;
        match serde_json::from_str::<Value>(said) {
            Ok(mut inner) if json => {
                walk(&mut inner, Look::Text);
                *said = inner.to_string();
            }
            _ => *said = string(said, how),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_gives_access_is_hidden_and_what_helps_stays() {
        let mut host = json!({
            "kind": "BareMetalHost",
            "metadata": {
                "name": "node-0", "uid": "6f1c2e80-6f0e-4a55-8c3f-0a2f1c9d7e11", "managedFields": [{ "manager": "x" }],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":{\"password\":\"hunter2\"}}",
                    "acme.example/api-token": "hunter3",
                    "baremetalhost.metal3.io/status": "{\"triedCredentials\":{\"credentials\":{\"name\":\"node-0-bmc\",\"namespace\":\"n\"}},\"url\":\"http://u:hunter4@h/i?sig=hunter5\"}",
                    "acme.example/note": "login with password: hunter6 please",
                },
            },
            "spec": {
                "bmc": { "address": "redfish://admin:hunter7@192.0.2.7/redfish/v1/Systems/1", "credentialsName": "node-0-bmc" },
                "image": { "url": "https://u:hunter8@images.example/a.img?X-Signature=hunter9", "checksum": "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "ociAuthSecretName": "pull" },
                "userData": { "name": "user-data", "namespace": "n" },
            },
            "status": {
                "settings": { "AdminPassword": "hunter10", "SetupPin": "hunter15", "KmsKey": "hunter16", "NumaMode": "Enabled", "SecureBoot": "On" },
                "errorMessage": "the BMC said: Authorization: Bearer hunter11abc",
                "goodCredentials": { "credentials": { "name": "node-0-bmc", "namespace": "n" }, "credentialsVersion": "17", "extra": "hunter12", "pin": 98765 },
                "seal": { "since": "2026-03-01T11:00:00Z", "value": "hunter13" },
                "line": "a\u{1b}[2Jb eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9hunter14",
            },
        });
        object(&mut host);
        let told = host.to_string();
        for number in 2..=16 {
            assert!(
                !told.contains(&format!("hunter{number}\"")) && !told.contains(&format!("hunter{number}@")),
                "{number}: {told}"
            );
        }
        assert!(!told.contains("hunter") && !told.contains("98765") && !told.contains('\u{1b}'), "{told}");
        assert_eq!(host["spec"]["bmc"]["credentialsName"], "node-0-bmc");
        assert_eq!(host["spec"]["image"]["ociAuthSecretName"], "pull");
        assert_eq!(host["spec"]["image"]["checksum"].as_str().unwrap().len(), 64);
        assert_eq!(host["spec"]["userData"]["name"], "user-data");
        assert_eq!(host["metadata"]["uid"], "6f1c2e80-6f0e-4a55-8c3f-0a2f1c9d7e11");
        assert_eq!(host["status"]["settings"]["NumaMode"], "Enabled");
        assert_eq!(host["status"]["goodCredentials"]["credentials"]["name"], "node-0-bmc");
        assert!(host["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn codes_and_reasons_stay_and_tokens_do_not() {
        for code in diagnosis::Code::ALL {
            let line = format!("Certain {} (x)", code.as_str());
            assert_eq!(text(&line), line);
        }
        assert_eq!(text("password: ServerCertificateRefusedByHost xCx"), "password: [hidden] xCx");
        assert_eq!(text("password: ServerCertificateRefusedByHost"), "password: [hidden]");
        for token in ["AbCdEfGhIjKlMnOpQrStUvWxYz", "abcdefghijklmnopqrstuvwxyz", "ABcdefghijklmnopqrstuvwxyz"] {
            assert_eq!(text(token), HIDDEN, "{token}");
        }
    }

    #[test]
    fn each_line_is_looked_at_by_itself_and_lines_stay() {
        assert_eq!(text("password: one two\nthe fan has failed\n"), "password: [hidden] two\nthe fan has failed\n");
    }

    #[test]
    fn arguments_and_pairs_are_told_by_what_goes_before() {
        let mut pod = json!({
            "args": ["operator", "--api-token", "hunter1", "--media-host", "192.0.2.10", "--password=hunter2", "--image-proxy", "http://u:hunter3@p:3128"],
            "env": [{ "name": "DB_PASSWORD", "value": "hunter4" }, { "name": "LOG", "value": "info" }],
            "strings": [{ "key": "root_password", "value": "hunter5" }, { "key": "rack", "value": "seven" }],
            "settings": [{ "attributeName": "AdminPassword", "currentValue": "hunter6", "default": "hunter7" }],
            "command": ["sh", "-c", "exec x --password hunter8 --level debug"],
            "steps": [{ "step": "unlock", "args": "{\"new_pin\":\"hunter9\"}" }],
            "keySha256": "ab".repeat(32),
            "annotations": { "metamorph.metal3.io/discovered-key": "cd".repeat(32) },
        });
        object(&mut pod);
        let told = pod.to_string();
        assert!(!told.contains("hunter"), "{told}");
        assert!(
            told.contains(&"ab".repeat(32)) && told.contains(&"cd".repeat(32)),
            "digests of public keys tell one BMC from another: {told}"
        );
        assert!(
            told.contains("192.0.2.10") && told.contains("p:3128") && told.contains("info") && told.contains("seven"),
            "{told}"
        );
    }

    #[test]
    fn a_deep_value_and_one_that_is_no_object_are_taken() {
        let mut deep = json!("x");
        for _ in 0..100 {
            deep = json!([{ "a": deep }]);
        }
        object(&mut deep);
        for mut value in [json!(null), json!("password=x"), json!([1, 2]), json!({ "metadata": 7 })] {
            object(&mut value);
            assert!(!value.to_string().contains("=x"));
        }
    }
}
