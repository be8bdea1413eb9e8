//! What writing and wiping have in common: whether the command goes on, and disks that other machines may use too, which are neither wiped nor
//! chosen unless the hints name them.

use agent_protocol::{ErrorCode, Progress};
use disk_image::{Flow, cluster_file_system};

use super::failure::Failure;
use super::marks::OpenDisk;

/// Takes how far a command is, and answers whether it goes on: what is told to stop has no more effect than the one under way.
pub type Tell<'a> = &'a dyn Fn(Progress) -> Flow;

/// Reports, and fails if the command is to stop.
pub(super) fn goes_on(report: Tell<'_>, progress: Progress) -> Result<(), Failure> {
    match report(progress) {
        Flow::Continue => Ok(()),
        Flow::Cancel => Err(Failure::new(ErrorCode::Refused, "stopped: the server has let this machine go")),
    }
}

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
    let is_owned = disk.owner()?.is_some_and(|(found, _)| found == owner);
    Ok((!is_owned).then_some(why))
}

/// Why a disk behind this network is left untouched.
pub(super) fn reached_by(network: &str) -> String {
    format!("it is reached by {network}")
}
