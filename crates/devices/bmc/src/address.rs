//! `spec.bmc.address`: which protocol, where, and which system behind it.
//!
//! The scheme names are Metal³'s (baremetal-operator, `pkg/hardwareutils/bmc`). All of them are known here, to distinguish an address for a protocol
//! that this program does not speak from a misspelt one.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest address that is looked at, bytes.
pub const MAX_ADDRESS: usize = 2048;
/// Longest path, bytes.
const MAX_PATH: usize = 1024;

/// Why an address cannot be used. The text says what was found and what would be correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address is empty.
    #[error("the BMC address is empty; write one such as redfish-virtualmedia://192.0.2.10/redfish/v1/Systems/1")]
    Empty,
    /// Longer than [`MAX_ADDRESS`].
    #[error("the BMC address is {0} bytes long; at most 2048 are accepted")]
    TooLong(usize),
    /// A blank, control or non-ASCII character.
    #[error("the BMC address contains the character {0:?}, which no address may contain; remove or percent-encode it")]
    Character(char),
    /// An unknown scheme.
    #[error(
        "the BMC address has the unknown scheme {0:?}; use redfish-virtualmedia, redfish-virtualmedia+http or redfish-virtualmedia+https"
    )]
    UnknownScheme(String),
    /// A scheme of Metal³ that this program does not serve.
    #[error("the BMC scheme {scheme:?} is known but not served here; {instead}")]
    NotServed {
        /// As written.
        scheme: String,
        /// The scheme to use instead.
        instead: &'static str,
    },
    /// A scheme that Metal³ itself has dropped.
    #[error("the BMC scheme {0:?} was removed from Metal³; if the BMC speaks Redfish, use redfish-virtualmedia")]
    Removed(String),
    /// No host.
    #[error("the BMC address names no host; write scheme://host[:port]/path")]
    NoHost,
    /// Neither a DNS name nor an IP address.
    #[error("the host {0:?} in the BMC address is neither a DNS name nor an IP address (IPv6 goes in brackets)")]
    Host(String),
    /// A link-local address with its zone.
    #[error(
        "the BMC address [{0}] has a zone: it is an address on one link of one machine, which the server may not have; give the BMC an address that can be routed to, or its DNS name"
    )]
    Zone(String),
    /// Port not 1–65535.
    #[error("the port {0:?} in the BMC address is not a number from 1 to 65535")]
    Port(String),
    /// Credentials in the address.
    #[error(
        "the BMC address contains a user or password; put them into the Secret that spec.bmc.credentialsName names"
    )]
    UserInfo,
    /// Query or fragment.
    #[error("the BMC address has a query or fragment after its path; remove it")]
    Query,
    /// Path of the system malformed.
    #[error("the path {0:?} in the BMC address is not the path of a Redfish system, such as /redfish/v1/Systems/1")]
    Path(String),
}

/// Protocols that address schemes name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Redfish with boot by virtual media, even for schemes that stand for network boot in Metal³: `redfish-virtualmedia`, `ilo5-virtualmedia`,
    /// `idrac-virtualmedia`, and also `redfish`, `ilo5-redfish` and `idrac-redfish`.
    Redfish,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redfish => f.write_str("Redfish"),
        }
    }
}

/// How the connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// TLS (`+https`, or no suffix).
    Https,
    /// None (`+http`).
    Http,
}

impl Security {
    /// URL scheme.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// Port if none is written.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// A host by name or number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostName {
    /// DNS name in lower case.
    Dns(String),
    /// IPv4.
    V4(Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr),
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => write!(f, "[{address}]"),
        }
    }
}

/// A BMC address that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    protocol: Protocol,
    security: Security,
    host: HostName,
    port: u16,
    system_path: Option<String>,
}

impl Address {
    /// Parses `spec.bmc.address`.
    ///
    /// # Errors
    /// [`AddressError`], whose text is suitable for the host's status.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.len() > MAX_ADDRESS {
            return Err(AddressError::TooLong(text.len()));
        }
        let text = text.trim();
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if let Some(bad) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '\\' | '"' | '<' | '>')) {
            return Err(AddressError::Character(bad));
        }
        // An address without a scheme means IPMI to Metal³.
        let Some((scheme, rest)) = text.split_once("://") else {
            let scheme = text.split_once(':').map_or("", |(before, _)| before);
            return Err(match classify(scheme) {
                Err(known @ (AddressError::NotServed { .. } | AddressError::Removed(_))) => known,
                Ok(_) => AddressError::NoHost,
                Err(_) => AddressError::NotServed { scheme: "ipmi".into(), instead: IPMI_INSTEAD },
            });
        };
        let (protocol, security) = classify(&scheme.to_ascii_lowercase())?;
        let split = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let (host, port) = authority_of(authority, security)?;
        Ok(Self { protocol, security, host, port, system_path: path_of(path)? })
    }

    /// Protocol that the scheme names.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// TLS or not.
    #[must_use]
    pub const fn security(&self) -> Security {
        self.security
    }

    /// Host.
    #[must_use]
    pub const fn host(&self) -> &HostName {
        &self.host
    }

    /// TCP port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Path of the system's resource; `None` if the address names none, which means the BMC's only system.
    #[must_use]
    pub fn system_path(&self) -> Option<&str> {
        self.system_path.as_deref()
    }

    /// The key of the BMC: `host:port`, equal for all systems behind it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// `https://host[:port]`, without a slash at the end; the port only where it is not the scheme's own.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = self.security.scheme();
        if self.port == self.security.default_port() {
            format!("{scheme}://{}", self.host)
        } else {
            format!("{scheme}://{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

const IPMI_INSTEAD: &str =
    "IPMI cannot insert virtual media: if the BMC speaks Redfish, use redfish-virtualmedia://host/redfish/v1/Systems/…";

/// The protocol that a lower-case scheme names.
fn classify(scheme: &str) -> Result<(Protocol, Security), AddressError> {
    let (base, security) = match scheme.split_once('+') {
        None => (scheme, Some(Security::Https)),
        Some((base, "https")) => (base, Some(Security::Https)),
        Some((base, "http")) => (base, Some(Security::Http)),
        Some((base, _)) => (base, None),
    };
    let named = || scheme.chars().take(64).collect::<String>();
    let suffixed = base.len() != scheme.len();
    let Some(security) = security else {
        return Err(AddressError::UnknownScheme(named()));
    };
    match base {
        "redfish-virtualmedia"
        | "ilo5-virtualmedia"
        | "idrac-virtualmedia"
        | "redfish"
        | "ilo5-redfish"
        | "idrac-redfish" => Ok((Protocol::Redfish, security)),
        "redfish-uefihttp" => Err(AddressError::NotServed {
            scheme: named(),
            instead: "booting by UEFI HTTP needs DHCP: use redfish-virtualmedia with the same host and path",
        }),
        "ipmi" | "libvirt" if !suffixed => Err(AddressError::NotServed { scheme: named(), instead: IPMI_INSTEAD }),
        "ilo4" | "ilo4-virtualmedia" | "ilo5" | "irmc" | "idrac" | "drac" if !suffixed => {
            Err(AddressError::Removed(named()))
        }
        _ => Err(AddressError::UnknownScheme(named())),
    }
}

fn authority_of(authority: &str, security: Security) -> Result<(HostName, u16), AddressError> {
    if authority.contains('@') {
        return Err(AddressError::UserInfo);
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let Some((inner, after)) = rest.split_once(']') else {
            return Err(AddressError::Host(authority.to_owned()));
        };
        if inner.split_once('%').is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok()) {
            return Err(AddressError::Zone(inner.to_owned()));
        }
        let address = inner.parse().map_err(|_| AddressError::Host(inner.to_owned()))?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(port),
            None if after.is_empty() => None,
            None => return Err(AddressError::Host(authority.to_owned())),
        };
        (HostName::V6(address), port)
    } else {
        let (name, port) = match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => return Err(AddressError::Host(authority.to_owned())),
            Some((name, port)) => (name, Some(port)),
            None => (authority, None),
        };
        (name_of(name)?, port)
    };
    let port = match port {
        None => security.default_port(),
        Some(text) => match text.parse::<u16>() {
            Ok(number) if number > 0 && text.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => return Err(AddressError::Port(text.to_owned())),
        },
    };
    Ok((host, port))
}

/// A DNS name (RFC 1123) or an IPv4 address.
fn name_of(name: &str) -> Result<HostName, AddressError> {
    if name.is_empty() {
        return Err(AddressError::NoHost);
    }
    if let Ok(address) = name.parse() {
        return Ok(HostName::V4(address));
    }
    let bare = name.strip_suffix('.').unwrap_or(name);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A last label of digits only is a mistyped IPv4 address, not a name.
    let numeric = bare.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()));
    if bare.len() > 253 || numeric || !bare.split('.').all(label) {
        return Err(AddressError::Host(name.to_owned()));
    }
    Ok(HostName::Dns(bare.to_ascii_lowercase()))
}

/// The system's path; an empty path, `/`, and the service root all mean "the only system".
fn path_of(path: &str) -> Result<Option<String>, AddressError> {
    if path.contains(['?', '#']) {
        return Err(AddressError::Query);
    }
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() || trimmed == "/redfish" || trimmed == "/redfish/v1" {
        return Ok(None);
    }
    let bad = || AddressError::Path(path.chars().take(200).collect());
    let segment = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@".contains(&b))
    };
    let inner = trimmed.strip_prefix('/').ok_or_else(bad)?;
    if trimmed.len() > MAX_PATH || !inner.split('/').all(segment) {
        return Err(bad());
    }
    Ok(Some(trimmed.to_owned()))
}
