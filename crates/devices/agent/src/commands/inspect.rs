//! Inspection: hardware facts and owners' marks.

use agent_protocol::{DiskMarkFound, Outcome};

use super::Failure;
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
    Ok(Outcome::Inspected {
        hardware: Box::new(hardware),
        marks,
        uefi: facts::is_uefi(machine.tree()),
        secure_boot: variables.secure_boot(),
    })
}
