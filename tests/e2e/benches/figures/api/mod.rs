//! The embedded Kubernetes API beside kube-apiserver with etcd, one after the other, under the same load.
//!
//! On both sides: TLS, a service account whose rights RBAC grants, BareMetalHost with its whole schema and the owners of all fields, a
//! sync of the disk before each acknowledgement, hosts of 10 KB.

mod client;
mod host;
mod load;
mod rows;
pub mod server;

use std::io::{Seek, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::say;
use crate::table::Row;
use client::{Client, JSON};
use host::{Bodies, name, rack};
use load::{Latency, Write, Written};
use server::{Kind, Server, Used};

/// Where hosts are.
const HOSTS: &str = "/apis/metal3.io/v1alpha1/namespaces/default/baremetalhosts";
/// Hosts.
const COUNT: usize = 10_000;
/// Server-side applies.
const APPLIES: usize = 3_000;
/// Clients that write, each with a connection.
const CLIENTS: usize = 16;
/// Watchers, and how often all of them are told something.
const WATCHERS: [(usize, usize); 3] = [(1, 200), (100, 60), (1000, 20)];
/// How long everything goes on at once.
const BUSY: Duration = Duration::from_secs(6);
/// How long a server is left alone before it counts as idle.
const QUIET: Duration = Duration::from_secs(3);

/// What was found of one server.
pub struct Found {
    /// With definitions and no hosts.
    pub idle: Used,
    /// Creates.
    pub creates: Written,
    /// Patches of the status.
    pub patches: Written,
    /// Server-side applies.
    pub applies: Written,
    /// By number of watchers, in the order of [`WATCHERS`].
    pub latency: Vec<Latency>,
    /// A whole list, and its bytes.
    pub list: (Duration, u64),
    /// The same, compressed.
    pub packed: (Duration, u64),
    /// A list of one in a hundred, by a label.
    pub selected: (Duration, u64),
    /// Resident with all hosts, after the writes and lists.
    pub after: Used,
    /// Most resident memory at any time: of one process as the kernel noted it, of several as it was seen from time to time.
    pub peak: u64,
    /// Start with all hosts until one is read.
    pub start: Duration,
}

/// Measures.
///
/// # Errors
/// When a server cannot be started or refuses what it must not.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let size = Bodies::new().size();
    ensure!((9_000..11_000).contains(&size), "a host has {size} bytes");
    let programs = server::programs().await?;
    let sync = tokio::task::spawn_blocking(disk_sync).await??;
    let embedded = side(Kind::Embedded, &programs).await.context("measure the embedded API")?;
    let real = side(Kind::Real, &programs).await.context("measure kube-apiserver and etcd")?;
    Ok(rows::rows(&embedded, &real, sync))
}

/// What a sync of this disk takes: 16 KiB written over what was there, the median of a hundred.
fn disk_sync() -> anyhow::Result<Duration> {
    let mut file = tempfile::tempfile().context("make a file")?;
    let block = [7; 16 << 10];
    let mut times = Vec::new();
    for at in 0..132_u64 {
        file.seek(SeekFrom::Start(at % 32 * block.len() as u64))?;
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data().context("sync a file")?;
        // The first round makes room.
        if at >= 32 {
            times.push(start.elapsed());
        }
    }
    times.sort();
    Ok(times[times.len() / 2])
}

async fn side(kind: Kind, programs: &Path) -> anyhow::Result<Found> {
    let begun = Instant::now();
    let progress = |what: &str| say(&format!("api: {kind:?}: {what} after {:.1} s", begun.elapsed().as_secs_f64()));
    let mut server = Server::start(kind, programs).await?;
    server.define().await?;
    let token = account(&server.client()?).await?;
    tokio::time::sleep(QUIET).await;
    let idle = server.used()?;
    let clients = (0..CLIENTS).map(|_| server.client_of(&token)).collect::<anyhow::Result<Vec<Client>>>()?;
    // Connections are made and handshakes done before the clock runs.
    for client in &clients {
        client.get(&format!("{HOSTS}?limit=1")).await?;
    }
    progress("ready");
    let creates = load::write(&server, &clients, Write::Create, COUNT).await?;
    progress("created");
    let patches = load::write(&server, &clients, Write::Status, COUNT).await?;
    progress("patched");
    let applies = load::write(&server, &clients, Write::Apply, APPLIES).await?;
    progress("applied");
    let list = load::list(&clients[0], HOSTS, "identity").await?;
    let packed = load::list(&clients[0], HOSTS, "gzip").await?;
    let selected = load::list(&clients[0], &format!("{HOSTS}?labelSelector=rack={}", rack(7)), "gzip").await?;
    progress("listed");
    let mut latency = Vec::new();
    for (watchers, changes) in WATCHERS {
        latency.push(load::latency(&server, &token, watchers, changes).await?);
        progress(&format!("watched by {watchers}"));
    }
    let seen = load::everything(&server, &token, &clients, BUSY).await?;
    progress("all at once");
    tokio::time::sleep(QUIET).await;
    let after = server.used()?;
    let peak = if kind == Kind::Embedded { after.peak } else { seen };
    let start = server.restart(&format!("{HOSTS}/{}", name(COUNT - 1))).await?;
    progress("started again");
    Ok(Found { idle, creates, patches, applies, latency, list, packed, selected, after, peak, start })
}

/// A service account with rights on hosts alone; its token.
async fn account(client: &Client) -> anyhow::Result<String> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let meta = json!({"name": "bench"});
    let role = json!({"metadata": meta, "rules": [{"apiGroups": ["metal3.io"], "verbs": ["*"],
        "resources": ["baremetalhosts", "baremetalhosts/status"]}]});
    let binding = json!({"metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bench"},
        "subjects": [{"kind": "ServiceAccount", "name": "bench", "namespace": "default"}]});
    let post = async |path: String, body: Value| client.send("POST", &path, JSON, body.to_string()).await;
    post(accounts.to_owned(), json!({"metadata": meta})).await?;
    post(format!("{rbac}/clusterroles"), role).await?;
    post(format!("{rbac}/clusterrolebindings"), binding).await?;
    let answer = post(format!("{accounts}/bench/token"), json!({"spec": {"expirationSeconds": 3600}})).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["status"]["token"].as_str().context("find the account's token")?.to_owned())
}
