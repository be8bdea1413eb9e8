//! The program `bmc-sim`: virtual BMCs on loopback, until it is told to end.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use bmc_sim::{Config, MachineConfig, MachineKind, Simulator};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Virtual BMCs: Redfish services with virtual media, in front of QEMU machines or fake ones.
///
/// Prints one line of JSON when ready: the control API's address, and of each machine the address, the credentials and
/// the hardware. Ends, with all its machines, on SIGTERM or SIGINT.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A configuration file (JSON). The other options change what it says.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Add N fake machines, fake-0 and on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    fake: usize,
    /// Add N QEMU machines, qemu-0 and on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    qemu: usize,
    /// The agent program that fake machines boot.
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// Folder that keeps disks, firmware variables and consoles between runs.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Speak https, with certificates by an authority of its own.
    #[arg(long)]
    tls: bool,
    /// User name of the BMCs.
    #[arg(long)]
    username: Option<String>,
    /// Password of the BMCs.
    #[arg(long, env = "BMC_SIM_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Port of the control API; by default the system chooses one.
    #[arg(long, value_name = "PORT")]
    control_port: Option<u16>,
}

impl Arguments {
    fn into_config(self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(path) => {
                let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
                serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?
            }
            None => Config::default(),
        };
        config.machines.extend((0..self.fake).map(|n| MachineConfig::new(format!("fake-{n}"), MachineKind::Fake)));
        config.machines.extend((0..self.qemu).map(|n| MachineConfig::new(format!("qemu-{n}"), MachineKind::Qemu)));
        config.tls |= self.tls;
        config.agent = self.agent.or(config.agent);
        config.state_dir = self.state_dir.or(config.state_dir);
        config.username = self.username.unwrap_or(config.username);
        config.password = self.password.unwrap_or(config.password);
        config.control_port = self.control_port.unwrap_or(config.control_port);
        anyhow::ensure!(!config.machines.is_empty(), "no machine was asked for; give --config, --fake or --qemu");
        Ok(config)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    // Colours are for terminals; and a standard error that nobody reads is no reason to end.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
    let config = Arguments::parse().into_config()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let simulator = Simulator::start(config).await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", simulator.ready())?;
    out.flush()?;
    drop(out);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    simulator.shutdown().await;
    Ok(())
}
