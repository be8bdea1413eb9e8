//! What the native provisioner does next, decided from what it knows. Pure: no IO, no clock; ages and times are given.
//!
//! The provisioner gathers facts, asks one of these functions, and does what the answer names; where a fact is dear (a call to the BMC, a medium
//! composed), the answer may be the question for it.
//!
//! - [`steps`]: the plans of operations, which step is next by what is recorded, and the way into the written disk.
//! - [`boot`]: whether the agent that is there is used, one is waited for, or the machine is booted.
//! - [`secure_boot`]: whether it is switched, waited for, or proved.
//! - [`live_iso`]: the way from whatever runs on a machine to its boot from a live ISO.
//! - [`firmware_settings`]: whether settings of the firmware are handed over, waited for, or in force.
//! - [`silence`]: why a booted agent has not reported, and whether the boot is asked for once more.
//! - [`record`]: the transitions that an operation's record may take.
//! - [`in_use`]: whether a machine is in use by what its record says, where the host has no status of its own.
//! - [`power`]: what is wished, what is seen, and the order that is outstanding.

pub mod boot;
pub mod firmware_settings;
pub mod in_use;
pub mod live_iso;
pub mod power;
pub mod record;
pub mod secure_boot;
pub mod silence;
pub mod steps;
