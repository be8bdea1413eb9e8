//! From what a BMC tells by itself to the host's condition.

use std::time::{Duration, Instant};

use anyhow::Context;
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Options, World, machine};
use serde_json::{Value, json};

use crate::table::{Limit, Row, Unit};

/// Hosts of each kind; each is told of once.
const HOSTS: usize = 10;
/// Longest wait, seconds.
const PATIENCE: u64 = 120;

/// Measures.
///
/// # Errors
/// When an event does not come to its host.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let stream = told("both", |m| m["streams"]["open"] == 1).await?;
    let subscription = told("subscriptions", |m| m["subscriptions"] == 1).await?;
    Ok(vec![
        row("From a pushed event to the host's condition, by a stream", &stream),
        row("From a pushed event to the host's condition, by a subscription", &subscription),
    ])
}

fn row(figure: &'static str, times: &[Duration]) -> Row {
    let worst = times.last().copied().unwrap_or_default();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Row {
        figure,
        measured: Some(worst.as_secs_f64() * 1e3),
        unit: Unit::Milliseconds,
        limit: Limit::AtMost(2000.0),
        rival: None,
        note: format!("the slowest of {} hosts; the median is {:.0} ms", times.len(), median.as_secs_f64() * 1e3),
    }
}

fn is_ill(host: &BareMetalHost) -> bool {
    let conditions = host.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Healthy" && condition.reason == "CriticalError")
}

/// The times from the fault to the condition, the shortest first.
async fn told(events: &str, is_heard: impl Fn(&Value) -> bool) -> anyhow::Result<Vec<Duration>> {
    let names: Vec<String> = (0..HOSTS).map(|index| format!("node-{index}")).collect();
    let machines = names.iter().map(|name| machine(name)).collect();
    let options = Options { machines, ..Options::one_fake() }.with(&["--error-detect", "native"]);
    let world = World::start(options).await?;
    for name in &names {
        world.sim.settings(name, json!({ "events": events })).await?;
        world.apply_host(name, json!({ "externallyProvisioned": true })).await?;
    }
    for name in &names {
        world.wait_state(name, PATIENCE, ProvisioningState::ExternallyProvisioned).await?;
        // It is listened to from its first look at rest on, which would be within a minute.
        world.annotate(name, "example.org/look=now").await?;
        world.sim.wait(name, PATIENCE, "heard", &is_heard).await?;
    }
    let mut times = Vec::new();
    for name in &names {
        let waiting = world.wait(name, PATIENCE, "ill", is_ill);
        let start = Instant::now();
        let telling = world.sim.settings(name, json!({ "ailments": ["psu-lost"] }));
        let (waited, told) = tokio::join!(waiting, telling);
        told?;
        waited.context("wait for the condition")?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}
