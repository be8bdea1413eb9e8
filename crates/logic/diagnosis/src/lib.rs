//! Why a host is in error: from what was read about it ([`Evidence`]) to causes ([`Verdict`]).
//!
//! Pure: nothing is read here, no clock is asked, and the same evidence gives the same answer, whatever the order of its lists.
//!
//! ```text
//! Evidence ──▶ bounded ──▶ rules (a file a group) ──▶ hits ──▶ merged by code and part ──▶ ranked causes
//! ```
//!
//! A rule sees readings and says a code ([`Code`], one table: meaning, who fixes it, advice) and how sure it is. More evidence makes it surer, never less
//! sure; what is healthy elsewhere counts in the order alone. What does not explain the kind of failure (a supply, while the machine is on and its agent is
//! silent), and what a log says of the time before the host was last seen to work, is told in the background and is no cause. Of an entry whose time, or the
//! error of whose clock, is not known it is not said that it is new.
//!
//! Beside that, causes of many hosts are put together by what these have in common ([`Overview`]).

mod across;
mod codes;
mod evidence;
mod hit;
mod rules;
mod verdict;

pub use across::{Bond, Common, MAX_GROUPS, Overview, Shared, Site, Told};
pub use codes::{Code, Fixer, Group, table};
pub use evidence::*;
pub use hit::{Certainty, Component, Severity};
pub use verdict::{Cause, MAX_BYTES, MAX_CAUSES, MAX_EVIDENCE, MAX_SOURCES, Verdict, diagnose};
