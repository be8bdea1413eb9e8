//! What the rules say of evidence.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod across;
mod kit;
mod matrix;
mod properties;
mod test_medium;
mod vendors;
