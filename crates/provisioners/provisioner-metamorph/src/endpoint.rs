//! The two HTTP endpoints: reports of agents, and media for BMCs. Both take hostile input.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent_protocol::{LogLine, MAX_LOG_LINES, MAX_REPORT_BYTES, PROTOCOL_VERSION, REPORT_PATH, Report};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use boot_media::{derive, serve};

use crate::host::Shared;
use crate::hub::Refusal;

/// Time for a report to come in.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Longest log line kept, in bytes.
const MAX_LOG_TEXT: usize = 4096;

pub fn agent_router(shared: Arc<Shared>) -> Router {
    Router::new().route(REPORT_PATH, post(report)).with_state(shared)
}

pub fn media_router(shared: Arc<Shared>) -> Router {
    Router::new().route("/media/{file}", get(media).head(media)).with_state(shared)
}

async fn report(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Body) -> Response {
    let given =
        headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("Bearer "));
    // Before the body is read: who is no agent of ours sends us nothing.
    let Some((host, generation)) = given.and_then(|given| derive::holder(&shared.settings.secret, given)) else {
        return (StatusCode::UNAUTHORIZED, "the token is not this host's and generation's\n").into_response();
    };
    let body = match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_REPORT_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("the report broke off, or has more than {MAX_REPORT_BYTES} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the report did not come in time\n").into_response(),
    };
    let Ok(report) = serde_json::from_slice::<Report>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no report of a Metamorph agent\n").into_response();
    };
    if report.protocol != PROTOCOL_VERSION {
        let text = format!("this server speaks agent protocol {PROTOCOL_VERSION}, the agent {}\n", report.protocol);
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    if (report.host.as_str(), report.generation) != (host, generation) {
        return (StatusCode::UNAUTHORIZED, "the token is not this host's and generation's\n").into_response();
    }
    log_lines(&report);
    match shared.hub.report(report).await {
        Ok(directive) => Json(directive).into_response(),
        Err(Refusal::Superseded) => {
            (StatusCode::FORBIDDEN, "the host has been booted again since: this boot has no say\n").into_response()
        }
        Err(Refusal::Stale) => (StatusCode::CONFLICT, "a later report has been seen\n").into_response(),
    }
}

fn log_lines(report: &Report) {
    for LogLine { uptime_ms, level, text } in report.logs.iter().take(MAX_LOG_LINES) {
        let mut end = text.len().min(MAX_LOG_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text: String = text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match level.as_str() {
            "error" | "warn" => tracing::warn!(target: "agent", host = %report.host, uptime_ms, "{text}"),
            "info" => tracing::info!(target: "agent", host = %report.host, uptime_ms, "{text}"),
            _ => tracing::debug!(target: "agent", host = %report.host, uptime_ms, "{text}"),
        }
    }
}

async fn media(State(shared): State<Arc<Shared>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let Some(offer) = shared.media.find(uri.path()).await else {
        return (StatusCode::NOT_FOUND, "no such medium\n").into_response();
    };
    offer.asked.fetch_add(1, Ordering::Relaxed);
    let counted = Arc::clone(&offer);
    serve::respond(&offer.medium, &method, &headers, move |start, length| {
        counted.served.fetch_add(length, Ordering::Relaxed);
        tracing::debug!(target: "media", host = %counted.key.name, generation = counted.generation, start, length, "range served");
    })
}
