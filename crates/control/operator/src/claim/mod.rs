//! The controller of HostClaims.
//!
//! Which host a claim gets, what is written to it and how it is given back is decided by the pure crate `host-claims`; this fetches, writes,
//! wakes and waits. It shares the host controller's view of hosts and Secrets and acts under the same Lease. A claim is looked at when it, its
//! host or a Secret of it changes, when a host becomes free while it waits for one, and every 30 s while it waits for anything.

mod claims;
mod copies;
mod depart;
mod look;
mod wakes;
mod write;

use std::sync::Arc;
use std::time::Duration;

use api::metal3::{HostClaim, HostDeployPolicy};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Api;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::{Controller, WatchStreamExt as _};

use crate::events::Said;
use crate::host::objects::{self, Objects};
use crate::host::{Context, HostController, scoped};
use crate::shutdown::Shutdown;
use claims::Claims;

/// Pause after a look that could not be completed.
const PAUSE: Duration = Duration::from_secs(2);

/// The controller.
pub struct ClaimController {
    context: Arc<Context>,
}

impl ClaimController {
    /// One that runs beside this host controller.
    #[must_use]
    pub fn beside(hosts: &HostController) -> Self {
        Self { context: hosts.context() }
    }

    /// Runs until `shutdown` resolves; looks under way are completed. Where there is no definition of HostClaims, it waits for it.
    pub fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(shutdown))
    }

    async fn run_until(self, shutdown: Shutdown) {
        let shutdown = futures::FutureExt::shared(shutdown);
        let client = self.context.client.clone();
        let namespace = self.context.settings.namespace.clone();
        let claims: Api<HostClaim> = scoped(&client, namespace.as_deref());
        tokio::select! {
            () = shutdown.clone() => return,
            () = objects::installed(&claims, || {
                tracing::warn!("there is no definition of HostClaims: install those of `metamorph crds` to have claims served");
            }) => {}
        }
        let (reader, writer) = store();
        let all = Arc::new(Claims {
            host: Arc::clone(&self.context),
            store: reader.clone(),
            unreadable: Arc::default(),
            policies: Objects::default(),
            expressions: std::sync::Mutex::default(),
            promised: std::sync::Mutex::default(),
        });
        let stream =
            objects::follow::<HostClaim>(&client, namespace.as_deref(), &self.context.recorder, &all.unreadable)
                .reflect(writer)
                .inspect(said_once("HostClaims"))
                .applied_objects();
        let (policies, policies_writer) = store();
        all.policies.set_store(policies);
        let (woken, receiver) = tokio::sync::mpsc::unbounded_channel();
        let policy_events = objects::follow::<HostDeployPolicy>(
            &client,
            namespace.as_deref(),
            &self.context.recorder,
            all.policies.marks(),
        );
        let mut log_failure = said_once("HostDeployPolicies");
        let mut seen = wakes::Policies::default();
        let (of_policies, of_policy) = (Arc::clone(&all), woken.clone());
        let mut beside = tokio::task::JoinSet::new();
        beside.spawn(policy_events.reflect(policies_writer).for_each(move |event| {
            of_policies.policies.on(&event);
            log_failure(&event);
            let is_news = event.as_ref().is_ok_and(|event| seen.is_news(event));
            let of_policies = Arc::clone(&of_policies);
            let woken = of_policy.clone();
            async move {
                if !is_news {
                    return;
                }
                if let Ok(kube::runtime::watcher::Event::Apply(policy)) = &event {
                    say_of(&of_policies, policy).await;
                }
                wakes::waiting(&of_policies, &woken);
            }
        }));
        beside.spawn(wakes::forward(Arc::clone(&all), woken));
        Controller::for_stream(stream, reader)
            .with_config(Config::default().concurrency(8))
            .reconcile_on(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver))
            .graceful_shutdown_on(shutdown)
            .run(look::look, on_error, all)
            .for_each(|result| async move {
                if let Err(error) = result {
                    tracing::debug!(%error, "look at a HostClaim");
                }
            })
            .await;
        drop(beside);
    }
}

/// Logs a watch that begins to fail, once until it works again.
fn said_once<K>(
    what: &'static str,
) -> impl FnMut(&Result<kube::runtime::watcher::Event<K>, kube::runtime::watcher::Error>) {
    let mut fails = false;
    move |event| {
        if let Err(error) = event
            && !fails
        {
            tracing::warn!(error = error as &dyn std::error::Error, "watch the {what}");
        }
        fails = event.is_err();
    }
}

/// Publishes an Event about a policy that cannot be evaluated, and so admits no claims.
async fn say_of(all: &Claims, policy: &HostDeployPolicy) {
    let judged = all.expressions().admits(policy, "", &std::collections::BTreeMap::new());
    let Err(what) = judged else { return };
    let said = Said { reason: "InvalidPolicy".to_owned(), note: what, warning: true };
    if let Err(error) = all.host.recorder.publish(&said, &kube::Resource::object_ref(policy, &())).await {
        tracing::warn!(%error, "publish an Event about a HostDeployPolicy");
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape that kube's controller wants.
fn on_error(claim: Arc<HostClaim>, error: &write::LookError, _: Arc<Claims>) -> Action {
    let claim = ObjectRef::from_obj(claim.as_ref());
    match error {
        write::LookError::Moved => Action::requeue(Duration::from_millis(200)),
        error => {
            tracing::warn!(%claim, error = error as &dyn std::error::Error, "look at a HostClaim");
            Action::requeue(PAUSE)
        }
    }
}
