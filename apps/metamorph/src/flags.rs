//! Validation of flags: values that could only fail later, or would silently have no effect, are refused before anything starts.
//!
//! Single values are validated by the command line's parser; files, folders and combinations by [`check`].

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use addresses::{MAX_RANGES, Range};
use anyhow::{Context, anyhow, bail, ensure};
use boot_media::{Architecture, Manifest};
use image_sources::{Login, NoProxy, Proxy};
use oci_registry::Reference;
use operator::ImageDefaults;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use url::Url;

use crate::cli::{ApiServe, Endpoints};

/// Longest file with certificates that is read, bytes.
const MAX_CERTIFICATES: u64 = 4 << 20;
/// A week, in seconds: longer waits are taken for typing errors.
const LONGEST: u64 = 7 * 24 * 3600;

/// A host by name or address, and a port if one was written: `192.0.2.1`, `server.example:8443`, `[2001:db8::1]:6385`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: Option<u16>,
}

impl HostPort {
    /// `host:port` for a URL; `default` if no port was given.
    #[must_use]
    pub fn authority(&self, default: u16) -> String {
        let port = self.port.unwrap_or(default);
        if self.host.contains(':') { format!("[{}]:{port}", self.host) } else { format!("{}:{port}", self.host) }
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => f.write_str(&self.authority(port)),
            None => f.write_str(&self.host),
        }
    }
}

impl std::str::FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((scheme, rest)) = text.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default();
            return Err(format!("a host is wanted and this is a URL; leave out \"{scheme}://\": {host}"));
        }
        if let Some((host, _)) = text.split_once('/') {
            return Err(format!("a host is wanted and this has a path; write {host}"));
        }
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("the port \"{text}\" is no number from 1 to 65535")),
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (inside, behind) = rest.split_once(']').ok_or("a bracket is not closed")?;
            inside.parse::<Ipv6Addr>().map_err(|_| format!("\"{inside}\" is no IPv6 address"))?;
            let port = match behind.strip_prefix(':') {
                Some(text) => Some(port(text)?),
                None if behind.is_empty() => None,
                None => return Err(format!("\"{behind}\" stands behind the bracket")),
            };
            (inside.to_owned(), port)
        } else if text.parse::<Ipv6Addr>().is_ok() {
            (text.to_owned(), None)
        } else {
            match text.split_once(':') {
                Some((host, text)) => (host.to_owned(), Some(port(text)?)),
                None => (text.to_owned(), None),
            }
        };
        host_name(&host)?;
        if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified() || ip.is_multicast()) {
            return Err(format!("nobody can be reached at {host}; write the address that others use"));
        }
        Ok(Self { host, port })
    }
}

/// A DNS name or an IP address.
///
/// # Errors
/// What is wrong with it.
pub fn host_name(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() {
        return Ok(text.to_owned());
    }
    if text.contains("://") {
        return Err("a host is wanted and this is a URL".to_owned());
    }
    // A certificate may cover all names of a domain, and a name may end in a dot.
    let plain = text.strip_prefix("*.").unwrap_or(text);
    let plain = plain.strip_suffix('.').unwrap_or(plain).to_ascii_lowercase();
    // Four numbers separated by dots are an invalid address, not a name.
    let numbers = plain.split('.').all(|part| part.bytes().all(|b| b.is_ascii_digit()));
    if numbers || !names::dns_1123_subdomain(&plain).is_empty() {
        return Err(format!("\"{text}\" is neither a DNS name nor an IP address"));
    }
    Ok(text.to_owned())
}

/// Like [`host_name`], but without wildcard and port.
///
/// # Errors
/// What is wrong with it.
pub fn namespace(text: &str) -> Result<String, String> {
    match names::dns_1123_label(text).first() {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!("\"{text}\" cannot be a namespace: {wrong}")),
    }
}

/// A count of at least one.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if number == 0 { Err("0 would let nothing be done".to_owned()) } else { Ok(number) }
}

/// A time in whole seconds, from one to a week.
///
/// # Errors
/// What is wrong with it.
pub fn seconds(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(seconds) if (1..=LONGEST).contains(&seconds) => Ok(seconds),
        _ => Err(format!("whole seconds are wanted, from 1 to {LONGEST}")),
    }
}

/// A time in seconds, perhaps with a fraction.
///
/// # Errors
/// What is wrong with it.
pub fn fraction(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=LONGEST as f64).contains(&seconds) => Ok(seconds),
        _ => Err(format!("seconds are wanted, from 0.001 to {LONGEST}")),
    }
}

/// A range of addresses.
///
/// # Errors
/// Anything else.
pub fn range(text: &str) -> Result<Range, String> {
    text.parse().map_err(|error| format!("{text:?} {error}"))
}

/// A registry, as `host[:port]`.
///
/// # Errors
/// Anything else.
pub fn registry(text: &str) -> Result<String, String> {
    let read = Reference::parse(&format!("oci://{text}/image")).ok();
    let read = read.filter(|reference| reference.repository() == "image");
    let registry = read.map(|reference| reference.registry());
    registry.ok_or_else(|| format!("{text:?} is no registry; write for example registry.example:5000"))
}

/// A path that is not empty.
///
/// # Errors
/// When it is.
pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path is wanted and this is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// Name of an object, which becomes a part of the path that is asked.
///
/// # Errors
/// What is wrong with it.
pub fn object_name(text: &str) -> Result<String, String> {
    match names::dns_1123_subdomain(text).first() {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!("\"{text}\" cannot be a name: {wrong}")),
    }
}

/// An address by HTTP or HTTPS, without user and password.
///
/// # Errors
/// What is wrong with it; it is not repeated, as it may hold a password.
pub fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("this is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("http://HOST or https://HOST is wanted".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("no user and password are sent: leave them out".to_owned());
    }
    Ok(url)
}

/// Words for a kernel command line, which becomes part of the boot loader's script.
///
/// # Errors
/// Characters that would end the line there.
pub fn kernel_arguments(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-=:,/@+%[] ".contains(c);
    match text.chars().find(|c| !plain(*c)) {
        None if text.len() <= 1024 => Ok(text.to_owned()),
        None => Err(format!("it has {} characters, of which a kernel takes 1024 at most", text.len())),
        Some(c) => Err(format!("{c:?} cannot stand in it; letters, digits, blanks and ._-=:,/@+%[] can")),
    }
}

/// The certificates in files that flags name.
#[derive(Debug, Default)]
pub struct Authorities {
    /// `--bmc-ca`, PEM.
    pub bmc: String,
    /// `--image-ca`, PEM.
    pub image: String,
    /// `--image-proxy` and its login.
    pub proxy: Option<Proxy>,
}

/// The architecture that an agent image's manifest names.
fn architecture_of(image: &Path) -> anyhow::Result<Architecture> {
    let path = image.join(boot_media::assets::MANIFEST);
    let attempt = || format!("--agent-image: read {}; `metamorph agent-image build` makes one", path.display());
    let text = std::fs::read(&path).with_context(attempt)?;
    Ok(serde_json::from_slice::<Manifest>(&text).with_context(attempt)?.architecture)
}

/// The version of the agent that an agent image's manifest names.
///
/// # Errors
/// If there is no agent image in the folder.
pub fn agent_version(image: &Path) -> anyhow::Result<String> {
    let path = image.join(boot_media::assets::MANIFEST);
    let attempt = || format!("read {}", path.display());
    let text = std::fs::read(&path).with_context(attempt)?;
    Ok(serde_json::from_slice::<Manifest>(&text).with_context(attempt)?.agent_version)
}

/// Checks the files and folders of the endpoints' flags.
///
/// # Errors
/// The first unusable flag: what was found and what to do.
pub fn check(endpoints: &Endpoints) -> anyhow::Result<Authorities> {
    let mut architectures = Vec::new();
    for image in &endpoints.agent_image {
        folder(image, "--agent-image")
            .map_err(|error| anyhow!("{error:#}; `metamorph agent-image build` makes one"))?;
        ensure!(
            image.join(boot_media::assets::MANIFEST).is_file(),
            "--agent-image: {} holds no agent image (there is no {} in it); `metamorph agent-image build --out {}` makes one",
            image.display(),
            boot_media::assets::MANIFEST,
            image.display(),
        );
        let architecture = architecture_of(image)?;
        ensure!(
            !architectures.contains(&architecture),
            "--agent-image: {} is a second image for {architecture}; give one for each architecture, and earlier ones with --earlier-agent-image",
            image.display(),
        );
        architectures.push(architecture);
    }
    if let Some(images) = &endpoints.images {
        folder(images, "--images")?;
    }
    let ranges = endpoints.allow_address.len();
    ensure!(ranges <= MAX_RANGES, "--allow-address: {ranges} ranges are more than the {MAX_RANGES} that are taken");
    apart(&listeners(endpoints))?;
    Ok(Authorities {
        bmc: certificates(endpoints.bmc_ca.as_deref(), "--bmc-ca")?,
        image: certificates(endpoints.image_ca.as_deref(), "--image-ca")?,
        proxy: image_proxy(endpoints)?,
    })
}

/// Longest file with a user and password, bytes.
const MAX_LOGIN: u64 = 4096;

/// The proxy of images.
///
/// # Errors
/// What is wrong with its flags.
pub fn image_proxy(endpoints: &Endpoints) -> anyhow::Result<Option<Proxy>> {
    let Some(url) = &endpoints.image_proxy else { return Ok(None) };
    let no_proxy: Vec<String> = endpoints.image_no_proxy.iter().filter(|entry| !entry.is_empty()).cloned().collect();
    NoProxy::read(no_proxy.iter().map(String::as_str)).context("--image-no-proxy")?;
    let login = match &endpoints.image_proxy_login {
        None => None,
        Some(file) => {
            let attempt = || format!("--image-proxy-login: read {}", file.display());
            let found = std::fs::metadata(file).with_context(attempt)?;
            ensure!(
                found.is_file() && found.len() <= MAX_LOGIN,
                "{}: a file of {MAX_LOGIN} bytes at most is wanted",
                attempt()
            );
            let text = std::fs::read_to_string(file).with_context(attempt)?;
            let both = text.trim_end_matches(['\n', '\r']).split_once(':');
            let (user, password) = both.with_context(|| format!("{}: it is not user:password", attempt()))?;
            Some(Login::basic(user, password).with_context(attempt)?)
        }
    };
    let proxy = Proxy { url: url.clone(), login, no_proxy };
    proxy.route().context("--image-proxy")?;
    Ok(Some(proxy))
}

/// How images are read where no ConfigMap says it; tells of variables that have no say in it.
pub fn image_defaults(namespace: &str, endpoints: &Endpoints, proxy: Option<Proxy>) -> ImageDefaults {
    let variables = std::env::vars_os();
    let variables = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    if let Some(unused) = unused_proxy(proxy.is_some(), variables) {
        tracing::warn!("{unused}");
    }
    let login_for_agents = endpoints.image_proxy_login_for_agents;
    ImageDefaults { own_namespace: Some(namespace.to_owned()), proxy, login_for_agents }
}

/// Variables by which other programs are told of a proxy.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// What is said of such variables: they have no effect on images and registries. `proxy`: a flag names one.
#[must_use]
pub fn unused_proxy(proxy: bool, variables: impl IntoIterator<Item = (String, String)>) -> Option<String> {
    let set = variables.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    let mut known: Vec<String> =
        set.filter(|name| PROXY_VARIABLES.iter().any(|known| name.eq_ignore_ascii_case(known))).collect();
    known.sort();
    (!proxy && !known.is_empty()).then(|| {
        format!("{} set, and not used for images and registries: --image-proxy or a ConfigMap metamorph-images names their proxy", match known.as_slice() {
            [one] => format!("{one} is"),
            more => format!("{} are", more.join(", ")),
        })
    })
}

/// Checks the flags of the embedded API.
///
/// # Errors
/// As [`check`].
pub fn check_api(api: &ApiServe) -> anyhow::Result<()> {
    if api.data.exists() {
        folder(&api.data, "--data")?;
    }
    if let Some(log) = &api.api_audit_log {
        ensure!(!log.is_dir(), "--api-audit-log: {} is a folder; name a file", log.display());
        let parent = log.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder(parent, "--api-audit-log")?;
    }
    Ok(())
}

/// Where these endpoints listen, by flag.
pub fn listeners(endpoints: &Endpoints) -> Vec<(&'static str, SocketAddr)> {
    let mut all = vec![
        ("--media-listen", endpoints.media_listen),
        ("--agent-listen", endpoints.agent_listen),
        ("--health-listen", endpoints.health_listen),
    ];
    all.extend(endpoints.media_tls_listen.map(|address| ("--media-tls-listen", address)));
    all.extend(endpoints.metrics.metrics_listen.map(|address| ("--metrics-listen", address)));
    all
}

/// Checks that no two listeners share a port.
///
/// # Errors
/// When two do.
pub fn apart(listeners: &[(&str, SocketAddr)]) -> anyhow::Result<()> {
    for (index, (flag, address)) in listeners.iter().enumerate() {
        for (other_flag, other) in &listeners[..index] {
            let meet = address.ip() == other.ip() || address.ip().is_unspecified() || other.ip().is_unspecified();
            let same = address.port() == other.port() && address.port() != 0 && meet;
            ensure!(!same, "{other_flag} {other} and {flag} {address} are the same port; give one of them another");
        }
    }
    Ok(())
}

/// Checks that a folder exists and can be read.
///
/// # Errors
/// What is wrong with it.
pub fn folder(path: &Path, flag: &str) -> anyhow::Result<()> {
    let found = std::fs::metadata(path).with_context(|| format!("{flag}: look at the folder {}", path.display()))?;
    ensure!(found.is_dir(), "{flag}: {} is a file; a folder is wanted", path.display());
    std::fs::read_dir(path).with_context(|| format!("{flag}: read the folder {}", path.display()))?;
    Ok(())
}

/// The file's text, if it holds certificates and no private key.
///
/// # Errors
/// What is wrong with it.
pub fn certificates(path: Option<&Path>, flag: &str) -> anyhow::Result<String> {
    let Some(path) = path else { return Ok(String::new()) };
    let attempt = || format!("{flag}: read {}", path.display());
    let found = std::fs::metadata(path).with_context(attempt)?;
    ensure!(found.is_file(), "{flag}: {} is no file", path.display());
    ensure!(
        found.len() <= MAX_CERTIFICATES,
        "{flag}: {} has {} bytes, which no file of certificates has",
        path.display(),
        found.len()
    );
    let text = std::fs::read_to_string(path).with_context(attempt)?;
    let name = path.display();
    if text.contains("PRIVATE KEY-----") {
        bail!("{flag}: {name} holds a private key, which it would give away; leave the certificates alone in it");
    }
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        let der = certificate.map_err(|e| anyhow::anyhow!("{flag}: {name} is no PEM: {e}"))?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(der).with_context(|| format!("{flag}: use certificate {} of {name}", count + 1))?;
        count += 1;
    }
    ensure!(count > 0, "{flag}: {name} holds no certificate (\"-----BEGIN CERTIFICATE-----\")");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn refused(arguments: &[&str]) -> String {
        let line = ["metamorph", "up"].iter().chain(arguments);
        crate::cli::Cli::try_parse_from(line).map_err(|e| e.to_string()).expect_err(&format!("{arguments:?}"))
    }

    #[test]
    fn a_word_that_switches_no_diagnosis_is_refused_at_the_start() {
        for word in ["true", "On", ""] {
            let said = refused(&["--error-detect", word]);
            assert!(said.contains("--error-detect <WHICH>") && said.contains("off, native, all"), "{said}");
        }
    }

    #[test]
    fn hosts_are_told_from_urls() {
        let good = [("192.0.2.1", "192.0.2.1:9"), ("a.example:80", "a.example:80"), ("2001:db8::1", "[2001:db8::1]:9")];
        for (text, authority) in good.into_iter().chain([("[2001:db8::1]:7", "[2001:db8::1]:7"), ("[::1]", "[::1]:9")])
        {
            assert_eq!(text.parse::<HostPort>().unwrap().authority(9), authority);
        }
        for text in [
            "",
            "http://192.0.2.1",
            "https://a.example:6180/x",
            "a.example/",
            "a b",
            "a:0",
            "a:99999",
            "a:",
            "[::1",
            "[::1]x",
            "0.0.0.0",
            "::",
            "[::]:80",
            "192.0.2.256",
            "1.2.3",
            "224.0.0.1",
            "-a",
            "a_b",
        ] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_that_mean_nothing_are_refused_while_the_line_is_read() {
        for (arguments, says) in [
            (["--media-host", "http://192.0.2.1:6180"], "leave out \"http://\": 192.0.2.1:6180"),
            (["--agent-host", "https://a.example/"], "URL"),
            (["--agent-host", ""], "DNS name"),
            (["--retry-after", "0"], "seconds are wanted"),
            (["--retry-after", "NaN"], "seconds are wanted"),
            (["--power-poll", "0"], "from 1"),
            (["--agent-boot-timeout", "0"], "from 1"),
            (["--agent-silence", "0"], "from 1"),
            (["--agent-reconnect", "99999999"], "from 1"),
            (["--agent-stall-timeout", "0"], "from 1"),
            (["--agent-kernel-arguments", "x;reboot"], "';'"),
            (["--agent-kernel-arguments", "a\nb"], "cannot stand"),
            (["--api-name", "https://kube.example"], "URL"),
            (["--media-listen", "localhost:80"], "media-listen"),
            (["--data", ""], "empty"),
            (["--bmc-ca", ""], "empty"),
            (["--images", ""], "empty"),
            (["--allow-address", "127.0.0.1/8"], "beyond its prefix"),
            (["--allow-address", "bmc.example"], "no range"),
            (["--http-registry", "http://r.example"], "no registry"),
            (["--http-registry", "r.example/os"], "no registry"),
            (["--log", "inof"], "no level"),
        ] {
            let error = refused(&arguments);
            assert!(error.contains(says), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn a_proxy_of_images_is_read_and_its_login_is_in_no_flag() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("login");
        std::fs::write(&file, "u:hunter2:x\n").unwrap();
        let file = file.to_str().unwrap();
        let read = |arguments: &[&str]| {
            let line = ["metamorph", "up"].iter().chain(arguments);
            let cli = crate::cli::Cli::try_parse_from(line).map_err(anyhow::Error::from)?;
            let crate::cli::Command::Up(up) = cli.command else { panic!("another command") };
            image_proxy(&up.endpoints)
        };
        assert_eq!(read(&[]).unwrap(), None);
        let given = ["--image-proxy", "http://p.example:3128", "--image-no-proxy", ".a.example,10.0.0.0/8,"];
        let proxy = read(&[&given[..], &["--image-proxy-login", file]].concat()).unwrap().unwrap();
        assert_eq!(proxy.no_proxy, [".a.example", "10.0.0.0/8"]);
        assert_eq!(proxy.login, Some(Login::basic("u", "hunter2:x").unwrap()));
        std::fs::write(folder.path().join("none"), "hunter2").unwrap();
        let none = folder.path().join("none");
        for (arguments, says) in [
            (&["--image-proxy", "http://u:hunter2@p"][..], "everybody"),
            (&["--image-proxy", "p:3128"], "no URL"),
            (&["--image-no-proxy", "a"], "--image-proxy"),
            (&["--image-proxy", "http://p", "--image-no-proxy", "a/b"], "--image-no-proxy"),
            (&["--image-proxy", "http://p", "--image-proxy-login", "/nowhere"], "/nowhere"),
            (&["--image-proxy", "http://p", "--image-proxy-login", none.to_str().unwrap()], "not user:password"),
        ] {
            let error = format!("{:#}", read(arguments).unwrap_err());
            assert!(error.contains(says) && !error.contains("hunter2"), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn variables_of_other_programs_are_told_of() {
        let set =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "http://p".to_owned())).collect::<Vec<_>>();
        assert_eq!(unused_proxy(false, set(&["PATH", "PROXY"])), None);
        assert_eq!(unused_proxy(true, set(&["HTTPS_PROXY"])), None);
        let said = unused_proxy(false, set(&["https_proxy", "NO_PROXY"])).unwrap();
        assert!(said.starts_with("NO_PROXY, https_proxy are set, and not used"), "{said}");
        assert!(unused_proxy(false, set(&["HTTP_PROXY"])).unwrap().starts_with("HTTP_PROXY is set"));
    }

    #[test]
    fn one_port_is_not_listened_on_twice() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(apart(&[("a", at("0.0.0.0:6180")), ("b", at("127.0.0.1:6180"))]).is_err());
        assert!(apart(&[("a", at("127.0.0.1:0")), ("b", at("127.0.0.1:0"))]).is_ok());
        assert!(apart(&[("a", at("127.0.0.1:1")), ("b", at("127.0.0.2:1"))]).is_ok());
    }

    #[test]
    fn files_of_certificates_hold_certificates_and_no_keys() {
        let folder = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let made = rcgen::CertificateParams::new(vec!["ca.example".to_owned()]).unwrap().self_signed(&key).unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let good = file("good", &made.pem());
        assert_eq!(certificates(Some(&good), "--bmc-ca").unwrap(), made.pem());
        let broken = made.pem().replace("MII", "AAA");
        for (name, text, says) in [
            ("empty", String::new(), "holds no certificate"),
            ("words", "not a certificate".to_owned(), "holds no certificate"),
            ("key", format!("{}{}", made.pem(), key.serialize_pem()), "private key"),
            ("broken", broken, "use certificate 1"),
        ] {
            let error = format!("{:#}", certificates(Some(&file(name, &text)), "--bmc-ca").unwrap_err());
            assert!(error.contains(says) && error.contains("--bmc-ca"), "{name}: {error}");
        }
        assert!(certificates(Some(folder.path()), "--bmc-ca").is_err());
        assert!(certificates(Some(&folder.path().join("missing")), "--bmc-ca").is_err());
    }

    #[test]
    fn folders_are_there_and_are_folders() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(super::folder(folder.path(), "--images").is_ok());
        assert!(super::folder(&file, "--images").is_err());
        assert!(super::folder(&folder.path().join("missing"), "--images").is_err());
    }
}
