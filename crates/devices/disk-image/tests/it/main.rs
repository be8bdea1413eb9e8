//! The integration tests of `disk-image`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod block;
mod common;
mod edit;
mod http;
mod qcow2;
mod write;
