//! Words that several layers share, each said once: state machine, contract, plan, BMCs, agent and disks mean the same by them.
//!
//! What is serialised here stands in custom resources, in messages to agents and in requests to provisioners: names of values never change.

mod image;
mod power;
mod retry;

pub use image::{ChecksumType, DiskFormat};
pub use power::{PowerAction, PowerWish};
pub use retry::Retry;
