//! A simulator's machine: files as disks, a made-up tree, the medium read by HTTP ranges.
//!
//! Only the primitives differ from the real machine. What a port hears of LLDP is the file `lldp/<port>` below the root, a frame a line in hexadecimal digits; a
//! port without one hears nothing, and is not waited for. The network configuration is written to `network.json` below the root, and leaving ends the
//! process: status 0 switches the machine off, 10 resets it.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_protocol::{AgentNetwork, DISCOVERY_CONFIG_PATH, DiscoveryConfig, HOST_CONFIG_PATH, HostConfig, Leave};
use boot_media::{ReadAt, read_host_files};
use disk_image::{Disk, FileDisk};
use serde_json::json;
use tokio::runtime::Handle;

use crate::ipmi::Ipmi;
use crate::machine::{
    Disks, Facts, Heard, Medium, MediumError, Network, NetworkError, Opened, Port, Ports, Power,
    parse_discovery_config, parse_host_config,
};
use crate::net::{Interface, Operation, operations};
use crate::tree::Tree;

/// The process's status that asks for a reset.
pub const EXIT_RESET: i32 = 10;

/// Longest wait for a piece of the medium.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What its BMC answers by the machine's own interface, below the root: a request a line and, behind a blank, the answer, in hexadecimal digits. The
/// request begins with network function and command, the answer with the completion code.
const IPMI: &str = "ipmi";

/// Most bytes of a port's frames.
const MAX_FRAMES: u64 = 1 << 20;

/// Most bytes of a boot loader's configuration.
const MAX_BOOT_CONFIG: u64 = 64 << 10;

/// A machine made of files.
#[derive(Debug)]
pub struct FakeMachine {
    tree: Tree,
    medium: String,
    handle: Handle,
    addresses: Mutex<Vec<(String, IpAddr)>>,
}

impl FakeMachine {
    /// A machine in `root` that has booted the medium at this address. `handle` runs the reads of the medium, which must not be
    /// begun on a thread of that runtime.
    #[must_use]
    pub fn new(root: &Path, medium: impl Into<String>, handle: Handle) -> Self {
        Self { tree: Tree::new(root), medium: medium.into(), handle, addresses: Mutex::default() }
    }

    fn interfaces(&self) -> Vec<Interface> {
        crate::linux::interfaces(&self.tree)
    }

    /// A file of the medium's archive.
    fn file(&self, path: &'static str) -> Result<Vec<u8>, MediumError> {
        let read = |source| MediumError::Read { place: self.medium.clone(), source };
        let ranges = HttpRanges::open(&self.medium, self.handle.clone()).map_err(|error| read(error.into()))?;
        let files = read_host_files(&ranges).map_err(|error| read(error.into()))?;
        let name = path.trim_start_matches('/');
        let file = files.into_iter().find(|file| file.path == name);
        let file = file.ok_or_else(|| MediumError::Lacks { place: self.medium.clone(), file: path })?;
        Ok(file.bytes)
    }
}

impl Facts for FakeMachine {
    fn tree(&self) -> &Tree {
        &self.tree
    }

    fn ipmi(&self) -> io::Result<Box<dyn Ipmi>> {
        let text = self.tree.bytes(IPMI, MAX_FRAMES).ok_or(io::ErrorKind::NotFound)?;
        let answer = |line: &str| {
            let (request, answer) = line.split_once(' ')?;
            Some((hex::decode(request).ok()?, hex::decode(answer.trim()).ok()?))
        };
        let answers = String::from_utf8_lossy(&text).lines().filter_map(answer).collect();
        Ok(Box::new(RecordedBmc(answers)))
    }
}

/// A BMC's answers of a file, by what was asked.
struct RecordedBmc(Vec<(Vec<u8>, Vec<u8>)>);

impl Ipmi for RecordedBmc {
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>> {
        let asked = [&[function, command], data].concat();
        let answer = self.0.iter().find(|(request, _)| *request == asked);
        // Completion code of a request that is not served.
        Ok(answer.map_or(vec![0xcc], |(_, answer)| answer.clone()))
    }
}

impl Disks for FakeMachine {
    fn open_disk(&self, device: &str) -> Result<Box<dyn Disk>, disk_image::Error> {
        let sector = self.tree.number(&format!("sys/block/{device}/queue/logical_block_size"));
        let sector = sector.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(512);
        Ok(Box::new(FileDisk::open(&self.tree.path(&format!("dev/{device}")), sector)?))
    }
}

impl Network for FakeMachine {
    fn configure(&self, network: &AgentNetwork) -> Result<(), NetworkError> {
        let (steps, servers) = match network {
            AgentNetwork::Dhcp => {
                let dhcp = |interface: Interface| Operation::Dhcp { name: interface.name };
                (self.interfaces().into_iter().map(dhcp).collect(), Vec::new())
            }
            AgentNetwork::Static { data } => {
                let plan = data.plan()?;
                (operations(&plan, &self.interfaces())?, plan.name_servers)
            }
        };
        let addresses = steps.iter().filter_map(|step| match step {
            Operation::Address { name, address, .. } => Some((name.clone(), *address)),
            _ => None,
        });
        *self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = addresses.collect();
        let text = serde_json::to_vec_pretty(&json!({ "operations": steps, "nameServers": servers }));
        let kernel = |source| NetworkError::Kernel { action: "writing network.json".to_owned(), source };
        std::fs::write(self.tree.path("network.json"), text.map_err(|error| kernel(error.into()))?).map_err(kernel)
    }

    fn addresses(&self) -> Vec<(String, IpAddr)> {
        self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Ports for FakeMachine {
    fn ports(&self) -> Vec<String> {
        self.interfaces().into_iter().map(|interface| interface.name).collect()
    }

    fn listen(&self, name: &str) -> io::Result<Box<dyn Port>> {
        let text = self.tree.bytes(&format!("lldp/{name}"), MAX_FRAMES).unwrap_or_default();
        let lines = String::from_utf8_lossy(&text);
        let mut frames: Vec<Vec<u8>> = lines.lines().filter_map(|line| hex::decode(line.trim()).ok()).collect();
        frames.reverse();
        Ok(Box::new(RecordedPort(frames)))
    }
}

/// Frames of a file, the last of them first.
struct RecordedPort(Vec<Vec<u8>>);

impl Port for RecordedPort {
    fn next(&mut self) -> io::Result<Heard> {
        Ok(self.0.pop().map_or(Heard::End, Heard::Frame))
    }

    fn open_up(&mut self) -> io::Result<Opened> {
        Ok(Opened::default())
    }
}

impl Medium for FakeMachine {
    fn host_config(&self) -> Result<HostConfig, MediumError> {
        parse_host_config(&self.file(HOST_CONFIG_PATH)?)
    }

    fn discovery_config(&self) -> Result<DiscoveryConfig, MediumError> {
        parse_discovery_config(&self.file(DISCOVERY_CONFIG_PATH)?)
    }

    /// The command line that the boot loader on the medium has: the first `linux` of its configuration.
    fn parameters(&self) -> Result<ipa_protocol::Parameters, MediumError> {
        let read = |source| MediumError::Read { place: self.medium.clone(), source };
        let ranges = HttpRanges::open(&self.medium, self.handle.clone()).map_err(|error| read(error.into()))?;
        let found = ["EFI/BOOT/grub.cfg", "boot/grub/grub.cfg"]
            .into_iter()
            .find_map(|path| boot_media::iso::find_file(&ranges, path).ok())
            .filter(|found| found.len <= MAX_BOOT_CONFIG);
        let Some(found) = found else {
            return Err(MediumError::Lacks { place: self.medium.clone(), file: "EFI/BOOT/grub.cfg" });
        };
        let mut text = vec![0; usize::try_from(found.len).unwrap_or_default()];
        ranges.read_exact_at(found.offset, &mut text).map_err(|error| read(error.into()))?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().map(str::trim).find(|line| line.starts_with("linux"));
        Ok(ipa_protocol::Parameters::parse(line.unwrap_or_default())?)
    }
}

impl Power for FakeMachine {
    fn leave(&self, how: Leave) -> io::Error {
        std::process::exit(match how {
            Leave::PowerOff => 0,
            Leave::Reboot => EXIT_RESET,
        })
    }
}

/// A file behind HTTP, read by ranges.
struct HttpRanges {
    client: reqwest::Client,
    url: String,
    handle: Handle,
    len: u64,
}

impl HttpRanges {
    fn open(url: &str, handle: Handle) -> io::Result<Self> {
        // This is the simulator's part, which has a clock.
        let clock = Arc::new(rustls::time_provider::DefaultTimeProvider);
        let tls = crate::report::tls::for_images("", clock).map_err(io::Error::other)?;
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).tls_backend_preconfigured(tls.0);
        let client = client.build().map_err(io::Error::other)?;
        let response = handle.block_on(async { client.head(url).send().await }).map_err(io::Error::other)?;
        let response = response.error_for_status().map_err(io::Error::other)?;
        let length = response.headers().get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
        let len = length.ok_or_else(|| io::Error::other("the medium's server tells no length"))?;
        Ok(Self { client, url: url.to_owned(), handle, len })
    }

    async fn get(&self, offset: u64, length: usize) -> Result<Vec<u8>, reqwest::Error> {
        let range = format!("bytes={offset}-{}", offset + length as u64 - 1);
        let mut response = self.client.get(&self.url).header("range", range).send().await?.error_for_status()?;
        let mut bytes = Vec::with_capacity(length);
        // a server without ranges sends the whole file: skip to the offset, and stop reading early
        let skip = if response.status().as_u16() == 206 { 0 } else { offset };
        let mut seen = 0_u64;
        while let Some(chunk) = response.chunk().await? {
            let from = usize::try_from(skip.saturating_sub(seen)).unwrap_or(usize::MAX).min(chunk.len());
            seen += chunk.len() as u64;
            bytes.extend_from_slice(&chunk[from..]);
            if bytes.len() >= length {
                bytes.truncate(length);
                break;
            }
        }
        Ok(bytes)
    }
}

impl ReadAt for HttpRanges {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let bytes = self.handle.block_on(self.get(offset, buffer.len())).map_err(io::Error::other)?;
        if bytes.len() != buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}
