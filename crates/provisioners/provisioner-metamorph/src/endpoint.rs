//! The two HTTP endpoints: reports of agents; media for BMCs, and what BMCs post of events. Both take hostile input.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_protocol::{
    BOOT_KEY_HEADER, DISMISSED_HEADER, Directive, MAX_REPORT_BYTES, OLDEST_PROTOCOL, PROTOCOL_VERSION, REPORT_PATH,
    Report,
};
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use boot_media::{derive, serve};
use sha2::{Digest, Sha256};
use terms::json_values_at_most;

use crate::host::Shared;
use crate::hub::Refusal;

/// Most values of a report: the inventory of the largest machines has a few thousand.
const MAX_REPORT_VALUES: usize = 100_000;
/// Time for a report to come in.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Largest event that is read, bytes.
const MAX_EVENT: usize = 64 << 10;
/// Time for an event to come in.
const EVENT_TIME: Duration = Duration::from_secs(10);
/// Protocol since which every report carries its boot's key.
const KEY_SINCE: u32 = 2;
/// Bytes of an order that are handed to its connection at once.
const PIECE: usize = 64 << 10;
/// Characters of a key: 32 bytes in base64url.
const KEY_LENGTH: usize = 43;

pub fn agent_router(shared: Arc<Shared>) -> Router {
    // Agents from the previous version use addresses without a shard.
    Router::new()
        .route(REPORT_PATH, post(report))
        .route(&format!("/shard/{{number}}{REPORT_PATH}"), post(report))
        .with_state(shared)
}

pub fn media_router(shared: Arc<Shared>) -> Router {
    // BMCs may still read media that the previous version inserted at addresses without a shard.
    Router::new()
        .route("/media/{file}", get(media).head(media))
        .route("/shard/{number}/media/{file}", get(media).head(media))
        .route(&format!("/shard/{{number}}{}{{token}}", derive::EVENTS_PREFIX), post(event))
        .with_state(shared)
}

async fn report(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let given =
        headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
    // Check before reading the body: only our own agents may send one.
    let Some(holder) = given.and_then(|given| shared.settings.keys.holder(given)) else {
        return (StatusCode::UNAUTHORIZED, "the token is not this host's and generation's\n").into_response();
    };
    let (host, generation) = (holder.host, holder.generation);
    let Ok(key) = key_digest(&headers) else {
        return (StatusCode::BAD_REQUEST, "the key of the boot is malformed\n").into_response();
    };
    let admitted = match shared.hub.admit(host, generation, key.as_deref()) {
        Ok(admitted) => admitted,
        Err(refusal) => return refused(&refusal, generation),
    };
    // Read nothing from a boot that is over or of another key either.
    if let Err(refusal) = shared.hub.derived_from(&holder).await {
        return refused(&refusal, generation);
    }
    let body = match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_REPORT_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("the report broke off, or has more than {MAX_REPORT_BYTES} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the report did not come in time\n").into_response(),
    };
    if json_values_at_most(&body) > MAX_REPORT_VALUES {
        let text = format!("the report holds more than {MAX_REPORT_VALUES} values\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    let Ok(report) = serde_json::from_slice::<Report>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no report of a Metamorph agent\n").into_response();
    };
    if !(OLDEST_PROTOCOL..=PROTOCOL_VERSION).contains(&report.protocol) {
        let text = format!(
            "this server speaks agent protocols {OLDEST_PROTOCOL} to {PROTOCOL_VERSION}, the agent {}\n",
            report.protocol
        );
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    if (report.host.as_str(), report.generation) != (host, generation) {
        return (StatusCode::UNAUTHORIZED, "the token is not this host's and generation's\n").into_response();
    }
    if report.protocol >= KEY_SINCE && key.is_none() {
        return (StatusCode::BAD_REQUEST, "the report lacks the key of its boot\n").into_response();
    }
    // A report may wait for its answer for long: nothing that came in stays for that.
    drop((admitted, body));
    let host = report.host.clone();
    match shared.hub.report(report, key).await {
        Ok(directive) if directive.command.is_none() => Json(directive).into_response(),
        Ok(directive) => match shared.hub.sends(&host) {
            Some(sending) => order(&directive, sending),
            None => refused(&Refusal::TooMany, generation),
        },
        Err(refusal) => refused(&refusal, generation),
    }
}

/// The answer with an order, which may hold megabytes. It counts as being sent until the connection has taken all of it.
fn order(directive: &Directive, sending: Arc<()>) -> Response {
    let Ok(text) = serde_json::to_vec(directive) else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the order cannot be written\n").into_response();
    };
    let pieces = futures::stream::unfold((Bytes::from(text), sending), |(mut rest, sending)| async move {
        let piece = rest.split_to(rest.len().min(PIECE));
        (!piece.is_empty()).then_some((Ok::<_, Infallible>(piece), (rest, sending)))
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}

/// SHA-256 of the boot's key, in hexadecimal; `None` without a key.
fn key_digest(headers: &HeaderMap) -> Result<Option<String>, ()> {
    let Some(key) = headers.get(BOOT_KEY_HEADER) else { return Ok(None) };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let good = key.len() == KEY_LENGTH && key.as_bytes().iter().all(plain);
    if good { Ok(Some(hex::encode(Sha256::digest(key.as_bytes())))) } else { Err(()) }
}

fn refused(refusal: &Refusal, generation: u64) -> Response {
    let (status, text) = match refusal {
        Refusal::Superseded => (
            StatusCode::FORBIDDEN,
            "the host has been booted again since, or this boot's work has ended: it has no say\n",
        ),
        Refusal::Contested => {
            (StatusCode::FORBIDDEN, "another boot has reported first for this generation: this one has no say\n")
        }
        Refusal::AnotherKey => {
            (StatusCode::UNAUTHORIZED, "the token is derived from another key than the host's and generation's\n")
        }
        Refusal::Stale => (StatusCode::CONFLICT, "a later report has been seen\n"),
        Refusal::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "this host has not been looked at yet\n"),
        Refusal::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many reports\n"),
    };
    let mut response = (status, text).into_response();
    if matches!(refusal, Refusal::Superseded) {
        // The agent stops its work at this word alone: a proxy may answer with 403 as well.
        response.headers_mut().insert(DISMISSED_HEADER, generation.into());
    }
    response
}

/// What a BMC posts: whoever knows the address and the context can have the host looked at, now and then, and nothing else.
async fn event(State(shared): State<Arc<Shared>>, Path((_, token)): Path<(String, String)>, body: Body) -> Response {
    let Some(heard) = shared.ears.find(&token) else {
        return (StatusCode::NOT_FOUND, "nobody listens here\n").into_response();
    };
    let Some(_place) = heard.reads() else {
        return (StatusCode::TOO_MANY_REQUESTS, "events are being read already\n").into_response();
    };
    let body = match tokio::time::timeout(EVENT_TIME, axum::body::to_bytes(body, MAX_EVENT)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("the event broke off, or has more than {MAX_EVENT} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the event did not come in time\n").into_response(),
    };
    let Some(posted) = heard.bmc().events().ok().and_then(|events| events.posted(&body)) else {
        return (StatusCode::BAD_REQUEST, "this is no event\n").into_response();
    };
    if !derive::equal(&posted.context, heard.context()) {
        return (StatusCode::FORBIDDEN, "the event has not the context of the subscription\n").into_response();
    }
    heard.told(posted.alert);
    StatusCode::NO_CONTENT.into_response()
}

async fn media(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let Some(offer) = shared.media.find(uri.path(), from.ip()).await else {
        return (StatusCode::NOT_FOUND, "no such medium\n").into_response();
    };
    offer.ask(from.ip());
    let (counted, sent) = (Arc::clone(&offer), Arc::clone(&shared.media.sent));
    serve::respond(&offer.medium, &method, &headers, move |start, length| {
        counted.give(length);
        sent.fetch_add(length, Ordering::Relaxed);
        tracing::debug!(target: "media", namespace = %counted.key.namespace, host = %counted.key.name, generation = counted.generation, start, length, "range served");
    })
}
