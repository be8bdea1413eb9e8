//! A thousand hosts at once in one `metamorph up` on the fixture provisioner, which has upstream's timings and no machines: what the controllers and the
//! Kubernetes API take for them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Options, World, machine};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::pace::Pace;
use crate::process::Usage;
use crate::table::{Limit, Rival, Row, Unit};
use crate::watching::{Counted, Watching, Write, quiet, writes};

/// Hosts.
pub const HOSTS: usize = 1000;
/// Limits: what is reached on two shared cores, with room for their unrest.
const MOST_WALL: f64 = 27.0;
const MOST_CPU: f64 = 20.0;
const MOST_MEMORY: f64 = 290e6;
const MOST_WRITES: f64 = 26.0;
/// Seven, which are baremetal-operator's for a host of Ironic's, reason by reason, and which its users watch: Registered, BMCAccessValidated,
/// InspectionStarted, InspectionComplete, ProfileSet, ProvisioningStarted, ProvisioningComplete. Its own fixture tells four of them.
const MOST_EVENTS: f64 = 7.5;
/// Milliseconds a second: one percent of a core.
const MOST_IDLE: f64 = 10.0;
const MOST_START: f64 = 5.0;
/// Longest time for all of them.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// What the fixture takes for one host from nothing to provisioned, in seconds: registration, inspection, deployment
/// (`provisioner-fixture`, `host.rs`).
pub const OWN_TIMINGS: f64 = 0.2 + 2.0 + 10.0;
/// How many are created at once.
pub const AT_ONCE: usize = 8;
/// For how long the server is looked at when all hosts are provisioned and nothing is wished of them.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time for a server that was started again.
const READY: Duration = Duration::from_secs(60);

/// Measures.
///
/// # Errors
/// When a host does not reach `provisioned`.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let arguments = ["--provisioner", "fixture", "--power-on-limit", "0"].map(ToOwned::to_owned).to_vec();
    // The simulator wants a machine; no host is it.
    let mut world = World::start(Options { machines: vec![machine("unused")], tls: false, arguments }).await?;
    let mut rows = enrolled(&world).await?;
    rows.extend(idle(&world).await?);
    rows.extend(restarted(&mut world).await?);
    Ok(rows)
}

fn row(figure: &'static str, measured: f64, unit: Unit, limit: Limit, note: String) -> Row {
    Row { figure, measured: Some(measured), unit, limit, rival: None, note }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(count: usize) -> f64 {
    count as f64 / HOSTS as f64
}

/// All hosts at once, from nothing to provisioned.
async fn enrolled(world: &World) -> anyhow::Result<Vec<Row>> {
    let pid = world.server.pid().context("find the server's process")?;
    let pace = Pace::now(2)?;
    let watching = Watching::start(world);
    let idle = Usage::of(pid)?;
    let before = writes(world)?.len();
    let start = Instant::now();
    stream::iter(0..HOSTS)
        .map(|index| create(&world.client, index))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
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
    quiet(world).await?;
    let usage = Usage::of(pid)?;
    let pace = pace.until(Pace::now(2)?);
    let errors = watching.errors();
    ensure!(errors.is_empty(), "hosts had errors on their way: {errors:?}");
    let written = writes(world)?.split_off(before);
    tell(&written);
    let written = Counted::of(&written);
    Ok(rows(&Enrolled { wall, created: created.as_secs_f64(), idle, usage, written, pace }))
}

/// Tells, if asked to, how often the server wrote each kind of object, and all that it wrote of the last host, in order.
fn tell(written: &[Write]) {
    if std::env::var_os("METAMORPH_BENCH_VERBOSE").is_none() {
        return;
    }
    let mut kinds = BTreeMap::<String, usize>::new();
    let last = format!("host-{}", HOSTS - 1);
    let mut lines = String::new();
    for write in written.iter().filter(|write| !write.is_own) {
        // Names of hosts and of what belongs to them begin with `host-`.
        let kind: Vec<&str> = write.what.split('/').filter(|part| !part.starts_with("host-")).collect();
        *kinds.entry(kind.join("/")).or_default() += 1;
        if write.what.contains(&last) {
            let _ = writeln!(lines, "{} {}", write.time, write.what);
        }
    }
    for (kind, count) in kinds {
        let _ = writeln!(lines, "{count:>6} {kind}");
    }
    crate::say(&lines);
}

/// What was found while they were enrolled.
struct Enrolled {
    /// Seconds until all were provisioned.
    wall: f64,
    /// Seconds until all were created.
    created: f64,
    idle: Usage,
    usage: Usage,
    written: Counted,
    /// How fast the cores were meanwhile.
    pace: Pace,
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rows(found: &Enrolled) -> Vec<Row> {
    let Enrolled { wall, created, idle, usage, written, pace } = found;
    let (cpu, peak) = (usage.cpu.saturating_sub(idle.cpu).as_secs_f64(), usage.peak_memory as f64);
    let all = written.kept + written.firmware + written.history;
    let rows = [
        (
            Rival::earlier("baremetal-operator on kube-apiserver", 185.0),
            row(
                "1,000 fixture hosts at once, enrol to provisioned: wall",
                *wall,
                Unit::Seconds,
                Limit::AtMost(MOST_WALL),
                format!(
                    "{:.2} times the fixture's own {OWN_TIMINGS} s; all were created after {created:.1} s",
                    wall / OWN_TIMINGS
                ),
            ),
        ),
        (
            Rival::earlier("baremetal-operator and its API server", 301.0),
            row(
                "1,000 fixture hosts at once: processor time of the server",
                cpu,
                Unit::Seconds,
                Limit::AtMost(pace.time(MOST_CPU)),
                format!(
                    "controllers and Kubernetes API in one process, user and system; limit {MOST_CPU} s: {}",
                    pace.told()
                ),
            ),
        ),
        (
            Rival::earlier("baremetal-operator, kube-apiserver and etcd", 3.2e9),
            row(
                "1,000 fixture hosts at once: peak memory of the server",
                peak,
                Unit::Bytes,
                Limit::AtMost(MOST_MEMORY),
                format!(
                    "controllers and Kubernetes API in one process; {:.0} MB with no host, {:.0} MB afterwards; aim: below 128 MB",
                    idle.peak_memory as f64 / 1e6,
                    usage.memory as f64 / 1e6
                ),
            ),
        ),
        (
            Rival::earlier("baremetal-operator", 21.6),
            row(
                "1,000 fixture hosts at once: API writes a host",
                each(all),
                Unit::Count,
                Limit::AtMost(MOST_WRITES),
                format!(
                    "{:.1} of hosts, records, Secrets and hardware, {:.1} of firmware, {:.1} of history; beside the Events",
                    each(written.kept),
                    each(written.firmware),
                    each(written.history),
                ),
            ),
        ),
        (
            None,
            row(
                "1,000 fixture hosts at once: Events a host",
                each(written.events),
                Unit::Count,
                Limit::AtMost(MOST_EVENTS),
                String::new(),
            ),
        ),
    ];
    rows.into_iter().map(|(rival, row)| Row { rival, ..row }).collect()
}

/// Nothing is to be done.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn idle(world: &World) -> anyhow::Result<Vec<Row>> {
    let pid = world.server.pid().context("find the server's process")?;
    let pace = Pace::now(1)?;
    let (before, since) = (writes(world)?.len(), Usage::of(pid)?);
    tokio::time::sleep(IDLE).await;
    let (written, used) = (writes(world)?.split_off(before), Usage::of(pid)?);
    let pace = pace.until(Pace::now(1)?);
    Ok(vec![
        row(
            "1,000 provisioned hosts, nothing to do: processor time a second",
            used.cpu.saturating_sub(since.cpu).as_secs_f64() / IDLE.as_secs_f64() * 1e3,
            Unit::Milliseconds,
            Limit::AtMost(pace.time(MOST_IDLE)),
            format!("{} s, in which each host is looked at; limit {MOST_IDLE} ms: {}", IDLE.as_secs(), pace.told()),
        ),
        row(
            "1,000 provisioned hosts, nothing to do: API writes beside the Lease",
            written.len() as f64,
            Unit::Count,
            Limit::AtMost(0.0),
            written.first().map(|write| write.what.clone()).unwrap_or_default(),
        ),
    ])
}

/// Stopped in order, and started again.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
async fn restarted(world: &mut World) -> anyhow::Result<Vec<Row>> {
    world.server.stop().await?;
    let before = writes(world)?.len();
    let start = Instant::now();
    world.start_server_again().await?;
    let url = format!("http://{}/readyz", world.health_endpoint());
    while !reqwest::get(&url).await.is_ok_and(|answer| answer.status().is_success()) {
        ensure!(start.elapsed() < READY, "the server is not ready; {}", world.server.tail());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ready = start.elapsed().as_secs_f64();
    quiet(world).await?;
    let mut written = writes(world)?.split_off(before);
    // Each start applies the server's own policies.
    written.retain(|write| write.what.contains("/namespaces/default/"));
    tell(&written);
    let usage = Usage::of(world.server.pid().context("find the server's process")?)?;
    Ok(vec![
        row(
            "Started again with 1,000 hosts: until it is ready",
            ready,
            Unit::Seconds,
            Limit::AtMost(MOST_START),
            format!("leads and has listed all; {:.1} s of processor time", usage.cpu.as_secs_f64()),
        ),
        row(
            "Started again with 1,000 hosts: API writes beside them",
            written.len() as f64,
            Unit::Count,
            Limit::AtMost(0.0),
            written.first().map(|write| write.what.clone()).unwrap_or_default(),
        ),
        row(
            "Started again with 1,000 hosts: peak memory",
            usage.peak_memory as f64,
            Unit::Bytes,
            Limit::AtMost(MOST_MEMORY),
            "all hosts looked at".to_owned(),
        ),
    ])
}

/// Creates the host of this number, with its Secret.
///
/// # Errors
/// When the server refuses one.
pub async fn create(client: &Client, index: usize) -> anyhow::Result<()> {
    let name = format!("host-{index}");
    let secret: Secret = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": format!("{name}-bmc-secret") }, "stringData": { "username": "u", "password": "p" } }))?;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &secret).await.with_context(|| format!("create {name}'s Secret"))?;
    let image = json!({ "url": "http://192.0.2.8/disk.raw", "checksum": "00".repeat(32), "checksumType": "sha256", "format": "raw" });
    let host: BareMetalHost =
        serde_json::from_value(json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": name }, "spec": { "online": true, "image": image,
            "bootMACAddress": format!("00:1b:21:00:{:02x}:{:02x}", index / 256, index % 256),
            "bmc": { "address": format!("redfish-virtualmedia+http://192.0.2.7/redfish/v1/Systems/{index}"),
                "credentialsName": format!("{name}-bmc-secret") } } }))?;
    let hosts: Api<BareMetalHost> = Api::default_namespaced(client.clone());
    hosts.create(&PostParams::default(), &host).await.with_context(|| format!("create {name}"))?;
    Ok(())
}
