//! Inspection: hardware facts, owners' marks, and who is at the other ends of the machine's cables.

use agent_protocol::{DiskMarkFound, Outcome, Phase, Progress};

use super::Runner;
use super::failure::Failure;
use super::marks::OpenDisk;
use super::shared::{Tell, goes_on};
use crate::efi::owner;
use crate::facts;
use crate::machine::Machine;

pub(super) fn inspect(runner: &Runner, report: Tell<'_>) -> Result<Outcome, Failure> {
    let inspecting = || goes_on(report, Progress { phase: Phase::Inspecting, ..Progress::default() });
    inspecting()?;
    let machine = runner.machine();
    let marks = marks(machine)?;
    if let Some(listener) = &runner.listener {
        listener.hear(inspecting).inspect_err(|_| listener.end())?;
    }
    // While the ports are up: their speed is none otherwise.
    let mut hardware = facts::collect(machine.tree(), &machine.addresses());
    let links = runner.listener.as_ref().map(|listener| listener.tell(&mut hardware)).unwrap_or_default();
    if let Some(listener) = &runner.listener {
        listener.end();
    }
    Ok(Outcome::Inspected {
        hardware: Box::new(hardware),
        marks,
        uefi: facts::is_uefi(machine.tree()),
        secure_boot: machine.variables().secure_boot(),
        links,
        devices: Box::new(facts::devices(machine)),
    })
}

/// Owners' marks on the disks and in the firmware.
fn marks(machine: &dyn Machine) -> Result<Vec<DiskMarkFound>, Failure> {
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
    Ok(marks)
}
