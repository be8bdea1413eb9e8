//! URLs, as Go's `net/url` reads them.

/// An absolute URL, or the path of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    /// Parses what Go's `ParseRequestURI` accepts.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let failed = |why: &str| format!("parse {text:?}: {why}");
        if text.chars().any(char::is_control) {
            return Err(failed("net/url: invalid control character in URL"));
        }
        if text.is_empty() {
            return Err(failed("empty url"));
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest))
                if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
            {
                (scheme.to_ascii_lowercase(), rest)
            }
            Some(("", _)) => return Err(failed("missing protocol scheme")),
            _ => (String::new(), text),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !rest.starts_with('/') && scheme.is_empty() {
            return Err(failed("invalid URI for request"));
        }
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
                let end = rest.find('/').unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                (authority.rsplit_once('@').map_or(authority, |(_, host)| host), path)
            }
            _ if rest.starts_with('/') => ("", rest),
            _ => ("", ""),
        };
        if let Some(bad) =
            host.chars().find(|c| matches!(c, ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '}' | '|'))
        {
            return Err(failed(&format!("invalid character {:?} in host name", bad.to_string())));
        }
        let port = port_of(host);
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(failed(&format!("invalid port {:?} after host", format!(":{port}"))));
        }
        bad_escape(path).map_or(Ok(()), |bad| Err(failed(&format!("invalid URL escape {bad:?}"))))?;
        Ok(Self { scheme, host: host.to_owned(), path: escaped(path), query: query.to_owned() })
    }

    pub(crate) fn hostname(&self) -> &str {
        if let Some(end) = self.host.find(']') {
            return self.host.get(1..end).unwrap_or_default();
        }
        self.host.rsplit_once(':').map_or(&self.host, |(host, _)| host)
    }
}

pub(crate) fn port_of(host: &str) -> &str {
    let after = host.rfind(']').map_or(host, |at| host.get(at..).unwrap_or_default());
    after.rsplit_once(':').map_or("", |(_, port)| port)
}

fn bad_escape(text: &str) -> Option<&str> {
    for (at, _) in text.match_indices('%') {
        let escape = text.get(at + 1..at + 3);
        if !escape.is_some_and(|e| e.bytes().all(|b| b.is_ascii_hexdigit())) {
            return text.get(at..(at + 3).min(text.len())).or(Some("%"));
        }
    }
    None
}

/// The path, with invalid characters escaped.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte);
        if plain { out.push(byte as char) } else { out.push_str(&format!("%{byte:02X}")) }
    }
    out
}
