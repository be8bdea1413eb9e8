//! The contract between the host controller and whatever provisions machines.
//!
//! A [`Provisioner`] makes one [`Host`] object per host and reconcile. What a host can be asked is split into small capability
//! traits ([`Manage`], [`Power`], [`Inspect`], [`Deploy`]); each call is idempotent and answers at once: done, still working (with when
//! to look again at the latest), or failed for a typed cause. Nothing waits inside a call for a machine to boot or an image to be
//! written: the provisioner wakes the host ([`Provisioner::wake_ups`]) when something happened.
//!
//! A provisioner has no Kubernetes client. What it must remember goes through the [`Journal`] that each call is handed: the plan
//! is one write, each irreversible effect is recorded before it happens, progress is coalesced.

mod contract;
mod failure;
mod journal;
mod machine;
mod registry;

pub use contract::{
    BmcAccess, CleaningRequest, Deploy, Host, HostContext, HostKey, Inspect, InspectRequest, Manage, MayAct, Outcome,
    Power, PowerRequest, ProvisionRequest, Provisioner, RegisterRequest, Registered, Verdict, WakeUps, Working,
};
/// What a provisioner can do beside the basics.
pub use host_lifecycle::Served as Capabilities;

pub use failure::{Cause, Failure, Retry};
pub use journal::{Journal, JournalError, Newest, Operation, StepProgress};
pub use machine::{Machine, OtherMachine};
pub use registry::{Registry, RegistryError};
