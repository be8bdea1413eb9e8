//! Wiring: the embedded API, the provisioner's endpoints, the controllers; started together, stopped in the right order.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use addresses::Allowed;
use anyhow::{Context, anyhow, bail};
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use bmc::{Connectors, Protocol};
use boot_media::Assets;
use futures::future::Either;
use jiff::Timestamp;
use kube::Client;
use oci_registry::{HttpTransport, Registries};
use operator::{
    ClaimController, ClassificationController, Detect, DiagnosisController, DiscoveryController, ForeseenAll,
    HostAdmission, HostClassController, HostController, HostSettings, Reception, RequestController, Shutdown,
    SubscriptionController, SystemClock,
};
use provisioner::{Capabilities, MayAct, Provisioner};
use provisioner_metamorph::{AgentImages, Bases, NativeProvisioner, Settings, Timing};
use redfish::RedfishConnector;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tower_http::services::ServeDir;

use crate::addresses::{Addresses, Listeners, reached_at};
use crate::authorities::Given;
use crate::cli::{ApiServe, Behaviour, Endpoints, Metrics, Operator, Up};
use crate::discovery_desk;
use crate::endpoint_tls::{Endpoint, EndpointTls};
use crate::flags::{self, Authorities};
use crate::identity::Identity;
use crate::lead::{self, Led};
use crate::observe::{self, Seen};
use crate::seal_keys;
use crate::stop::StopSignal;
use crate::{client, connections, provisioners, rotated, say, scrape, webhook};

/// Namespace of the server's own objects in the embedded API.
const OWN_NAMESPACE: &str = "metamorph-system";
/// How long reconciles under way may take when the server stops. Kubernetes kills after 30 s.
const FINISH: Duration = Duration::from_secs(5);
/// How often the media endpoint's certificate, or the files of a given one, are checked.
const MEDIA_LOOK: Duration = Duration::from_secs(60);
/// How often the certificate files for BMCs and image servers are read again.
const FILES_LOOK: Duration = Duration::from_secs(60);
/// How often keys are checked, besides on every change of their Secrets.
const KEYS_LOOK: Duration = Duration::from_secs(600);
/// How long open connections may last when the server stops.
const GRACE: Duration = Duration::from_secs(3);

/// `up`: runs until it receives a stop signal.
pub async fn up(options: Up) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    // A stop signal during startup leaves the same state as a crash; the next start resumes from it.
    let mut all = tokio::select! {
        started = AllInOne::start(&options, "up") => started?,
        () = stop.stopped() => return Ok(()),
    };
    let text = format!(
        "Metamorph is up.\n  Kubernetes API   {}\n{}\nTry: kubectl --kubeconfig {} get bmh,hostoperations -A",
        all.api_url,
        all.running.addresses(),
        all.kubeconfig.display(),
    );
    let outcome = stopped_or_broken(&mut stop, &mut all.running, text).await;
    say::note("stopping");
    all.stop().await;
    outcome
}

/// `api serve`: the Kubernetes API alone, until a stop signal.
pub async fn serve_api(options: ApiServe) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    // Another process has the provisioners.
    let hosts = HostAdmission::new(provisioners::foreseen_by(None));
    let (api, kubeconfig) = tokio::select! {
        started = start_api(&options, hosts) => started?,
        () = stop.stopped() => return Ok(()),
    };
    say::note(&format!(
        "The Kubernetes API is up at https://{}.\nTry: kubectl --kubeconfig {} api-resources",
        api.local_addr(),
        kubeconfig.display()
    ));
    observe::notify("READY=1");
    stop.stopped().await;
    observe::notify("STOPPING=1");
    say::note("stopping");
    api.shutdown().await;
    Ok(())
}

/// The API on an existing data folder: installs nothing in it and writes no kubeconfig.
pub async fn open_api(data: &Path) -> Result<apiserver::Server, apiserver::StartError> {
    apiserver::Server::start(apiserver::Config {
        data_dir: api_folder(data),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        extra_sans: Vec::new(),
        audit_log: None,
        reviewers: Vec::new(),
    })
    .await
}

/// Starts the embedded API with all definitions and writes its kubeconfig; also returns the kubeconfig's path.
async fn start_api(options: &ApiServe, hosts: HostAdmission) -> anyhow::Result<(apiserver::Server, PathBuf)> {
    flags::check_api(options)?;
    std::fs::create_dir_all(&options.data)
        .with_context(|| format!("make the data folder {}", options.data.display()))?;
    let api = apiserver::Server::start(apiserver::Config {
        data_dir: api_folder(&options.data),
        listen: options.api_listen,
        extra_sans: options.api_name.clone(),
        audit_log: options.api_audit_log.clone(),
        reviewers: webhook::in_process(hosts),
    })
    .await
    .context("start the embedded Kubernetes API")?;
    api.audit_annotations(&[api::metal3::annotation::ACCEPT_MACHINE, api::metal3::annotation::OVERWRITE_OWNER]);
    for crd in api::crds::all()? {
        api.apply_crd_yaml(&crd).await.context("install the custom resource definitions")?;
    }
    let kubeconfig = options.data.join("kubeconfig");
    let mut texts = api.kubeconfigs();
    write_private(&kubeconfig, &texts.borrow_and_update())?;
    let path = kubeconfig.clone();
    // Ends with the API.
    tokio::spawn(async move {
        while texts.changed().await.is_ok() {
            match write_private(&path, &texts.borrow_and_update()) {
                Ok(()) => tracing::info!(path = %path.display(), "wrote a kubeconfig with another certificate"),
                Err(error) => tracing::error!(error = format!("{error:#}"), "the new kubeconfig"),
            }
        }
    });
    Ok((api, kubeconfig))
}

/// `operator`: the controllers on an existing cluster's API.
pub async fn operator(options: Operator) -> anyhow::Result<()> {
    let mut stop = StopSignal::listen()?;
    let authorities = flags::check(&options.endpoints)?;
    let starting = async {
        let client = client::connect(options.kubeconfig.as_deref()).await?;
        let health = observe::bind(options.endpoints.health_listen)?;
        // Renews the Lease from here on: the steps below may take long.
        let led = lead::lead(&client, &options.own_namespace, options.lease_duration, &health).await?;
        let guard = led.may_act();
        let startup = Startup { namespace: &options.own_namespace, authorities, led, health, anew: None };
        let namespace = options.namespace.clone();
        let mut running =
            Running::start(client.clone(), namespace, startup, &options.endpoints, &options.behaviour).await?;
        let webhook = (&options.webhook, HostAdmission::new(running.foreseen.clone()));
        let part = (running.endpoints.clone(), guard);
        if let Some(serving) =
            webhook::serve(&client, &options.own_namespace, options.namespace.as_deref(), webhook, part).await?
        {
            running.parts.spawn(async move { ended_part("the webhook", serving.await) });
        }
        anyhow::Ok(running)
    };
    let mut running = tokio::select! {
        started = starting => started?,
        () = stop.stopped() => return Ok(()),
    };
    let text = format!("Metamorph is ready and looks after the hosts.\n{}", running.addresses());
    let outcome = stopped_or_broken(&mut stop, &mut running, text).await;
    say::note("stopping");
    running.stop().await;
    outcome
}

/// Waits for a stop signal, or for the end of a part that the others need; a supervisor then restarts the process.
/// Meanwhile, as soon as the hosts are watched, reports readiness to the user and to the service manager.
async fn stopped_or_broken(stop: &mut StopSignal, running: &mut Running, ready: String) -> anyhow::Result<()> {
    let seen = Arc::clone(&running.seen);
    let ready = tokio::spawn(async move {
        seen.observer.at_work().await;
        say::note(&ready);
        observe::notify("READY=1");
    });
    let outcome = tokio::select! {
        () = stop.stopped() => Ok(()),
        broken = running.broken() => Err(broken),
    };
    ready.abort();
    observe::notify("STOPPING=1");
    outcome
}

/// The embedded API's part of the data folder.
pub fn api_folder(data: &Path) -> PathBuf {
    data.join("api")
}

/// The embedded API with all definitions and policies, without controllers so far.
pub struct Embedded {
    api: apiserver::Server,
    /// Reviews its hosts.
    hosts: HostAdmission,
    /// Address of the API.
    pub api_url: String,
    /// The kubeconfig written.
    pub kubeconfig: PathBuf,
    /// Client with all rights.
    pub client: Client,
}

impl Embedded {
    /// Starts it for a server that is to behave so; when this returns, kubectl works.
    pub async fn start(options: &ApiServe, behaviour: &Behaviour) -> anyhow::Result<Self> {
        let hosts = HostAdmission::new(provisioners::foreseen_by(Some(behaviour)));
        let (api, kubeconfig) = start_api(options, hosts.clone()).await?;
        let client = client::of_served(&api);
        client::apply_policies(&client).await?;
        Ok(Self { api_url: format!("https://{}", api.local_addr()), api, hosts, kubeconfig, client })
    }

    /// Waits until this process may work on the API's objects, under this command's name. Meanwhile answers probes.
    pub async fn lead(&self, command: &str, endpoints: &Endpoints) -> anyhow::Result<Leading> {
        let health = observe::bind(endpoints.health_listen)?;
        // Its renewals wait for no other call of this process.
        let own = client::of_served(&self.api);
        let led = lead::lead_served_api(&own, OWN_NAMESPACE, command, &health).await?;
        Ok(Leading { led, health })
    }

    /// Adds controllers, provisioner and endpoints, which start to work on machines. Retries at once what failed before the time `anew`.
    pub async fn work(
        self,
        leading: Leading,
        endpoints: &Endpoints,
        behaviour: &Behaviour,
        authorities: Authorities,
        anew: Option<Timestamp>,
    ) -> anyhow::Result<AllInOne> {
        let Self { api, hosts, api_url, kubeconfig, client } = self;
        let Leading { led, health } = leading;
        let startup = Startup { namespace: OWN_NAMESPACE, authorities, led, health, anew };
        let running = Running::start(client.clone(), None, startup, endpoints, behaviour).await?;
        hosts.knows(running.foreseen.clone());
        Ok(AllInOne { api, api_url, kubeconfig, client, running })
    }

    /// Stops the API; no controllers run on it.
    pub async fn stop(self) {
        self.api.shutdown().await;
    }
}

/// The right to work on the embedded API's objects.
pub struct Leading {
    led: Led,
    health: TcpListener,
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
    /// Starts everything for this command; when this returns, kubectl works and this process leads.
    pub async fn start(options: &Up, command: &str) -> anyhow::Result<Self> {
        let authorities = flags::check(&options.endpoints)?;
        let endpoints = &options.endpoints;
        let mut listeners = vec![("--api-listen", options.api.api_listen)];
        listeners.extend(flags::listeners(endpoints));
        flags::apart(&listeners)?;
        let embedded = Embedded::start(&options.api, &options.behaviour).await?;
        let leading = embedded.lead(command, endpoints).await?;
        embedded.work(leading, endpoints, &options.behaviour, authorities, None).await
    }

    /// Stops the parts in the order that loses nothing: controllers, sessions on BMCs, endpoints, API.
    pub async fn stop(self) {
        self.running.stop().await;
        self.api.shutdown().await;
    }
}

/// Writes a file that only its owner may read.
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

/// Settings and resources of one server process.
struct Startup<'a> {
    /// Namespace of its keys.
    namespace: &'a str,
    /// Certificates from the command line's flags.
    authorities: Authorities,
    /// Its right to work on hosts.
    led: Led,
    /// Where probes and metrics are served.
    health: TcpListener,
    /// Failures before this time are retried at once.
    anew: Option<Timestamp>,
}

/// Controllers, provisioner and its endpoints.
pub struct Running {
    /// Base addresses under which most BMCs and servers reach the endpoints.
    pub bases: Bases,
    health_base: String,
    metrics_base: Option<String>,
    seen: Arc<Seen>,
    provisioner: Arc<NativeProvisioner>,
    external: provisioners::Externals,
    /// What admission knows of the provisioners.
    foreseen: ForeseenAll,
    endpoints: Handle<SocketAddr>,
    stop: watch::Sender<bool>,
    parts: JoinSet<anyhow::Error>,
    controller: JoinHandle<()>,
    led: Led,
}

impl Running {
    async fn start(
        client: Client,
        namespace: Option<String>,
        startup: Startup<'_>,
        endpoints: &Endpoints,
        behaviour: &Behaviour,
    ) -> anyhow::Result<Self> {
        let identity = Identity::load(&client, startup.namespace, namespace.as_deref()).await?;
        let seal_keys = seal_keys::load(&client, startup.namespace).await?;
        let (health, may_act, led) = (startup.health, startup.led.may_act(), startup.led);
        let health_base = format!("http://{}", reached_at(None, &health)?);
        let listeners = Listeners::bind(endpoints)?;
        let (metrics, scraped) = (scrape::bind(&endpoints.metrics)?, Arc::clone(&may_act));
        let metrics_base = metrics.as_ref().map(|listener| reached_at(None, listener)).transpose()?;
        let addresses = Addresses::of(endpoints, &listeners)?;
        let media_tls = media_tls(&client, startup.namespace, endpoints, (&listeners, &addresses)).await?;
        let allowed = Allowed::new(endpoints.allow_address.iter().copied());
        let images = flags::image_defaults(startup.namespace, endpoints, startup.authorities.proxy.clone());
        let given = Given::new(endpoints, startup.authorities);
        let ironic = provisioners::ironic(behaviour).await?;
        let settings = Settings {
            bases: addresses.bases.clone(),
            networks: addresses.networks,
            media_certificates: media_tls.as_ref().map(|tls| tls.certificates.clone()).unwrap_or_default(),
            keys: identity.ring.clone(),
            image_authorities: given.agents(),
            kernel_arguments: endpoints.agent_kernel_arguments.clone(),
            allowed: allowed.clone(),
            registries: registries(&allowed, &given, endpoints),
            may_act: Arc::clone(&may_act),
            provisioning_limit: behaviour.provisioning_limit,
            other_masters: ironic.iter().map(|ironic| ironic.nodes()).collect(),
            timing: timing(behaviour),
        };
        let images_of_agents = agent_images(endpoints).await?;
        let redfish = RedfishConnector::new(identity.server_id.clone(), given.trust())
            .allowing(allowed.clone())
            .led_by(led.lead());
        let calls = redfish.totals();
        let connectors = Connectors::new().with(Protocol::Redfish, redfish);
        let provisioner = Arc::new(NativeProvisioner::new(settings, images_of_agents, connectors));
        // One run has its hosts in its manifests, and looks for no others.
        let reception = startup.anew.is_none().then(Arc::<Reception>::default);
        let served = (endpoints.images.as_deref(), reception.clone());
        let (handle, mut parts) = serve(&provisioner, listeners, (identity, media_tls), served, &may_act)?;
        if given.is_any() {
            parts.spawn(async move {
                let read = |_| std::future::ready(given.look());
                rotated::keep(FILES_LOOK, "the certificates that were given", Arc::new(|| true), read).await;
                anyhow!("nobody looks after the certificates that were given any more")
            });
        }
        let made = provisioners::registry(&native(&provisioner), ironic, behaviour).await?;
        let (stop, stopped) = watch::channel(false);
        let settings = HostSettings {
            namespace,
            lifecycle: host_lifecycle::Settings { anew_since: startup.anew, ..lifecycle(behaviour, made.served) },
            clock: Arc::new(SystemClock),
            deprovisioning_limit: behaviour.deprovisioning_limit,
            power_on_limit: behaviour.power_on_limit,
            may_act,
            seal_keys,
            images,
            readers: provisioners::READERS,
        };
        let controller = HostController::new(client.clone(), made.registry, settings);
        let found = discovery_desk::finder(&controller, &provisioner, reception, allowed)?;
        let traffic = (calls, provisioner.media_bytes());
        let seen = Arc::new(Seen::new(controller.observer(), traffic, client, made.external.all.clone()));
        let watched = (health, metrics.map(|listener| (&endpoints.metrics, listener)));
        observed(watched, &seen, startup.namespace, (handle.clone(), scraped), &mut parts).await?;
        let controller = tokio::spawn(controllers(controller, behaviour.error_detect.into(), found, stopped));
        Ok(Self {
            bases: addresses.bases,
            health_base,
            metrics_base,
            seen,
            provisioner,
            external: made.external,
            foreseen: made.foreseen,
            endpoints: handle,
            stop,
            parts,
            controller,
            led,
        })
    }

    /// A look at the controller.
    pub fn observer(&self) -> operator::Observer {
        self.seen.observer.clone()
    }

    /// The addresses under which it is reached, for people.
    pub fn addresses(&self) -> String {
        let (media, agents) = (self.bases.media.join(", "), self.bases.agents.join(", "));
        let health = match &self.metrics_base {
            None => format!("  health, metrics  {}", self.health_base),
            Some(metrics) => format!("  health           {}\n  metrics          https://{metrics}", self.health_base),
        };
        format!("  boot media       {media}\n  agent endpoint   {agents}\n{health}")
    }

    /// Resolves when a part ends unexpectedly, or when another process may lead.
    pub async fn broken(&mut self) -> anyhow::Error {
        tokio::select! {
            lost = self.led.lost() => lost,
            ended = &mut self.controller => match ended {
                Ok(()) => anyhow!("the host controller ended"),
                Err(error) => anyhow!(error).context("the host controller ended badly"),
            },
            Some(ended) = self.parts.join_next() => ended.unwrap_or_else(|error| anyhow!(error).context("an endpoint ended badly")),
        }
    }

    /// Controllers first, then sessions on BMCs, then the endpoints, then the Lease.
    pub async fn stop(self) {
        self.seen.stopping.store(true, Ordering::Relaxed);
        let _ = self.stop.send(true);
        let mut controller = self.controller;
        if !self.led.holds() {
            // No orderly stop: the machines belong to another process now, so all work here must end at once.
            controller.abort();
            self.endpoints.shutdown();
            self.external.kill().await;
            return;
        }
        if !controller.is_finished() {
            Self::finish(&mut controller).await;
        }
        self.provisioner.close().await;
        self.external.close().await;
        self.endpoints.graceful_shutdown(Some(GRACE));
        self.led.release().await;
    }

    /// Lets running reconciles finish, within limits.
    async fn finish(controller: &mut JoinHandle<()>) {
        match tokio::time::timeout(FINISH, &mut *controller).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the host controller ended badly"),
            Err(_) => {
                // Work that hangs is aborted, as in a crash: the next start resumes from the recorded state.
                tracing::warn!("work under way did not come to its end within {} s: it is left", FINISH.as_secs());
                controller.abort();
                // Ends by the abort above.
                let _ = controller.await;
            }
        }
    }
}

/// The agent images, and the earlier ones that running boots may use: those named by flags, and those that the last builds set aside.
async fn agent_images(endpoints: &Endpoints) -> anyhow::Result<AgentImages> {
    let (folders, named) = (endpoints.agent_image.clone(), endpoints.earlier_agent_image.clone());
    tokio::task::spawn_blocking(move || {
        let open = |folder: &Path| {
            Assets::open(folder).with_context(|| {
                format!("open the agent image {}; `metamorph agent-image build` makes one", folder.display())
            })
        };
        let (first, others) = folders.split_first().context("start without an agent image (--agent-image)")?;
        let mut images = AgentImages::from(open(first)?);
        for folder in others {
            let image = open(folder)?;
            if image.agent() != images.agent() {
                bail!("--agent-image: {} has another agent than {}: all machines of a server boot the same", folder.display(), first.display());
            }
            images = images.with(image).map_err(|architecture| {
                anyhow!("--agent-image: {} is a second image for {architecture}; give one for each architecture, and earlier ones with --earlier-agent-image", folder.display())
            })?;
        }
        let mut earlier = named.iter().map(|folder| open(folder)).collect::<anyhow::Result<Vec<_>>>()?;
        for aside in folders.iter().filter_map(|folder| boot_media::assets::earlier(folder)) {
            if !aside.exists() {
                continue;
            }
            match Assets::open(&aside) {
                Ok(assets) => earlier.push(assets),
                Err(error) => {
                    let folder = aside.display();
                    tracing::warn!(%folder, %error, "the earlier agent image cannot be read: boots that began with it are made anew");
                }
            }
        }
        Ok(images.with_earlier(earlier))
    })
    .await?
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // An error means that the sender was dropped: stop as well.
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

/// Registries of images.
fn registries(allowed: &Allowed, given: &Given, endpoints: &Endpoints) -> Registries {
    let authorities = given.agents();
    let transport = HttpTransport::new(allowed.clone(), move || authorities.pem());
    Registries::new(transport, allowed.clone(), endpoints.http_registry.iter().cloned())
}

fn lifecycle(behaviour: &Behaviour, served: Capabilities) -> host_lifecycle::Settings {
    host_lifecycle::Settings {
        served,
        max_provisioning_retries: behaviour.max_provisioning_retries,
        backoff_unit: Duration::try_from_secs_f64(behaviour.retry_after).unwrap_or(Duration::from_secs(60)),
        steady_state_poll: Duration::from_secs(behaviour.power_poll),
        ..host_lifecycle::Settings::default()
    }
}

/// The TLS of boot media, if they are served over HTTPS.
async fn media_tls(
    client: &Client,
    namespace: &str,
    endpoints: &Endpoints,
    (listeners, addresses): (&Listeners, &Addresses),
) -> anyhow::Result<Option<EndpointTls>> {
    Ok(match (&listeners.media_tls, &endpoints.media_certificate, &endpoints.media_key) {
        (None, ..) => None,
        (Some(_), Some(certificate), Some(key)) => Some(EndpointTls::given(Endpoint::Media, certificate, key).await?),
        _ => {
            let hosts = addresses.tls_hosts();
            Some(EndpointTls::generated(Endpoint::Media, client, namespace, &hosts).await?)
        }
    })
}

/// Serves probes, and metrics beside them or at an endpoint of their own.
async fn observed(
    (health, metrics): (TcpListener, Option<(&Metrics, TcpListener)>),
    seen: &Arc<Seen>,
    namespace: &str,
    (handle, may_act): (Handle<SocketAddr>, MayAct),
    parts: &mut JoinSet<anyhow::Error>,
) -> anyhow::Result<()> {
    let watched = axum_server::from_tcp(health).context("serve probes and metrics")?;
    let watched = connections::limited(watched, "probes and metrics", handle.clone());
    let router = observe::router(Arc::clone(seen), metrics.is_none()).into_make_service();
    parts.spawn(async move { ended_part("the health endpoint", watched.serve(router).await) });
    if let Some(metrics) = metrics {
        scrape::serve(metrics, seen, namespace, (handle, may_act), parts).await?;
    }
    Ok(())
}

/// The native provisioner, as one of several.
fn native(provisioner: &Arc<NativeProvisioner>) -> provisioners::Native {
    (Arc::clone(provisioner) as Arc<dyn Provisioner>, provisioner.served())
}

/// The same, as controllers take it.
fn shutdown(stopped: watch::Receiver<bool>) -> Shutdown {
    Box::pin(until(stopped))
}

/// Runs the controllers until they are stopped.
async fn controllers(
    controller: HostController,
    detect: Detect,
    found: Option<DiscoveryController>,
    stopped: watch::Receiver<bool>,
) {
    let claims = ClaimController::beside(&controller).run(shutdown(stopped.clone()));
    let subscriptions = SubscriptionController::beside(&controller).run(shutdown(stopped.clone()));
    let requests = RequestController::beside(&controller).run(shutdown(stopped.clone()));
    let diagnoses = DiagnosisController::beside(&controller, detect).run(shutdown(stopped.clone()));
    let classes = ClassificationController::beside(&controller).run(shutdown(stopped.clone()));
    let host_classes = HostClassController::beside(&controller).run(shutdown(stopped.clone()));
    let found = found.map(|found| found.run(shutdown(stopped.clone())));
    let found = futures::future::OptionFuture::from(found);
    let claims = async move {
        tokio::join!(claims, subscriptions, requests, diagnoses, classes, host_classes, found);
    };
    let (hosts, claims) = (controller.run(shutdown(stopped)), std::pin::pin!(claims));
    // Neither works without the other: when one ends, wait for the other only for `FINISH`.
    match futures::future::select(hosts, claims).await {
        Either::Left(((), claims)) => drop(tokio::time::timeout(FINISH, claims).await),
        Either::Right(((), hosts)) => drop(tokio::time::timeout(FINISH, hosts).await),
    }
}

/// Serves the provisioner's endpoints until the handle stops them, and maintains their keys and certificates.
fn serve(
    provisioner: &Arc<NativeProvisioner>,
    listeners: Listeners,
    (identity, media_tls): (Identity, Option<EndpointTls>),
    (images, desk): (Option<&Path>, Option<Arc<Reception>>),
    may_act: &MayAct,
) -> anyhow::Result<(Handle<SocketAddr>, JoinSet<anyhow::Error>)> {
    let mut media_router: Router = provisioner.media_router();
    if let Some(folder) = images {
        media_router = media_router.nest_service("/images", ServeDir::new(folder));
    }
    let tls = RustlsConfig::from_config(Arc::new(identity.certificates.config()));
    let handle = Handle::new();
    let plain = axum_server::from_tcp(listeners.media).context("serve boot media")?;
    let plain = connections::limited(plain, "boot media", handle.clone());
    let secured = axum_server::from_tcp_rustls(listeners.agents, tls).context("serve agents")?;
    let secured = connections::limited(secured, "agents", handle.clone());
    let mut agent_router = provisioner.agent_router();
    if let Some(desk) = desk {
        agent_router = agent_router.merge(discovery_desk::router(Arc::clone(provisioner), desk));
    }
    let agent_router = agent_router.into_make_service_with_connect_info::<SocketAddr>();
    let mut parts = JoinSet::new();
    if let (Some(listener), Some(tls)) = (listeners.media_tls, media_tls) {
        let secured =
            axum_server::from_tcp_rustls(listener, tls.config.clone()).context("serve boot media over HTTPS")?;
        let secured = connections::limited(secured, "boot media over HTTPS", handle.clone());
        let router = media_router.clone().into_make_service_with_connect_info::<SocketAddr>();
        parts.spawn(async move { ended_part("the media endpoint over HTTPS", secured.serve(router).await) });
        let may_act = Arc::clone(may_act);
        parts.spawn(async move {
            rotated::keep(MEDIA_LOOK, "the media endpoint's certificate", may_act, |now| tls.look(now)).await;
            anyhow!("nobody looks after the media endpoint's certificate any more")
        });
    }
    let router = media_router.into_make_service_with_connect_info::<SocketAddr>();
    parts.spawn(async move { ended_part("the media endpoint", plain.serve(router).await) });
    parts.spawn(async move { ended_part("the agent endpoint", secured.serve(agent_router).await) });
    let may_act = Arc::clone(may_act);
    parts.spawn(async move {
        identity.keep(KEYS_LOOK, may_act).await;
        anyhow!("nobody looks after this server's keys any more")
    });
    Ok((handle, parts))
}

fn ended_part(what: &str, how: std::io::Result<()>) -> anyhow::Error {
    match how {
        Ok(()) => anyhow!("{what} ended"),
        Err(error) => anyhow!(error).context(format!("{what} ended")),
    }
}
