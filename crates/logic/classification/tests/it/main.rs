//! The integration tests of `classification`, one binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod host_classes;
mod kit;
mod properties;
mod rules;
mod upstream;
