//! The contract between the host controller and whatever provisions machines.
//!
//! A [`Provisioner`] makes one [`Host`] object per host and reconcile. What a host can be asked is split into small capability
//! traits ([`Manage`], [`Power`], [`Inspect`], [`Deploy`]); each call is idempotent and answers at once: done, still working (with when
//! to look again at the latest), or failed for a typed cause. Nothing waits inside a call for a machine to boot or an image to be
//! written: the provisioner wakes the host ([`Provisioner::wake_ups`]) when something happened.
//!
//! A provisioner has no Kubernetes client. What it must remember goes into the host's [`Record`]: each irreversible effect stands there before it
//! happens. What it shows of its work goes to the [`History`], by which nothing is decided.

mod contract;
mod failure;
mod history;
mod machine;
mod record;
mod record_error;
mod registry;

pub use contract::{
    BmcAccess, CleaningRequest, ConfigDrive, Deploy, Host, HostContext, HostKey, Inspect, InspectRequest, Manage,
    MayAct, Now, Outcome, Power, PowerRequest, ProvisionRequest, Provisioner, RegisterRequest, Registered, Verdict,
    WakeUps, Working,
};
/// What a provisioner can do beside the basics.
pub use host_lifecycle::Served as Capabilities;

pub use failure::{Cause, Failure, Retry};
pub use history::{History, HistoryEntry, Tell, operation_name};
pub use machine::{Machine, OtherMachine};
pub use record::{MAX_RECORD_BYTES, Purpose, Record, RecordContent, Recorded};
pub use record_error::RecordError;
pub use registry::{Registry, RegistryError};
