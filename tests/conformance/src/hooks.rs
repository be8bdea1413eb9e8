//! A webhook server: what it answers is said by a case, what it was asked is read by the case.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::target::Issued;

/// The running server. One for all cases; each has keys of its own.
pub struct Hooks {
    /// `https://127.0.0.1:PORT`.
    pub base: String,
    /// Its CA as `caBundle` wants it.
    pub ca_bundle: String,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    answers: BTreeMap<String, Value>,
    calls: BTreeMap<String, Vec<Value>>,
}

type Shared = Arc<Mutex<Table>>;

fn lock(table: &Shared) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hooks {
    /// Starts it; it ends with the program.
    pub async fn start() -> Result<Self> {
        let issued = Issued::new("webhook")?;
        let tls = RustlsConfig::from_pem(issued.certificate.into_bytes(), issued.key.into_bytes()).await?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let base = format!("https://{}", listener.local_addr()?);
        let table = Shared::default();
        let router = Router::new().route("/{key}", axum::routing::post(answer)).with_state(Arc::clone(&table));
        let server = axum_server::from_tcp_rustls(listener, tls)?;
        tokio::spawn(async move { server.serve(router.into_make_service()).await });
        Ok(Self { base, ca_bundle: STANDARD.encode(issued.ca), table })
    }

    /// Says what `/KEY` answers: `response` (for a review), `status`, `text`, `hang` or `convert` (with `moves`).
    pub fn set(&self, key: &str, answer: &Value) {
        lock(&self.table).answers.insert(key.to_owned(), answer.clone());
    }

    /// Forgets what `/KEY` was asked.
    pub fn forget(&self, key: &str) {
        lock(&self.table).calls.remove(key);
    }

    /// What `/KEY` was asked so far.
    pub fn calls(&self, key: &str) -> Vec<Value> {
        lock(&self.table).calls.get(key).cloned().unwrap_or_default()
    }
}

async fn answer(State(table): State<Shared>, Path(key): Path<String>, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = {
        let mut table = lock(&table);
        table.calls.entry(key.clone()).or_default().push(asked.clone());
        table.answers.get(&key).cloned().unwrap_or_default()
    };
    if reply["hang"] == json!(true) {
        std::future::pending::<()>().await;
    }
    let status = reply["status"].as_u64().and_then(|s| u16::try_from(s).ok());
    let status = status.and_then(|s| StatusCode::from_u16(s).ok()).unwrap_or(StatusCode::OK);
    if let Some(text) = reply["text"].as_str() {
        return (status, text.to_owned()).into_response();
    }
    let mut response = reply["response"].clone();
    if !response.is_object() {
        response = json!({"allowed": true});
    }
    if let Some(patch) = response.get("patch").filter(|p| !p.is_string()).map(ToString::to_string) {
        response["patch"] = json!(STANDARD.encode(patch));
        response["patchType"] = json!("JSONPatch");
    }
    if !reply["convert"].is_null() {
        response = converted(&asked, &reply["convert"], &reply["moves"]);
    }
    if response.get("uid").is_none() {
        response["uid"] = asked["request"]["uid"].clone();
    }
    let review = json!({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response});
    (status, [(header::CONTENT_TYPE, "application/json")], review.to_string()).into_response()
}

/// Gives each object the wanted version, moves what is elsewhere in it (each of `moves` says where in which version), and
/// merges what the case says into it.
fn converted(asked: &Value, merge: &Value, moves: &Value) -> Value {
    let wanted = &asked["request"]["desiredAPIVersion"];
    let objects = asked["request"]["objects"].as_array().cloned().unwrap_or_default();
    let convert = |mut object: Value| {
        let versions = [&object["apiVersion"], wanted].map(|v| v.as_str().and_then(|v| v.rsplit('/').next()));
        let [Some(from), Some(to)] = versions.map(|v| v.map(ToOwned::to_owned)) else { return object };
        for places in moves.as_array().into_iter().flatten() {
            if let (Some(from), Some(to)) = (places[&from].as_str(), places[&to].as_str()) {
                move_value(&mut object, from, to);
            }
        }
        object["apiVersion"] = wanted.clone();
        if let (Some(into), Some(from)) = (object.as_object_mut(), merge.as_object()) {
            into.extend(from.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        object
    };
    let objects: Vec<Value> = objects.into_iter().map(convert).collect();
    json!({"result": {"status": "Success"}, "convertedObjects": objects})
}

/// Moves a member of an object, if it is there, to another place. Nothing is left of an object that it was alone in.
fn move_value(object: &mut Value, from: &str, to: &str) {
    let Some((place, key)) = from.rsplit_once('/') else { return };
    let Some(parent) = object.pointer_mut(place).and_then(Value::as_object_mut) else { return };
    let Some(value) = parent.remove(key) else { return };
    let alone = parent.is_empty() && place.matches('/').count() > 1;
    let mut now = &mut *object;
    for key in to.split('/').skip(1) {
        now = &mut now[key];
    }
    *now = value;
    if alone && let Some((above, key)) = place.rsplit_once('/') {
        object.pointer_mut(above).and_then(Value::as_object_mut).map(|above| above.remove(key));
    }
}
