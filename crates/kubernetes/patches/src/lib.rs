//! The kinds of patches that are not server-side apply, as kube-apiserver applies them, with its errors.
//!
//! [`json`] is RFC 6902 and [`merge`] RFC 7386, each as the library does it that upstream uses; [`strategic`] merges lists of
//! core kinds by key and follows directives (`order.rs`: where merged items go). [`shown`] is a patched object as errors show
//! it, which tells how far a patch has opened it.

pub mod json;
pub mod merge;
mod order;
pub mod shown;
pub mod strategic;
