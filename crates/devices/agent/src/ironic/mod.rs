//! The agent as Ironic knows one: it speaks ironic-python-agent's protocol (crate `ipa-protocol`) instead of ours.
//!
//! A medium without our configuration whose kernel parameters name an Ironic ([`Parameters`]) makes the agent one of Ironic's. It sends its
//! inventory if that is asked for, looks for its node, opens its API, and heartbeats until Ironic has it leave the machine ([`run`]).
//! Ironic calls the API: HTTPS with a certificate of this boot, which the heartbeat carries, and with the token, which both know.
//!
//! **What runs is the agent's own**: writing, wiping and erasing are `commands`, with their rules. A step of Ironic's is translated to
//! one of our actions ([`steps`]), or refused with a sentence: partition images, formats and hints that our writer does not know, steps that
//! are not ours (RAID, burn-in), settings that would have disks kept or treated otherwise. Nothing is passed over in silence that says which
//! data are lost.
//!
//! **Whose disks.** Ironic has no marks. What is written under it carries the mark of an owner `ironic:<uuid>`, so that nobody else takes the
//! machine for empty; such marks do not stop Ironic, whichever node wrote them, for its database says whose machine it is. Another mark, which
//! the native provisioner wrote, does, until the node's `extra` names it in `metamorph-overwrite-owner`.
//!
//! **Time.** The agent has no clock that it trusts: the certificate is dated by Ironic's own answers, so that a wrong clock breaks nothing.

mod api;
mod certificate;
mod commands;
mod hints;
mod image;
mod inventory;
mod life;
mod logs;
mod name;
mod server;
mod steps;

pub use api::{Api, ApiError, HttpApi};
pub use certificate::{Certificate, CertificateError};
pub use commands::{Answer, Commands};
pub use ipa_protocol::Parameters;
pub use life::{Known, beat, introduce, run};
pub use name::{MANAGER, VERSION};
pub use server::serve;
pub use steps::{Context, Settings};
