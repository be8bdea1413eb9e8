//! From a HostDiscovery to what is asked; and what admission says of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use addresses::{Kind, local_kind};
use api::metamorph::{DiscoveryApproval, DiscoveryScheme, HostDiscoverySpec, MAX_ADDRESSES, MAX_RANGES};
use terms::clean;

use crate::place::Place;
use crate::ranges::Span;
use crate::rules::Rules;

/// Most ports of an address.
const MAX_PORTS: usize = 4;
/// Longest prefix of names.
const MAX_PREFIX: usize = 40;
/// Longest time that a machine may stay on for its report, minutes.
const MAX_STAY: u32 = 7 * 24 * 60;
/// Least time between two scans, minutes.
const LEAST_INTERVAL: u32 = 5;

/// What is asked.
#[derive(Debug)]
pub struct Plan {
    /// Where, in order; none twice.
    pub places: Vec<Place>,
    /// What is made of it.
    pub rules: Rules,
}

/// What admission says of a HostDiscovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// Why it is refused, a sentence each.
    pub denials: Vec<String>,
    /// What is worth a warning.
    pub warnings: Vec<String>,
}

/// Reads a spec. It is refused as a whole: a scan of some of the ranges would look like one of all.
///
/// # Errors
/// What is wrong with it, a sentence each.
pub fn check(spec: &HostDiscoverySpec) -> Result<Plan, Vec<String>> {
    let mut faults = Vec::new();
    let rules = Rules::compile(&spec.allow, &spec.deny, &mut faults);
    let ranges = spans("spec.ranges", &spec.ranges, Span::parse, &mut faults);
    let excluded = spans("spec.exclude", &spec.exclude, Span::whole, &mut faults);
    if spec.ranges.is_empty() {
        faults.push("spec.ranges is empty: write which addresses are asked".to_owned());
    }
    if spec.ports.len() > MAX_PORTS || spec.ports.contains(&0) {
        faults.push(format!("spec.ports has at most {MAX_PORTS} numbers from 1 to 65535"));
    }
    if spec.interval_minutes < LEAST_INTERVAL {
        faults
            .push(format!("spec.intervalMinutes is {}; at least {LEAST_INTERVAL} is accepted", spec.interval_minutes));
    }
    if let Some(medium) = &spec.medium {
        if medium.revision == 0 {
            faults.push("spec.medium.revision is 0: media are counted from 1".to_owned());
        }
        if !(1..=MAX_STAY).contains(&medium.stay_minutes) {
            faults.push(format!("spec.medium.stayMinutes is {}; 1 to {MAX_STAY} are accepted", medium.stay_minutes));
        }
    }
    let prefix = spec.naming.prefix.as_str();
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if prefix.len() > MAX_PREFIX || !prefix.starts_with(is_lower) || !prefix.chars().all(|c| is_lower(c) || c == '-') {
        faults.push(format!(
            "spec.naming.prefix has at most {MAX_PREFIX} lower-case letters, digits and dashes, and begins with no dash"
        ));
    }
    if spec.approval == DiscoveryApproval::Automatic {
        if spec.allow.is_empty() {
            faults.push(
                "spec.approval is Automatic, and spec.allow has no rule: write which machines are meant".to_owned(),
            );
        }
        if spec.credentials_name.is_empty() {
            faults.push("spec.approval is Automatic, and spec.credentialsName names no Secret".to_owned());
        }
    }
    let places = if faults.is_empty() { places(spec, &ranges, &excluded, &mut faults) } else { Vec::new() };
    if faults.is_empty() { Ok(Plan { places, rules }) } else { Err(faults) }
}

impl Review {
    /// Of a spec that is to be stored.
    #[must_use]
    pub fn of(spec: &HostDiscoverySpec) -> Self {
        let mut review = Self { denials: check(spec).err().unwrap_or_default(), warnings: Vec::new() };
        let by_itself = spec.approval == DiscoveryApproval::Automatic;
        if spec.scheme == DiscoveryScheme::Http {
            review.warnings.push(
                "spec.scheme is http: approved hosts send their password in the clear, and nothing tells two machines with one UUID apart".to_owned(),
            );
        }
        if by_itself && (spec.scheme == DiscoveryScheme::Http || spec.disable_certificate_verification) {
            review.warnings.push(
                "spec.approval is Automatic and no certificate is verified: whoever answers at one of the addresses and says what an allow rule wants to hear is sent the password".to_owned(),
            );
        }
        review
    }
}

fn spans(
    field: &str,
    texts: &[String],
    read_one: fn(&str) -> Result<Span, &'static str>,
    faults: &mut Vec<String>,
) -> Vec<Span> {
    if texts.len() > MAX_RANGES {
        faults.push(format!("{field} has {} ranges; at most {MAX_RANGES} are accepted", texts.len()));
        return Vec::new();
    }
    let mut read = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match read_one(text.trim()) {
            Ok(span) => read.push(span),
            Err(why) => faults.push(format!("{field}[{index}], {:?}, {why}", clean(text, 64))),
        }
    }
    read
}

fn places(spec: &HostDiscoverySpec, ranges: &[Span], excluded: &[Span], faults: &mut Vec<String>) -> Vec<Place> {
    let tls = spec.scheme == DiscoveryScheme::Https;
    let mut ports: BTreeSet<u16> = spec.ports.iter().copied().collect();
    if ports.is_empty() {
        ports.insert(if tls { 443 } else { 80 });
    }
    let too_many = format!(
        "spec.ranges has more than {MAX_ADDRESSES} addresses, each port counted: divide them among several HostDiscoveries"
    );
    if ranges.iter().any(|span| span.len() > MAX_ADDRESSES as u128 + 2) {
        faults.push(too_many);
        return Vec::new();
    }
    let is_meant = |ip: &IpAddr| !excluded.iter().any(|span| span.holds(*ip)) && local_kind(*ip) != Some(Kind::NoHost);
    let addresses: BTreeSet<IpAddr> = ranges.iter().flat_map(|span| span.addresses()).filter(is_meant).collect();
    if addresses.len().saturating_mul(ports.len()) > MAX_ADDRESSES {
        faults.push(too_many);
        return Vec::new();
    }
    if addresses.is_empty() {
        faults.push("spec.ranges and spec.exclude leave no address that a BMC could have".to_owned());
    }
    addresses.into_iter().flat_map(|ip| ports.iter().map(move |port| Place { ip, port: *port, tls })).collect()
}
