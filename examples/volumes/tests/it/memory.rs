//! Volumes in memory, and a worker of them in Rust: the same rules as those of the worker in Python, without disks in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{
    Cause, Context, Failure, Named, Outcome, Provides, Purpose, RecordContent, Retry, Verdict, Waiting, WakeUps, Waker,
    Working,
};
use provisioner_external::serve::{About, Worker, about_to, did, serve_stream, worker};
use provisioner_external::{InMemory, Reached, Site, v1};
use provisioner_kit::Condition;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use volumes::{Volume, VolumeAnswer, VolumeCall, VolumeCapabilities, VolumeFacts, VolumeState};

/// Steps of one piece of work.
const STEPS: u32 = 3;

/// A volume on the shelf.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub id: String,
    pub owner: String,
    pub size: u64,
    /// What is done to it, and how many steps are left.
    pub doing: Option<(&'static str, u32)>,
}

#[derive(Default)]
struct Inside {
    volumes: BTreeMap<String, Stored>,
    troubles: BTreeSet<Condition>,
    log: Vec<String>,
}

/// Where volumes lie, by name; it outlives workers.
#[derive(Clone, Default)]
pub struct Shelf(Arc<Mutex<Inside>>);

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, name: &str) -> Option<Stored> {
        self.lock().volumes.get(name).cloned()
    }

    /// What lies there from now on.
    pub fn put(&self, name: &str, stored: Option<Stored>) -> Option<Stored> {
        let mut inside = self.lock();
        match stored {
            Some(stored) => inside.volumes.insert(name.to_owned(), stored),
            None => inside.volumes.remove(name),
        }
    }

    pub fn trouble(&self, condition: Condition, on: bool) {
        let mut inside = self.lock();
        if on {
            inside.troubles.insert(condition)
        } else {
            inside.troubles.remove(&condition)
        };
    }

    /// Everything that was done, in order.
    pub fn log(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    fn is(&self, condition: Condition) -> bool {
        self.lock().troubles.contains(&condition)
    }

    fn takes(&self, condition: Condition) -> bool {
        self.lock().troubles.remove(&condition)
    }
}

/// The worker's provisioner.
pub struct Memory {
    shelf: Shelf,
    /// It does not look whose volume it is: the kit has to see that.
    careless: bool,
    waker: Waker,
}

impl Memory {
    pub fn new(shelf: &Shelf) -> Self {
        Self { shelf: shelf.clone(), careless: false, waker: Waker::default() }
    }

    /// One that does not look whose volume it is, or does.
    pub fn careless(self, careless: bool) -> Self {
        Self { careless, ..self }
    }
}

impl Named for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }
}

#[async_trait]
impl Provides<Volume> for Memory {
    fn capabilities(&self, _: &VolumeFacts) -> VolumeCapabilities {
        VolumeCapabilities { grow: true }
    }

    async fn ask(&self, context: Context<Volume>, call: VolumeCall) -> Outcome<VolumeAnswer> {
        let recorded = context.record.current();
        let is_ours = recorded.content.as_ref().is_none_or(|it| it.provisioner == "memory" && it.version == 1);
        let content = recorded.content.unwrap_or_default();
        if !is_ours || !(content.data.is_null() || content.data.is_object()) {
            return Err(held(Cause::RecordUnreadable, "read the record: it is not this provisioner's"));
        }
        let data = if content.data.is_null() { json!({}) } else { content.data };
        let step = match call {
            VolumeCall::Make(_) => "make",
            VolumeCall::Grow(_) => "grow",
            VolumeCall::Remove(_) => "remove",
        };
        let mut asked = Asked { on: self, context, revision: recorded.revision, data, step };
        asked.answer(&call).await
    }

    fn subscribe(&self) -> WakeUps {
        self.waker.subscribe()
    }
}

fn held(cause: Cause, message: &str) -> Failure {
    let mut failure = Failure::new(cause, message).advise("put it right");
    failure.retry = Retry::Held;
    failure
}

struct Asked<'a> {
    on: &'a Memory,
    context: Context<Volume>,
    revision: u64,
    data: Value,
    step: &'static str,
}

impl Asked<'_> {
    fn name(&self) -> &str {
        &self.context.facts.key.name
    }

    fn state(&self) -> &str {
        self.data["state"].as_str().unwrap_or_default()
    }

    async fn record(&mut self, changes: Value, purpose: Purpose) -> Result<(), Failure> {
        for (name, value) in changes.as_object().unwrap() {
            self.data[name] = value.clone();
        }
        let content = RecordContent { provisioner: "memory".into(), version: 1, data: self.data.clone() };
        self.revision = self.context.record.write(self.revision, content, purpose).await?;
        Ok(())
    }

    async fn answer(&mut self, call: &VolumeCall) -> Outcome<VolumeAnswer> {
        if !(self.context.may_act)() {
            return Err(Failure::new(Cause::NotLeading, "another process leads"));
        }
        if self.on.shelf.is(Condition::Silent) {
            return Err(Failure::new(Cause::ProvisionerUnavailable, "look at the shelf: it is not there"));
        }
        let found = self.on.shelf.get(self.name());
        let wanted = match call {
            VolumeCall::Make(size) | VolumeCall::Grow(size) => size.size_mebibytes,
            VolumeCall::Remove(_) => return self.remove(found).await,
        };
        let Some(found) = found else {
            if !matches!(self.state(), "" | "making" | "removed") {
                return Err(held(Cause::HardwareFailed, "it is gone, and no empty one is made in its place"));
            }
            return self.make(wanted).await;
        };
        self.proved(&found)?;
        match found.doing {
            Some(_) => self.goes_on(found).await,
            None if self.step == "grow" && found.size < wanted => self.grow(found, wanted).await,
            None => {
                if self.state() != "made" {
                    self.record(json!({ "id": found.id, "state": "made" }), Purpose::Note).await?;
                }
                Ok(Verdict::Done(VolumeAnswer::Volume(VolumeState { id: found.id, size_mebibytes: found.size })))
            }
        }
    }

    fn proved(&self, found: &Stored) -> Result<(), Failure> {
        if self.on.careless {
            return Ok(());
        }
        if found.owner != self.context.facts.key.uid {
            return Err(held(Cause::ForeignOwner, &format!("what lies there is the volume of {}", found.owner)));
        }
        if self.data["id"].as_str().is_some_and(|id| id != found.id) {
            return Err(held(Cause::AnotherMachine, &format!("what lies there is {}", found.id)));
        }
        Ok(())
    }

    async fn make(&mut self, size: u64) -> Outcome<VolumeAnswer> {
        if self.state() != "making" {
            if self.on.shelf.is(Condition::Busy) {
                return Ok(busy());
            }
            let id = format!("memory-{}-{}", self.context.facts.key.uid, self.revision);
            self.record(json!({ "id": id, "state": "making", "size": size }), Purpose::Intent).await?;
        }
        let id = self.data["id"].as_str().unwrap_or_default().to_owned();
        let size = self.data["size"].as_u64().unwrap_or_default();
        let owner = self.context.facts.key.uid.clone();
        let made = Stored { id, owner, size, doing: Some(("making", STEPS)) };
        self.order(v1::Effect::Write, None, made).await
    }

    async fn grow(&mut self, found: Stored, size: u64) -> Outcome<VolumeAnswer> {
        if self.state() != "growing" {
            if self.on.shelf.is(Condition::Busy) {
                return Ok(busy());
            }
            self.record(json!({ "id": found.id, "state": "growing", "size": size }), Purpose::Intent).await?;
        }
        let size = self.data["size"].as_u64().unwrap_or_default();
        let grown = Stored { size, doing: Some(("growing", STEPS)), ..found.clone() };
        self.order(v1::Effect::Configure, Some(found), grown).await
    }

    async fn remove(&mut self, found: Option<Stored>) -> Outcome<VolumeAnswer> {
        let Some(found) = found else {
            if !matches!(self.state(), "" | "removed") {
                self.record(json!({ "state": "removed" }), Purpose::Note).await?;
            }
            return Ok(Verdict::Done(VolumeAnswer::Done));
        };
        let was_asked = self.data["id"].is_string() || !self.context.facts.id.is_empty();
        if !was_asked && found.owner != self.context.facts.key.uid && !self.on.careless {
            return Ok(Verdict::Done(VolumeAnswer::Done));
        }
        self.proved(&found)?;
        if matches!(found.doing, Some(("removing", _))) {
            return self.goes_on(found).await;
        }
        if self.state() != "removing" {
            if self.on.shelf.is(Condition::Busy) {
                return Ok(busy());
            }
            self.record(json!({ "id": found.id, "state": "removing" }), Purpose::Intent).await?;
        }
        let removed = Stored { doing: Some(("removing", STEPS)), ..found.clone() };
        self.order(v1::Effect::Wipe, Some(found), removed).await
    }

    /// One step of what has begun.
    async fn goes_on(&mut self, found: Stored) -> Outcome<VolumeAnswer> {
        if self.on.shelf.takes(Condition::Failing) {
            return Err(Failure::new(Cause::HardwareFailed, "the shelf has failed"));
        }
        let (what, left) = found.doing.unwrap_or_default();
        if self.data["id"].is_null() {
            // The record was lost; what lies there says who it is.
            self.record(json!({ "id": found.id, "state": what, "size": found.size }), Purpose::Note).await?;
        }
        self.context.record.still_wanted().await?;
        let name = self.name().to_owned();
        if left > 1 {
            self.on.shelf.put(&name, Some(Stored { doing: Some((what, left - 1)), ..found }));
            return Ok(working(self.step, u8::try_from(100 / left).unwrap_or(0)));
        }
        if what == "removing" {
            self.on.shelf.put(&name, None);
            self.record(json!({ "state": "removed" }), Purpose::Note).await?;
            return Ok(Verdict::Done(VolumeAnswer::Done));
        }
        let made = Stored { doing: None, ..found };
        self.on.shelf.put(&name, Some(made.clone()));
        self.record(json!({ "state": "made" }), Purpose::Note).await?;
        Ok(Verdict::Done(VolumeAnswer::Volume(VolumeState { id: made.id, size_mebibytes: made.size })))
    }

    /// Gives the order whose intent is recorded, if what lies there is still what was looked at.
    async fn order(&self, effect: v1::Effect, before: Option<Stored>, mut after: Stored) -> Outcome<VolumeAnswer> {
        if !about_to(effect, self.step).await {
            return Err(Failure::new(Cause::NotLeading, "it may not be done"));
        }
        let shelf = &self.on.shelf;
        if shelf.takes(Condition::Refusing) {
            did(effect, false, self.step).await;
            return Err(Failure::new(Cause::HardwareFailed, "the shelf refuses"));
        }
        if shelf.is(Condition::Slow) {
            after.doing = after.doing.map(|(what, steps)| (what, steps * 10));
        }
        let happens = shelf.get(self.name()) == before;
        if happens {
            shelf.put(self.name(), Some(after));
            shelf.lock().log.push(format!("{} {}", self.step, self.name()));
        }
        did(effect, happens, self.step).await;
        Ok(working(self.step, 0))
    }
}

fn working(step: &str, percent: u8) -> Verdict<VolumeAnswer> {
    let look_again = Duration::from_secs(1);
    let (step, percent) = (format!("{step} the volume"), Some(percent));
    Verdict::Working(Working { step, percent, look_again, ..Working::default() })
}

fn busy() -> Verdict<VolumeAnswer> {
    Verdict::Waiting(Waiting::Busy { reason: "the shelf is full".into(), look_again: Duration::from_secs(5) })
}

/// A worker's process over what lies on a shelf, served in memory until the other end and its connections are gone.
pub fn served(memory: Memory) -> InMemory {
    let about = About::<Volume> {
        name: "memory".into(),
        program: "1.2.3".into(),
        id_prefix: "memory-".into(),
        capabilities: VolumeCapabilities { grow: true },
        schemes: Vec::new(),
        check_address: None,
    };
    let provisioner: Arc<dyn Provides<Volume>> = Arc::new(memory);
    let worker: Worker<Volume> = worker(provisioner, about, None);
    let (sender, mut connections) = mpsc::channel::<DuplexStream>(4);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            tokio::spawn(serve_stream(stream, worker.clone()));
        }
    });
    InMemory(sender)
}

/// The entry of a provisioner of this name.
pub fn site(name: &str) -> Site {
    Site::new(name, Reached::Socket("/nowhere".into(), None))
}
