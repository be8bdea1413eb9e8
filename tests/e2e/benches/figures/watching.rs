//! What can be seen of the server from outside: its writes in the API's audit log, the states of hosts by a watch, and the
//! reports of agents in its log.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{World, Written};
use futures::StreamExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::task::JoinSet;

/// The audit log counts as quiet when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(700);
/// Longest wait for quiet.
const PATIENCE: Duration = Duration::from_secs(20);

/// A write to the Kubernetes API.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it was answered.
    pub time: Timestamp,
    /// Verb and path.
    pub what: String,
    /// Whether this program made it and not the server.
    pub is_own: bool,
}

/// The writes in the audit log so far, in order.
///
/// # Errors
/// When the log cannot be read.
pub fn writes(world: &World) -> anyhow::Result<Vec<Write>> {
    let written = world.written()?.into_iter();
    // The server creates neither hosts nor, beside them, Secrets; this program writes nothing else.
    let is_own = |w: &Written| {
        w.verb == "create"
            && w.path.contains("/namespaces/default/")
            && (w.path.ends_with("/baremetalhosts") || w.path.ends_with("/secrets"))
    };
    Ok(written.map(|w| Write { time: w.time, is_own: is_own(&w), what: format!("{} {}", w.verb, w.path) }).collect())
}

/// Waits until the server has nothing more to write: Events come after the state that they tell of.
///
/// # Errors
/// When it goes on writing.
pub async fn quiet(world: &World) -> anyhow::Result<()> {
    let start = Instant::now();
    let (mut count, mut since) = (writes(world)?.len(), Instant::now());
    while since.elapsed() < QUIET {
        ensure!(start.elapsed() < PATIENCE, "the server goes on writing to the API");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = writes(world)?.len();
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Something that happened to a host.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When.
    pub time: Timestamp,
    /// What.
    pub what: String,
}

/// How much the server has written, by what it is for.
pub struct Counted {
    /// Hosts, records, Secrets, HardwareData.
    pub kept: usize,
    /// Settings and versions of firmware, and schemas.
    pub firmware: usize,
    /// HostOperations: history and progress.
    pub history: usize,
    /// Events.
    pub events: usize,
}

impl Counted {
    /// Of these writes.
    pub fn of(writes: &[Write]) -> Self {
        let is_of = |kind: &str| writes.iter().filter(|w| !w.is_own && w.what.contains(kind)).count();
        let (history, events) = (is_of("/hostoperations"), is_of("/events"));
        let firmware = is_of("/hostfirmware") + is_of("/firmwareschemas");
        let all = writes.iter().filter(|w| !w.is_own).count();
        Self { kept: all - firmware - history - events, firmware, history, events }
    }
}

#[derive(Default)]
struct Seen {
    states: HashMap<String, Vec<Moment>>,
    errors: HashMap<String, String>,
}

/// Watches all hosts and operations until it is dropped.
pub struct Watching {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

impl Watching {
    /// Begins.
    pub fn start(world: &World) -> Self {
        Self::over(world.hosts())
    }

    /// Begins, on hosts of any server.
    pub fn over(hosts: Api<BareMetalHost>) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&seen);
        let mut hosts = watcher(hosts, watcher::Config::default()).default_backoff().applied_objects().boxed();
        tasks.spawn(async move {
            while let Some(event) = hosts.next().await {
                if let Ok(host) = event {
                    lock(&shared).see_host(&host);
                }
            }
        });
        Self { seen, _tasks: tasks }
    }

    /// The states that a host went through, with the times at which they were seen.
    pub fn states(&self, host: &str) -> Vec<Moment> {
        lock(&self.seen).states.get(host).cloned().unwrap_or_default()
    }

    /// How many hosts are in a state now.
    pub fn count_in(&self, state: ProvisioningState) -> usize {
        lock(&self.seen).states.values().filter(|s| s.last().is_some_and(|m| m.what == state.as_str())).count()
    }

    /// Errors that hosts had, by host.
    pub fn errors(&self) -> Vec<String> {
        lock(&self.seen).errors.iter().map(|(host, error)| format!("{host}: {error}")).collect()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn see_host(&mut self, host: &BareMetalHost) {
        let (name, state) = (host.name_any(), host.state().as_str().to_owned());
        let states = self.states.entry(name.clone()).or_default();
        if states.last().is_none_or(|moment| moment.what != state) {
            states.push(Moment { time: Timestamp::now(), what: state });
        }
        if let Some(message) = host.status.as_ref().map(|s| &s.error_message).filter(|m| !m.is_empty()) {
            self.errors.insert(name, message.clone());
        }
    }
}

/// What the server's log says of agents.
#[derive(Clone, Debug)]
pub struct AgentLine {
    /// Name of the host, or its uid as long as nobody looks after it.
    pub host: String,
    /// When the report with this line reached the server.
    pub arrived: Timestamp,
    /// The machine's uptime when the line was written, in milliseconds.
    pub uptime_ms: i64,
    /// The line.
    pub text: String,
}

/// Lines that agents have sent, in the order of their arrival.
///
/// # Errors
/// When the log cannot be read.
pub fn agent_lines(log: &Path) -> anyhow::Result<Vec<AgentLine>> {
    let text = std::fs::read_to_string(log).context("read the server's log")?;
    Ok(text.lines().map(plain).filter_map(|line| agent_line(&line)).collect())
}

/// One line of the log: `<time> <level> agent: <text> namespace="<name>" host="<name>" uptime_ms=<number>`.
fn agent_line(line: &str) -> Option<AgentLine> {
    let (head, rest) = line.split_once(" agent: ")?;
    let (rest, uptime) = rest.rsplit_once(" uptime_ms=")?;
    let (rest, host) = rest.rsplit_once(" host=")?;
    let (text, _) = rest.rsplit_once(" namespace=")?;
    Some(AgentLine {
        host: host.trim_matches('"').to_owned(),
        arrived: head.split_whitespace().next()?.parse().ok()?,
        uptime_ms: uptime.trim().parse().ok()?,
        text: text.to_owned(),
    })
}

/// The line without a terminal's colours (ECMA-48, select graphic rendition).
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    out + rest
}
