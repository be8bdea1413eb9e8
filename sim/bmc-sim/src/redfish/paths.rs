//! Where the system and its manager are.

/// The manager's resource.
pub const MANAGER: &str = "/redfish/v1/Managers/BMC";
/// The chassis that the system is in.
pub const CHASSIS: &str = "/redfish/v1/Chassis/1U";

/// The path of a machine's system.
#[must_use]
pub fn system_path(id: &str) -> String {
    format!("/redfish/v1/Systems/{id}")
}
