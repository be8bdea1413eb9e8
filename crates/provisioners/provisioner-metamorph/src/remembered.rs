//! What the record says beside the host's work: how many writes have been ordered; of the BMC, the live ISO and the data image in its drives and the
//! subscriptions to its events.

use api::metamorph::{OperationPhase, OperationType};
use jiff::Timestamp;
use oci_registry::{Digest, DiskLayer};
use provisioner::{HistoryEntry, HostKey};
use provisioning_plan::steps::Step;
use serde::{Deserialize, Serialize};

/// Orders to write an image, or to put in a live ISO, which may be booted and write: to a machine that held nothing of its host before, counted before they are given. Where no count is kept, because an earlier
/// version has begun the record or because it was lost, anything may have been written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WriteOrders {
    /// uid of the host that they are counted for. One that is declared again or restored has another, and its record may be older than it.
    pub host: String,
    /// Number of the newest operation that is counted in: a version that does not count may have begun later ones.
    pub number: u64,
    /// Those after which nobody has said that nothing was changed, and no disk was wiped.
    pub open: u32,
    /// These are of live ISOs alone: no image has been written since to a disk, which there may not be.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
}

/// What an image in a registry was when the first attempt for it began: later ones write the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImage {
    /// `spec.image.url`.
    pub url: String,
    /// The wish of that attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// What the URL named: a manifest or an index.
    pub digest: Digest,
    /// What is written.
    pub layer: DiskLayer,
}

/// What becomes of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteNews {
    /// A write is about to be ordered.
    Ordered,
    /// A live ISO is about to go where the machine may boot it.
    Live,
    /// The agent that was ordered to write has changed nothing, and will not.
    Untouched,
    /// The disks were wiped.
    Wiped,
}

impl WriteOrders {
    /// By the count of this host up to this operation, none is open.
    pub fn none_open(counted: Option<&Self>, host: &HostKey, number: u64) -> bool {
        counted.is_some_and(|orders| orders.host == host.uid && orders.number == number && orders.open == 0)
    }

    /// Counts for a host that has never been registered, in a record that has no operation yet (`anew`). What was counted for an earlier host of its name,
    /// whose record may have been restored, does not count for this one.
    pub fn count_from_here(counted: &mut Option<Self>, host: &HostKey, anew: bool) {
        if counted.as_ref().is_none_or(|orders| orders.host != host.uid) {
            *counted = anew.then(|| Self { host: host.uid.clone(), ..Self::default() });
        }
    }
}

impl WriteNews {
    /// Counts it, where a count is kept or can begin.
    pub fn count(self, counted: &mut Option<WriteOrders>, host: &HostKey, number: u64) {
        match (self, counted) {
            (Self::Ordered | Self::Live, Some(orders)) => {
                orders.live = self == Self::Live && (orders.open == 0 || orders.live);
                orders.open = orders.open.saturating_add(1);
            }
            (Self::Untouched, Some(orders)) => orders.open = orders.open.saturating_sub(1),
            (Self::Wiped, orders) => {
                *orders = Some(WriteOrders { host: host.uid.clone(), number, ..WriteOrders::default() })
            }
            (_, None) => {}
        }
    }
}

/// What the machine runs: what was provisioned on it last, or found on it when its host was taken over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    /// Identity of the wish that it was provisioned by; `None` where that is not known, or is being taken off again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// Whose mark is on its disk, if one is: the host's id then. A host that is declared again or restored may have another.
    pub owner: String,
    /// Number of the newest operation of which it is known: a version that does not note this may have begun later ones.
    pub number: u64,
}

impl Running {
    /// What is known of it when an operation is recorded: `was` before, of which `owner` is the host's id, and `entry` as it is recorded now.
    pub fn after(was: Option<Self>, owner: &str, entry: &HistoryEntry) -> Option<Self> {
        let succeeded = entry.status.phase == OperationPhase::Succeeded;
        let now = |wish, owner: String| Some(Self { wish, owner, number: entry.number });
        match entry.operation {
            OperationType::Provision if succeeded => now(entry.wish.clone(), owner.to_owned()),
            OperationType::Service => was.and_then(|was| now(was.wish, was.owner)),
            // Until the disks are touched the system is there, and nobody's but its owner's.
            OperationType::Deprovision if !succeeded => {
                let begun = [Step::WipeDisks, Step::PowerOff].into_iter().any(|step| step.begun(&entry.status));
                was.filter(|_| !begun).and_then(|was| now(None, was.owner))
            }
            _ => None,
        }
    }
}

/// A medium in a drive, or on its way there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataMedium {
    /// As the DataImage names it.
    pub url: String,
    /// As the BMC is given it.
    pub address: String,
    /// Name of the drive, from [`bmc::DataDrive::choose`].
    pub drive: String,
    /// Since when the BMC may have been asked to put it in, while it has neither refused nor been seen to have it: it may come yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
}

/// A live ISO in the drive that the machine boots from, or on its way there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveMedium {
    /// As the host names it.
    pub url: String,
    /// As the BMC is given it.
    pub address: String,
    /// Name of the drive, from [`bmc::DataDrive::boot_drive`]; empty if the record was lost and the host's status alone tells of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub drive: String,
    /// The machine has been ordered to boot it, and is to at each start.
    pub boots: bool,
    /// The BMC may have been asked to put it in, and has neither refused nor been seen to have it: it may come yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// When it was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The BMC was not seen to keep the boot source for more than one start, which has been told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// A test medium in a drive, or on its way there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TestInsertion {
    /// Identity of the test.
    pub of: String,
    /// As the BMC is given it.
    pub address: String,
    /// Name of the drive, from [`bmc::DataDrive::boot_drive`].
    pub drive: String,
    /// When the BMC was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The BMC may have been asked to put it in, and has not answered that it is: it may come yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

/// A subscription that is there, or on its way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subscribed {
    /// Its id on the BMC; empty until the BMC has told it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Where the events go.
    pub destination: String,
    /// What goes along with them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// Ids of the subscriptions like it that were there before it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// How often the BMC was asked for it, without two days in between.
    #[serde(skip_serializing_if = "is_zero")]
    pub asked: u32,
    /// When it was asked last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
