//! Which hosts match a HardwareClassification, and why others do not: pure. [`host_class`] is the same for HostClasses, whose rules are in CEL.
//!
//! [`judge`] compares what a classification asks for with what inspection has found, and names each field that does not hold with what was wanted
//! and what was found. [`Class`] is a classification as it counts: its label, and whether it can be judged by at all. [`Board`] holds classes and
//! hosts of all namespaces with the verdict on each pair; it is told what has changed, judges only the pairs that this concerns, counts, and says
//! whose labels and whose status are to be looked at. [`status`] and [`unmatched`] are what a classification shows.
//!
//! What matches is as hardware-classification-controller has it (`classifier/*.go` at 0aca6e99): ranges include both ends and are open where an end
//! is absent; GB of disks are 10⁹ bytes, those of memory 1,024 MiB; network interfaces are counted by entry, so that one with two addresses counts
//! twice; versions are compared as text, each part padded to four characters, where both ends are given. What is otherwise here:
//!
//! - A classification that asks for nothing matches no host, as upstream's guide says (its program labels every host).
//! - A disk that two selectors find is counted once. An interface without a model has no maker, and stops nothing.
//! - Facts are those of HardwareData, and of the host's status where there is none. A host that has no facts any more matches nothing.
//! - Hosts in error are counted whatever has been found about their hardware, and lose the label of the error when they have recovered.

mod board;
mod class;
pub mod host_class;
mod judge;
mod report;

pub use board::{Board, Counts, Facts, HostError, Key};
pub use class::{Class, Fault, MAX_CLASSES};
pub use judge::{Found, Mismatch, Wanted, judge, matches};
pub use report::{Trouble, error_label, reason, status, unmatched};
