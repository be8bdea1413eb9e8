//! What is read without a proxy: the entries of `no_proxy`, as Go and therefore Kubernetes' own programs read them (`golang.org/x/net/http/httpproxy`).
//!
//! | entry | what it names |
//! |---|---|
//! | `*` | everything |
//! | `example.com` | that name and all below it |
//! | `.example.com`, `*.example.com` | all names below it |
//! | `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]` | that address, where a URL has it as its host |
//! | `10.0.0.0/8`, `fd00::/8` | the addresses of that range, the same |
//! | any of the above names and addresses with `:8443` | that port of it alone |
//!
//! Names are not resolved. Other than in Go, loopback addresses are no exception, and an entry that is none of these is a fault.

use std::net::IpAddr;

use addresses::Range;
use url::{Host, Url};

use crate::fault::Fault;

/// Most entries.
pub(crate) const MAX_NO_PROXY: usize = 256;
/// Longest entry, in bytes.
const MAX_ENTRY: usize = 260;

/// The entries, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    All,
    Range(Range),
    Address(IpAddr, Option<u16>),
    /// In lower case, without dots around it; whether the name itself is meant beside those below it.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl NoProxy {
    /// Reads entries.
    ///
    /// # Errors
    /// The first that is none.
    pub fn read<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Fault> {
        let mut read = Vec::new();
        for text in entries {
            if read.len() >= MAX_NO_PROXY {
                return Err(Fault(format!("it has more than {MAX_NO_PROXY} entries")));
            }
            read.push(entry(text)?);
        }
        Ok(Self(read))
    }

    /// Whether this URL is read without the proxy.
    #[must_use]
    pub fn holds(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        let meant = |of: Option<u16>| of.is_none_or(|of| Some(of) == port);
        let host = match url.host() {
            Some(Host::Domain(name)) => Err(name.trim_end_matches('.').to_ascii_lowercase()),
            Some(Host::Ipv4(address)) => Ok(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Ok(IpAddr::V6(address).to_canonical()),
            None => return false,
        };
        self.0.iter().any(|entry| match (entry, &host) {
            (Entry::All, _) => true,
            (Entry::Range(range), Ok(address)) => range.holds(*address),
            (Entry::Address(of, at), Ok(address)) => of == address && meant(*at),
            (Entry::Domain { name, itself, port }, Err(host)) => {
                let below = host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                (below || *itself && host == name) && meant(*port)
            }
            _ => false,
        })
    }
}

fn entry(text: &str) -> Result<Entry, Fault> {
    let text = text.trim();
    let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    let fault = |what: &str| Fault(format!("{shown:?} {what}"));
    let neither = "is neither a name, an address, a range of addresses nor *";
    if text == "*" {
        return Ok(Entry::All);
    }
    if text.is_empty() || text.len() > MAX_ENTRY {
        return Err(fault(neither));
    }
    if text.contains('/') {
        return text.parse().map(Entry::Range).map_err(|error| fault(&format!("is no range of addresses: it {error}")));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Entry::Address(address.to_canonical(), None));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inner, behind) = rest.split_once(']').ok_or_else(|| fault("has a bracket that is not closed"))?;
            let port =
                if behind.is_empty() { None } else { Some(behind.strip_prefix(':').ok_or_else(|| fault(neither))?) };
            (inner, port)
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => None,
        Some(port) => {
            let read = port.parse::<u16>().ok().filter(|port| *port != 0);
            Some(read.ok_or_else(|| fault("has a port that is no number from 1 to 65535"))?)
        }
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Entry::Address(address.to_canonical(), port));
    }
    let (name, itself) = match host.strip_prefix("*.").or_else(|| host.strip_prefix('.')) {
        Some(name) => (name, false),
        None => (host, true),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    // Numbers alone are an address that has been mistyped.
    let numbers = name.split('.').all(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    if text.starts_with('[') || numbers || !name.split('.').all(is_label) {
        return Err(fault(neither));
    }
    Ok(Entry::Domain { name, itself, port })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn without(entries: &str, url: &str) -> bool {
        NoProxy::read(entries.split(',').filter(|e| !e.is_empty())).unwrap().holds(&Url::parse(url).unwrap())
    }

    #[test]
    fn what_is_read_without_a_proxy() {
        for (entries, url, direct) in [
            ("", "http://a.example/", false),
            ("*", "http://a.example/", true),
            ("*", "http://[2001:db8::1]/", true),
            ("example", "https://example/x", true),
            ("example.com", "https://example.com/x", true),
            ("example.com", "https://a.b.EXAMPLE.com./x", true),
            ("EXAMPLE.com.", "https://example.com/x", true),
            ("example.com", "https://notexample.com/x", false),
            ("example.com", "https://example.com.evil/x", false),
            (".example.com", "https://example.com/x", false),
            (".example.com", "https://a.example.com/x", true),
            ("*.example.com", "https://example.com/x", false),
            ("*.example.com", "https://a.example.com/x", true),
            ("a.example:8443", "https://a.example:8443/", true),
            ("a.example:8443", "https://a.example/", false),
            ("a.example:443", "https://a.example/", true),
            ("a.example:80", "http://b.a.example/", true),
            (".a.example:80", "http://a.example/", false),
            ("192.0.2.1", "http://192.0.2.1:81/", true),
            ("192.0.2.1:81", "http://192.0.2.1:81/", true),
            ("192.0.2.1:81", "http://192.0.2.1/", false),
            ("192.0.2.0/24", "http://192.0.2.77/", true),
            ("192.0.2.0/24", "http://192.0.3.1/", false),
            ("0.0.0.0/0", "http://192.0.3.1/", true),
            ("0.0.0.0/0", "http://a.example/", false),
            ("192.0.2.1", "http://[::ffff:192.0.2.1]/", true),
            ("192.0.2.0/24", "http://[::ffff:192.0.2.9]/", true),
            ("2001:db8::1", "http://[2001:db8::1]/", true),
            ("[2001:db8::1]", "http://[2001:db8::1]:99/", true),
            ("[2001:db8::1]:443", "https://[2001:DB8:0::1]/", true),
            ("[2001:db8::1]:443", "http://[2001:db8::1]/", false),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("localhost", "http://localhost/", true),
            // Names are not resolved, and loopback is no exception.
            ("127.0.0.0/8", "http://localhost/", false),
            ("a.example", "http://127.0.0.1/", false),
            ("a.example, 10.0.0.0/8 ,b.example", "http://b.example/", true),
        ] {
            assert_eq!(without(entries, url), direct, "{entries} {url}");
        }
    }

    #[test]
    fn what_is_no_entry_is_said_so() {
        for (text, says) in [
            ("", "neither"),
            ("http://a.example", "no range"),
            ("10.0.0.1/8", "beyond its prefix"),
            ("10.0.0.0/33", "no range"),
            ("a.example/x", "no range"),
            ("a.example:", "port"),
            ("a.example:0", "port"),
            ("a.example:99999", "port"),
            ("[::1", "bracket"),
            ("[::1]x", "neither"),
            ("[a.example]", "neither"),
            ("a..example", "neither"),
            ("*a.example", "neither"),
            ("a.*.example", "neither"),
            ("256.0.0.1", "neither"),
            ("a b", "neither"),
            ("user@a", "neither"),
        ] {
            let error = NoProxy::read([text]).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let many = vec!["a.example"; MAX_NO_PROXY + 1];
        assert!(NoProxy::read(many).is_err());
    }

    proptest! {
        /// Whatever is read holds no host that does not end in it.
        #[test]
        fn a_name_holds_itself_and_what_is_below(name in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}", other in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}") {
            let held = without(&name, &format!("http://{other}/"));
            prop_assert_eq!(held, other == name || other.ends_with(&format!(".{name}")));
            let below = format!("http://x.{name}/");
            prop_assert!(without(&name, &below));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = NoProxy::read([text.as_str()]);
        }
    }
}
