//! The controller of requests: HostOperations that somebody other than the host's controller has created.
//!
//! [`host_lifecycle::decide_request`] decides; here requests and hosts are read without a cache, and written to the versions that were decided on. Those
//! that the host's controller writes are left out by their label ([`label::HOST`]), so that history costs nothing here.

mod look;
mod testing;
mod turns;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::metal3::{BareMetalHost, label};
use api::metamorph::{HostOperation, OperationPhase};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::Config;
use kube::runtime::{Controller, WatchStreamExt as _};
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc::UnboundedSender;

use crate::host::objects;
use crate::host::readable::Marks;
use crate::host::{Context, HostController, LookError};
use crate::news::Novelty;
use crate::shutdown::Shutdown;

use turns::Turns;

/// Pause after a look that could not be completed.
const PAUSE: Duration = Duration::from_secs(10);
/// Requests looked at at once: any number, as BMCs that are slow to give their logs keep no other host's request waiting.
const AT_ONCE: u16 = 0;

/// The controller.
pub struct RequestController {
    context: Arc<Context>,
}

/// What its looks share.
struct All {
    host: Arc<Context>,
    shown: Store<HostOperation>,
    unreadable: Arc<Marks>,
    /// Hosts whose provisioners are being called, by namespace and name.
    reading: Mutex<HashSet<(String, String)>>,
    turns: Turns,
}

impl RequestController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController) -> Self {
        Self { context: hosts.context() }
    }

    /// Runs until `shutdown` resolves; looks under way are completed.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let namespace = self.context.settings.namespace.clone();
        let (reader, writer) = store();
        let unreadable = Arc::<Marks>::default();
        let selected = Config::default().labels(&format!("!{}", label::HOST));
        let events = objects::follow_selected::<HostOperation>(
            &self.context.client,
            namespace.as_deref(),
            selected,
            &self.context.recorder,
            &unreadable,
        );
        let all = Arc::new(All {
            host: self.context,
            shown: reader.clone(),
            unreadable,
            reading: Mutex::default(),
            turns: Turns::default(),
        });
        // Logs may be long, and a look reads the request anew.
        let without_logs = |request: &mut HostOperation| {
            if let Some(status) = &mut request.status {
                status.logs = Vec::new();
            }
        };
        let stream = events.modify(without_logs).reflect(writer).applied_objects();
        let (woken, receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut beside = tokio::task::JoinSet::new();
        beside.spawn(forward(Arc::clone(&all), woken));
        Controller::for_stream(stream, reader)
            .with_config(controller::Config::default().concurrency(AT_ONCE))
            .reconcile_on(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver))
            .graceful_shutdown_on(shutdown)
            .run(look::look, on_error, all)
            .for_each(|result| async move {
                if let Err(error) = result {
                    tracing::debug!(%error, "look at a HostOperation");
                }
            })
            .await;
        drop(beside);
    }
}

/// Enqueues the requests under way whose hosts have changed, for as long as the controller runs.
async fn forward(all: Arc<All>, woken: UnboundedSender<ObjectRef<HostOperation>>) {
    let mut news = all.host.news.listen();
    let mut seen: HashMap<ObjectRef<BareMetalHost>, Option<String>> = HashMap::new();
    while let Some(novelty) = news.recv().await {
        let (host, gone) = match novelty {
            Novelty::Host(host) => (host, false),
            Novelty::HostGone(host) => (host, true),
            Novelty::Secret(..) | Novelty::Facts(..) | Novelty::FactsListed | Novelty::Listed => continue,
        };
        let key = ObjectRef::from_obj(host.as_ref());
        let version = host.resource_version();
        let before = if gone { seen.remove(&key) } else { seen.insert(key, version.clone()) };
        if gone || before != Some(version) {
            of_host(&all, &host, &woken);
        }
    }
}

fn of_host(all: &All, host: &BareMetalHost, woken: &UnboundedSender<ObjectRef<HostOperation>>) {
    let name = host.name_any();
    for request in all.shown.state() {
        let of_it = request.namespace() == host.namespace() && request.spec.host.name == name;
        if of_it && request.status.as_ref().is_some_and(|status| status.phase == OperationPhase::Running) {
            // This fails only once the controller has ended.
            let _ = woken.send(ObjectRef::from_obj(request.as_ref()));
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape that kube's controller wants.
fn on_error(request: Arc<HostOperation>, error: &LookError, _: Arc<All>) -> Action {
    let request = ObjectRef::from_obj(request.as_ref());
    match error {
        LookError::Moved => Action::requeue(Duration::from_millis(200)),
        error => {
            tracing::warn!(%request, error = error as &dyn std::error::Error, "look at a HostOperation");
            Action::requeue(PAUSE)
        }
    }
}

/// The API for the requests of this namespace.
fn api(all: &All, namespace: &str) -> Api<HostOperation> {
    Api::namespaced(all.host.client.clone(), namespace)
}
