//! The integration tests of `agent`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod cable;
mod common;
mod conversation;
mod discovery;
mod disks;
mod erasing;
mod ironic;
mod lldp;
mod medium;
mod sources;
mod wiping;
