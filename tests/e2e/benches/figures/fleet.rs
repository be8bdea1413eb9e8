//! A hundred hosts at once in one `metamorph up`: time, processor, memory, and what is on disk for them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{DiskImage, Options, World, agent_image, machine};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::process::{Usage, files_open_for_writing, size_below};
use crate::table::{Limit, Rival, Row, Unit};
use crate::watching::{Counted, Watching, quiet, writes};

/// Hosts.
const HOSTS: usize = 100;
/// Longest time for all of them.
const PATIENCE: Duration = Duration::from_secs(600);

/// Measures.
///
/// # Errors
/// When a host does not reach `provisioned`.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let mut rows = rows(&found(false).await?);
    rows.push(over_https(&found(true).await?));
    Ok(rows)
}

async fn found(tls: bool) -> anyhow::Result<Fleet> {
    let names: Vec<String> = (0..HOSTS).map(|index| format!("node-{index}")).collect();
    let machines = names.iter().map(|name| machine(name)).collect();
    let world = World::start(Options { machines, tls, arguments: Vec::new() }).await?;
    let pid = world.server.pid().context("find the server's process")?;
    let watching = Watching::start(&world);
    let image = DiskImage::tiny()?;
    let url = world.images.put("disk.raw", image.bytes.clone());
    let image = json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" });

    let (stored, idle) = (Stored::look(&world)?, Usage::of(pid)?);
    let before = writes(&world)?.len();
    let start = Instant::now();
    for name in &names {
        apply(&world, name, &image, tls).await?;
    }
    wait_for_all(&world, &watching, start).await?;
    let wall = start.elapsed();
    let usage = Usage::of(pid)?;
    let cpu = usage.cpu.saturating_sub(idle.cpu);
    quiet(&world).await?;
    let written = Counted::of(&writes(&world)?.split_off(before));
    let mut requests = 0;
    for name in &names {
        let machine = world.sim.get(&format!("/machines/{name}")).await?;
        ensure!(machine["counters"]["mediaBytesRead"].as_u64() > Some(0), "{name} did not boot from its medium");
        requests += machine["counters"]["requests"].as_u64().unwrap_or(0);
    }
    let stray = stray_files(&world, pid)?;
    ensure!(stray.is_empty(), "the server writes files outside its data folder: {stray:?}");
    let now = Stored::look(&world)?;
    Ok(Fleet { wall, cpu, idle, usage, written, requests, stored, now })
}

/// What was found.
struct Fleet {
    wall: Duration,
    cpu: Duration,
    idle: Usage,
    usage: Usage,
    written: Counted,
    requests: u64,
    stored: Stored,
    now: Stored,
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rows(fleet: &Fleet) -> Vec<Row> {
    let hosts = HOSTS as f64;
    let media = (fleet.now.rest as f64 - fleet.stored.rest as f64) / hosts;
    let database = (fleet.now.database as f64 - fleet.stored.database as f64) / hosts;
    let each = format!(
        "a host: {:.1} BMC requests, {:.1} API writes, {:.1} of firmware, {:.1} of history, {:.1} Events",
        fleet.requests as f64 / hosts,
        fleet.written.kept as f64 / hosts,
        fleet.written.firmware as f64 / hosts,
        fleet.written.history as f64 / hosts,
        fleet.written.events as f64 / hosts
    );
    vec![
        Row {
            figure: "Disk a host for boot media",
            measured: Some(media.max(0.0)),
            unit: Unit::Bytes,
            limit: Limit::AtMost(0.0),
            rival: Rival::earlier("Ironic 39.0", 441e6),
            note: format!(
                "{HOSTS} hosts booted from media; beside it the API's database: {:.0} kB a host",
                database / 1e3
            ),
        },
        Row {
            figure: "100 hosts at once, enrol to provisioned: wall",
            measured: Some(fleet.wall.as_secs_f64()),
            unit: Unit::Seconds,
            limit: Limit::Shown,
            rival: Rival::earlier("Ironic 39.0, 29 hosts, enrol alone", 133.0),
            note: format!("agents, simulator and image server on the same cores; {each}"),
        },
        Row {
            figure: "100 hosts at once: processor time of the server",
            measured: Some(fleet.cpu.as_secs_f64()),
            unit: Unit::Seconds,
            limit: Limit::Shown,
            rival: None,
            note: "user and system".to_owned(),
        },
        Row {
            figure: "100 hosts at once: peak memory of the server",
            measured: Some(fleet.usage.peak_memory as f64),
            unit: Unit::Bytes,
            limit: Limit::AtMost(150e6),
            rival: Rival::earlier("Ironic alone, idle", 299e6),
            note: format!(
                "aim: below 100 MB; Kubernetes API included (kube-apiserver and etcd: 327 MB); {:.0} MB with no host",
                fleet.idle.peak_memory as f64 / 1e6
            ),
        },
    ]
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn over_https(fleet: &Fleet) -> Row {
    Row {
        figure: "100 hosts at once over HTTPS: peak memory of the server",
        measured: Some(fleet.usage.peak_memory as f64),
        unit: Unit::Bytes,
        limit: Limit::AtMost(150e6),
        rival: Rival::earlier("Ironic alone, idle", 299e6),
        note: format!(
            "aim: below 100 MB; TLS to each BMC; wall {:.1} s, processor time {:.1} s, {:.1} BMC requests a host",
            fleet.wall.as_secs_f64(),
            fleet.cpu.as_secs_f64(),
            fleet.requests as f64 / HOSTS as f64
        ),
    }
}

async fn apply(world: &World, name: &str, image: &serde_json::Value, tls: bool) -> anyhow::Result<()> {
    let machine = world.sim.machine(name);
    let secret: Secret = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": format!("{name}-bmc-secret") },
        "stringData": { "username": machine["username"], "password": machine["password"] } }))?;
    let secrets: Api<Secret> = Api::default_namespaced(world.client.clone());
    secrets.create(&PostParams::default(), &secret).await.with_context(|| format!("create {name}'s Secret"))?;
    let host: BareMetalHost =
        serde_json::from_value(json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": name }, "spec": { "online": true, "image": image, "bootMACAddress": machine["mac"],
            "bmc": { "address": world.sim.address(name), "credentialsName": format!("{name}-bmc-secret"),
                // The simulator's certificates are of its own authority.
                "disableCertificateVerification": tls } } }))?;
    world.hosts().create(&PostParams::default(), &host).await.with_context(|| format!("create {name}"))?;
    Ok(())
}

async fn wait_for_all(world: &World, watching: &Watching, start: Instant) -> anyhow::Result<()> {
    loop {
        let done = watching.count_in(ProvisioningState::Provisioned);
        if done == HOSTS {
            let errors = watching.errors();
            ensure!(errors.is_empty(), "hosts had errors on their way: {errors:?}");
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("{done} of {HOSTS} hosts are provisioned; {:?}\n{}", watching.errors(), world.server.tail());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Bytes on the server's disk.
#[derive(Clone, Copy)]
struct Stored {
    /// The embedded API's own folder.
    database: u64,
    /// All the rest of the data folder, and the agent's image.
    rest: u64,
}

impl Stored {
    fn look(world: &World) -> anyhow::Result<Self> {
        let data = world.folder.path().join("data");
        let database = data.join("api");
        let image = size_below(&agent_image()?, Path::new(""))?;
        Ok(Self { database: size_below(&database, Path::new(""))?, rest: size_below(&data, &database)? + image })
    }
}

/// Files that the server writes and that are neither its database nor its logs.
fn stray_files(world: &World, pid: rustix::process::Pid) -> anyhow::Result<Vec<(String, u64)>> {
    let known =
        [world.folder.path().join("data/api"), world.folder.path().join("audit.jsonl"), world.server.log.clone()];
    // The server prints where the bench prints: that may be a file too.
    let printed: Vec<PathBuf> =
        ["/proc/self/fd/1", "/proc/self/fd/2"].iter().filter_map(|fd| Path::new(fd).read_link().ok()).collect();
    let mut found = files_open_for_writing(pid)?;
    found.retain(|(path, _)| !known.iter().any(|known| Path::new(path).starts_with(known)));
    found.retain(|(path, _)| !printed.iter().any(|printed| Path::new(path) == printed));
    Ok(found)
}
