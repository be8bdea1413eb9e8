//! The server within the caller's process and on its executor, without listener, TLS, threads or files.
//!
//! Requests take the same path as from the network, from [`crate::server::handle`] on; in place of a connection there
//! is a [`Caller`], a [`tower::Service`] with the identity that a client certificate would have. The store is a
//! [`Disk`]: tables in memory that are accessed on the caller's thread, so that no work happens outside the executor.
//! With tokio's clock paused, time stands still while the server works and advances when all tasks wait. All times
//! come from the given clock and from tokio, uids and names from the given seed: a run on one thread is reproducible.
//!
//! A server ends like a process: [`InProcess::shutdown`] stops it in order, dropping it is `kill -9`. The disk keeps
//! its content for another server. Network faults (loss, delay, reordering) are left to a layer of the caller's
//! around [`Caller`].
//!
//! ```
//! use std::sync::Arc;
//! use apiserver::in_process::{Disk, ExecutorClock, Identity, InProcess, Setup};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ObjectMeta, PostParams};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
//! # runtime.block_on(async {
//! let disk = Disk::new().unwrap();
//! let clock = Arc::new(ExecutorClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap()));
//! let setup = Setup { disk: disk.clone(), clock: clock.clone(), seed: 7, reviewers: vec![] };
//! let server = InProcess::start(setup).await.unwrap();
//! // server.apply_crd_yaml(…) installs definitions. A copy of the disk then is where each test begins.
//! let client = kube::Client::new(server.caller(Identity::administrator()), "default");
//! let maps: Api<ConfigMap> = Api::default_namespaced(client);
//! let metadata = ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() };
//! maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
//! drop(server); // killed
//! let setup = Setup { disk, clock, seed: 8, reviewers: vec![] };
//! let server = InProcess::start(setup).await.unwrap();
//! let maps: Api<ConfigMap> = Api::default_namespaced(kube::Client::new(server.caller(Identity::administrator()), "default"));
//! assert_eq!(maps.get("a").await.unwrap().metadata.name.as_deref(), Some("a"));
//! # });
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Clock;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::caller::{Caller, Gone, Identity};
pub use crate::reply::{Body, Broken};

use crate::admission::Reviewer;
use crate::controllers;
use crate::crd::compiled::Compiled;
use crate::given::Given;
use crate::install::ApplyError;
use crate::object;
use crate::pki::Credentials;
use crate::registry::Registry;
use crate::server::App;
use crate::start::{Begin, StartError};
use crate::store::{Memory, Store};
use crate::strategies;

/// Address in the Service `default/kubernetes`: reserved for documentation, unreachable.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);

/// A clock that follows tokio's, and so stops and jumps with the executor's time.
#[derive(Debug, Clone, Copy)]
pub struct ExecutorClock {
    first: Timestamp,
    since: Instant,
}

impl ExecutorClock {
    /// A clock that starts at this time now.
    pub fn starting_at(first: Timestamp) -> Self {
        Self { first, since: Instant::now() }
    }
}

impl Clock for ExecutorClock {
    fn now(&self) -> Timestamp {
        let passed = jiff::SignedDuration::try_from(self.since.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        self.first.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

/// The persistent state of a server: its objects and keys. Clones share the same disk, which one server at a time can
/// use.
#[derive(Clone)]
pub struct Disk {
    memory: Memory,
    credentials: Arc<Credentials>,
    compiled: Compiled,
    taken: Arc<AtomicBool>,
}

impl Disk {
    /// An empty disk with new keys.
    pub fn new() -> Result<Self, StartError> {
        Ok(Self {
            memory: Memory::new()?,
            credentials: Arc::new(Credentials::new()?),
            compiled: Compiled::shared(),
            taken: Arc::default(),
        })
    }

    /// Copies the present content to a new disk, even while a server uses this one. Both share compiled definitions.
    pub fn copy(&self) -> Result<Self, StartError> {
        Ok(Self { memory: self.memory.copy()?, taken: Arc::default(), ..self.clone() })
    }
}

/// How to run a server.
pub struct Setup {
    /// Its objects.
    pub disk: Disk,
    /// Its clock; timers always follow tokio's.
    pub clock: Arc<dyn Clock>,
    /// Seed of uids, generated names and other choices.
    pub seed: u64,
    /// In-process reviewers of changes.
    pub reviewers: Vec<Reviewer>,
}

/// A running server. Dropping it kills it: nothing is written from then on, and calls and watches are cut off.
pub struct InProcess {
    app: Arc<App>,
    disk: Disk,
    tasks: TaskTracker,
    cut: CancellationToken,
    /// Released after the writer has ended.
    _lease: Lease,
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // After an orderly shutdown nothing is cut: clients can read their responses to the end.
        if !self.app.backend.stop.is_cancelled() {
            self.cut.cancel();
        }
        self.app.backend.store.end();
    }
}

/// Exclusive use of a disk.
struct Lease(Arc<AtomicBool>);

impl Lease {
    fn take(taken: &Arc<AtomicBool>) -> Option<Self> {
        (!taken.swap(true, Ordering::AcqRel)).then(|| Self(Arc::clone(taken)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl InProcess {
    /// Starts a server on a disk. Its tasks run on the present executor.
    pub async fn start(setup: Setup) -> Result<Self, StartError> {
        let Setup { disk, clock, seed, reviewers } = setup;
        let lease = Lease::take(&disk.taken).ok_or(StartError::Taken)?;
        let (app, cut) = Self::begin(&disk, Given::new(clock, Some(seed)), reviewers).await?;
        let tasks = TaskTracker::new();
        controllers::spawn(&app.backend, &tasks);
        tasks.spawn(controllers::kubernetes::keep(Arc::clone(&app.backend), NOWHERE));
        tasks.close();
        Ok(Self { app, disk, tasks, cut, _lease: lease })
    }

    async fn begin(
        disk: &Disk,
        given: Given,
        reviewers: Vec<Reviewer>,
    ) -> Result<(Arc<App>, CancellationToken), StartError> {
        let cut = CancellationToken::new();
        let begin = Begin {
            store: Store::in_memory(&disk.memory)?,
            registry: Registry::with(strategies::kinds(), disk.compiled.clone()),
            stop: cut.child_token(),
            given: Arc::new(given),
            reviewers,
            audit: None,
            lock: None,
        };
        Ok((begin.app(&disk.credentials, NOWHERE, NOWHERE).await?, cut))
    }

    /// A service that sends requests as `identity`, for `kube::Client::new`, optionally with layers around it.
    pub fn caller(&self, identity: Identity) -> Caller {
        Caller::new(&self.app, identity, self.cut.clone(), self.tasks.clone())
    }

    /// The CA certificate that is published to workloads. No certificate is signed by it.
    pub fn ca_pem(&self) -> String {
        self.disk.credentials.ca.pem()
    }

    /// Bearer token of the administrator.
    pub fn admin_token(&self) -> &str {
        &self.disk.credentials.admin_token
    }

    /// Creates or updates the CustomResourceDefinitions of a YAML stream. When this returns they are served.
    pub async fn apply_crd_yaml(&self, yaml: &str) -> Result<(), ApplyError> {
        self.app.backend.install_all(yaml).await
    }

    /// Creates or updates one CustomResourceDefinition. When this returns it is served.
    pub async fn install(&self, definition: Value) -> Result<(), ApplyError> {
        self.app.backend.install(definition).await
    }

    /// Stores an object as another server left it, with uid, times, finalizers and status; only the resourceVersion
    /// is new. Skips validation and admission.
    ///
    /// # Errors
    /// If its kind is not served, or an object of the same name exists.
    pub async fn put_as_left(&self, object: Value) -> Result<(), ApplyError> {
        let Value::Object(object) = object else {
            return Err(ApplyError::Parse("what was left is no object".to_owned()));
        };
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (name, kind) = (object::name(&object).to_owned(), text("kind").to_owned());
        let catalog = self.app.backend.registry.catalog();
        let resource = catalog
            .by_kind(text("apiVersion"), &kind)
            .ok_or_else(|| ApplyError::Parse(format!("{kind} {name}: this kind is not served")))?;
        let key = resource.key(object::meta_str(&object, "namespace"), &name);
        let put = self.app.backend.put(resource, key, object, None, None).await;
        put.map(drop).map_err(|error| ApplyError::Refused { name, message: error.to_string() })
    }

    /// Ends watches, waits for calls in flight, and releases the disk.
    pub async fn shutdown(self) {
        self.app.backend.stop.cancel();
        self.tasks.wait().await;
    }
}
