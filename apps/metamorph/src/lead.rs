//! Leader election: of several processes on one API, one works. The others are alive, but not ready.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use axum_server::Handle;
use bmc::{Lead, Term};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::Api;
use operator::{Candidate, Leadership, leader};
use provisioner::MayAct;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{connections, identity, kept, observe, say};

/// Lease duration of a process that serves the API itself. It is long: if the process ends, so does the API, and its successor on the same store need
/// not wait for the Lease to expire.
const OF_STORE: Duration = Duration::from_secs(60);
/// A namespace that lives as long as the store, and whose uid identifies the store.
const OF_API: &str = "kube-system";

/// The right to work on an API's hosts, and the task that keeps it.
#[derive(Default)]
pub struct Led {
    /// `None` without leader election.
    held: Option<Held>,
}

struct Held {
    leadership: Leadership,
    over: watch::Sender<bool>,
    /// Ends when the Lease is lost or released.
    keeping: JoinHandle<bool>,
}

impl Led {
    fn by(leader: operator::Leader) -> Self {
        let leadership = leader.leadership();
        let (over, mut ended) = watch::channel(false);
        let stop = async move {
            // An error means that the sender was dropped: stop as well.
            let _ = ended.wait_for(|over| *over).await;
        };
        Self { held: Some(Held { leadership, over, keeping: tokio::spawn(leader.keep(stop)) }) }
    }

    /// Whether this process leads now.
    pub fn holds(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.leadership.holds() && !held.keeping.is_finished())
    }

    /// The check that callers make before they act.
    pub fn may_act(&self) -> MayAct {
        match self.held.as_ref().map(|held| held.leadership.clone()) {
            Some(leadership) => Arc::new(move || leadership.holds()),
            None => Arc::new(|| true),
        }
    }

    /// The same for calls to BMCs.
    pub fn lead(&self) -> Lead {
        self.held.as_ref().map(|held| held.leadership.clone()).map_or_else(Lead::default, |leadership| {
            Lead::new(move || leadership.until().map_or(Term::Over, Term::Until))
        })
    }

    /// Resolves when this process must end, because another may work.
    pub async fn lost(&mut self) -> anyhow::Error {
        let Some(held) = &mut self.held else { return std::future::pending().await };
        tokio::select! {
            biased;
            Err(error) = &mut held.keeping => return anyhow!(error).context("keep the Lease"),
            () = held.leadership.lost() => {}
        }
        anyhow!("the Lease {} was lost: another process leads, or the Kubernetes API cannot be reached", leader::NAME)
    }

    /// Releases the Lease, so that the next process need not wait.
    pub async fn release(self) {
        let Some(held) = self.held else { return };
        let _ = held.over.send(true);
        let _ = held.keeping.await;
    }
}

/// Waits until this process leads on a cluster's API. Meanwhile answers probes on `health`.
pub async fn lead(client: &Client, namespace: &str, seconds: u64, health: &TcpListener) -> anyhow::Result<Led> {
    if seconds == 0 {
        return Ok(Led::default());
    }
    let candidate = Candidate {
        namespace: namespace.to_owned(),
        identity: format!("{}_{}", host(), uuid::Uuid::new_v4()),
        duration: Duration::from_secs(seconds),
        // A process makes its keys before it works: without keys, no process has worked yet.
        first: identity::series(client, namespace).all().await.is_ok_and(|keys| keys.is_empty()),
        store: None,
    };
    let attempt =
        || format!("take the Lease {} in namespace {namespace}; --lease-duration 0 does without", leader::NAME);
    let led = take(client, candidate, health).await.with_context(attempt)?;
    say::note(&format!("this process leads (Lease {} in namespace {namespace})", leader::NAME));
    Ok(led)
}

/// Waits until the process that serves this API (`up` and its like) leads on it. An earlier one on the same store has ended and is succeeded at once.
pub async fn lead_served_api(
    client: &Client,
    namespace: &str,
    command: &str,
    health: &TcpListener,
) -> anyhow::Result<Led> {
    let attempt = || format!("take the Lease {} in namespace {namespace}", leader::NAME);
    let of_api = Api::<Namespace>::all(client.clone()).get(OF_API).await.with_context(attempt)?;
    let store =
        of_api.metadata.uid.with_context(|| format!("the namespace {OF_API} has no uid")).with_context(attempt)?;
    let candidate = Candidate {
        namespace: namespace.to_owned(),
        identity: format!("{command}_{}_{store}_{}", host(), uuid::Uuid::new_v4()),
        duration: OF_STORE,
        // The API was not served before, so no other process has worked on it just now.
        first: true,
        store: Some(store),
    };
    take(client, candidate, health).await.with_context(attempt)
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

async fn take(client: &Client, candidate: Candidate, health: &TcpListener) -> anyhow::Result<Led> {
    let handle = Handle::<SocketAddr>::new();
    let standby = axum_server::from_tcp(health.try_clone().context("serve probes")?).context("serve probes")?;
    let standby = connections::limited(standby, "probes", handle.clone());
    let standby = standby.serve(observe::standby_router().into_make_service());
    let standby = tokio::spawn(standby);
    let namespace = candidate.namespace.clone();
    let mut announced: Option<String> = None;
    let mut waiting = |lease: &str, holder: &str| {
        let who = if lease == leader::UPSTREAMS {
            format!("baremetal-operator is at work as {holder}: stop it")
        } else if holder.is_empty() {
            "nobody leads, and who did may not know it yet".to_owned()
        } else {
            format!("{holder} leads")
        };
        let why = format!("standing by: {who} (Lease {lease} in namespace {namespace})");
        if announced.as_ref() != Some(&why) {
            say::note(&why);
            announced = Some(why);
        }
    };
    let mut leader = candidate.clone().lead(client, &mut waiting).await;
    if matches!(&leader, Err(kube::Error::Api(error)) if error.code == 404) {
        kept::make_namespace(client, &candidate.namespace).await?;
        leader = candidate.lead(client, &mut waiting).await;
    }
    // From here on, the listener belongs to the working server.
    handle.shutdown();
    let _ = standby.await;
    Ok(Led::by(leader?))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, Response, StatusCode};

    use super::*;

    /// An API without a Lease that accepts every one.
    fn api() -> Client {
        let service = tower::service_fn(async |request: Request<kube::client::Body>| {
            let status = if request.method() == "GET" { StatusCode::NOT_FOUND } else { StatusCode::OK };
            let body = match status {
                StatusCode::OK => request.into_body().collect_bytes().await.unwrap().to_vec(),
                _ => br#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"no","code":404}"#.to_vec(),
            };
            let answer = Response::builder().status(status).body(Body::from(body)).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_keeper_that_ends_badly_ends_the_work() {
        let candidate = Candidate {
            namespace: "n".to_owned(),
            identity: "me".to_owned(),
            duration: Duration::from_secs(60),
            first: true,
            store: None,
        };
        let mut led = Led::by(candidate.lead(&api(), |_, _| ()).await.unwrap());
        let still = tokio::time::timeout(Duration::from_secs(600), led.lost()).await;
        assert!(still.is_err() && led.holds(), "{still:?}");
        if let Some(held) = &led.held {
            held.keeping.abort();
        }
        let why = led.lost().await;
        assert!(format!("{why:#}").starts_with("keep the Lease"), "{why:#}");
        assert!(!led.holds());
    }
}
