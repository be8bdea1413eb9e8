//! The integration tests of `provisioning-plan`, one binary: every combination of facts, and what holds for all of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod boot;
mod firmware_settings;
mod in_use;
mod live_iso;
mod power;
mod record;
mod secure_boot;
mod silence;
mod steps;
