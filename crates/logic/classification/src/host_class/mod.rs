//! Which hosts are of a HostClass, whose labels they get, and why others are not: pure.
//!
//! A class's rules are expressions in CEL, compiled and costed when the class is taken ([`Class::of`], and [`review`] before it is stored). [`Board`] holds
//! classes and hosts with the verdict on each pair, as the board of HardwareClassifications does, but judges in parts, and holds which labels would change.
//! What is written to a host is decided by [`plan`]: a label that somebody else has set is neither overwritten nor removed, and of two classes that
//! contradict each other the elder one has the label.
//!
//! A rule has three outcomes. What is not known of a host is absent from the variables, and a rule that needs it has no result: then the host is not of the
//! class, is counted as unknown, and the status says what was missing. A rule that is false decides over one without a result.
//!
//! - Labels that classes give, and this program's own, are not among `host.labels`: a class whose rule is about them would follow from itself, for ever.
//! - A class that switches the diagnosis of its hosts cannot ask what was diagnosed, for the same reason.
//! - A class that has a fault (stored past the webhook, or its namespace has too many) judges nobody, changes no label, and stops no other.

mod board;
mod class;
mod labels;
mod report;
mod review;
mod vars;

pub use board::{Board, Preview};
pub use class::{COST_LIMIT, Class, Fault, MAX_CLASSES, Verdict};
pub use labels::{Conflict, Labels, Ledger, Plan, Stand, Wish, plan, refused};
pub use review::{Review, review};
pub use vars::detection;
