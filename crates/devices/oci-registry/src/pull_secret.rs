//! Users and passwords of registries, as Docker's `config.json` holds them and Kubernetes in Secrets of type `kubernetes.io/dockerconfigjson`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::error::Error;
use crate::reference::Reference;

/// Largest file that is read, in bytes: a Secret holds 1 MiB.
const MAX_BYTES: usize = 1 << 20;
/// Shortest password that is looked for within a longer text, in bytes: shorter ones may stand in it by chance.
const SHOWN: usize = 8;
/// Most registries in it.
const MAX_REGISTRIES: usize = 1024;

/// User and password for one registry.
#[derive(Clone)]
pub struct PullSecret {
    basic: SecretString,
}

impl fmt::Debug for PullSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PullSecret(secret)")
    }
}

#[derive(Deserialize)]
struct File {
    auths: BTreeMap<String, Entry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl PullSecret {
    /// The entry for the reference's registry. A key is a registry (`r.example:5000`), perhaps with a scheme before it and `/v1/` or `/v2/` behind it; or a
    /// registry with the beginning of a repository (`r.example/team`), of which the longest counts.
    ///
    /// # Errors
    /// [`Error::PullSecret`].
    pub fn read(config_json: &str, reference: &Reference) -> Result<Self, Error> {
        let found = Self::find(config_json, reference)?;
        found.ok_or_else(|| Error::PullSecret { what: format!("has no entry for {}", reference.registry()) })
    }

    /// The same, where there may be no entry.
    ///
    /// # Errors
    /// As [`PullSecret::read`].
    pub fn find(config_json: &str, reference: &Reference) -> Result<Option<Self>, Error> {
        let fault = |what: &str| Error::PullSecret { what: what.to_owned() };
        if config_json.len() > MAX_BYTES {
            return Err(fault("is too long"));
        }
        // An error's own text quotes the file.
        let file: File = serde_json::from_str(config_json)
            .map_err(|_| fault("is not what Docker's config.json is: JSON with auths by registry"))?;
        if file.auths.len() > MAX_REGISTRIES {
            return Err(fault("has too many registries"));
        }
        let fitting = file.auths.iter().filter_map(|(key, entry)| Some((fit(key, reference)?, entry)));
        let Some((_, entry)) = fitting.max_by_key(|(fit, _)| *fit) else { return Ok(None) };
        let user_info = entry.user_info().map_err(|what| Error::PullSecret {
            what: format!("has an entry for {} that {what}", reference.registry()),
        })?;
        Ok(Some(Self { basic: format!("Basic {}", STANDARD.encode(user_info.expose_secret())).into() }))
    }

    /// `user:password`, for a program that signs in by itself.
    #[must_use]
    pub fn user_info(&self) -> SecretString {
        let sent = self.basic.expose_secret().trim_start_matches("Basic ");
        STANDARD.decode(sent).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default().into()
    }

    /// Whether a text shows the password, or user and password as they are sent.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        let sent = self.basic.expose_secret().trim_start_matches("Basic ");
        let plain = STANDARD.decode(sent).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let password = plain.split_once(':').map(|(_, password)| password).unwrap_or_default();
        text.contains(sent) || password.len() >= SHOWN && text.contains(password) || text == password
    }

    /// The value of `Authorization` (RFC 7617).
    pub(crate) const fn basic(&self) -> &SecretString {
        &self.basic
    }
}

impl Entry {
    /// `user:password`.
    fn user_info(&self) -> Result<SecretString, &'static str> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if given(&self.identitytoken).or_else(|| given(&self.registrytoken)).is_some() {
            return Err("holds a token and no password");
        }
        let text = match (given(&self.auth), given(&self.username), given(&self.password)) {
            (_, Some(user), Some(password)) => format!("{user}:{password}"),
            (Some(auth), ..) => {
                let bytes = STANDARD.decode(auth.trim()).map_err(|_| "is not base64")?;
                String::from_utf8(bytes).map_err(|_| "is no text")?
            }
            _ => return Err("has no user and password"),
        };
        let (user, password) = text.split_once(':').ok_or("is not user:password")?;
        if user.is_empty() || password.is_empty() {
            return Err("has an empty user or password");
        }
        Ok(text.into())
    }
}

/// How much of the repository a key names, in bytes; `None` if it is for another one.
fn fit(key: &str, reference: &Reference) -> Option<usize> {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest).trim_end_matches('/');
    let (registry, path) = key.split_once('/').unwrap_or((key, ""));
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let wanted = reference.registry();
    let hub = wanted == "registry-1.docker.io" && matches!(registry, "docker.io" | "index.docker.io");
    if !hub && !registry.eq_ignore_ascii_case(&wanted) {
        return None;
    }
    let rest = reference.repository().strip_prefix(path)?;
    (path.is_empty() || rest.is_empty() || rest.starts_with('/')).then_some(path.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &str, reference: &str) -> Result<String, String> {
        let found = PullSecret::read(config, &Reference::parse(reference).unwrap());
        found.map(|found| found.basic().expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    fn basic(user_info: &str) -> Result<String, String> {
        Ok(format!("Basic {}", STANDARD.encode(user_info)))
    }

    #[test]
    fn the_entry_of_the_registry_is_found_however_its_key_is_written() {
        for key in [
            "r.example:5000",
            "https://r.example:5000",
            "http://r.example:5000/v2/",
            "R.example:5000/v1/",
            "r.example:5000/team",
            "r.example:5000/team/os",
        ] {
            let config =
                format!(r#"{{"auths":{{"other.example":{{}},"{key}":{{"auth":"{}"}}}}}}"#, STANDARD.encode("u:p:w"));
            assert_eq!(read(&config, "oci://r.example:5000/team/os:1"), basic("u:p:w"), "{key}");
        }
        let two = r#"{"auths":{"r":{"username":"all","password":"p"},"r/team":{"username":"team","password":"p"},"r/te":{"username":"no","password":"p"}}}"#;
        assert_eq!(read(two, "oci://r/team/os"), basic("team:p"));
        assert_eq!(read(two, "oci://r/teams/os"), basic("all:p"));
        let hub = r#"{"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p"}},"credsStore":"x"}"#;
        assert_eq!(read(hub, "oci://registry-1.docker.io/library/debian"), basic("u:p"));
        assert_eq!(
            read(r#"{"auths":{"[2001:db8::1]:5000":{"username":"u","password":"p"}}}"#, "oci://[2001:db8::1]:5000/a"),
            basic("u:p")
        );
    }

    #[test]
    fn what_cannot_be_used_is_said_without_its_content() {
        let many: Vec<String> = (0..=MAX_REGISTRIES).map(|n| format!("\"r{n}\":{{}}")).collect();
        let many = format!("{{\"auths\":{{{}}}}}", many.join(","));
        let long = format!("{{\"auths\":{{}}, \"x\": \"{}\"}}", "x".repeat(MAX_BYTES));
        for (config, what) in [
            ("hunter2", "config.json"),
            ("{}", "config.json"),
            (r#"{"auths":["hunter2"]}"#, "config.json"),
            (r#"{"auths":{"other":{"auth":"hunter2"}}}"#, "no entry for r.example"),
            (r#"{"auths":{"r.example":{}}}"#, "no user and password"),
            (r#"{"auths":{"r.example":{"auth":"hunter2!"}}}"#, "not base64"),
            (r#"{"auths":{"r.example":{"auth":"aHVudGVyMg=="}}}"#, "user:password"),
            (r#"{"auths":{"r.example":{"username":"hunter2"}}}"#, "no user and password"),
            (r#"{"auths":{"r.example":{"auth":"Omh1bnRlcjI="}}}"#, "empty user"),
            (r#"{"auths":{"r.example":{"auth":"dTpw","identitytoken":"hunter2"}}}"#, "a token and no password"),
            (many.as_str(), "too many"),
            (long.as_str(), "too long"),
        ] {
            let error = read(config, "oci://r.example/os").unwrap_err();
            assert!(error.contains(what) && !error.contains("hunter2"), "{error}");
        }
    }
}
