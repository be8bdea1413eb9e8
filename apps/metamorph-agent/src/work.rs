//! The agent proper: configuration, network, reports, and how it leaves the machine.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::commands::Runner;
use agent::fake::FakeMachine;
use agent::ironic::{HttpApi, Parameters};
use agent::linux::{Consoles, LinuxMachine, Loader, mount_efivars};
use agent::neighbours::Listener;
use agent::report::{Client, Ledger, LogRing, run};
use agent::{Machine, MediumError, Tree};
use agent_protocol::{AgentNetwork, DiscoveryConfig, HostConfig};
use anyhow::Context;
use tokio::runtime::{Handle, Runtime};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// Where the ledger of begun commands is, below the root.
const LEDGER: &str = "run/metamorph-agent.json";

/// How often new devices are looked for.
const RESCAN: Duration = Duration::from_secs(5);

/// Pause after a failure that only a person or a new medium can fix.
const HOPELESS: Duration = Duration::from_secs(60);

/// Prints the log, and keeps it for the server.
fn log_to<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(writer: W) -> LogRing {
    let ring = LogRing::new();
    let targets = tracing_subscriber::filter::Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets([("agent", LevelFilter::DEBUG), ("metamorph_agent", LevelFilter::DEBUG)])
        .with_target("disk_image", LevelFilter::DEBUG);
    let printed = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false)
        .with_target(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_filter(LevelFilter::INFO);
    // fails only if a logger is already installed
    let _ = tracing_subscriber::registry().with(targets).with(printed).with(ring.layer()).try_init();
    ring
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Works on this machine. Returns only on an error; a normal end goes through the kernel (reboot or power off).
///
/// # Errors
/// No runtime, or a ledger that cannot be written.
pub fn on_this_machine() -> anyhow::Result<()> {
    let tree = Tree::new("/");
    let consoles = Consoles::open(&tree);
    let logs = log_to(move || consoles.clone());
    tracing::info!("Metamorph's agent {} starts", env!("CARGO_PKG_VERSION"));
    prepare(&tree);
    let runtime = runtime().context("starting the runtime failed")?;
    let machine: Arc<dyn Machine> = Arc::new(LinuxMachine::new());
    work(&runtime, &machine, logs)
}

/// Works on a simulator's machine; the process ends when the agent leaves that machine.
///
/// # Errors
/// As [`on_this_machine`].
pub fn on_a_fake_machine(root: &Path, medium: &str) -> anyhow::Result<()> {
    let logs = log_to(io::stderr);
    let runtime = runtime().context("starting the runtime failed")?;
    let machine: Arc<dyn Machine> = Arc::new(FakeMachine::new(root, medium, runtime.handle().clone()));
    work(&runtime, &machine, logs)
}

/// Loads drivers until disks and interfaces appear, and keeps looking for new devices.
fn prepare(tree: &Tree) {
    let Some(mut loader) = Loader::open(tree) else { return };
    loader.load_by_name();
    loader.wait_until_quiet();
    if let Err(error) = mount_efivars(tree) {
        tracing::error!("mounting efivarfs failed: {error}; boot entries cannot be made");
    }
    if let Some(memory) = tree.text("proc/meminfo").as_deref().and_then(available) {
        tracing::info!("memory available: {memory}");
    }
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(RESCAN);
            loader.scan();
        }
    });
}

fn available(meminfo: &str) -> Option<String> {
    meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).map(|rest| rest.trim().to_owned())
}

/// Who has booted the machine.
enum Master {
    /// Our server.
    Server(Box<HostConfig>, Client),
    /// Our server, by a medium that no host has.
    Discovery(Box<DiscoveryConfig>, Client),
    /// An Ironic.
    Ironic(Parameters, HttpApi),
}

/// Where the authority of an Ironic's certificate is in a ramdisk that has one, below the root.
const IRONIC_AUTHORITY: &str = "etc/ironic-python-agent/ironic.crt";

/// Most bytes of it.
const MAX_AUTHORITY: u64 = 1 << 20;

fn authority(machine: &dyn Machine) -> String {
    let bytes = machine.tree().bytes(IRONIC_AUTHORITY, MAX_AUTHORITY).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// By the medium: our configuration goes before kernel parameters, which anybody may add to a command line.
fn master(machine: &dyn Machine) -> anyhow::Result<Master> {
    let config = match machine.host_config() {
        Ok(config) => config,
        // A medium that is not ours need not have a place for our files, either.
        Err(error @ (MediumError::Lacks { .. } | MediumError::Read { .. })) => {
            match machine.discovery_config() {
                Ok(config) => {
                    let of = (&config.endpoints, &config.server_certificate_sha256, &config.token);
                    let client = Client::to(of.0, of.1, of.2)?;
                    return Ok(Master::Discovery(Box::new(config), client));
                }
                Err(MediumError::Lacks { .. } | MediumError::Read { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let parameters = machine.parameters().unwrap_or_default();
            if parameters.api_urls().is_empty() && !parameters.inspects() {
                return Err(error.into());
            }
            let api = HttpApi::new(&parameters, &authority(machine));
            let api = api.map_err(|error| anyhow::anyhow!("setting up HTTP failed: {error}"))?;
            return Ok(Master::Ironic(parameters, api));
        }
        Err(error) => return Err(error.into()),
    };
    let client = Client::new(&config)?;
    Ok(Master::Server(Box::new(config), client))
}

/// Reads the configuration, sets up the network, works until the machine is let go, and leaves it.
fn work(runtime: &Runtime, machine: &Arc<dyn Machine>, logs: LogRing) -> anyhow::Result<()> {
    let (config, client) = match again("the boot medium's configuration", || master(machine.as_ref())) {
        Master::Server(config, client) => (config, client),
        Master::Discovery(config, client) => return to_be_found(runtime, machine, &config, &client),
        Master::Ironic(parameters, api) => return under_ironic(runtime, machine, logs, parameters, api),
    };
    tracing::info!("this machine is {} ({}), boot generation {}", config.host_name, config.host, config.generation);
    // From now on, because neighbours speak twice a minute.
    let listener = Listener::begin(machine.clone());
    again("the network", || Ok(machine.configure(&config.network)?));
    let how = runtime.block_on(report(machine, &config, client, logs, listener))?;
    tracing::info!("the server has all it needs: {how:?}");
    let error = machine.leave(how);
    Err(error).context("leaving the machine failed")
}

/// Tells the server what this machine is, and leaves it.
fn to_be_found(
    runtime: &Runtime,
    machine: &Arc<dyn Machine>,
    config: &DiscoveryConfig,
    client: &Client,
) -> anyhow::Result<()> {
    tracing::info!("this machine is to be found by the HostDiscovery {}", config.discovery);
    again("the network", || Ok(machine.configure(&AgentNetwork::Dhcp)?));
    let how = runtime.block_on(agent::discovery::run(config, client, machine));
    tracing::info!("the machine is left: {how:?}");
    let error = machine.leave(how);
    Err(error).context("leaving the machine failed")
}

/// Works for an Ironic until that has it leave the machine.
fn under_ironic(
    runtime: &Runtime,
    machine: &Arc<dyn Machine>,
    logs: LogRing,
    parameters: Parameters,
    api: HttpApi,
) -> anyhow::Result<()> {
    tracing::info!("an Ironic has booted this machine");
    again("the network", || Ok(machine.configure(&AgentNetwork::Dhcp)?));
    let runner = Runner::new(machine.clone(), runtime.handle().clone(), authority(machine.as_ref()), api.clock());
    let runner = Arc::new(runner.trusting_any(parameters.insecure()));
    let how = runtime.block_on(agent::ironic::run(api, runner, parameters, logs));
    tracing::info!("Ironic lets the machine go: {how:?}");
    let error = machine.leave(how);
    Err(error).context("leaving the machine failed")
}

async fn report(
    machine: &Arc<dyn Machine>,
    config: &HostConfig,
    client: Client,
    logs: LogRing,
    listener: Listener,
) -> anyhow::Result<agent_protocol::Leave> {
    let runner = Runner::new(machine.clone(), Handle::current(), &config.image_ca_pem, client.clock());
    let runner = Arc::new(runner.hearing(listener));
    let ledger = Ledger::open(machine.tree().path(LEDGER), &runner.boot_id()).context("opening the ledger failed")?;
    Ok(run(config, client, runner, logs, ledger).await)
}

/// Retries until it succeeds: nothing works without it, and a person may fix the cause.
fn again<T>(what: &str, attempt: impl Fn() -> anyhow::Result<T>) -> T {
    let mut pause = Duration::from_millis(500);
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => tracing::error!("{what}: {error:#}; trying again in {:.0} s", pause.as_secs_f64()),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(HOPELESS);
    }
}
