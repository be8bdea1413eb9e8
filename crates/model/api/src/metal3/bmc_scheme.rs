//! Metal³'s interpretation of `spec.bmc.address`: the driver that it names, and that driver's abilities.
//!
//! This follows upstream (baremetal-operator `pkg/hardwareutils/bmc`: `access.go`, and each driver's file), which decides what its
//! webhook admits. Whether an address is supported here is up to the provisioner, and stricter.

use std::net::IpAddr;

use super::go_url;

/// A driver of Metal³, by the scheme of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BmcDriver {
    /// Scheme, without `+http` or `+https`.
    pub scheme: &'static str,
    /// Cannot discover the boot interface.
    pub needs_mac: bool,
    /// Sets up RAID controllers.
    pub raid: bool,
    /// Switches Secure Boot.
    pub secure_boot: bool,
    /// Inspects without booting the machine.
    pub fast_inspection: bool,
}

const fn redfish(scheme: &'static str) -> BmcDriver {
    BmcDriver { scheme, needs_mac: false, raid: true, secure_boot: true, fast_inspection: true }
}

const fn ipmi(scheme: &'static str, needs_mac: bool) -> BmcDriver {
    BmcDriver { scheme, needs_mac, raid: false, secure_boot: false, fast_inspection: false }
}

/// Drivers whose scheme may carry `+http` or `+https`.
const REDFISH: [BmcDriver; 7] = [
    redfish("redfish"),
    redfish("redfish-virtualmedia"),
    redfish("redfish-uefihttp"),
    redfish("idrac-redfish"),
    redfish("idrac-virtualmedia"),
    redfish("ilo5-redfish"),
    redfish("ilo5-virtualmedia"),
];
const IPMI: [BmcDriver; 2] = [ipmi("ipmi", false), ipmi("libvirt", true)];

/// All drivers, those of Redfish first.
pub fn bmc_drivers() -> impl Iterator<Item = &'static BmcDriver> {
    REDFISH.iter().chain(&IPMI)
}

/// The driver of an address.
///
/// # Errors
/// What is wrong with the address, a sentence.
pub fn bmc_driver(address: &str) -> Result<BmcDriver, String> {
    let (scheme, host) = split(address)?;
    if !host.is_empty() && host.parse::<IpAddr>().is_err() && !is_dns_name(host) {
        return Err(format!("spec.bmc.address: the host {host:?} is neither a DNS name nor an IP address"));
    }
    let base = scheme.strip_suffix("+http").or_else(|| scheme.strip_suffix("+https"));
    let found = match base {
        Some(base) => REDFISH.iter().find(|driver| driver.scheme == base),
        None => bmc_drivers().find(|driver| driver.scheme == scheme),
    };
    found.copied().ok_or_else(|| {
        let known: Vec<_> = bmc_drivers().map(|driver| driver.scheme).collect();
        format!("spec.bmc.address has the unknown scheme {scheme:?}; Metal³ knows {}", known.join(", "))
    })
}

/// Scheme and host name of an address, as parsed by Go's `net/url` and upstream's fallbacks: an invalid URL may still be `host:port`, and without a
/// scheme it is IPMI.
fn split(address: &str) -> Result<(String, &str), String> {
    let malformed = || format!("spec.bmc.address is neither a URL nor host:port: {address:?}");
    let ipmi = |host| (IPMI[0].scheme.to_owned(), host);
    let hosted = || go_url::host_and_port(address).map(ipmi).ok_or_else(malformed);
    let Ok((scheme, rest)) = go_url::scheme(address) else { return hosted() };
    let rest = rest.split(['#', '?']).next().unwrap_or_default();
    let after = match (&scheme, rest.strip_prefix("//")) {
        (None, _) if !rest.starts_with('/') => {
            // Without a scheme and a slash: host, host:port, or a path.
            if rest.split('/').next().unwrap_or_default().contains(':') {
                return hosted();
            }
            rest
        }
        (Some(_), Some(after)) => after,
        (None, Some(after)) if !after.starts_with('/') => after,
        (_, _) if rest.starts_with('/') => "",
        // "scheme:rest" is read as "scheme://rest".
        _ => rest,
    };
    let host = go_url::host_of(after).filter(|_| go_url::is_printable(address)).ok_or_else(malformed)?;
    match scheme {
        Some(scheme) => Ok((scheme, host)),
        None if rest.starts_with("//") && !rest.starts_with("///") => Ok((String::new(), host)),
        None => Ok(ipmi(host)),
    }
}

/// Labels of 1 to 63 letters, digits and inner hyphens, separated by dots.
fn is_dns_name(text: &str) -> bool {
    text.split('.').all(|label| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        (1..=63).contains(&label.len())
            && ends(label.chars().next())
            && ends(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}
