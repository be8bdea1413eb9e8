//! Virtual BMCs.
//!
//! A simulator holds machines, each behind its own BMC that speaks Redfish: a recorded tree of resources, with
//! sessions, power, boot override, virtual media, tasks and Secure Boot as behaviour on top of it. The machine behind a BMC is a
//! QEMU machine, or a fake one: the real agent program over a made-up Linux tree. The simulator itself fetches virtual media,
//! range by range, when the machine reads. Faults are set at run time over a control API.
//!
//! The simulator never uses the types of the client that it serves: they would hide the client's mistakes.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use bmc_sim::{Config, MachineConfig, MachineKind, Simulator};
//! let machines = vec![MachineConfig::new("node-0", MachineKind::Fake)];
//! let config = Config { machines, agent: Some(bmc_sim::agent::find(None)?), ..Config::default() };
//! let simulator = Simulator::start(config).await?;
//! println!("{}", simulator.ready());
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod ailments;
pub mod bmc;
pub mod config;
pub mod control;
pub mod faults;
pub mod http;
pub mod journal;
pub mod machine;
pub mod media;
pub mod nbd;
pub mod redfish;
pub mod scene;
pub mod settings;
pub mod simulator;
pub mod switch_port;
pub mod tls;
pub mod traffic;
pub mod wire;

pub use ailments::{Ailment, Ailments};
pub use config::{Architecture, Config, DiskBus, DiskConfig, DiskFormat, MachineConfig, MachineKind, NicConfig};
pub use settings::Settings;
pub use simulator::{Simulator, StartError};
