//! Controllers, one folder a kind: fetch → validate → decide → act → status.
//!
//! [`host`] is the controller of BareMetalHosts, `claim` that of HostClaims, `subscription` that of
//! BMCEventSubscriptions, `classification` has those of HardwareClassifications and of HostClasses, `diagnosis` finds out why hosts are in error, `discovery` is that of HostDiscoveries, `request` is that of HostOperations that ask for work. The pure crate `host-lifecycle` decides what a host needs next, and the
//! contract in `provisioner` carries what is done to machines; this crate fetches, writes, wakes and waits. It knows no device.

pub mod admission_review;
mod calls;
mod claim;
mod classification;
mod definitions;
mod diagnosis;
mod discovery;
mod error_cause;
mod events;
mod foreseen;
pub mod host;
mod kube_errors;
pub mod leader;
mod metrics;
mod news;
mod request;
mod shutdown;
mod subscription;
mod unserved;

pub use admission_review::HostAdmission;
pub use claim::ClaimController;
pub use classification::{ClassificationController, HostClassController};
pub use clock::{Clock, SystemClock};
pub use diagnosis::{Detect, DiagnosisController};
pub use discovery::{DiscoveryController, MediumOffice, MediumWish, NotTaken, Reception, Scout};
pub use error_cause::without_cause;
pub use foreseen::{Foreseen, ForeseenAll};
pub use host::readable::Readable;
pub use host::{HostController, HostSettings, ImageDefaults, Observer, RecordReader, Rest, SealKeys};
pub use leader::{Candidate, Leader, Leadership};
pub use request::RequestController;
pub use shutdown::Shutdown;
pub use subscription::SubscriptionController;
pub use unserved::{KINDS as UNSERVED, OF_SWITCHES};
