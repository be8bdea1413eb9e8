//! Hosts one after the other, from nothing to `provisioned`: requests to the BMC, writes to the API, and how long the server
//! takes to answer what happens.

use std::collections::HashMap;

use anyhow::{Context, ensure};
use api::metal3::ProvisioningState;
use e2e::{DiskImage, Options, World, machine};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::{Limit, Rival, Row, Unit};
use crate::watching::{AgentLine, Counted, Moment, Watching, agent_lines, quiet, writes};

/// Hosts, one after the other.
const HOSTS: usize = 5;
/// Longest time for one host, in seconds.
const PATIENCE: u64 = 120;

/// Measures.
///
/// # Errors
/// When a host does not reach `provisioned`.
pub async fn measure() -> anyhow::Result<Vec<Row>> {
    let names: Vec<String> = (0..HOSTS).map(|index| format!("node-{index}")).collect();
    let machines = names.iter().map(|name| machine(name)).collect();
    let world = World::start(Options { machines, tls: false, arguments: Vec::new() }).await?;
    let watching = Watching::start(&world);
    let image = DiskImage::small()?;
    let url = world.images.put("disk.raw", image.bytes.clone());
    let change =
        json!({ "image": { "url": url, "checksum": image.sha256, "checksumType": "sha256", "format": "raw" } });
    let mut counts = Counts::default();
    let mut reactions = Vec::new();
    for name in &names {
        let before = writes(&world)?.len();
        world.apply_host(name, change.clone()).await?;
        let medium = if counts.medium == 0 { Some(medium_size(&world, name).await?) } else { None };
        counts.medium = medium.unwrap_or(counts.medium);
        let host = world.wait_state(name, PATIENCE, ProvisioningState::Provisioned).await?;
        quiet(&world).await?;
        let new = writes(&world)?.split_off(before);
        counts.add(&world, name, &new).await?;
        let uid = host.metadata.uid.context("read the host's uid")?;
        let is_its = |line: &AgentLine| line.host == *name || line.host == uid;
        let lines = agent_lines(&world.server.log)?.into_iter().filter(is_its).collect::<Vec<_>>();
        let applied =
            new.iter().find(|w| w.is_own && w.what.ends_with("/baremetalhosts")).context("find the host's creation")?;
        let found = reactions_of(applied.time, watching.states(name), &lines)?;
        if std::env::var_os("METAMORPH_BENCH_VERBOSE").is_some() {
            crate::say(&format!("{name}: {found:#?}\n{:#?}", new.iter().map(|w| &w.what).collect::<Vec<_>>()));
        }
        reactions.extend(found);
    }
    ensure!(watching.errors().is_empty(), "hosts had errors: {:?}", watching.errors());
    Ok(counts.rows(&reactions))
}

/// The most that any host took.
#[derive(Default)]
struct Counts {
    requests: u64,
    writes: usize,
    firmware: usize,
    history_writes: usize,
    events: usize,
    medium: u64,
    resources: u64,
}

impl Counts {
    async fn add(&mut self, world: &World, name: &str, new: &[crate::watching::Write]) -> anyhow::Result<()> {
        let log = world.sim.get(&format!("/machines/{name}/requests")).await?;
        let asked: Vec<(&str, &str)> = log["requests"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|r| Some((r["method"].as_str()?, r["path"].as_str()?)))
            .collect();
        ensure!(log["total"].as_u64() == Some(asked.len() as u64), "the simulator's log does not hold all requests");
        // What follows the last change are looks at a settled host.
        let last = asked.iter().rposition(|(method, _)| *method != "GET").context("the BMC was told nothing")?;
        let requests = last as u64 + 1;
        let written = Counted::of(new);
        self.requests = self.requests.max(requests);
        self.writes = self.writes.max(written.kept);
        self.firmware = self.firmware.max(written.firmware);
        self.history_writes = self.history_writes.max(written.history);
        self.events = self.events.max(written.events);
        let paths: std::collections::BTreeSet<&str> = asked.iter().map(|(_, path)| *path).collect();
        self.resources = self.resources.max(paths.len() as u64);
        if std::env::var_os("METAMORPH_BENCH_VERBOSE").is_some() {
            crate::say(&format!("{name}: {asked:#?}"));
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss, reason = "small counts")]
    fn rows(&self, reactions: &[Reaction]) -> Vec<Row> {
        let mut times: Vec<f64> = reactions.iter().map(|r| r.milliseconds).collect();
        times.sort_by(f64::total_cmp);
        let middle = times.get(times.len() / 2).copied();
        let slowest = reactions.iter().max_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let slowest = slowest.map(|r| format!("slowest {:.0} ms: {}", r.milliseconds, r.what)).unwrap_or_default();
        vec![
            Row {
                figure: "BMC requests, enrol to provisioned",
                measured: Some(self.requests as f64),
                unit: Unit::Count,
                limit: Limit::AtMost(22.0),
                rival: Rival::earlier("Ironic 39.0", 116.0),
                note: format!(
                    "most of {HOSTS} hosts; simulator's log, tree dmtf-generic, {} resources asked for, settings and versions of the firmware among them",
                    self.resources
                ),
            },
            Row {
                figure: "API writes a host, enrol to provisioned",
                measured: Some(self.writes as f64),
                unit: Unit::Count,
                limit: Limit::AtMost(16.0),
                rival: Rival::earlier("baremetal-operator, no journal", 21.6),
                note: format!(
                    "most of {HOSTS} hosts; audit log; beside them {} of firmware, {} of HostOperations (history and progress) and {} Events",
                    self.firmware, self.history_writes, self.events
                ),
            },
            Row {
                figure: "Added latency a transition, median",
                measured: middle,
                unit: Unit::Milliseconds,
                limit: Limit::AtMost(100.0),
                rival: Rival::earlier("baremetal-operator, shortest poll", 3000.0),
                note: format!("{} transitions of {HOSTS} hosts; {slowest}", times.len()),
            },
            Row {
                figure: "Agent medium with kernel",
                measured: Some(self.medium as f64),
                unit: Unit::Bytes,
                limit: Limit::AtMost(60e6),
                rival: Rival::earlier("Ironic 39.0", 441e6),
                note: "as the BMC sees it".to_owned(),
            },
        ]
    }
}

/// Size of the medium, asked for when the BMC has it.
async fn medium_size(world: &World, name: &str) -> anyhow::Result<u64> {
    let mut after = 0;
    loop {
        let answer = world.sim.get(&format!("/events?after={after}&wait={PATIENCE}&machine={name}")).await?;
        let events = answer["events"].as_array().context("read the simulator's events")?;
        ensure!(!events.is_empty(), "the BMC was given no medium");
        after = answer["last"].as_u64().unwrap_or(after);
        let inserted = |event: &Value| event["kind"] == "media" && event["data"]["inserted"] == true;
        if events.iter().any(inserted) {
            let media = world.sim.get(&format!("/machines/{name}/media")).await?;
            return media["size"].as_u64().context("read the medium's size: it was taken out already");
        }
    }
}

/// How long the server took from the last thing that had happened to what it did about it.
#[derive(Clone, Debug)]
pub struct Reaction {
    /// What it did.
    pub what: String,
    /// How long it took.
    pub milliseconds: f64,
}

/// The reactions in one host's life.
///
/// What happens: the host is applied, its agent reports for the first time, its agent reports that an order is done. What the
/// server does: it gives the agent an order (seen when the agent begins), it writes a new state (seen by a watch). A reaction's
/// time is counted from the last moment of either kind, so that nothing is counted twice, and nothing left out but the time in
/// which the agent works or the machine boots.
fn reactions_of(applied: Timestamp, states: Vec<Moment>, lines: &[AgentLine]) -> anyhow::Result<Vec<Reaction>> {
    // The clock of the machine's uptime, by the line that was quickest on its way.
    let offset = lines.iter().map(|line| line.arrived.as_microsecond() - line.uptime_ms * 1000).min();
    let offset = offset.context("the server's log has no line of the agent")?;
    let mut moments: Vec<(i64, bool, String)> =
        vec![(applied.as_microsecond(), false, "the host was applied".to_owned())];
    let mut first_report = true;
    for line in lines {
        if line.text.starts_with("begins ") {
            let begun = line.uptime_ms * 1000 + offset;
            moments.push((begun, true, format!("order: {}", line.text)));
        } else if line.text == "done" {
            moments.push((line.arrived.as_microsecond(), false, "the agent's report".to_owned()));
        } else if std::mem::take(&mut first_report) {
            moments.push((line.arrived.as_microsecond(), false, "the agent's first report".to_owned()));
        }
    }
    for state in states.into_iter().filter(|state| !state.what.is_empty()) {
        moments.push((state.time.as_microsecond(), true, format!("state {}", state.what)));
    }
    moments.sort_by_key(|(time, ..)| *time);
    let kinds: HashMap<bool, usize> = moments.iter().fold(HashMap::new(), |mut counts, (_, is_own, _)| {
        *counts.entry(*is_own).or_default() += 1;
        counts
    });
    ensure!(kinds.get(&false).is_some_and(|n| *n >= 4), "the agent's reports are not in the server's log: {moments:?}");
    #[allow(clippy::cast_precision_loss, reason = "microseconds of minutes")]
    let reactions = moments.windows(2).filter(|pair| pair[1].1).map(|pair| Reaction {
        what: format!("{} after {}", pair[1].2, pair[0].2),
        milliseconds: (pair[1].0 - pair[0].0) as f64 / 1000.0,
    });
    Ok(reactions.collect())
}
