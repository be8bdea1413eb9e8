//! A thousand hosts at once in one `metamorph up` on the fixture provisioner, which has upstream's timings and no machines: what the controllers and the
//! Kubernetes API take for them.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Options, World, machine};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::process::Usage;
use crate::table::{Limit, Rival, Row, Unit};
use crate::watching::{Counted, Watching, quiet, writes};

/// Hosts.
const HOSTS: usize = 1000;
/// Longest time for all of them.
const PATIENCE: Duration = Duration::from_secs(600);
/// What the fixture takes for one host from nothing to provisioned, in seconds: registration, inspection, deployment
/// (`provisioner-fixture`, `host.rs`; the same as in baremetal-operator's).
const OWN_TIMINGS: f64 = 5.0 + 2.0 + 10.0;
/// How many are created at once.
const AT_ONCE: usize = 8;

/// Measures.
///
/// # Errors
/// When a host does not reach `provisioned`.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let arguments = ["--provisioner", "fixture", "--power-on-limit", "0"].map(ToOwned::to_owned).to_vec();
    // The simulator wants a machine; no host is it.
    let world = World::start(Options { machines: vec![machine("unused")], tls: false, arguments }).await?;
    let pid = world.server.pid().context("find the server's process")?;
    let watching = Watching::start(&world);
    let idle = Usage::of(pid)?;
    let before = writes(&world)?.len();
    let start = Instant::now();
    stream::iter(0..HOSTS).map(|index| create(&world, index)).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let created = start.elapsed();
    loop {
        let done = watching.count_in(ProvisioningState::Provisioned);
        if done == HOSTS {
            break;
        }
        if start.elapsed() > PATIENCE {
            bail!("{done} of {HOSTS} hosts are provisioned; {:?}\n{}", watching.errors(), world.server.tail());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let wall = start.elapsed().as_secs_f64();
    quiet(&world).await?;
    let usage = Usage::of(pid)?;
    let errors = watching.errors();
    ensure!(errors.is_empty(), "hosts had errors on their way: {errors:?}");
    let written = Counted::of(&writes(&world)?.split_off(before));
    let each = |count: usize| count as f64 / HOSTS as f64;
    let row = |figure, measured, unit, rival, note| Row { figure, measured, unit, limit: Limit::Shown, rival, note };
    Ok(vec![
        row(
            "1,000 fixture hosts at once, enrol to provisioned: wall",
            Some(wall),
            Unit::Seconds,
            Rival::earlier("baremetal-operator on kube-apiserver", 185.0),
            format!(
                "{:.1} times the fixture's own {OWN_TIMINGS} s; all were created after {:.1} s",
                wall / OWN_TIMINGS,
                created.as_secs_f64()
            ),
        ),
        row(
            "1,000 fixture hosts at once: processor time of the server",
            Some(usage.cpu.saturating_sub(idle.cpu).as_secs_f64()),
            Unit::Seconds,
            Rival::earlier("baremetal-operator and its API server", 301.0),
            "controllers and Kubernetes API, user and system".to_owned(),
        ),
        row(
            "1,000 fixture hosts at once: peak memory of the server",
            Some(usage.peak_memory as f64),
            Unit::Bytes,
            Rival::earlier("baremetal-operator, kube-apiserver and etcd", 3.2e9),
            format!("{:.0} MB with no host", idle.peak_memory as f64 / 1e6),
        ),
        row(
            "1,000 fixture hosts at once: API writes a host",
            Some(each(written.kept)),
            Unit::Count,
            Rival::earlier("baremetal-operator", 21.6),
            format!(
                "beside {:.1} of firmware, {:.1} of history and {:.1} Events",
                each(written.firmware),
                each(written.history),
                each(written.events)
            ),
        ),
    ])
}

async fn create(world: &World, index: usize) -> anyhow::Result<()> {
    let name = format!("host-{index}");
    let secret: Secret = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": format!("{name}-bmc-secret") }, "stringData": { "username": "u", "password": "p" } }))?;
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    secrets.create(&PostParams::default(), &secret).await.with_context(|| format!("create {name}'s Secret"))?;
    let image = json!({ "url": "http://192.0.2.8/disk.raw", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw" });
    let host: BareMetalHost =
        serde_json::from_value(json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": name }, "spec": { "online": true, "image": image,
            "bootMACAddress": format!("00:1b:21:00:{:02x}:{:02x}", index / 256, index % 256),
            "bmc": { "address": format!("redfish-virtualmedia+http://192.0.2.7/redfish/v1/Systems/{index}"),
                "credentialsName": format!("{name}-bmc-secret") } } }))?;
    world.hosts().create(&PostParams::default(), &host).await.with_context(|| format!("create {name}"))?;
    Ok(())
}
