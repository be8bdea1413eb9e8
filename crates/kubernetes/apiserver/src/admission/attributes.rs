//! A change as admission sees it.

use crate::change::Change;
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::ApiResult;

/// API group of the configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// The operation on an object, in the terms of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// An object removed.
    Delete,
}

impl Operation {
    /// Its name in rules and reviews.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Kind of its options.
    pub(super) fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// The object of a change.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object if it differs from the resource's: Scale, TokenRequest.
    pub kind: Option<&'a Resource>,
    /// Namespace, empty for cluster-scoped objects.
    pub ns: &'a str,
    /// Name in the request: empty if the server generates it, or for a collection.
    pub name: &'a str,
}

impl<'a> Subject<'a> {
    /// An object of the resource's own kind.
    pub fn of(resource: &'a Resource, ns: &'a str, name: &'a str) -> Self {
        Self { resource, kind: None, ns, name }
    }
}

/// A change as admission sees it, without the new object.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The user and options of the change.
    pub change: &'a Change,
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object if it differs from the resource's.
    pub kind: Option<&'a Resource>,
    /// Namespace; for a Namespace its own name; empty for other cluster-scoped objects.
    pub ns: &'a str,
    /// Object name; empty if the server generates it.
    pub name: &'a str,
    /// The operation.
    pub operation: Operation,
    /// The former object, if any.
    pub old: Option<&'a Object>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(
        change: &'a Change,
        subject: Subject<'a>,
        (object, old): (Option<&Object>, Option<&'a Object>),
    ) -> Self {
        let operation = match (object, old) {
            (None, _) => Operation::Delete,
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
        };
        let Subject { resource, kind, ns, name } = subject;
        let ns = if resource.is("", "namespaces") { name } else { ns };
        Self { change, resource, kind, ns, name, operation, old }
    }

    /// Converts an object of the request to the version of `seen_as`. Scales and the like have one version only.
    pub(super) async fn in_version(&self, objects: &Objects, object: Object, seen_as: &Resource) -> ApiResult<Object> {
        if self.kind.is_some() {
            return Ok(object);
        }
        objects.in_version(object, self.resource, seen_as).await
    }

    /// Whether webhooks never see this change: a broken configuration must remain repairable.
    pub(super) fn hides_from_webhooks(&self) -> bool {
        self.resource.group == GROUP
    }

    /// Whether policies never see this change.
    pub(super) fn hides_from_policies(&self) -> bool {
        self.resource.group == GROUP && self.resource.plural.starts_with("validatingadmissionpolic")
    }
}
