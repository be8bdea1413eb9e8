//! What a medium says that no host has, and what a machine reports that has booted it.
//!
//! The medium of a HostDiscovery boots anybody's machine. Its agent takes no orders and touches no disk: it tells what the machine is, and where its
//! BMC is said to be ([`Sighting`], to `POST {agent endpoint}/discovery/v1/report`), is told what has become of that ([`Heard`]), and leaves the machine
//! as the medium says. Whoever has the medium has its token: what is reported is anybody's word.

use std::net::{IpAddr, Ipv4Addr};

use inventory::{HardwareDetails, MachineEvidence};
use serde::{Deserialize, Serialize};

/// Version of this exchange.
pub const DISCOVERY_PROTOCOL: u32 = 1;

/// Where the configuration of such a medium lies in the agent's file system. A medium has this or [`crate::HOST_CONFIG_PATH`].
pub const DISCOVERY_CONFIG_PATH: &str = "/metamorph/discovery.json";

/// Path of the endpoint, below the agent base address.
pub const DISCOVERY_PATH: &str = "/discovery/v1/report";

/// Largest report that the server reads, in bytes.
pub const MAX_SIGHTING_BYTES: usize = 1 << 20;

/// Largest answer that the agent reads, in bytes.
pub const MAX_HEARD_BYTES: usize = 64 << 10;

/// Most channels of a BMC that are reported.
pub const MAX_CHANNELS: usize = 4;

/// Most IPv6 addresses of a channel that are reported.
pub const MAX_IPV6: usize = 8;

/// Most complaints that are reported.
pub const MAX_SAID: usize = 8;

/// Content of [`DISCOVERY_CONFIG_PATH`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryConfig {
    /// [`DISCOVERY_PROTOCOL`] of the server.
    pub protocol: u32,
    /// `namespace/name` of the HostDiscovery, for people.
    pub discovery: String,
    /// Bearer token: it lets a machine report, and nothing else.
    pub token: String,
    /// Base addresses of the agent endpoint, tried in order: `https://10.0.2.2:8444`.
    pub endpoints: Vec<String>,
    /// SHA-256 of the server's certificate (DER), lower-case hex. The only certificate the agent accepts.
    pub server_certificate_sha256: String,
    /// What the agent does when the server has taken its report.
    pub afterwards: Afterwards,
    /// How long the agent stays at most, minutes; then it switches the machine off.
    pub stay_minutes: u32,
}

impl std::fmt::Debug for DiscoveryConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscoveryConfig")
            .field("discovery", &self.discovery)
            .field("token", &"(secret)")
            .field("endpoints", &self.endpoints)
            .field("afterwards", &self.afterwards)
            .finish_non_exhaustive()
    }
}

/// What the agent does when the server has taken its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Afterwards {
    /// It switches the machine off.
    #[default]
    PowerOff,
    /// It stays, and reports from time to time.
    Wait,
}

/// What a machine reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sighting {
    /// [`DISCOVERY_PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The agent's version.
    pub version: String,
    /// By what it can be told from others.
    pub machine: MachineEvidence,
    /// What it is.
    pub hardware: HardwareDetails,
    /// Where its BMC is said to be.
    pub bmc: BmcClaim,
}

/// What a machine knows of its own BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcClaim {
    /// The BMC's network channels, by IPMI over the local interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<LanChannel>,
    /// Its Redfish host interface, by SMBIOS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redfish: Option<RedfishInterface>,
    /// What could not be asked, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
}

impl BmcClaim {
    /// The addresses that a server could call, in the order in which they are worth trying; none twice.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let of_channel = |channel: &LanChannel| -> Vec<IpAddr> {
            channel.ipv4.map(IpAddr::V4).into_iter().chain(channel.ipv6.iter().copied()).collect()
        };
        let all = self.channels.iter().take(MAX_CHANNELS).flat_map(of_channel);
        let all = all.chain(self.redfish.as_ref().and_then(|redfish| redfish.address));
        let mut known = Vec::new();
        for ip in all.map(|ip| ip.to_canonical()) {
            if !ip.is_unspecified() && !known.contains(&ip) {
                known.push(ip);
            }
        }
        known
    }
}

/// One of a BMC's network channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LanChannel {
    /// Its number.
    pub channel: u8,
    /// Where its IPv4 address comes from.
    #[serde(default)]
    pub source: AddressSource,
    /// Its IPv4 address; none where it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<Ipv4Addr>,
    /// Its netmask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netmask: Option<Ipv4Addr>,
    /// Its Ethernet address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Its VLAN, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its IPv6 addresses that are in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<IpAddr>,
}

/// Where an IPv4 address comes from (IPMI 2.0, table 23-4, parameter 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AddressSource {
    /// The BMC does not say.
    #[default]
    Unknown,
    /// Set by hand.
    Static,
    /// By DHCP.
    Dhcp,
    /// By the firmware, or by something else.
    Other,
}

/// A Redfish host interface (DMTF DSP0270).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RedfishInterface {
    /// `UUID` of the service root.
    #[serde(rename = "serviceUUID", default, skip_serializing_if = "Option::is_none")]
    pub service_uuid: Option<String>,
    /// Where the machine reaches the service: often an address that nobody else can call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// What the server says to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heard {
    /// The server has decided: another report of the same would change nothing.
    pub settled: bool,
    /// What has become of it, a clause for the machine's console.
    pub message: String,
    /// After how long another report is welcome, seconds.
    pub again_seconds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_once_and_in_order() {
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        let channel = |ipv4: [u8; 4]| LanChannel { ipv4: Some(ipv4.into()), ipv6: vec![v6], ..LanChannel::default() };
        let redfish = RedfishInterface { address: Some([169, 254, 0, 17].into()), ..RedfishInterface::default() };
        let claim =
            BmcClaim { channels: vec![channel([0; 4]), channel([192, 0, 2, 7])], redfish: Some(redfish), said: vec![] };
        let expected: Vec<IpAddr> = vec![v6, [192, 0, 2, 7].into(), [169, 254, 0, 17].into()];
        assert_eq!(claim.addresses(), expected);
        let many = BmcClaim { channels: (0..9).map(|n| channel([10, 0, 0, n])).collect(), ..BmcClaim::default() };
        assert_eq!(many.addresses().len(), MAX_CHANNELS + 1);
    }

    #[test]
    fn no_token_is_printed() {
        let config = DiscoveryConfig {
            protocol: 1,
            discovery: "default/rack".into(),
            token: "hush".into(),
            endpoints: vec![],
            server_certificate_sha256: String::new(),
            afterwards: Afterwards::PowerOff,
            stay_minutes: 60,
        };
        assert!(!format!("{config:?}").contains("hush"));
    }
}
