//! How a machine is.

use serde::{Deserialize, Serialize};

/// How bad it is: Redfish `Status.Health` (DSP0268, Resource).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HealthLevel {
    /// No fault.
    OK,
    /// Something needs attention.
    Warning,
    /// Something needs attention at once.
    Critical,
}
