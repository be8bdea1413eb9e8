//! HostOperation: one piece of work on one host, step by step.
//!
//! Most are written by the host's controller, as history for a limited time, by which nothing is decided. One that somebody else creates is a request: an
//! inspection, a reboot, a rebuild, an erasure, steps of a hardware manager, a look at logs, a diagnosis or a light to find the server by that is done once, now, and whose `status` tells
//! how it ended.

use inventory::{DiskSelector, EraseMethod, ErasedDisk};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Time;
use crate::metamorph::{AgentStep, StepsReport};

/// What is asked for.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metamorph.metal3.io",
    version = "v1alpha1",
    kind = "HostOperation",
    plural = "hostoperations",
    shortname = "hostop",
    category = "metal3",
    namespaced,
    status = "HostOperationStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Host","type":"string","jsonPath":".spec.host.name"}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Step","type":"string","jsonPath":".status.currentStep"}"#,
    printcolumn = r#"{"name":"Done","type":"string","jsonPath":".status.progress","description":"Steps done, or percent of the step under way"}"#,
    printcolumn = r#"{"name":"BMC Calls","type":"integer","jsonPath":".status.bmcCalls","priority":1}"#,
    printcolumn = r#"{"name":"Cause","type":"string","jsonPath":".status.error.cause"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "a HostOperation is of one piece of work and does not change: create another one"},
    {"rule": "!has(self.reboot) || self.type == 'Reboot'", "message": "reboot is of the type Reboot"},
    {"rule": "!has(self.erase) || self.type == 'Erase'", "message": "erase is of the type Erase"},
    {"rule": "!has(self.steps) || self.type == 'Steps'", "message": "steps are of the type Steps"},
    {"rule": "!has(self.diagnose) || self.type == 'Diagnose'", "message": "diagnose is of the type Diagnose"},
    {"rule": "self.type != 'Erase' || has(self.erase) || has(self.wish)", "message": "the type Erase needs erase.method: how thoroughly is said by whoever asks"},
    {"rule": "!has(self.locate) || self.type == 'Locate'", "message": "locate is of the type Locate"},
    {"rule": "self.type != 'Locate' || has(self.locate)", "message": "the type Locate needs locate.lit: whether the light is to be lit is said by whoever asks"},
]))]
pub struct HostOperationSpec {
    /// Kind of work.
    #[serde(rename = "type")]
    pub operation: OperationType,
    /// The host, in the same namespace.
    pub host: HostReference,
    /// For which of the host's wishes it is made: when the host began with it, and a digest of what was asked for. What has been done for
    /// one wish is not done for another.
    ///
    /// The controller's alone: a request has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
    /// How to reboot; only of a request to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<RebootOptions>,
    /// What to erase, and how thoroughly; only of a request to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erase: Option<EraseOptions>,
    /// Steps of the agent's hardware managers, which are run in this order; only of the type Steps. Without any, they are listed, and none is run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub steps: Vec<AgentStep>,
    /// Whether the light that tells the server from others at its rack is to be lit; of the type Locate, which needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locate: Option<LocateOptions>,
    /// What is tried out for a diagnosis; only of a request for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnose: Option<DiagnoseOptions>,
}

/// How a server is to be found at its rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocateOptions {
    /// Whether the light is to be lit, or to blink where the BMC has that; else it is to be as when nobody looks for the server. It stays so until
    /// somebody switches it, here, at the BMC or at the server.
    // A truth value: `On` and `Off` without quotes are none but that to readers of YAML 1.1, kubectl among them.
    pub lit: bool,
}

/// What is tried out for a diagnosis, beside what is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.allowInUse) || !self.allowInUse || self.testMedium", "message": "allowInUse is consent to a test medium, which is not asked for (testMedium)"},
]))]
pub struct DiagnoseOptions {
    /// A tiny medium of this server, from which nothing can be booted, is put into the machine's empty virtual drive, so that it is seen whether the BMC reads it,
    /// and is taken out again. Boot source and power stay as they are.
    #[serde(default)]
    pub test_medium: bool,
    /// Consent to do so on a machine that runs a system, for this request alone. A drive that is in use stays as it is all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_in_use: bool,
}

/// How the test of what a BMC can read has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestMediumReport {
    /// How it ended.
    pub result: TestMediumResult,
    /// Address from which the medium was asked for first, by the server's own sight: the BMC's, or that of a proxy or NAT before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub from: Option<String>,
    /// Requests for it.
    #[serde(default)]
    pub requests: i64,
    /// Bytes that were given out.
    #[serde(default)]
    pub bytes: i64,
}

/// Ends of the test of what a BMC can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TestMediumResult {
    /// The BMC has asked this server for the medium: it reaches it.
    Read,
    /// It has not, within the time for it, which is no proof: some BMCs read a medium only when their machine does.
    NotRead,
    /// The BMC has refused to put it in.
    Refused,
    /// Something came between.
    #[default]
    Interrupted,
}

/// What is to be erased.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EraseOptions {
    /// How thoroughly.
    pub method: EraseMethod,
    /// Which disks; without this field, all of the machine. An empty list, or null, is refused: it would erase what a template has left out. If one is not
    /// there, or fits several, nothing is erased.
    #[serde(default, deserialize_with = "named_disks", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub disks: Option<Vec<DiskSelector>>,
}

/// A field that is there without any disk is not as one that is not there.
fn named_disks<'de, D: Deserializer<'de>>(given: D) -> Result<Option<Vec<DiskSelector>>, D::Error> {
    Ok(Some(Option::deserialize(given)?.unwrap_or_default()))
}

/// How erasing a machine's disks has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Erasure {
    /// What has become of each disk.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<ErasedDisk>,
    /// Why it was given up, if it was: then nothing is known of disks that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// How a machine is to be rebooted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebootOptions {
    /// By the operating system, or without it.
    #[serde(default)]
    pub mode: RebootMode,
}

/// By whom a machine is switched off (baremetal-operator `docs/api.md`, "Reboot annotation").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RebootMode {
    /// The operating system is asked to end first.
    #[default]
    Soft,
    /// The power is cut.
    Hard,
}

/// A BareMetalHost in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostReference {
    /// Name.
    pub name: String,
    /// uid, so that a host of the same name made later is not meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum OperationType {
    /// Look at the hardware.
    Inspect,
    /// Make RAID volumes, change and install firmware.
    Prepare,
    /// Write an image and boot it.
    Provision,
    /// Remove what was provisioned.
    Deprovision,
    /// Change and install firmware of a machine in use.
    Service,
    /// Switch a machine in use off and on again. Only requests have this type.
    Reboot,
    /// Remove what is provisioned, and provision anew what the host asks for. Only requests have this type.
    Rebuild,
    /// Erase disks of a machine that nobody uses.
    Erase,
    /// List the steps of the agent's hardware managers on a machine that nobody uses, and run those that are named.
    Steps,
    /// Read the logs of the machine's BMC and of the agent, and do nothing to the machine. Only requests have this type.
    CollectLogs,
    /// Find out why the host does not do what it should, and do nothing to the machine: a HostDiagnosis has what was found. Only requests have this type.
    Diagnose,
    /// Switch the light on or off by which a person finds the server at its rack, and do nothing else to the machine. Only requests have this type.
    Locate,
}

impl OperationType {
    /// Lower-case name, used in object names.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inspect => "inspect",
            Self::Prepare => "prepare",
            Self::Provision => "provision",
            Self::Deprovision => "deprovision",
            Self::Service => "service",
            Self::Reboot => "reboot",
            Self::Rebuild => "rebuild",
            Self::Erase => "erase",
            Self::Steps => "steps",
            Self::CollectLogs => "collectlogs",
            Self::Diagnose => "diagnose",
            Self::Locate => "locate",
        }
    }
}

/// Where the work is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostOperationStatus {
    /// Where the whole is.
    #[serde(default)]
    pub phase: OperationPhase,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub end_time: Option<Time>,
    /// Step under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_step: Option<String>,
    /// `2/4`, or `2/4 (37%)` while a step counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// What is happening, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Calls made to the BMC for this work.
    #[serde(default)]
    pub bmc_calls: u32,
    /// The plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<OperationStep>,
    /// The agent's boot that this work uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<AgentBoot>,
    /// What the URL of an image in a registry named when the first attempt for it began, which is what each attempt writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<OperationImage>,
    /// Address (never the token) of the session open on the BMC, so that a restarted server can end it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_session: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// Of a request: uid of the host that it was found to mean. A host of the same name made later is another one.
    #[serde(default, rename = "hostUID", skip_serializing_if = "Option::is_none")]
    pub host_uid: Option<String>,
    /// Of a request: when the host's last inspection and deprovisioning had begun when it was taken. Work that has begun at another time is the request's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WorkBefore>,
    /// Of an erasure: what has become of each disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<Erasure>,
    /// Of steps of hardware managers: what the agent lists, and what has become of those that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_report: Option<StepsReport>,
    /// Of a collection of logs: what was found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub logs: Vec<CollectedLog>,
    /// Of a diagnosis with a test medium: whether the BMC has read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_medium: Option<TestMediumReport>,
}

/// One log, as it was when it was collected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectedLog {
    /// Whose it is: `bmc/` and the name of one of the BMC's logs, or `agent`.
    #[schemars(length(max = 128))]
    pub source: String,
    /// Its newest lines, the oldest of them first. What looks like a secret is not in them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// How many older lines were left out, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u32>,
    /// Why there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Work of a host that had begun before a request was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkBefore {
    /// Start of the last inspection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub inspect: Option<Time>,
    /// Start of the last deprovisioning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub deprovision: Option<Time>,
}

/// An image in a registry, by its digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationImage {
    /// `spec.image.url` of the host.
    pub url: String,
    /// Digest of the manifest or index that it named.
    pub digest: String,
    /// Digest of the layer that is written.
    pub layer: String,
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationPhase {
    /// Not begun.
    #[default]
    Pending,
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Gave up; the host's own retry makes a new operation.
    Failed,
    /// No longer wanted.
    Cancelled,
}

impl OperationPhase {
    /// Whether nothing will change any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationStep {
    /// Name, unique in the plan.
    pub name: String,
    /// Where it is.
    #[serde(default)]
    pub phase: StepPhase,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub end_time: Option<Time>,
    /// Attempt, from 1. Recorded before the step's effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Boot id of the agent that the attempt was given to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<u32>,
    /// Bytes moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Bytes to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<i64>,
    /// Calls made to the BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_calls: Option<u32>,
    /// What happened, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
}

/// Where a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// Not begun.
    #[default]
    Pending,
    /// Intent recorded, effect may have happened.
    Running,
    /// Done.
    Done,
    /// Failed.
    Failed,
}

/// A boot of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentBoot {
    /// Counts the media made for this host; media address and agent token are derived from it.
    pub generation: u64,
    /// Kernel boot id, once the agent has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// SHA-256, lower-case hex, of all that the medium's bytes depend on; its address is derived from it, too. A server that cannot make
    /// this very medium any more makes another one, at another address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// SHA-256 of the key that this boot's agent has made, in hexadecimal: no other may report for the generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_digest: Option<String>,
    /// Number of the server's key that address and token are derived from; none is the first key's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// The boot's work has ended: nothing is given to its agent any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

/// A typed failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationError {
    /// Class, CamelCase: `ChecksumMismatch`, `BmcUnreachable`.
    pub cause: String,
    /// What was attempted, what was found.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}
