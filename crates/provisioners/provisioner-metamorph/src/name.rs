//! What the provisioner is called.

/// Its name in records, annotations and flags.
pub const NAME: &str = "metamorph";
