//! The integration tests of `redfish`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod bios;
mod capabilities;
mod connections;
mod data_media;
mod diagnostics;
mod economy;
mod events;
mod faults;
mod habits;
mod hardware;
mod https_media;
mod identity;
mod indicator;
mod interfaces;
mod kit;
mod lead;
mod live_iso;
mod logs;
mod network;
mod oem_media;
mod patience;
mod service_roots;
mod sessions;
mod trust;
mod vendor_faults;
mod vendors;
