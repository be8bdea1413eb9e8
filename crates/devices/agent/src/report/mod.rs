//! The exchange with the server: reports out, directives in, for ever.

mod backoff;
mod client;
mod ledger;
mod log;
mod run;
mod session;
pub mod tls;

pub use client::{Client, ClientError, ExchangeError};
pub use ledger::Ledger;
pub use log::{LogRing, uptime_ms};
pub use run::run;
pub use session::{Next, Session};
