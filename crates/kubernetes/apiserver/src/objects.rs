//! What can be read: stored objects, what is served, who may do what, the time.

use std::sync::Arc;

use crate::given::Given;
use crate::object::Object;
use crate::rbac::index::Index;
use crate::registry::Registry;
use crate::resource::Resource;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, Row, Store, StoreError, Stored};

/// The bottom that authentication, admission and verbs stand on. [`select`](crate::select) lists, [`conversion`](crate::conversion)
/// brings what is stored to other versions.
pub struct Objects {
    /// The store.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// Roles, bindings and service accounts.
    pub rights: Arc<Index>,
    /// Time and chance.
    pub given: Arc<Given>,
}

impl Objects {
    /// The stored object at a key.
    pub async fn stored(&self, key: &Key) -> ApiResult<Option<Stored>> {
        let row = self.store.get(key).await.map_err(store_failed)?;
        Ok(row.map(|Row { rev, body, .. }| Stored { rev, tail: body }))
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
