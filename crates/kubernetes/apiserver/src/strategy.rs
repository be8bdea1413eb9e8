//! The strategy of a kind: a trait that combines `rest.RESTCreateStrategy`, `rest.RESTUpdateStrategy` and
//! `rest.RESTDeleteStrategy` of k8s.io/apiserver, and the row of a built-in kind in the table.
//!
//! Built-in kinds are in [`crate::strategies`], one file per kind; custom resources have [`crate::crd::custom`].
//! Other code calls the [`Resource`]'s strategy and does not depend on names of kinds.

use std::fmt;

use crate::object::Object;
use crate::resource::Resource;
use crate::status::FieldError;
use crate::user::User;

/// How `metadata.generation` follows the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// There is no generation.
    None,
    /// It is always 1.
    First,
    /// It counts changes of the desired state.
    Counted,
}

/// Extra checks of an object's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataChecks {
    /// Finalizers are standard ones or have a domain.
    Core,
    /// As [`MetadataChecks::Core`], and a changed object is also checked like a new one, which repeats some errors.
    CoreTwice,
    /// A new object's metadata is checked after the rest, and only if that is valid; a changed object's metadata has
    /// fewer checks.
    CoreEvent,
    /// None.
    Plain,
}

/// Rights that a write needs besides those to the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraRights {
    /// None.
    None,
    /// To write a role, a user needs the rights it grants, or `escalate` ([`crate::auth::escalation`]).
    Role,
    /// To write a binding, a user needs the rights of its role, or `bind` on that role.
    Binding,
    /// To approve or sign, a user needs rights to the signer ([`crate::auth::signers`]).
    Signer,
    /// To write a policy, a user needs read access to its parameters ([`crate::verbs::policy_rights`]).
    Policy,
    /// To write a policy's binding, a user needs read access to the parameters that it names.
    PolicyBinding,
}

/// The context of a write.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    /// The resource of the object.
    pub resource: &'a Resource,
    /// Its former state; `None` if it is new.
    pub old: Option<&'a Object>,
    /// The subresource of the write, empty for the object itself.
    pub sub: &'a str,
}

/// The results of validation.
#[derive(Debug, Default)]
pub struct Findings {
    /// Errors, which refuse the write.
    pub errors: Vec<FieldError>,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// The behaviour of a kind. The defaults are for kinds without rules of their own.
pub trait Strategy: fmt::Debug + Send + Sync {
    /// Fills in defaults of a new or changed object after decoding.
    fn defaults(&self, _object: &mut Object) {}

    /// Sets what only the server may set on a new object.
    fn prepare_create(&self, _object: &mut Object) {}

    /// Records the requesting user in a new object, if the kind has a field for it.
    fn set_requester(&self, _object: &mut Object, _user: &User) {}

    /// Keeps fields that an update of the whole object may not change.
    fn prepare_update(&self, _object: &mut Object, _old: &Object) {}

    /// Keeps status fields that a write through the subresource `sub` may not change.
    fn prepare_part(&self, _object: &mut Object, _old: &Object, _sub: &str) {}

    /// Validates an object.
    fn validate(&self, _writing: &Writing<'_>, _object: &Object, _found: &mut Findings) {}

    /// Warnings about an object that has not been validated yet.
    fn warnings(&self, _writing: &Writing<'_>, _object: &Object) -> Vec<String> {
        Vec::new()
    }

    /// Errors in the name of an object, or in the prefix of a generated name (`prefix`).
    fn wrong_name(&self, _object: &Object, name: &str, prefix: bool) -> Vec<String> {
        names::dns_1123_subdomain(&masked(name, prefix))
    }

    /// The extra checks of its metadata.
    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::Core
    }

    /// Rights that a write needs besides those to the resource.
    fn extra_rights(&self) -> ExtraRights {
        ExtraRights::None
    }

    /// Whether objects are assigned addresses and ports before they are stored ([`crate::allocation`]).
    fn takes_addresses(&self) -> bool {
        false
    }

    /// The quota usage that depends on an object's fields, besides its count.
    fn usage(&self, _object: &Object) -> Vec<(&'static str, i64)> {
        Vec::new()
    }

    /// How the generation follows the object.
    fn generation(&self) -> Generation {
        Generation::None
    }

    /// Whether labels are part of the desired state, so that their changes increment the generation.
    fn labels_are_desired(&self) -> bool {
        false
    }

    /// Whether a new object keeps the client's status.
    fn keeps_first_status(&self) -> bool {
        false
    }

    /// Whether a write of a part (such as the status) also writes the metadata, as for core kinds.
    fn parts_take_metadata(&self) -> bool {
        false
    }

    /// Fields that a write of the status cannot change (`GetResetFields` of upstream's status strategies).
    fn reset_by_status(&self) -> &'static [&'static [&'static str]] {
        &[&["spec"]]
    }

    /// Whether an update may omit the resourceVersion.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// Whether an update creates an absent object.
    fn allows_create_on_update(&self) -> bool {
        false
    }

    /// Path of the objects in upstream's storage, below `/registry`. Errors about UIDs contain it.
    fn registry_folder(&self, resource: &Resource) -> String {
        resource.plural.clone()
    }

    /// Subresources besides `status` and `scale`.
    fn subresources(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a whole collection can be deleted at once.
    fn deletes_collections(&self) -> bool {
        true
    }

    /// Whether the object of this name cannot be deleted.
    fn is_protected(&self, _name: &str) -> bool {
        false
    }

    /// Whether the kind itself checks the preconditions of a deletion: upstream's errors differ in this case.
    fn checks_preconditions(&self) -> bool {
        false
    }

    /// A finalizer that is added when the deletion begins.
    fn deletion_finalizer(&self) -> Option<&'static str> {
        None
    }

    /// Marks the begin of a deletion at `now` in the object, besides the common marks.
    fn begin_deletion(&self, _object: &mut Object, _now: &str) {}

    /// Whether anything besides metadata finalizers keeps an object in deletion.
    fn is_held(&self, _object: &Object) -> bool {
        false
    }

    /// Whether a deletion returns the object's last state.
    fn shows_deleted(&self) -> bool {
        false
    }

    /// Field labels for selectors besides name and namespace, each with the path of its field, which is empty if it
    /// is the same.
    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The value that a selector compares with if the field of this label is absent or empty.
    fn if_absent(&self, _label: &str, _object: &Object) -> String {
        String::new()
    }

    /// Whether the kind converts field labels itself: upstream's errors for unknown labels differ in this case.
    fn converts_field_labels(&self) -> bool {
        false
    }

    /// Whether objects are reviews: created, answered and never stored.
    fn is_review(&self) -> bool {
        false
    }

    /// Whether an object defines resources that are served once it is stored.
    fn defines_resources(&self) -> bool {
        false
    }

    /// The group of the kind that stores these objects, if this kind is only a view of it.
    fn view_of(&self) -> Option<&'static str> {
        None
    }

    /// Converts a stored object to this kind.
    fn view_stored(&self, _object: &mut Object) {}

    /// Converts an object to its stored form.
    fn to_stored(&self, _object: &mut Object) {}

    /// The version in which upstream stores the kind, if it differs from the served one.
    fn stored_version(&self) -> Option<&'static str> {
        None
    }
}

/// The name to validate: a prefix of a generated name may end in characters that a name may not end in.
pub fn masked(name: &str, prefix: bool) -> String {
    if prefix { names::masked(name).into() } else { name.to_owned() }
}

/// A kind without rules of its own.
#[derive(Debug)]
pub struct Plain;

impl Strategy for Plain {}

/// A built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// Name: singular and capitalized.
    pub kind: &'static str,
    /// Name of the resource.
    pub plural: &'static str,
    /// Short names for clients.
    pub short_names: &'static [&'static str],
    /// Groups of resources for clients.
    pub categories: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a status subresource.
    pub status: bool,
    /// Deprecation warning for all users.
    pub deprecation: Option<&'static str>,
    /// Its strategy.
    pub strategy: &'static dyn Strategy,
}

impl Kind {
    /// The version of all built-in kinds.
    pub const VERSION: &'static str = "v1";

    /// A namespaced kind of the core group without a status, as a base for others.
    pub const NEW: Self = Self {
        group: "",
        kind: "",
        plural: "",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: false,
        deprecation: None,
        strategy: &Plain,
    };
}
