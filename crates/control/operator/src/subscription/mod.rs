//! The controller of BMCEventSubscriptions.
//!
//! A subscription is made when its host is registered, looked for every ten minutes, and made anew when the BMC has lost it. It is ended before its
//! object goes. What keeps it from that stands in `status.error`.

mod headers;
mod look;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use api::metal3::BMCEventSubscription;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Api;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{Controller, Predicate as _, WatchStreamExt as _, predicates};

use crate::host::objects;
use crate::host::readable::Marks;
use crate::host::{Context, HostController, LookError, scoped};
use crate::shutdown::Shutdown;

/// Pause after a look that could not be completed.
const PAUSE: Duration = Duration::from_secs(2);

/// The controller.
pub struct SubscriptionController {
    context: Arc<Context>,
}

/// What its looks share.
struct All {
    host: Arc<Context>,
    shown: Store<BMCEventSubscription>,
    unreadable: Arc<Marks>,
}

impl SubscriptionController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController) -> Self {
        Self { context: hosts.context() }
    }

    /// Runs until `shutdown` resolves; looks under way are completed. Where there is no definition of BMCEventSubscriptions, it waits for it.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let shutdown = futures::FutureExt::shared(shutdown);
        let client = self.context.client.clone();
        let namespace = self.context.settings.namespace.clone();
        let api: Api<BMCEventSubscription> = scoped(&client, namespace.as_deref());
        tokio::select! {
            () = shutdown.clone() => return,
            () = objects::installed(&api, || {}) => {}
        }
        let (reader, writer) = store();
        let unreadable = Arc::<Marks>::default();
        let events =
            objects::follow::<BMCEventSubscription>(&client, namespace.as_deref(), &self.context.recorder, &unreadable);
        let all = Arc::new(All { host: self.context, shown: reader.clone(), unreadable });
        let wanted = predicates::generation.combine(predicates::finalizers).combine(deletion);
        let stream = events.reflect(writer).applied_objects().predicate_filter(wanted, Default::default());
        let (woken, receiver) = tokio::sync::mpsc::unbounded_channel();
        let mut beside = tokio::task::JoinSet::new();
        beside.spawn(wakes::forward(Arc::clone(&all), woken));
        Controller::for_stream(stream, reader)
            // Each waits for its own BMC: places that a slow one could hold would be missing to others.
            .with_config(Config::default().concurrency(0))
            .reconcile_on(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver))
            .graceful_shutdown_on(shutdown)
            .run(look::look, on_error, all)
            .for_each(|result| async move {
                if let Err(error) = result {
                    tracing::debug!(%error, "look at a BMCEventSubscription");
                }
            })
            .await;
        drop(beside);
    }
}

/// Changes when deletion is asked for.
fn deletion(subscription: &BMCEventSubscription) -> Option<u64> {
    Some(u64::from(subscription.metadata.deletion_timestamp.is_some()))
}

#[allow(clippy::needless_pass_by_value)] // The shape that kube's controller wants.
fn on_error(subscription: Arc<BMCEventSubscription>, error: &LookError, _: Arc<All>) -> Action {
    let subscription = ObjectRef::from_obj(subscription.as_ref());
    match error {
        LookError::Moved => Action::requeue(Duration::from_millis(200)),
        error => {
            tracing::warn!(%subscription, error = error as &dyn std::error::Error, "look at a BMCEventSubscription");
            Action::requeue(PAUSE)
        }
    }
}
