//! The two HTTP endpoints: reports of agents, and media for BMCs. Both take hostile input.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_protocol::{LogLine, MAX_LOG_LINES, MAX_REPORT_BYTES, PROTOCOL_VERSION, REPORT_PATH, Report};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use boot_media::{derive, serve};

use crate::host::Shared;
use crate::hub::Refusal;

/// Longest log line kept, in bytes.
const MAX_LOG_TEXT: usize = 4096;

pub fn agent_router(shared: Arc<Shared>) -> Router {
    Router::new().route(REPORT_PATH, post(report)).layer(DefaultBodyLimit::max(MAX_REPORT_BYTES)).with_state(shared)
}

pub fn media_router(shared: Arc<Shared>) -> Router {
    Router::new().route("/media/{file}", get(media).head(media)).with_state(shared)
}

async fn report(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(report) = serde_json::from_slice::<Report>(&body) else {
        return (StatusCode::BAD_REQUEST, "this is no report of a Metamorph agent\n").into_response();
    };
    if report.protocol != PROTOCOL_VERSION {
        let text = format!("this server speaks agent protocol {PROTOCOL_VERSION}, the agent {}\n", report.protocol);
        return (StatusCode::BAD_REQUEST, text).into_response();
    }
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "))
        .unwrap_or_default();
    let expected = derive::token(&shared.settings.secret, &report.host, report.generation);
    if !derive::equal(given, &expected) {
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
    let counted = Arc::clone(&offer);
    serve::respond(&offer.medium, &method, &headers, move |start, length| {
        counted.served.fetch_add(length, Ordering::Relaxed);
        tracing::debug!(target: "media", host = %counted.key.name, generation = counted.generation, start, length, "range served");
    })
}
