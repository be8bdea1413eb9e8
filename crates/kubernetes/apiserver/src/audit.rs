//! The audit log: one JSON line per request, an Event of `audit.k8s.io/v1` at level Metadata.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;
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
        let written = serde_json::to_vec(&entry.line(now)).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            // A line is one write: it stands whole between those of others.
            self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "the audit log could not be written");
        }
    }
}

/// A line, member by member as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    id: &'a str,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    uri: &'a str,
    verb: &'a str,
    user: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<Value>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Option::is_none")]
    sources: Option<[IpAddr; 1]>,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<Reference<'a>>,
    response_status: Answer<'a>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
}

/// The object that was asked for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
}

/// How it was answered.
#[derive(Serialize)]
struct Answer<'a> {
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    code: u16,
}

impl Entry {
    fn line(&self, now: Timestamp) -> Line<'_> {
        let time = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let mut annotations = self.annotations.take();
        if let Some(decision) = &self.decision {
            let verdict = if decision.allowed { "allow" } else { "forbid" };
            annotations.insert("authorization.k8s.io/decision".to_owned(), json!(verdict));
            annotations.insert("authorization.k8s.io/reason".to_owned(), json!(decision.reason));
        }
        let (asked, error) = (&self.asked, self.error.as_ref());
        Line {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            id: &self.id,
            stage: "ResponseComplete",
            uri: &self.uri,
            verb: &asked.verb,
            user: self.user.to_json(),
            impersonated_user: self.impersonated.as_ref().map(User::to_json),
            sources: self.source.map(|source| [source]),
            user_agent: &self.agent,
            object_ref: asked.is_resource.then_some(Reference {
                resource: &asked.resource,
                namespace: &asked.ns,
                name: &asked.name,
                api_group: &asked.group,
                api_version: &asked.version,
                subresource: &asked.sub,
            }),
            response_status: Answer {
                metadata: Map::new(),
                status: error.map(|_| "Failure"),
                message: error.map(|error| error.message.as_str()),
                reason: error.map(|error| error.reason.as_str()),
                code: self.code,
            },
            request_received_timestamp: time(self.received),
            stage_timestamp: time(now),
            annotations,
        }
    }
}
