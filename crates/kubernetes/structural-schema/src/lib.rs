//! Structural schemas of Kubernetes (`apiextensions.k8s.io/v1` JSONSchemaProps), and their application to objects.
//!
//! A definition's schema is first checked to be [`structural`], then parsed into a [`schema::Schema`], the form for validating
//! requests. An object passes [`prune`] → [`default`] → [`validate`] → [`lists`] → [`rules`]: unknown members are dropped, absent ones filled in with
//! defaults, values validated (formats: [`formats`]), lists of type set and map checked for duplicates, and CEL rules run. Errors are
//! kube-apiserver's, in its order.

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
