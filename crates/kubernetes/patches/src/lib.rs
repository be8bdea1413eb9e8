//! The kinds of patches other than server-side apply, applied like kube-apiserver, with its errors.
//!
//! [`json`] is RFC 6902 and [`merge`] RFC 7386, each like upstream's library; [`strategic`] merges lists of core kinds by key and follows directives
//! (`order.rs`: the order of merged items). [`printable`] is a patched object in the form of errors, which depends on the parts that a patch has opened.

pub mod json;
pub mod merge;
mod order;
pub mod printable;
pub mod strategic;
