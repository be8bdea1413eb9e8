//! `demo`: everything on one machine. Virtual servers behind virtual BMCs are registered, inspected and provisioned with a real operating system,
//! which then reports over the network what it read from its config drive.

mod call_home;
mod manifests;
mod remains;
mod simulator;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use addresses::Allowed;
use anyhow::{Context, bail};
use api::metal3::{BareMetalHost, ProvisioningState};
use kube::api::Api;
use kube::{Client, ResourceExt};

use crate::cli::{ApiServe, Backend, Behaviour, Demo, Endpoints, ErrorDetect, Up};
use crate::flags::{self, HostPort};
use crate::host_watch::{self, View};
use crate::server::AllInOne;
use crate::stop::stop_signal;
use crate::{logging, say};
use call_home::{CallHome, HOST_FROM_GUEST, Report};
use manifests::{Machine, NAMESPACE};
use simulator::SimulatorProcess;

/// Runs the demo.
pub async fn run(options: Demo, log: &str) -> anyhow::Result<()> {
    let folder = Folder::make(options.data.as_deref())?;
    logging::start(log, logging::Target::File(folder.path.join("metamorph.log")))?;
    let stays = std::io::stdout().is_terminal() && !options.once;
    let result = Box::pin(in_folder(&options, &folder.path, stays)).await;
    if let Err(error) = &result {
        tracing::error!(error = error.as_ref() as &dyn std::error::Error, "the demo failed");
        folder.keep();
    }
    result
}

async fn in_folder(options: &Demo, folder: &Path, stays: bool) -> anyhow::Result<()> {
    let image = Image::find(&options.image)?;
    let up = up_options(options, folder, &image);
    flags::check(&up.endpoints)?;
    let mut simulator = SimulatorProcess::start(options, folder).await?;
    let call_home = CallHome::start().await?;
    let mut all = AllInOne::start(&up, "demo").await?;
    let result = provision(options, &simulator, &call_home, &mut all, &image, stays).await;
    if result.is_err()
        && let Err(error) = remains::write_objects(&all.client, folder).await
    {
        tracing::warn!(error = error.as_ref() as &dyn std::error::Error, "keep the hosts as they were");
    }
    all.stop().await;
    simulator.stop().await;
    result
}

async fn provision(
    options: &Demo,
    simulator: &SimulatorProcess,
    call_home: &CallHome,
    all: &mut AllInOne,
    image: &Image,
    stays: bool,
) -> anyhow::Result<()> {
    let mut view = View::new(false);
    view.say(&format!(
        "{} behind {} of its own; the log is in {}\nWatch with kubectl --kubeconfig {} get bmh,hostoperations -A",
        if options.machines == 1 {
            "One virtual server".to_owned()
        } else {
            format!("{} virtual servers", options.machines)
        },
        if options.machines == 1 { "a BMC" } else { "BMCs" },
        all.kubeconfig.with_file_name("metamorph.log").display(),
        all.kubeconfig.display(),
    ))?;
    let machines = Machine::all(simulator, options)?;
    let base = all.running.bases.media.first().context("the server offers no media")?;
    for machine in &machines {
        let url = format!("{}/images/{}", base_for_guests(base)?, image.name);
        machine.apply(&all.client, &url, &image.sha256, &call_home.url_for(&machine.name)).await?;
    }
    let limit = Duration::from_secs(options.timeout);
    let client = all.client.clone();
    let waited = tokio::time::timeout(limit, async {
        tokio::select! {
            result = host_watch::follow(&client, Some(NAMESPACE), None, &mut view) => result.and_then(|()| bail!("the watch ended")),
            reports = reported_in(&client, &machines, call_home) => reports,
            broken = all.running.broken() => Err(broken),
            signal = stop_signal() => signal.and_then(|()| bail!("interrupted")),
        }
    })
    .await;
    view.finish();
    let reports = match waited {
        Ok(result) => result?,
        Err(_) => {
            bail!("the machines have not all reported in within {} s: {}", options.timeout, causes(&all.client).await)
        }
    };
    let console_lasts = stays || options.data.is_some();
    for (machine, report) in machines.iter().zip(&reports) {
        view.say(&success_line(machine, report, console_lasts.then(|| simulator.console(&machine.name)).as_deref()))?;
    }
    if stays {
        view.say(&format!("kubectl --kubeconfig {} get bmh -A     (Ctrl-C ends the demo)", all.kubeconfig.display()))?;
        tokio::select! {
            signal = stop_signal() => signal?,
            broken = all.running.broken() => return Err(broken),
        }
    }
    Ok(())
}

/// Waits until every machine is `provisioned` and its new system has reported in.
async fn reported_in(client: &Client, machines: &[Machine], call_home: &CallHome) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for machine in machines {
        let report = call_home.wait_for(&machine.name).await;
        machine.check(&report)?;
        let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), NAMESPACE);
        let provisioned =
            |host: Option<&BareMetalHost>| host.is_some_and(|h| h.state() == ProvisioningState::Provisioned);
        kube::runtime::wait::await_condition(hosts, &machine.name, provisioned)
            .await
            .with_context(|| format!("wait for {} to be provisioned", machine.name))?;
        reports.push(report);
    }
    Ok(reports)
}

/// One machine's success in a line; names the console's file only if it still exists when the user reads the line.
fn success_line(machine: &Machine, report: &Report, console: Option<&Path>) -> String {
    format!(
        "{}: provisioned; it calls itself {}, has {} (no DHCP gives that), boot entry {}, Secure Boot {}{}",
        machine.name,
        report.hostname,
        machine.address,
        report.boot_entry,
        if report.secure_boot { "on" } else { "off" },
        console.map(|file| format!("; its console: {}", file.display())).unwrap_or_default(),
    )
}

/// The hosts' error messages, for the report of a time-out.
async fn causes(client: &Client) -> String {
    let hosts: Api<BareMetalHost> = Api::namespaced(client.clone(), NAMESPACE);
    let Ok(all) = hosts.list(&kube::api::ListParams::default()).await else {
        return "the API does not answer".to_owned();
    };
    let one = |host: &BareMetalHost| {
        let message = host.status.as_ref().map(|s| s.error_message.clone()).unwrap_or_default();
        format!("{} is {} {message}", host.name_any(), host.state())
    };
    all.items.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The media address, with the host's address as guests see it.
fn base_for_guests(base: &str) -> anyhow::Result<String> {
    let port = base.rsplit_once(':').map(|(_, port)| port).context("read the media address")?;
    Ok(format!("http://{HOST_FROM_GUEST}:{port}"))
}

fn up_options(options: &Demo, folder: &Path, image: &Image) -> Up {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Up {
        api: ApiServe { data: folder.to_owned(), api_listen: any, api_name: Vec::new(), api_audit_log: None },
        endpoints: Endpoints {
            agent_image: options.agent_image.clone(),
            earlier_agent_image: Vec::new(),
            media_listen: any,
            agent_listen: any,
            health_listen: any,
            media_tls_listen: None,
            metrics: crate::cli::Metrics::default(),
            media_certificate: None,
            media_key: None,
            media_host: Vec::new(),
            networks: Vec::new(),
            agent_host: vec![HostPort { host: HOST_FROM_GUEST.to_owned(), port: None }],
            allow_address: Allowed::loopback().ranges().to_vec(),
            images: Some(image.folder.clone()),
            bmc_ca: None,
            image_ca: None,
            http_registry: Vec::new(),
            image_proxy: None,
            image_proxy_login: None,
            image_proxy_login_for_agents: false,
            image_no_proxy: Vec::new(),
            // Under software emulation on a busy host, the kernel's timer check can fail by lateness, and the kernel panics.
            // No switch speaks on the wires of emulated machines.
            agent_kernel_arguments: "no_timer_check metamorph.lldp=2".to_owned(),
        },
        behaviour: Behaviour {
            max_provisioning_retries: 5,
            retry_after: 10.0,
            error_detect: ErrorDetect::Off,
            power_poll: 60,
            deprovisioning_limit: 20,
            power_on_limit: 20,
            provisioning_limit: provisioner_metamorph::PROVISIONING_LIMIT,
            agent_boot_timeout: 300,
            agent_silence: 90,
            agent_reconnect: 10,
            agent_stall_timeout: 300,
            provisioners: vec![Backend::Metamorph],
            ironics: None,
            external: None,
        },
    }
}

/// The operating system image, and its digest from the SHA256SUMS beside it.
struct Image {
    folder: PathBuf,
    name: String,
    sha256: String,
}

impl Image {
    fn find(given: &Path) -> anyhow::Result<Self> {
        let file = if given.is_dir() { given.join("debian-12.raw.zst") } else { given.to_owned() };
        let file = file
            .canonicalize()
            .with_context(|| format!("find the image {}; `make demo-os` builds one", file.display()))?;
        let folder = file.parent().context("the image has no folder")?.to_owned();
        let name = file.file_name().and_then(|n| n.to_str()).context("the image's name is no text")?.to_owned();
        let sums = folder.join("SHA256SUMS");
        let text = std::fs::read_to_string(&sums).with_context(|| format!("read {}", sums.display()))?;
        let line =
            text.lines().find_map(|line| line.split_once("  ").filter(|(_, n)| n.trim_start_matches('*') == name));
        let Some((digest, _)) = line else { bail!("{} has no line for {name}", sums.display()) };
        Ok(Self { folder, name, sha256: digest.to_owned() })
    }
}

/// The demo's folder; a temporary one is removed at the end unless something failed.
struct Folder {
    path: PathBuf,
    temporary: std::cell::Cell<bool>,
}

impl Folder {
    fn make(given: Option<&Path>) -> anyhow::Result<Self> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(format!("metamorph-demo-{}", std::process::id())),
        };
        std::fs::create_dir_all(&path).with_context(|| format!("make the folder {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("make the folder {}", path.display()))?;
        Ok(Self { path, temporary: std::cell::Cell::new(given.is_none()) })
    }

    /// Called on failure: if the folder helps the diagnosis, keeps it and lists its files.
    fn keep(&self) {
        if let Some(text) = remains::describe(&self.path) {
            self.temporary.set(false);
            say::note(&text);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary.get() {
            // The system cleans up whatever remains in the temporary folder.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
