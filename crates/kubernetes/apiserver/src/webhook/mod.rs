//! Webhooks: where one is ([`Target`]), how it is reached ([`connect`]), and what of its answer is trusted. [`crate::callout`] calls them.
//!
//! HTTPS only, no proxies, no redirects; time, bytes and idle connections are bounded. The texts of failures are those
//! of upstream's client, because they reach users (`failed calling webhook ...`).

mod answer;
pub mod connect;
mod target;
mod trust;

pub use answer::{decoded, refusal};
pub use target::{Answer, Call, Service, Target};
