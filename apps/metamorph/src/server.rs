//! Wiring: the embedded API, the provisioner's endpoints, the controllers; started together, stopped in the right order.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use axum::Router;
use axum_server::Handle;
use boot_media::Assets;
use kube::Client;
use operator::{Candidate, HostController, HostSettings, SystemClock, leader};
use provisioner::{MayAct, Provisioner, Registry};
use provisioner_metamorph::{NativeProvisioner, RedfishConnect, Settings, Timing};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tower_http::services::ServeDir;

use crate::cli::{ApiServe, Behaviour, Endpoints, Operator, Up};
use crate::client;
use crate::identity::{self, Identity};
use crate::webhook;

/// Namespace of the server's own objects in the embedded API.
const OWN_NAMESPACE: &str = "metamorph-system";
/// How long reconciles under way may take when the server stops. Kubernetes kills after 30 s.
const FINISH: Duration = Duration::from_secs(5);
/// How long open connections may take when the server stops.
const GRACE: Duration = Duration::from_secs(3);

/// `up`: runs until it is told to stop.
#[allow(clippy::print_stderr)] // For the person at the terminal.
pub async fn up(options: Up) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    // Told to stop while it starts, it leaves what a crash would leave, which the next start takes up.
    let mut all = tokio::select! {
        started = AllInOne::start(&options) => started?,
        () = stop.told() => return Ok(()),
    };
    eprintln!(
        "Metamorph is up.\n  Kubernetes API   {}\n  boot media       {}\n  agent endpoint   {}\nTry: kubectl --kubeconfig {} get bmh,hostoperations -A",
        all.api_url,
        all.running.media_base,
        all.running.agent_bases.join(", "),
        all.kubeconfig.display(),
    );
    let outcome = told_or_broken(&mut stop, &mut all.running).await;
    eprintln!("stopping");
    all.stop().await;
    outcome
}

/// `api serve`: the Kubernetes API alone, until it is told to stop.
#[allow(clippy::print_stderr)] // For the person at the terminal.
pub async fn serve_api(options: ApiServe) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let (api, kubeconfig) = tokio::select! {
        started = start_api(&options) => started?,
        () = stop.told() => return Ok(()),
    };
    eprintln!(
        "The Kubernetes API is up at https://{}.\nTry: kubectl --kubeconfig {} api-resources",
        api.local_addr(),
        kubeconfig.display()
    );
    stop.told().await;
    eprintln!("stopping");
    api.shutdown().await;
    Ok(())
}

/// Starts the embedded API with all definitions and writes its kubeconfig; gives the kubeconfig's path, too.
async fn start_api(options: &ApiServe) -> anyhow::Result<(apiserver::Server, PathBuf)> {
    std::fs::create_dir_all(&options.data)
        .with_context(|| format!("make the data folder {}", options.data.display()))?;
    let api = apiserver::Server::start(apiserver::Config {
        data_dir: api_folder(&options.data),
        listen: options.api_listen,
        extra_sans: options.api_name.clone(),
        audit_log: options.api_audit_log.clone(),
        reviewers: vec![webhook::in_process()],
    })
    .await
    .context("start the embedded Kubernetes API")?;
    for crd in api::crds::all()? {
        api.apply_crd_yaml(&crd).await.context("install the custom resource definitions")?;
    }
    let kubeconfig = options.data.join("kubeconfig");
    write_private(&kubeconfig, &api.admin_kubeconfig())?;
    Ok((api, kubeconfig))
}

/// `operator`: the controllers on somebody else's API.
#[allow(clippy::print_stderr)] // For the person at the terminal.
pub async fn operator(options: Operator) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let starting = async {
        let client = client::connect(options.kubeconfig.as_deref()).await?;
        let leader = lead(&client, &options).await?;
        let leadership = leader.as_ref().map(operator::Leader::leadership);
        // The Lease is kept from now on: what follows may take its time.
        let (over, ended) = watch::channel(false);
        let keeping = leader.map(|leader| tokio::spawn(leader.keep(until(ended))));
        let may_act: MayAct = match leadership.clone() {
            Some(leadership) => Arc::new(move || leadership.holds()),
            None => Arc::new(|| true),
        };
        let running = Running::start(
            client.clone(),
            options.namespace.clone(),
            &options.own_namespace,
            &options.endpoints,
            &options.behaviour,
            may_act,
        );
        let mut running = running.await?;
        let handle = running.endpoints.clone();
        if let Some(serving) = webhook::serve(&client, &options.own_namespace, &options.webhook, handle).await? {
            running.parts.spawn(async move { ended_part("the webhook", serving.await) });
        }
        anyhow::Ok((running, leadership, over, keeping))
    };
    let (mut running, leadership, over, keeping) = tokio::select! {
        started = starting => started?,
        () = stop.told() => return Ok(()),
    };
    let lost = async {
        match leadership {
            Some(mut leadership) => leadership.lost().await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        outcome = told_or_broken(&mut stop, &mut running) => outcome,
        // Nothing is put in order: machines are another's now, and whatever is under way here must end at once.
        () = lost => bail!("the Lease {} was lost: another process leads, or the Kubernetes API cannot be reached", leader::NAME),
    };
    running.stop().await;
    let _ = over.send(true);
    if let Some(keeping) = keeping {
        let _ = keeping.await;
    }
    outcome
}

/// Waits until this process leads; `None` where there is no election.
#[allow(clippy::print_stderr)] // For the person at the terminal.
async fn lead(client: &Client, options: &Operator) -> anyhow::Result<Option<operator::Leader>> {
    if options.lease_duration == 0 {
        return Ok(None);
    }
    let namespace = &options.own_namespace;
    identity::ensure_namespace(client, namespace).await?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let candidate = Candidate {
        namespace: namespace.clone(),
        identity: format!("{}_{}", host.trim(), uuid::Uuid::new_v4()),
        duration: Duration::from_secs(options.lease_duration),
    };
    let mut told = String::new();
    let waiting = |holder: &str| {
        if told != holder {
            eprintln!("standing by: {holder} leads (Lease {} in namespace {namespace})", leader::NAME);
            holder.clone_into(&mut told);
        }
    };
    let attempt =
        || format!("take the Lease {} in namespace {namespace}; --lease-duration 0 does without", leader::NAME);
    let leader = candidate.lead(client, waiting).await.with_context(attempt)?;
    eprintln!("this process leads (Lease {} in namespace {namespace})", leader::NAME);
    Ok(Some(leader))
}

/// Waits for the end: an ordered one, or that of a part without which the rest is of no use. Whoever supervises the process starts it again.
async fn told_or_broken(stop: &mut StopSignal, running: &mut Running) -> anyhow::Result<()> {
    tokio::select! {
        () = stop.told() => Ok(()),
        broken = running.broken() => Err(broken),
    }
}

/// Hears SIGTERM and Ctrl-C from the moment it is made: one that comes while the server starts is no crash.
pub struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    /// Begins to listen.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for Ctrl-C")?,
        })
    }

    /// Resolves when the process is asked to stop.
    pub async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Resolves when the process is asked to stop from now on.
pub async fn stop_signal() -> anyhow::Result<()> {
    StopSignal::listen()?.told().await;
    Ok(())
}

/// The embedded API's part of the data folder.
pub fn api_folder(data: &Path) -> PathBuf {
    data.join("api")
}

/// The embedded API and everything on it.
pub struct AllInOne {
    api: apiserver::Server,
    /// Address of the API.
    pub api_url: String,
    /// The kubeconfig written.
    pub kubeconfig: PathBuf,
    /// Client with all rights.
    pub client: Client,
    /// The rest.
    pub running: Running,
}

impl AllInOne {
    /// Starts everything; when this returns, kubectl works.
    pub async fn start(options: &Up) -> anyhow::Result<Self> {
        let (api, kubeconfig) = start_api(&options.api).await?;
        let text = api.admin_kubeconfig();
        let client = client::connect_text(&text).await?;
        client::apply_policies(&client).await?;
        let running = Running::start(
            client.clone(),
            None,
            OWN_NAMESPACE,
            &options.endpoints,
            &options.behaviour,
            Arc::new(|| true),
        )
        .await?;
        Ok(Self { api_url: format!("https://{}", api.local_addr()), api, kubeconfig, client, running })
    }

    /// Stops in the order in which nothing is lost: controllers, sessions on BMCs, endpoints, API.
    pub async fn stop(self) {
        self.running.stop().await;
        self.api.shutdown().await;
    }
}

/// Writes a file that only its owner reads.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let attempt = || format!("write {}", path.display());
    let temporary = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .with_context(attempt)?;
    file.write_all(text.as_bytes()).with_context(attempt)?;
    file.sync_all().with_context(attempt)?;
    std::fs::rename(&temporary, path).with_context(attempt)
}

/// Controllers, provisioner and its endpoints.
pub struct Running {
    /// Base address of media and images.
    pub media_base: String,
    /// Base addresses of the agent endpoint.
    pub agent_bases: Vec<String>,
    provisioner: Arc<NativeProvisioner>,
    endpoints: Handle<SocketAddr>,
    stop: watch::Sender<bool>,
    parts: JoinSet<anyhow::Error>,
    controller: JoinHandle<()>,
}

impl Running {
    async fn start(
        client: Client,
        namespace: Option<String>,
        own_namespace: &str,
        endpoints: &Endpoints,
        behaviour: &Behaviour,
        may_act: MayAct,
    ) -> anyhow::Result<Self> {
        let identity = Identity::load(&client, own_namespace).await?;
        let media = bind(endpoints.media_listen, "boot media")?;
        let agents = bind(endpoints.agent_listen, "agents")?;
        let media_base = format!("http://{}", reached_at(endpoints.media_host.as_deref(), &media)?);
        let agent_hosts = &endpoints.agent_host;
        let agent_bases = if agent_hosts.is_empty() {
            vec![format!("https://{}", reached_at(None, &agents)?)]
        } else {
            agent_hosts
                .iter()
                .map(|h| Ok(format!("https://{}", reached_at(Some(h), &agents)?)))
                .collect::<anyhow::Result<_>>()?
        };
        let settings = Settings {
            media_base: media_base.clone(),
            agent_bases: agent_bases.clone(),
            secret: identity.secret,
            certificate_sha256: identity.certificate_sha256.clone(),
            image_ca_pem: read_optional(endpoints.image_ca.as_deref())?,
            kernel_arguments: endpoints.agent_kernel_arguments.clone(),
            timing: timing(behaviour),
        };
        let folder = endpoints.agent_image.clone();
        let assets = tokio::task::spawn_blocking(move || Assets::open(&folder)).await?.with_context(|| {
            format!("open the agent image {}; `metamorph agent-image build` makes one", endpoints.agent_image.display())
        })?;
        let connect = RedfishConnect::new(&settings.secret, &read_optional(endpoints.bmc_ca.as_deref())?);
        let provisioner = Arc::new(NativeProvisioner::new(settings, assets, Box::new(connect)));
        let (handle, parts) = serve(&provisioner, media, agents, &identity, endpoints.images.as_deref()).await?;
        let registry = Registry::new(Arc::clone(&provisioner) as Arc<dyn Provisioner>);
        let (stop, stopped) = watch::channel(false);
        let settings = HostSettings {
            namespace,
            lifecycle: lifecycle(behaviour),
            clock: Arc::new(SystemClock),
            deprovisioning_limit: behaviour.deprovisioning_limit,
            may_act,
        };
        let controller = HostController::new(client, registry, settings);
        let controller = tokio::spawn(controller.run(until(stopped)));
        Ok(Self { media_base, agent_bases, provisioner, endpoints: handle, stop, parts, controller })
    }

    /// Resolves when a part has ended without having been told to.
    pub async fn broken(&mut self) -> anyhow::Error {
        tokio::select! {
            ended = &mut self.controller => match ended {
                Ok(()) => anyhow!("the host controller ended"),
                Err(error) => anyhow!(error).context("the host controller ended badly"),
            },
            Some(ended) = self.parts.join_next() => ended.unwrap_or_else(|error| anyhow!(error).context("an endpoint ended badly")),
        }
    }

    /// Controllers first, then sessions on BMCs, then the endpoints.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        let mut controller = self.controller;
        if !controller.is_finished() {
            Self::finish(&mut controller).await;
        }
        self.provisioner.close().await;
        self.endpoints.graceful_shutdown(Some(GRACE));
    }

    /// Reconciles under way come to their end, within limits.
    async fn finish(controller: &mut JoinHandle<()>) {
        match tokio::time::timeout(FINISH, &mut *controller).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the host controller ended badly"),
            Err(_) => {
                // What hangs is given up, as a crash would: the next start goes on from what is recorded.
                tracing::warn!("work under way did not come to its end within {} s: it is left", FINISH.as_secs());
                controller.abort();
                // It ends by the abort, which it has just been told.
                let _ = controller.await;
            }
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender is gone: stop as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

fn timing(behaviour: &Behaviour) -> Timing {
    Timing {
        agent_boot: Duration::from_secs(behaviour.agent_boot_timeout),
        agent_silence: Duration::from_secs(behaviour.agent_silence),
        reconnect: Duration::from_secs(behaviour.agent_reconnect),
        stall: Duration::from_secs(behaviour.agent_stall_timeout),
        ..Timing::default()
    }
}

fn lifecycle(behaviour: &Behaviour) -> host_lifecycle::Settings {
    host_lifecycle::Settings {
        served: webhook::served(),
        max_provisioning_retries: behaviour.max_provisioning_retries,
        backoff_unit: Duration::try_from_secs_f64(behaviour.retry_after).unwrap_or(Duration::from_secs(60)),
        steady_state_poll: Duration::from_secs(behaviour.power_poll.max(1)),
        ..host_lifecycle::Settings::default()
    }
}

fn bind(address: SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen for {what} on {address}"))?;
    listener.set_nonblocking(true).with_context(|| format!("listen for {what} on {address}"))?;
    Ok(listener)
}

/// `host:port` under which others reach the listener.
fn reached_at(host: Option<&str>, listener: &TcpListener) -> anyhow::Result<String> {
    let local = listener.local_addr().context("ask for the listener's address")?;
    let host = match host {
        Some(host) => host.to_owned(),
        None if local.ip().is_unspecified() => own_address(local.ip())?.to_string(),
        None => local.ip().to_string(),
    };
    let has_port = host.matches(':').count() == 1 || host.contains("]:");
    let bare_v6 = host.contains(':') && !host.starts_with('[') && !has_port;
    Ok(match (has_port, bare_v6) {
        (true, _) => host,
        (false, true) => format!("[{host}]:{}", local.port()),
        (false, false) => format!("{host}:{}", local.port()),
    })
}

/// The address that this machine would use towards others: the one of the default route. Nothing is sent.
fn own_address(unspecified: IpAddr) -> anyhow::Result<IpAddr> {
    let attempt = "find this machine's own address; name it with --media-host and --agent-host";
    let socket = std::net::UdpSocket::bind((unspecified, 0)).context(attempt)?;
    // Addresses for documentation (RFC 5737, RFC 3849): a route is chosen, no packet leaves.
    let there = if unspecified.is_ipv4() { "192.0.2.1:9" } else { "[2001:db8::1]:9" };
    socket.connect(there).context(attempt)?;
    Ok(socket.local_addr().context(attempt)?.ip())
}

fn read_optional(path: Option<&Path>) -> anyhow::Result<String> {
    path.map_or_else(
        || Ok(String::new()),
        |p| std::fs::read_to_string(p).with_context(|| format!("read {}", p.display())),
    )
}

/// Serves the provisioner's endpoints until the handle is told to stop.
async fn serve(
    provisioner: &NativeProvisioner,
    media: TcpListener,
    agents: TcpListener,
    identity: &Identity,
    images: Option<&Path>,
) -> anyhow::Result<(Handle<SocketAddr>, JoinSet<anyhow::Error>)> {
    let mut media_router: Router = provisioner.media_router();
    if let Some(folder) = images {
        media_router = media_router.nest_service("/images", ServeDir::new(folder));
    }
    let (certificate, key) = (identity.certificate_pem.clone().into_bytes(), identity.key_pem.clone().into_bytes());
    let tls = axum_server::tls_rustls::RustlsConfig::from_pem(certificate, key)
        .await
        .map_err(|e| anyhow!("use the agent endpoint's certificate: {e}"))?;
    let handle = Handle::new();
    let plain = axum_server::from_tcp(media).context("serve boot media")?.handle(handle.clone());
    let secured = axum_server::from_tcp_rustls(agents, tls).context("serve agents")?.handle(handle.clone());
    let agent_router = provisioner.agent_router();
    let mut parts = JoinSet::new();
    parts.spawn(async move { ended_part("the media endpoint", plain.serve(media_router.into_make_service()).await) });
    parts.spawn(async move { ended_part("the agent endpoint", secured.serve(agent_router.into_make_service()).await) });
    Ok((handle, parts))
}

fn ended_part(what: &str, how: std::io::Result<()>) -> anyhow::Error {
    match how {
        Ok(()) => anyhow!("{what} ended"),
        Err(error) => anyhow!(error).context(format!("{what} ended")),
    }
}
