//! Records of machines whose hosts are gone, met when a host is registered.

use api::metal3::annotation::OVERWRITE_OWNER;
use inventory::MachineEvidence;
use jiff::Timestamp;
use machine_identity::{Common, Finding};
use provisioner::in_use::in_use;
use provisioner::{Failure, OtherMachine};
use provisioning_plan::in_use::{Recorded, Runs};

use crate::data::recorded_use;

/// A machine in use, by the record of a host that is gone.
pub struct Left {
    /// When something was last done to it, if that is known.
    pub at: Option<Timestamp>,
    /// Whose record it is.
    pub host: String,
    /// What it runs.
    pub runs: Runs,
}

/// The newest record without a host of this very machine, if it says that the machine is in use: its host went without a release, and was declared again under another name, or at
/// another address.
pub fn left_in_use(others: &[OtherMachine], seen: &MachineEvidence, common: &Common) -> Option<Left> {
    let same = |other: &&OtherMachine| {
        let found =
            other.record.bmc.as_ref().map_or(Finding::Unknown, |view| machine_identity::compare(view, seen, common));
        match found {
            Finding::Match { .. } => true,
            Finding::Unknown => {
                other.record.agent.as_ref().is_some_and(|view| machine_identity::across(view, seen, common))
            }
            Finding::Mismatch { .. } => false,
        }
    };
    // What others have made up holds nobody's machine.
    let counts = |other: &&OtherMachine| !other.exists && (other.is_near || other.is_sealed);
    let told = others.iter().filter(counts).filter(same).filter_map(|other| {
        let (at, recorded) = recorded_use(other.record.provisioner.as_ref()?)?;
        Some((at, &other.host, recorded))
    });
    // The machine may have had many hosts: what was done to it last tells.
    match told.max_by_key(|(at, _, recorded)| (at.is_none() && matches!(recorded, Recorded::Runs(_)), *at))? {
        (at, host, Recorded::Runs(runs)) => Some(Left { at, host: host.clone(), runs }),
        _ => None,
    }
}

/// The machine runs what was provisioned for a host that is gone.
pub fn in_use_by(left: &Left) -> Failure {
    let (host, owner) = (&left.host, &left.runs.owner);
    let text = format!(
        "register the machine: it is in use by what was provisioned on it for a host that is gone (MachineRecord {host}, owner {owner})"
    );
    let advice = format!(
        "declare that host again, with its name and its spec.bmc.address as they were; or give this host the status of that one (annotation \
         baremetalhost.metal3.io/status); to leave the machine to somebody else, delete this host and declare it anew with spec.externallyProvisioned; to have its data destroyed, set the \
         annotation {OVERWRITE_OWNER} to {owner}; if nothing of that host is on it any more, delete that MachineRecord"
    );
    in_use(text, &advice)
}
