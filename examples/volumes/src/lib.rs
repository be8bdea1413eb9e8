//! Storage volumes as a kind of resource beside hosts: a worked example of [docs/other-resources.md](../../../docs/other-resources.md).
//!
//! ```text
//!   StorageVolume ──▶ controller ──▶ decide (pure: what next?) ──▶ Registry ──▶ External<Volume> ──▶ a worker, in any language
//!   (kind.rs)         (controller.rs)  (decide.rs)                                  │ asks back: record, still wanted, may act
//!        ▲                                                                          ▼
//!        └────────────── status, and in it the worker's record, by compare-and-swap (record.rs)
//! ```
//!
//! What is written here is what is a volume's: its object, its calls ([`volume`]), what to ask next, and where the record is kept. Registry, envelope,
//! protocol, supervision and the kit's scenarios and laws are those of hosts.
//!
//! What must never be, and what keeps it so:
//!
//! 1. **No volume is erased that is not the one meant.** A worker records the id of a volume before it makes it, and lays it down with the object's uid beside the
//!    data; before it grows or removes one it holds what is there against both. Another's is not touched: the deletion waits, and says for what.
//! 2. **Nothing is done twice, and nothing that is not wanted any more.** Intents stand in the record before their effects; an intent is refused when the
//!    object, read anew, has changed since the call was decided on.
//! 3. **A volume that was made is never made again.** If it is gone, that is said: an empty one in its place would look like the data.
//! 4. **An object stays with its provisioner, and until its volume is gone.** The choice is written down, and the finalizer set, before anything is asked.
//!
//! The record is kept in the status. That loses it with the status, in a restore for instance: workers recognize a volume by the uid beside its data then. Hosts have
//! an object of their own for it (MachineRecord), because a host outlives its object, and a volume does not. One controller runs at a time: electing a leader
//! is no part of the example.

pub mod controller;
pub mod decide;
pub mod kind;
pub mod record;
pub mod volume;

pub use controller::run;
pub use kind::{Phase, StorageVolume, StorageVolumeSpec, StorageVolumeStatus};
pub use volume::{Removal, Size, Volume, VolumeAnswer, VolumeCall, VolumeCapabilities, VolumeFacts, VolumeState};
