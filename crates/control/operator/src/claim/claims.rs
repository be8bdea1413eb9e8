//! State that all looks at claims share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::metal3::{HostClaim, HostDeployPolicy};
use host_claims::Expressions;
use kube::ResourceExt as _;
use kube::runtime::reflector::{ObjectRef, Store};

use crate::host::Context;
use crate::host::objects::Objects;
use crate::host::readable::Marks;

/// What a look works with.
pub(crate) struct Claims {
    /// The host controller's view.
    pub host: Arc<Context>,
    /// The claims as the watch shows them.
    pub store: Store<HostClaim>,
    /// Which of them cannot be read.
    pub unreadable: Arc<Marks>,
    /// The policies: whose claims a namespace admits.
    pub policies: Objects<HostDeployPolicy>,
    /// Expressions of the policies.
    pub expressions: Mutex<Expressions>,
    /// Hosts, by uid, that were chosen for a claim and may not show it yet. This only avoids conflicts between claims; the host's version decides.
    pub promised: Mutex<HashMap<String, Promise>>,
}

/// The claim that a host is promised to.
pub(crate) struct Promise {
    /// The claim.
    pub claim: ObjectRef<HostClaim>,
    /// Its uid.
    pub uid: String,
}

impl Claims {
    /// The expressions, locked until the guard is dropped.
    pub fn expressions(&self) -> MutexGuard<'_, Expressions> {
        self.expressions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the promises to this claim, and to claims that no longer exist.
    pub fn forget_promises(&self, uid: &str) {
        let is_there =
            |to: &Promise| self.store.get(&to.claim).is_some_and(|claim| claim.uid().as_ref() == Some(&to.uid));
        self.promised().retain(|_, to| to.uid != uid && is_there(to));
    }

    /// The promised hosts, locked until the guard is dropped.
    pub fn promised(&self) -> MutexGuard<'_, HashMap<String, Promise>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
