//! The load: writers, watchers and readers, and how long they took.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use reqwest::Response;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::HOSTS;
use super::client::{APPLY, Client, JSON, MERGE};
use super::host::{Bodies, name};
use super::server::Server;

/// Watches on one connection; kube-apiserver allows 100 more or so.
const WATCHES_A_CONNECTION: usize = 100;
/// Longest time until an event has come to all watchers.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is written.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// New hosts.
    Create,
    /// Merge patches of the status, by which a host gets what inspection found.
    Status,
    /// Server-side apply of a part of the spec by another manager.
    Apply,
}

/// What a number of writes took.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// How many.
    pub count: usize,
    /// How long.
    pub time: Duration,
    /// Processor time of the server.
    pub cpu: Duration,
}

impl Written {
    /// Writes a second.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }
}

/// Writes to hosts `0..count`, each client one after the other.
///
/// # Errors
/// When one is refused.
pub async fn write(server: &Server, clients: &[Client], kind: Write, count: usize) -> anyhow::Result<Written> {
    let bodies = Arc::new(Bodies::new());
    let next = Arc::new(AtomicUsize::new(0));
    let (before, start) = (server.used()?, Instant::now());
    let mut writers = JoinSet::new();
    for client in clients {
        let (client, bodies, next) = (client.clone(), Arc::clone(&bodies), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return anyhow::Ok(());
                }
                one(&client, &bodies, kind, index, index).await?;
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    let time = start.elapsed();
    Ok(Written { count, time, cpu: server.used()?.cpu.saturating_sub(before.cpu) })
}

async fn one(client: &Client, bodies: &Bodies, kind: Write, index: usize, number: usize) -> anyhow::Result<()> {
    let path = format!("{HOSTS}/{}", name(index));
    match kind {
        Write::Create => client.send("POST", HOSTS, JSON, bodies.create(index)).await?,
        Write::Status => client.send("PATCH", &format!("{path}/status"), MERGE, bodies.status(number)).await?,
        Write::Apply => {
            let path = format!("{path}?fieldManager=bench-applier&force=true");
            client.send("PATCH", &path, APPLY, bodies.apply(index, number)).await?
        }
    };
    Ok(())
}

/// Times from the sending of a change until a watcher has its event.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    /// Watchers.
    pub watchers: usize,
    /// Median, in milliseconds.
    pub p50: f64,
    /// 99th percentile, in milliseconds.
    pub p99: f64,
    /// Processor time of the server for one event to all watchers, in milliseconds.
    pub cpu: f64,
}

/// Changes one host again and again, the next time when all watchers have seen it.
///
/// # Errors
/// When a watch ends or an event does not come.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub async fn latency(server: &Server, token: &str, watchers: usize, changes: usize) -> anyhow::Result<Latency> {
    let seen = Arc::new(Seen::default());
    let mut watching = watch_all(server, token, watchers, &seen).await?;
    let client = server.client_of(token)?;
    let bodies = Bodies::new();
    one(&client, &bodies, Write::Status, 0, 1_000_000).await?;
    seen.wait(watchers as u64).await?;
    let before = server.used()?.cpu;
    let mut sent = Vec::with_capacity(changes);
    for change in 1..=changes {
        sent.push(Instant::now());
        one(&client, &bodies, Write::Status, 0, 1_000_000 + change).await?;
        seen.wait(((change + 1) * watchers) as u64).await?;
    }
    let cpu = server.used()?.cpu.saturating_sub(before);
    seen.end.send_replace(true);
    let mut times = Vec::with_capacity(changes * watchers);
    while let Some(arrivals) = watching.join_next().await {
        let arrivals = arrivals??;
        ensure!(arrivals.len() > changes, "a watcher has seen {} of {} events", arrivals.len(), changes + 1);
        times.extend(arrivals[1..].iter().zip(&sent).map(|(at, sent)| at.duration_since(*sent).as_secs_f64() * 1e3));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    Ok(Latency { watchers, p50: at(0.5), p99: at(0.99), cpu: cpu.as_secs_f64() * 1e3 / changes as f64 })
}

/// What watchers have seen together.
struct Seen {
    events: AtomicU64,
    wanted: AtomicU64,
    enough: Notify,
    end: watch::Sender<bool>,
}

impl Default for Seen {
    fn default() -> Self {
        let (events, wanted) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { events, wanted, enough: Notify::new(), end: watch::channel(false).0 }
    }
}

impl Seen {
    /// Only the one with whom there are enough wakes who waits, so that the client costs little.
    fn add(&self, events: u64) {
        let before = self.events.fetch_add(events, Ordering::SeqCst);
        let wanted = self.wanted.load(Ordering::SeqCst);
        if before < wanted && before + events >= wanted {
            self.enough.notify_one();
        }
    }

    async fn wait(&self, wanted: u64) -> anyhow::Result<()> {
        self.wanted.store(wanted, Ordering::SeqCst);
        let all = async {
            // A wake-up may be of an earlier number.
            while self.events.load(Ordering::SeqCst) < wanted {
                self.enough.notified().await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, all).await;
        waited.with_context(|| format!("{} of {wanted} events came", self.events.load(Ordering::SeqCst)))
    }
}

/// Starts watches from now on; each gives the times at which its events came.
async fn watch_all(
    server: &Server,
    token: &str,
    count: usize,
    seen: &Arc<Seen>,
) -> anyhow::Result<JoinSet<anyhow::Result<Vec<Instant>>>> {
    let first = server.client_of(token)?;
    let list: Value = serde_json::from_slice(&first.get(&format!("{HOSTS}?limit=1")).await?)?;
    let version = list["metadata"]["resourceVersion"].as_str().context("find the list's resourceVersion")?;
    let path = format!("{HOSTS}?watch=true&resourceVersion={version}");
    let mut watching = JoinSet::new();
    let mut left = count;
    while left > 0 {
        let client = server.client_of(token)?;
        let here = left.min(WATCHES_A_CONNECTION);
        left -= here;
        let begun = futures::future::try_join_all((0..here).map(|_| client.watch(&path))).await?;
        for stream in begun {
            watching.spawn(follow(stream, Arc::clone(seen)));
        }
    }
    Ok(watching)
}

/// Notes when each event has come whole: it is a line.
async fn follow(mut stream: Response, seen: Arc<Seen>) -> anyhow::Result<Vec<Instant>> {
    let mut end = seen.end.subscribe();
    let mut arrivals = Vec::new();
    loop {
        let chunk = tokio::select! {
            chunk = stream.chunk() => chunk?,
            _ = end.changed() => return Ok(arrivals),
        };
        let Some(chunk) = chunk else { bail!("a watch ended") };
        let lines = lines(&chunk);
        if lines > 0 {
            arrivals.extend(std::iter::repeat_n(Instant::now(), lines));
            seen.add(lines as u64);
        }
    }
}

/// Line ends in a piece, counted in bytes so that the compiler can do many at once: the client is to cost little.
fn lines(piece: &[u8]) -> usize {
    let ends = |part: &[u8]| part.iter().map(|byte| u8::from(*byte == b'\n')).sum::<u8>();
    piece.chunks(usize::from(u8::MAX)).map(|part| usize::from(ends(part))).sum()
}

/// How long the list at a path takes: the median of three, and its bytes.
///
/// # Errors
/// When it breaks off.
pub async fn list(client: &Client, path: &str, encoding: &'static str) -> anyhow::Result<(Duration, u64)> {
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..3 {
        let start = Instant::now();
        bytes = client.read(path, encoding).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok((times[1], bytes))
}

/// Writers, readers of whole lists and watchers at once, so that the server needs the most memory that it ever does; the most
/// resident memory of all its processes together that was seen.
///
/// # Errors
/// When a request fails.
pub async fn everything(server: &Server, token: &str, clients: &[Client], time: Duration) -> anyhow::Result<u64> {
    let seen = Arc::new(Seen::default());
    let watching = watch_all(server, token, 100, &seen).await?;
    let bodies = Arc::new(Bodies::new());
    let deadline = Instant::now() + time;
    let mut busy = JoinSet::new();
    for (number, client) in clients.iter().cloned().enumerate() {
        let bodies = Arc::clone(&bodies);
        busy.spawn(async move {
            let mut round = number;
            while Instant::now() < deadline {
                // Each writer has hosts of its own.
                one(&client, &bodies, Write::Status, round % 10_000, 2_000_000 + round).await?;
                round += 16;
            }
            anyhow::Ok(())
        });
    }
    for _ in 0..4 {
        let client = server.client_of(token)?;
        busy.spawn(async move {
            while Instant::now() < deadline {
                client.read(HOSTS, "identity").await?;
            }
            anyhow::Ok(())
        });
    }
    let mut peak = 0;
    while !busy.is_empty() {
        peak = peak.max(server.used()?.memory);
        let waited = tokio::time::timeout(Duration::from_millis(50), busy.join_next()).await;
        if let Ok(Some(ended)) = waited {
            ended??;
        }
    }
    drop(watching);
    Ok(peak)
}
