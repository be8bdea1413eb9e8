//! What Ironic is told that this agent is.

/// Name of our hardware manager in lists of steps.
pub const MANAGER: &str = "MetamorphAgent";

/// The agent's version, which is also that of its steps.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
