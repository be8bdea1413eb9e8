//! The host controller alone, on one thread of this process over the embedded API in memory: how fast it looks at hosts of which nothing is new,
//! and how it starts among a thousand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::metal3::{BareMetalHost, ProvisioningState};
use kube::api::ListParams;
use provisioner::{HostKey, Provisioner, Registry};
use scenarios::Site;
use scenarios::{FixtureProvisioner, Machines, fixture};

use crate::table::{Limit, Row, Unit};

/// Hosts.
const HOSTS: u32 = 1000;
/// How often each is looked at.
const ROUNDS: u64 = 100;
/// Longest time on the site's own clock until all hosts are inspected, in minutes.
const PATIENCE: u32 = 24 * 60;

/// Measures.
///
/// # Errors
/// When the hosts do not settle.
pub fn measure() -> anyhow::Result<Vec<Row>> {
    scenarios::run(1, async |site| found(&site).await)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn found(site: &Site) -> anyhow::Result<Vec<Row>> {
    let machines = Machines::default();
    let controller = site.controller(fixture(&machines));
    let names: Vec<String> = (0..HOSTS).map(|index| format!("h{index}")).collect();
    for name in &names {
        site.create_host(name).await;
    }
    all_available(site).await?;

    // A restart: what is to be known is listed, then each host is looked at.
    controller.abort();
    let (asked, begun, calls) = (machines.power_reads(), Instant::now(), site.weather.calls().len());
    let provisioner = Arc::new(FixtureProvisioner::new(machines.clone()));
    let (_controller, observer) = site.observed(Registry::new(Arc::clone(&provisioner) as Arc<dyn Provisioner>));
    observer.in_step().await;
    let listed = begun.elapsed();
    until(&machines, asked + u64::from(HOSTS)).await;
    let (looked, calls) = (begun.elapsed(), site.weather.calls().len() - calls);

    let (asked, calls_before, begun) = (machines.power_reads(), site.weather.calls().len(), Instant::now());
    for round in 1..=ROUNDS {
        names.iter().for_each(|name| {
            provisioner.wake(&HostKey { namespace: "default".to_owned(), name: name.clone(), uid: String::new() });
        });
        until(&machines, asked + round * u64::from(HOSTS)).await;
    }
    let (looks, took) = (machines.power_reads() - asked, begun.elapsed());
    let strays = site.weather.calls().len() - calls_before;
    Ok(vec![
        Row {
            figure: "Looks at settled hosts, woken without news",
            measured: Some(looks as f64 / took.as_secs_f64()),
            unit: Unit::PerSecond,
            limit: Limit::AtLeast(20_000.0),
            rival: None,
            note: format!(
                "one core; each decides and asks for the power; {strays} calls to the Kubernetes API in {looks}"
            ),
        },
        Row {
            figure: "Restart with 1,000 hosts: all objects known",
            measured: Some(listed.as_secs_f64()),
            unit: Unit::Seconds,
            limit: Limit::AtMost(2.0),
            rival: None,
            note: format!(
                "API in the same process and thread; all looked at in {:.1} s with {calls} calls",
                looked.as_secs_f64()
            ),
        },
    ])
}

/// Waits until the power of machines has been asked for so often.
async fn until(machines: &Machines, powers: u64) {
    while machines.power_reads() < powers {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn all_available(site: &Site) -> anyhow::Result<()> {
    let available = |host: &BareMetalHost| host.state() == ProvisioningState::Available;
    for _ in 0..PATIENCE {
        let hosts = site.hosts().list(&ListParams::default()).await.context("list the hosts")?;
        if hosts.items.iter().all(available) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    bail!("not all hosts became available")
}
