//! What a provisioner is tested with.
//!
//! For tests of one provisioner: a record, a history and a machine record in memory, as durable as the test, on tokio's clock, which tests pause.
//! Killing a server is making another provisioner over the same memory.
//!
//! For every provisioner: the scenarios that each must pass ([`scenarios()`]), as data. The provisioner's author supplies a [`Kind`] (how its
//! machines are made, made slow, failing or silent, and what is done to them), and [`run()`] carries the scenarios out: each call, undisturbed,
//! repeated, killed before and after each write and effect, beside a second process, cancelled, and so on by [`Class`]. It returns the
//! [`Violation`]s of the [`Law`]s. Calls go through the contract's envelope and JSON on their way.
//!
//! Runs, laws and what may happen to a call are the same for every kind of resource. What they have to know of one is [`Tested`], which hosts are
//! (`host.rs`); what hosts are asked stands in [`scenarios()`], and another kind makes its scenarios of [`Story`]s.

mod clock;
mod condition;
mod history;
mod host;
mod laws;
mod machine;
mod process;
mod record;
mod run;
mod scenario;
mod scenarios;
mod stories;
mod subject;
mod tested;
mod trail;
mod verdict;

pub use clock::paused_clock;
pub use condition::{Condition, FOREIGN_OWNER};
pub use history::MemoryHistory;
pub use host::HostWorld;
pub use machine::MemoryMachine;
pub use record::{MemoryRecord, Write};
pub use run::{capabilities_of, run};
pub use scenario::{Class, Edit, Expected, Interruption, Scenario, Step};
pub use scenarios::scenarios;
pub use stories::Story;
pub use subject::{Kind, Subject};
pub use tested::Tested;
pub use trail::{Effect, Entry, Point, Trail, What};
pub use verdict::{Found, Law, Report, Violation};
