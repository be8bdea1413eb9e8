//! Being prepared. No provisioner configures RAID or firmware yet: wishes for them are an error that says so. What is left to do is to
//! see that the machine is what the spec says of it, and to settle which disk the image will go to.

use api::metal3::{ErrorType, ProvisioningState as State};

use crate::draft::Draft;
use crate::handler::{StateHandler, ignore};
use crate::served;
use crate::step::{Next, Step};
use crate::validate;
use crate::view::View;
use crate::wishes;

/// Hardware addresses that a message lists.
const MAX_LISTED: usize = 16;

/// What is done in it.
pub(crate) const HANDLER: StateHandler =
    StateHandler { on_delete: Some(State::PoweringOffBeforeDelete), decide, conclude: ignore };

fn decide(view: &View<'_>) -> Step {
    let mut draft = Draft::new(view);
    if let Some(message) = fault(view) {
        draft.fault(ErrorType::Preparation, &message);
        return draft.step(Next::Wait);
    }
    draft.status.provisioning.root_device_hints = wishes::root_device_hints(view.host);
    draft.go(State::Available);
    draft.step(Next::Now)
}

/// Why the host cannot be prepared as wished.
pub(super) fn fault(view: &View<'_>) -> Option<String> {
    let kinds = &[ErrorType::Preparation];
    let violation =
        validate::first(view.host, kinds).or_else(|| served::first(view.host, &view.settings.served, kinds));
    violation.map(|violation| violation.message).or_else(|| another_machine(view))
}

/// What the spec says of the machine and the machine does not bear out.
fn another_machine(view: &View<'_>) -> Option<String> {
    let status = view.host.status.as_ref();
    let found = view.hardware_data.or_else(|| status.and_then(|status| status.hardware.as_ref()))?;
    let spec = &view.host.spec;
    let wished = spec.architecture.as_deref().filter(|wished| !wished.is_empty());
    let seen = found.cpu.as_ref().and_then(|cpu| cpu.arch.as_deref()).filter(|seen| !seen.is_empty());
    if let (Some(wished), Some(seen)) = (wished, seen)
        && !served::same_architecture(wished, seen)
    {
        return Some(format!(
            "spec.architecture is {wished}, and the machine that was inspected is {seen} — correct spec.architecture; if \
             another machine is meant, delete the host and create it anew with the address of the right BMC"
        ));
    }
    let wished = spec.boot_mac_address.as_deref().filter(|mac| !mac.is_empty())?;
    let seen: Vec<&str> =
        found.nics.iter().filter_map(|nic| nic.mac.as_deref()).filter(|mac| !mac.is_empty()).collect();
    let borne_out = seen.is_empty() || seen.iter().any(|mac| mac.eq_ignore_ascii_case(wished));
    (!borne_out).then(|| {
        let listed = seen.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
        let more = if seen.len() > MAX_LISTED { ", …" } else { "" };
        format!(
            "spec.bootMACAddress is {wished}, and no network interface of the inspected machine has it (it has {listed}{more}) — delete the host \
             and create it anew, with the address of the right BMC or the right hardware address: neither is changed in its place"
        )
    })
}
