//! A provisioner whose machines exist in memory: to try the API with, to test the controller, and to say what the contract means.
//!
//! It takes as long as baremetal-operator's fixture (registration 5 s, inspection 2 s, adoption 3 s, provisioning and deprovisioning 10 s, power at
//! once), and knows the names of upstream's demo hosts. Unlike upstream's, it has one machine per address, one id per host, and all optional
//! traits; what must survive its process is recorded in the host's record before anything is done, and it continues from there.
//!
//! The [`Machines`] outlive the provisioner: a test that drops it and makes another over the same machines has killed a server. They count what is
//! done to them, and can be made slow, failing, silent and so on ([`Trouble`]). The time comes from the host's context.

mod demo;
mod hardware;
mod host;
mod journal;
mod machines;
mod names;
mod optional;
mod provisioner_impl;
mod shared;
mod work;

pub use machines::{Effect, Machines, Trouble, Watch};
pub use names::{NAME, recorded_on_machine};
pub use provisioner_impl::{FixtureProvisioner, capabilities};
