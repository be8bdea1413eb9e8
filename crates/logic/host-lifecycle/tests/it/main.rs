//! The integration tests of `host-lifecycle`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod admission;
mod asked;
mod attaches;
mod attempts;
mod beside;
mod budgets;
mod details;
mod early;
mod erasing;
mod firmware;
mod golden;
mod held;
mod kit;
mod locating;
mod media;
mod prepares;
mod properties;
mod requests;
mod rest;
mod restored;
mod rules;
mod standing;
mod states;
mod stepping;
mod test_media;
mod unreported;
mod upstream;
mod validation;
mod volumes;
