//! Controllers, one folder a kind: fetch → validate → decide → act → status.
//!
//! [`host`] is the controller of BareMetalHosts. What a host needs next is decided by the pure crate `host-lifecycle`; what is done
//! to machines goes through the contract in `provisioner`; this crate fetches, writes, wakes and waits. It knows no device.

pub mod admission;
mod definitions;
mod events;
pub mod host;
pub mod leader;
mod metrics;
mod observer;
mod unserved;

pub use admission::HostAdmission;
pub use clock::{Clock, SystemClock};
pub use host::{HostController, HostSettings};
pub use leader::{Candidate, Leader, Leadership};
pub use observer::{Observer, Rest};
pub use unserved::KINDS as UNSERVED;
