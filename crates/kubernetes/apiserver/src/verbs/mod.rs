//! What is done to objects. Each verb takes a [`Request`] and gives a response; the parts that controllers need too
//! stand on [`Backend`].

pub mod apply;
mod audited;
pub mod body;
pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod meta;
pub mod options;
mod owners;
pub mod patch;
pub mod scale;
pub mod strategy;
pub mod tokens;
pub mod update;
pub mod watch;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::audit::Annotations;
use crate::auth::{Auth, User};
use crate::builtin::allocation::Allocator;
use crate::fields::options::manager_of;
use crate::given::Given;
use crate::media::Accept;
use crate::object::Object;
use crate::quota::Quotas;
use crate::resource::{Registry, Resource};
use crate::route::{Query, ResourceTarget, Verb};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::{EventsError, Expect, Guard, Key, Op, Row, Store, StoreError, Write, WriteError};

/// Attempts of a change that others keep overtaking.
pub const ATTEMPTS: usize = 16;

/// Store and catalog: all that verbs and controllers work on.
pub struct Backend {
    /// The store.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// Ends watches when the server stops.
    pub stop: CancellationToken,
    /// Users and rights.
    pub auth: Auth,
    /// Webhooks that have a say in changes.
    pub admission: Admission,
    /// Addresses and node ports of Services.
    pub allocator: Allocator,
    /// Quotas of namespaces.
    pub quotas: Quotas,
    /// Annotations whose changes are told to the audit log.
    pub audited: std::sync::OnceLock<Vec<String>>,
    /// Time and chance.
    pub given: Arc<Given>,
}

/// A decoded request for a resource.
pub struct Request {
    /// What is asked of what.
    pub target: ResourceTarget,
    /// Query parameters.
    pub query: Query,
    /// What the client accepts.
    pub accept: Accept,
    /// Media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// Warnings for the client, in order.
    pub warnings: Vec<String>,
    /// Who asks.
    pub user: User,
    /// The client's own name of itself, as in its header.
    pub agent: String,
    /// What the audit log shall say besides.
    pub audit: Annotations,
}

/// Who changes something and how: goes with an object from its decoding to the store, for all that has a say on the way.
#[derive(Debug)]
pub struct Change {
    /// Who asks.
    pub user: User,
    /// Name under which the changed fields are owned (`metadata.managedFields`).
    pub manager: String,
    /// What is done.
    pub verb: Verb,
    /// Subresource, empty for the object itself.
    pub sub: String,
    /// Whether nothing shall be stored.
    pub dry: bool,
    /// Whether the object says already who owns its fields: server-side apply does that while it merges.
    pub applied: bool,
    /// The options of the request (`CreateOptions` and so on) as admission shows them, without kind.
    pub options: Object,
    /// Whether admission has spoken already, on another form of the object.
    pub admitted: bool,
    warnings: Mutex<Vec<String>>,
    audit: Annotations,
}

impl Change {
    /// A change that one of the server's own controllers makes, under the name that the controller has upstream.
    pub fn own(verb: Verb, controller: &str) -> Self {
        Self {
            user: User::controller(controller),
            manager: "kube-controller-manager".to_owned(),
            verb,
            sub: String::new(),
            dry: false,
            applied: false,
            options: Object::new(),
            admitted: false,
            warnings: Mutex::default(),
            audit: Annotations::default(),
        }
    }

    /// Tells the client something that does not stop the change.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    /// Tells the audit log something. What was told first under a key stays.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.audit.add(key.into(), value.into());
    }

    /// What was told, once.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A stored object with its revision.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Revision that wrote it.
    pub rev: u64,
    /// Its tail as stored.
    pub tail: Bytes,
}

/// What to do with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop silently.
    Ignore,
    /// Drop with a warning.
    Warn,
    /// Refuse.
    Strict,
}

impl Request {
    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.target.resource
    }

    /// The change that the request asks for.
    pub fn change(&self) -> ApiResult<Change> {
        let manager = match self.query.get("fieldManager") {
            "" => manager_of(&self.agent),
            given => given.to_owned(),
        };
        Ok(Change {
            user: self.user.clone(),
            manager,
            verb: self.target.verb,
            sub: self.target.sub.clone(),
            dry: self.dry_run(),
            applied: false,
            options: self.options(),
            admitted: false,
            warnings: Mutex::default(),
            audit: self.audit.clone(),
        })
    }

    /// The options that the query gives.
    fn options(&self) -> Object {
        let mut options = Object::new();
        let dry: Vec<&str> = self.query.all("dryRun").collect();
        if !dry.is_empty() {
            options.insert("dryRun".into(), serde_json::json!(dry));
        }
        for key in ["fieldManager", "fieldValidation"] {
            let given = self.query.get(key);
            if !given.is_empty() {
                options.insert(key.into(), serde_json::json!(given));
            }
        }
        options
    }

    /// Whether nothing shall be stored.
    pub fn dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }

    /// What to do with unknown and duplicate fields.
    pub fn field_validation(&self) -> FieldValidation {
        match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// Tells what a strict decoder found as the client wishes. The error is the strict one's text.
    pub fn tell(&mut self, found: Vec<String>) -> Result<(), String> {
        match self.field_validation() {
            _ if found.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                self.warnings.extend(found.iter().flat_map(|text| lines(text)));
                Ok(())
            }
            FieldValidation::Strict => Err(format!("strict decoding error: {}", found.join(", "))),
        }
    }

    /// The key of the named object.
    pub fn key(&self) -> Key {
        self.resource().key(&self.target.ns, &self.target.name)
    }

    /// 404 for the named object.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource().group, &self.resource().plural, &self.target.name)
    }
}

/// The warnings of an error: those about YAML have a line each.
pub fn lines(text: &str) -> Vec<String> {
    let yaml = "yaml: unmarshal errors:\n";
    let rest = text.strip_prefix("error converting YAML to JSON: ").unwrap_or(text).strip_prefix(yaml);
    match rest {
        Some(rest) => rest.split('\n').map(|line| line.trim().to_owned()).collect(),
        None => vec![text.to_owned()],
    }
}

/// What is wrong with the values of a dry run's option.
pub fn wrong_dry_run(values: &[&str]) -> Option<FieldError> {
    values.iter().any(|v| *v != "All").then(|| FieldError::not_supported("dryRun", &values.into(), &["All"]))
}

impl Backend {
    /// The stored object at a key.
    pub async fn stored(&self, key: &Key) -> ApiResult<Option<Stored>> {
        let row = self.store.get(key).await.map_err(store_failed)?;
        Ok(row.map(|Row { rev, body, .. }| Stored { rev, tail: body }))
    }

    /// Writes an object whose former state is `old`; an object that nothing keeps any more is removed instead.
    pub async fn put(
        &self,
        resource: &Resource,
        key: Key,
        object: Object,
        old: Option<&Stored>,
        guard: Option<Guard>,
    ) -> Result<Stored, WriteError> {
        let gone = old.is_some() && strategy::may_go(resource, &object);
        let ending = crate::object::is_deleting(&object);
        let mut object = object;
        let tail = if let Some(storage) = self.registry.catalog().storage_version(resource) {
            storage.settle(&mut object);
            storage.tail(object)
        } else {
            resource.tail(object)
        };
        if let Some(old) = old
            && !gone
            && old.tail == tail
        {
            return Ok(old.clone());
        }
        let expect = old.map_or(Expect::Absent, |o| Expect::Rev(o.rev));
        let op = match (gone, ending) {
            (true, _) => Op::Delete(tail.clone()),
            (_, true) => Op::Ending(tail.clone()),
            _ => Op::Put(tail.clone()),
        };
        let rev = self.store.write(Write { key: key.clone(), expect, op, guard }).await?;
        let stored = Stored { rev, tail };
        if resource.group == "apiextensions.k8s.io" {
            self.definition_changed(&key.name, &stored, gone);
        }
        self.seen(&key, rev, (!gone).then_some(&stored.tail));
        // What is gone has no new version: clients see the one it had.
        Ok(Stored { rev: old.filter(|_| gone).map_or(rev, |o| o.rev), ..stored })
    }

    #[cfg(test)]
    pub fn for_tests() -> (Self, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap_or_else(|e| unreachable!("a folder for tests: {e}"));
        let store = Store::open(&dir.path().join("s.db"), &dir.path().join("keys"))
            .unwrap_or_else(|e| unreachable!("a store for tests: {e}"));
        let (registry, stop, auth) = (Registry::new(), CancellationToken::new(), Auth::for_tests());
        let (admission, allocator, quotas, audited, given) = Default::default();
        (Self { store, registry, stop, auth, admission, allocator, quotas, audited, given }, dir)
    }

    /// Notes a committed write where requests are answered from memory.
    pub fn seen(&self, key: &Key, rev: u64, tail: Option<&Bytes>) {
        self.auth.index.see(&key.resource, &key.ns, &key.name, rev, tail.map(|tail| &tail[..]));
        self.quotas.see(key, rev, tail.map(|tail| &tail[..]));
        self.allocator.see(&key.resource, &key.ns, &key.name, rev, tail.map(|tail| &tail[..]));
    }

    /// Serves a definition as it now is.
    pub fn definition_changed(&self, name: &str, stored: &Stored, gone: bool) {
        let Some((plural, group)) = name.split_once('.') else { return };
        let resources = if gone {
            Arc::default()
        } else {
            self.registry.compiled.of(name, stored, || {
                crate::object::from_tail("", "", stored.rev, &stored.tail)
                    .map(|crd| crate::crd::resources(&crd, stored.rev))
                    .unwrap_or_default()
            })
        };
        self.registry.replace(group, plural, stored.rev, resources.iter().cloned());
    }

    /// Decodes a stored object.
    pub fn load(&self, resource: &Resource, stored: &Stored) -> ApiResult<Object> {
        resource
            .load(stored.rev, &stored.tail)
            .map_err(|e| ApiError::internal(format!("a stored object is damaged: {e}")))
    }
}

/// A failed read.
pub fn store_failed(error: StoreError) -> ApiError {
    match error {
        StoreError::Compacted { .. } => ApiError::expired("The resourceVersion for the provided list is too old."),
        other => {
            use std::error::Error as _;
            let cause = other.source().map(|s| format!(": {s}")).unwrap_or_default();
            ApiError::internal(format!("{other}{cause}"))
        }
    }
}

/// A failed read of history.
pub fn history_failed(error: EventsError, asked: u64) -> ApiError {
    match error {
        EventsError::Compacted { oldest } => ApiError::expired(format!("too old resource version: {asked} ({oldest})")),
        EventsError::Store(text) => ApiError::internal(text),
    }
}

/// A failed write that is no conflict.
pub fn write_failed(error: WriteError) -> ApiError {
    match error {
        WriteError::Stopped => ApiError::new(
            http::StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            "the server takes no more writes: it is stopping, or its disk failed",
        ),
        full @ (WriteError::Full | WriteError::Limit { .. }) => {
            ApiError::new(http::StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", full.to_string())
        }
        other => ApiError::internal(other),
    }
}

#[cfg(test)]
mod flow_tests;
