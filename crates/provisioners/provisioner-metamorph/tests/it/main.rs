//! The integration tests of `provisioner-metamorph`, one binary: the provisioner among a BMC, a journal and agents that are made up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod architecture;
mod boots;
mod common;
mod conformance;
mod data_images;
mod deploys;
mod diagnose;
mod erases;
mod events;
mod fake;
mod fast;
mod firmware;
mod identity;
mod keys;
mod kit;
mod listens;
mod live_iso;
mod locate;
mod logs;
mod media;
mod memory;
mod power;
mod registries;
mod secure_boot;
mod silence;
mod sources;
mod steps;
mod test_medium;
mod turns;
mod untouched;
