//! Scenarios over real programs, one binary. CONTRIBUTING says which tier runs which.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and say what they did"
)]

mod bad_input;
mod book;
mod contract;
mod diagnosis;
mod discovery;
mod door;
mod identity;
mod ironic;
mod keys;
mod kill;
mod life;
mod media;
mod network;
mod operator;
mod package;
mod provision;
mod push;
mod qemu;
mod redfish;
mod registry;
mod rights;
mod samples;
mod takeover;
mod topology;
mod variants;
mod wishes;
