//! What the fixture remembers of a host: in the host's record, before anything is done.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Time;
use api::metamorph::{HostOperationStatus, OperationError, OperationPhase, OperationStep, OperationType, StepPhase};
use jiff::Timestamp;
use provisioner::{
    Attempt, Cause, Failure, HistoryEntry, HostContext, MAX_COUNT, Purpose, RecordContent, RecordError, Recorded,
    Retry, Tell, operation_name,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of [`Data`].
const VERSION: u32 = 1;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Inspection.
    Inspect,
    /// Provisioning, by whatever method.
    Provision,
    /// Deprovisioning.
    Deprovision,
    /// Erasing.
    Erase,
    /// Steps of hardware managers.
    Steps,
    /// RAID, settings and firmware of an empty machine.
    Prepare,
    /// The same of a machine in use.
    Service,
}

impl Kind {
    /// The type of its HostOperation; `None` for work that is not shown as one.
    const fn operation(self) -> Option<OperationType> {
        match self {
            Self::Inspect => Some(OperationType::Inspect),
            Self::Provision => Some(OperationType::Provision),
            Self::Deprovision => Some(OperationType::Deprovision),
            Self::Erase => Some(OperationType::Erase),
            Self::Steps => Some(OperationType::Steps),
            Self::Prepare | Self::Service => None,
        }
    }

    /// Its only step.
    pub const fn step(self) -> &'static str {
        match self {
            Self::Inspect => "inspect the machine",
            Self::Provision => "write the image",
            Self::Deprovision => "remove what was provisioned",
            Self::Erase => "erase the disks",
            Self::Steps => "run steps of hardware managers",
            Self::Prepare => "change volumes, settings and firmware",
            Self::Service => "change settings and firmware of the machine in use",
        }
    }
}

/// A work, under way or the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// Counts the works on a host, from 1.
    pub number: u64,
    /// By which the machine knows it; no other has it.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// For which wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// Since when.
    pub begun: Timestamp,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Where it is.
    pub phase: OperationPhase,
    /// The failure that it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl Work {
    /// Whether it is of this kind and for this wish; a missing wish, on either side, matches any.
    pub fn is_for(&self, kind: Kind, wish: Option<&str>) -> bool {
        self.kind == kind && (wish.is_none() || self.wish.is_none() || self.wish.as_deref() == wish)
    }
}

/// The record's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Data {
    /// Since when the host is registered, or is being.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registering: Option<Timestamp>,
    /// Since when a machine that was provisioned by somebody else is taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopting: Option<Timestamp>,
    /// uid of the host of which nothing has begun to be written to the machine since its first registration, or since it was emptied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
    /// Serial number of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Number of the newest work.
    pub number: u64,
    /// That work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// What a later version has written: it is kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What a process knows of one host; all of it may be lost.
#[derive(Clone, Debug, Default)]
struct Live {
    recorded: Option<(u64, Data)>,
    reported: Option<String>,
    attempt: Attempt,
}

/// What a process knows of its hosts, by their uids.
pub struct Memory {
    /// The provisioner's name, which records carry.
    pub name: &'static str,
    all: Mutex<HashMap<String, Live>>,
}

impl Memory {
    /// Nothing is known.
    pub fn of(name: &'static str) -> Self {
        Self { name, all: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is at rest.
    pub fn rests(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().attempt.rests();
    }

    /// The host is asked to be provisioned.
    pub fn asks(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().attempt.ask();
    }

    /// Whether this deprovisioning ends an attempt that was asked for.
    pub fn ends_attempt(&self, uid: &str, wish: Option<&str>) -> bool {
        self.lock().entry(uid.to_owned()).or_default().attempt.end(wish)
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Notes that the host gets the failure of this work; false if it already has.
    pub fn tells(&self, uid: &str, id: &str) -> bool {
        let reported = self.lock().entry(uid.to_owned()).or_default().reported.replace(id.to_owned());
        reported.as_deref() != Some(id)
    }
}

/// One host's, for one reconcile.
pub struct Journal {
    /// What is recorded.
    pub data: Data,
    revision: u64,
}

impl Journal {
    /// The recorded data; if the record was deleted during work, what this process recorded before.
    ///
    /// # Errors
    /// When the record is not one that this version may touch.
    pub fn read(context: &HostContext, memory: &Memory) -> Result<Self, Failure> {
        let recorded = context.record.current();
        let (revision, mut read) = (recorded.revision, read(recorded, memory.name)?);
        let mut all = memory.lock();
        let live = all.entry(context.key.uid.clone()).or_default();
        let lost = live.recorded.as_ref().filter(|(known, ours)| {
            let runs = ours.work.as_ref().is_some_and(|work| !work.phase.is_final());
            runs && revision < *known && read.number <= ours.number && read.work.as_ref() != ours.work.as_ref()
        });
        if let Some((_, ours)) = lost {
            tracing::warn!(host = %context.key.name, "the record of the work that is under way was deleted: it is written anew");
            return Ok(Self { data: ours.clone(), revision });
        }
        // Numbers only grow, whatever happened to the record.
        read.number = live.recorded.as_ref().map_or(0, |(_, ours)| ours.number).max(read.number);
        live.recorded = Some((revision, read.clone()));
        Ok(Self { data: read, revision })
    }

    /// Records the data as they are now. Durable when it returns.
    pub async fn write(&mut self, context: &HostContext, memory: &Memory, purpose: Purpose) -> Result<(), RecordError> {
        let data = serde_json::to_value(&self.data).map_err(|e| RecordError::new("the work", e.to_string()))?;
        let content = RecordContent { provisioner: memory.name.to_owned(), version: VERSION, data };
        self.revision = context.record.write(self.revision, content, purpose).await?;
        let recorded = Some((self.revision, self.data.clone()));
        memory.lock().entry(context.key.uid.clone()).or_default().recorded = recorded;
        Ok(())
    }

    /// Begins new work and cancels work under way; not recorded yet. Returns both.
    pub fn begin(&mut self, context: &HostContext, kind: Kind, wish: Option<&str>) -> (Work, Option<Work>) {
        let now = (context.now)();
        let ended = self.end(now, OperationPhase::Cancelled, None);
        self.data.number = self.data.number.saturating_add(1);
        let number = self.data.number;
        // Unique: no other work on a host of this uid begins at this instant.
        let id = format!("{}/{number}/{:x}", context.key.uid, now.as_nanosecond());
        let (wish, phase) = (wish.map(ToOwned::to_owned), OperationPhase::Running);
        let work = Work { number, id, kind, wish, begun: now, ended: None, phase, failure: None };
        self.data.work = Some(work.clone());
        (work, ended)
    }

    /// Ends the work under way, if there is any, and returns it; not recorded yet.
    pub fn end(&mut self, now: Timestamp, phase: OperationPhase, failure: Option<Failure>) -> Option<Work> {
        let work = self.data.work.as_mut().filter(|work| !work.phase.is_final())?;
        (work.phase, work.ended, work.failure) = (phase, Some(now), failure);
        Some(work.clone())
    }
}

/// Shows a work to people.
pub async fn show(context: &HostContext, work: &Work, percent: Option<u8>) {
    let Some(operation) = work.kind.operation() else { return };
    let time = |at: Timestamp| Timestamp::from_second(at.as_second()).ok().map(Time);
    let error = work.failure.as_ref().map(|failure| OperationError {
        cause: failure.cause.as_str().to_owned(),
        message: failure.message.clone(),
        advice: failure.what_to_do().map(ToOwned::to_owned),
    });
    let phase = match work.phase {
        OperationPhase::Pending => StepPhase::Pending,
        OperationPhase::Running => StepPhase::Running,
        OperationPhase::Succeeded => StepPhase::Done,
        OperationPhase::Failed | OperationPhase::Cancelled => StepPhase::Failed,
    };
    let step = work.kind.step().to_owned();
    let progress = match (phase, percent) {
        (StepPhase::Done, _) => "1/1".to_owned(),
        (_, Some(percent)) => format!("0/1 ({percent}%)"),
        _ => "0/1".to_owned(),
    };
    let status = HostOperationStatus {
        phase: work.phase,
        start_time: time(work.begun),
        end_time: work.ended.and_then(time),
        current_step: Some(step.clone()),
        progress: Some(progress),
        message: Some(work.failure.as_ref().map_or_else(|| step.clone(), |failure| failure.message.clone())),
        steps: vec![OperationStep {
            name: step,
            phase,
            start_time: time(work.begun),
            end_time: work.ended.and_then(time),
            attempt: Some(1),
            percent: percent.map(u32::from),
            error: error.clone(),
            ..OperationStep::default()
        }],
        error,
        ..HostOperationStatus::default()
    };
    let id = format!("{}/{}", operation_name(&context.key.name, work.number, operation), work.id);
    let entry = HistoryEntry { number: work.number, id, operation, wish: work.wish.clone(), status };
    let when = if percent.is_some() { Tell::Soon } else { Tell::Now };
    context.history.tell(&entry, when).await;
}

fn read(recorded: Recorded, name: &str) -> Result<Data, Failure> {
    let Some(content) = recorded.content else {
        let number = recorded.earlier.iter().map(|entry| entry.number).max().unwrap_or(0);
        return Ok(Data { number, ..Data::default() });
    };
    let refuse = |what: String, advice: &str| {
        let mut failure = Failure::new(Cause::RecordUnreadable, format!("read the host's record: {what}"));
        failure.retry = Retry::Held;
        Err(failure.advise(advice))
    };
    if content.provisioner != name {
        let what = format!("it is that of the provisioner \"{}\"", content.provisioner);
        return refuse(what, "name that provisioner in the host's annotation metamorph.metal3.io/provisioner");
    }
    if content.version > VERSION {
        let what = format!("it has the format {}, this version knows formats up to {VERSION}", content.version);
        return refuse(what, "run the version of Metamorph that wrote it, or a later one");
    }
    let nonsense = |why: String| {
        refuse(format!("it is no record ({why})"), "restore the MachineRecord from a backup, or delete it")
    };
    match serde_json::from_value::<Data>(content.data) {
        Ok(data) if data.number >= MAX_COUNT => {
            nonsense(format!("its number is {}, and nothing counts beyond {MAX_COUNT}", data.number))
        }
        Ok(data) => Ok(data),
        Err(error) => nonsense(error.to_string()),
    }
}
