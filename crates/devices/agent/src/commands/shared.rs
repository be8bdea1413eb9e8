//! Disks that other machines may use too: they are neither wiped nor chosen unless the hints name them.

use disk_image::cluster_file_system;

use super::Failure;
use super::marks::OpenDisk;

/// Why the disk is left untouched, as text (`it is reached by iSCSI`); `None` for the machine's own. A disk with this owner's mark counts as the
/// machine's own: an earlier installation chose it, by hints that may have changed since.
pub(super) fn left_alone(disk: &OpenDisk, owner: &str) -> Result<Option<String>, Failure> {
    let why = match disk.facts.network {
        Some(network) => reached_by(network),
        None => {
            let attempt = || format!("looking for a cluster file system on {}", disk.facts.name());
            match cluster_file_system(disk.disk.as_ref()).map_err(|error| Failure::of_image(&attempt(), &error))? {
                Some(kind) => format!("it carries the cluster file system {kind}"),
                None => return Ok(None),
            }
        }
    };
    let own = disk.owner()?.is_some_and(|(found, _)| found == owner);
    Ok((!own).then_some(why))
}

/// Why a disk behind this network is left untouched.
pub(super) fn reached_by(network: &str) -> String {
    format!("it is reached by {network}")
}
