//! The real machine.

mod card;
mod init;
mod ioctl;
mod lldp_port;
mod local_bmc;
mod modules;
mod network;
mod parameters;
mod passthrough;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;

use agent_protocol::{AgentNetwork, DISCOVERY_CONFIG_PATH, DiscoveryConfig, HOST_CONFIG_PATH, HostConfig, Leave};
use disk_image::{BlockDisk, Disk};
use rustix::system::RebootCommand;

pub use init::{Consoles, mount_all, mount_efivars, reap_until};
pub use lldp_port::LldpPort;
use local_bmc::LocalBmc;
pub use modules::Loader;
use passthrough::LinuxDrive;

use crate::drive::Drive;
use crate::facts::by_path;
use crate::ipmi::Ipmi;
use crate::machine::{
    Disks, Facts, Medium, MediumError, Network, NetworkError, Port, Ports, Power, parse_discovery_config,
    parse_host_config,
};
use crate::net::Interface;
use crate::net::rtnetlink::Socket;
use crate::tree::Tree;

/// Most bytes of the host's configuration.
const MAX_CONFIG: u64 = 1 << 20;

/// The first BMC that the kernel has found.
const LOCAL_BMC: &str = "dev/ipmi0";
/// Most bytes of a TPM's answer (Linux `TPM_BUFSIZE`).
const MAX_TPM_ANSWER: usize = 4096;

/// This machine.
#[derive(Debug)]
pub struct LinuxMachine {
    tree: Tree,
}

impl LinuxMachine {
    /// This machine, with its tree at `/`.
    #[must_use]
    pub fn new() -> Self {
        Self { tree: Tree::new("/") }
    }
}

impl Default for LinuxMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl Facts for LinuxMachine {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn ipmi(&self) -> io::Result<Box<dyn Ipmi>> {
        Ok(Box::new(LocalBmc::open(&self.tree.path(LOCAL_BMC))?))
    }

    fn tpm_answer(&self, device: &str, command: &[u8]) -> Option<Vec<u8>> {
        let asked = || {
            let mut tpm = File::options().read(true).write(true).open(Path::new("/dev").join(device))?;
            // One command is one write, and its answer one read (Linux `Documentation/ABI/testing/sysfs-class-tpm`).
            tpm.write_all(command)?;
            let mut answer = vec![0; MAX_TPM_ANSWER];
            let length = tpm.read(&mut answer)?;
            answer.truncate(length);
            Ok::<_, io::Error>(answer)
        };
        asked().inspect_err(|error| tracing::warn!(%error, "asking the TPM /dev/{device} for its maker")).ok()
    }
}

impl Disks for LinuxMachine {
    fn open_disk(&self, device: &str) -> Result<Box<dyn Disk>, disk_image::Error> {
        Ok(Box::new(BlockDisk::open(&Path::new("/dev").join(device))?))
    }

    fn drive(&self, device: &str) -> Option<Box<dyn Drive>> {
        match LinuxDrive::open(&Path::new("/dev").join(device)) {
            Ok(drive) => Some(Box::new(drive)),
            Err(error) => {
                tracing::warn!(%error, "opening /dev/{device} for commands");
                None
            }
        }
    }
}

impl Network for LinuxMachine {
    fn configure(&self, network: &AgentNetwork) -> Result<(), NetworkError> {
        network::configure(&self.tree, network)
    }

    fn addresses(&self) -> Vec<(String, IpAddr)> {
        let found = Socket::open().and_then(|socket| socket.addresses()).unwrap_or_else(|error| {
            tracing::warn!(%error, "asking the kernel for addresses failed");
            Vec::new()
        });
        let names: Vec<(i64, String)> = self
            .tree
            .names("sys/class/net")
            .into_iter()
            .filter_map(|name| Some((self.tree.number(&format!("sys/class/net/{name}/ifindex"))?, name)))
            .collect();
        let name =
            |index: u32| names.iter().find(|(found, _)| *found == i64::from(index)).map(|(_, name)| name.clone());
        found.into_iter().filter_map(|(index, address)| Some((name(index)?, address))).collect()
    }
}

impl Ports for LinuxMachine {
    fn ports(&self) -> Vec<String> {
        let names = interfaces(&self.tree).into_iter().map(|interface| interface.name);
        // At the other end of a card over USB is no switch but the machine's own BMC, or nobody.
        names.filter(|name| !crate::facts::is_usb(&self.tree, name)).collect()
    }

    fn listen(&self, name: &str) -> io::Result<Box<dyn Port>> {
        Ok(Box::new(LldpPort::open(&self.tree, name)?))
    }
}

impl Medium for LinuxMachine {
    fn host_config(&self) -> Result<HostConfig, MediumError> {
        let bytes = self.tree.bytes(HOST_CONFIG_PATH, MAX_CONFIG).ok_or_else(|| MediumError::Lacks {
            place: "the boot medium's archive".to_owned(),
            file: HOST_CONFIG_PATH,
        })?;
        parse_host_config(&bytes)
    }

    fn discovery_config(&self) -> Result<DiscoveryConfig, MediumError> {
        let bytes = self.tree.bytes(DISCOVERY_CONFIG_PATH, MAX_CONFIG).ok_or_else(|| MediumError::Lacks {
            place: "the boot medium's archive".to_owned(),
            file: DISCOVERY_CONFIG_PATH,
        })?;
        parse_discovery_config(&bytes)
    }

    fn parameters(&self) -> Result<ipa_protocol::Parameters, MediumError> {
        parameters::of(&self.tree)
    }
}

impl Power for LinuxMachine {
    fn leave(&self, how: Leave) -> io::Error {
        rustix::fs::sync();
        let command = match how {
            Leave::Reboot => RebootCommand::Restart,
            Leave::PowerOff => RebootCommand::PowerOff,
        };
        match rustix::system::reboot(command) {
            Err(error) => error.into(),
            Ok(()) => io::Error::other("the kernel did not leave"),
        }
    }
}

/// Physical Ethernet interfaces with the addresses they were made with.
pub(crate) fn interfaces(tree: &Tree) -> Vec<Interface> {
    let names = tree.names("sys/class/net").into_iter();
    let physical = names.filter(|name| {
        tree.exists(&format!("sys/class/net/{name}/device"))
            && tree.number(&format!("sys/class/net/{name}/type")) == Some(1)
    });
    physical.filter_map(|name| Some(Interface { mac: crate::facts::permanent_mac(tree, &name)?, name })).collect()
}

/// Whether there is a disk to be seen.
pub(crate) fn has_disk(tree: &Tree) -> bool {
    tree.names("sys/block").iter().any(|name| {
        tree.resolve(&format!("sys/block/{name}"))
            .is_some_and(|path| path.split('/').any(by_path::is_pci_address) && !name.starts_with("sr"))
    })
}
