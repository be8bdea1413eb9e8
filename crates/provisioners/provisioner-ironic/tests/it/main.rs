//! Tests of the Ironic provisioner in process, on a scripted Ironic whose answers are those that a real one has given; and, where one is installed
//! (`make test-ironic`), on a real Ironic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod conformance;
mod guards;
mod host;
mod life;
mod network;
mod nodes;
mod real;
mod scripted;
