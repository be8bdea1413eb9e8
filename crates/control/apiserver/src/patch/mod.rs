//! The three kinds of patches that are not server-side apply.

pub mod json;
pub mod merge;
mod order;
pub mod shown;
pub mod strategic;
