//! Virtual media by makers' own actions: found where they mount from a web server, named where they do not.

use serde_json::Value;

use crate::json::path_only;

/// Insertion and ejection by HPE iLO 4 (`Hp`), whose drives have no standard actions, and by the names that iLO 5 has kept for them. They take the
/// image alone (iLO 4 refuses `Inserted` and `WriteProtected`).
const BARE: [(&str, &str, &str); 2] = [
    ("Hp", "#HpiLOVirtualMedia.InsertVirtualMedia", "#HpiLOVirtualMedia.EjectVirtualMedia"),
    ("Hpe", "#HpeiLOVirtualMedia.InsertVirtualMedia", "#HpeiLOVirtualMedia.EjectVirtualMedia"),
];

/// Huawei, xFusion and H3C: answers an `http://` image with FileTransferProtocolMismatch.
const VMM_CONTROL: &str = "its drive is mounted by VirtualMedia.VmmControl alone, which takes NFS and CIFS shares";
/// Fujitsu iRMC S4 and S5.
const FTS: &str = "its drive is mounted by FTSComputerSystem.VirtualMedia alone, which takes NFS and SMB shares";
/// The maker's own actions of a drive: insertion and ejection.
pub(crate) fn bare_actions(drive: &Value) -> Option<(String, String)> {
    BARE.iter().find_map(|(maker, insert, eject)| {
        let actions = drive.get("Oem")?.get(maker)?.get("Actions")?;
        let target = |name: &str| path_only(actions.get(name)?.get("target")?.as_str()?);
        Some((target(insert)?, target(eject)?))
    })
}

/// Why a drive without standard actions cannot take an image from a web server, if its vendor's action implies that.
pub(crate) fn unfit_drive(drive: &Value) -> Option<&'static str> {
    let makers = drive.get("Oem")?.as_object()?;
    let has = |maker: &Value| maker.get("Actions").is_some_and(|a| a.get("#VirtualMedia.VmmControl").is_some());
    makers.values().any(has).then_some(VMM_CONTROL)
}

/// The same of a system that has no drives to look at.
pub(crate) fn unfit_system(system: &Value) -> Option<&'static str> {
    system.get("Actions")?.get("Oem")?.get("#FTSComputerSystem.VirtualMedia").map(|_| FTS)
}
