//! The audit log: one JSON line per request, an Event of `audit.k8s.io/v1` at level Metadata.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::rbac::{Attributes, Decision};
use crate::status::ApiError;
use crate::user::User;

/// An open log.
pub struct Audit {
    file: Mutex<File>,
}

/// Annotations collected during a request. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Annotations(Arc<Mutex<Map<String, Value>>>);

impl Annotations {
    /// Adds an annotation unless its key exists.
    pub fn add(&self, key: String, value: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_insert(Value::String(value));
    }

    fn take(&self) -> Map<String, Value> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An answered request. It contains no bodies, which may hold secrets.
pub struct Entry {
    /// The audit ID, which is also in the response.
    pub id: String,
    /// When it arrived.
    pub received: Timestamp,
    /// Address of the client.
    pub source: Option<IpAddr>,
    /// Path and query.
    pub uri: String,
    /// The User-Agent header.
    pub agent: String,
    /// Attributes of the request.
    pub asked: Attributes,
    /// The authenticated user.
    pub user: User,
    /// The impersonated user.
    pub impersonated: Option<User>,
    /// The authorization decision.
    pub decision: Option<Decision>,
    /// The error, if it failed.
    pub error: Option<ApiError>,
    /// HTTP status of the response.
    pub code: u16,
    /// Additional annotations.
    pub annotations: Annotations,
}

impl Audit {
    /// Opens the file for appending; creates it with mode 0600.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes one line for a request answered at `now`.
    pub fn write(&self, entry: &Entry, now: Timestamp) {
        let mut line = entry.to_json(now).to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "the audit log could not be written");
        }
    }
}

impl Entry {
    fn to_json(&self, now: Timestamp) -> Value {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let mut out = Map::new();
        let mut set = |key: &str, value: Value| out.insert(key.to_owned(), value);
        set("kind", json!("Event"));
        set("apiVersion", json!("audit.k8s.io/v1"));
        set("level", json!("Metadata"));
        set("auditID", json!(self.id));
        set("stage", json!("ResponseComplete"));
        set("requestURI", json!(self.uri));
        set("verb", json!(self.asked.verb));
        set("user", self.user.to_json());
        if let Some(user) = &self.impersonated {
            set("impersonatedUser", user.to_json());
        }
        if let Some(source) = self.source {
            set("sourceIPs", json!([source.to_string()]));
        }
        if !self.agent.is_empty() {
            set("userAgent", json!(self.agent));
        }
        if self.asked.is_resource {
            set("objectRef", self.object());
        }
        let mut status = json!({"metadata": {}});
        if let Some(error) = &self.error {
            status["status"] = json!("Failure");
            status["message"] = json!(error.message);
            status["reason"] = json!(error.reason.as_str());
        }
        status["code"] = json!(self.code);
        set("responseStatus", status);
        set("requestReceivedTimestamp", json!(time(self.received)));
        set("stageTimestamp", json!(time(now)));
        let mut annotations = self.annotations.take();
        if let Some(decision) = &self.decision {
            let verdict = if decision.allowed { "allow" } else { "forbid" };
            annotations.insert("authorization.k8s.io/decision".to_owned(), json!(verdict));
            annotations.insert("authorization.k8s.io/reason".to_owned(), json!(decision.reason));
        }
        if !annotations.is_empty() {
            set("annotations", Value::Object(annotations));
        }
        Value::Object(out)
    }

    fn object(&self) -> Value {
        let asked = &self.asked;
        let mut out = Map::new();
        for (key, value) in [
            ("resource", &asked.resource),
            ("namespace", &asked.ns),
            ("name", &asked.name),
            ("apiGroup", &asked.group),
            ("apiVersion", &asked.version),
            ("subresource", &asked.sub),
        ] {
            if !value.is_empty() {
                out.insert(key.to_owned(), json!(value));
            }
        }
        Value::Object(out)
    }
}
