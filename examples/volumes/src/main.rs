//! The example's program: the controller of volumes, their definition, and the check of a worker.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Parser;
use kube::Client;
use provisioner::{Provides, Registry};
use provisioner_external::check::{Checked, Numbered, real_time};
use provisioner_external::{Connect, External, Reached, Site, introduce, read_sites, socket_address, unix_socket};
use provisioner_kit::{capabilities_of, run as carry_out};
use tokio::signal::unix::{SignalKind, signal};
use volumes::Volume;
use volumes::volume::scenarios;

/// Storage volumes by provisioners that are programs of their own.
#[derive(Parser)]
#[command(name = "volumes")]
enum Command {
    /// Prints the definition of StorageVolume.
    Definition,
    /// Runs the controller on the cluster of the kubeconfig.
    Run {
        /// The list of provisioners; the first is the default.
        #[arg(long)]
        provisioners: PathBuf,
    },
    /// Has the kit judge a worker; the volumes that it makes for that are destroyed. The exit code is the verdict.
    Check {
        /// Its socket, unix:/path.
        address: String,
        /// Only scenarios with this in their name.
        #[arg(long)]
        only: Option<String>,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let command = Command::parse();
    // The kit's time is paused: it is the machine's elsewhere.
    let is_paused = matches!(command, Command::Check { .. });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(is_paused).build()?;
    runtime.block_on(async {
        match command {
            Command::Definition => say(&serde_json::to_string_pretty(&volumes::kind::definition())?)?,
            Command::Run { provisioners } => run(&provisioners).await?,
            Command::Check { address, only } => return check(&address, only.as_deref()).await,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}")
}

async fn run(list: &PathBuf) -> anyhow::Result<()> {
    let attempt = || format!("read the list of provisioners in {}", list.display());
    let sites = read_sites(&tokio::fs::read_to_string(list).await.with_context(attempt)?).with_context(attempt)?;
    let (mut all, mut programs) = (Vec::new(), Vec::new());
    for site in sites {
        if !site.schemes.is_empty() {
            return Err(anyhow!("{}: a volume has no address whose scheme could be one of `schemes`", site.name))
                .with_context(attempt);
        }
        let (one, program) = External::<Volume>::begin(site)?;
        all.push(Arc::new(one) as Arc<dyn Provides<Volume>>);
        programs.extend(program);
    }
    let mut all = all.into_iter();
    let default = all.next().context("it names none").with_context(attempt)?;
    let registry = all.fold(Registry::new(default), Registry::with);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await.context("find the cluster")?;
    let (mut asked, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = async move {
        tokio::select! {
            _ = asked.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    volumes::run(client, registry, Arc::new(jiff::Timestamp::now), shutdown).await;
    drop(programs);
    Ok(())
}

async fn check(address: &str, only: Option<&str>) -> anyhow::Result<ExitCode> {
    let path = socket_address(address).map_err(|why| anyhow!("{address}: {why}"))?;
    let connect: Arc<dyn Connect> = Arc::new(unix_socket(path.clone(), None));
    let hold = real_time();
    let held = hold();
    let (name, id_prefix) = introduce::<Volume>(connect.as_ref()).await.map_err(|why| anyhow!("{address}: {why}"))?;
    let site = Site { id_prefix, ..Site::new(name, Reached::Socket(path, None)) };
    let known = External::<Volume>::new(site.clone(), Arc::clone(&connect)).greet().await?;
    drop(held);
    let template = known.check_address.clone().filter(|template| template.contains("{n}"));
    let template = template.context("it names no volumes to check it with")?;
    // Another number than those of any earlier check: what a worker has made outlives it.
    let first = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or_default().saturating_mul(1000);
    let machines = Numbered::from(template, first, connect)?;
    let checked = Checked::<Volume>::new(site, known, Box::new(machines), Some(hold));
    let mut all = scenarios(&capabilities_of(&checked));
    all.retain(|scenario| only.is_none_or(|text| scenario.name.contains(text)));
    let report = carry_out(&checked, &all).await;
    say(&format!("{report}{} scenarios, {} left out: {:?}", all.len(), report.left_out.len(), report.left_out))?;
    Ok(if report.violations.is_empty() && !all.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
