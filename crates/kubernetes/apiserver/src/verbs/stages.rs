//! The stages of a write: their order, and the forms of writes that each belongs to.
//!
//! [`super::write`] runs them.

/// The form of a write. A part is a subresource that is written on its own, such as the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Creates an object.
    Create,
    /// Creates an object by server-side apply.
    CreateApplied,
    /// Replaces an object.
    Update,
    /// Replaces a part of it.
    UpdatePart,
    /// Patches an object.
    Patch,
    /// Patches a part of it.
    PatchPart,
    /// Changes an object by server-side apply.
    Apply,
    /// Changes a part of it by server-side apply.
    ApplyPart,
    /// Changes an object through its Scale, which admission has reviewed already.
    Scale,
    /// Changes it through its Scale by server-side apply.
    ScaleApplied,
    /// Deletes an object, on its own or with its collection.
    Delete,
    /// Deletes the objects of a deleted definition, without admission.
    Empty,
}

/// A step of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reads the stored object, in the version of the request.
    Load,
    /// Computes the wanted object from the present one.
    Merge,
    /// Compares version and UID with those given by the client.
    Preconditions,
    /// Drops fields that clients cannot set on a new object.
    Wipe,
    /// Updates the field owners.
    Owners,
    /// Sets the version that a patched object was made from, which webhooks see.
    PatchedVersion,
    /// Lets webhooks change the object.
    Mutate,
    /// Refuses changes to immutable metadata.
    Identity,
    /// Checks the rights that the kind requires besides those to the resource.
    ExtraRights,
    /// Refuses new objects of a terminating definition.
    Served,
    /// Generates a name.
    Name,
    /// Finds the namespace, which must not change until the commit.
    Namespace,
    /// Sets what only the server may set, and keeps what may not change.
    Prepare,
    /// Claims addresses and ports.
    Allocate,
    /// Validates the object.
    Validate,
    /// Warns about what is valid but unwise.
    Warn,
    /// Keeps the times of owners whose fields did not change.
    OwnersTimes,
    /// Checks the right to read the parameters that a policy names.
    ParamRights,
    /// Sets a missing resourceVersion to the present one.
    Version,
    /// Asks policies and webhooks about the object.
    Admit,
    /// Marks the object as being deleted.
    Mark,
    /// Checks the namespace's quotas, and locks the namespace if one of them limits the object.
    Quota,
    /// Ends a dry run.
    DryRun,
    /// Fills in the default of a custom resource's status.
    DefaultStatus,
    /// Stores the object in its storage version. A conflict starts another attempt.
    Store,
    /// Records changed annotations in the audit log.
    Audit,
    /// Accepts a definition's names.
    Establish,
}

use Form::{
    Apply, ApplyPart, Create, CreateApplied, Delete, Empty, Patch, PatchPart, Scale, ScaleApplied, Update, UpdatePart,
};

/// Forms that change an existing object.
const CHANGES: &[Form] = &[Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart, Scale, ScaleApplied];
const NEW: &[Form] = &[Create, CreateApplied];
const WRITES: &[Form] =
    &[Create, CreateApplied, Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart, Scale, ScaleApplied];
const PRESENT: &[Form] = &[Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart, Scale, ScaleApplied, Delete, Empty];
const ALL: &[Form] = &[
    Create,
    CreateApplied,
    Update,
    UpdatePart,
    Patch,
    PatchPart,
    Apply,
    ApplyPart,
    Scale,
    ScaleApplied,
    Delete,
    Empty,
];

/// All stages in order, each with its forms.
const PIPELINE: [(Stage, &[Form]); 27] = [
    (Stage::Load, PRESENT),
    (Stage::Merge, CHANGES),
    (Stage::Preconditions, PRESENT),
    (Stage::Wipe, NEW),
    (Stage::Owners, &[Create, Update, UpdatePart, Patch, PatchPart, Scale]),
    (Stage::PatchedVersion, &[Patch, PatchPart, Apply, ApplyPart]),
    (Stage::Mutate, &[Create, CreateApplied, Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart]),
    (Stage::Identity, CHANGES),
    (Stage::ExtraRights, WRITES),
    (Stage::Served, NEW),
    (Stage::Name, NEW),
    (Stage::Namespace, NEW),
    (Stage::Prepare, WRITES),
    (Stage::Allocate, &[Create, CreateApplied, Update, Patch, Apply]),
    (Stage::Validate, WRITES),
    (Stage::Warn, WRITES),
    (Stage::OwnersTimes, CHANGES),
    (Stage::ParamRights, WRITES),
    (Stage::Version, &[Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart]),
    (Stage::Admit, &[Create, CreateApplied, Update, UpdatePart, Patch, PatchPart, Apply, ApplyPart, Delete]),
    (Stage::Mark, &[Delete, Empty]),
    (Stage::Quota, WRITES),
    (Stage::DryRun, ALL),
    (Stage::DefaultStatus, NEW),
    (Stage::Store, ALL),
    (Stage::Audit, WRITES),
    (Stage::Establish, WRITES),
];

impl Form {
    /// The form of a change to an existing object.
    pub fn of_change(part: bool, patched: bool, applied: bool, admitted: bool) -> Self {
        match (admitted, applied, patched, part) {
            (true, true, ..) => ScaleApplied,
            (true, false, ..) => Scale,
            (false, true, _, false) => Apply,
            (false, true, _, true) => ApplyPart,
            (false, false, true, false) => Patch,
            (false, false, true, true) => PatchPart,
            (false, false, false, false) => Update,
            (false, false, false, true) => UpdatePart,
        }
    }

    /// Its stages, in order.
    pub fn stages(self) -> impl Iterator<Item = Stage> {
        PIPELINE.into_iter().filter(move |(_, forms)| forms.contains(&self)).map(|(stage, _)| stage)
    }

    /// The stage at which another attempt begins after a conflict. New objects do not repeat the mutating webhooks.
    pub fn attempt(self) -> Stage {
        if NEW.contains(&self) { Stage::Name } else { Stage::Load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(form: Form, stage: Stage) -> Option<usize> {
        form.stages().position(|s| s == stage)
    }

    #[test]
    fn each_stage_occurs_once() {
        let stages: std::collections::HashSet<Stage> = PIPELINE.into_iter().map(|(stage, _)| stage).collect();
        assert_eq!(stages.len(), PIPELINE.len());
    }

    #[test]
    fn nothing_is_stored_that_was_not_checked_and_nothing_changes_after_admission() {
        for form in ALL.iter().copied() {
            let at = |stage| place(form, stage);
            let store = at(Stage::Store).unwrap();
            assert_eq!(at(Stage::DryRun).map(|dry| dry < store), Some(true), "{form:?}");
            for check in [Stage::Validate, Stage::ExtraRights, Stage::ParamRights, Stage::Quota] {
                assert_eq!(
                    at(check).map(|at| at < store),
                    WRITES.contains(&form).then_some(true),
                    "{form:?} {check:?}"
                );
            }
            let Some(admit) = at(Stage::Admit) else {
                assert!(matches!(form, Scale | ScaleApplied | Empty), "{form:?} is stored and nobody is asked");
                continue;
            };
            let before = [Stage::Merge, Stage::Wipe, Stage::Owners, Stage::Mutate, Stage::Name, Stage::Prepare];
            let before =
                before.into_iter().chain([Stage::Allocate, Stage::Validate, Stage::OwnersTimes, Stage::Version]);
            for stage in before.filter_map(at) {
                assert!(stage < admit, "{form:?}");
            }
        }
    }

    #[test]
    fn another_attempt_begins_with_what_others_may_have_changed() {
        for form in ALL.iter().copied() {
            let first = place(form, form.attempt()).unwrap();
            for stage in [Stage::Load, Stage::Merge, Stage::Namespace, Stage::Validate, Stage::Store] {
                assert!(place(form, stage).is_none_or(|at| at >= first), "{form:?} {stage:?}");
            }
        }
    }
}
