//! BMC addresses, credentials, capability types, the per-BMC call budget and ledger.
//!
//! What every protocol's client (Redfish now, IPMI later) shares: [`Address`] parses `spec.bmc.address`, [`Credentials`] holds user
//! and password, [`BmcRegistry`] hands out one [`Channel`] per BMC, through which every call goes: one in flight at a time, each
//! written to the BMC's [`Ledger`]. Failures are [`BmcError`]s; waiting is done by a [`Pacer`] that tests replace.

pub mod address;
pub mod backoff;
pub mod channel;
pub mod credentials;
pub mod error;
pub mod ledger;
pub mod totals;

pub use address::{Address, AddressError, Family, HostName, Security};
pub use backoff::{Backoff, Pacer, TokioPacer};
pub use channel::{BmcRegistry, Channel, InFlight, Reuse};
pub use credentials::{Credentials, CredentialsError};
pub use error::{BmcError, ErrorKind};
pub use ledger::{Call, CallOutcome, Counters, Ledger, Mark};
pub use totals::Totals;
