//! CustomResourceDefinitions: what is checked of them, and their life. What they define is [`crate::crd`].

pub mod conversion;
pub mod definition;
pub mod lifecycle;
mod schema_rules;

use crate::object::{Object, child};
use crate::resource::Resource;
use crate::strategy::{Findings, Generation, Kind, MetadataChecks, Strategy, Writing, masked};

/// The kind's row in the table.
pub const KIND: Kind = Kind {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    namespaced: false,
    status: true,
    strategy: &CustomResourceDefinition,
    ..Kind::NEW
};

/// The rules of CustomResourceDefinitions.
#[derive(Debug)]
struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn defaults(&self, object: &mut Object) {
        lifecycle::defaults(object);
    }

    fn prepare_create(&self, object: &mut Object) {
        lifecycle::first_status(object);
    }

    fn prepare_update(&self, object: &mut Object, _: &Object) {
        lifecycle::remember_storage(object);
    }

    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        if writing.sub == "status" {
            definition::validate_status(object, &mut found.errors);
        } else {
            found.errors.extend(definition::validate(object, writing.old));
        }
    }

    fn warnings(&self, writing: &Writing<'_>, object: &Object) -> Vec<String> {
        if !writing.sub.is_empty() {
            return Vec::new();
        }
        let before = writing.old.map(definition::unknown_formats).unwrap_or_default();
        let added = definition::unknown_formats(object).into_iter().filter(|format| !before.contains(format));
        added.map(|format| format!("unrecognized format {}", gotext::quote(&format))).collect()
    }

    fn wrong_name(&self, object: &Object, given: &str, prefix: bool) -> Vec<String> {
        let mut errors = names::dns_1123_subdomain(&masked(given, prefix));
        let (group, plural) = crate::crd::names(object);
        if given != format!("{plural}.{group}") {
            errors.push("must be spec.names.plural+\".\"+spec.group".to_owned());
        }
        errors
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::Plain
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn reset_by_status(&self) -> &'static [&'static [&'static str]] {
        &[&["metadata"], &["spec"]]
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn registry_folder(&self, resource: &Resource) -> String {
        format!("{}/{}", resource.group, resource.plural)
    }

    fn checks_preconditions(&self) -> bool {
        true
    }

    fn deletion_finalizer(&self) -> Option<&'static str> {
        Some(lifecycle::CLEANUP)
    }

    fn begin_deletion(&self, object: &mut Object, now: &str) {
        lifecycle::set_condition(
            child(object, "status"),
            "Terminating",
            true,
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            now,
        );
    }

    fn defines_resources(&self) -> bool {
        true
    }

    fn stored_version(&self) -> Option<&'static str> {
        // Upstream still stores them in the form of their first version.
        Some("v1beta1")
    }
}
