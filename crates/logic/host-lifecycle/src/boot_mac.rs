//! The hardware address that a host's machine boots from, beside what its inspection has found.

use api::metal3::BareMetalHost;
use inventory::HardwareDetails;

/// Hardware addresses that a message lists.
const MAX_LISTED: usize = 16;

/// Says that no interface of the inspected machine has the hardware address that the host names, without advice. Interfaces that only a BMC has listed
/// prove nothing: it may not list all ([`inventory::Inspected`]).
pub(crate) fn without_interface(host: &BareMetalHost, found: &HardwareDetails) -> Option<String> {
    let found = Some(found).filter(|found| found.is_from_system())?;
    missing(host, found, ["no network interface of the inspected machine has it", "it has"])
}

/// The same of a BMC's list, with advice: a doubt, which keeps nothing from going on.
pub(crate) fn not_listed(host: &BareMetalHost, found: &HardwareDetails) -> Option<String> {
    let found = Some(found).filter(|found| !found.is_from_system())?;
    let what = missing(host, found, ["no network interface that its BMC lists has it", "it lists"])?;
    Some(format!(
        "{what}; a BMC may list only some of them — compare the address with the machine's: it cannot be changed or removed any more, and an inspection by \
         the agent that does not find it keeps the host from being prepared"
    ))
}

fn missing(host: &BareMetalHost, found: &HardwareDetails, [finding, verb]: [&str; 2]) -> Option<String> {
    let wished = host.spec.boot_mac_address.as_deref().filter(|mac| !mac.is_empty())?;
    let seen: Vec<&str> =
        found.nics.iter().filter_map(|nic| nic.mac.as_deref()).filter(|mac| !mac.is_empty()).collect();
    let borne_out = seen.is_empty() || seen.iter().any(|mac| mac.eq_ignore_ascii_case(wished));
    (!borne_out).then(|| {
        let listed = seen.iter().take(MAX_LISTED).copied().collect::<Vec<_>>().join(", ");
        let more = if seen.len() > MAX_LISTED { ", …" } else { "" };
        format!("spec.bootMACAddress is {wished}, and {finding} ({verb} {listed}{more})")
    })
}
