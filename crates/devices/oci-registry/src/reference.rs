//! References: `oci://registry[:port]/repository[:tag][@digest]`.

use std::fmt;

use url::{Host, Url};

use crate::digest::Digest;
use crate::error::Error;

/// Longest reference that is read, in bytes.
const MAX_REFERENCE: usize = 2048;
/// Longest name of a repository, in bytes (distribution-spec, "Pulling manifests": clients may limit registry and name to 255 together).
const MAX_REPOSITORY: usize = 255;
/// Longest tag, in bytes (the same).
const MAX_TAG: usize = 128;
/// The tag of a reference without one, as Ironic has it.
const DEFAULT_TAG: &str = "latest";

/// Which manifest of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one that has this name now.
    Tag(String),
    /// The one of these bytes.
    Digest(Digest),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => f.write_str(tag),
            Self::Digest(digest) => digest.fmt(f),
        }
    }
}

/// An image in a registry. All of its parts have been checked against the grammar of the distribution specification, so that they can be put into a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    host: Host<String>,
    port: Option<u16>,
    repository: String,
    target: Target,
}

impl Reference {
    /// Reads `oci://…`. A digest counts before a tag; without both the tag is `latest`.
    ///
    /// # Errors
    /// [`Error::Reference`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fault = |what: &'static str| Error::Reference { what };
        let scheme = text.get(..6).filter(|scheme| scheme.eq_ignore_ascii_case("oci://"));
        let rest = scheme.and_then(|_| text.get(6..)).ok_or_else(|| fault("does not begin with oci://"))?;
        if text.len() > MAX_REFERENCE {
            return Err(fault("is too long"));
        }
        let (authority, path) = rest.split_once('/').ok_or_else(|| fault("names no repository"))?;
        let (host, port) = authority_of(authority).ok_or_else(|| fault("names no registry as host[:port]"))?;
        let (path, digest) = match path.split_once('@') {
            Some((path, digest)) => {
                let digest = digest.parse().map_err(|()| fault("has an @ without a digest sha256:… or sha512:…"))?;
                (path, Some(digest))
            }
            None => (path, None),
        };
        let (repository, tag) = path.split_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
        if repository.len() > MAX_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(fault(
                "has a repository that is not of lower-case letters, digits, and separators within a part",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(fault("has a tag that is not of letters, digits, dots, dashes and underscores"));
        }
        if let Host::Domain(name) = &host
            && matches!(name.as_str(), "docker.io" | "index.docker.io")
        {
            return Err(fault(
                "names docker.io, which is no registry: Docker Hub's is registry-1.docker.io, and its own images are below library/",
            ));
        }
        let target = digest.map_or_else(|| Target::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()), Target::Digest);
        Ok(Self { host, port, repository: repository.to_owned(), target })
    }

    /// Whether a URL is one, by its scheme.
    #[must_use]
    pub fn is_meant(url: &str) -> bool {
        url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"))
    }

    /// `registry[:port]`, an IPv6 address in brackets.
    #[must_use]
    pub fn registry(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// The repository, without slashes around it.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Which manifest.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// The same repository's manifest of this digest.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Self {
        Self { target: Target::Digest(digest.clone()), ..self.clone() }
    }

    /// The address of something in the repository (distribution-spec, "Endpoints"): `kind` is `manifests` or `blobs`.
    pub(crate) fn url(&self, scheme: &str, kind: &str, of: &str) -> Result<Url, Error> {
        let text = format!("{scheme}://{}/v2/{}/{kind}/{of}", self.registry(), self.repository);
        Url::parse(&text).map_err(|_| Error::Reference { what: "gives no URL" })
    }

    /// What a token is asked for (distribution, "Token Scope Documentation").
    pub(crate) fn scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }
}

impl fmt::Display for Reference {
    /// Without scheme, as people write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if matches!(self.target, Target::Tag(_)) { ':' } else { '@' };
        write!(f, "{}/{}{separator}{}", self.registry(), self.repository, self.target)
    }
}

fn authority_of(text: &str) -> Option<(Host<String>, Option<u16>)> {
    // No user, and no character that a URL's parser would take for another part or drop.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    if text.is_empty() || !text.bytes().all(is_plain) {
        return None;
    }
    let (host, port) = match text.rfind(':').filter(|colon| !text.get(*colon..).is_some_and(|rest| rest.contains(']')))
    {
        Some(colon) => (text.get(..colon)?, Some(text.get(colon + 1..)?)),
        None => (text, None),
    };
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port != 0)?),
        None => None,
    };
    let host = Host::parse(host).ok()?;
    Some((host, port))
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*` (distribution-spec, "Pulling manifests").
fn is_component(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    if !is_word(*first) || !is_word(*last) || !bytes.iter().all(|b| is_word(*b) || matches!(b, b'.' | b'_' | b'-')) {
        return false;
    }
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).filter(|s| !s.is_empty());
    separators.into_iter().all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

/// `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}` (the same).
fn is_tag(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let begins_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    begins_well && text.len() <= MAX_TAG && text.bytes().all(is_inner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn references_are_read_as_people_write_them() {
        for (text, registry, repository, target) in [
            ("oci://r.example/os", "r.example", "os", "latest"),
            ("OCI://r.example:5000/a/b_c/d--e:1.2-x", "r.example:5000", "a/b_c/d--e", "1.2-x"),
            ("oci://192.0.2.1/a:t", "192.0.2.1", "a", "t"),
            ("oci://[2001:db8::1]/a:t", "[2001:db8::1]", "a", "t"),
            ("oci://[2001:DB8::1]:5000/a", "[2001:db8::1]:5000", "a", "latest"),
            ("oci://R.Example/a", "r.example", "a", "latest"),
            (&format!("oci://r/a@{SHA}"), "r", "a", SHA),
            (&format!("oci://r/a:t@{SHA}"), "r", "a", SHA),
        ] {
            let read = Reference::parse(text).unwrap();
            let found = (read.registry(), read.repository(), read.target().to_string());
            assert_eq!(found, (registry.to_owned(), repository, target.to_owned()), "{text}");
        }
        let read = Reference::parse("oci://r:5000/a/b").unwrap();
        assert_eq!(read.to_string(), "r:5000/a/b:latest");
        assert_eq!(read.url("https", "manifests", "t").unwrap().as_str(), "https://r:5000/v2/a/b/manifests/t");
        assert_eq!(read.scope(), "repository:a/b:pull");
        assert_eq!(read.at(&SHA.parse().unwrap()).to_string(), format!("r:5000/a/b@{SHA}"));
    }

    #[test]
    fn what_is_none_is_said_so() {
        let long = format!("oci://r/{}", "a".repeat(3000));
        for (text, what) in [
            ("https://r/a", "oci://"),
            ("oci:r/a", "oci://"),
            ("oci://r", "no repository"),
            ("oci:///a", "no registry"),
            ("oci://u:p@r/a", "no registry"),
            ("oci://r:0/a", "no registry"),
            ("oci://r:99999/a", "no registry"),
            ("oci://2001:db8::1/a", "no registry"),
            ("oci://[::1/a", "no registry"),
            ("oci://r\\@x/a", "no registry"),
            ("oci://r/", "repository"),
            ("oci://r/A", "repository"),
            ("oci://r/a//b", "repository"),
            ("oci://r/../v2", "repository"),
            ("oci://r/a/", "repository"),
            ("oci://r/a___b", "repository"),
            ("oci://r/a?b", "repository"),
            ("oci://r/a%2f", "repository"),
            ("oci://r/a:", "tag"),
            ("oci://r/a:-x", "tag"),
            ("oci://r/a:b/c", "tag"),
            ("oci://r/a:b#c", "tag"),
            ("oci://r/a@sha256:12", "digest"),
            ("oci://r/a@b@c", "digest"),
            ("oci://docker.io/debian", "registry-1.docker.io"),
            (&long, "too long"),
        ] {
            let error = Reference::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    proptest! {
        /// Whatever is read gives an address at that registry, below that repository, and reads the same again.
        #[test]
        fn a_reference_never_leads_elsewhere(text in "oci://[a-z0-9.:\\[\\]@-]{1,12}/[a-zA-Z0-9./:@_%?#\\\\-]{0,24}") {
            if let Ok(read) = Reference::parse(&text) {
                let url = read.url("https", "manifests", &read.target().to_string()).unwrap();
                let expected = format!("/v2/{}/manifests/{}", read.repository(), read.target());
                prop_assert_eq!(url.path(), expected.as_str());
                prop_assert!(url.username().is_empty() && url.query().is_none() && url.fragment().is_none());
                prop_assert_eq!(Reference::parse(&format!("oci://{read}")).unwrap(), read);
            }
        }
    }
}
