//! Inspection: hardware facts and owners' marks.

use agent_protocol::{DiskMarkFound, Outcome};

use super::failure::Failure;
use super::marks::OpenDisk;
use crate::efi::owner;
use crate::facts;
use crate::machine::Machine;

pub(super) fn inspect(machine: &dyn Machine) -> Result<Outcome, Failure> {
    let hardware = facts::collect(machine.tree(), &machine.addresses());
    let variables = machine.variables();
    let mut marks = Vec::new();
    if let Some(record) = owner::read(&variables).map_err(|error| Failure::of_firmware(&error))? {
        marks.push(DiskMarkFound { place: "firmware".to_owned(), owner: record.owner, host: record.host });
    }
    for disk in facts::disks(machine.tree()) {
        let place = disk.name();
        // a disk that is in use is inspected without its mark
        match OpenDisk::open(machine, disk).and_then(|disk| disk.owner()) {
            Ok(Some((owner, host))) => marks.push(DiskMarkFound { place, owner, host }),
            Ok(None) => {}
            Err(failure) => tracing::warn!("{failure}"),
        }
    }
    Ok(Outcome::Inspected {
        hardware: Box::new(hardware),
        marks,
        uefi: facts::is_uefi(machine.tree()),
        secure_boot: variables.secure_boot(),
    })
}
