//! The agent proper: configuration, network, reports, and how it leaves the machine.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::commands::Runner;
use agent::fake::FakeMachine;
use agent::linux::{Consoles, LinuxMachine, Loader, mount_efivars};
use agent::report::{Client, Ledger, LogRing, run};
use agent::{Machine, Tree};
use agent_protocol::HostConfig;
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

/// Reads the configuration, sets up the network, reports until the server lets the machine go, and leaves it.
fn work(runtime: &Runtime, machine: &Arc<dyn Machine>, logs: LogRing) -> anyhow::Result<()> {
    let (config, client) = again("the boot medium's configuration", || {
        let config = machine.host_config()?;
        let client = Client::new(&config)?;
        Ok((config, client))
    });
    tracing::info!("this machine is {} ({}), boot generation {}", config.host_name, config.host, config.generation);
    again("the network", || Ok(machine.configure(&config.network)?));
    let how = runtime.block_on(report(machine, &config, client, logs))?;
    tracing::info!("the server has all it needs: {how:?}");
    let error = machine.leave(how);
    Err(error).context("leaving the machine failed")
}

async fn report(
    machine: &Arc<dyn Machine>,
    config: &HostConfig,
    client: Client,
    logs: LogRing,
) -> anyhow::Result<agent_protocol::Leave> {
    let runner = Arc::new(Runner::new(machine.clone(), Handle::current(), &config.image_ca_pem, client.clock()));
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
