//! Scenarios of hosts, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod choice;
mod claims;
mod classes;
mod deletions;
mod diagnoses;
mod disasters;
mod discoveries;
mod erasing;
mod faults;
mod firmware;
mod held;
mod host;
mod host_classes;
mod in_use;
mod lease;
mod live_iso;
mod locating;
mod logs;
mod masters;
mod media;
mod native;
mod native_fast;
mod native_firmware;
mod progress;
mod reads;
mod records;
mod registries;
mod reports;
mod requests;
/// The Ironic in memory that `provisioner-ironic` is tested with.
#[path = "../../../../crates/provisioners/provisioner-ironic/tests/it/scripted.rs"]
#[allow(dead_code, reason = "some of it is for that crate's tests alone")]
mod scripted;
mod secrets;
mod semantics;
mod skew;
mod sources;
mod stepping;
mod stops;
mod strays;
mod subscriptions;
mod swapped;
mod takeover;
mod test_media;
mod untouched;
mod upstream;
