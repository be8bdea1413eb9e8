//! Where images are read from: a [`Document`] of a namespace or of the server names mirrors and a proxy, and of the addresses that a host names
//! [`Sources::route`] makes those that are asked, in order.
//!
//! Pure: nothing is read here. A mirror is trusted with nothing: what comes from it has to have the digest that the host, the manifest or the checksum
//! file names; and which manifest a tag is, and what a checksum file lists, it is asked only where its rule says so (`tags`).

mod document;
mod fault;
mod mirrors;
mod no_proxy;
mod proxy;
mod sources;

pub use document::{CONFIG_MAP, Document, KEY, ProxyChoice};
pub use fault::Fault;
pub use mirrors::{Candidate, NotRead, Rule};
pub use no_proxy::NoProxy;
pub use proxy::{Login, Proxy, Route};
pub use sources::Sources;
