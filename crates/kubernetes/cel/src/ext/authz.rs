//! The authorizer in expressions (`library/authz.go`).

use std::fmt;
use std::sync::Arc;

/// A request to be authorized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// The namespace and name of a service account, to check in place of the request's user.
    pub service_account: Option<(String, String)>,
    /// The path, for requests that are for no resource.
    pub path: Option<String>,
    /// API group.
    pub group: String,
    /// Resource, plural.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name, or empty.
    pub name: String,
    /// Field selector, or empty.
    pub field_selector: String,
    /// Label selector, or empty.
    pub label_selector: String,
    /// Verb.
    pub verb: String,
}

/// The authorizer's decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// The error, if any.
    pub error: Option<String>,
}

/// Answers whether requests are allowed.
pub trait Authorizer: Send + Sync + fmt::Debug {
    /// Judges a request.
    fn authorize(&self, request: &Request) -> Decision;
}

/// The variable `authorizer`.
#[derive(Debug, Clone)]
pub struct Authorization {
    pub(crate) judge: Arc<dyn Authorizer>,
    pub(crate) request: Request,
}

impl Authorization {
    pub(crate) fn with(&self, change: impl FnOnce(&mut Request)) -> Self {
        let mut next = self.clone();
        change(&mut next.request);
        next
    }
}

/// A check of a path.
#[derive(Debug, Clone)]
pub struct PathCheck(pub(crate) Authorization);

/// A check within a group.
#[derive(Debug, Clone)]
pub struct GroupCheck(pub(crate) Authorization);

/// A check of a resource.
#[derive(Debug, Clone)]
pub struct ResourceCheck(pub(crate) Authorization);
