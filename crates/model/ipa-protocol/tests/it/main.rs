//! What was written by the other side is read, and what is written here is read again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod examples;
mod round_trip;
