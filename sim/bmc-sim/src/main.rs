//! The program `bmc-sim`: virtual BMCs on loopback, until it is told to end.

use std::{
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use bmc_sim::{Config, MachineConfig, MachineKind, Simulator, agent};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Virtual BMCs: Redfish services with virtual media, in front of QEMU machines or fake ones.
///
/// `bmc-sim --fake 2` is a small site without hardware: fake machines boot the real agent and have files as disks. `--qemu 1` is a
/// whole machine under software emulation.
///
/// Prints one line of JSON when ready: the control API's address, and of each machine the address, the credentials and
/// the hardware; at a terminal also the commands that declare the machines to Metamorph. Ends, with all its machines, on
/// SIGTERM or SIGINT.
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
    /// The agent program that fake machines boot; without it that of METAMORPH_AGENT, beside this program, where `make
    /// agent` puts it, or in PATH.
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
        if config.machines.iter().any(|machine| machine.kind == MachineKind::Fake) {
            config.agent = Some(agent::find(config.agent.as_deref())?);
        }
        Ok(config)
    }
}

/// The commands that declare the machines.
fn hint(ready: &serde_json::Value) -> String {
    let mut text = String::from("\nDeclare them to Metamorph (docs/without-hardware.md):");
    for machine in ready["machines"].as_array().into_iter().flatten() {
        let field = |name: &str| machine[name].as_str().unwrap_or_default();
        // The certificates of --tls are by an authority of the simulator's own.
        let trust = if field("redfish").starts_with("https") { " --disable-certificate-verification" } else { "" };
        text.push_str(&format!(
            "\n  metamorph host add {} --address redfish-virtualmedia+{} --user {} --password {} --boot-mac {}{trust} | kubectl apply -f -",
            field("id"),
            field("redfish"),
            field("username"),
            field("password"),
            field("mac"),
        ));
    }
    text
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
    if std::io::stderr().is_terminal() {
        // Whoever closes the terminal now needs no hint.
        let _ = writeln!(std::io::stderr(), "{}", hint(&simulator.ready()));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    simulator.shutdown().await;
    Ok(())
}
