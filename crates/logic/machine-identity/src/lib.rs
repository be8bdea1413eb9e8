//! Which machine is it? What counts as evidence, and when two observations are of one machine. Pure.
//!
//! A host's record (MachineRecord) holds what its machine has shown, by source: the BMC, the agent. Before each
//! effect the machine shows itself again, and [`compare`] says whether it is the one recorded. What a source tells is compared with
//! what the same source told before; across sources only what is the same in both by definition counts, and only in favour
//! ([`across`]).
//!
//! **The rule.** UUID or serial equal and neither different: a *match*. One different and none equal: a *mismatch*. Otherwise the
//! permanent MACs decide: one equal is a match (with drift, if something differs), none equal a mismatch, none visible *unknown*.
//!
//! **Never evidence**: placeholders ([`normal`]), locally administered MACs, chassis and baseboard serials, asset tags, models; and
//! values that two machines with different MACs both show ([`Common`]).

mod common;
pub mod normal;
mod rule;

pub use common::Common;
pub use rule::{
    Finding, Survivors, across, comparable, compare, fingerprint, fingerprint_of_bmc, holds, is_pinned, merged,
    names_more, pins_more, survivors, tells,
};
