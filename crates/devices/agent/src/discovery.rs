//! The agent of a medium that no host has: it tells its server what the machine is and where its BMC is said to be, and leaves.
//!
//! It takes no orders, and touches no disk. What a BMC is asked is read-only ([`crate::ipmi`]).

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{
    Afterwards, BmcClaim, DISCOVERY_PATH, DISCOVERY_PROTOCOL, DiscoveryConfig, Heard, Leave, MAX_HEARD_BYTES, MAX_SAID,
    MAX_SIGHTING_BYTES, Sighting,
};
use tokio::time::Instant;

use crate::facts;
use crate::ipmi;
use crate::machine::Machine;
use crate::report::{Client, ExchangeError};
use crate::text::chain;

/// Least and longest time between two reports.
const LEAST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3600);
/// Pause after a report that did not come through, the first time; it doubles.
const AGAIN: Duration = Duration::from_secs(5);
/// Longest such pause.
const MOST: Duration = Duration::from_secs(120);
/// Longest stay, minutes.
const MAX_STAY: u32 = 7 * 24 * 60;

/// What the machine says of itself.
#[must_use]
pub fn sighting(machine: &dyn Machine) -> Sighting {
    let tree = machine.tree();
    let mut sighting = Sighting {
        protocol: DISCOVERY_PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: facts::evidence(tree),
        hardware: facts::collect(tree, &machine.addresses()),
        bmc: claim(machine),
    };
    // A machine with more than that keeps what tells it from others.
    if serde_json::to_vec(&sighting).is_ok_and(|bytes| bytes.len() > MAX_SIGHTING_BYTES) {
        sighting.hardware = inventory::HardwareDetails::default();
        sighting.bmc.said.push("the hardware has more parts than can be reported".to_owned());
    }
    sighting
}

fn claim(machine: &dyn Machine) -> BmcClaim {
    let mut claim = BmcClaim { redfish: facts::redfish_interface(machine.tree()), ..BmcClaim::default() };
    match machine.ipmi() {
        Ok(mut bmc) => {
            let found = ipmi::network(bmc.as_mut());
            (claim.channels, claim.said) = (found.channels, found.said);
        }
        Err(error) => claim.said.push(format!("the machine has no local interface to a BMC by IPMI: {error}")),
    }
    claim.said.truncate(MAX_SAID);
    claim
}

/// Reports until the server has decided, or for as long as the medium says; returns how the machine is left.
pub async fn run(config: &DiscoveryConfig, client: &Client, machine: &Arc<dyn Machine>) -> Leave {
    let end = Instant::now() + Duration::from_secs(60 * u64::from(config.stay_minutes.min(MAX_STAY)));
    let (mut pause, mut said) = (AGAIN, String::new());
    while Instant::now() < end {
        let looked_at = Arc::clone(machine);
        // It asks a BMC, which may take seconds.
        let Ok(sighting) = tokio::task::spawn_blocking(move || sighting(looked_at.as_ref())).await else {
            tracing::error!("looking at the machine failed");
            tokio::time::sleep(MOST).await;
            continue;
        };
        let next = match report(client, &sighting).await {
            Ok(heard) => {
                if heard.message != said {
                    tracing::info!("the server says: {}", heard.message);
                    said.clone_from(&heard.message);
                }
                if heard.settled && config.afterwards == Afterwards::PowerOff {
                    return Leave::PowerOff;
                }
                pause = AGAIN;
                Duration::from_secs(heard.again_seconds.into()).clamp(LEAST, LONGEST)
            }
            Err(error) => {
                pause = (pause * 2).min(MOST);
                let wait = if error.is_refusal() { MOST } else { pause };
                tracing::warn!("{}; trying again in {} s", chain(&error), wait.as_secs());
                wait
            }
        };
        tokio::time::sleep_until((Instant::now() + next).min(end)).await;
    }
    tracing::info!(
        "the machine has waited for {} minutes, as its medium says: it is switched off",
        config.stay_minutes
    );
    Leave::PowerOff
}

async fn report(client: &Client, sighting: &Sighting) -> Result<Heard, ExchangeError> {
    let body = serde_json::to_vec(sighting).map_err(ExchangeError::Encode)?;
    client.send(DISCOVERY_PATH, body, MAX_HEARD_BYTES).await
}
