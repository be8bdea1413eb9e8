//! The server and command-line program: arguments and wiring only.

mod addresses;
mod agent_image;
mod agent_tls;
mod api_reader;
mod authorities;
mod capabilities;
mod cli;
mod client;
mod connections;
mod demo;
mod discovery_desk;
mod discovery_medium;
mod doctor;
mod endpoint_tls;
mod flags;
mod host_add;
mod host_causes;
mod host_explain;
mod host_list;
mod host_locate;
mod host_request;
mod host_watch;
mod identity;
mod image_args;
mod kept;
mod keys;
mod lead;
mod logging;
mod observe;
mod probe;
mod provision;
mod provisioner_check;
mod provisioner_serve;
mod provisioners;
mod renewal;
mod report_args;
mod rights;
mod rotated;
mod say;
mod scout;
mod scrape;
mod seal_keys;
mod server;
mod stop;
mod support_bundle;
mod topology_view;
mod upstream;
mod webhook;

use std::process::ExitCode;

use clap::Parser;

use cli::{AgentImageCommand, ApiCommand, Cli, Command, HostCommand, ProvisionerCommand};
use report_args::DiscoveryCommand;

/// The Kubernetes API allocates and frees JSON trees on each write: the system's allocator took a third of its processor time, and mimalloc keeps a
/// third more of what was freed.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's settings (jemalloc(3), "TUNING"), which it reads from this symbol: two arenas for all threads, and what is freed goes back to the system
/// within half a second, once somebody allocates or frees again.
// The name is the allocator's own, and so is the type: a pointer to text that ends with a zero.
#[cfg(feature = "jemalloc")]
#[used]
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: &[u8; 46] = b"narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0\0";

/// Exit code for a command line that cannot be served, as the command line's parser has it.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    // Pages of 2 MiB would double the memory of a small server. If the kernel refuses, memory use is the only loss.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    start()
}

#[tokio::main]
async fn start() -> ExitCode {
    // An error means that a provider is installed already; only this program installs one, so it is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let understood = match upstream::understand(std::env::args_os().collect(), std::env::vars_os()) {
        Ok(understood) => understood,
        Err(refused) => {
            say::note(&format!("error: {refused}"));
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let cli = Cli::parse_from(understood.arguments);
    understood.notes.iter().for_each(|note| say::note(note));
    match run(cli).await {
        Ok(code) => code,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let done = match cli.command {
        Command::Up(up) => {
            logging::start(&cli.log, logging::Target::Stderr)?;
            server::up(up).await
        }
        Command::Operator(operator) => {
            logging::start(&cli.log, logging::Target::Stderr)?;
            server::operator(operator).await
        }
        // Its exit code has more values than success and failure.
        Command::Provision(options) => return Ok(provision::run(&options, &cli.log).await),
        Command::Demo(demo) => demo::run(demo, &cli.log).await,
        Command::Api(ApiCommand::Serve(serve)) => {
            logging::start(&cli.log, logging::Target::Stderr)?;
            server::serve_api(serve).await
        }
        Command::Api(ApiCommand::Backup(at)) => Ok(apiserver::backup(&server::api_folder(&at.data), &at.file)?),
        Command::Api(ApiCommand::Restore(at)) => Ok(apiserver::restore(&server::api_folder(&at.data), &at.file)?),
        Command::Crds => client::print_crds(),
        Command::Keys(command) => keys::run(command).await,
        Command::Rbac(options) => rights::print(&options),
        Command::AgentImage(AgentImageCommand::Build(build)) => {
            logging::start(&cli.log, logging::Target::Stderr)?;
            agent_image::build(build).await
        }
        Command::Host(HostCommand::Add(add)) => host_add::print(&add),
        Command::Host(HostCommand::Watch(watch)) => host_watch::run(watch).await,
        Command::Host(HostCommand::Explain(explain)) => host_explain::run(explain).await,
        Command::Host(HostCommand::Causes(causes)) => host_causes::run(causes).await,
        Command::Host(HostCommand::Locate(locate)) => host_locate::run(locate).await,
        Command::Host(HostCommand::List(list)) => host_list::run(list).await,
        Command::Doctor(options) => return doctor::run(options).await,
        Command::SupportBundle(options) => support_bundle::run(options).await,
        Command::Topology(options) => topology_view::run(options).await,
        Command::Discovery(DiscoveryCommand::Medium(options)) => discovery_medium::run(options).await,
        Command::Provisioner(ProvisionerCommand::Check(options)) => return provisioner_check::run(options).await,
        Command::Provisioner(ProvisionerCommand::Serve(options)) => {
            logging::start(&cli.log, logging::Target::Stderr)?;
            provisioner_serve::run(options).await
        }
        Command::Completions { shell } => say::out(&cli::completions(shell)),
        Command::Reference => cli::reference(),
        Command::Capabilities => say::out(&capabilities::page()),
        Command::DiagnosisCodes => say::out(&diagnosis::table()),
        Command::StateDiagram => say::out(&cli::state_diagram()),
    };
    done.map(|()| ExitCode::SUCCESS)
}
