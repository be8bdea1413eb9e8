//! What the provisioner and its machines are called.

/// The provisioner's name in annotations and flags.
pub const NAME: &str = "fixture";

/// How the ids of its machines begin.
pub const ID_PREFIX: &str = "fixture-";
