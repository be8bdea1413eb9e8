//! Starts and stops the server; the API of the embedding program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Admission, Reviewer};
use crate::allocation::Allocator;
use crate::archive::{KEYS, STORE};
use crate::audit::Audit;
use crate::auth::Auth;
use crate::caller::{Caller, Identity};
use crate::given::Given;
use crate::install::ApplyError;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::pki::{Ca, Credentials, Live, Pki, PkiError, Place};
use crate::quota::Quotas;
use crate::registry::Registry;
use crate::server::{self, App};
use crate::status::ApiError;
use crate::store::{Store, StoreError};
use crate::strategies;
use crate::verbs::Backend;
use crate::{controllers, openapi};

/// Requests under way at once of each client within the process: enough for the store to commit many writes with one
/// sync of the disk.
const CALLS: usize = 48;
/// Time for its requests under way when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// How to run the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder for the store and the keys; created if absent.
    pub data_dir: PathBuf,
    /// Address to listen on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Additional DNS names and addresses for the server's certificate.
    pub extra_sans: Vec<String>,
    /// File for one JSON line per request.
    pub audit_log: Option<PathBuf>,
    /// In-process reviewers of changes.
    pub reviewers: Vec<Reviewer>,
}

/// The server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder could not be created.
    #[error("the data folder {} could not be made", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another server uses the folder.
    #[error("the data folder {} is in use by another server: stop it, or choose another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::fs::TryLockError,
    },
    /// Keys and certificates.
    #[error("keys and certificates could not be set up")]
    Pki(#[from] PkiError),
    /// The store.
    #[error("the store could not be opened")]
    Store(#[from] StoreError),
    /// The audit log.
    #[error("the audit log {} could not be opened", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The address.
    #[error("cannot listen on {address}: is another server running there?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The first objects could not be written.
    #[error("the first objects could not be written: {0}")]
    Bootstrap(String),
    /// Another in-process server uses the disk.
    #[error("the disk is in use by another server of this process: shut that one down, or drop it, first")]
    Taken,
}

/// The parts to build a server from, for the network or in process.
pub struct Begin {
    /// The store.
    pub store: Store,
    /// The catalog of built-in kinds.
    pub registry: Registry,
    /// Ends it.
    pub stop: CancellationToken,
    /// Time and randomness.
    pub given: Arc<Given>,
    /// In-process reviewers of changes.
    pub reviewers: Vec<Reviewer>,
    /// The audit log, if there is one.
    pub audit: Option<Audit>,
    /// The lock of the data folder, if there is one.
    pub lock: Option<std::fs::File>,
}

impl Begin {
    /// Loads the stored state, and creates the objects that always exist. Clients find the server at `reachable`.
    pub async fn app(
        self,
        credentials: &Credentials,
        address: SocketAddr,
        reachable: SocketAddr,
    ) -> Result<Arc<App>, StartError> {
        let auth = Auth::new(credentials)?;
        let rights = Arc::clone(&auth.index);
        let backend = Arc::new(Backend {
            stop: self.stop,
            auth,
            admission: Admission::with(self.reviewers),
            allocator: Allocator::new(Arc::clone(&self.given)),
            quotas: Quotas::default(),
            audited: std::sync::OnceLock::new(),
            objects: Objects { store: self.store, registry: self.registry, rights, given: self.given },
        });
        let failed = |e: ApiError| StartError::Bootstrap(e.message);
        controllers::load_definitions(&backend).await.map_err(failed)?;
        controllers::ensure_namespaces(&backend).await.map_err(failed)?;
        controllers::services::ensure(&backend).await.map_err(failed)?;
        controllers::quotas::load(&backend).await.map_err(failed)?;
        controllers::ensure_priorities(&backend).await.map_err(failed)?;
        controllers::kubernetes::ensure(&backend, reachable).await.map_err(failed)?;
        controllers::bootstrap::ensure(&backend).await.map_err(failed)?;
        controllers::initialize(&backend).await.map_err(failed)?;
        Ok(Arc::new(App {
            backend,
            audit: self.audit,
            _lock: self.lock,
            openapi: openapi::Cache::default(),
            address: address.to_string(),
            limits: Limits::default(),
            metrics: Metrics::default(),
        }))
    }
}

/// A running server. Dropping it starts its shutdown; [`Server::shutdown`] also waits for it.
pub struct Server {
    app: Arc<App>,
    /// The keys and certificates at the start.
    pki: Pki,
    live: Arc<Live>,
    address: SocketAddr,
    tasks: TaskTracker,
    /// Breaks off calls from within the process.
    cut: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.backend.stop.cancel();
    }
}

impl Server {
    /// Starts on the given folder and address. When this returns, the server accepts requests.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let lock = take_folder(&config.data_dir)?;
        let (names, addresses) = sans(&config);
        let (folder, now) = (config.data_dir.join("pki"), jiff::Timestamp::now());
        let pki = Pki::open(&folder, now)?;
        let audit = match &config.audit_log {
            None => None,
            Some(path) => Some(Audit::open(path).map_err(|source| StartError::Audit { path: path.clone(), source })?),
        };
        let listening = |source| StartError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let live = Arc::new(Live::new(&pki, Place { folder, names, addresses }, address, now)?);
        let tls = TlsAcceptor::from(Arc::new(live.server_config()?));
        let store = Store::open(&config.data_dir.join(STORE), &config.data_dir.join(KEYS))?;
        let reachable = controllers::kubernetes::reachable(address, &config.extra_sans);
        let begin = Begin {
            store,
            registry: Registry::new(strategies::kinds()),
            stop: CancellationToken::new(),
            given: Arc::default(),
            reviewers: config.reviewers,
            audit,
            lock: Some(lock),
        };
        let app = begin.app(&pki.credentials(Ca::Live(Arc::clone(&live))), address, reachable).await?;
        let tasks = TaskTracker::new();
        tasks.spawn(server::serve(Arc::clone(&app), listener, tls, Arc::clone(&live)));
        controllers::spawn(&app.backend, &tasks);
        tasks.spawn(Arc::clone(&live).keep(app.backend.stop.clone()));
        tasks.spawn(controllers::kubernetes::keep(Arc::clone(&app.backend), reachable));
        tasks.close();
        Ok(Self { app, pki, live, address, tasks, cut: CancellationToken::new() })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A client within this process, for `kube::Client::new`: without connections, and with few requests under way at
    /// once, so that what it takes does not grow with the number of its callers.
    pub fn caller(&self, identity: Identity) -> Caller {
        let caller = Caller::new(&self.app, identity, self.cut.clone(), self.tasks.clone());
        caller.at_address(IpAddr::V4(Ipv4Addr::LOCALHOST)).at_most(CALLS)
    }

    /// The CA that signed the server's certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.pki.ca
    }

    /// Bearer token of the administrator.
    pub fn admin_token(&self) -> &str {
        &self.pki.admin_token
    }

    /// A kubeconfig (YAML) of the administrator, with the CAs and a client certificate embedded. The certificate
    /// expires: see [`Server::kubeconfigs`].
    pub fn admin_kubeconfig(&self) -> String {
        self.live.kubeconfig().borrow().clone()
    }

    /// The administrator's kubeconfig, updated whenever its certificates are renewed. Older ones remain valid for
    /// months.
    pub fn kubeconfigs(&self) -> watch::Receiver<String> {
        self.live.kubeconfig()
    }

    /// Records changes of these annotations, on any object, in the audit log and the server's own log, with the user
    /// and both values. Only the first call has an effect.
    pub fn audit_annotations(&self, keys: &[&str]) {
        let _ = self.app.backend.audited.set(keys.iter().map(|key| (*key).to_owned()).collect());
    }

    /// Creates or updates the CustomResourceDefinitions of a YAML stream. When this returns they are served.
    pub async fn apply_crd_yaml(&self, yaml: &str) -> Result<(), ApplyError> {
        self.app.backend.install_all(yaml).await
    }

    /// Creates or updates one CustomResourceDefinition. When this returns it is served.
    pub async fn install(&self, definition: Value) -> Result<(), ApplyError> {
        self.app.backend.install(definition).await
    }

    /// Compacts all history at once, which otherwise happens after five minutes. Recent events stay in memory.
    pub async fn forget_history(&self) {
        let store = &self.app.backend.store;
        if let Err(error) = store.compact(store.revision()).await {
            tracing::warn!(%error, "history could not be compacted");
        }
    }

    /// Ends watches, waits for requests in flight, and closes the store.
    pub async fn shutdown(self) {
        self.app.backend.stop.cancel();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            self.cut.cancel();
            self.tasks.wait().await;
        }
        self.app.backend.store.close().await;
    }
}

/// Locks the folder for this process, and creates it if it is absent. The system releases the lock when the process
/// ends, even after a crash.
pub fn take_folder(folder: &std::path::Path) -> Result<std::fs::File, StartError> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| StartError::Folder { path: folder.to_owned(), source })?;
    let path = folder.join("lock");
    let file = std::fs::File::create(&path).map_err(|source| StartError::Folder { path: path.clone(), source })?;
    file.try_lock().map_err(|source| StartError::InUse { path: folder.to_owned(), source })?;
    Ok(file)
}

fn sans(config: &Config) -> (Vec<String>, Vec<IpAddr>) {
    let mut names: Vec<String> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned).to_vec();
    names.extend(config.extra_sans.iter().cloned());
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    if config.listen.is_ipv6() {
        addresses.push(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));
    }
    if !config.listen.ip().is_unspecified() {
        addresses.push(config.listen.ip());
    }
    (names, addresses)
}
