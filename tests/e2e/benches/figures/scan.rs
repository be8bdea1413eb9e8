//! A scan of a /22 for BMCs by the real server: 50 answer, and 972 addresses are silent, as where nobody is.
//!
//! Loopback has no silent addresses. So the part starts itself once more in a network namespace of its own, where the range is routed to a cable
//! whose other end listens to nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::metamorph::HostDiscovery;
use e2e::{Options, World};
use kube::Api;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::image::run;
use crate::table::{Limit, Row, Unit};

/// First argument by which this program starts itself where the range is.
pub const INSIDE: &str = "scan-a-network";
/// What is scanned: a part of the network for benchmarks (RFC 2544).
const RANGE: &str = "198.18.4.0/22";
/// Its addresses, without the first and the last.
const ADDRESSES: u32 = 1022;
/// BMCs: 198.18.4.1 and so on.
const BMCS: u8 = 50;
/// Longest time, seconds.
const PATIENCE: u64 = 180;
/// Time between two looks at the connections.
const SAMPLED: Duration = Duration::from_millis(20);
/// States of connections that the other side may still know (`include/net/tcp_states.h`): all but TIME_WAIT and CLOSE.
const OPEN: [&str; 8] = ["01", "02", "03", "04", "05", "08", "09", "0B"];

/// What a scan has taken.
#[derive(Debug, Deserialize, Serialize)]
struct Cost {
    seconds: f64,
    connections: usize,
    hosts: usize,
}

/// Measures.
///
/// # Errors
/// When there can be no network namespace, or the scan has asked or found other addresses.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn measure() -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("make a folder")?;
    let result = folder.path().join("cost.json");
    let program = std::env::current_exe().context("find this program")?;
    run(Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(program)
        .arg(INSIDE)
        .arg(&result))?;
    let cost: Cost = serde_json::from_slice(&std::fs::read(&result).context("read what the scan has taken")?)?;
    Ok(vec![
        Row {
            figure: "Scan of a /22 with 50 BMCs",
            measured: Some(cost.seconds),
            unit: Unit::Seconds,
            limit: Limit::AtMost(60.0),
            rival: None,
            note: format!("from the HostDiscovery to its status; {} hosts made, nobody at 972 addresses", cost.hosts),
        },
        Row {
            figure: "Scan of a /22: connections at once",
            measured: Some(cost.connections as f64),
            unit: Unit::Count,
            limit: Limit::AtMost(64.0),
            rival: None,
            note: "the most that the kernel had, those that are being set up and ended included".to_owned(),
        },
    ])
}

/// The scan itself, in a network namespace that has nothing yet.
///
/// # Errors
/// When something does not start, or the scan has asked or found other addresses.
pub async fn inside(result: &Path) -> anyhow::Result<()> {
    for words in
        ["link set lo up", "link add silent type veth peer name far", "link set silent arp off up", "link set far up"]
    {
        ip(words)?;
    }
    for last in 1..=BMCS {
        ip(&format!("address add 198.18.4.{last}/32 dev silent"))?;
    }
    ip(&format!("route add {RANGE} dev silent"))?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.context("listen for the BMCs")?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    let world = World::start(Options::one_fake()).await?;
    let discoveries: Api<HostDiscovery> = Api::default_namespaced(world.client.clone());
    let spec = json!({ "ranges": [RANGE], "ports": [port], "scheme": "http", "maxNewHosts": BMCS });
    let asked = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostDiscovery", "metadata": { "name": "network" }, "spec": spec });
    let begun = Instant::now();
    world.kubectl(&["apply", "-f", "-"], &asked.to_string()).await?;
    let mut connections = 0;
    let scanned = loop {
        connections = connections.max(open_connections()?);
        let one = discoveries.get("network").await?;
        if let Some(scan) = one.status.as_ref().and_then(|status| status.last_scan.clone()) {
            break scan;
        }
        ensure!(begun.elapsed() < Duration::from_secs(PATIENCE), "the scan has no end: {one:?}");
        tokio::time::sleep(SAMPLED).await;
    };
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(
        (scanned.asked, scanned.answered) == (ADDRESSES, u32::from(BMCS)),
        "{} addresses were asked, {} have answered: {:?}",
        scanned.asked,
        scanned.answered,
        scanned.left_out
    );
    ensure!(connections > 1, "no connections were seen");
    let hosts = world.hosts().list(&kube::api::ListParams::default()).await?.items.len();
    std::fs::write(result, serde_json::to_vec(&Cost { seconds, connections, hosts })?)
        .context("write what the scan has taken")
}

fn ip(words: &str) -> anyhow::Result<()> {
    run(Command::new("ip").args(words.split_whitespace())).map(|_| ())
}

/// A service root, and nothing else.
async fn answer(mut stream: TcpStream) {
    let Ok(SocketAddr::V4(at)) = stream.local_addr() else { return };
    let [.., last] = at.ip().octets();
    let root = json!({ "RedfishVersion": "1.6.0", "UUID": format!("4c4c4544-0035-5910-8052-0000000000{last:02x}"), "Vendor": "Contoso" });
    let body = root.to_string();
    let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    // A client that goes away is seen by what the scan has found.
    let _ = stream.read(&mut [0; 4096]).await;
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
    let _ = stream.read(&mut [0]).await;
}

/// Connections from this network namespace to addresses of the range.
fn open_connections() -> anyhow::Result<usize> {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").context("read the kernel's connections")?;
    let is_one = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let (remote, state) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        // Little endian: the address's second and first byte come last, and before them the third, of 4 to 7.
        remote.get(4..8) == Some("12C6")
            && matches!(remote.get(2..4), Some("04" | "05" | "06" | "07"))
            && OPEN.contains(&state)
    };
    Ok(table.lines().skip(1).filter(|line| is_one(line)).count())
}
