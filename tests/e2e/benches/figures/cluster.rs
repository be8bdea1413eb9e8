//! A thousand hosts at once on a real kube-apiserver: `metamorph operator` with the fixture provisioner, and baremetal-operator with its own beside it
//! where its program is given.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Running, program};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio::process::Command;

use crate::api::server::{self, Kind, Server, ends_with_us};
use crate::pace::Pace;
use crate::process::Usage;
use crate::table::{Limit, Rival, Row, Unit};
use crate::thousand::{AT_ONCE, HOSTS, OWN_TIMINGS, PATIENCE, create};
use crate::watching::Watching;

/// baremetal-operator's manager, built elsewhere from its sources (docs/upstream-e2e.md).
const UPSTREAM: &str = "METAMORPH_BMO";
/// Limits without the rival beside it: what is reached on two shared cores, with room for their unrest.
const MOST_WALL: f64 = 60.0;
const MOST_CPU: f64 = 20.0;
const MOST_MEMORY: f64 = 200e6;
/// Limits of the rival's figures.
const WALL_OF_RIVAL: f64 = 0.8;
/// For how long the count of requests has to stay as it is until the operator has written all.
const QUIET: Duration = Duration::from_secs(2);

/// Which operator.
enum Operator {
    Own,
    Upstream(PathBuf),
}

/// What was found of one.
struct Found {
    /// Seconds until all hosts were provisioned.
    wall: f64,
    /// How fast the cores were meanwhile.
    pace: Pace,
    /// Seconds of processor time of the operator, and of API server and etcd together.
    cpu: (f64, f64),
    /// Most resident memory: the same two.
    peak: (f64, f64),
    /// Requests that write, Events left out, and those of Events.
    writes: (f64, f64),
}

/// Measures.
///
/// # Errors
/// When a host does not reach `provisioned`.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let programs = server::programs().await?;
    let upstream = std::env::var_os(UPSTREAM).map(PathBuf::from);
    if let Some(path) = &upstream {
        ensure!(path.is_file(), "{UPSTREAM} is {}, which is no file", path.display());
    }
    let own = side(&Operator::Own, &programs).await.context("measure metamorph on kube-apiserver")?;
    let rival = match upstream {
        Some(path) => Some(side(&Operator::Upstream(path), &programs).await.context("measure baremetal-operator")?),
        None => None,
    };
    Ok(rows(&own, rival.as_ref()))
}

/// One operator on a kube-apiserver of its own.
async fn side(operator: &Operator, programs: &Path) -> anyhow::Result<Found> {
    let mut server = Server::start(Kind::Real, programs).await?;
    server.define().await?;
    let kubeconfig = server.kubeconfig()?;
    let config = Kubeconfig::read_from(&kubeconfig).context("read the kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let folder = tempfile::tempdir().context("make a folder")?;
    let running = start(operator, &kubeconfig, &folder)?;
    let pid = running.pid().context("find the operator's process")?;
    settled(&server).await?;
    let hosts: Api<BareMetalHost> = Api::default_namespaced(client.clone());
    let pace = Pace::now(2)?;
    let watching = Watching::over(hosts);
    let (before, since, of_server) = (written(&server).await?, Usage::of(pid)?, server.used()?);
    let begun = Instant::now();
    let each = stream::iter(0..HOSTS).map(|index| create(&client, index));
    each.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    loop {
        let done = watching.count_in(ProvisioningState::Provisioned);
        if done == HOSTS {
            break;
        }
        if begun.elapsed() > PATIENCE {
            bail!("{done} of {HOSTS} hosts are provisioned; {:?}\n{}", watching.errors(), running.tail());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let wall = begun.elapsed().as_secs_f64();
    settled(&server).await?;
    let errors = watching.errors();
    ensure!(errors.is_empty(), "hosts had errors on their way: {errors:?}");
    let (used, by_server, after) = (Usage::of(pid)?, server.used()?, written(&server).await?);
    let pace = pace.until(Pace::now(2)?);
    let seconds = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
    Ok(Found {
        wall,
        pace,
        cpu: (seconds(used.cpu, since.cpu), seconds(by_server.cpu, of_server.cpu)),
        peak: (float(used.peak_memory), float(by_server.peak)),
        // Two of them are the bench's own: a Secret and a host.
        writes: (each_of(after.0 - before.0) - 2.0, each_of(after.1 - before.1)),
    })
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
/// The number, as figures are.
fn float(count: u64) -> f64 {
    count as f64
}

fn each_of(count: f64) -> f64 {
    count / float(HOSTS as u64)
}

fn start(operator: &Operator, kubeconfig: &Path, folder: &TempDir) -> anyhow::Result<Running> {
    let mut command: Command;
    match operator {
        Operator::Own => {
            command = ends_with_us(&program("metamorph")?);
            command.args(["--log", "warn", "operator", "--provisioner", "fixture", "--power-on-limit", "0"]);
            command.args(["--namespace", "default", "--own-namespace", "default"]);
            command.arg("--kubeconfig").arg(kubeconfig);
            let image = std::env::var_os("METAMORPH_AGENT_IMAGE").context("find METAMORPH_AGENT_IMAGE")?;
            command.arg("--agent-image").arg(image);
            for listen in ["--media-listen", "--agent-listen", "--health-listen"] {
                command.args([listen, "127.0.0.1:0"]);
            }
        }
        Operator::Upstream(path) => {
            command = ends_with_us(path);
            command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", "default", "--provisioner=fixture"]);
            command.args(["--webhook-port=0", "--metrics-addr=0", "--health-addr=0"]);
            // With its own limits of 20 and 30 a second the client would be what is measured.
            command.args(["--kube-api-qps=1000", "--kube-api-burst=1000"]);
        }
    }
    command.stdout(Stdio::null());
    Running::start(command, &folder.path().join("operator.log"))
}

/// Waits until nothing is written any more.
async fn settled(server: &Server) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut last, mut since) = (written(server).await?, Instant::now());
    while since.elapsed() < QUIET {
        ensure!(begun.elapsed() < PATIENCE, "the operator goes on writing");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = written(server).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Requests that write, as kube-apiserver counts them (`apiserver_request_total`): all but Events and Leases, and Events. Its own controllers write
/// what is left out by group.
async fn written(server: &Server) -> anyhow::Result<(f64, f64)> {
    let text = String::from_utf8(server.client()?.get("/metrics").await?).context("read the metrics")?;
    Ok(writes_in(&text))
}

fn writes_in(text: &str) -> (f64, f64) {
    let (mut all, mut events) = (0.0, 0.0);
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let of = |name: &str| {
            let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
            labels.get(start..)?.split('"').next()
        };
        let Ok(count) = count.trim().parse::<f64>() else { continue };
        if !matches!(of("verb"), Some("POST" | "PUT" | "PATCH" | "APPLY" | "DELETE")) {
            continue;
        }
        match (of("group").unwrap_or_default(), of("resource").unwrap_or_default()) {
            (_, "events") => events += count,
            ("metal3.io" | "metamorph.metal3.io", _) | ("", "secrets") => all += count,
            _ => {}
        }
    }
    (all, events)
}

fn rows(own: &Found, rival: Option<&Found>) -> Vec<Row> {
    let name = "baremetal-operator";
    let of = |figure: Option<f64>, earlier: Option<f64>| match figure {
        Some(figure) => Rival::here(name, figure),
        None => earlier.and_then(|figure| Rival::earlier(name, figure)),
    };
    let row = |figure, measured: f64, unit, limit, rival, note: String| Row {
        figure,
        measured: Some(measured),
        unit,
        limit,
        rival,
        note,
    };
    let wall_limit = rival.map_or(Limit::AtMost(MOST_WALL), |_| Limit::AtMostOfRival(WALL_OF_RIVAL));
    let both = "on a kube-apiserver and an etcd of its own on the same two cores";
    vec![
        row(
            "1,000 fixture hosts on kube-apiserver: wall",
            own.wall,
            Unit::Seconds,
            wall_limit,
            of(rival.map(|r| r.wall), Some(185.0)),
            format!("{:.2} times the fixture's own {OWN_TIMINGS} s; each operator {both}", own.wall / OWN_TIMINGS),
        ),
        row(
            "1,000 fixture hosts on kube-apiserver: processor time of the operator",
            own.cpu.0,
            Unit::Seconds,
            Limit::AtMost(own.pace.time(MOST_CPU)),
            of(rival.map(|r| r.cpu.0), Some(35.0)),
            format!("limit {MOST_CPU} s: {}; aim: a tenth of the rival's", own.pace.told()),
        ),
        row(
            "1,000 fixture hosts on kube-apiserver: processor time of API server and etcd",
            own.cpu.1,
            Unit::Seconds,
            Limit::Shown,
            of(rival.map(|r| r.cpu.1), Some(266.0)),
            String::new(),
        ),
        row(
            "1,000 fixture hosts on kube-apiserver: peak memory of the operator",
            own.peak.0,
            Unit::Bytes,
            Limit::AtMost(MOST_MEMORY),
            of(rival.map(|r| r.peak.0), Some(113e6)),
            format!("API server and etcd {:.0} MB", own.peak.1 / 1e6),
        ),
        row(
            "1,000 fixture hosts on kube-apiserver: API writes a host",
            own.writes.0,
            Unit::Count,
            Limit::Shown,
            of(rival.map(|r| r.writes.0), Some(21.6)),
            format!(
                "beside {:.1} Events{}; as kube-apiserver counts them",
                own.writes.1,
                rival.map(|r| format!(", the rival's {:.1}", r.writes.1)).unwrap_or_default()
            ),
        ),
    ]
}
