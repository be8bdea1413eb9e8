//! Time, given from outside: whoever stamps objects or judges their age asks a [`Clock`], so that a test can make all of
//! a program's clocks one.

use jiff::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
