//! Who has come since a machine was found.

use crate::judge::{KnownHost, Recorded};
use crate::place::Place;

/// Who has a machine that a host is to be approved for, a sentence: somebody may have declared its BMC, or have had the machine recorded, since it was found.
#[must_use]
pub fn is_anothers(
    (hosts, records): (&[KnownHost], &[Recorded]),
    (namespace, name): (&str, &str),
    (place, identity): (&Place, Option<&str>),
) -> Option<String> {
    let told = |of: &str, other: &str| {
        if of == namespace { format!("the host {other}") } else { "a host of another namespace".to_owned() }
    };
    let is_own = |of: &str, other: &str| (of, other) == (namespace, name);
    let spots = place.spots();
    let has_it =
        |host: &&KnownHost| !is_own(&host.namespace, &host.name) && host.spots.iter().any(|spot| spots.contains(spot));
    if let Some(host) = hosts.iter().find(has_it) {
        return Some(format!(
            "{} has been declared with this BMC: delete one of them",
            told(&host.namespace, &host.name)
        ));
    }
    let identity = identity?;
    let is_it = |record: &&Recorded| {
        let mut known = record.identity.iter().chain(&record.others);
        !is_own(&record.namespace, &record.name) && known.any(|known| known == identity)
    };
    let record = records.iter().find(is_it)?;
    let named = told(&record.namespace, &record.name);
    Some(format!(
        "it shows the UUID of the machine that is recorded for {named}: delete that MachineRecord if it is past, or write spec.bmc yourself"
    ))
}
