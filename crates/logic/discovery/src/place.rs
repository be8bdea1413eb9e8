//! Places: an address that is asked, and where a host's BMC is.

use std::fmt;
use std::net::IpAddr;

/// Where a service root is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Address, in canonical form.
    pub ip: IpAddr,
    /// TCP port.
    pub port: u16,
    /// Whether over TLS.
    pub tls: bool,
}

impl Place {
    /// `spec.bmc.address` of a host there. It names no system: the BMC's only one is meant.
    #[must_use]
    pub fn address(&self) -> String {
        let (suffix, usual) = if self.tls { ("", 443) } else { ("+http", 80) };
        let host = match self.ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        if self.port == usual {
            format!("redfish-virtualmedia{suffix}://{host}")
        } else {
            format!("redfish-virtualmedia{suffix}://{host}:{}", self.port)
        }
    }

    /// Where a host's BMC is that is here: the usual ports of both schemes of an address are one BMC's, and a protocol without a port that tells is the
    /// machine behind all of them.
    pub(crate) fn spots(&self) -> [Spot; 3] {
        let twin = match self.port {
            443 => 80,
            80 => 443,
            port => port,
        };
        [Some(self.port), None, Some(twin)].map(|port| Spot { host: SpotHost::Ip(self.ip), port })
    }

    /// The place that [`Place::address`] has written so.
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        let spot = Spot::of(address)?;
        let SpotHost::Ip(ip) = spot.host else { return None };
        let place = Self { ip, port: spot.port?, tls: !address.starts_with("redfish-virtualmedia+http:") };
        (place.address() == address).then_some(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

/// A BMC's host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SpotHost {
    /// By number, in canonical form.
    Ip(IpAddr),
    /// By name, in lower case.
    Name(String),
}

/// Where a host's BMC is, by its `spec.bmc.address`, whatever its scheme.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Spot {
    /// Its host.
    pub host: SpotHost,
    /// Its port; `None` where the scheme is no Redfish one, so that the port tells nothing.
    pub port: Option<u16>,
}

/// Longest address that is looked at, bytes.
const MAX_ADDRESS: usize = 2048;

impl Spot {
    /// Reads `spec.bmc.address`; `None` if it names no host.
    #[must_use]
    pub fn of(address: &str) -> Option<Self> {
        let address = address.trim();
        if address.len() > MAX_ADDRESS {
            return None;
        }
        let (scheme, rest) = address.split_once("://").unwrap_or(("ipmi", address));
        let scheme = scheme.to_ascii_lowercase();
        let authority = rest.split(['/', '?', '#']).next()?;
        let authority = authority.rsplit('@').next()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                (host, after.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return None;
        }
        let by_redfish = scheme.contains("redfish") || scheme.contains("virtualmedia");
        let usual = if scheme.ends_with("+http") { 80 } else { 443 };
        let port = port.filter(|port| !port.is_empty()).map_or(Some(usual), |port| port.parse().ok());
        let host = match host.parse::<IpAddr>() {
            Ok(ip) => SpotHost::Ip(ip.to_canonical()),
            Err(_) => SpotHost::Name(host.trim_end_matches('.').to_ascii_lowercase()),
        };
        Some(Self { host, port: port.filter(|_| by_redfish) })
    }

    /// Whether it is at this place. A BMC that is called by another protocol than Redfish is the machine behind all ports of its address.
    #[must_use]
    pub fn is_at(&self, place: &Place) -> bool {
        self.host == SpotHost::Ip(place.ip) && self.port.is_none_or(|port| port == place.port)
    }
}
