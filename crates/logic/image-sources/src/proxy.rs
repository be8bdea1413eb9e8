//! Proxies: HTTP's, by `CONNECT` for what is read over TLS.

use std::fmt;

use addresses::text_without_secrets;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fault::Fault;
use crate::no_proxy::NoProxy;

/// Longest URL of a proxy, in bytes.
const MAX_URL: usize = 1024;
/// Longest user and password, in bytes.
const MAX_LOGIN: usize = 1024;

/// A proxy, as it travels: read it by [`Proxy::route`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxy {
    /// `http://proxy.example:3128`, or `https://…`, without user and password.
    pub url: String,
    /// What it wants to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// What is read without it, see [`NoProxy`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
}

/// The value of `Proxy-Authorization`; it is secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login(pub String);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(secret)")
    }
}

impl Login {
    /// User and password (RFC 7617).
    ///
    /// # Errors
    /// If they cannot be sent.
    pub fn basic(user: &str, password: &str) -> Result<Self, Fault> {
        let fault = |what: &str| Err(Fault(what.to_owned()));
        if user.is_empty() || user.contains(':') {
            return fault("its user is empty or has a colon");
        }
        if user.len() + password.len() > MAX_LOGIN || user.chars().chain(password.chars()).any(char::is_control) {
            return fault("its user and password are too long or have control characters");
        }
        Ok(Self(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
    }
}

/// A proxy that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    url: Url,
    login: Option<Login>,
    no_proxy: NoProxy,
}

impl Proxy {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn route(&self) -> Result<Route, Fault> {
        let no_proxy = NoProxy::read(self.no_proxy.iter().map(String::as_str))
            .map_err(|fault| Fault(format!("noProxy: {fault}")))?;
        Ok(Route { url: url_of(&self.url)?, login: self.login.clone(), no_proxy })
    }
}

fn url_of(text: &str) -> Result<Url, Fault> {
    let shown: String = text_without_secrets(text).chars().filter(|c| !c.is_control()).take(200).collect();
    let fault = |what: &str| Fault(format!("the proxy {shown:?} {what}"));
    if text.len() > MAX_URL {
        return Err(fault("is too long"));
    }
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| fault("is no URL such as http://proxy.example:3128"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(fault("has a user in its URL, where everybody reads it"));
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(fault("has something behind its host and port"));
    }
    Ok(url)
}

impl Route {
    /// The proxy's address, without secrets.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// What it wants to see.
    #[must_use]
    pub const fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Whether this URL is read by way of it.
    #[must_use]
    pub fn carries(&self, url: &Url) -> bool {
        !self.no_proxy.holds(url)
    }
}

impl fmt::Display for Route {
    /// As people write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str) -> Proxy {
        Proxy { url: url.to_owned(), login: None, no_proxy: Vec::new() }
    }

    #[test]
    fn proxies_are_urls_without_secrets() {
        for url in ["http://proxy.example:3128", "https://192.0.2.1/", "http://[2001:db8::1]:3128"] {
            let route = proxy(url).route().unwrap();
            assert_eq!(route.to_string(), url.trim_end_matches('/'));
        }
        for (url, says) in [
            ("proxy.example:3128", "no URL"),
            ("socks5://proxy.example:1080", "no URL"),
            ("http://", "no URL"),
            ("http://user:hunter2@proxy.example:3128", "everybody"),
            ("http://proxy.example/x", "behind"),
            ("http://proxy.example?hunter2", "behind"),
        ] {
            let error = proxy(url).route().unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{url}: {error}");
        }
        let bad = Proxy { no_proxy: vec!["a b".into()], ..proxy("http://p") };
        assert!(bad.route().unwrap_err().to_string().starts_with("noProxy: "));
    }

    #[test]
    fn who_signs_in_is_shown_nowhere() {
        let login = Login::basic("u", "hunter2").unwrap();
        assert_eq!(login.0, "Basic dTpodW50ZXIy");
        let of = Proxy { login: Some(login), ..proxy("http://p") };
        assert!(!format!("{of:?} {:?}", of.route()).contains("dTpo"));
        for (user, password) in [("", "p"), ("a:b", "p"), ("u", "p\r\nX: y"), ("u", &"x".repeat(2000))] {
            assert!(Login::basic(user, password).is_err(), "{user}");
        }
    }
}
