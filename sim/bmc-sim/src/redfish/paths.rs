//! Where the system and its manager are.

/// The manager's resource.
pub const MANAGER: &str = "/redfish/v1/Managers/BMC";

/// The path of a machine's system.
#[must_use]
pub fn system_path(id: &str) -> String {
    format!("/redfish/v1/Systems/{id}")
}
