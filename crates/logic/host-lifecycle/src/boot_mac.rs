//! The hardware address that a host's machine boots from, beside what its inspection has found.

use api::metal3::BareMetalHost;
use inventory::HardwareDetails;

/// Hardware addresses that a message lists.
const MAX_LISTED: usize = 16;

/// Says that no interface of the inspected machine has the hardware address that the host names, without advice.
pub(crate) fn without_interface(host: &BareMetalHost, found: &HardwareDetails) -> Option<String> {
    let wished = host.spec.boot_mac_address.as_deref().filter(|mac| !mac.is_empty())?;
    let seen: Vec<&str> =
        found.nics.iter().filter_map(|nic| nic.mac.as_deref()).filter(|mac| !mac.is_empty()).collect();
    let borne_out = seen.is_empty() || seen.iter().any(|mac| mac.eq_ignore_ascii_case(wished));
    (!borne_out).then(|| {
        let listed = seen.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
        let more = if seen.len() > MAX_LISTED { ", …" } else { "" };
        format!(
            "spec.bootMACAddress is {wished}, and no network interface of the inspected machine has it (it has {listed}{more})"
        )
    })
}
