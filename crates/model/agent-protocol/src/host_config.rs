//! The configuration on the boot medium: the agent's identity, its server, and its network.

use serde::{Deserialize, Serialize};

use crate::NetworkData;

/// Content of [`crate::HOST_CONFIG_PATH`].
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostConfig {
    /// Oldest version of the protocol that the server serves: [`crate::OLDEST_PROTOCOL`].
    pub protocol: u32,
    /// uid of the BareMetalHost.
    pub host: String,
    /// `namespace/name`, for people.
    pub host_name: String,
    /// Boot generation that the medium was composed for.
    pub generation: u64,
    /// Bearer token for this host and generation.
    pub token: String,
    /// Base addresses of the agent endpoint, tried in order: `https://10.0.2.2:8444`.
    pub endpoints: Vec<String>,
    /// SHA-256 of the server's certificate (DER), lower-case hex. The only certificate the agent accepts.
    pub server_certificate_sha256: String,
    /// Additional CA certificates (PEM) for image downloads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_ca_pem: String,
    /// Network of the agent's system.
    #[serde(default)]
    pub network: AgentNetwork,
}

impl std::fmt::Debug for HostConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostConfig")
            .field("host", &self.host)
            .field("host_name", &self.host_name)
            .field("generation", &self.generation)
            .field("token", &"(secret)")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

/// The hint in the agent's TLS handshake for the certificate that it trusts, by the SHA-256 on the boot medium: the name of a certificate authority
/// (RFC 8446, section 4.2.4) whose common name is that digest. A server with several certificates selects by it.
#[must_use]
pub fn certificate_hint(sha256: &str) -> Vec<u8> {
    // Name, one relative name of one attribute: commonName (2.5.4.3), a string of 64 characters.
    let mut name = vec![0x30, 0x4b, 0x31, 0x49, 0x30, 0x47, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x40];
    let digest: String = sha256.trim().chars().filter(char::is_ascii_hexdigit).take(64).collect();
    name.extend(format!("{:0>64}", digest.to_ascii_lowercase()).into_bytes());
    name
}

/// How the agent's system configures its network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "method")]
pub enum AgentNetwork {
    /// DHCP on every interface with a link; the first lease serves.
    #[default]
    Dhcp,
    /// From `preprovisioningNetworkDataName`: static, VLAN, bond.
    Static {
        /// OpenStack network data, already checked by the server.
        data: NetworkData,
    },
}
