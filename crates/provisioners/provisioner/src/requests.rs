//! What the calls of a host carry. Each contains all that its work needs: no call relies on an earlier call to another process.
//!
//! All of it serialises. A field that is not known is kept by [`crate::Kept`], where calls travel between programs.

use std::collections::BTreeMap;

use api::metal3::{BootFormat, Image, InspectionMode, Raid};
use api::metamorph::AgentStep;
use image_sources::Sources;
use inventory::{DiskSelector, EraseMethod, RootDeviceHints};
use serde::{Deserialize, Serialize};
use terms::{HealthLevel, PowerWish};

/// What is on a machine when it is registered or taken over, so that a provisioner whose own store was lost can recreate its entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployed {
    /// A system that the provisioner has put there, or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// By this method, if not by writing an image.
    #[serde(default, skip_serializing_if = "Method::is_disk")]
    pub method: Method,
    /// Somebody else looks after what is on the machine: it is watched and switched, no more.
    #[serde(default)]
    pub externally: bool,
    /// The wish that it was provisioned by ([`ProvisionRequest::wish`]), as far as the host tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wish: Option<String>,
}

/// What registration needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterRequest {
    /// Address or credentials differ from those that last worked: check them against the BMC even if a connection is open.
    pub credentials_changed: bool,
    /// The last attempt failed: begin anew.
    #[serde(default)]
    pub restart: bool,
    /// What is on the machine.
    #[serde(default)]
    pub deployed: Deployed,
    /// Of a host that has never been registered, what its spec asks to be provisioned with: the part of a provisioning's wish that is not its time. Where
    /// it is not given, nothing is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks_for: Option<String>,
    /// The host has never been registered, and something beside it says that it has had a life before: it has a consumer, or its hardware is known.
    #[serde(default)]
    pub has_past: bool,
    /// It has a consumer.
    #[serde(default)]
    pub is_claimed: bool,
    /// Since when its hardware is known, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_since: Option<jiff::Timestamp>,
    /// The host has an id, and a status that is older than itself: it was restored, and may be older than what was done to the machine since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// Owners whose data may be destroyed (annotation `metamorph.metal3.io/overwrite-owner`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwrite_owner: Option<String>,
}

/// What a status tells that no server has written since its host was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// When the last provisioning began that it tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<jiff::Timestamp>,
    /// It says that what was provisioned is to stay, and not that it is being removed.
    #[serde(default)]
    pub stays: bool,
}

/// A system to boot that was built for one host (a PreprovisioningImage that is ready).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentImage {
    /// Its form.
    pub kind: BootFormat,
    /// Where it is.
    pub url: String,
    /// Where the kernel is, for a ramdisk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_url: Option<String>,
    /// Parameters of the kernel to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_parameters: Option<String>,
}

/// What registration finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The provisioner's id of the machine for `status.provisioning.ID`; the one given in the context if there was one.
    pub id: String,
    /// Power state seen.
    pub powered_on: Option<bool>,
    /// By the record, what the request asks for is on the machine: its host has lost its status, and is to be taken over as it is.
    #[serde(default)]
    pub recognized: bool,
}

/// What a deprovisioning has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deprovisioned {
    /// Disks were wiped. This may be so although the last call did not ask for it: a wipe that has begun is completed, whatever the mode is turned to.
    pub wiped: bool,
    /// Nothing was done, because nothing of this host had begun to be written to the disks: they are as they were found.
    #[serde(default)]
    pub untouched: bool,
}

/// What taking over needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptRequest {
    /// What is on the machine.
    #[serde(default)]
    pub deployed: Deployed,
    /// The last attempt failed: begin anew.
    #[serde(default)]
    pub restart: bool,
}

/// How a machine is let go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// In the middle of work, too, and though the machine does not answer (annotation `detached` with `force`).
    #[serde(default)]
    pub force: bool,
}

/// What a change of power needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerRequest {
    /// The wish.
    pub power: PowerWish,
    /// The last attempt failed: begin anew, though what the provisioner itself works with still shows that failure.
    #[serde(default)]
    pub restart: bool,
}

impl From<PowerWish> for PowerRequest {
    fn from(power: PowerWish) -> Self {
        Self { power, restart: false }
    }
}

/// What inspection needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// How (`spec.inspectionMode`): `fast` by the BMC alone, otherwise by a system that is booted on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<InspectionMode>,
    /// What is known already is looked at anew (annotation `inspect.metal3.io`).
    #[serde(default)]
    pub refresh: bool,
    /// Somebody asks for the system that the work runs in to be booted anew (annotation `reboot.metal3.io` with `force`): see
    /// [`ProvisionRequest::force_reboot`].
    #[serde(default)]
    pub force_reboot: bool,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// The setting of a firmware: a number or a text (HostFirmwareSettings `spec.settings`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// A firmware to install (HostFirmwareComponents `spec.updates`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareUpdate {
    /// `bios`, `bmc` or `nic:<id>`.
    pub component: String,
    /// Where the file is.
    pub url: String,
}

/// What of the firmware is to be changed, and what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareTargets {
    /// Settings that are wished.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Setting>,
    /// Settings as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub actual_settings: BTreeMap<String, String>,
    /// Firmware that is to be installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<FirmwareUpdate>,
}

/// What preparing needs: the machine is empty, and may be restarted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// Volumes that are wished; `None` leaves those that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// Volumes that were made last. Without any list, nobody knows what is there: some were being made, or may have gone with what was on the disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual_raid: Option<Raid>,
    /// Which disk, or volume, the image will go to.
    pub root_device_hints: RootDeviceHints,
    /// Firmware.
    #[serde(default)]
    pub firmware: FirmwareTargets,
    /// Something is not as it is wished, or not known to be. Not that the wish is new: the same `wish` is the same work, and goes on.
    #[serde(default)]
    pub unprepared: bool,
    /// The last attempt failed: begin anew.
    #[serde(default)]
    pub restart: bool,
}

/// What service needs: changes of a machine in use, which may be restarted as its owner allows (HostUpdatePolicy).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// Firmware.
    #[serde(default)]
    pub firmware: FirmwareTargets,
    /// The targets differ from those that were accepted last.
    #[serde(default)]
    pub unprepared: bool,
    /// The last attempt failed: begin anew.
    #[serde(default)]
    pub restart: bool,
}

/// Documents of a config drive, as text; they may be secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDrive {
    /// `openstack/latest/meta_data.json`: a JSON object.
    pub meta_data: String,
    /// `openstack/latest/network_data.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_data: Option<String>,
    /// `openstack/latest/user_data`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
}

impl std::fmt::Debug for ConfigDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConfigDrive(secret)")
    }
}

/// How a system gets onto a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Its image is written to a disk.
    #[default]
    Disk,
    /// Its image is booted as a medium, and the disks are left.
    LiveIso,
    /// The provisioner's method of this name (`spec.customDeploy`), with the image if there is one.
    Custom(String),
}

impl Method {
    const fn is_disk(&self) -> bool {
        matches!(self, Self::Disk)
    }
}

/// What provisioning needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProvisionRequest {
    /// Identity of the wish: when the host began with it, and a digest of what was asked for. Work done for one wish does not count for another.
    /// `None` if the host does not record when: then the wish counts as that of the work under way.
    pub wish: Option<String>,
    /// Counts the attempts for this image, from 1; 0 where that is not told. Where the image's URL names what may change (a tag), each attempt after
    /// the first writes what the first one found.
    #[serde(default)]
    pub attempt: u32,
    /// How.
    #[serde(default, skip_serializing_if = "Method::is_disk")]
    pub method: Method,
    /// Image; without a URL where the method needs none.
    pub image: Image,
    /// Credentials for the image's registry, a `.dockerconfigjson`; they are secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<SecretText>,
    /// From which mirrors, and by way of which proxy, the image is read.
    #[serde(default)]
    pub sources: Sources,
    /// Which disk.
    pub root_device_hints: RootDeviceHints,
    /// What the operating system is told when it boots for the first time, `None` for nothing.
    pub config_drive: Option<ConfigDrive>,
    /// Owner whose mark may be overwritten.
    pub overwrite_owner: Option<String>,
    /// Boot the system that the work runs in again (annotation `reboot.metal3.io` with `force`), because it hangs, say: what it was doing begins
    /// again. Once that is under way, the answer has [`crate::Working::accepted`], and the request is not repeated. Work that has left that
    /// system goes on unchanged.
    #[serde(default)]
    pub force_reboot: bool,
}

/// A text that is secret: it is in no log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretText(pub String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretText(secret)")
    }
}

/// What cleaning needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleaningRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// What is to be removed; nothing if no provisioning has come to its end. A provisioner that knows then that none has begun to write to the disks
    /// leaves them as they are.
    #[serde(default)]
    pub deployed: Deployed,
    /// Remove partition tables and signatures; otherwise the disks are left.
    pub clean: bool,
    /// There is nothing to remove: an erasing was withdrawn. Its work is ended, and neither disks nor power are touched
    /// ([`Deprovisioned::untouched`]).
    #[serde(default)]
    pub empty: bool,
    /// Owner whose mark may be removed.
    pub overwrite_owner: Option<String>,
    /// Hints that the image was written by: they may name a disk that is left otherwise.
    pub root_device_hints: RootDeviceHints,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// What erasing needs: nobody uses the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EraseRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// How thoroughly.
    pub method: EraseMethod,
    /// Which disks; without any, all of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskSelector>,
    /// Owner whose mark may be removed.
    pub overwrite_owner: Option<String>,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// What running steps of hardware managers needs: nobody uses the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsRequest {
    /// Identity of the wish; see [`ProvisionRequest::wish`].
    pub wish: Option<String>,
    /// Which steps, in order; without any, they are listed, and none is run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<AgentStep>,
    /// Hints that name a disk which other machines may use, too: beside any other such disk no step is run.
    #[serde(default)]
    pub root_device_hints: RootDeviceHints,
    /// The last attempt failed: begin anew.
    pub restart: bool,
}

/// Where a BMC is to send its events (BMCEventSubscription).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// What tells it from others (the uid of the object): asked for twice, it is made once.
    pub identity: String,
    /// URL that takes them.
    pub destination: String,
    /// Sent along with each.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// HTTP headers to send; they may be secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, SecretText>,
}

/// A subscription that is to end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsubscription {
    /// Its id on the BMC, if that is known: what was made by an answer that was lost is found by the identity.
    pub id: String,
    /// [`Subscription::identity`].
    #[serde(default)]
    pub identity: String,
    /// [`Subscription::destination`]: one to another destination is somebody else's, whatever its id.
    #[serde(default)]
    pub destination: String,
}

/// One setting of a firmware: what it is and what it may be (FirmwareSchema `spec.schema`). What the BMC does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingFact {
    /// As it is.
    pub value: String,
    /// `Enumeration`, `String`, `Integer`, `Boolean` or `Password`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it may be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// The smallest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    /// The largest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper_bound: Option<i64>,
    /// The shortest text, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u32>,
    /// The longest text, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u32>,
    /// It cannot be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// It is of this one machine, such as a serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
}

/// One firmware that is installed (HostFirmwareComponents `status.components`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledFirmware {
    /// `bios`, `bmc` or `nic:<id>`.
    pub component: String,
    /// Version that was there when the machine was first looked at, as far as the provisioner knows; what a host has shown before stays.
    pub initial_version: String,
    /// Version that is there.
    pub version: String,
    /// Version that was installed last, if one has been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flashed_version: Option<String>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<jiff::Timestamp>,
}

/// The medium beside the running system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attached {
    /// None is in.
    #[default]
    Nothing,
    /// That of this URL is in.
    Url(String),
    /// One is in; of which URL cannot be told.
    Something,
}

/// What the firmware is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareFacts {
    /// Settings by name; `None` if the machine does not show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<BTreeMap<String, SettingFact>>,
    /// Components; `None` if the machine does not show them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<Vec<InstalledFirmware>>,
}

/// What a diagnosis may cost, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvidenceBudget {
    /// Most calls to the BMC.
    pub calls: u32,
    /// Most bytes of its answers.
    pub bytes: u64,
    /// Longest time, milliseconds.
    pub milliseconds: u64,
}

impl Default for EvidenceBudget {
    fn default() -> Self {
        Self { calls: diagnosis::MOST_CALLS, bytes: 16 << 20, milliseconds: 90_000 }
    }
}

/// What the light by which a person finds the server is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocateRequest {
    /// Lit, or blinking where the machine has that; else as when nobody looks for it.
    pub lit: bool,
}

/// A test of what a BMC can read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestMediumRequest {
    /// Which test it is: asked again by the same identity, it is gone on with, and not made twice.
    pub identity: String,
    /// Somebody has consented to it on a machine that runs a system.
    pub in_use: bool,
}

/// How a machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthState {
    /// What the BMC says of the whole; `None` if it does not.
    pub level: Option<HealthLevel>,
    /// The power can no longer be read, or set (`Manageable` with the reason `PowerFailure`).
    pub power_failure: bool,
}

/// One thing that was found out about a machine that does not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How bad it is.
    pub level: HealthLevel,
    /// Part of the machine, such as `PSU 2`; empty for the whole.
    pub component: String,
    /// What was found.
    pub message: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}
