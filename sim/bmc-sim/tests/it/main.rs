//! The integration tests of `bmc-sim`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod ailments;
mod fake;
mod faults;
mod kit;
mod program;
mod qemu;
mod redfish;
