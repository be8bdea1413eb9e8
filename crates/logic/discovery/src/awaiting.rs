//! Hosts that rules approve, by what a status lists.

use std::collections::BTreeSet;

use api::metamorph::{DiscoveredMachine, DiscoveryPhase};

use crate::judge::{Situation, judge};
use crate::place::Place;
use crate::shown::Shown;

/// The hosts that wait and that an allow rule approves, as if their machines showed now what is listed of them: what a process has wished ends with it, and
/// nothing else looks for a machine where nothing is scanned, or not for a week. Each is asked before it is approved.
#[must_use]
pub fn awaiting(situation: &Situation<'_>) -> Vec<String> {
    let shown = |machine: &DiscoveredMachine| Shown {
        vendor: machine.vendor.clone(),
        product: machine.product.clone(),
        uuid: machine.uuid.clone(),
        redfish_version: machine.redfish_version.clone(),
        key_sha256: machine.key_sha256.clone(),
    };
    let waits = |machine: &&DiscoveredMachine| machine.phase == DiscoveryPhase::Found && machine.host_uid.is_some();
    let waiting = situation.before.iter().filter(waits);
    let found: Vec<(Place, Shown)> =
        waiting.filter_map(|machine| Some((Place::parse(&machine.address)?, shown(machine)))).collect();
    let asked: BTreeSet<Place> = found.iter().map(|(place, _)| *place).collect();
    judge(&Situation { asked: Some(&asked), now: situation.now.clone(), ..*situation }, &found).approve
}
