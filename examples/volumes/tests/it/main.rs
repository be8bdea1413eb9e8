//! The example, tested: a worker of volumes in memory passes the kit, the controller does what it promises on the embedded Kubernetes API, and the
//! worker in Python passes and does the same (`make test-provisioners`, which has it built).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod conformance;
mod controller;
mod memory;
mod python;
mod world;
