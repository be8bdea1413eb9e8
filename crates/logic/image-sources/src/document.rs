//! What people write: the key [`KEY`] of a ConfigMap [`CONFIG_MAP`], YAML or JSON.

use serde::Deserialize;
use serde_json::Value;

use crate::fault::Fault;
use crate::mirrors::{self, Rule};
use crate::proxy::Proxy;

/// Name of the ConfigMap, in a namespace with hosts or in the server's own.
pub const CONFIG_MAP: &str = "metamorph-images";
/// Its key.
pub const KEY: &str = "images.yaml";
/// Longest document, in bytes, also with what its aliases stand for.
pub(crate) const MAX_DOCUMENT: usize = 64 << 10;
/// Most values in it.
const MAX_NODES: usize = 4096;

/// A document. What it leaves out is as the server has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// How its images are read.
    pub proxy: Option<ProxyChoice>,
    /// Mirrors, in place of the server's.
    pub mirrors: Option<Vec<Rule>>,
}

/// How images are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// Without a proxy.
    Direct,
    /// By this one.
    By {
        /// The proxy, without login.
        proxy: Proxy,
        /// Secret with user and password.
        secret: Option<String>,
        /// Whether agents get user and password, where it is said.
        agents: Option<bool>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    #[serde(default)]
    proxy: Option<WrittenProxy>,
    #[serde(default)]
    mirrors: Option<Vec<Rule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenProxy {
    #[serde(default)]
    direct: bool,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    no_proxy: Vec<String>,
    #[serde(default)]
    secret_name: Option<String>,
    #[serde(default)]
    agents: Option<bool>,
}

impl Document {
    /// Reads and checks it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<Self, Fault> {
        if text.len() > MAX_DOCUMENT {
            return Err(Fault(format!("it has {} bytes, of which {MAX_DOCUMENT} are read", text.len())));
        }
        let limits = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_total_scalar_bytes: MAX_DOCUMENT, max_nodes: MAX_NODES },
        };
        let value: Value = serde_saphyr::from_str_with_options(text, limits).map_err(|error| {
            // Its own text quotes the document.
            let place = error.location().map(|at| format!(" (line {}, column {})", at.line(), at.column()));
            Fault(format!("it is neither YAML nor JSON, or too much of it{}", place.unwrap_or_default()))
        })?;
        if value.is_null() {
            return Ok(Self::default());
        }
        if let Some(at) = emptied(&value, "") {
            let what = "it has no value: take the line away for what the server has, or give it one (`mirrors: []`, `proxy: {direct: true}` for none)";
            return Err(Fault(format!("{at}: {what}")));
        }
        let written: Written = serde_path_to_error::deserialize(value).map_err(|error| {
            // An error about a field's name tells names alone; others quote what was found.
            let inner = error.inner().to_string();
            let tells = ["unknown field", "missing field"].iter().any(|known| inner.starts_with(known));
            let what = if tells { inner } else { "it has another form than it should have".to_owned() };
            let what: String = what.chars().filter(|c| !c.is_control()).take(200).collect();
            Fault(format!("{}: {what}", error.path()))
        })?;
        mirrors::check(written.mirrors.as_deref().unwrap_or_default())?;
        let proxy = written.proxy.map(choice).transpose()?;
        Ok(Self { proxy, mirrors: written.mirrors })
    }
}

/// Where a value is missing: it is not to count as if its line were not there.
fn emptied(value: &Value, at: &str) -> Option<String> {
    match value {
        Value::Null => Some(at.chars().filter(|c| !c.is_control()).take(200).collect()),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            emptied(value, &at)
        }),
        Value::Array(all) => all.iter().enumerate().find_map(|(index, one)| emptied(one, &format!("{at}[{index}]"))),
        _ => None,
    }
}

fn choice(written: WrittenProxy) -> Result<ProxyChoice, Fault> {
    let fault = |what: &str| Err(Fault(format!("proxy: {what}")));
    let Some(url) = written.url else {
        let alone = written.no_proxy.is_empty() && written.secret_name.is_none() && written.agents.is_none();
        return match written.direct {
            true if alone => Ok(ProxyChoice::Direct),
            true => fault("it is direct, and noProxy, secretName or agents stands beside that"),
            false => fault("it has no url; `direct: true` is for images that are read without a proxy"),
        };
    };
    if written.direct {
        return fault("it is direct, and has a url");
    }
    let proxy = Proxy { url, login: None, no_proxy: written.no_proxy };
    proxy.route().map_err(|error| Fault(format!("proxy: {error}")))?;
    let secret = written.secret_name.filter(|name| !name.is_empty());
    if secret.is_none() && written.agents.is_some() {
        return fault("agents says who gets user and password, and there is no secretName");
    }
    Ok(ProxyChoice::By { proxy, secret, agents: written.agents })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_document_says_proxy_and_mirrors() {
        let text = "proxy:\n  url: http://proxy.example:3128\n  noProxy: [.example, 10.0.0.0/8]\n  secretName: login\n\
            mirrors:\n- prefix: oci://r.example\n  locations: [oci://m.example/cache]\n  fallback: false\n\
            - prefix: http://old.example\n  blocked: true\n";
        let read = Document::read(text).unwrap();
        let Some(ProxyChoice::By { proxy, secret, agents: None }) = read.proxy else { panic!("{read:?}") };
        assert_eq!(
            (proxy.url.as_str(), proxy.no_proxy.len(), secret.as_deref()),
            ("http://proxy.example:3128", 2, Some("login"))
        );
        let rules = read.mirrors.unwrap();
        assert!(!rules[0].fallback && !rules[0].blocked && rules[1].blocked);
        assert_eq!(Document::read("proxy: {direct: true}").unwrap().proxy, Some(ProxyChoice::Direct));
        // None at all, in place of the server's.
        assert_eq!(Document::read("mirrors: []").unwrap().mirrors, Some(vec![]));
        for empty in ["", "{}", "# nothing"] {
            assert_eq!(Document::read(empty).unwrap(), Document::default(), "{empty}");
        }
    }

    /// The ConfigMap that people copy.
    #[test]
    fn the_example_is_read() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/image-mirrors.yaml");
        let text = std::fs::read_to_string(file).unwrap();
        let map: Value = serde_saphyr::from_str(text.split("---\n").next().unwrap()).unwrap();
        assert_eq!(map["metadata"]["name"], CONFIG_MAP);
        let read = Document::read(map["data"][KEY].as_str().unwrap()).unwrap();
        let Some(ProxyChoice::By { secret, .. }) = read.proxy else { panic!("{read:?}") };
        assert_eq!((secret.as_deref(), read.mirrors.unwrap().len()), (Some("image-proxy"), 3));
    }

    #[test]
    fn what_is_no_document_is_said_so_and_not_quoted() {
        let bomb = format!("x: &a \"{}\"\nmirrors: [{}]", "hunter2".repeat(1000), ["*a"; 20].join(", "));
        for (text, says) in [
            ("proxy: {url: http://p, passwd: hunter2}", "unknown field `passwd`"),
            ("mirrors: [{locations: [http://m]}]", "missing field `prefix`"),
            ("mirrors: [{prefix: 'http://i', location: hunter2}]", "unknown field `location`"),
            ("proxies: {}", "unknown field `proxies`"),
            ("proxy: http://u:hunter2@p", "proxy: it has another form"),
            ("proxy: {url: 'http://u:hunter2@p'}", "user in its URL"),
            ("proxy: {url: 'http://p', noProxy: ['hunter 2']}", "neither"),
            ("proxy: {}", "no url"),
            ("proxy: {direct: true, url: 'http://p'}", "direct"),
            ("proxy: {direct: true, secretName: x}", "direct"),
            ("mirrors: hunter2", "another form"),
            ("mirrors:", "mirrors: it has no value"),
            ("proxy: ~\nmirrors: []", "proxy: it has no value"),
            ("proxy: {url: 'http://p', secretName: }", "proxy.secretName: it has no value"),
            ("mirrors: [{prefix: 'http://i', locations: [null]}]", "mirrors[0].locations[0]: it has no value"),
            ("proxy: {url: 'http://p', agents: true}", "no secretName"),
            ("proxy: {direct: true, agents: true}", "agents"),
            ("[1, 2", "line"),
            (bomb.as_str(), "too much"),
        ] {
            let error = Document::read(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("hunter2"), "{text:.60}: {error}");
        }
        assert!(Document::read(&" ".repeat(MAX_DOCUMENT + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,80}") {
            let _ = Document::read(&text);
        }
    }
}
