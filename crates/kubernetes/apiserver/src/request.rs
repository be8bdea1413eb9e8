//! A request for a resource, with decoded path, query and headers.

use std::sync::Arc;

use bytes::Bytes;

use crate::audit::Annotations;
use crate::change::Change;
use crate::fields::options::manager_of;
use crate::media::Accept;
use crate::object::Object;
use crate::resource::Resource;
use crate::route::{Query, ResourceTarget};
use crate::status::{ApiError, ApiResult, FieldError};
use crate::store::Key;
use crate::user::User;

/// A decoded request for a resource.
pub struct Request {
    /// Resource, verb and name.
    pub target: ResourceTarget,
    /// Query parameters.
    pub query: Query,
    /// The negotiated form of the response.
    pub accept: Accept,
    /// Media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// Warnings for the client, in order.
    pub warnings: Vec<String>,
    /// The requesting user.
    pub user: User,
    /// The User-Agent header.
    pub agent: String,
    /// Annotations for the audit log.
    pub audit: Annotations,
}

/// What to do with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop silently.
    Ignore,
    /// Drop with a warning.
    Warn,
    /// Refuse.
    Strict,
}

impl Request {
    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.target.resource
    }

    /// The change that the request makes.
    pub fn change(&self) -> ApiResult<Change> {
        let manager = match self.query.get("fieldManager") {
            "" => manager_of(&self.agent),
            given => given.to_owned(),
        };
        Ok(Change {
            sub: self.target.sub.clone(),
            dry: self.dry_run(),
            options: self.options(),
            audit: self.audit.clone(),
            ..Change::by(self.user.clone(), manager, self.target.verb)
        })
    }

    /// The options in the query.
    fn options(&self) -> Object {
        let mut options = Object::new();
        let dry: Vec<&str> = self.query.all("dryRun").collect();
        if !dry.is_empty() {
            options.insert("dryRun".into(), serde_json::json!(dry));
        }
        for key in ["fieldManager", "fieldValidation"] {
            let given = self.query.get(key);
            if !given.is_empty() {
                options.insert(key.into(), serde_json::json!(given));
            }
        }
        options
    }

    /// Whether this is a dry run.
    pub fn dry_run(&self) -> bool {
        self.query.all("dryRun").any(|v| v == "All")
    }

    /// What to do with unknown and duplicate fields.
    pub fn field_validation(&self) -> FieldValidation {
        match self.query.get("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        }
    }

    /// Reports the errors of a strict decoder as the client requests: not at all, as warnings, or as a failure. The
    /// error is the text of strict validation.
    pub fn report_strict_errors(&mut self, found: Vec<String>) -> Result<(), String> {
        match self.field_validation() {
            _ if found.is_empty() => Ok(()),
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                self.warnings.extend(found.iter().flat_map(|text| lines(text)));
                Ok(())
            }
            FieldValidation::Strict => Err(format!("strict decoding error: {}", found.join(", "))),
        }
    }

    /// The key of the named object.
    pub fn key(&self) -> Key {
        self.resource().key(&self.target.ns, &self.target.name)
    }

    /// 404 for the named object.
    pub fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource().group, &self.resource().plural, &self.target.name)
    }
}

/// The warnings for an error; an error about YAML becomes one for each line.
pub fn lines(text: &str) -> Vec<String> {
    let yaml = "yaml: unmarshal errors:\n";
    let rest = text.strip_prefix("error converting YAML to JSON: ").unwrap_or(text).strip_prefix(yaml);
    match rest {
        Some(rest) => rest.split('\n').map(|line| line.trim().to_owned()).collect(),
        None => vec![text.to_owned()],
    }
}

/// Errors in the values of the `dryRun` option.
pub fn wrong_dry_run(values: &[&str]) -> Option<FieldError> {
    values.iter().any(|v| *v != "All").then(|| FieldError::not_supported("dryRun", &values.into(), &["All"]))
}
