//! The control API for tests and people, to look behind the BMCs and to set faults: JSON over HTTP on loopback, on a
//! separate listener. The paths are listed at `GET /`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    bmc::{Bmc, PowerError, describe, lock},
    faults::{Rule, When},
    redfish,
    simulator::Machines,
};

/// Longest wait for an event, in seconds.
const MAX_WAIT: u64 = 600;

const PATHS: &[&str] = &[
    "GET /machines",
    "GET /machines/{id}",
    "GET, PATCH /machines/{id}/settings",
    "GET, DELETE /machines/{id}/requests",
    "GET, DELETE /machines/{id}/media",
    "GET, DELETE /machines/{id}/sessions",
    "GET, DELETE /machines/{id}/subscriptions",
    "GET, DELETE /machines/{id}/streams",
    "POST /machines/{id}/tell {\"events\": [record, …] | \"text\": …, \"times\": 1}",
    "GET, POST, DELETE /machines/{id}/faults",
    "DELETE /machines/{id}/faults/{number}",
    "GET /machines/{id}/held",
    "POST /machines/{id}/pause {\"when\": \"before\" | \"after\"}",
    "POST /machines/{id}/step {\"count\": 1}",
    "POST /machines/{id}/resume",
    "POST /machines/{id}/eject",
    "POST /machines/{id}/power {\"action\": \"On\" | \"ForceOff\" | \"GracefulShutdown\" | \"ForceRestart\"}",
    "POST /machines/{id}/password {\"password\": …, \"keepSessions\": false}",
    "GET /requests?after=SEQ",
    "GET /events?after=SEQ&wait=SECONDS&machine=ID",
];

type Ctl = State<Arc<Machines>>;

/// An error of the control API.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

type Reply = Result<Json<Value>, Refused>;

fn find(machines: &Machines, id: &str) -> Result<Arc<Bmc>, Refused> {
    let found = machines.get(id).map(|machine| machine.bmc.clone());
    found.ok_or_else(|| Refused(StatusCode::NOT_FOUND, format!("there is no machine {id:?}")))
}

fn bad(error: impl ToString) -> Refused {
    Refused(StatusCode::BAD_REQUEST, error.to_string())
}

/// The control API over these machines.
pub fn router(machines: Arc<Machines>) -> Router {
    Router::new()
        .route("/", get(|| async { Json(json!({ "paths": PATHS })) }))
        .route("/machines", get(list))
        .route("/machines/{id}", get(one))
        .route("/machines/{id}/settings", get(settings).patch(change_settings))
        .route("/machines/{id}/requests", get(requests).delete(clear_requests))
        .route("/machines/{id}/media", get(media).delete(clear_media))
        .route("/machines/{id}/sessions", get(sessions).delete(clear_sessions))
        .route("/machines/{id}/subscriptions", get(subscriptions).delete(clear_subscriptions))
        .route("/machines/{id}/streams", get(streams).delete(cut_streams))
        .route("/machines/{id}/tell", post(tell))
        .route("/machines/{id}/faults", get(list_faults).post(add_fault).delete(clear_faults))
        .route("/machines/{id}/faults/{number}", delete(remove_fault))
        .route("/machines/{id}/held", get(held))
        .route("/machines/{id}/pause", post(pause))
        .route("/machines/{id}/step", post(step))
        .route("/machines/{id}/resume", post(resume))
        .route("/machines/{id}/eject", post(eject))
        .route("/machines/{id}/power", post(power))
        .route("/machines/{id}/password", post(password))
        .route("/requests", get(all_requests))
        .route("/events", get(events))
        .with_state(machines)
}

/// Describes a machine.
#[must_use]
pub fn describe_machine(machines: &Machines, id: &str) -> Option<Value> {
    let machine = machines.get(id)?;
    let bmc = &machine.bmc;
    let (power, system, medium) = (bmc.power(), bmc.system(), bmc.medium());
    let totals = bmc.media_log.totals();
    let mut value = machine.description.clone();
    let settings = bmc.settings.borrow().clone();
    let sessions = {
        let mut sessions = lock(&bmc.sessions);
        sessions.list(tokio::time::Instant::now(), settings.session_idle()).len()
    };
    for (name, field) in [
        ("power", json!(if power.on { "On" } else { "Off" })),
        ("running", json!(power.running)),
        ("boots", json!(power.boots)),
        ("pid", json!(power.pid)),
        ("failure", json!(power.failure)),
        ("lastBoot", power.detail.clone()),
        ("bootOverride", json!(system.boot)),
        ("secureBoot", json!(system.secure_boot)),
        ("light", json!(system.indicator)),
        ("medium", medium.map_or(Value::Null, |medium| json!({ "url": medium.url().as_str(), "size": medium.size() }))),
        ("sessions", json!(sessions)),
        ("streams", bmc.pushes.describe()),
        ("subscriptions", json!(lock(&bmc.subscriptions).iter().count())),
        (
            "counters",
            json!({
                "requests": bmc.requests.total(),
                "connections": bmc.traffic.connections(),
                "bytesReceived": bmc.traffic.received(),
                "bytesSent": bmc.traffic.sent(),
                "mediaRequests": totals.requests,
                "mediaBytesFetched": totals.bytes_fetched,
                "mediaBytesRead": totals.bytes_read,
                "mediaReads": totals.reads,
            }),
        ),
    ] {
        value[name] = field;
    }
    Some(value)
}

async fn list(State(machines): Ctl) -> Json<Value> {
    let all: Vec<Value> = machines.ids().filter_map(|id| describe_machine(&machines, id)).collect();
    Json(json!({ "machines": all }))
}

async fn one(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    find(&machines, &id)?;
    Ok(Json(describe_machine(&machines, &id).unwrap_or_default()))
}

async fn settings(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    let settings = find(&machines, &id)?.settings.borrow().clone();
    Ok(Json(json!(settings)))
}

async fn change_settings(State(machines): Ctl, Path(id): Path<String>, Json(patch): Json<Value>) -> Reply {
    let bmc = find(&machines, &id)?;
    let settings = bmc.change_settings(&patch).await.map_err(bad)?;
    Ok(Json(json!(settings)))
}

async fn requests(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    let bmc = find(&machines, &id)?;
    Ok(Json(json!({ "total": bmc.requests.total(), "requests": bmc.requests.list() })))
}

async fn clear_requests(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    find(&machines, &id)?.requests.clear();
    Ok(Json(json!({})))
}

async fn media(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    let bmc = find(&machines, &id)?;
    let mut value = json!(bmc.media_log.snapshot());
    let medium = bmc.medium();
    value["inserted"] = json!(medium.is_some());
    value["url"] = json!(medium.as_ref().map(|medium| medium.url().to_string()));
    value["size"] = json!(medium.as_ref().map(|medium| medium.size()));
    Ok(Json(value))
}

async fn clear_media(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    find(&machines, &id)?.media_log.clear();
    Ok(Json(json!({})))
}

async fn sessions(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    let bmc = find(&machines, &id)?;
    let idle = bmc.settings.borrow().session_idle();
    let open: Vec<Value> = {
        let mut sessions = lock(&bmc.sessions);
        sessions.list(tokio::time::Instant::now(), idle).iter().map(redfish::sessions::Session::resource).collect()
    };
    Ok(Json(json!({ "sessions": open })))
}

async fn clear_sessions(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    lock(&find(&machines, &id)?.sessions).clear();
    Ok(Json(json!({})))
}

async fn subscriptions(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    let subscriptions = lock(&find(&machines, &id)?.subscriptions).describe();
    Ok(Json(json!({ "subscriptions": subscriptions })))
}

async fn clear_subscriptions(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    lock(&find(&machines, &id)?.subscriptions).clear();
    Ok(Json(json!({})))
}

async fn streams(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    Ok(Json(find(&machines, &id)?.pushes.describe()))
}

async fn cut_streams(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    find(&machines, &id)?.pushes.cut();
    Ok(Json(json!({})))
}

async fn tell(State(machines): Ctl, Path(id): Path<String>, Json(told): Json<redfish::push::Told>) -> Reply {
    let bmc = find(&machines, &id)?;
    redfish::push::tell(&bmc, &told).map_err(bad)?;
    Ok(Json(json!({})))
}

async fn list_faults(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    Ok(Json(json!({ "faults": find(&machines, &id)?.faults.list() })))
}

async fn add_fault(State(machines): Ctl, Path(id): Path<String>, Json(rule): Json<Rule>) -> Reply {
    let number = find(&machines, &id)?.faults.add(rule).map_err(bad)?;
    Ok(Json(json!({ "id": number })))
}

async fn clear_faults(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    find(&machines, &id)?.faults.clear();
    Ok(Json(json!({})))
}

async fn remove_fault(State(machines): Ctl, Path((id, number)): Path<(String, u64)>) -> Reply {
    let removed = find(&machines, &id)?.faults.remove(number);
    Ok(Json(json!({ "removed": removed })))
}

async fn held(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    Ok(Json(json!({ "held": find(&machines, &id)?.faults.held() })))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Pause {
    when: When,
}

async fn pause(State(machines): Ctl, Path(id): Path<String>, body: Option<Json<Pause>>) -> Reply {
    find(&machines, &id)?.faults.pause(body.unwrap_or_default().0.when);
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    #[serde(default = "one_step")]
    count: usize,
}

fn one_step() -> usize {
    1
}

async fn step(State(machines): Ctl, Path(id): Path<String>, body: Option<Json<Step>>) -> Reply {
    let count = body.map_or(1, |body| body.0.count);
    Ok(Json(json!({ "stepped": find(&machines, &id)?.faults.step(count) })))
}

async fn resume(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    Ok(Json(json!({ "resumed": find(&machines, &id)?.faults.resume() })))
}

async fn eject(State(machines): Ctl, Path(id): Path<String>) -> Reply {
    Ok(Json(json!({ "ejected": find(&machines, &id)?.eject() })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerAction {
    action: String,
}

async fn power(State(machines): Ctl, Path(id): Path<String>, Json(body): Json<PowerAction>) -> Reply {
    let bmc = find(&machines, &id)?;
    // In a separate task: an impatient client must not leave half a power change behind.
    let work = tokio::spawn(async move {
        match body.action.as_str() {
            "On" => bmc.power_on().await,
            "ForceOff" => bmc.force_off().await,
            "GracefulShutdown" => bmc.press_button(false).await,
            "ForceRestart" => bmc.force_restart().await,
            _ => return Err(bad(format!("there is no power action {:?}", body.action))),
        }
        .map_err(|error| match error {
            PowerError::Already(_) => Refused(StatusCode::CONFLICT, error.to_string()),
            PowerError::Machine(_) => Refused(StatusCode::INTERNAL_SERVER_ERROR, describe(&error)),
        })
    });
    work.await.map_err(|error| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    one(State(machines), Path(id)).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Password {
    password: String,
    #[serde(default)]
    keep_sessions: bool,
}

async fn password(State(machines): Ctl, Path(id): Path<String>, Json(body): Json<Password>) -> Reply {
    let bmc = find(&machines, &id)?;
    lock(&bmc.account).1 = body.password;
    if !body.keep_sessions {
        lock(&bmc.sessions).clear();
    }
    bmc.event("password", json!({}));
    Ok(Json(json!({})))
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
    wait: Option<u64>,
    machine: Option<String>,
}

async fn all_requests(State(machines): Ctl, Query(query): Query<After>) -> Json<Value> {
    let all = machines.bmcs().flat_map(|bmc| bmc.requests.list());
    let mut all: Vec<_> = all.filter(|record| record.seq > query.after).collect();
    all.sort_by_key(|record| record.seq);
    Json(json!({ "requests": all }))
}

async fn events(State(machines): Ctl, Query(query): Query<After>) -> Json<Value> {
    let log = &machines.shared.events;
    let machine = query.machine.as_deref();
    let wait = Duration::from_secs(query.wait.unwrap_or(0).min(MAX_WAIT));
    let events = if wait.is_zero() {
        log.after(query.after, machine)
    } else {
        tokio::time::timeout(wait, log.wait(query.after, machine)).await.unwrap_or_default()
    };
    let last = events.last().map_or(query.after, |event| event.seq);
    Json(json!({ "last": last, "events": events }))
}
