//! A provisioner whose machines exist in memory: to try the API with, to test the controller, and to say what the contract means.
//!
//! It takes its time as baremetal-operator's fixture does (registration 5 s, inspection 2 s, adoption 3 s, provisioning and deprovisioning 10 s, power
//! at once), and knows the names of upstream's demo hosts. Unlike upstream's, it has one machine an address, an id of each host's own, and all optional
//! traits; what must survive its process stands in the host's record before anything is done, and it goes on from there.
//!
//! The [`Machines`] are not the provisioner's: a test that drops it and makes another over the same machines has killed a server. They count what is
//! done to them, and can be made slow, failing, silent and so on ([`Trouble`]). The time is the host's context's.

mod demo;
mod hardware;
mod host;
mod journal;
mod machines;
mod optional;
mod provisioner_impl;
mod work;

pub use machines::{Effect, Machines, Trouble, Watch};
pub use provisioner_impl::{FixtureProvisioner, NAME, capabilities};
