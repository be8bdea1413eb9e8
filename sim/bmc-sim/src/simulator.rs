//! A whole simulator: machines, their BMCs, and the control API.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use axum::Router;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    bmc::{Bmc, Shared},
    config::{Architecture, Config, ConfigError, MachineConfig, MachineKind},
    control,
    faults::RuleError,
    http::{self, Listener},
    journal::EventLog,
    machine::{Machine, MachineError, fake::FakeMachine, media_server::MediaServer, qemu::QemuMachine},
    media::{self, ClientError, MediaSource},
    redfish::tree,
    tls::{self, TlsError},
};

/// Why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration.
    #[error("the configuration is wrong")]
    Config(#[from] ConfigError),
    /// A machine.
    #[error("making machine {id:?}")]
    Machine {
        /// Which.
        id: String,
        /// Why not.
        source: MachineError,
    },
    /// A fault that is to be set from the start.
    #[error("setting the faults of machine {id:?}")]
    Fault {
        /// Which machine's.
        id: String,
        /// Why not.
        source: RuleError,
    },
    /// Certificates.
    #[error("preparing https")]
    Tls(#[from] TlsError),
    /// The client for media.
    #[error("preparing virtual media")]
    Media(#[from] ClientError),
    /// A port or a folder.
    #[error("{what}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Io { what, source }
}

/// A machine and its fixed properties.
pub struct Entry {
    /// Its BMC.
    pub bmc: Arc<Bmc>,
    /// Addresses, credentials, hardware.
    pub description: Value,
}

/// The machines of a simulator.
pub struct Machines {
    /// State shared by the BMCs.
    pub shared: Arc<Shared>,
    order: Vec<String>,
    entries: HashMap<String, Entry>,
}

impl Machines {
    /// One machine.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// The machines' ids in the order of the configuration.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(String::as_str)
    }

    /// The machines' BMCs in the order of the configuration.
    pub fn bmcs(&self) -> impl Iterator<Item = &Arc<Bmc>> {
        self.order.iter().filter_map(|id| self.entries.get(id)).map(|entry| &entry.bmc)
    }
}

/// A running simulator. Its machines end with it.
pub struct Simulator {
    machines: Arc<Machines>,
    listeners: Vec<Listener>,
    control: SocketAddr,
    control_task: JoinHandle<()>,
    authority: Option<String>,
    authority_path: Option<PathBuf>,
    _temporary: Vec<TempDir>,
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.control_task.abort();
    }
}

impl Simulator {
    /// Starts everything in the configuration. All machines are off at first.
    ///
    /// # Errors
    /// The configuration is wrong, a port is taken, or a file cannot be made.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let mut temporary = Vec::new();
        let state = match &config.state_dir {
            Some(folder) => folder.clone(),
            None => temporary_folder(&mut temporary)?,
        };
        std::fs::create_dir_all(&state).map_err(failed(format!("making the folder {}", state.display())))?;
        // Paths of unix sockets are short: never in the state folder, which may lie deep.
        let needs_sockets = config.machines.iter().any(|machine| machine.kind == MachineKind::Qemu);
        let run = if needs_sockets { temporary_folder(&mut temporary)? } else { PathBuf::new() };
        let (authority, acceptor) = if config.tls {
            let (authority, acceptor) = tls::acceptor(&state, config.listen)?;
            (Some(authority), Some(acceptor))
        } else {
            (None, None)
        };
        let authority_path = config.tls.then(|| state.join("ca.pem"));
        let shared = Arc::new(Shared {
            events: EventLog::default(),
            requests: AtomicU64::new(0),
            media: MediaSource::Network(media::client(config.media_verify_tls, config.media_ca.as_deref())?),
            started: tokio::time::Instant::now(),
            made: jiff::Timestamp::now(),
            now: Arc::new(jiff::Timestamp::now),
        });
        let media = Arc::new(MediaServer::start().await.map_err(failed("opening a port for the drives"))?);
        let maker = Maker { config: &config, state: &state, run: &run, media, shared: shared.clone() };
        let mut listeners = Vec::new();
        let (mut order, mut entries) = (Vec::new(), HashMap::new());
        for machine in &config.machines {
            let bmc = maker.make(machine)?;
            let address = SocketAddr::new(config.listen, machine.port);
            let what = format!("opening port {} for the BMC of {:?}", machine.port, machine.id);
            let listener = Listener::start(address, acceptor.clone(), bmc.clone()).map_err(failed(what))?;
            let description = description(&config, machine, &bmc, listener.address);
            order.push(machine.id.clone());
            entries.insert(machine.id.clone(), Entry { bmc, description });
            listeners.push(listener);
        }
        let machines = Arc::new(Machines { shared, order, entries });
        let control = TcpListener::bind((Ipv4Addr::LOCALHOST, config.control_port));
        let control = control.await.map_err(failed(format!("opening control port {}", config.control_port)))?;
        let address = control.local_addr().map_err(failed("opening the control port"))?;
        let router = control::router(machines.clone());
        let control_task = tokio::spawn(async move {
            if let Err(error) = axum::serve(control, router).await {
                tracing::error!(%error, "the control API ended");
            }
        });
        Ok(Self {
            machines,
            listeners,
            control: address,
            control_task,
            authority,
            authority_path,
            _temporary: temporary,
        })
    }

    /// The control API's address.
    #[must_use]
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// The certificate of the authority that signed the BMCs' certificate, as PEM, when they speak https.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The data that clients need, as the program prints it when it is ready.
    #[must_use]
    pub fn ready(&self) -> Value {
        let machines: Vec<&Value> =
            self.machines.ids().filter_map(|id| self.machines.get(id)).map(|entry| &entry.description).collect();
        json!({ "control": self.control_url(), "machines": machines, "ca": self.authority_path })
    }

    /// A machine's BMC.
    #[must_use]
    pub fn bmc(&self, id: &str) -> Option<&Arc<Bmc>> {
        Some(&self.machines.get(id)?.bmc)
    }

    /// The machines.
    #[must_use]
    pub fn machines(&self) -> &Arc<Machines> {
        &self.machines
    }

    /// Where a machine's BMC is, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn redfish_url(&self, id: &str) -> Option<&str> {
        self.machines.get(id)?.description["redfish"].as_str()
    }

    /// A machine's BMC as a service to be mounted in process.
    #[must_use]
    pub fn router(&self, id: &str) -> Option<Router> {
        Some(http::router(self.bmc(id)?.clone()))
    }

    /// Cuts the power of all machines, ejects the media, and stops listening.
    pub async fn shutdown(mut self) {
        self.listeners.clear();
        let mut work = tokio::task::JoinSet::new();
        for bmc in self.machines.bmcs() {
            let bmc = bmc.clone();
            work.spawn(async move {
                bmc.eject();
                // An error means that it is off already.
                let _ = bmc.force_off().await;
            });
        }
        while work.join_next().await.is_some() {}
    }
}

fn temporary_folder(keep: &mut Vec<TempDir>) -> Result<PathBuf, StartError> {
    let folder = tempfile::Builder::new().prefix("bmc-sim-").tempdir().map_err(failed("making a temporary folder"))?;
    let path = folder.path().to_owned();
    keep.push(folder);
    Ok(path)
}

struct Maker<'a> {
    config: &'a Config,
    state: &'a Path,
    run: &'a Path,
    media: Arc<MediaServer>,
    shared: Arc<Shared>,
}

impl Maker<'_> {
    fn make(&self, config: &MachineConfig) -> Result<Arc<Bmc>, StartError> {
        let folder = self.state.join(&config.id);
        std::fs::create_dir_all(&folder).map_err(failed(format!("making the folder {}", folder.display())))?;
        let machine: Result<Arc<dyn Machine>, MachineError> = match config.kind {
            MachineKind::Fake => {
                let agent = self.config.agent.clone().unwrap_or_default();
                let environment = self.config.agent_environment.clone();
                FakeMachine::new(config.clone(), folder.clone(), agent, environment, self.media.clone())
                    .map(|machine| Arc::new(machine) as Arc<dyn Machine>)
            }
            MachineKind::Qemu => {
                let all = self.config;
                let (program, firmware) = match config.architecture {
                    Architecture::X86_64 => (&all.qemu, &all.firmware_dir),
                    Architecture::Aarch64 => (&all.qemu_aarch64, &all.firmware_dir_aarch64),
                };
                QemuMachine::new(config.clone(), &folder, self.run, program.clone(), firmware.clone())
                    .map(|machine| Arc::new(machine) as Arc<dyn Machine>)
            }
        };
        let machine = machine.map_err(|source| StartError::Machine { id: config.id.clone(), source })?;
        let username = config.username.clone().unwrap_or_else(|| self.config.username.clone());
        let password = config.password.clone().unwrap_or_else(|| self.config.password.clone());
        let kept = folder.join("bmc.json");
        let bmc = Bmc::new(config.clone(), self.shared.clone(), (username, password), machine, kept);
        for rule in &config.faults {
            let refused = |source| StartError::Fault { id: config.id.clone(), source };
            bmc.faults.add(rule.clone()).map_err(refused)?;
        }
        Ok(bmc)
    }
}

fn description(config: &Config, machine: &MachineConfig, bmc: &Bmc, address: SocketAddr) -> Value {
    let scheme = if config.tls { "https" } else { "http" };
    let (username, password) = crate::bmc::lock(&bmc.account).clone();
    let macs: Vec<String> = (0..machine.nics.len()).map(|index| machine.mac(index)).collect();
    let mut value = json!({
        "id": machine.id,
        "kind": machine.kind,
        "redfish": format!("{scheme}://{address}"),
        "system": tree::system_path(&machine.id),
        "username": username,
        "password": password,
        "mac": macs.first(),
        "macs": macs,
        "uuid": machine.system_uuid(),
        "serial": machine.system_serial(),
        "diskSerials": (0..machine.disks.len()).map(|index| machine.disk_serial(index)).collect::<Vec<_>>(),
    });
    if let (Some(fields), Value::Object(parts)) = (value.as_object_mut(), bmc.parts()) {
        fields.extend(parts);
    }
    value
}
