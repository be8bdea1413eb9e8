//! Redfish client (DMTF DSP0266): sessions, system, virtual media, boot override, power, Secure Boot, BIOS settings, tasks.
//!
//! The program uses [`RedfishConnector`], which makes [`bmc::Bmc`]s, each backed by a [`Client`]: one object per system, kept as long as the host is
//! known. It signs in when first needed, caches what it has found (service root, paths, actions), so that most operations are one request, and signs
//! out in
//! [`Client::close`]. The core sends through a [`Transport`]: [`HttpTransport`] in production, an in-process router in tests. Every request goes
//! through the
//! BMC's [`bmc::Channel`]: one in flight, each in the ledger.
//!
//! Answers are read leniently, since BMCs deviate from the schema and from each other; further deviations are in [`quirks`], one named predicate per
//! observed fault.

mod attribute_registry;
mod bios;
mod boot;
mod capabilities;
pub mod client;
mod collection;
mod connector;
mod data_media;
mod diagnostics;
mod event_stream;
mod events;
mod exchange;
mod firmware;
mod hardware;
mod hardware_facts;
mod hide;
pub mod http_transport;
mod indicator;
mod iso_config;
mod json;
mod logs;
mod media;
pub mod message;
mod metered;
mod missing;
mod oem_media;
mod options;
mod power;
pub mod quirks;
pub mod resources;
mod service_roots;
mod session;
mod state;
mod task;
mod tls;
mod tls_probe;
pub mod transport;

pub use boot::{BootMode, BootTarget};
pub use capabilities::RedfishBmc;
pub use client::Client;
pub use connector::{RedfishConnector, Trust, server_id};
pub use http_transport::{HttpTransport, Tls, TlsError};
pub use media::Inserted;
pub use options::ClientOptions;
pub use power::ResetType;
pub use resources::{BootOverride, MediaState, PowerState, SecureBoot, System};
pub use service_roots::ServiceRoots;
pub use session::Swept;
pub use tls::by_itself;
pub use transport::{MAX_BODY, Opened, Over, Pieces, Request, Response, Transport, TransportError};
