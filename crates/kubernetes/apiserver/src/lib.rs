//! The embedded Kubernetes API: what kubectl, kube-rs and client-go need of kube-apiserver for custom resources and a
//! handful of core kinds, in one process with one SQLite file.
//!
//! The way of a request: [`server`] accepts it on TLS → [`auth`] finds out who asks and whether they may → [`route`]
//! finds out what is asked → [`media`] what form the answer has → a file of [`verbs`] does it: it decodes the body
//! ([`gojson`]), brings it in order ([`verbs::strategy`], with [`builtin`] for own kinds and [`crd`] for custom ones;
//! [`conversion`] between versions), settles who owns which field ([`fields`]), lets [`admission`] speak, and writes
//! through [`store`] → [`reply`] encodes, [`delivery`] sends. [`controllers`] do what is left over: garbage collection, the end
//! of namespaces and definitions, expiry of events, compaction.
//!
//! Files stand in layers, and use only what is below them: the [`store`] and the table of what is served ([`resource`], [`registry`]); [`objects`], all that
//! can be read, with its lists ([`select`]) and versions ([`conversion`], [`webhook`]); who asks and how ([`auth`], [`request`], [`change`]); rules of kinds
//! ([`builtin`], [`crd`]) and of owners ([`fields`]); [`admission`]; the [`verbs`], whose `Backend` has all of it; [`controllers`], [`server`].
//!
//! What needs no server is in crates of its own: [`gojson`] reads JSON and YAML as Go does; [`core_kinds`] is the table of own
//! kinds, with their decoder and protobuf; [`structural_schema`] prunes, completes and checks custom resources, with [`cel`]
//! for their rules; [`structured_merge`] is what apply is made of, [`patches`] are the other patches; [`names`] says what
//! names may be, [`field_errors`] and [`gotext`] are the words of errors.

mod admission;
mod archive;
mod audit;
mod auth;
mod builtin;
mod change;
mod controllers;
mod conversion;
mod crd;
mod delivery;
mod discovery;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod given;
mod health;
pub mod in_process;
mod install;
mod jsonpath;
mod label_text;
mod limits;
mod media;
mod metrics;
mod object;
mod objects;
mod openapi;
mod pki;
mod pretty;
mod quota;
mod registry;
mod reply;
mod request;
mod resource;
mod route;
mod select;
mod selectors;
mod server;
mod start;
mod status;
mod store;
mod table;
mod verbs;
mod versions;
mod webhook;

pub use admission::Reviewer;
pub use archive::{RestoreError, STORE, backup, restore};
pub use install::ApplyError;
pub use pki::PkiError;
pub use start::{Config, Server, StartError};
pub use store::{BackupError, KeyError, StoreError};
