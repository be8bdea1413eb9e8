//! Common properties of the versions of a custom resource, and whether a webhook converts between them.

use serde_json::Value;

use crate::object::{Object, strings};
use crate::resource::{Flavor, Resource};
use crate::webhook::Target;

/// Common properties of a definition with several versions.
pub struct Versions {
    /// Their group.
    pub group: String,
    /// Version of unmarked tails.
    pub first: String,
    /// Versions that are not served, which field owners may still refer to.
    unserved: Vec<Resource>,
    webhook: Option<Webhook>,
}

impl std::fmt::Debug for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Versions").field("group", &self.group).field("webhook", &self.webhook.is_some()).finish()
    }
}

/// The conversion webhook.
pub struct Webhook {
    /// Its target, or why it cannot be parsed.
    pub target: Result<Target, String>,
    /// Review versions that it accepts, in its order of preference.
    pub reviews: Vec<String>,
}

impl Versions {
    /// The properties of a definition; `None` if it has a single version.
    pub fn of(crd: &Object, unserved: Vec<Resource>) -> Option<Self> {
        let spec = crd.get("spec")?;
        let names: Vec<&str> =
            spec.get("versions")?.as_array()?.iter().filter_map(|v| v.get("name").and_then(Value::as_str)).collect();
        let stored = strings(crd.get("status").and_then(|s| s.get("storedVersions")));
        let strategy = spec.pointer("/conversion/strategy").and_then(Value::as_str);
        if names.len() < 2 {
            return None;
        }
        let webhook = spec.pointer("/conversion/webhook").filter(|_| strategy == Some("Webhook")).map(|w| Webhook {
            target: Target::parse(w.get("clientConfig").unwrap_or(&Value::Null)),
            reviews: strings(w.get("conversionReviewVersions")),
        });
        let first = stored.first().cloned().or_else(|| names.first().map(|n| (*n).to_owned()))?;
        let group = spec.get("group").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { group, first, unserved, webhook })
    }
}

impl Versions {
    /// A version that is not served.
    pub fn unserved(&self, version: &str) -> Option<&Resource> {
        self.unserved.iter().find(|r| r.version == version)
    }
}

/// Whether a webhook converts the resource's objects.
pub fn asks(resource: &Resource) -> bool {
    by_webhook(resource).is_some()
}

/// The versions and webhook of a custom resource, if a webhook converts its objects.
pub fn by_webhook(resource: &Resource) -> Option<(&Versions, &Webhook)> {
    let Flavor::Custom { versions: Some(versions), .. } = &resource.flavor else { return None };
    Some((versions, versions.webhook.as_ref()?))
}
