//! A diagnosis by the real server over sockets: requests to the BMC and the time that it takes, also where each answer comes 200 ms later; and that of a host in error nothing is read where detection
//! is off.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::metal3::ProvisioningState as State;
use api::metamorph::{HostDiagnosis, HostOperation, OperationPhase};
use e2e::{DiskImage, Options, World, machine};
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::time::sleep;

use crate::table::{Limit, Row, Unit};

/// Longest time to a state, seconds.
const PATIENCE: u64 = 180;
/// How long a host in error is watched where detection is off.
const WATCHED: Duration = Duration::from_secs(5);
/// Longest time of a diagnosis, seconds.
const LONGEST: u64 = 90;
/// What a diagnosis reads, and nothing else of the server does.
const READ: [&str; 4] = ["/LogServices", "/PowerSubsystem", "/ThermalSubsystem", "/Memory"];

/// What one diagnosis has cost.
struct Cost {
    requests: u64,
    calls: u32,
    took: Duration,
}

/// Measures.
///
/// # Errors
/// When a host does not come to its state, or what is wrong with its machine is not found.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let mut world =
        World::start(Options { machines: vec![machine("node-0")], tls: false, arguments: Vec::new() }).await?;
    world.apply_host("node-0", json!({})).await?;
    world.wait_state("node-0", PATIENCE, State::Available).await?;
    world.sim.settings("node-0", json!({ "ailments": ["dimm-failed"] })).await?;
    let near = diagnose(&world, "near").await?;
    world.sim.post("/machines/node-0/faults", json!({ "action": { "type": "delay", "ms": 200 } })).await?;
    let far = diagnose(&world, "far").await?;
    world.sim.clear_faults("node-0").await?;
    let off = unasked(&mut world).await?;
    let seconds = |figure, cost: &Cost, most, note: String| Row {
        figure,
        measured: Some(cost.took.as_secs_f64()),
        unit: Unit::Seconds,
        limit: Limit::AtMost(most),
        rival: None,
        note,
    };
    Ok(vec![
        Row {
            figure: "a diagnosis: requests to the BMC",
            measured: Some(near.requests.max(far.requests) as f64),
            unit: Unit::Count,
            limit: Limit::AtMost(40.0),
            rival: None,
            note: format!("{} of them the diagnosis' own; all that the BMC got meanwhile", near.calls),
        },
        seconds("a diagnosis on the simulator", &near, 5.0, "from the request to its end".to_owned()),
        seconds(
            "a diagnosis, each answer 200 ms later",
            &far,
            30.0,
            format!("{} requests one after the other", far.requests),
        ),
        Row {
            figure: "a host in error, detection off: requests",
            measured: Some(off as f64),
            unit: Unit::Count,
            limit: Limit::AtMost(0.0),
            rival: None,
            note: format!("for what a diagnosis reads, in {} s after the error", WATCHED.as_secs()),
        },
    ])
}

/// Has the host diagnosed, and finds the module that has failed.
async fn diagnose(world: &World, name: &str) -> anyhow::Result<Cost> {
    let operations: Api<HostOperation> = Api::default_namespaced(world.client.clone());
    let request = json!({
        "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation", "metadata": { "name": name },
        "spec": { "type": "Diagnose", "host": { "name": "node-0" } },
    });
    let before = requests(world).await?;
    let begun = Instant::now();
    operations
        .create(&PostParams::default(), &serde_json::from_value(request)?)
        .await
        .context("ask for a diagnosis")?;
    loop {
        let status = operations.get(name).await?.status.unwrap_or_default();
        if status.phase.is_final() {
            ensure!(status.phase == OperationPhase::Succeeded, "the diagnosis has failed: {status:?}");
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(LONGEST), "the diagnosis has no end: {status:?}");
        sleep(Duration::from_millis(10)).await;
    }
    let took = begun.elapsed();
    let requests = requests(world).await? - before;
    let diagnoses: Api<HostDiagnosis> = Api::default_namespaced(world.client.clone());
    let found = diagnoses.get("node-0").await?.status.context("read the diagnosis")?;
    let first = found.causes.first().context("find a cause")?;
    ensure!(first.code == "MemoryFailed", "{} was found, and not the module that has failed", first.code);
    Ok(Cost { requests, calls: found.bmc_calls, took })
}

async fn requests(world: &World) -> anyhow::Result<u64> {
    world.sim.now("node-0").await?["counters"]["requests"].as_u64().context("count the BMC's requests")
}

/// Requests for what a diagnosis reads, of a host that comes in error where detection is off.
async fn unasked(world: &mut World) -> anyhow::Result<usize> {
    world.restart_with(&["--error-detect", "off"]).await?;
    let image = DiskImage::small()?;
    let url = world.images.url("nowhere.raw");
    let wish = json!({ "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" });
    let before = world.sim.get("/machines/node-0/requests").await?["total"].as_u64().unwrap_or_default();
    world.patch("node-0", json!({ "spec": { "image": wish } })).await?;
    let is_in_error =
        |host: &api::metal3::BareMetalHost| host.status.as_ref().is_some_and(|status| status.error_type.is_some());
    world.wait("node-0", PATIENCE, "in error", is_in_error).await?;
    sleep(WATCHED).await;
    let log = world.sim.get("/machines/node-0/requests").await?;
    let all = log["requests"].as_array().context("read the BMC's requests")?;
    ensure!(log["total"].as_u64() > Some(before), "the BMC got no request at all");
    let since = all.iter().filter(|one| one["seq"].as_u64().is_some_and(|seq| seq > before));
    let paths = since.filter_map(|one| one["path"].as_str());
    Ok(paths.filter(|path| READ.iter().any(|part| path.contains(part))).count())
}
