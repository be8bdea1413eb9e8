//! The host controller alone, on one thread of this process over the embedded API in memory: how fast it looks at hosts of which nothing is new,
//! and how it starts among a thousand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use kube::api::ListParams;
use provisioner::{HostKey, Provisioner, Registry};
use scenarios::Site;
use scenarios::{FixtureProvisioner, Machines, fixture};

use crate::pace::{Pace, thread_time};
use crate::table::{Limit, Row, Unit};

/// Hosts.
const HOSTS: u32 = 1000;
/// How often each is looked at.
const ROUNDS: u64 = 100;
/// For how long, on the site's own clock, the Kubernetes API is asked nothing when all is settled.
const QUIET: Duration = Duration::from_secs(180);
/// How often that is looked for.
const PATIENCE: u32 = 500;

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
    wait_until_at_rest(site).await?;

    // A restart: what is to be known is listed, then each host is looked at.
    controller.abort();
    let (asked, begun, calls) = (machines.power_reads(), Instant::now(), site.weather.calls().len());
    let provisioner = Arc::new(FixtureProvisioner::new(machines.clone()));
    let (_controller, observer) = site.observed(Registry::new(Arc::clone(&provisioner) as Arc<dyn Provisioner>));
    observer.in_step().await;
    let listed = begun.elapsed();
    until(&machines, asked + u64::from(HOSTS)).await;
    let (looked, calls) = (begun.elapsed(), site.weather.calls().len() - calls);
    wait_until_at_rest(site).await?;

    let pace = Pace::now(1)?;
    let (asked, calls_before, begun) = (machines.power_reads(), site.weather.calls().len(), thread_time());
    for round in 1..=ROUNDS {
        names.iter().for_each(|name| {
            provisioner.wake(&HostKey { namespace: "default".to_owned(), name: name.clone(), uid: String::new() });
        });
        until(&machines, asked + round * u64::from(HOSTS)).await;
    }
    let (looks, took) = (machines.power_reads() - asked, thread_time().saturating_sub(begun));
    let pace = pace.until(Pace::now(1)?);
    let strays = site.weather.calls().split_off(calls_before);
    ensure!(strays.is_empty(), "{} calls to the Kubernetes API: {:?} …", strays.len(), strays.first());
    Ok(vec![
        Row {
            figure: "Looks at settled hosts, woken without news",
            measured: Some(looks as f64 / took.as_secs_f64()),
            unit: Unit::PerSecond,
            limit: Limit::AtLeast(pace.rate(20_000.0)),
            rival: None,
            note: format!(
                "a second of one core's time; each decides and asks for the power; no call to the Kubernetes API in {looks}; {}",
                pace.told()
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

/// Waits until all machines are on, and the controller has had nothing to ask the Kubernetes API for some minutes.
async fn wait_until_at_rest(site: &Site) -> anyhow::Result<()> {
    let is_on = |host: &BareMetalHost| {
        host.state() == ProvisioningState::Available && host.status.as_ref().is_some_and(|status| status.powered_on)
    };
    for _ in 0..PATIENCE {
        let calls = site.weather.calls().len();
        tokio::time::sleep(QUIET).await;
        let hosts = site.hosts().list(&ListParams::default()).await.context("list the hosts")?;
        if hosts.items.iter().all(is_on) && site.weather.calls().len() == calls {
            return Ok(());
        }
    }
    bail!("not all hosts settled")
}
