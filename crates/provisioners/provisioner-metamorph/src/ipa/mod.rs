//! ironic-python-agent as a machine's agent, in the place of our own.
//!
//! **The seam.** To the rest of the provisioner there is one kind of agent: it reports to the [`Hub`](crate::hub::Hub) and gets an order. For a machine
//! that has booted ironic-python-agent, a [`dialogue`] in this process is that agent: it is woken by the machine's heartbeats, reports in its name, and
//! carries an order out by the machine's command API. So the plan, the records, intents before effects, attempts and the proof of the machine's
//! identity are the same code; nothing of them knows which agent there is.
//!
//! **Who it is.** The token on the medium names host and boot generation, as with our own agent ([`config`]). What our agent proves by a key that it
//! makes, this one proves by the certificate that it makes at each start: the first heartbeat binds the generation to it, its digest is recorded as
//! boot id and key, and each call to the machine accepts that certificate alone ([`client`]). The inventory is read over that connection, so that
//! nobody else can have told it.
//!
//! **Once.** The agent keeps all commands that it was given, and their results. What has become of an order is read from that list ([`orders`], pure),
//! by this process and by the next: a command is posted only when the list does not have it, and a step carries the order's id, which its result
//! repeats.
//!
//! **What it cannot.** It writes and reads no marks of owners, tells neither the SMBIOS UUID nor Secure Boot, and cannot be stopped in a command.
//! What guards machines then stands in `docs/agent-ipa.md`.

mod client;
pub mod config;
mod dialogue;
mod endpoint;
mod facts;
mod logs;
mod orders;

pub use dialogue::Ipa;
pub use endpoint::router;
