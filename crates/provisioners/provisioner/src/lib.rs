//! The contract between the host controller and the provisioners of machines.
//!
//! A [`Provisioner`] makes one [`Host`] object per host and reconcile. What a host can be asked is split into small traits: every host has
//! [`Manage`], [`Power`], [`Inspect`] and [`Deploy`], and those of [`Prepare`], [`Service`], [`Erase`], [`Steps`], [`LiveMedia`], [`CustomDeploy`],
//! [`DataImages`], [`Events`], [`Firmware`], [`Health`], [`Diagnose`], [`Logs`], [`Locate`] and [`TestMedia`] that its [`Capabilities`] name. Each call is idempotent and answers at once: done, still
//! working (with when to look again at the latest), waiting for something else, or failed for a typed cause. No call waits for a machine to boot or
//! an image to be written: the provisioner wakes the host ([`Provisioner::subscribe`]) when something happened.
//!
//! A provisioner has no Kubernetes client. What it must remember goes into the host's [`Record`]: each irreversible effect is recorded there before
//! it happens. What it shows of its work goes to the [`History`], on which no decision depends.
//!
//! All that goes through it is data: a [`Call`] with its requests, its [`Answer`], wake-ups, failures. [`ask`] leads from a call to the trait, and
//! [`Envelope`] carries calls between programs of different versions: a provisioner in another process, in another language, is one more
//! implementation.
//!
//! Hosts are one kind of resource. What is the same for all kinds is generic over them: `resource.rs` says what that is.

mod attempt;
mod call;
mod contract;
mod envelope;
mod failure;
mod history;
mod host;
mod host_resource;
pub mod in_use;
mod machine;
mod master;
mod record;
mod record_error;
mod registry;
mod requests;
mod resource;
mod table;
mod verdict;
mod waker;

pub use attempt::Attempt;
pub use call::{Answer, Call, ask};
pub use contract::{BmcAccess, CONTRACT_VERSION, HostContext, HostFacts, HostKey, Provisioner};
pub use envelope::{Envelope, EnvelopeError, Head, Kept, Reply, Unread};
/// What a provisioner can do with a host beside the basics.
pub use host_lifecycle::Served as Capabilities;

/// What a diagnosis is made from.
pub use diagnosis::{Evidence, TestEnd, TestMedium};
pub use failure::{Cause, Failure};
pub use history::{History, HistoryEntry, Tell, operation_name};
pub use host::{
    CustomDeploy, DataImages, Deploy, Diagnose, Erase, Events, Firmware, Health, Host, Inspect, LiveMedia, Locate,
    Logs, Manage, Power, Prepare, Service, Steps, TestMedia,
};
pub use host_resource::HostResource;
pub use machine::{Machine, OtherMachine};
pub use master::{OtherMaster, Sought};
pub use record::{MAX_COUNT, MAX_RECORD_BYTES, Purpose, Record, RecordContent, Recorded};
pub use record_error::RecordError;
pub use registry::{Registry, RegistryError};
pub use requests::{
    AdoptRequest, AgentImage, Attached, CleaningRequest, ConfigDrive, Deployed, Deprovisioned, EraseRequest,
    EvidenceBudget, Finding, FirmwareFacts, FirmwareTargets, FirmwareUpdate, HealthState, InspectRequest,
    InstalledFirmware, LocateRequest, Method, PowerRequest, PrepareRequest, ProvisionRequest, RegisterRequest,
    Registered, ReleaseRequest, Restored, SecretText, ServiceRequest, Setting, SettingFact, StepsRequest, Subscription,
    TestMediumRequest, Unsubscription,
};
pub use resource::{
    Asked, Context, Document, Given, MayAct, Named, Now, ObjectKey, Provides, Resource, WakeUp, WakeUps,
};
pub use table::{Column, capability_table};
/// Words of the contract that others share.
pub use terms::{HealthLevel, PowerWish, Retry};
pub use verdict::{Outcome, Verdict, Waiting, Working};
pub use waker::Waker;
