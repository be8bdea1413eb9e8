//! Requests to test what a BMC can read: to which hosts that is done, and what is written of how it ended. Pure.

use api::metal3::{BareMetalHost, ProvisioningState as State};
use api::metamorph::HostOperation;

/// Whether the request asks for a test medium.
#[must_use]
pub fn asks_for_test(request: &HostOperation) -> bool {
    request.spec.diagnose.is_some_and(|options| options.test_medium)
}

/// Why it is not done to the host as it is; a sentence. A drive that is in use is seen by whoever looks at it.
pub(crate) fn not_tested(request: &HostOperation, host: &BareMetalHost) -> Option<String> {
    if !asks_for_test(request) {
        return None;
    }
    if host.is_deleting() {
        return Some("the host is being deleted".to_owned());
    }
    let consents = request.spec.diagnose.is_some_and(|options| options.allow_in_use);
    let (state, name) = (host.state(), host.state().as_str());
    let is_external = host.spec.externally_provisioned == Some(true);
    match state {
        State::Provisioned | State::ExternallyProvisioned if !consents => Some(format!(
            "the host is {name}: a medium is put into the drive of a machine in use with consent alone (spec.diagnose.allowInUse)"
        )),
        _ if is_external && !consents => Some(
            "somebody else provisions the host (spec.externallyProvisioned): a medium is put into the drive of its machine with consent alone (spec.diagnose.allowInUse)".to_owned(),
        ),
        State::Provisioned
        | State::ExternallyProvisioned
        | State::Inspecting
        | State::Preparing
        | State::Available
        | State::Ready => None,
        _ if name.is_empty() => Some("the host is not registered yet".to_owned()),
        _ => Some(format!("the host is {name}, and its virtual drive may be needed at any moment")),
    }
}
