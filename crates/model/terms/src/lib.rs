//! Terms that several layers share, each defined once: state machine, contract, plan, BMCs, agent and disks all use them.
//!
//! Their serialised forms appear in custom resources, in messages to agents and in requests to provisioners: names of values never change.

mod architecture;
mod health;
mod image;
mod power;
mod retry;
mod untrusted;

pub use architecture::{Architecture, same_architecture};
pub use health::HealthLevel;
pub use image::{ChecksumType, Compression, DiskFormat};
pub use power::{PowerAction, PowerWish};
pub use retry::Retry;
pub use untrusted::{clean, is_printable, json_values_at_most};
