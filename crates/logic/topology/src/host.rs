//! What is known of a host beforehand.

use inventory::{LinkReport, Nic};

/// A host.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its interfaces, as the HardwareData has them.
    pub nics: Vec<Nic>,
    /// What has become of listening on its ports; empty where nobody has listened.
    pub links: Vec<LinkReport>,
    /// Where a person says that they are.
    pub declared: Vec<Declared>,
    /// Network data (OpenStack's `network_data.json`), which says what is bonded.
    pub network_data: Option<String>,
    /// When the facts were found, in seconds since 1970.
    pub inspected: Option<i64>,
}

/// `spec.networkInterfaces[]` with a `switchPort`.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// Name of the interface.
    pub nic: Option<String>,
    /// Hardware address of the interface, where it is not named.
    pub mac: Option<String>,
    /// The switch's hardware address.
    pub switch_id: String,
    /// The switch's name of the port.
    pub port_id: String,
}

/// A BareMetalSwitch.
#[derive(Clone, Debug, Default)]
pub struct SwitchObject {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.macAddress`.
    pub mac: String,
}
