//! The integration tests of `classification`, one binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod kit;
mod properties;
mod rules;
mod upstream;
