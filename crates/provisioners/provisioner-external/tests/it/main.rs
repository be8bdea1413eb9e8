//! The integration tests of `provisioner-external`, one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking and may say what they did"
)]

mod conformance;
mod excuses;
mod fixture;
mod hostile;
mod peers;
mod scripted;
mod supervised;
mod unread;
mod wake_ups;
