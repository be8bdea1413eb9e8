//! The list of provisioners (`--provisioners`): one YAML file, which may be a mounted ConfigMap. Keys and certificates are files of their own. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::limits::{CALL_DEADLINE, CALLS};
use crate::tls::Pin;
use crate::transport::{Tls, Trusted, UnixSocket};
use terms::clean;

/// Largest file, bytes.
const MAX_FILE: usize = 1 << 20;
/// Most provisioners.
const MAX_SITES: usize = 64;
/// Longest path of a Unix socket, bytes (`sun_path` of unix(7), with its end).
const MAX_SOCKET: usize = 107;
/// Most arguments and variables of a command.
const MAX_WORDS: usize = 256;

/// What is wrong with the file, with the provisioner's name where it is of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the list of provisioners: {0}")]
pub struct SitesError(String);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    provisioners: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    user: Option<u32>,
    #[serde(default)]
    group: Option<u32>,
    #[serde(default)]
    tls: Option<TlsEntry>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    schemes: Vec<String>,
    #[serde(default)]
    id_prefix: Option<String>,
    #[serde(default)]
    calls: Option<usize>,
    #[serde(default)]
    deadline_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsEntry {
    #[serde(default)]
    ca_file: Option<PathBuf>,
    #[serde(default)]
    key_pin: Option<String>,
    certificate_file: PathBuf,
    key_file: PathBuf,
}

/// A program that the server starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its environment, beside what the server gives it.
    pub environment: BTreeMap<String, String>,
    /// uid that it runs as, if another than the server's.
    pub user: Option<u32>,
    /// gid that it runs as.
    pub group: Option<u32>,
}

/// How a worker is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// Over this socket, which this user serves; the server's own, if none is named.
    Socket(PathBuf, Option<u32>),
    /// Over TLS.
    Tls(Tls),
    /// The server starts it, and gives it a socket.
    Started(Program),
}

/// One provisioner of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name, for annotations.
    pub name: String,
    /// How it is reached.
    pub reached: Reached,
    /// Namespaces whose hosts may have it; all without any.
    pub namespaces: Vec<String>,
    /// Schemes of BMC addresses that it is used for, in lower case; all that it serves without any.
    pub schemes: Vec<String>,
    /// How the ids of its machines begin.
    pub id_prefix: String,
    /// Calls that may be under way at once.
    pub calls: usize,
    /// How long a call may take.
    pub deadline: Duration,
}

impl Site {
    /// A provisioner of this name, for all hosts.
    #[must_use]
    pub fn new(name: impl Into<String>, reached: Reached) -> Self {
        let name = name.into();
        let id_prefix = format!("{name}-");
        let (namespaces, schemes) = (Vec::new(), Vec::new());
        Self { name, reached, namespaces, schemes, id_prefix, calls: CALLS, deadline: CALL_DEADLINE }
    }
}

/// Reads the file.
///
/// # Errors
/// What is wrong with it.
pub fn read_sites(text: &str) -> Result<Vec<Site>, SitesError> {
    if text.len() > MAX_FILE {
        return Err(SitesError(format!("it has {} bytes, {MAX_FILE} are accepted", text.len())));
    }
    let file: File = serde_saphyr::from_str(text)
        // The lines around the fault may have something secret.
        .map_err(|error| SitesError(clean(&error.without_snippet().to_string(), 300)))?;
    if file.provisioners.is_empty() {
        return Err(SitesError("it names none".to_owned()));
    }
    if file.provisioners.len() > MAX_SITES {
        return Err(SitesError(format!("it names {}, {MAX_SITES} are accepted", file.provisioners.len())));
    }
    let mut sites: Vec<Site> = Vec::new();
    for entry in file.provisioners {
        let shown = clean(&entry.name, 64);
        let site = site(entry).map_err(|what| SitesError(format!("{shown:?}: {what}")))?;
        if let Some(other) = sites.iter().find(|other| other.name == site.name) {
            return Err(SitesError(format!("two have the name {:?}", other.name)));
        }
        let overlaps = |other: &&Site| {
            other.id_prefix.starts_with(&site.id_prefix) || site.id_prefix.starts_with(&other.id_prefix)
        };
        if let Some(other) = sites.iter().find(overlaps) {
            let (a, b) = (&other.name, &site.name);
            return Err(SitesError(format!(
                "the ids of {a:?} and {b:?} cannot be told apart: give one of them another idPrefix, before it has hosts"
            )));
        }
        sites.push(site);
    }
    Ok(sites)
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(fits)
}

fn site(entry: Entry) -> Result<Site, String> {
    if !is_name(&entry.name) {
        return Err("a name has 1 to 63 lower-case letters, digits and -".to_owned());
    }
    if matches!(entry.name.as_str(), "metamorph" | "ironic") {
        return Err("the server has a provisioner of this name itself: choose another".to_owned());
    }
    let id_prefix = entry.id_prefix.clone().unwrap_or_else(|| format!("{}-", entry.name));
    let is_hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if !id_prefix.ends_with('-') || !is_name(&id_prefix) || is_hex(&id_prefix) {
        return Err("idPrefix is lower-case letters, digits and -, ends with -, and cannot begin a UUID, which other provisioners give".to_owned());
    }
    let calls = entry.calls.unwrap_or(CALLS);
    if !(1..=4096).contains(&calls) {
        return Err("calls is 1 to 4096".to_owned());
    }
    let deadline = entry.deadline_seconds.unwrap_or(CALL_DEADLINE.as_secs());
    if !(1..=600).contains(&deadline) {
        return Err("deadlineSeconds is 1 to 600".to_owned());
    }
    if entry.namespaces.len() > 4096 || entry.namespaces.iter().any(|name| !is_name(name)) {
        return Err("namespaces are at most 4096 names of namespaces".to_owned());
    }
    let is_scheme = |text: &String| {
        !text.is_empty() && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    if entry.schemes.len() > 64 || !entry.schemes.iter().all(is_scheme) {
        return Err("schemes are at most 64 schemes of addresses, such as redfish or ipmi, without ://".to_owned());
    }
    let (name, namespaces) = (entry.name.clone(), entry.namespaces.clone());
    let schemes = entry.schemes.iter().map(|scheme| scheme.to_ascii_lowercase()).collect();
    let reached = reached(entry)?;
    Ok(Site { name, reached, namespaces, schemes, id_prefix, calls, deadline: Duration::from_secs(deadline) })
}

fn reached(entry: Entry) -> Result<Reached, String> {
    let is_started = !entry.command.is_empty();
    if is_started == entry.address.is_some() {
        return Err("name either the address that it listens on, or the command that starts it".to_owned());
    }
    if !is_started && !entry.environment.is_empty() {
        return Err("environment is for a command: who starts a program gives it its environment".to_owned());
    }
    if !is_started && entry.group.is_some() {
        return Err("group is for a command".to_owned());
    }
    let Some(address) = entry.address else {
        if entry.tls.is_some() {
            return Err("tls is for an address of https: a command is given a socket".to_owned());
        }
        return started(entry.command, entry.environment, entry.user, entry.group);
    };
    if let Some(path) = address.strip_prefix("unix:") {
        if entry.tls.is_some() {
            return Err("tls is for an address of https".to_owned());
        }
        return Ok(Reached::Socket(socket(path)?, entry.user));
    }
    if entry.user.is_some() {
        return Err("user is for a socket or a command: over TLS the certificate tells who it is".to_owned());
    }
    let Some(tls) = entry.tls else {
        return Err(
            "the address is neither unix:/path nor https://host:port with tls: passwords of BMCs go over it".to_owned()
        );
    };
    Ok(Reached::Tls(over_tls(&address, tls)?))
}

/// A path that a socket can have.
fn socket(path: &str) -> Result<PathBuf, String> {
    if !path.starts_with('/') || path.len() > MAX_SOCKET || path.contains('\0') {
        return Err(format!("a socket's address is unix:/path, with a path of at most {MAX_SOCKET} bytes"));
    }
    Ok(PathBuf::from(path))
}

fn over_tls(address: &str, tls: TlsEntry) -> Result<Tls, String> {
    let wrong = || "the address is not https://host:port".to_owned();
    let rest = address.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/');
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_host) {
        return Err(wrong());
    }
    let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    let trusted = match (tls.ca_file, tls.key_pin) {
        (Some(file), None) => Trusted::Authority(file),
        (None, Some(pin)) => Trusted::Key(pin_of(&pin)?),
        _ => return Err("tls names either the authority (caFile) or the key (keyPin) of its certificate".to_owned()),
    };
    Ok(Tls { host: host.to_owned(), port, trusted, certificate: tls.certificate_file, key: tls.key_file })
}

/// `sha256:` and 64 hexadecimal digits.
fn pin_of(text: &str) -> Result<Pin, String> {
    let wrong = || "keyPin is sha256: and 64 hexadecimal digits, of the DER of the certificate's public key".to_owned();
    let digits =
        text.strip_prefix("sha256:").filter(|digits| digits.len() == 64 && digits.is_ascii()).ok_or_else(wrong)?;
    let mut pin = [0; 32];
    for (index, byte) in pin.iter_mut().enumerate() {
        let digits = digits.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(Pin(pin))
}

fn started(
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    user: Option<u32>,
    group: Option<u32>,
) -> Result<Reached, String> {
    if command.len() > MAX_WORDS || environment.len() > MAX_WORDS {
        return Err(format!("a command has at most {MAX_WORDS} words, and as many variables"));
    }
    if command.iter().chain(environment.values()).any(|word| word.contains('\0') || word.len() > 4096) {
        return Err("a word of a command has at most 4096 bytes, and no NUL".to_owned());
    }
    let is_variable = |name: &String| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !environment.keys().all(is_variable) {
        return Err("the name of a variable is letters, digits and _".to_owned());
    }
    if user.is_some() != group.is_some() {
        return Err("user and group belong together: name both, or neither".to_owned());
    }
    let mut words = command.into_iter();
    let path = words.next().map(PathBuf::from).unwrap_or_default();
    if !path.is_absolute() {
        return Err("a command begins with the whole path of its program: no shell looks for it".to_owned());
    }
    Ok(Reached::Started(Program { path, arguments: words.collect(), environment, user, group }))
}

/// An address of the command line: `unix:/path`.
///
/// # Errors
/// When it is none.
pub fn socket_address(text: &str) -> Result<PathBuf, String> {
    socket(text.strip_prefix("unix:").unwrap_or_default())
}

/// The socket, and who may serve it.
#[must_use]
pub fn unix_socket(path: PathBuf, user: Option<u32>) -> UnixSocket {
    UnixSocket { path, owner: user.unwrap_or_else(|| rustix::process::geteuid().as_raw()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read_sites(text).unwrap_err().to_string()
    }

    #[test]
    fn a_list_is_read() {
        let pin = "ab".repeat(32);
        let text = format!(
            "provisioners:
- {{name: acme, address: 'unix:/run/acme.sock', user: 107, namespaces: [a], schemes: [REDFISH]}}
- {{name: far, address: 'https://[2001:db8::1]:7443', idPrefix: faraway-, calls: 3, deadlineSeconds: 30,
   tls: {{keyPin: 'sha256:{pin}', certificateFile: /c, keyFile: /k}}}}
- {{name: mine, command: [/usr/bin/mine, --quick], environment: {{LEVEL: debug}}}}
"
        );
        let sites = read_sites(&text).unwrap();
        assert_eq!(sites[0].reached, Reached::Socket("/run/acme.sock".into(), Some(107)));
        assert_eq!((sites[0].schemes[0].as_str(), sites[0].id_prefix.as_str()), ("redfish", "acme-"));
        let Reached::Tls(tls) = &sites[1].reached else { panic!("{:?}", sites[1]) };
        assert_eq!(
            (tls.host.as_str(), tls.port, &tls.trusted),
            ("[2001:db8::1]", 7443, &Trusted::Key(Pin([0xab; 32])))
        );
        assert_eq!(
            (sites[1].calls, sites[1].deadline, sites[1].id_prefix.as_str()),
            (3, Duration::from_secs(30), "faraway-")
        );
        let Reached::Started(program) = &sites[2].reached else { panic!("{:?}", sites[2]) };
        assert_eq!(
            (program.path.to_str(), program.arguments.as_slice()),
            (Some("/usr/bin/mine"), ["--quick".to_owned()].as_slice())
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        for (entry, says) in [
            ("name: Acme, address: 'unix:/x'", "lower-case"),
            ("name: ironic, address: 'unix:/x'", "itself"),
            ("name: mine", "either the address"),
            ("name: acme, address: 'unix:/x', command: [/x]", "either the address"),
            ("name: acme, address: 'unix:x'", "unix:/path"),
            ("name: acme, address: 'http://h:1'", "neither unix"),
            ("name: acme, address: 'https://h:1'", "neither unix"),
            (
                "name: acme, address: 'https://h', tls: {caFile: /c, certificateFile: /c, keyFile: /k}",
                "https://host:port",
            ),
            (
                "name: acme, address: 'https://u@h:1', tls: {caFile: /c, certificateFile: /c, keyFile: /k}",
                "https://host:port",
            ),
            ("name: acme, address: 'https://h:1', tls: {certificateFile: /c, keyFile: /k}", "either the authority"),
            (
                "name: acme, address: 'https://h:1', tls: {keyPin: x, certificateFile: /c, keyFile: /k}",
                "64 hexadecimal",
            ),
            (
                "name: acme, address: 'https://h:1', user: 7, tls: {caFile: /c, certificateFile: /c, keyFile: /k}",
                "certificate tells",
            ),
            ("name: acme, address: 'unix:/x', environment: {A: b}", "environment"),
            ("name: acme, command: [acme]", "whole path"),
            ("name: acme, command: [/acme], user: 7", "belong together"),
            ("name: acme, command: [/acme], environment: {'A=': b}", "variable"),
            ("name: acme, address: 'unix:/x', idPrefix: acme", "idPrefix"),
            ("name: abc, address: 'unix:/x'", "idPrefix"),
            ("name: acme, address: 'unix:/x', calls: 0", "calls"),
            ("name: acme, address: 'unix:/x', deadlineSeconds: 9999", "deadlineSeconds"),
            ("name: acme, address: 'unix:/x', schemes: ['redfish://']", "schemes"),
            ("name: acme, address: 'unix:/x', colour: red", "colour"),
        ] {
            let said = refused(&format!("provisioners: [{{{entry}}}]"));
            assert!(said.contains(says), "{entry}: {said}");
        }
        assert!(refused("provisioners: []").contains("none"));
        assert!(refused("provisioners: [{name: x1, address: 'unix:/x', password: hunter2").len() < 400);
        let two = |a: &str, b: &str| refused(&format!("provisioners: [{{{a}}}, {{{b}}}]"));
        assert!(two("name: x1, address: 'unix:/x'", "name: x1, address: 'unix:/y'").contains("two have"));
        assert!(two("name: x, address: 'unix:/x'", "name: x-y, address: 'unix:/y'").contains("told apart"));
    }
}
