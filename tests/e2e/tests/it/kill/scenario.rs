//! The scenarios: what somebody wishes, and where it must end whatever the moment at which the server is killed.

use std::ops::{Range, RangeInclusive};

use api::metal3::{ProvisioningState as State, annotation};
use serde_json::{Value, json};

/// What is killed, and what goes on in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// `metamorph operator`, which is started again.
    Operator,
    /// The leader of two `metamorph operator`; the other one takes over.
    Leader,
    /// `metamorph up`, which is started again on its data folder.
    Up,
}

/// One thing that somebody does, or waits for.
pub enum Do {
    /// Creates the host (and its BMC's Secret), perhaps with an image, and with further fields of its spec.
    Declare(Option<&'static str>, fn() -> Value),
    /// Changes the host by a merge patch.
    Patch(fn() -> Value),
    /// Wishes this image.
    Image(&'static str),
    /// Wishes this image with a checksum that is not its own.
    WrongChecksum(&'static str),
    /// Wishes no image.
    NoImage,
    /// Sets an annotation.
    Annotate(&'static str, &'static str),
    /// Removes an annotation.
    Retract(&'static str),
    /// Consents by an annotation to what the host's message names: what stands behind this text.
    Consent(&'static str, &'static str),
    /// Deletes the host.
    Delete,
    /// The download of this image stands still in its middle, until it is resumed.
    Stall(&'static str),
    /// Waits until one does.
    Stalled(&'static str),
    /// Lets it go on: its connection is cut.
    Resume(&'static str),
    /// Has the BMC misbehave.
    Fault(fn() -> Value),
    /// Has it behave again.
    Heal,
    /// The machine's disk is another owner's.
    ForeignDisk,
    /// Waits until the host says that something is wrong, in a message with this text.
    Error(&'static str),
    /// From here on the server may be killed.
    Arm,
    /// Waits until the host has come to rest, and looks whether all is as it must be.
    Rest(Rest),
}

/// Where a host comes to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In this state, without an error.
    In(State),
    /// Detached, in this state.
    Detached(State),
    /// The object is gone.
    Gone,
}

/// What is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// This image, and its mark.
    Holds(&'static str),
    /// Nothing that looks like a system.
    Wiped,
    /// Nobody asks.
    Whatever,
}

/// What must be true when the host has come to rest. Numbers are of what happened since the rest before.
pub struct Rest {
    pub end: End,
    /// What the machine runs: `disk`, `medium`, `off`.
    pub runs: &'static str,
    pub disk: Disk,
    /// How often agents began to write an image.
    pub writes: RangeInclusive<usize>,
    /// How often agents began to wipe.
    pub wipes: RangeInclusive<usize>,
    /// How often a system that ran from the disk was ended.
    pub ended: usize,
    /// New operations and their ends, in order.
    pub operations: &'static [&'static str],
    /// Operations that may be among them, or not: it depends on when the server is killed.
    pub perhaps: &'static [&'static str],
    /// Those of them that may come again as a whole: it depends on when somebody helps.
    pub again: Range<usize>,
    /// Serial number in the MachineRecord, where it matters.
    pub serial: Option<&'static str>,
}

/// Nothing has happened.
const REST: Rest = Rest {
    end: End::In(State::Available),
    runs: "medium",
    disk: Disk::Whatever,
    writes: 0..=0,
    wipes: 0..=0,
    ended: 0,
    operations: &[],
    perhaps: &[],
    again: 0..0,
    serial: None,
};

const INSPECTED: Rest = Rest { operations: &["inspect Succeeded"], ..REST };
const PROVISIONED: Rest = Rest {
    end: End::In(State::Provisioned),
    runs: "disk",
    disk: Disk::Holds("a"),
    writes: 1..=1,
    operations: &["provision Succeeded"],
    ..REST
};
const AT_ONCE: Rest = Rest { operations: &["inspect Succeeded", "provision Succeeded"], ..PROVISIONED };
const EMPTIED: Rest =
    Rest { disk: Disk::Wiped, wipes: 1..=1, ended: 1, operations: &["deprovision Succeeded"], ..REST };
/// A host at rest that stays as it is.
const STILL: Rest = Rest { writes: 0..=0, operations: &[], ..PROVISIONED };
const GONE: Rest = Rest { end: End::Gone, runs: "off", ..REST };

/// A story and its name.
pub struct Scenario {
    pub name: &'static str,
    pub killed: Killed,
    pub script: &'static [Do],
    /// Texts of which an error may hold one; any other is none that belongs there.
    pub errors: &'static [&'static str],
    /// Downloads of images, over all: another number means that something was written twice, or not at all.
    pub downloads: &'static [(&'static str, usize)],
}

fn plain() -> Value {
    json!({})
}

const PLAIN: &[Do] = &[
    Do::Arm,
    Do::Declare(Some("a"), plain),
    Do::Rest(AT_ONCE),
    Do::NoImage,
    Do::Rest(EMPTIED),
    Do::Delete,
    Do::Rest(GONE),
];

/// Inspected, its agent resident: what comes next is killed.
macro_rules! inspected {
    ($($then:expr),* $(,)?) => { &[Do::Declare(None, plain), Do::Rest(INSPECTED), Do::Arm, $($then),*] };
}

/// Provisioned with the image `a`: what comes next is killed.
macro_rules! provisioned {
    ($($then:expr),* $(,)?) => { &[Do::Declare(Some("a"), plain), Do::Rest(AT_ONCE), Do::Arm, $($then),*] };
}

pub const LIFE: Scenario =
    Scenario { name: "life", killed: Killed::Operator, script: PLAIN, errors: &[], downloads: &[("a", 1)] };

pub const LEADER: Scenario = Scenario { name: "leader", killed: Killed::Leader, ..LIFE };

pub const UP: Scenario = Scenario { name: "up", killed: Killed::Up, ..LIFE };

pub const WRONG_IMAGE: Scenario = Scenario {
    name: "wrong-image",
    script: inspected![
        Do::WrongChecksum("a"),
        Do::Error("checksum"),
        Do::Image("a"),
        Do::Rest(Rest {
            writes: 2..=2,
            wipes: 1..=1,
            operations: &["provision Failed", "deprovision Succeeded", "provision Succeeded"],
            ..PROVISIONED
        }),
    ],
    errors: &["checksum"],
    downloads: &[("a", 2)],
    ..LIFE
};

pub const REFUSED_MEDIUM: Scenario = Scenario {
    name: "refused-medium",
    script: &[
        Do::Arm,
        // A definite no: with 5xx a BMC may be at something else, and is asked again for half a minute.
        Do::Fault(
            || json!({ "method": "POST", "path": "*InsertMedia", "action": { "type": "status", "status": 400 } }),
        ),
        Do::Declare(Some("a"), plain),
        Do::Error("insert"),
        Do::Heal,
        Do::Rest(Rest {
            operations: &["inspect Failed", "inspect Succeeded", "provision Succeeded"],
            again: 0..1,
            ..PROVISIONED
        }),
    ],
    errors: &["insert"],
    ..LIFE
};

pub const CANCELLED: Scenario = Scenario {
    name: "cancelled",
    script: inspected![
        Do::Stall("a"),
        Do::Image("a"),
        Do::Stalled("a"),
        Do::NoImage,
        Do::Rest(Rest {
            writes: 1..=1,
            ended: 0,
            operations: &["provision Cancelled", "deprovision Succeeded"],
            ..EMPTIED
        }),
    ],
    ..LIFE
};

pub const REPLACED: Scenario = Scenario {
    name: "replaced",
    script: inspected![
        Do::Stall("a"),
        Do::Image("a"),
        Do::Stalled("a"),
        Do::Image("b"),
        Do::Rest(Rest {
            disk: Disk::Holds("b"),
            writes: 2..=2,
            wipes: 1..=1,
            operations: &["provision Cancelled", "deprovision Succeeded", "provision Succeeded"],
            ..PROVISIONED
        }),
    ],
    downloads: &[("a", 1), ("b", 1)],
    ..LIFE
};

/// The disk of a host in use has become another owner's: its wipe is refused, and is what the consent is for.
pub const CONSENT: Scenario = Scenario {
    name: "consent",
    script: &[
        Do::Declare(Some("a"), plain),
        Do::Rest(AT_ONCE),
        Do::ForeignDisk,
        Do::Arm,
        Do::NoImage,
        Do::Error("wiping the disks was refused"),
        Do::Consent(annotation::OVERWRITE_OWNER, "names this owner: "),
        Do::Rest(Rest {
            wipes: 2..=5,
            operations: &["deprovision Failed", "deprovision Succeeded"],
            again: 0..1,
            ..EMPTIED
        }),
    ],
    errors: &["another owner"],
    ..LIFE
};

/// After a refused write nothing is to be removed; only another process, which has not begun it, cannot know that.
pub const CONSENT_TO_WRITING: Scenario = Scenario {
    name: "consent-to-writing",
    script: &[
        Do::ForeignDisk,
        Do::Declare(None, || json!({ "automatedCleaningMode": "disabled" })),
        Do::Rest(INSPECTED),
        Do::Arm,
        Do::Image("a"),
        Do::Error("overwrite-owner"),
        Do::Consent(annotation::OVERWRITE_OWNER, "names this owner: "),
        Do::Rest(Rest {
            writes: 2..=5,
            operations: &["provision Failed", "provision Succeeded"],
            perhaps: &["deprovision Succeeded"],
            again: 0..1,
            ..PROVISIONED
        }),
    ],
    errors: &["another owner"],
    ..LIFE
};

pub const ACCEPTED_MACHINE: Scenario = Scenario {
    name: "accepted-machine",
    script: inspected![
        Do::Fault(|| {
            let fields = json!({ "UUID": "39343550-3330-4d32-3244-324a30304c34", "SerialNumber": "2M2D2J00L4" });
            json!({ "method": "GET", "path": "*/Systems/node-0", "action": { "type": "edit", "fields": fields } })
        }),
        Do::Patch(|| json!({ "spec": { "online": false } })),
        Do::Error("accept-machine"),
        Do::Consent(annotation::ACCEPT_MACHINE, "accept-machine to "),
        Do::Rest(Rest { runs: "off", operations: &["inspect Succeeded"], serial: Some("2M2D2J00L4"), ..REST }),
    ],
    errors: &["another machine"],
    downloads: &[],
    ..LIFE
};

pub const POWER: Scenario = Scenario {
    name: "power",
    script: provisioned![
        Do::Patch(|| json!({ "spec": { "online": false } })),
        Do::Rest(Rest { runs: "off", ended: 1, ..STILL }),
        Do::Patch(|| json!({ "spec": { "online": true } })),
        Do::Rest(STILL),
        Do::Annotate(annotation::REBOOT, ""),
        Do::Rest(Rest { ended: 1, ..STILL }),
        Do::Annotate(annotation::REBOOT, r#"{"mode":"hard"}"#),
        Do::Rest(Rest { ended: 1, ..STILL }),
    ],
    ..LIFE
};

pub const DETACHED: Scenario = Scenario {
    name: "detached",
    script: provisioned![
        Do::Annotate(annotation::DETACHED, ""),
        Do::Rest(Rest { end: End::Detached(State::Provisioned), ..STILL }),
        Do::Patch(|| json!({ "spec": { "online": false } })),
        Do::Rest(Rest { end: End::Detached(State::Provisioned), ..STILL }),
        Do::Patch(|| json!({ "spec": { "online": true } })),
        Do::Retract(annotation::DETACHED),
        Do::Rest(STILL),
    ],
    ..LIFE
};

pub const DETACHED_AT_WORK: Scenario = Scenario {
    name: "detached-at-work",
    script: inspected![
        Do::Stall("a"),
        Do::Image("a"),
        Do::Stalled("a"),
        Do::Annotate(annotation::DETACHED, r#"{"force":true}"#),
        Do::Rest(Rest {
            end: End::Detached(State::Provisioning),
            writes: 1..=1,
            operations: &["provision Cancelled"],
            ..REST
        }),
        Do::Retract(annotation::DETACHED),
        Do::Resume("a"),
        Do::Rest(PROVISIONED),
    ],
    // The first agent, which nobody listens to, may go on for a while.
    downloads: &[],
    ..LIFE
};

pub const DELETED: Scenario = Scenario {
    name: "deleted",
    script: provisioned![Do::Delete, Do::Rest(Rest { disk: Disk::Wiped, wipes: 1..=1, ended: 1, ..GONE })],
    ..LIFE
};

pub const DELETED_AT_WORK: Scenario = Scenario {
    name: "deleted-at-work",
    script: inspected![
        Do::Stall("a"),
        Do::Image("a"),
        Do::Stalled("a"),
        Do::Delete,
        Do::Rest(Rest { disk: Disk::Wiped, writes: 1..=1, wipes: 1..=1, ..GONE }),
    ],
    ..LIFE
};
