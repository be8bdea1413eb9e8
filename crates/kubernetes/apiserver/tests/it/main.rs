//! The integration tests of `apiserver`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod apply;
mod callers;
mod clients;
mod common;
mod conversion;
mod crash;
mod definitions;
mod disk;
mod flood;
mod hooks;
mod identity;
mod in_process;
mod kinds;
mod kubectl;
mod lifecycle;
mod lists;
mod objects;
mod operators;
mod policies;
mod protobuf;
mod rules;
mod uploads;
mod webhooks;
