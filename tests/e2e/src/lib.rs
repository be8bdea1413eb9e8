//! The test kit: a world of real programs on loopback. The simulator, the server and the agents are processes of their own; a test
//! speaks to them as a person would, with kubectl or a Kubernetes client, and turns the simulator's faults on and off.
//!
//! Waiting is done on watches, with a bound; nothing sleeps.

mod addresses;
mod audit;
mod call_home;
mod disks;
mod effects;
mod embedded;
mod files;
mod hosts;
mod images;
mod ironic;
mod local_bmc;
mod one_shot;
mod process;
mod proxy;
mod shard;
mod sim;
mod world;

pub use addresses::{free_addresses, own_addresses};
pub use audit::Written;
pub use call_home::CallHome;
pub use disks::{GPT, UsedDisk, bytes_at, partitions, tool};
pub use effects::{Cut, Effects, Side};
pub use embedded::EmbeddedApi;
pub use files::{DiskImage, agent_image, agent_image_aarch64, agent_image_ipa, agent_program, demo_os, program};
pub use images::{Behaviour, ImageServer};
pub use ironic::{Ironic, Setup};
pub use local_bmc::LocalBmc;
pub use one_shot::{Ended, OneShot};
pub use process::Running;
pub use proxy::{Certificate, Door, Proxies, seen_in_api};
pub use shard::Shard;
pub use sim::Sim;
pub use world::{Options, World, machine};
