//! BMC addresses, credentials, capability types, the per-BMC call budget and ledger.
//!
//! What every protocol's client (Redfish now, IPMI later) shares: [`Address`] parses `spec.bmc.address`, [`Credentials`] holds user
//! and password, [`BmcRegistry`] hands out one [`Channel`] per BMC, through which every call goes: one in flight at a time, each
//! written to the BMC's [`Ledger`], none without the [`Lead`]. [`Connectors`] chooses the client by the address's scheme; what a connected [`Bmc`] can be asked is a trait a
//! capability ([`capability`]), so that whoever uses BMCs knows no protocol. Failures are [`BmcError`]s; waiting is done by a [`Pacer`] that tests replace.

pub mod address;
pub mod backoff;
pub mod capability;
pub mod channel;
pub mod connect;
pub mod credentials;
pub mod error;
pub mod lead;
pub mod ledger;
pub mod sign_ins;
pub mod streams;
pub mod totals;

pub use address::{Address, AddressError, HostName, Protocol, Security};
pub use backoff::{Backoff, Pacer, TokioPacer};
pub use capability::{
    Alert, Applied, AttributeKind, AttributeSchema, Bios, BiosSchema, BiosSeen, Bmc, BmcLog, BootDevice, BootStanding,
    Capability, DataDrive, Diagnostics, Drive, EventDestination, EventStream, Events, EvidenceBudget,
    FirmwareInventory, FirmwareVersion, HardwareInventory, HealthLevel, Insertion, JobState, Lacking, Lasting,
    LocationIndicator, LogEntry, Logs, MAX_COLLECTED, MAX_LOG_ENTRIES, Posted, Power, PowerAction, SecureBoot,
    SecureBootSeen, Sight, VirtualMedia, capabilities,
};
pub use channel::{BmcRegistry, Channel, InFlight, Reuse};
pub use connect::{Connector, Connectors, Target};
pub use credentials::{Credentials, CredentialsError};
pub use error::{BmcError, ErrorKind};
pub use lead::{Lead, NotLeading, Term};
pub use ledger::{Call, CallOutcome, Counters, Ledger, Mark};
pub use sign_ins::{MAX_SIGN_INS, SignIns};
pub use streams::{MAX_STREAMS, StreamPlace, Streams};
pub use totals::Totals;
