//! The agent's operations on a machine, and its communication with the server.
//!
//! Access to the machine goes through [`Machine`], a bundle of small capability traits with two implementations: [`linux::LinuxMachine`],
//! the real one, and [`fake::FakeMachine`], whose disks are files and whose hardware is a made-up tree. They differ in
//! primitives only; inventory ([`facts`]), commands ([`commands`]), listening for LLDP ([`neighbours`]), UEFI variables ([`efi`]) and the report loop ([`report`]) are
//! the same code on both. Booted from a medium that no host has, it only tells what the machine is ([`discovery`]). The network's wire formats ([`net`]) are encoded here, without external programs. Booted by
//! an Ironic, the same commands serve it ([`ironic`]).

pub mod commands;
pub mod discovery;
pub mod drive;
pub mod efi;
pub mod facts;
pub mod fake;
pub mod ipmi;
pub mod ironic;
pub mod linux;
pub mod machine;
pub mod neighbours;
pub mod net;
pub mod report;
mod text;
pub mod tree;

pub use machine::{Machine, MediumError, NetworkError};
pub use tree::Tree;
