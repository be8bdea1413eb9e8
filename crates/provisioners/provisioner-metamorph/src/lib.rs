//! The native provisioner: virtual media and our own agent. No DHCP, PXE, SQL or bus.
//!
//! **What it asks of a BMC** is [`bmc::Bmc`]'s capabilities; it does not know the protocol: its creator passes in the [`bmc::Connectors`].
//!
//! **How a host comes to an operating system.** The BMC is given the address of a medium that is composed while it is read
//! ([`media`]); the machine boots the agent from it, once; the agent asks for work ([`endpoint`], [`hub`]) and gets commands one at a
//! time; after the image is written it reboots through the firmware into the disk.
//!
//! **What is remembered where.** In this process: connections, the agents' last reports, which media are on offer. All of it can
//! be lost at any instant: agents report their whole state again within seconds, media are a pure function of recorded inputs, and the host's
//! record contains what was begun ([`journal`]). A step's intent is recorded before its effect; a step that was begun first checks whether its
//! effect has happened.
//!
//! **Fencing.** A command names operation, step, attempt and the kernel boot id of the agent it is for. The same attempt is only ever
//! given to the same boot, which runs it once; another boot id proves the older boot dead (one machine, one kernel), and only then
//! is there another attempt. The agent leaves the machine when the end of the operation has been recorded, not before.
//!
//! **Tokens.** A boot generation's token is on its medium, which a BMC fetches, so others may know it. The first report binds the generation to its
//! boot and to the key that the boot's agent has made; reports with another key are refused. The medium is withdrawn when the agent reports, and
//! the generation is retired when its work ends.
//!
//! **Agents.** Machines boot our own agent, or ironic-python-agent where the server has an image with that ([`ipa`]); the rest knows of one kind.
//!
//! **Keys.** Tokens and addresses are derived from one of several keys ([`keys`]); a boot's record names its key, and tokens of others are refused.

mod agent_images;
mod architecture;
mod boot;
mod bring_up;
mod commands;
mod data;
mod data_images;
mod deploy;
mod diagnose;
mod differences;
mod ear;
mod endpoint;
mod erase;
mod events;
mod failures;
mod firmware;
mod host;
mod hub;
mod identity;
mod images;
mod inspect;
mod ipa;
mod journal;
mod keys;
mod limits;
mod listen;
mod live;
mod live_iso;
mod live_medium;
mod locate;
mod logs;
mod manage;
mod masters;
mod media;
mod name;
mod named_steps;
mod networks;
mod newest;
mod places;
mod power;
mod provisioner_impl;
mod record;
mod redaction;
mod remembered;
mod said;
mod secure_boot;
mod settings;
mod silence;
mod slot;
mod test_medium;
mod unconfirmed;
mod used;
mod waiting;

pub use agent_images::AgentImages;
pub use data::{recorded_boot, recorded_key, recorded_on_machine};
pub use keys::{FIRST_KEY, Key, KeyRing};
pub use name::NAME;
pub use networks::{Bases, BmcRange, NetworkRule, RuleError};
pub use provisioner_impl::{NativeProvisioner, address_fault, capabilities};
pub use redaction::without_secrets;
pub use settings::{ImageAuthorities, MediaCertificates, PROVISIONING_LIMIT, Settings, Timing};
