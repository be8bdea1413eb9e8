//! What the provisioner and its machines are called.

use api::metamorph::ProvisionerRecord;
use provisioner::in_use::OnMachine;

/// The provisioner's name in annotations and flags.
pub const NAME: &str = "fixture";

/// How the ids of its machines begin.
pub fn id_prefix(name: &str) -> String {
    format!("{name}-")
}

/// The id that baremetal-operator's fixture gives to each host (`pkg/provisioner/fixture`): its hosts are taken over.
pub const UPSTREAMS_ID: &str = "temporary-fake-id";

/// What is on the machine of a record that this provisioner has written, `None` of any other: a rehearsal uses no machine.
#[must_use]
pub fn recorded_on_machine(record: &ProvisionerRecord) -> Option<OnMachine> {
    (record.name == NAME).then_some(OnMachine::Nothing)
}
