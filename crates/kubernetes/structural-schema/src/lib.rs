//! Structural schemas of Kubernetes (`apiextensions.k8s.io/v1` JSONSchemaProps), and what they do to objects.
//!
//! A definition's schema is first found to be [`structural`], then read into a [`schema::Schema`], the form that requests
//! are checked with. An object goes [`prune`] → [`default`] → [`validate`] → [`lists`] → [`rules`]: what is not known is
//! dropped, what is absent filled in, values are checked (formats: [`formats`]), lists of type set and map must hold nothing
//! twice, and rules in CEL must hold. Errors are kube-apiserver's, in its order.

pub mod default;
pub mod formats;
pub mod lists;
mod path;
pub mod prune;
pub mod rules;
pub mod schema;
pub mod structural;
#[cfg(test)]
mod tests;
pub mod validate;

/// An object in JSON.
pub type Object = serde_json::Map<String, serde_json::Value>;

/// The strings of a JSON list; others are left out.
pub(crate) fn strings(value: Option<&serde_json::Value>) -> Vec<String> {
    let list = value.and_then(serde_json::Value::as_array).into_iter().flatten();
    list.filter_map(serde_json::Value::as_str).map(str::to_owned).collect()
}
