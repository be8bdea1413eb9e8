//! A host's life in one process on one paused clock.
//!
//! A [`Site`] is one run: the embedded Kubernetes API in process on a disk in memory, a clock that jumps when all wait, and a
//! seed. Its clients go through [`weather`], which delays and loses what the seed says. Controllers are started as tasks and killed
//! by aborting them; [`Site::restart`] kills the API and starts it on what it had committed. For what is about the controller alone there are the
//! machines of `provisioner-fixture`; [`plant`] is a machine with a BMC and an agent, scripted, before the native provisioner.
//!
//! ```no_run
//! scenarios::run(7, async |mut site| {
//!     let controller = site.controller(scenarios::fixture(&scenarios::Machines::default()));
//!     site.create_host("a").await;
//!     site.wait("a", 3600, |host| host.status.is_some()).await;
//!     site.restart().await;
//!     controller.abort();
//! });
//! ```

#![allow(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "a test kit: it fails loudly")]

mod parts;
pub mod plant;
pub mod shelf;
pub mod weather;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::metal3::{BareMetalHost, ProvisioningState, annotation};
use apiserver::in_process::{Caller, Disk, ExecutorClock, Identity, InProcess, Setup};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use operator::{
    ClaimController, ClassificationController, Detect, DiagnosisController, DiscoveryController, HostClassController,
    HostController, HostSettings, ImageDefaults, MediumOffice, Observer, Reception, RecordReader, RequestController,
    Scout, SealKeys, Shutdown, SubscriptionController,
};
use provisioner::{MayAct, Registry};
pub use provisioner_fixture::{Effect, FixtureProvisioner, Machines, Trouble};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use weather::Weather;

/// Read what provisioners have recorded, as the program's do.
const READERS: &[RecordReader] = &[
    provisioner_metamorph::recorded_on_machine,
    provisioner_ironic::recorded_on_machine,
    provisioner_fixture::recorded_on_machine,
];

/// Whether a host is in this state.
pub fn is(state: ProvisioningState) -> impl Fn(&BareMetalHost) -> bool {
    move |host| host.state() == state
}

/// When every run begins.
const BEGIN: &str = "2026-01-01T00:00:00Z";

/// One run.
pub struct Site {
    seed: u64,
    disk: Disk,
    clock: Arc<ExecutorClock>,
    server: Option<InProcess>,
    /// Where clients find the server, which may be another one after a restart.
    address: weather::Address<Caller>,
    /// What the network does to clients.
    pub weather: Weather,
    /// How many hosts begin to be deprovisioned within ten minutes; 0 is any number.
    pub deprovisioning_limit: usize,
    /// Machines that controllers begun from now on let come on within ten seconds; 0, as at the beginning, for any number.
    pub power_on_limit: usize,
    /// How controllers begun from now on read images where no ConfigMap says it.
    pub images: ImageDefaults,
    /// Whether the process of controllers begun from now on is the one that acts; always, as at the beginning.
    pub may_act: MayAct,
}

/// Runs a scenario on a runtime of its own, whose clock is paused. A failure names the seed.
pub fn run<T>(seed: u64, scenario: impl AsyncFnOnce(Site) -> T) -> T {
    run_at(BEGIN.parse().unwrap(), seed, scenario)
}

/// The same, at this time.
pub fn run_at<T>(begin: Timestamp, seed: u64, scenario: impl AsyncFnOnce(Site) -> T) -> T {
    struct PrintSeedOnPanic(u64);
    impl Drop for PrintSeedOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                tell(self.0);
            }
        }
    }
    let _guard = PrintSeedOnPanic(seed);
    let prepared = prepared();
    paused(async { scenario(Site::start(prepared.copy().unwrap(), begin, seed).await).await })
}

/// A server's provisioners, where these machines are all that there is.
pub fn fixture(machines: &Machines) -> Registry {
    Registry::new(Arc::new(FixtureProvisioner::new(machines.clone())))
}

/// Where the machine of the host with this name is.
pub fn address(name: &str) -> String {
    format!("redfish-virtualmedia+http://192.0.2.7/redfish/v1/Systems/{name}")
}

/// Controllers here are killed, never stopped.
pub fn never() -> Shutdown {
    Box::pin(std::future::pending())
}

/// Where a failed test's reader finds the seed.
#[allow(clippy::print_stderr, reason = "the test harness shows it with the failure")]
fn tell(seed: u64) {
    eprintln!("the seed of this run was {seed}");
}

fn paused<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(work)
}

/// A disk with all definitions, made once a process.
fn prepared() -> &'static Disk {
    static PREPARED: OnceLock<Disk> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let make = || {
            paused(async {
                let disk = Disk::new().unwrap();
                let clock = Arc::new(ExecutorClock::starting_at(BEGIN.parse().unwrap()));
                let setup = Setup { disk: disk.clone(), clock, seed: 0, reviewers: vec![] };
                let server = InProcess::start(setup).await.unwrap();
                for definition in api::crds::all().unwrap() {
                    server.apply_crd_yaml(&definition).await.unwrap();
                }
                server.shutdown().await;
                disk
            })
        };
        // On a thread of its own: a runtime cannot be started within one.
        std::thread::scope(|scope| scope.spawn(make).join()).unwrap()
    })
}

impl Site {
    async fn start(disk: Disk, begin: Timestamp, seed: u64) -> Self {
        let clock = Arc::new(ExecutorClock::starting_at(begin));
        let (address, weather) = (weather::Address::default(), Weather::new(seed));
        let (power_on_limit, deprovisioning_limit, images) = (0, 0, ImageDefaults::default());
        let may_act: MayAct = Arc::new(|| true);
        let mut site = Self {
            seed,
            disk,
            clock,
            server: None,
            address,
            weather,
            power_on_limit,
            deprovisioning_limit,
            images,
            may_act,
        };
        site.restart().await;
        site
    }

    /// The clock of all.
    pub fn clock(&self) -> Arc<ExecutorClock> {
        Arc::clone(&self.clock)
    }

    /// Kills the API, if it runs, and starts it on what it had committed.
    pub async fn restart(&mut self) {
        drop(self.server.take());
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let setup = Setup { disk: self.disk.clone(), clock: self.clock(), seed: self.seed, reviewers: vec![] };
        let server = InProcess::start(setup).await.unwrap();
        self.address.is_now(server.caller(Identity::administrator()));
        self.server = Some(server);
    }

    /// What the API has stored, also while it goes on.
    pub fn disk(&self) -> Disk {
        self.disk.clone()
    }

    /// Stores an object as another server left it.
    pub async fn put_as_left(&self, object: Value) {
        self.server.as_ref().unwrap().put_as_left(object).await.unwrap();
    }

    /// Another API takes the place of this one, and holds nothing but the definitions.
    pub async fn empty(&mut self) {
        self.disk = prepared().copy().unwrap();
        self.restart().await;
    }

    /// A client in the weather.
    pub fn client(&self) -> Client {
        Client::new(self.weather.around(self.address.clone()), "default")
    }

    /// A client that nothing happens to: that of the test itself.
    pub fn observer(&self) -> Client {
        Client::new(self.address.clone(), "default")
    }

    /// The hosts as the test sees them.
    pub fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.observer())
    }

    /// Starts a host controller; to abort it is to kill it.
    pub fn controller(&self, provisioners: Registry) -> JoinHandle<()> {
        self.observed(provisioners).0
    }

    /// Starts a host controller and the controller of HostClaims beside it, as one server does.
    pub fn claiming(&self, provisioners: Registry) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let claims = ClaimController::beside(&hosts).run(never());
        let hosts = hosts.run(never());
        tokio::spawn(async move {
            tokio::join!(hosts, claims);
        })
    }

    /// Starts a host controller and the controller of BMCEventSubscriptions beside it, as one server does.
    pub fn subscribing(&self, provisioners: Registry) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let subscriptions = SubscriptionController::beside(&hosts).run(never());
        let hosts = hosts.run(never());
        tokio::spawn(async move {
            tokio::join!(hosts, subscriptions);
        })
    }

    /// Starts a host controller and the controller of requests beside it, as one server does.
    pub fn requested(&self, provisioners: Registry) -> JoinHandle<()> {
        self.requested_and_observed(provisioners).0
    }

    /// The same, with what is seen of the host controller from outside.
    pub fn requested_and_observed(&self, provisioners: Registry) -> (JoinHandle<()>, Observer) {
        let hosts = self.controller_of(provisioners);
        let observer = hosts.observer();
        let requests = RequestController::beside(&hosts).run(never());
        let hosts = hosts.run(never());
        let controllers = async move {
            tokio::join!(hosts, requests);
        };
        (tokio::spawn(controllers), observer)
    }

    /// Starts a host controller, and the controllers of diagnoses and of requests beside it, as one server does.
    pub fn diagnosing(&self, provisioners: Registry, detect: Detect) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let diagnoses = DiagnosisController::beside(&hosts, detect).run(never());
        let requests = RequestController::beside(&hosts).run(never());
        let hosts = hosts.run(never());
        tokio::spawn(async move {
            tokio::join!(hosts, diagnoses, requests);
        })
    }

    /// Starts a host controller, and the controllers of HardwareClassifications, of HostClasses, of HostClaims and of diagnoses beside it, as one server does.
    pub fn classifying(&self, provisioners: Registry, detect: Detect) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let classes = ClassificationController::beside(&hosts).run(never());
        let host_classes = HostClassController::beside(&hosts).run(never());
        let claims = ClaimController::beside(&hosts).run(never());
        let diagnoses = DiagnosisController::beside(&hosts, detect).run(never());
        let hosts = hosts.run(never());
        tokio::spawn(async move {
            tokio::join!(hosts, classes, host_classes, claims, diagnoses);
        })
    }

    /// Starts a host controller and the controller of HostDiscoveries beside it, as one server does.
    pub fn discovering(&self, provisioners: Registry, scout: Arc<dyn Scout>) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let found = DiscoveryController::beside(&hosts, scout).run(never());
        let hosts = hosts.run(never());
        tokio::spawn(async move {
            tokio::join!(hosts, found);
        })
    }

    /// Freezes the namespace `default` for this reason, or ends that.
    pub async fn freeze(&self, why: Option<&str>) {
        let namespaces: Api<Namespace> = Api::all(self.observer());
        let change = Patch::Merge(json!({ "metadata": { "annotations": { (annotation::FREEZE): why } } }));
        namespaces.patch("default", &PatchParams::default(), &change).await.unwrap();
    }

    /// The same with media that machines boot to report themselves.
    pub fn reporting(
        &self,
        provisioners: Registry,
        scout: Arc<dyn Scout>,
        (office, reception): (Arc<dyn MediumOffice>, Arc<Reception>),
    ) -> JoinHandle<()> {
        let hosts = self.controller_of(provisioners);
        let found = DiscoveryController::beside(&hosts, scout).with_media(office, reception);
        let (found, hosts) = (found.run(never()), hosts.run(never()));
        tokio::spawn(async move {
            tokio::join!(hosts, found);
        })
    }

    /// As [`Self::controller`], with what is seen of it from outside.
    pub fn observed(&self, provisioners: Registry) -> (JoinHandle<()>, Observer) {
        let controller = self.controller_of(provisioners);
        let observer = controller.observer();
        (tokio::spawn(controller.run(never())), observer)
    }

    /// What the controllers seal MachineRecords with.
    pub fn seal_keys() -> SealKeys {
        SealKeys::new([1; 32], Vec::new())
    }

    /// A host controller that has not been started.
    pub fn controller_of(&self, provisioners: Registry) -> HostController {
        let settings = HostSettings {
            namespace: None,
            lifecycle: host_lifecycle::Settings::default(),
            clock: self.clock(),
            deprovisioning_limit: self.deprovisioning_limit,
            power_on_limit: self.power_on_limit,
            may_act: Arc::clone(&self.may_act),
            seal_keys: Self::seal_keys(),
            images: self.images.clone(),
            readers: READERS,
        };
        HostController::new(self.client(), provisioners, settings)
    }

    /// Creates a host with its BMC's Secret.
    pub async fn create_host(&self, name: &str) {
        self.create_annotated(name, json!({})).await;
    }

    /// The same, with annotations.
    pub async fn create_annotated(&self, name: &str, annotations: Value) {
        self.create_with(name, annotations, json!({})).await;
    }

    /// The same, with these fields of its spec besides.
    pub async fn create_with(&self, name: &str, annotations: Value, besides: Value) {
        self.create_secret(name).await;
        self.declare(name, annotations, besides).await;
    }

    /// Creates a host whose BMC's Secret is not there, with these fields of its spec besides.
    pub async fn create_without_secret(&self, name: &str, besides: Value) {
        self.declare(name, json!({}), besides).await;
    }

    /// Creates a host again whose Secret is there ([`Site::gone_but_for_its_secret`]).
    pub async fn create_again(&self, name: &str, annotations: Value, besides: Value) {
        self.declare(name, annotations, besides).await;
    }

    async fn declare(&self, name: &str, annotations: Value, besides: Value) {
        let mut host = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": {"name": name, "annotations": annotations},
            "spec": {"online": true, "bootMACAddress": "02:00:00:00:00:01", "bmc": {
                "address": address(name),
                "credentialsName": format!("{name}-bmc")}}});
        for (field, value) in besides.as_object().into_iter().flatten() {
            host["spec"][field] = value.clone();
        }
        self.hosts().create(&PostParams::default(), &serde_json::from_value(host).unwrap()).await.unwrap();
    }

    /// Creates the Secret of this host's BMC.
    async fn create_secret(&self, name: &str) {
        let secret =
            json!({"metadata": {"name": format!("{name}-bmc")}, "stringData": {"username": "u", "password": "p"}});
        let secrets: Api<Secret> = Api::default_namespaced(self.observer());
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// Waits until the host and the Secret of its BMC, which goes with it, are gone, and creates another Secret for one that is declared again.
    pub async fn gone_but_for_its_secret(&self, name: &str, seconds: u32) {
        self.gone(name, seconds).await;
        let secrets: Api<Secret> = Api::default_namespaced(self.observer());
        while secrets.get_opt(&format!("{name}-bmc")).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.create_secret(name).await;
    }

    /// The host as soon as it is as wanted, within so many seconds.
    pub async fn wait(&self, name: &str, seconds: u32, wanted: impl Fn(&BareMetalHost) -> bool) -> BareMetalHost {
        let wanted = |host: Option<&BareMetalHost>| host.is_some_and(&wanted);
        self.watched(name, seconds, wanted).await.unwrap()
    }

    /// Waits until there is no such host any more, for so many seconds.
    pub async fn gone(&self, name: &str, seconds: u32) {
        self.watched(name, seconds, |host| host.is_none()).await;
    }

    async fn watched(
        &self,
        name: &str,
        seconds: u32,
        wanted: impl Fn(Option<&BareMetalHost>) -> bool,
    ) -> Option<BareMetalHost> {
        let (hosts, field) = (self.hosts(), format!("metadata.name={name}"));
        let until = Instant::now() + Duration::from_secs(seconds.into());
        let mut last;
        loop {
            let listed = hosts.list(&ListParams::default().fields(&field)).await.unwrap();
            let version = listed.metadata.resource_version.unwrap_or_default();
            last = listed.items.into_iter().next();
            if wanted(last.as_ref()) {
                return last;
            }
            let changes = hosts.watch(&WatchParams::default().fields(&field), &version).await.unwrap();
            let mut changes = std::pin::pin!(changes);
            // A watch that ends is begun anew, with what is there then.
            while let Ok(Some(Ok(change))) = timeout_at(until, changes.next()).await {
                last = match change {
                    WatchEvent::Added(host) | WatchEvent::Modified(host) => Some(host),
                    WatchEvent::Deleted(_) => None,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(_) => break,
                };
                if wanted(last.as_ref()) {
                    return last;
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        panic!("{name} is not as wanted after {seconds} s: {last:?}");
    }
}
