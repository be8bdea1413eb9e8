//! What is asked, and what becomes of what answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod flood;
mod judged;
mod kit;
mod planned;
mod reported;
