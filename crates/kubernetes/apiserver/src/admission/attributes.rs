//! A change as admission sees it.

use crate::change::Change;
use crate::object::Object;
use crate::objects::Objects;
use crate::resource::Resource;
use crate::status::ApiResult;

/// API group of the configurations.
pub const GROUP: &str = "admissionregistration.k8s.io";

/// What is done to an object, in the words of admission.
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
    /// The word in rules and reviews.
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// Kind of the options that go with it.
    pub(super) fn options_kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// What a change is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object, if it is another one than the resource's: Scale, TokenRequest.
    pub kind: Option<&'a Resource>,
    /// Namespace, empty for cluster-scoped objects.
    pub ns: &'a str,
    /// Name as the request knows it: empty if the server makes it later, or if there are many.
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
    /// Who changes and how.
    pub change: &'a Change,
    /// The resource of the request.
    pub resource: &'a Resource,
    /// The kind of the object, if it is another one than the resource's.
    pub kind: Option<&'a Resource>,
    /// Namespace; for a Namespace its own name; empty for other cluster-scoped objects.
    pub ns: &'a str,
    /// Object name; empty if the server makes it later.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The object before, if there is one.
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

    /// An object of the request in the form in which `seen_as` has it. Scales and the like have one form only.
    pub(super) async fn in_version(&self, objects: &Objects, object: Object, seen_as: &Resource) -> ApiResult<Object> {
        if self.kind.is_some() {
            return Ok(object);
        }
        objects.in_version(object, self.resource, seen_as).await
    }

    /// Whether webhooks never see this: a broken configuration must not lock itself in.
    pub(super) fn hides_from_webhooks(&self) -> bool {
        self.resource.group == GROUP
    }

    /// Whether policies never see this.
    pub(super) fn hides_from_policies(&self) -> bool {
        self.resource.group == GROUP && self.resource.plural.starts_with("validatingadmissionpolic")
    }
}
