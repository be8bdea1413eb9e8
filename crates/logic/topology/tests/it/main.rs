//! The view of a rack as it should be, of racks in which something is wrong, and of what nobody would write.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod kit;
mod properties;
mod rack;
mod wrong;
