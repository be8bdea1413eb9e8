//! Machines that may be in use, met when a host is registered: what is asked of [`provisioning_plan::in_use`], and what the host says where nothing is done.

use api::metal3::annotation::OVERWRITE_OWNER;
use inventory::MachineEvidence;
use machine_identity::{Common, Finding};
use provisioner::{Cause, Failure, OtherMachine, RegisterRequest, Retry};
use provisioning_plan::in_use::{Runs, Told, UNKNOWN, Why};

use crate::data::recorded_running;

/// What to do for a host whose machine is in use.
const RESTORE: &str = "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status), or in spec.image and \
                       spec.rootDeviceHints what it was provisioned with; to leave the machine to somebody else, set spec.externallyProvisioned";

/// Why a host is held, and what is to be done.
pub fn held(why: &Why<'_>) -> Failure {
    let (text, advice) = match why {
        Why::Runs(Runs { owner, .. }) => (
            format!(
                "register the machine: it is in use by what was provisioned on it for a host of this name (owner {owner}), and this host, which has no \
                 status, does not ask for that"
            ),
            format!("{RESTORE}; to have its data destroyed, set the annotation {OVERWRITE_OWNER} to {owner}"),
        ),
        Why::RunsSince(Runs { owner, .. }) => (
            format!(
                "register the machine: it is in use by what was provisioned on it (owner {owner}) later than this host's status, which was restored, tells of"
            ),
            format!(
                "give the host the status that it had last (annotation baremetalhost.metal3.io/status), or make it anew without one, so that it is \
                 recognized; to leave the machine to somebody else, set spec.externallyProvisioned; to have the host go on by the old status, by which the \
                 data may be destroyed, set the annotation {OVERWRITE_OWNER} to {owner}"
            ),
        ),
        Why::Past => (
            "register the machine: it may be in use, because the host has a consumer or HardwareData, and neither a status nor a MachineRecord tells what has \
             become of it"
                .to_owned(),
            format!(
                "to have the host go on as it was, give it its status back (annotation baremetalhost.metal3.io/status); to leave the machine to somebody \
                 else, set spec.externallyProvisioned; if nothing on the machine is needed, set the annotation {OVERWRITE_OWNER} to {UNKNOWN}: it is \
                 inspected then"
            ),
        ),
    };
    in_use(text, &advice)
}

/// The machine is in use, and nothing is done to it.
fn in_use(text: String, advice: &str) -> Failure {
    let failure = Failure::new(Cause::MachineInUse, text).advise(advice);
    Failure { retry: Retry::Held, ..failure }
}

/// What the host says of its machine.
pub fn told<'a>(request: &'a RegisterRequest, runs: Option<&'a Runs>) -> Told<'a> {
    match (&request.restored, request.asks_for.as_deref()) {
        (Some(restored), _) => Told::Restored { provisioning: restored.provisioning, runs: runs.and_then(Runs::asked) },
        (None, Some(asks_for)) => Told::Lost {
            asks_for,
            has_past: request.has_past,
            is_claimed: request.is_claimed,
            known_since: request.known_since,
        },
        (None, None) => Told::Here,
    }
}

/// The record without a host that says that this very machine is in use: its host went without a release, and was declared again under another name, or at
/// another address.
pub fn left_in_use(others: &[OtherMachine], seen: &MachineEvidence, common: &Common) -> Option<(String, Runs)> {
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
    others.iter().filter(counts).filter(same).find_map(|other| {
        let runs = recorded_running(other.record.provisioner.as_ref()?)?;
        Some((other.host.clone(), runs))
    })
}

/// The machine runs what was provisioned for a host that is gone.
pub fn in_use_by(host: &str, runs: &Runs) -> Failure {
    let owner = &runs.owner;
    let text = format!(
        "register the machine: it is in use by what was provisioned on it for a host that is gone (MachineRecord {host}, owner {owner})"
    );
    let advice = format!(
        "declare that host again, with its name and its spec.bmc.address as they were; or give this host the status of that one (annotation \
         baremetalhost.metal3.io/status); to leave the machine to somebody else, set spec.externallyProvisioned; to have its data destroyed, set the \
         annotation {OVERWRITE_OWNER} to {owner}"
    );
    in_use(text, &advice)
}
