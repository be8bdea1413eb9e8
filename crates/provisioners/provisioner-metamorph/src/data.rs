//! What the native provisioner's record of a host holds, and how it is read.

use std::collections::BTreeMap;

use api::metamorph::{AgentBoot, OperationPhase, OperationType, ProvisionerRecord};
use inventory::Storage;
use jiff::Timestamp;
use provisioner::{Cause, Failure, HistoryEntry, HostKey, MAX_COUNT, Recorded, Retry};
use provisioning_plan::in_use::{self, Runs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keys::{FIRST_KEY, KeyRing};
use crate::name::NAME;
use crate::newest::FirmwareWork;
use crate::remembered::{DataMedium, LiveMedium, PinnedImage, Running, Subscribed, TestInsertion, WriteOrders};

/// Version of [`Data`].
pub const VERSION: u32 = 1;
/// Most sessions that are remembered: one is open at a time, and the first contact ends those of earlier processes.
pub const MAX_SESSIONS: usize = 4;

/// The record's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Data {
    /// Name from which the host's media and agents' tokens are derived: the uid of the host that began the record. A host that is declared again or
    /// restored has another uid, and still hears the running agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Proof of that by the server's key ([`KeyRing::claim`]): a client that can only write records cannot take over agents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim: String,
    /// Number of the newest operation.
    pub number: u64,
    /// The operation of that number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<HistoryEntry>,
    /// The newest boot of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<AgentBoot>,
    /// Addresses of sessions on the BMC, the newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// The medium of the host's DataImage, from before it is put in until it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_medium: Option<DataMedium>,
    /// The live ISO that the machine boots, from before it is put in until it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_medium: Option<LiveMedium>,
    /// A medium that the BMC is to read for a test, from before it is put in until it is out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_medium: Option<TestInsertion>,
    /// Subscriptions to the BMC's events, by identity, from before they are made until they have ended.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub subscriptions: BTreeMap<String, Subscribed>,
    /// The settings that the operation under way makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwareWork>,
    /// What the image in a registry is that was written last, or is being written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<PinnedImage>,
    /// Orders to write an image, if they have been counted from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_orders: Option<WriteOrders>,
    /// The disks that an agent found last, where the BMC's list has taken their place in the host's HardwareData. A wipe expects them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disks: Option<Vec<Storage>>,
    /// Settings that the BMC was given and that have neither been seen in force nor been taken back: they may be pending there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, String>,
    /// Password that drives have while they are erased. It is made once, recorded before a drive gets it, and kept: whenever an erase was broken off, it
    /// opens what that has left locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_password: Option<String>,
    /// A restart was ordered of a machine whose power is never cut, or is about to be: from before the order until the host wishes something else. Nothing
    /// that is seen of the machine tells whether it has been made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// What the machine runs, as far as versions that note it know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Running>,
    /// Number of the newest operation when the machine was left to others, who may have put anything on it since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Fields of later versions, kept as they are.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Data {
    /// A counter with a value that counting cannot reach, if there is one.
    fn overrun(&self) -> Option<(&'static str, u64)> {
        let status = self.operation.as_ref().map(|operation| &operation.status);
        let boots = [self.boot.as_ref(), status.and_then(|status| status.boot.as_ref())];
        let generation = boots.into_iter().flatten().map(|boot| boot.generation).max().unwrap_or(0);
        let operation = self.operation.as_ref().map_or(0, |operation| operation.number);
        let counters = [("number", self.number.max(operation)), ("boot.generation", generation)];
        counters.into_iter().find(|(_, count)| *count >= MAX_COUNT)
    }

    /// Reads the record; fails if this version must not touch it.
    pub fn read(recorded: &Recorded) -> Result<Self, Failure> {
        let Some(content) = &recorded.content else { return Ok(Self::of_history(&recorded.earlier)) };
        let refuse = |what: String, advice: &str| {
            let mut failure = Failure::new(Cause::RecordUnreadable, format!("read the host's record: {what}"));
            failure.retry = Retry::Held;
            failure.advise(advice)
        };
        if content.provisioner != NAME {
            let what = format!("it is that of the provisioner \"{}\"", content.provisioner);
            return Err(refuse(
                what,
                "name that provisioner in the host's annotation metamorph.metal3.io/provisioner; or, if nothing is under way on the machine, delete the MachineRecord",
            ));
        }
        if content.version > VERSION {
            let what = format!("it has the format {}, this version knows formats up to {VERSION}", content.version);
            return Err(refuse(what, "run the version of Metamorph that wrote it, or a later one"));
        }
        let nonsense = |why: String| {
            let what = format!("spec.provisioner.data of its MachineRecord is no record ({why})");
            refuse(
                what,
                "restore the MachineRecord from a backup; or, if nothing is under way on the machine, delete it: the machine is looked at anew",
            )
        };
        let data: Self = serde_json::from_value(content.data.clone()).map_err(|error| nonsense(error.to_string()))?;
        match data.overrun() {
            Some((what, count)) => {
                Err(nonsense(format!("its {what} is {count}, and nothing counts beyond {MAX_COUNT}")))
            }
            None => Ok(data),
        }
    }

    /// What versions without records remembered.
    fn of_history(earlier: &[HistoryEntry]) -> Self {
        let boots = earlier.iter().filter_map(|entry| entry.status.boot.clone());
        let mut data = Self {
            number: earlier.iter().map(|entry| entry.number).max().unwrap_or(0),
            operation: earlier.iter().max_by_key(|entry| entry.number).cloned(),
            boot: boots.max_by_key(|boot| (boot.generation, boot.boot_id.is_some(), boot.retired)),
            ..Self::default()
        };
        for session in earlier.iter().filter_map(|entry| entry.status.bmc_session.clone()) {
            data.remember_session(session);
        }
        data
    }

    /// What was put on the machine, if the newest operation is one of which that was noted.
    pub fn running(&self) -> Option<&Running> {
        let newest = self.operation.as_ref().map(|operation| operation.number);
        self.runs.as_ref().filter(|runs| newest.is_none_or(|newest| runs.number >= newest))
    }

    /// What is on the machine. Where an earlier version has worked last, the newest operation tells, and the mark is the name's by which it went.
    pub fn on_machine(&self) -> in_use::Recorded {
        let runs = |wish: Option<&String>, owner: &str| {
            in_use::Recorded::Runs(Runs { wish: wish.cloned(), owner: owner.to_owned() })
        };
        if let Some(running) = self.running() {
            return runs(running.wish.as_ref(), &running.owner);
        }
        if self.left == Some(self.number) {
            return in_use::Recorded::Unclear;
        }
        let Some(newest) = &self.operation else {
            return if self.number == 0 { in_use::Recorded::Nothing } else { in_use::Recorded::Unclear };
        };
        match (newest.operation, newest.status.phase) {
            (OperationType::Provision, OperationPhase::Succeeded) => runs(newest.wish.as_ref(), &self.subject),
            // Nobody is served on another machine than one in use.
            (OperationType::Service, _) => runs(None, &self.subject),
            (OperationType::Deprovision | OperationType::Erase, OperationPhase::Succeeded) => {
                in_use::Recorded::Emptied { ended: newest.status.end_time.as_ref().map(|end| end.0) }
            }
            (OperationType::Inspect | OperationType::Prepare | OperationType::Erase | OperationType::Steps, _) => {
                in_use::Recorded::Unused
            }
            _ => in_use::Recorded::Unclear,
        }
    }

    /// When something was last done to the machine, if that is known.
    pub fn last_worked(&self) -> Option<Timestamp> {
        let status = self.operation.as_ref().map(|operation| &operation.status);
        let times = status.into_iter().flat_map(|status| [&status.end_time, &status.start_time]).flatten();
        // Another program may have provisioned it.
        let provisioned = self.runs.as_ref().and_then(|running| in_use::began(running.wish.as_deref()?));
        times.map(|time| time.0).chain(provisioned).max()
    }

    /// The name that the host goes by: the recorded one if it is proved, else its uid.
    pub fn proved_subject(&self, key: &HostKey, keys: &KeyRing) -> String {
        let proved = keys.proves(&self.claim, &key.namespace, &key.name, &self.subject);
        if proved { self.subject.clone() } else { key.uid.clone() }
    }

    /// Whether it has an operation under way and `other` is an earlier stage of the same work, without that operation or with it still under way.
    pub fn goes_on_from(&self, other: &Self) -> bool {
        let Some(ours) = self.operation.as_ref().filter(|entry| !entry.status.phase.is_final()) else { return false };
        let identity = |entry: &HistoryEntry| (entry.operation, entry.wish.clone(), entry.status.start_time.clone());
        let theirs = other.operation.as_ref();
        // The history knows it by another identity.
        let same = |theirs: &HistoryEntry| theirs.id == ours.id || identity(theirs) == identity(ours);
        other.number < self.number || theirs.is_some_and(|theirs| !theirs.status.phase.is_final() && same(theirs))
    }

    /// Adds a session that may be open on the BMC; the oldest surplus ones are forgotten.
    pub fn remember_session(&mut self, session: String) {
        self.sessions.retain(|known| *known != session);
        self.sessions.push(session);
        let surplus = self.sessions.len().saturating_sub(MAX_SESSIONS);
        self.sessions.drain(..surplus);
    }
}

/// The newest boot in the record of the host with this namespace and name, and when its last work ended, if it has; `None` unless this provisioner
/// wrote the record with one of these keys.
#[must_use]
pub fn recorded_boot(
    (namespace, name): (&str, &str),
    record: &ProvisionerRecord,
    keys: &KeyRing,
) -> Option<(AgentBoot, Option<Timestamp>)> {
    let ours = record.name == NAME && record.version <= VERSION;
    let data: Data = ours.then(|| serde_json::from_value(record.data.clone()).ok())??;
    if !keys.proves(&data.claim, namespace, name, &data.subject) {
        return None;
    }
    let ended = data.operation.and_then(|operation| operation.status.end_time).map(|end| end.0);
    Some((data.boot?, ended))
}

/// What is on the machine of another host's record, by that record, and when its host last had something done to it, if that is known.
#[must_use]
pub fn recorded_use(record: &ProvisionerRecord) -> Option<(Option<Timestamp>, in_use::Recorded)> {
    let ours = record.name == NAME && record.version <= VERSION;
    let data: Data = ours.then(|| serde_json::from_value(record.data.clone()).ok())??;
    Some((data.last_worked(), data.on_machine()))
}

/// What is on the machine of a record that this provisioner has written; `None` of any other.
#[must_use]
pub fn recorded_on_machine(record: &ProvisionerRecord) -> Option<in_use::Recorded> {
    recorded_use(record).map(|(_, recorded)| recorded)
}

/// Number of the key that the record's newest boot names, even if the record is unproved or the key was removed.
#[must_use]
pub fn recorded_key(record: &ProvisionerRecord) -> Option<u32> {
    let data: Data = (record.name == NAME).then(|| serde_json::from_value(record.data.clone()).ok())??;
    Some(data.boot?.key.unwrap_or(FIRST_KEY))
}
