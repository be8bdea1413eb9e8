//! The integration tests of `bmc`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod address;
mod capability;
mod channel;
mod lead;
