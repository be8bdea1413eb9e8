//! Query parameters of writes that are about managers and validation (apimachinery `meta/v1/validation`).

use serde_json::json;

use super::managed;
use crate::route::Query;
use crate::status::{ApiError, ApiResult, FieldError};

/// Which options a write takes, by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Options {
    /// `CreateOptions`.
    Create,
    /// `UpdateOptions`.
    Update,
    /// `PatchOptions` of a patch that is no apply.
    Patch,
    /// `PatchOptions` of an apply.
    Apply,
}

impl Options {
    fn kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }

    /// Checks the parameters.
    pub fn validate(self, query: &Query) -> ApiResult<()> {
        let mut errors = Vec::new();
        let manager = query.get("fieldManager");
        if self == Self::Apply && manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if self == Self::Patch && !query.get("force").is_empty() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        managed::validate_manager(manager, "fieldManager", &mut errors);
        let dry: Vec<&str> = query.all("dryRun").collect();
        if dry.iter().any(|value| *value != "All") {
            errors.push(FieldError::not_supported("dryRun", &json!(dry), &["All"]));
        }
        let mode = query.get("fieldValidation");
        if !matches!(mode, "" | "Ignore" | "Strict" | "Warn") {
            let known = ["", "Ignore", "Strict", "Warn"];
            errors.push(FieldError::not_supported("fieldValidation", &json!(mode), &known));
        }
        if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", self.kind(), "", &errors)) }
    }
}

/// The manager of a client that names none: the first word of its own name, printable and of bounded length.
pub fn manager_of(agent: &str) -> String {
    let mut out = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| managed::printable(*c)) {
        if out.len() + c.len_utf8() > managed::MAX_MANAGER {
            break;
        }
        out.push(c);
    }
    out
}
