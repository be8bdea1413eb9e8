//! The strategy of custom resources: validation by their definition, and rules common to all of them.

use super::check;
use crate::meta;
use crate::object::Object;
use crate::resource::Resource;
use crate::strategy::{Findings, Generation, MetadataChecks, Strategy, Writing};

/// The strategy of custom resources; the schema is part of the [`Resource`].
#[derive(Debug)]
pub struct Custom;

impl Strategy for Custom {
    fn validate(&self, writing: &Writing<'_>, object: &Object, found: &mut Findings) {
        let warnings = check::validate(writing.resource, object, writing.old, writing.sub, &mut found.errors);
        found.warnings.extend(warnings);
    }

    fn warnings(&self, writing: &Writing<'_>, object: &Object) -> Vec<String> {
        if writing.sub.is_empty() { meta::finalizer_warnings(object, writing.old) } else { Vec::new() }
    }

    fn metadata_checks(&self) -> MetadataChecks {
        MetadataChecks::Plain
    }

    fn generation(&self) -> Generation {
        Generation::Counted
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn registry_folder(&self, resource: &Resource) -> String {
        format!("{}/{}", resource.group, resource.plural)
    }

    fn converts_field_labels(&self) -> bool {
        true
    }
}
