//! One life: the script is played, and at each rest the world is held against what must be so whatever has been killed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use api::metal3::{BareMetalHost, HardwareData, OperationalStatus, annotation};
use api::metamorph::{HostOperation, MachineRecord, OperationPhase, OperationType, StepPhase};
use e2e::{Behaviour, Cut, DiskImage, GPT, bytes_at};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::scenario::{Disk, Do, End, Killed, Rest, Scenario};
use super::stage::{HOST, PATIENCE, Stage, patiently};

/// So long without an effect means that the server has said all it has to say.
const QUIET: Duration = Duration::from_millis(250);
/// What a dead server has left on the BMC is cleared away when the next one comes to the host: soon, not at once.
const CLEARED: Duration = Duration::from_secs(30);
/// The image's content lies here on the disk; around it the partition table is made to fit.
const CONTENT: std::ops::Range<usize> = 1 << 20..20 << 20;
/// Wishes that are used up when they have been granted.
const USED_UP: [&str; 4] =
    [annotation::REBOOT, annotation::INSPECT, annotation::OVERWRITE_OWNER, annotation::ACCEPT_MACHINE];

/// How a life ended.
pub struct Lived {
    /// Effects that count, in order.
    pub effects: Vec<String>,
    /// Whether the server was killed.
    pub killed: bool,
}

/// One life, killed at `cut`.
pub async fn live(scenario: &'static Scenario, cut: Option<Cut>) -> anyhow::Result<Lived> {
    let stage = Stage::start(scenario.killed, cut).await?;
    let mut life = Life { stage, scenario, errors: Mutex::default(), seen: Seen::default(), detached: None };
    let result = life.play().await;
    let effects = &life.stage.effects;
    let lived = Lived { effects: effects.counted(), killed: effects.has_struck() };
    match result {
        Ok(()) => life.stage.end().await.map(|()| lived),
        Err(error) => {
            let text = life.describe().await;
            // What matters is why the life failed.
            let _ = life.stage.end().await;
            bail!("{error:#}\n{text}")
        }
    }
}

/// What had happened at the last rest.
#[derive(Clone, Copy, Default)]
struct Seen {
    operations: usize,
    writes: usize,
    wipes: usize,
    ended: usize,
}

struct Life {
    stage: Stage,
    scenario: &'static Scenario,
    /// What the host has said to be wrong.
    errors: Mutex<Vec<String>>,
    seen: Seen,
    /// Requests that the BMC had got when the host was detached.
    detached: Option<u64>,
}

/// The images by name.
fn image(name: &str) -> anyhow::Result<DiskImage> {
    let small = DiskImage::small()?.clone();
    if name == "a" {
        return Ok(small);
    }
    let mut bytes = small.bytes;
    bytes[14 << 20..18 << 20].fill(name.as_bytes()[0]);
    Ok(DiskImage::of(bytes))
}

/// Its name on the image server.
fn file(name: &str) -> String {
    format!("{name}.raw")
}

impl Life {
    async fn play(&mut self) -> anyhow::Result<()> {
        for name in ["a", "b"] {
            self.stage.images.put(&file(name), image(name)?.bytes);
        }
        for step in self.scenario.script {
            self.step(step).await?;
        }
        for (name, wanted) in self.scenario.downloads {
            let found = self.stage.images.requests(&file(name));
            ensure!(found == *wanted, "the image {name} was asked for {found} times, not {wanted}");
        }
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let strange = errors.iter().find(|error| !self.scenario.errors.iter().any(|known| error.contains(known)));
        ensure!(strange.is_none(), "the host went through errors that do not belong there: {errors:?}");
        Ok(())
    }

    async fn step(&mut self, step: &Do) -> anyhow::Result<()> {
        let stage = &self.stage;
        match step {
            Do::Declare(image, more) => self.declare(*image, more()).await,
            Do::Patch(patch) => self.patch(patch()).await,
            Do::Image(name) => self.patch(json!({ "spec": { "image": self.wish(name)? } })).await,
            Do::WrongChecksum(name) => {
                let mut wish = self.wish(name)?;
                wish["checksum"] = json!("0".repeat(64));
                self.patch(json!({ "spec": { "image": wish } })).await
            }
            Do::NoImage => self.patch(json!({ "spec": { "image": null } })).await,
            Do::Annotate(key, value) => self.annotate(key, json!(value)).await,
            Do::Retract(key) => {
                self.still_detached().await?;
                self.detached = None;
                self.annotate(key, Value::Null).await
            }
            Do::Consent(key, behind) => {
                let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let named =
                    errors.iter().rev().find_map(|error| error.split_once(behind)).context("no error names it")?.1;
                let named: String = named.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
                self.annotate(key, json!(named)).await
            }
            Do::Delete => {
                patiently("delete the host", async || {
                    match stage.hosts().delete(HOST, &DeleteParams::default()).await {
                        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
                        other => Ok(other.map(|_| ())?),
                    }
                })
                .await
            }
            Do::Stall(name) => {
                stage.images.set(&file(name), Behaviour::Stalled);
                Ok(())
            }
            Do::Stalled(name) => stage.images.wait_stalled(&file(name), 1).await,
            Do::Resume(name) => {
                stage.images.set(&file(name), Behaviour::Good);
                Ok(())
            }
            Do::Fault(rule) => stage.sim.post(&format!("/machines/{HOST}/faults"), rule()).await.map(|_| ()),
            Do::Heal => stage.sim.clear_faults(HOST).await,
            Do::ForeignDisk => foreign(&stage.sim.disk(HOST, 0)),
            Do::Error(text) => {
                let says = |host: &BareMetalHost| host.status.as_ref().is_some_and(|s| s.error_message.contains(text));
                self.until(&format!("in error with {text:?}"), |host| host.is_some_and(says)).await
            }
            Do::Arm => {
                stage.effects.arm();
                Ok(())
            }
            Do::Rest(rest) => self.rest(rest).await,
        }
    }

    fn wish(&self, name: &str) -> anyhow::Result<Value> {
        let url = self.stage.images.url(&file(name));
        Ok(json!({ "url": url, "checksum": image(name)?.sha256, "checksumType": "sha256", "format": "raw" }))
    }

    async fn declare(&self, image: Option<&str>, more: Value) -> anyhow::Result<()> {
        let machine = self.stage.sim.machine(HOST);
        let (system, name) = (machine["system"].as_str().unwrap_or_default(), format!("{HOST}-bmc-secret"));
        let secret = json!({ "metadata": { "name": name }, "stringData": { "username": machine["username"], "password": machine["password"] } });
        let mut host = json!({ "metadata": { "name": HOST }, "spec": {
            "online": true,
            "bmc": { "address": format!("redfish-virtualmedia+{}{system}", self.stage.bmc), "credentialsName": name },
            "bootMACAddress": machine["mac"],
        }});
        for (key, value) in more.as_object().into_iter().flatten() {
            host["spec"][key] = value.clone();
        }
        if let Some(image) = image {
            host["spec"]["image"] = self.wish(image)?;
        }
        let secrets: Api<Secret> = Api::default_namespaced(self.stage.client.clone());
        let (secret, host): (Secret, BareMetalHost) = (serde_json::from_value(secret)?, serde_json::from_value(host)?);
        patiently("create the Secret", async || there(secrets.create(&PostParams::default(), &secret).await)).await?;
        patiently("create the host", async || there(self.stage.hosts().create(&PostParams::default(), &host).await))
            .await
    }

    async fn patch(&self, patch: Value) -> anyhow::Result<()> {
        patiently("change the host", async || {
            self.stage.hosts().patch(HOST, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Ok(())
        })
        .await
    }

    async fn annotate(&self, key: &str, value: Value) -> anyhow::Result<()> {
        self.patch(json!({ "metadata": { "annotations": { key: value } } })).await
    }

    /// Waits until the host is as wanted. Errors on the way are noted.
    async fn until(
        &self,
        what: &str,
        wanted: impl Fn(Option<&BareMetalHost>) -> bool + Send + Sync,
    ) -> anyhow::Result<()> {
        let waiting = async {
            loop {
                let condition = |host: Option<&BareMetalHost>| {
                    let message =
                        host.and_then(|h| h.status.as_ref()).map(|s| s.error_message.as_str()).unwrap_or_default();
                    let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
                    if !message.is_empty() && errors.last().map(String::as_str) != Some(message) {
                        errors.push(message.to_owned());
                    }
                    wanted(host)
                };
                // A watch ends with the server of its API; the next one begins with what there is.
                if kube::runtime::wait::await_condition(self.stage.hosts(), HOST, condition).await.is_ok() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(PATIENCE), waiting).await;
        waited.map_err(|_| anyhow::anyhow!("the host is not {what} within {PATIENCE} s"))
    }

    async fn rest(&mut self, rest: &Rest) -> anyhow::Result<()> {
        let url = match rest.disk {
            Disk::Holds(name) => Some(self.stage.images.url(&file(name))),
            Disk::Wiped => Some(String::new()),
            Disk::Whatever => None,
        };
        let what = format!("{:?}", rest.end);
        self.until(&what, |host| is_at(host, rest, url.as_deref())).await?;
        let runs = |machine: &Value| machine["running"] == rest.runs;
        self.stage.sim.wait(HOST, PATIENCE, rest.runs, runs).await?;
        self.stage.effects.quiet(QUIET).await;
        self.machine_is_let_alone(rest).await?;
        self.disk_is(rest.disk)?;
        self.happened(rest).await?;
        if let Some(serial) = rest.serial {
            let record = Api::<MachineRecord>::default_namespaced(self.stage.client.clone()).get(HOST).await?;
            let found = record.spec.bmc.map(|bmc| json!(bmc)["serialNumber"].clone()).unwrap_or_default();
            ensure!(found == serial, "the record's serial number is {found}, not {serial}");
        }
        match rest.end {
            End::Gone => self.nothing_is_left().await,
            End::Detached(_) => {
                self.still_detached().await?;
                let machine = self.stage.sim.now(HOST).await?;
                self.detached = machine["counters"]["requests"].as_u64();
                Ok(())
            }
            End::In(_) => Ok(()),
        }
    }

    /// Nothing has been asked of the BMC since the host was detached.
    async fn still_detached(&self) -> anyhow::Result<()> {
        let Some(before) = self.detached else { return Ok(()) };
        let machine = self.stage.sim.now(HOST).await?;
        let now = machine["counters"]["requests"].as_u64();
        ensure!(now == Some(before), "the BMC of a detached host has got {before} requests, and then {now:?}");
        Ok(())
    }

    /// No session and no medium of which nobody makes use, and no restart but those that were wished.
    async fn machine_is_let_alone(&self, rest: &Rest) -> anyhow::Result<()> {
        let sessions = u64::from(matches!(rest.end, End::In(_)));
        let cleared = |m: &Value| m["sessions"].as_u64() <= Some(sessions);
        let cleared = self.stage.sim.wait(HOST, CLEARED.as_secs(), "free of a dead server's sessions", cleared).await?;
        let resident = rest.runs != "disk" && matches!(rest.end, End::In(_));
        ensure!(resident || cleared["medium"].is_null(), "a medium is left in the drive: {cleared}");
        Ok(())
    }

    fn disk_is(&self, wanted: Disk) -> anyhow::Result<()> {
        let disk = self.stage.sim.disk(HOST, 0);
        let table = bytes_at(&disk, 512, GPT.len())? == GPT;
        match wanted {
            Disk::Whatever => {}
            Disk::Wiped => ensure!(!table, "the disk has its partition table still"),
            Disk::Holds(name) => {
                ensure!(table, "the disk has no partition table");
                let same = bytes_at(&disk, 0, CONTENT.end)?[CONTENT] == image(name)?.bytes[CONTENT];
                ensure!(same, "the disk is not as the image {name}");
            }
        }
        Ok(())
    }

    async fn operations(&self) -> anyhow::Result<Vec<HostOperation>> {
        let api: Api<HostOperation> = Api::default_namespaced(self.stage.client.clone());
        let mut found =
            patiently("list the operations", async || Ok(api.list(&ListParams::default()).await?.items)).await?;
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(found)
    }

    /// What has happened since the last rest is what was wished, once.
    async fn happened(&mut self, rest: &Rest) -> anyhow::Result<()> {
        let before = self.seen;
        self.seen.writes = self.begun("write-image");
        self.seen.wipes = self.begun("wipe-disks");
        self.seen.ended = self.ended().await?;
        let (writes, wipes) = (self.seen.writes - before.writes, self.seen.wipes - before.wipes);
        ensure!(rest.writes.contains(&writes), "agents began {writes} writes, not {:?}", rest.writes);
        ensure!(rest.wipes.contains(&wipes), "agents began {wipes} wipes, not {:?}", rest.wipes);
        let ended = self.seen.ended - before.ended;
        ensure!(ended == rest.ended, "what ran from the disk was ended {ended} times, not {}", rest.ended);
        if rest.end == End::Gone {
            // With the host its operations go.
            return Ok(());
        }
        let operations = self.operations().await?;
        self.seen.operations = operations.len();
        history_is_true(&operations)?;
        let mut found: Vec<String> = operations
            .iter()
            .skip(before.operations)
            .map(|o| (o.spec.operation.as_str(), o.status.as_ref().map(|s| s.phase).unwrap_or_default()))
            .map(|(operation, phase)| format!("{operation} {phase:?}"))
            .collect();
        // What an inspection found is written after it has ended: killed in between, the agent is asked once more.
        found.dedup_by(|next, before| next == before && next == "inspect Succeeded");
        found.retain(|operation| !rest.perhaps.contains(&operation.as_str()));
        let again = rest.again.len();
        while again > 0 && found.get(rest.again.clone()) == found.get(rest.again.start + again..rest.again.end + again)
        {
            found.drain(rest.again.clone());
        }
        ensure!(found == rest.operations, "the operations are {found:?}, not {:?}", rest.operations);
        Ok(())
    }

    /// How often a system that ran from the disk lost its machine. The agent may be booted again when the server was killed while it
    /// waited for it, once.
    async fn ended(&self) -> anyhow::Result<usize> {
        let events = self.stage.sim.get(&format!("/events?machine={HOST}")).await?;
        let (mut ended, mut again, mut runs) = (0, 0, String::new());
        for event in events["events"].as_array().into_iter().flatten() {
            let data = &event["data"];
            let now = match event["kind"].as_str() {
                Some("boot") => data["running"].as_str().unwrap_or_default(),
                Some("power") if data["state"] == "Off" => "off",
                Some("reset") if runs == "disk" => "reset",
                _ => continue,
            };
            ended += usize::from(runs == "disk");
            again += usize::from(runs == "medium" && now == "medium");
            now.clone_into(&mut runs);
        }
        let planned = usize::from(self.scenario.script.iter().any(|step| matches!(step, Do::Stalled(_))));
        ensure!(again <= 1 + planned, "the agent was booted over itself {again} times");
        Ok(ended)
    }

    /// How often the agents have begun a command of this step, by their own account.
    fn begun(&self, step: &str) -> usize {
        let console = std::fs::read_to_string(self.console()).unwrap_or_default();
        console.matches(&format!("begins {step} of ")).count()
    }

    fn console(&self) -> PathBuf {
        PathBuf::from(self.stage.sim.machine(HOST)["serialConsole"].as_str().unwrap_or_default())
    }

    async fn nothing_is_left(&self) -> anyhow::Result<()> {
        // The API's own garbage collection has the last word; it works when the owner is gone.
        patiently("the host's operations and HardwareData are gone", async || {
            let operations = self.operations().await?.len();
            let data: Api<HardwareData> = Api::default_namespaced(self.stage.client.clone());
            let data = data.list(&ListParams::default()).await?.items.len();
            ensure!((operations, data) == (0, 0), "{operations} operations and {data} HardwareData are left");
            Ok(())
        })
        .await?;
        let secrets: Api<Secret> = Api::default_namespaced(self.stage.client.clone());
        if let Some(secret) = secrets.get_opt(&format!("{HOST}-bmc-secret")).await? {
            let held = secret.metadata.finalizers.unwrap_or_default();
            ensure!(held.is_empty(), "the BMC's Secret is still held by {held:?}");
        }
        Ok(())
    }

    /// What is known when something went wrong.
    async fn describe(&self) -> String {
        let stage = &self.stage;
        let host = stage.hosts().get_opt(HOST).await.map(|h| serde_json::to_string_pretty(&h.and_then(|h| h.status)));
        let operations: Api<HostOperation> = Api::default_namespaced(stage.client.clone());
        let operations = operations.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        let operations: Vec<Value> =
            operations.iter().map(|o| json!({ "name": o.metadata.name, "spec": o.spec, "status": o.status })).collect();
        let machine = stage.sim.now(HOST).await.unwrap_or_default();
        let tail = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        let server = |number: usize| tail(&stage.folder.path().join(format!("server-{number}.log")));
        format!(
            "effects:\n  {}\nhost: {host:?}\noperations: {}\nmachine: {machine}\nerrors: {:?}\nserver:\n{}\n{}\nconsole:\n{}",
            stage.effects.labels().join("\n  "),
            serde_json::to_string_pretty(&operations).unwrap_or_default(),
            self.errors.lock().unwrap_or_else(PoisonError::into_inner),
            server(0),
            if self.scenario.killed == Killed::Leader { server(1) } else { String::new() },
            tail(&self.console()),
        )
    }
}

/// Made, or there already.
fn there<T>(created: Result<T, kube::Error>) -> anyhow::Result<()> {
    match created {
        Err(kube::Error::Api(error)) if error.code == 409 => Ok(()),
        other => Ok(other.map(|_| ())?),
    }
}

/// Whether the host has come to this rest: all that was wished is done, and nothing is wrong.
fn is_at(host: Option<&BareMetalHost>, rest: &Rest, url: Option<&str>) -> bool {
    let Some(host) = host else { return rest.end == End::Gone };
    let Some(status) = &host.status else { return false };
    let well = status.error_message.is_empty() && status.error_type.is_none() && status.error_count == 0;
    match rest.end {
        End::Gone => false,
        End::Detached(state) => {
            host.state() == state && well && status.operational_status == OperationalStatus::Detached
        }
        End::In(state) => {
            host.state() == state
                && well
                && status.operational_status == OperationalStatus::Ok
                && status.powered_on == (rest.runs != "off")
                && url.is_none_or(|url| status.provisioning.image.url == url)
                && !USED_UP.iter().any(|key| host.annotation(key).is_some())
        }
    }
}

/// Nothing is open; what succeeded is done as a whole, its destructive step in its first attempt, and once for each wish; one thing is
/// done after the other.
fn history_is_true(operations: &[HostOperation]) -> anyhow::Result<()> {
    let mut granted = BTreeSet::new();
    let mut ended = None;
    for operation in operations {
        let name = operation.metadata.name.as_deref().unwrap_or_default();
        let status = operation.status.as_ref().with_context(|| format!("{name} has no status"))?;
        ensure!(status.phase.is_final(), "{name} is still {:?}", status.phase);
        let begun = status.start_time.as_ref().map(|time| time.0);
        ensure!(begun.is_none() || ended <= begun, "{name} began before the one before it had ended");
        ended = status.end_time.as_ref().map(|time| time.0).or(ended);
        if status.phase != OperationPhase::Succeeded {
            continue;
        }
        for step in &status.steps {
            ensure!(step.phase == StepPhase::Done, "the step {} of {name} is {:?}", step.name, step.phase);
            let destructive = matches!(step.name.as_str(), "write-image" | "wipe-disks");
            ensure!(
                !destructive || step.attempt == Some(1),
                "{} of {name} was attempted {:?} times",
                step.name,
                step.attempt
            );
        }
        let kind = operation.spec.operation;
        if kind != OperationType::Inspect && !granted.insert((kind.as_str(), operation.spec.wish.clone())) {
            bail!("{name} has succeeded for a wish that was granted before: {:?}", operation.spec.wish);
        }
    }
    Ok(())
}

/// A disk that another host's image is on.
fn foreign(disk: &Path) -> anyhow::Result<()> {
    let mut bytes = DiskImage::small()?.bytes.as_slice();
    let mut file = std::fs::OpenOptions::new().write(true).open(disk).context("open the disk")?;
    std::io::copy(&mut bytes, &mut file).context("fill the disk")?;
    let text = |text: &str| text.to_owned();
    let mark = disk_image::Mark {
        owner: text("6f1c2a34-0000-4000-8000-00000000aaaa"),
        host: text("elsewhere/node-7"),
        operation: text("node-7-002-provision"),
        written: text("2026-01-01T00:00:00Z"),
    };
    let placed = disk_image::write_mark(&disk_image::FileDisk::open(disk, 512)?, &mark)?;
    ensure!(matches!(placed, disk_image::MarkPlaced::Partition(_)), "the foreign mark was not placed: {placed:?}");
    Ok(())
}
