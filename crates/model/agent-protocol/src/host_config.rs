//! What the boot medium tells the agent: who it is, whom to ask, and how to get there.

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
