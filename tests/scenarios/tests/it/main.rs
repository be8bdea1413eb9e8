//! Scenarios of hosts, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod choice;
mod claims;
mod firmware;
mod held;
mod host;
mod lease;
mod live_iso;
mod media;
mod native;
mod native_fast;
mod native_firmware;
mod reads;
mod registries;
mod requests;
mod secrets;
mod skew;
mod stops;
mod strays;
mod subscriptions;
mod swapped;
mod untouched;
mod upstream;
