//! HostDiscovery: where machines may be that nobody has declared, and what becomes of those that are found.
//!
//! The controller asks the addresses for a Redfish service root, without a password, and makes a BareMetalHost without BMC details of each machine that is
//! nobody's: it is `unmanaged` until it is approved. `docs/discovery.md` has the rules.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;

/// Most machines that a status lists.
pub const MAX_MACHINES: usize = 1024;
/// Most addresses that are asked, ports counted each, in one scan.
pub const MAX_ADDRESSES: usize = 4096;
/// Most ranges, and most exclusions.
pub const MAX_RANGES: usize = 64;
/// Most allow rules, and most deny rules.
pub const MAX_RULES: usize = 8;
/// Longest rule, characters.
pub const MAX_RULE: usize = 1024;
/// Most reports of machines that a status lists.
pub const MAX_REPORTS: usize = 128;
/// Most of a status' machines, and of its reports, bytes as they are stored: with the spec and all else an object stays below the 1.5 MiB that etcd takes in a
/// request.
pub const MAX_MACHINE_BYTES: usize = 900 << 10;
/// See [`MAX_MACHINE_BYTES`].
pub const MAX_REPORT_BYTES: usize = 160 << 10;
/// Most claimants of a machine's BMC that are remembered: two contest it.
pub const MAX_CLAIMANTS: usize = 2;

/// Where to look, and what to make of it.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "metamorph.metal3.io",
    version = "v1alpha1",
    kind = "HostDiscovery",
    plural = "hostdiscoveries",
    shortname = "hostdisc",
    category = "metal3",
    namespaced,
    status = "HostDiscoveryStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Approval","type":"string","jsonPath":".spec.approval"}"#,
    printcolumn = r#"{"name":"Answered","type":"integer","jsonPath":".status.lastScan.answered"}"#,
    printcolumn = r#"{"name":"Pending","type":"integer","jsonPath":".status.pending"}"#,
    printcolumn = r#"{"name":"Scanned","type":"date","jsonPath":".status.lastScan.ended"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].message","priority":1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HostDiscoverySpec {
    /// Addresses of BMCs: `192.0.2.0/24`, `192.0.2.10-192.0.2.40`, `192.0.2.7` or the same of IPv6. Of all together at most 4096 addresses are asked.
    #[schemars(length(min = 1, max = 64), inner(length(min = 2, max = 96)))]
    pub ranges: Vec<String>,
    /// Addresses among them that are not asked, written in the same way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 2, max = 96)))]
    pub exclude: Vec<String>,
    /// TCP ports that are asked at each address: that of the scheme where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(range(min = 1, max = 65_535)))]
    pub ports: Vec<u16>,
    /// How BMCs are asked, and later called.
    #[serde(default)]
    pub scheme: DiscoveryScheme,
    /// Minutes from the beginning of one scan to that of the next.
    #[serde(default = "hour")]
    #[schemars(range(min = 5, max = 10_080))]
    pub interval_minutes: u32,
    /// No scan begins while this is true; approvals are served.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// Secret of this namespace with `username` and `password`, which approved hosts name. Nobody is sent it before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub credentials_name: String,
    /// Approved hosts do not verify their BMC's certificate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable_certificate_verification: bool,
    /// Rules in CEL, of which one must be true of a machine for it to become a host; any machine does where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 1024)))]
    pub allow: Vec<String>,
    /// Rules in CEL, of which none may be true of a machine. They go before `allow`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 1024)))]
    pub deny: Vec<String>,
    /// What the hosts are called.
    #[serde(default)]
    pub naming: DiscoveryNaming,
    /// Who approves hosts.
    #[serde(default)]
    pub approval: DiscoveryApproval,
    /// Most hosts that one scan makes.
    #[serde(default = "thirty_two")]
    #[schemars(range(min = 1, max = 256))]
    pub max_new_hosts: u32,
    /// Most hosts that wait for approval at once: beyond that, none is made.
    #[serde(default = "hundred_and_twenty_eight")]
    #[schemars(range(min = 1, max = 512))]
    pub max_pending_hosts: u32,
    /// A medium that any machine may boot to report itself; none without this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<DiscoveryMedium>,
}

/// A medium that any machine may boot to report itself. What it reports is anybody's word: its BMC is asked, if `ranges` has the address that it tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.revision >= oldSelf.revision", "message": "revision is counted up alone: media that were taken back would be valid again"},
]))]
pub struct DiscoveryMedium {
    /// Number of the medium. With another one the media of before are refused: count it up when one has fallen into wrong hands.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub revision: u32,
    /// What a machine does when its report has been taken.
    #[serde(default)]
    pub afterwards: DiscoveryAfterwards,
    /// How long a machine stays on at most, minutes; then it switches itself off.
    #[serde(default = "hour")]
    #[schemars(range(min = 1, max = 10_080))]
    pub stay_minutes: u32,
    /// Nothing is scanned: an address is asked when a machine reports that its BMC is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_reported: bool,
}

impl Default for DiscoveryMedium {
    fn default() -> Self {
        Self { revision: 1, afterwards: DiscoveryAfterwards::default(), stay_minutes: 60, only_reported: false }
    }
}

const fn one() -> u32 {
    1
}

/// What a machine does when its report has been taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiscoveryAfterwards {
    /// It switches itself off.
    #[default]
    PowerOff,
    /// It stays, and reports from time to time.
    Wait,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

const fn hour() -> u32 {
    60
}

const fn thirty_two() -> u32 {
    32
}

const fn hundred_and_twenty_eight() -> u32 {
    128
}

/// How BMCs are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiscoveryScheme {
    /// Over TLS.
    #[default]
    Https,
    /// In the clear: passwords of approved hosts, too.
    Http,
}

/// Who approves hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiscoveryApproval {
    /// Somebody, by the annotation `metamorph.metal3.io/approve: "true"` on the host.
    #[default]
    Manual,
    /// The controller, where an allow rule is true and nothing contradicts.
    Automatic,
}

/// What the hosts are called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveryNaming {
    /// Beginning of each name.
    #[serde(default = "bmc")]
    #[schemars(length(min = 1, max = 40), regex(pattern = r"^[a-z0-9]([-a-z0-9]*)$"))]
    pub prefix: String,
    /// What follows it.
    #[serde(default)]
    pub from: NamedFrom,
}

impl Default for DiscoveryNaming {
    fn default() -> Self {
        Self { prefix: bmc(), from: NamedFrom::default() }
    }
}

fn bmc() -> String {
    "bmc-".to_owned()
}

/// What a name is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamedFrom {
    /// Twelve digits of a digest of the service root's UUID: the same machine has the same name wherever it is.
    #[default]
    #[serde(rename = "UUID")]
    Uuid,
    /// The address: `192-0-2-7`.
    Address,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostDiscoveryStatus {
    /// Generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: whether it scans, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub conditions: Vec<Condition>,
    /// The last scan that came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scan: Option<DiscoveryScan>,
    /// Hosts that wait for approval.
    #[serde(default)]
    pub pending: u32,
    /// The machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub machines: Vec<DiscoveredMachine>,
    /// Where the medium is, while one is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub media: Vec<DiscoveryMediumAt>,
    /// The highest revision of the medium that has been offered; 0 where none was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offered_revision: u32,
    /// Media up to this revision were taken back, and are not valid again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revoked_revision: u32,
    /// What machines have reported that have booted it, the last of each that says the same of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub reports: Vec<ReportedMachine>,
}

/// A medium that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryMediumAt {
    /// Architecture of the machines that boot it: `x86_64`, `aarch64`.
    #[schemars(length(max = 32))]
    pub architecture: String,
    /// [`DiscoveryMedium::revision`].
    #[serde(default)]
    pub revision: u32,
    /// Its addresses, in the order in which they are to be tried. Who knows one can have machines reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 512)))]
    pub urls: Vec<String>,
}

/// What a machine has reported: anybody's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedMachine {
    /// By what it is told from others: its UUID, else its serial number, else a MAC address, in normal form.
    #[schemars(length(max = 128))]
    pub identity: String,
    /// Digest of what it tells of itself and its parts: who repeats another's identity differs by it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub digest: String,
    /// Its UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub uuid: Option<String>,
    /// Its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub serial_number: Option<String>,
    /// Its MAC addresses, the first eight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 32)))]
    pub mac_addresses: Vec<String>,
    /// Where it says that its BMC is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(max = 64)))]
    pub bmc_addresses: Vec<String>,
    /// What has become of it.
    #[serde(default)]
    pub outcome: ReportOutcome,
    /// The machine of `machines` that it says it is, by its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub address: Option<String>,
    /// The host of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// Why it is so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
    /// When it last reported; where it has said the same again, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<Time>,
}

/// What has become of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReportOutcome {
    /// It does not know where its BMC is.
    #[default]
    #[serde(rename = "NoBMC")]
    NoBmc,
    /// Its BMC is said to be where this HostDiscovery does not ask.
    OutOfRange,
    /// No Redfish service answers where its BMC is said to be.
    NoAnswer,
    /// Its BMC answers, and its machine has no host yet: so many wait for approval as may, or the host cannot be made. The machine reports again.
    NotYet,
    /// Its BMC's machine has a host that waits for approval, or has BMC details.
    Host,
    /// It is a machine that somebody has declared.
    Known,
    /// Its BMC's machine becomes no host: a rule says so, or its host was deleted.
    Denied,
    /// What it says contradicts what its BMC shows, or what another machine says.
    Contradiction,
}

/// A scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryScan {
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub began: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub ended: Option<Time>,
    /// Addresses that were asked.
    #[serde(default)]
    pub asked: u32,
    /// Those that answered with a Redfish service root.
    #[serde(default)]
    pub answered: u32,
    /// What was left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 512)))]
    pub left_out: Vec<String>,
}

/// A machine that was found, by what its BMC shows to anybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredMachine {
    /// `spec.bmc.address` under which it was found.
    #[schemars(length(max = 128))]
    pub address: String,
    /// What has become of it.
    #[serde(default)]
    pub phase: DiscoveryPhase,
    /// `UUID` of its service root; of an iDRAC, which has none, the service tag there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uuid: Option<String>,
    /// SHA-256 of its certificate's public key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub key_sha256: Option<String>,
    /// `Vendor` of its service root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub vendor: String,
    /// `Product` of its service root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub product: String,
    /// `RedfishVersion` of its service root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32))]
    pub redfish_version: String,
    /// The host of this namespace that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub host: Option<String>,
    /// The uid of the host that was made for it, or of one of another namespace that somebody has declared with its BMC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub host_uid: Option<String>,
    /// Why it is so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
    /// Machines that have reported that this is their BMC: the first, and one more where they contest it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub claimants: Vec<BmcClaimant>,
    /// When it last answered; where a report has it asked and it shows the same again, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<Time>,
}

/// A machine that has reported whose BMC it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BmcClaimant {
    /// [`ReportedMachine::digest`].
    #[schemars(length(max = 16))]
    pub digest: String,
    /// When it last said so, to the hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_seen: Option<Time>,
}

/// What has become of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DiscoveryPhase {
    /// It is nobody's: its host waits for approval, or is not made yet, as the message says.
    #[default]
    Found,
    /// Its host has BMC details.
    Approved,
    /// No host is made of it: a rule says so, or it does not show which machine it is.
    Denied,
    /// It is somebody's already.
    Known,
    /// It shows what another machine is known by: nothing is done with it.
    Contradiction,
    /// Somebody has deleted its host: none is made again before that is asked for.
    Dismissed,
}
