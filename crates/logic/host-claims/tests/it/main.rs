//! The integration tests of `host-claims`, one binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod kit;
mod properties;
mod rules;
