//! The verbs. Each takes a [`Request`](crate::request::Request) and returns a response; what controllers need, too,
//! is implemented on [`Backend`].

pub mod apply;
mod audited;
pub mod body;
pub mod create;
pub mod definitions;
pub mod delete;
pub mod deletion;
pub mod get;
pub mod list;
pub mod options;
mod owners;
pub mod patch;
mod policy_rights;
pub mod prepare;
pub mod reviews;
pub mod scale;
mod stages;
pub mod token_request;
pub mod tokens;
pub mod update;
pub mod validate;
pub mod watch;
mod write;

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::admission::Admission;
use crate::allocation::Allocator;
use crate::auth::Auth;
use crate::object::Object;
use crate::objects::Objects;
use crate::quota::Quotas;
#[cfg(test)]
use crate::registry::Registry;
use crate::resource::Resource;
use crate::status::{ApiError, StatusReason};
#[cfg(test)]
use crate::store::Store;
use crate::store::{EventsError, Expect, Guard, Key, Op, Stored, Write, WriteError};
#[cfg(test)]
use crate::strategies;

/// Attempts of a change that conflicts with other writes.
pub const ATTEMPTS: usize = 16;

/// Everything that verbs and controllers use: the readable part ([`Objects`], to which it dereferences), and whatever
/// takes part in changes.
pub struct Backend {
    /// The readable part.
    pub objects: Objects,
    /// Ends watches when the server stops.
    pub stop: CancellationToken,
    /// Users and rights.
    pub auth: Auth,
    /// Admission webhooks and policies.
    pub admission: Admission,
    /// Addresses and node ports of Services.
    pub allocator: Allocator,
    /// Quotas of namespaces.
    pub quotas: Quotas,
    /// Annotations whose changes are recorded in the audit log.
    pub audited: std::sync::OnceLock<Vec<String>>,
}

impl Deref for Backend {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl Backend {
    /// Writes an object whose former state is `old`. An object in deletion without finalizers is removed instead.
    pub async fn put(
        &self,
        resource: &Resource,
        key: Key,
        object: Object,
        old: Option<&Stored>,
        guard: Option<Guard>,
    ) -> Result<Stored, WriteError> {
        let gone = old.is_some() && prepare::may_go(resource, &object);
        let ending = crate::object::is_deleting(&object);
        let mut object = object;
        let tail = if let Some(storage) = self.registry.catalog().storage_version(resource) {
            storage.prune_and_default(&mut object);
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
        if resource.strategy.defines_resources() {
            self.definition_changed(&key.name, &stored, gone);
        }
        self.seen(&key, rev, (!gone).then_some(&stored.tail));
        // A removed object is returned with its last resourceVersion.
        Ok(Stored { rev: old.filter(|_| gone).map_or(rev, |o| o.rev), ..stored })
    }

    #[cfg(test)]
    pub fn for_tests() -> (Self, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap_or_else(|e| unreachable!("a folder for tests: {e}"));
        let store = Store::open(&dir.path().join("s.db"), &dir.path().join("keys"))
            .unwrap_or_else(|e| unreachable!("a store for tests: {e}"));
        (Self::on(store), dir)
    }

    /// On a store alone.
    #[cfg(test)]
    pub fn on(store: Store) -> Self {
        let auth = Auth::for_tests();
        let (rights, given) = (Arc::clone(&auth.index), Arc::default());
        let objects = Objects { store, registry: Registry::new(strategies::kinds()), rights, given };
        let (admission, allocator, quotas, audited) = Default::default();
        Self { objects, stop: CancellationToken::new(), auth, admission, allocator, quotas, audited }
    }

    /// Updates the in-memory indexes after a committed write.
    pub fn seen(&self, key: &Key, rev: u64, tail: Option<&Bytes>) {
        self.auth.index.see(&key.resource, &key.ns, &key.name, rev, tail.map(|tail| &tail[..]));
        self.quotas.see(key, rev, tail.map(|tail| &tail[..]));
        self.allocator.see(&key.resource, &key.ns, &key.name, rev, tail.map(|tail| &tail[..]));
    }

    /// Serves the present state of a definition.
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
}

/// The error for a failed read of history.
pub fn history_failed(error: EventsError, asked: u64) -> ApiError {
    match error {
        EventsError::Compacted { oldest } => ApiError::expired(format!("too old resource version: {asked} ({oldest})")),
        EventsError::Store(text) => ApiError::internal(text),
    }
}

/// The error for a failed write other than a conflict.
pub fn write_failed(error: WriteError) -> ApiError {
    match error {
        WriteError::Stopped => ApiError::new(
            http::StatusCode::SERVICE_UNAVAILABLE,
            StatusReason::ServiceUnavailable,
            "the server takes no more writes: it is stopping, or its disk failed",
        ),
        full @ (WriteError::Full | WriteError::Limit { .. }) => {
            ApiError::new(http::StatusCode::INSUFFICIENT_STORAGE, StatusReason::InsufficientStorage, full.to_string())
        }
        other => ApiError::internal(other),
    }
}

#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod write_tests;
