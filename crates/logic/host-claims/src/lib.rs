//! Which BareMetalHost a HostClaim gets, what is written to it, and how it is given back: pure.
//!
//! A host belongs to the claim that its `spec.consumerRef` names, and to nobody else; but the claim has it only by a [title], as anybody can have a
//! host of his own name any claim. The way there has three writes, each of which holds only
//! on the version it was decided on:
//!
//! ```text
//! search ──▶ status.bareMetalHost of the claim: the intent ──▶ spec.consumerRef of the host: the fact ──▶ conditions of the claim: the record ──▶ work
//! ```
//!
//! The intent comes first, so that a write to a host with an unknown result is repeated on that host before any other is tried. If the host is
//! taken, the intent is dropped and the next host is chosen. Work is written to a host only when claim and host name each other and the claim's
//! status records that work was given: after a crash in between, the claim gets no second host, whatever becomes of the first. A host that names
//! a claim which names another is [stray](strays): it has no work, and is released.
//!
//! Association, policies and selectors are those of baremetal-operator (`pkg/hostclaim/hostclaim_manager.go`); the choice among several hosts is
//! the first by namespace and name, where upstream's is by chance. The rest is what the design asks for (metal3-docs
//! `design/hostclaim-multitenancy.md`).

mod association;
mod choice;
mod policy;
mod release;
mod report;
mod selector;
mod synchronize;

pub use association::{
    Association, Title, association, holds, is_idle, is_of_another_life, is_recorded, strays, title,
};
pub use choice::{Choice, Search, choose, obstacle};
pub use policy::Expressions;
pub use release::{Release, release, unused};
pub use report::{Fact, Report, status};
pub use selector::Selector;
pub use synchronize::{Data, Role, change, consumer, merge_patch, reboots, wants_work};
