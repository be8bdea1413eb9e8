//! The integration tests of `provisioner-fixture`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod conformance;
mod defects;
mod demo;
