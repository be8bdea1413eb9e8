//! The three kinds of patches that are not server-side apply.

pub mod json;
pub mod merge;
pub mod strategic;
