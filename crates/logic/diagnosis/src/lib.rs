//! Why a host is in error: from what was read about it ([`Evidence`]) to causes.
//!
//! Pure: nothing is read here, no clock is asked, and the same evidence gives the same answer, whatever the order of its lists.

mod evidence;
mod text;

pub use evidence::*;
pub use text::clean;
