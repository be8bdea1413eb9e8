//! Questions: kinds whose objects are answered and never stored ([`crate::verbs::reviews`]).

use crate::strategy::{Kind, Strategy};

/// Their rows in the table.
pub const KINDS: [Kind; 6] = [
    access("SubjectAccessReview", "subjectaccessreviews"),
    Kind { namespaced: true, ..access("LocalSubjectAccessReview", "localsubjectaccessreviews") },
    access("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    access("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    identity("SelfSubjectReview", "selfsubjectreviews"),
    identity("TokenReview", "tokenreviews"),
];

const fn access(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "authorization.k8s.io", kind, plural, namespaced: false, strategy: &Review, ..Kind::NEW }
}

const fn identity(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "authentication.k8s.io", ..access(kind, plural) }
}

/// The rules of all of them.
#[derive(Debug)]
struct Review;

impl Strategy for Review {
    fn is_review(&self) -> bool {
        true
    }
}
