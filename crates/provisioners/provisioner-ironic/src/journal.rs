//! What is remembered of a host: in the host's record, before anything is ordered.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use api::metamorph::{OperationPhase, ProvisionerRecord};
use jiff::Timestamp;
use provisioner::{
    Attempt, BmcAccess, Cause, Failure, HostContext, MAX_COUNT, Purpose, RecordContent, RecordError, Recorded, Retry,
};
use provisioning_plan::in_use::{self, Runs};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::NAME;
use crate::orders::Order;

/// Version of [`Data`].
const VERSION: u32 = 1;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Inspection.
    Inspect,
    /// RAID, settings and firmware of an empty machine.
    Prepare,
    /// Deployment, by whatever method.
    Provision,
    /// Removal of what was deployed.
    Deprovision,
    /// Settings and firmware of a machine in use.
    Service,
}

/// A work, under way or the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Work {
    /// Counts the works on a host, from 1.
    pub number: u64,
    /// No other work has it.
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
    /// The last order of it that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// How many orders it has had.
    #[serde(default)]
    pub orders: u32,
    /// Disks were cleaned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cleaned: bool,
    /// The failure that it ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

impl Work {
    /// Whether it is of this kind and for this wish; a missing wish, on either side, matches any.
    pub fn is_for(&self, kind: Kind, wish: Option<&str>) -> bool {
        self.kind == kind && (wish.is_none() || self.wish.is_none() || self.wish.as_deref() == wish)
    }

    /// By which this process remembers that its last order was taken.
    pub fn order_id(&self) -> String {
        format!("{}/{}", self.id, self.orders)
    }
}

/// A subscription to a BMC's events, made or about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// Where events go.
    pub destination: String,
    /// Its id on the BMC, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Those to the same destination that were there before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
}

/// A system that is on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// The wish that it was provisioned by, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// uid of its host.
    pub owner: String,
    /// The newest work when it was seen there.
    pub number: u64,
}

/// The record's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Data {
    /// Name of the Ironic that has the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ironic: Option<String>,
    /// UUID of its node, made or about to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// uid of the host that they were recorded for; the record outlives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// uid of the host whose owner has said that what the machine runs may be destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_away: Option<String>,
    /// Where that Ironic was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What was taken over, or deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Running>,
    /// Number of the newest work when the machine was left to others, who may have put anything on it since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// uid of the host of which nothing has begun to be written to the machine since its first registration, or since it was cleaned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
    /// URL of the medium that was put in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// Subscriptions by the identity of who asked for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subscriptions: BTreeMap<String, Subscribed>,
    /// A restart was ordered of a machine whose power is never cut, or is about to be: from before the order until the host wishes something else. A node
    /// does not tell afterwards whether it has been made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// Number of the newest work.
    pub number: u64,
    /// That work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// What a later version has written: it is kept.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// What is on the machine of a record that this provisioner has written; `None` of any other.
#[must_use]
pub fn recorded_on_machine(record: &ProvisionerRecord) -> Option<in_use::Recorded> {
    let ours = record.name == NAME && record.version <= VERSION;
    let data: Data = ours.then(|| serde_json::from_value(record.data.clone()).ok())??;
    Some(data.on_machine())
}

impl Data {
    /// Notes that others decide about what is on the machine: on that of `owner`, or of nobody any more, unless it is still known what runs there. What was
    /// provisioned here before a host was theirs is not known to be there. True if that is news.
    pub fn leave_to_others(&mut self, owner: Option<String>) -> bool {
        if owner.is_none() && matches!(self.on_machine(), in_use::Recorded::Runs(Runs { wish: Some(_), .. })) {
            return false;
        }
        let number = self.number;
        let runs = owner.map(|owner| Running { wish: None, owner, number });
        let is_news = self.runs != runs || self.left != Some(number);
        (self.runs, self.left) = (runs, Some(number));
        // Consent to destroy what was there before is none to destroy theirs, and that nothing was written there is true of this host alone.
        let is_older = self.given_away.take().is_some() | self.unwritten.take().is_some();
        is_news | is_older
    }

    /// What is on the machine.
    pub fn on_machine(&self) -> in_use::Recorded {
        let runs = |running: Option<&Running>, wish: Option<&String>| {
            let owner = running.map(|running| running.owner.clone()).or_else(|| self.owner.clone());
            let wish = running.map_or_else(|| wish.cloned(), |running| running.wish.clone());
            in_use::Recorded::Runs(Runs { wish, owner: owner.unwrap_or_else(|| in_use::UNKNOWN.to_owned()) })
        };
        let newest = self.work.as_ref();
        let running = self.runs.as_ref();
        if running.is_some_and(|running| newest.is_none_or(|work| running.number >= work.number)) {
            return runs(running, None);
        }
        if self.left == Some(self.number) {
            return in_use::Recorded::Unclear;
        }
        let Some(newest) = newest else {
            return if self.number == 0 { in_use::Recorded::Nothing } else { in_use::Recorded::Unclear };
        };
        match (newest.kind, newest.phase) {
            (Kind::Provision, OperationPhase::Succeeded) => runs(None, newest.wish.as_ref()),
            // Nobody is served on another machine than one in use.
            (Kind::Service, _) => runs(running, None),
            (Kind::Deprovision, OperationPhase::Succeeded) => in_use::Recorded::Emptied { ended: newest.ended },
            // Nothing has been ordered by it: what ran before runs.
            _ if newest.orders == 0 && running.is_some() => runs(running, None),
            (Kind::Inspect | Kind::Prepare, _) => in_use::Recorded::Unused,
            _ => in_use::Recorded::Unclear,
        }
    }
}

/// What a BMC is verified with: where it is, user and password, as a digest that only this process can make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified(u64);

impl Verified {
    /// Of these.
    pub fn with(access: &BmcAccess) -> Self {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEYS.hash_one((&access.address, &access.username, access.password.expose_secret())))
    }
}

/// A lock of Ironic's that was in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What Ironic said of it.
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    /// When it was met last.
    pub seen: Timestamp,
}

/// What a process knows of one host; all of it may be lost.
#[derive(Clone, Debug, Default)]
pub struct Live {
    recorded: Option<(u64, Data)>,
    /// The work whose failure the host has been told.
    pub reported: Option<String>,
    /// The order that Ironic has taken.
    pub accepted: Option<String>,
    /// The change of power that Ironic has taken.
    pub power: Option<&'static str>,
    /// A restart that is recorded was not ordered, or the host has noted that it was: what is asked for is another.
    pub restart_is_over: bool,
    /// Ironic has been told to look at the BMC, with these credentials.
    pub verifying: Option<Verified>,
    /// Ironic has been told to put this medium in, or to take one out.
    pub medium: Option<Option<String>>,
    /// The attempt to provision.
    pub attempt: Attempt,
    /// The lock that was met last.
    pub locked: Option<Lock>,
    /// Since when the host is let go by force.
    pub forced: Option<Timestamp>,
    /// The node that was read whole and proved to be the host's, and when.
    pub own: Option<(String, Timestamp)>,
    /// When Ironic was told user and password because it does not reach the BMC.
    pub told: Option<Timestamp>,
    /// The node's ports as they were seen to be there, and when.
    pub ports: Option<(Ports, Timestamp)>,
}

/// Ports of a node: its id, when it was made, and the ports' addresses, with whether the machine boots by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The node.
    pub node: String,
    /// When it was made.
    pub made: Option<String>,
    /// Its ports.
    pub all: Vec<(String, bool)>,
}

/// What a process knows of its hosts, by their uids.
#[derive(Default)]
pub struct Memory(Mutex<HashMap<String, Live>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the host.
    pub fn of<T>(&self, uid: &str, look: impl FnOnce(&mut Live) -> T) -> T {
        look(self.lock().entry(uid.to_owned()).or_default())
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
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
        let (revision, mut read) = (recorded.revision, read(recorded)?);
        memory.of(&context.key.uid, |live| {
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
        })
    }

    /// Records the data as they are now. Durable when it returns.
    pub async fn write(&mut self, context: &HostContext, memory: &Memory, purpose: Purpose) -> Result<(), RecordError> {
        let data = serde_json::to_value(&self.data).map_err(|e| RecordError::new("the work", e.to_string()))?;
        let content = RecordContent { provisioner: NAME.to_owned(), version: VERSION, data };
        self.revision = context.record.write(self.revision, content, purpose).await?;
        let recorded = Some((self.revision, self.data.clone()));
        memory.of(&context.key.uid, |live| live.recorded = recorded);
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
        let work = Work {
            number,
            id,
            kind,
            wish: wish.map(ToOwned::to_owned),
            begun: now,
            ended: None,
            phase: OperationPhase::Running,
            order: None,
            orders: 0,
            cleaned: false,
            failure: None,
        };
        self.data.work = Some(work.clone());
        // What was asked for before it is over.
        self.data.restart = false;
        (work, ended)
    }

    /// Ends the work under way, if there is any, and returns it; not recorded yet.
    pub fn end(&mut self, now: Timestamp, phase: OperationPhase, failure: Option<Failure>) -> Option<Work> {
        let work = self.running()?;
        (work.phase, work.ended, work.failure) = (phase, Some(now), failure);
        Some(work.clone())
    }

    /// The work under way.
    pub fn running(&mut self) -> Option<&mut Work> {
        self.data.work.as_mut().filter(|work| !work.phase.is_final())
    }
}

fn read(recorded: Recorded) -> Result<Data, Failure> {
    let Some(content) = recorded.content else {
        let number = recorded.earlier.iter().map(|entry| entry.number).max().unwrap_or(0);
        return Ok(Data { number, ..Data::default() });
    };
    let refuse = |what: String, advice: &str| {
        let mut failure = Failure::new(Cause::RecordUnreadable, format!("read the host's record: {what}"));
        failure.retry = Retry::Held;
        Err(failure.advise(advice))
    };
    if content.provisioner != NAME {
        let what = format!("it is that of the provisioner \"{}\"", crate::fault::clean(&content.provisioner));
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
        Ok(data) if data.node.as_deref().is_some_and(|node| !crate::names::is_uuid(node)) => {
            nonsense("the id of its node is no UUID".to_owned())
        }
        Ok(data) => Ok(data),
        Err(error) => nonsense(crate::fault::clean(&error.to_string())),
    }
}
