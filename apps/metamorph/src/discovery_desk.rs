//! Media that machines boot to report themselves, and the endpoint at which they do: wiring between the native provisioner, which has agent images and keys,
//! and the controller of HostDiscoveries, which decides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use addresses::{Allowed, Peers};
use agent_protocol::{DISCOVERY_PATH, DISCOVERY_PROTOCOL, MAX_SIGHTING_BYTES, Sighting};
use api::metamorph::DiscoveryMediumAt;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use operator::{DiscoveryController, HostController, MediumOffice, MediumWish, NotTaken, Reception};
use provisioner::HostKey;
use provisioner_metamorph::NativeProvisioner;
use terms::json_values_at_most;
use tokio::sync::Semaphore;

use crate::scout::NetworkScout;

/// Most values of a report.
const MAX_VALUES: usize = 50_000;
/// Time for a report to come in.
const BODY_TIME: Duration = Duration::from_secs(20);
/// Reports that are read at once, and of one peer (an IPv6 network gets four times that): each may take [`MAX_SIGHTING_BYTES`] for as long as [`BODY_TIME`].
const MAX_READING: usize = 32;
const MAX_OF_PEER: usize = 2;

/// Offers media by the native provisioner.
struct Office(pub Arc<NativeProvisioner>);

impl MediumOffice for Office {
    fn offer(&self, wish: &MediumWish) -> Result<Vec<DiscoveryMediumAt>, String> {
        let key = HostKey { namespace: wish.namespace.clone(), name: wish.name.clone(), uid: wish.uid.clone() };
        let offered = self.0.offer_discovery(&key, wish.revision, (wish.afterwards, wish.stay_minutes));
        let offered = offered.map_err(|error| error.to_string())?;
        if offered.is_empty() {
            return Err("the server's agent image has no agent of Metamorph's: give one with --agent-image".to_owned());
        }
        let at = |(architecture, urls): (terms::Architecture, Vec<String>)| DiscoveryMediumAt {
            architecture: architecture.to_string(),
            revision: wish.revision,
            urls,
        };
        Ok(offered.into_iter().map(at).collect())
    }

    fn withdraw(&self, uid: &str) {
        self.0.withdraw_discovery(uid);
    }
}

/// Who looks for machines that nobody has declared, and hears those that report themselves; nobody where no reports are taken.
pub fn finder(
    controller: &HostController,
    provisioner: &Arc<NativeProvisioner>,
    reception: Option<Arc<Reception>>,
    allowed: Allowed,
) -> anyhow::Result<Option<DiscoveryController>> {
    let Some(reception) = reception else { return Ok(None) };
    let scout = Arc::new(NetworkScout::new(allowed)?);
    let office = Arc::new(Office(Arc::clone(provisioner)));
    Ok(Some(DiscoveryController::beside(controller, scout).with_media(office, reception)))
}

/// What the endpoint goes by.
#[derive(Clone)]
struct Desk {
    provisioner: Arc<NativeProvisioner>,
    reception: Arc<Reception>,
    /// Who brings a report now.
    bringing: Arc<Peers>,
    /// Reports that may be read at once.
    reading: Arc<Semaphore>,
}

/// Routes of the endpoint, to be served beside the agents'.
pub fn router(provisioner: Arc<NativeProvisioner>, reception: Arc<Reception>) -> Router {
    Router::new()
        .route(DISCOVERY_PATH, post(report))
        .route(&format!("/shard/{{number}}{DISCOVERY_PATH}"), post(report))
        .with_state(Desk {
            provisioner,
            reception,
            bringing: Arc::default(),
            reading: Arc::new(Semaphore::new(MAX_READING)),
        })
}

async fn report(
    State(desk): State<Desk>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer "));
    // Nothing is read of whoever has no medium of ours, or one that was taken back.
    let Some((uid, revision)) = given.and_then(|given| desk.provisioner.discovery_holder(given)) else {
        return (StatusCode::UNAUTHORIZED, "the token is no HostDiscovery's\n").into_response();
    };
    if let Err(why) = desk.reception.takes(uid, revision) {
        return not_taken(why);
    }
    // One medium is many machines': its token keeps nobody from sending as much as there are connections.
    let (Ok(_place), Ok(_reading)) = (desk.bringing.enter(from.ip(), MAX_OF_PEER), desk.reading.try_acquire()) else {
        desk.reception.leaves_out(uid);
        return (StatusCode::TOO_MANY_REQUESTS, "too many machines report at once: try again later\n").into_response();
    };
    let body = match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_SIGHTING_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("the report broke off, or has more than {MAX_SIGHTING_BYTES} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the report did not come in time\n").into_response(),
    };
    if json_values_at_most(&body) > MAX_VALUES {
        let text = format!("the report holds more than {MAX_VALUES} values\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    let Ok(report) = serde_json::from_slice::<Sighting>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no report of a machine\n").into_response();
    };
    if report.protocol != DISCOVERY_PROTOCOL {
        let text = format!(
            "this server reads reports of version {DISCOVERY_PROTOCOL}, this one is of {}: make the medium anew\n",
            report.protocol
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    match desk.reception.hear(uid, revision, from.ip(), &report) {
        Ok(heard) => Json(heard).into_response(),
        Err(why) => not_taken(why),
    }
}

fn not_taken(why: NotTaken) -> Response {
    match why {
        NotTaken::Revoked => {
            (StatusCode::FORBIDDEN, "this medium is not valid any more: make it anew from the HostDiscovery\n")
                .into_response()
        }
        NotTaken::Unknown => {
            (StatusCode::SERVICE_UNAVAILABLE, "the HostDiscovery of this medium has not been looked at yet\n")
                .into_response()
        }
    }
}
