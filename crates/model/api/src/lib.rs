//! Every Kubernetes kind Metamorph serves: one file a kind, its defaults and constants beside it.
//!
//! Metal³'s kinds keep their group, names, fields, annotations and finalizers; their definitions are shipped as upstream
//! publishes them ([`crds`]) and the types here are tested against those schemas. What Metal³ lacks lives in the group
//! `metamorph.metal3.io`, whose definitions are generated from the types.

pub mod crds;
pub mod metal3;
pub mod metamorph;

/// Time as Kubernetes writes it (RFC 3339, whole seconds).
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
