//! One life of many fake machines: enrolled, inspected, provisioned, emptied; and what it took. The same for every operator: what differs is
//! who works.

use std::ops::{Add, Sub};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, ProvisioningState};
use e2e::{Ironic, Sim};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use rustix::process::Pid;
use serde_json::{Value, json};

use super::sampler::{Peaks, Sampler, cpu_of_group};
use crate::process::Usage;
use crate::watching::Watching;

/// Most events that the simulator keeps: with more, boots would be missing.
const MAX_EVENTS: u64 = 16_000;

/// Who works, on which machines.
pub struct Site<'a> {
    /// The machines.
    pub sim: &'a Sim,
    /// A client of the API that has the hosts.
    pub client: Client,
    /// The image of all hosts.
    pub image: Value,
    /// The operator's process.
    pub operator: Pid,
    /// The Ironic that it uses.
    pub ironic: Option<&'a Ironic>,
    /// Where files for machines would be: the operator's own folder, or Ironic's.
    pub files: PathBuf,
}

/// What was used up to a moment, or between two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Seconds on the clock.
    pub wall: f64,
    /// Requests to BMCs.
    pub requests: f64,
    /// Connections to BMCs.
    pub connections: f64,
    /// Bytes to and from BMCs, HTTP's headers included.
    pub bytes: f64,
    /// Processor seconds of the operator.
    pub operator: f64,
    /// Processor seconds of Ironic.
    pub ironic: f64,
}

impl Spent {
    fn with(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            wall: of(self.wall, other.wall),
            requests: of(self.requests, other.requests),
            connections: of(self.connections, other.connections),
            bytes: of(self.bytes, other.bytes),
            operator: of(self.operator, other.operator),
            ironic: of(self.ironic, other.ironic),
        }
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.with(other, Sub::sub)
    }
}

impl Add for Spent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, Add::add)
    }
}

/// What a life took.
#[derive(Debug)]
pub struct Life {
    /// Machines.
    pub hosts: usize,
    /// Whether an Ironic did the work.
    pub by_ironic: bool,
    /// Without the time in which nothing was to be done.
    pub spent: Spent,
    /// In that time, if there was one.
    pub idle: Option<Spent>,
    /// Starts of the machines, of agent and of system.
    pub boots: f64,
    /// Starts from a virtual medium.
    pub media_boots: f64,
    /// Lengths of the media that were booted, in bytes.
    pub media: f64,
    /// Most resident memory of the operator at any time, in bytes.
    pub operator_memory: f64,
    /// Of Ironic: its processes together. Files that were there before do not count.
    pub peaks: Peaks,
    /// What the files took before, in bytes.
    pub files_before: u64,
    /// Errors that hosts had on their way.
    pub errors: Vec<String>,
}

impl Life {
    /// A host's share of a sum.
    #[allow(clippy::cast_precision_loss, reason = "few hosts")]
    pub fn each(&self, sum: f64) -> f64 {
        sum / self.hosts as f64
    }

    /// Bytes of files for machines, at most at any time.
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn files(&self) -> f64 {
        self.peaks.disk.saturating_sub(self.files_before) as f64
    }
}

impl Site<'_> {
    /// Leads all hosts through their lives, and has them rest for `idle` between the two halves. Each half takes at most `patience`.
    ///
    /// # Errors
    /// When a host does not come to its end.
    pub async fn life(&self, names: &[String], patience: Duration, idle: Option<Duration>) -> anyhow::Result<Life> {
        let watching = Watching::over(self.hosts());
        let files_before = super::sampler::disk_of(&self.files);
        let sampler = Sampler::start(self.ironic.map(Ironic::group), self.files.clone());
        let start = Instant::now();
        let begun = self.now(names, start).await?;
        for name in names {
            self.declare(name).await?;
        }
        self.all_come_to(&watching, names.len(), ProvisioningState::Provisioned, patience).await?;
        let provisioned = self.now(names, start).await?;
        if let Some(window) = idle {
            tokio::time::sleep(window).await;
        }
        let rested = self.now(names, start).await?;
        let nothing = json!({ "spec": { "image": null } });
        for name in names {
            let patched = self.hosts().patch(name, &PatchParams::default(), &Patch::Merge(&nothing)).await;
            patched.with_context(|| format!("take the image from {name}"))?;
        }
        self.all_come_to(&watching, names.len(), ProvisioningState::Available, patience).await?;
        let ended = self.now(names, start).await?;
        let (mut boots, mut media_boots, mut media) = (0.0, 0.0, 0.0);
        for name in names {
            let found = self.booted(name).await?;
            (boots, media_boots, media) = (boots + found[0], media_boots + found[1], media + found[2]);
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let operator_memory = Usage::of(self.operator)?.peak_memory as f64;
        Ok(Life {
            hosts: names.len(),
            by_ironic: self.ironic.is_some(),
            spent: (provisioned - begun) + (ended - rested),
            idle: idle.map(|_| rested - provisioned),
            boots,
            media_boots,
            media,
            operator_memory,
            peaks: sampler.peaks(),
            files_before,
            errors: watching.errors(),
        })
    }

    fn hosts(&self) -> Api<BareMetalHost> {
        Api::default_namespaced(self.client.clone())
    }

    async fn declare(&self, name: &str) -> anyhow::Result<()> {
        let machine = self.sim.machine(name);
        let secret: Secret = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": format!("{name}-bmc-secret") },
            "stringData": { "username": machine["username"], "password": machine["password"] } }))?;
        let secrets: Api<Secret> = Api::default_namespaced(self.client.clone());
        secrets.create(&PostParams::default(), &secret).await.with_context(|| format!("create {name}'s Secret"))?;
        let host: BareMetalHost =
            serde_json::from_value(json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": name }, "spec": { "online": true, "image": self.image,
                "automatedCleaningMode": "metadata", "bootMACAddress": machine["mac"],
                "bmc": { "address": self.sim.address(name), "credentialsName": format!("{name}-bmc-secret") } } }))?;
        self.hosts().create(&PostParams::default(), &host).await.with_context(|| format!("create {name}"))?;
        Ok(())
    }

    async fn all_come_to(
        &self,
        watching: &Watching,
        count: usize,
        state: ProvisioningState,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let done = watching.count_in(state);
            if done == count {
                return Ok(());
            }
            if start.elapsed() > patience {
                let said = self.ironic.map(Ironic::tail).unwrap_or_default();
                bail!("{done} of {count} hosts are {}; {:?}\n{said}", state.as_str(), watching.errors());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What was used until now.
    async fn now(&self, names: &[String], start: Instant) -> anyhow::Result<Spent> {
        let mut sums = [0; 4];
        for name in names {
            let counters = &self.sim.now(name).await?["counters"];
            for (sum, name) in sums.iter_mut().zip(["requests", "connections", "bytesReceived", "bytesSent"]) {
                *sum += counters[name].as_u64().with_context(|| format!("read the simulator's {name}"))?;
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let [requests, connections, received, sent] = sums.map(|sum| sum as f64);
        Ok(Spent {
            wall: start.elapsed().as_secs_f64(),
            requests,
            connections,
            bytes: received + sent,
            operator: Usage::of(self.operator)?.cpu.as_secs_f64(),
            ironic: self.ironic.map(Ironic::group).map_or(0.0, cpu_of_group),
        })
    }

    /// A machine's starts, those from a medium among them, and the lengths of the media that were started.
    async fn booted(&self, name: &str) -> anyhow::Result<[f64; 3]> {
        let log = self.sim.get(&format!("/events?after=0&machine={name}")).await?;
        ensure!(log["last"].as_u64().is_some_and(|last| last < MAX_EVENTS), "the simulator has forgotten events");
        let (mut size, mut found) = (0.0, [0.0; 3]);
        for event in log["events"].as_array().into_iter().flatten() {
            let data = &event["data"];
            match event["kind"].as_str() {
                Some("media") if data["inserted"] == true => size = data["size"].as_f64().unwrap_or_default(),
                Some("boot") => {
                    found[0] += 1.0;
                    if !data["medium"].is_null() {
                        found[1] += 1.0;
                        found[2] += size;
                    }
                }
                _ => {}
            }
        }
        ensure!(found[1] > 0.0, "{name} was never started from a medium");
        Ok(found)
    }
}
