//! What the provisioner and its machines are called.

/// The provisioner's name in annotations and flags.
pub const NAME: &str = "fixture";

/// How the ids of its machines begin.
pub fn id_prefix(name: &str) -> String {
    format!("{name}-")
}

/// The id that baremetal-operator's fixture gives to each host (`pkg/provisioner/fixture`): its hosts are taken over.
pub const UPSTREAMS_ID: &str = "temporary-fake-id";
