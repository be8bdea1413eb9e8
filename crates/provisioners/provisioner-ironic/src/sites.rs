//! The Ironics of a server: their names, where they are, and which hosts are whose.
//!
//! They stand in one YAML file (`--ironics`), which may be a mounted ConfigMap. Passwords, keys and certificates are files of their own, of mounted
//! Secrets, and are read again while the server runs.

use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use crate::http::Access;

/// Largest file, bytes.
const MAX_FILE: usize = 1 << 20;
/// Most Ironics.
const MAX_SITES: usize = 256;

/// What is wrong with the file, with the Ironic's name where it is of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the list of Ironics: {0}")]
pub struct SitesError(String);

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ironics: Vec<SiteFile>,
}

/// One Ironic, as it stands in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SiteFile {
    /// Its name; hosts' records name it, so it stays.
    pub name: String,
    /// `https://host[:6385]`.
    pub endpoint: String,
    /// Namespaces whose hosts are its own. One Ironic without any has all others.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// PEM file with the authority of its certificate; without it, those that the system trusts.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM file with our certificate.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    /// PEM file with its key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// File with the user (HTTP basic).
    #[serde(default)]
    pub username_file: Option<PathBuf>,
    /// File with the password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Kernel of Ironic's agent; nothing: as Ironic is configured.
    #[serde(default)]
    pub deploy_kernel: Option<String>,
    /// Its ramdisk.
    #[serde(default)]
    pub deploy_ramdisk: Option<String>,
    /// An ISO image with both, for BMCs that boot one.
    #[serde(default)]
    pub deploy_iso: Option<String>,
    /// Where BMCs with IPv6 addresses find Ironic's images.
    #[serde(default)]
    pub external_url_v6: Option<String>,
    /// How many machines boot over the network at once; 20 as in baremetal-operator.
    #[serde(default = "twenty")]
    pub provisioning_limit: usize,
    /// There is a network to boot from; without, only BMCs are served that need none.
    #[serde(default = "yes")]
    pub provisioning_network: bool,
    /// Its nodes are of the hardware type `fake-hardware`, which does nothing, whatever their addresses: to try it.
    #[serde(default)]
    pub fakes: bool,
}

const fn twenty() -> usize {
    20
}

const fn yes() -> bool {
    true
}

/// One Ironic, without how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Namespaces whose hosts are its own; without any, it has all others.
    pub namespaces: Vec<String>,
    /// Kernel and ramdisk of the agent.
    pub ramdisk: Option<(String, String)>,
    /// ISO image of the agent.
    pub iso: Option<String>,
    /// Where BMCs with IPv6 addresses find Ironic's images.
    pub external_url_v6: Option<String>,
    /// How many machines boot over the network at once.
    pub provisioning_limit: usize,
    /// There is a network to boot from.
    pub provisioning_network: bool,
    /// Its nodes are of the hardware type that does nothing.
    pub fakes: bool,
}

impl Site {
    /// An Ironic of this name for all hosts, as it is configured itself.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespaces: Vec::new(),
            ramdisk: None,
            iso: None,
            external_url_v6: None,
            provisioning_limit: twenty(),
            provisioning_network: true,
            fakes: false,
        }
    }
}

/// Reads the file.
///
/// # Errors
/// What is wrong with it.
pub fn read_sites(text: &str) -> Result<Vec<(Site, Access)>, SitesError> {
    if text.len() > MAX_FILE {
        return Err(SitesError(format!("it has {} bytes, {MAX_FILE} are accepted", text.len())));
    }
    let file: File = serde_saphyr::from_str(text)
        // The lines around the fault may have a password.
        .map_err(|error| SitesError(crate::fault::clean(&error.without_snippet().to_string())))?;
    if file.ironics.is_empty() {
        return Err(SitesError("it names none".to_owned()));
    }
    if file.ironics.len() > MAX_SITES {
        return Err(SitesError(format!("it names {}, {MAX_SITES} are accepted", file.ironics.len())));
    }
    let mut sites: Vec<(Site, Access)> = Vec::new();
    for entry in file.ironics {
        let shown: String = entry.name.chars().take(64).collect();
        let site = site(entry).map_err(|what| SitesError(format!("{shown:?}: {what}")))?;
        sites.push(site);
    }
    for (index, (site, _)) in sites.iter().enumerate() {
        let before = || sites.iter().take(index).map(|(site, _)| site);
        if before().any(|other| other.name == site.name) {
            return Err(SitesError(format!("two have the name {:?}", site.name)));
        }
        if let Some(other) = before().find(|other| other.namespaces.is_empty() && site.namespaces.is_empty()) {
            let (a, b) = (&other.name, &site.name);
            return Err(SitesError(format!(
                "neither {a:?} nor {b:?} has namespaces: only one has all that no other has"
            )));
        }
        let taken = site.namespaces.iter().find(|mine| before().any(|other| other.namespaces.contains(mine)));
        if let Some(namespace) = taken {
            return Err(SitesError(format!("{:?}: the namespace {namespace:?} is another's already", site.name)));
        }
    }
    Ok(sites)
}

fn pair(what: &str, first: Option<PathBuf>, second: Option<PathBuf>) -> Result<Option<(PathBuf, PathBuf)>, String> {
    match (first, second) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        _ => Err(format!("{what} belong together: name both, or neither")),
    }
}

fn site(entry: SiteFile) -> Result<(Site, Access), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if entry.name.is_empty() || entry.name.len() > 63 || !entry.name.chars().all(fits) {
        return Err("a name has 1 to 63 lower-case letters, digits and -".to_owned());
    }
    let endpoint = Url::parse(&entry.endpoint).map_err(|error| format!("the endpoint is no URL: {error}"))?;
    if !matches!(endpoint.scheme(), "http" | "https") || endpoint.host().is_none() {
        return Err("the endpoint is no URL of http or https".to_owned());
    }
    if !endpoint.username().is_empty() || endpoint.password().is_some() {
        return Err("the endpoint names a user: put it into usernameFile and passwordFile".to_owned());
    }
    let certificate = pair("certificateFile and keyFile", entry.certificate_file, entry.key_file)?;
    let login = pair("usernameFile and passwordFile", entry.username_file, entry.password_file)?;
    let plain = endpoint.scheme() == "http";
    if plain && (certificate.is_some() || entry.ca_file.is_some()) {
        return Err("the endpoint is http, which has no certificates: make it https, or remove them".to_owned());
    }
    if plain && login.is_some() {
        tracing::warn!(ironic = %entry.name, "its endpoint is http: user and password, and those of all its BMCs, go over the network in clear");
    } else if plain {
        tracing::warn!(ironic = %entry.name, "its endpoint is http: users and passwords of its BMCs go over the network in clear");
    }
    let ramdisk = match (entry.deploy_kernel, entry.deploy_ramdisk) {
        (Some(kernel), Some(ramdisk)) => Some((kernel, ramdisk)),
        (None, None) => None,
        _ => return Err("deployKernel and deployRamdisk belong together: name both, or neither".to_owned()),
    };
    let site = Site {
        name: entry.name,
        namespaces: entry.namespaces,
        ramdisk,
        iso: entry.deploy_iso,
        external_url_v6: entry.external_url_v6,
        provisioning_limit: entry.provisioning_limit,
        provisioning_network: entry.provisioning_network,
        fakes: entry.fakes,
    };
    Ok((site, Access { endpoint, authority: entry.ca_file, certificate, login }))
}

/// The place in the list of the Ironic that has the hosts of this namespace.
pub fn chosen<'a>(sites: impl Iterator<Item = &'a Site>, namespace: &str) -> Option<usize> {
    let sites: Vec<&Site> = sites.collect();
    let own = sites.iter().position(|site| site.namespaces.iter().any(|mine| mine == namespace));
    own.or_else(|| sites.iter().position(|site| site.namespaces.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "
ironics:
- name: hall-1
  endpoint: https://ironic.hall-1.example:6385/
  namespaces: [a, b]
  caFile: /etc/ironic/ca.crt
  certificateFile: /etc/ironic/tls.crt
  keyFile: /etc/ironic/tls.key
  usernameFile: /etc/ironic/username
  passwordFile: /etc/ironic/password
  deployIso: http://192.0.2.1/ipa.iso
- name: others
  endpoint: http://192.0.2.1:6385
  provisioningLimit: 5
";

    #[test]
    fn a_host_has_the_ironic_of_its_namespace() {
        let read = read_sites(TWO).unwrap();
        let of =
            |namespace: &str| chosen(read.iter().map(|(site, _)| site), namespace).map(|at| read[at].0.name.as_str());
        assert_eq!((of("a"), of("b"), of("c")), (Some("hall-1"), Some("hall-1"), Some("others")));
        assert_eq!(chosen(std::iter::once(&read[0].0), "c"), None);
        assert_eq!((read[0].0.provisioning_limit, read[1].0.provisioning_limit), (20, 5));
        assert!(read[0].1.certificate.is_some() && read[0].1.login.is_some());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_is_wrong() {
        let one = |more: &str| format!("ironics: [{{name: a, endpoint: 'https://h', {more}}}]");
        for (text, word) in [
            (String::new(), "list of Ironics"),
            ("ironics: []".into(), "none"),
            (one("color: red"), "color"),
            (one("certificateFile: /x"), "keyFile"),
            (one("passwordFile: /x"), "usernameFile"),
            (one("deployKernel: http://x"), "deployRamdisk"),
            ("ironics: [{name: A, endpoint: 'https://h'}]".into(), "lower-case"),
            ("ironics: [{name: a, endpoint: 'ftp://h'}]".into(), "http"),
            ("ironics: [{name: a, endpoint: 'h'}]".into(), "URL"),
            ("ironics: [{name: a, endpoint: 'https://u:p@h'}]".into(), "usernameFile"),
            ("ironics: [{name: a, endpoint: 'http://h', caFile: /x}]".into(), "https"),
            ("ironics: [{name: a, endpoint: 'https://h'}, {name: a, endpoint: 'https://g', namespaces: [x]}]".into(), "two"),
            ("ironics: [{name: a, endpoint: 'https://h'}, {name: b, endpoint: 'https://g'}]".into(), "neither"),
            (
                "ironics: [{name: a, endpoint: 'https://h', namespaces: [x]}, {name: b, endpoint: 'https://g', namespaces: [x]}]".into(),
                "another's",
            ),
        ] {
            let error = read_sites(&text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(!error.contains("u:p"), "{error}");
        }
    }
}
