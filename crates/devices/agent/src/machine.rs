//! The capabilities of a machine, one small trait each.

use std::io;
use std::net::IpAddr;

use agent_protocol::{
    AgentNetwork, DISCOVERY_CONFIG_PATH, DISCOVERY_PROTOCOL, DiscoveryConfig, HostConfig, Leave, NetworkDataError,
};
use disk_image::Disk;
use thiserror::Error;

use crate::drive::Drive;
use crate::efi::EfiVariables;
use crate::ipmi::Ipmi;
use crate::tree::Tree;

/// Facts: where `sys`, `proc` and `dev` are.
pub trait Facts {
    /// The tree.
    fn tree(&self) -> &Tree;

    /// The firmware's variables.
    fn variables(&self) -> EfiVariables {
        EfiVariables::new(self.tree().path("sys/firmware/efi/efivars"))
    }

    /// The machine's own interface to its BMC.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    fn ipmi(&self) -> io::Result<Box<dyn Ipmi>> {
        Err(io::ErrorKind::NotFound.into())
    }

    /// What the TPM `/dev/<device>` answers to a command; `None` where none is asked, or it does not answer.
    fn tpm_answer(&self, device: &str, command: &[u8]) -> Option<Vec<u8>> {
        let _ = (device, command);
        None
    }
}

/// Disks: opened exclusively.
pub trait Disks {
    /// Opens `/dev/<device>` exclusively.
    ///
    /// # Errors
    /// disk-image's error: the disk is in use, or cannot be opened.
    fn open_disk(&self, device: &str) -> Result<Box<dyn Disk>, disk_image::Error>;

    /// The drive behind `/dev/<device>` as one that takes commands; `None` where none are taken.
    fn drive(&self, device: &str) -> Option<Box<dyn Drive>> {
        let _ = device;
        None
    }
}

/// Network of the agent's own system.
pub trait Network {
    /// Configures it; returns when it is usable, which may take long (a lease may be late).
    ///
    /// # Errors
    /// [`NetworkError`] when the configuration is impossible on this machine.
    fn configure(&self, network: &AgentNetwork) -> Result<(), NetworkError>;

    /// Addresses that interfaces have, by interface name.
    fn addresses(&self) -> Vec<(String, IpAddr)>;
}

/// Ports on which neighbours are listened to.
pub trait Ports {
    /// Names of the ports.
    fn ports(&self) -> Vec<String>;

    /// Listens on one for LLDP, up or down. What has to be changed for that beyond the socket is done by [`Port::open_up`].
    ///
    /// # Errors
    /// The kernel's.
    fn listen(&self, name: &str) -> io::Result<Box<dyn Port>>;
}

/// A port that is listened on.
pub trait Port: Send {
    /// The next frame, if there is one; does not wait.
    ///
    /// # Errors
    /// The kernel's.
    fn next(&mut self) -> io::Result<Heard>;

    /// Has all frames come: the card's firmware is told to keep none for itself, and a port that is down is brought up. Undone when the port is dropped.
    ///
    /// # Errors
    /// The kernel's.
    fn open_up(&mut self) -> io::Result<Opened>;
}

/// What [`Port::open_up`] has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// In words.
    pub said: Vec<String>,
    /// What can be heard.
    pub hearing: Hearing,
}

/// Whether frames come to a port that was opened up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hearing {
    /// They do, and did before.
    #[default]
    Always,
    /// They do from now on: the card's firmware took them before.
    FromNow,
    /// The card's firmware takes them, and could not be told otherwise.
    Perhaps,
}

/// What a port has.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A frame.
    Frame(Vec<u8>),
    /// Nothing just now.
    Nothing,
    /// Nothing any more.
    End,
}

/// The boot medium.
pub trait Medium {
    /// Reads the host's configuration from the medium.
    ///
    /// # Errors
    /// [`MediumError`].
    fn host_config(&self) -> Result<HostConfig, MediumError>;

    /// Reads the configuration of a medium that no host has.
    ///
    /// # Errors
    /// [`MediumError`]; [`MediumError::Lacks`] on a host's medium.
    fn discovery_config(&self) -> Result<DiscoveryConfig, MediumError> {
        Err(MediumError::Lacks { place: "the boot medium".to_owned(), file: DISCOVERY_CONFIG_PATH })
    }

    /// What the kernel was told, for an agent that an Ironic boots.
    ///
    /// # Errors
    /// [`MediumError`].
    fn parameters(&self) -> Result<ipa_protocol::Parameters, MediumError>;
}

/// Leaving the machine.
pub trait Power {
    /// Leaves. Returns only when that failed.
    fn leave(&self, how: Leave) -> io::Error;
}

/// A machine with all of these.
pub trait Machine: Facts + Disks + Network + Ports + Medium + Power + Send + Sync {}

impl<T: Facts + Disks + Network + Ports + Medium + Power + Send + Sync> Machine for T {}

/// Why the host's configuration could not be read.
#[derive(Debug, Error)]
pub enum MediumError {
    /// No such file, or no medium.
    #[error("reading the host's configuration from {place} failed")]
    Read {
        /// File or address.
        place: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The medium lacks it.
    #[error("the boot medium at {place} has no {file}: it was not composed for a host")]
    Lacks {
        /// Address.
        place: String,
        /// File looked for.
        file: &'static str,
    },
    /// It cannot be understood.
    #[error("the host's configuration on the boot medium cannot be understood")]
    Malformed(#[from] serde_json::Error),
    /// What the kernel was told cannot be understood.
    #[error(transparent)]
    Parameters(#[from] ipa_protocol::ParametersError),
    /// Another version of the protocol.
    #[error(
        "the boot medium is for agents from protocol {found} on, this agent speaks {supported}: use an agent image of the server's version"
    )]
    Version {
        /// On the medium.
        found: u32,
        /// Ours.
        supported: u32,
    },
}

/// Why the network could not be configured.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// The document is unsound.
    #[error(transparent)]
    Data(#[from] NetworkDataError),
    /// No interface with that hardware address.
    #[error("link {id}: no interface has the hardware address {mac}; present: {present}")]
    NoInterface {
        /// Link in the document.
        id: String,
        /// Address looked for.
        mac: String,
        /// Addresses of the present interfaces.
        present: String,
    },
    /// The kernel refused.
    #[error("{action} failed")]
    Kernel {
        /// What was attempted.
        action: String,
        /// Why.
        source: io::Error,
    },
}

/// Parses and checks a host's configuration.
///
/// # Errors
/// [`MediumError::Malformed`] or [`MediumError::Version`].
pub fn parse_host_config(bytes: &[u8]) -> Result<HostConfig, MediumError> {
    let config: HostConfig = serde_json::from_slice(bytes)?;
    let supported = agent_protocol::PROTOCOL_VERSION;
    if !(agent_protocol::OLDEST_PROTOCOL..=supported).contains(&config.protocol) {
        return Err(MediumError::Version { found: config.protocol, supported });
    }
    Ok(config)
}

/// Parses and checks the configuration of a medium that no host has.
///
/// # Errors
/// [`MediumError::Malformed`] or [`MediumError::Version`].
pub fn parse_discovery_config(bytes: &[u8]) -> Result<DiscoveryConfig, MediumError> {
    let config: DiscoveryConfig = serde_json::from_slice(bytes)?;
    if config.protocol != DISCOVERY_PROTOCOL {
        return Err(MediumError::Version { found: config.protocol, supported: DISCOVERY_PROTOCOL });
    }
    Ok(config)
}
