//! The embedded Kubernetes API: what kubectl, kube-rs and client-go need of kube-apiserver for custom resources and a
//! handful of core kinds, in one process with one SQLite file.
//!
//! The path of a request: [`server`] accepts it over TLS → [`auth`] authenticates and authorizes → [`route`] finds
//! the resource and verb → [`media`] negotiates the form of the response → a module of [`verbs`] executes it: it
//! decodes the body ([`gojson`], [`decode`]), prepares and validates the object (by its kind's [`strategy`]:
//! [`strategies`] has those of built-in kinds, [`crd`] that of custom ones; [`conversion`] between versions), updates
//! the field owners ([`fields`]), calls [`admission`], and writes to the [`store`] → [`reply`] encodes, [`delivery`]
//! sends. [`controllers`] work in the background: garbage collection, deletion of namespaces and definitions, expiry
//! of events, compaction.
//!
//! Modules form layers (`xtask/module-floors.toml`) and use only lower ones: the [`store`] and the catalog of served
//! resources ([`resource`], [`registry`]); [`objects`], all readable state, with its lists ([`select`]) and versions
//! ([`conversion`], [`callout`]); users, rights and requests ([`rbac`], [`auth`], [`request`], [`change`]); field
//! owners ([`fields`]); [`admission`]; rules of kinds ([`strategies`]); the [`verbs`], whose `Backend` combines them,
//! and whose `stages` define the steps of a write; [`controllers`], [`server`].
//!
//! Code that needs no server is in its own crates: [`gojson`] parses JSON and YAML as Go does; [`core_kinds`] is the
//! table of built-in kinds, with their decoder and protobuf; [`structural_schema`] prunes, defaults and validates
//! custom resources, with [`cel`] for their rules; [`structured_merge`] implements the merge of apply, [`patches`]
//! the other patches; [`names`] validates names, [`field_errors`] and [`gotext`] format errors.

mod admission;
mod allocation;
mod archive;
mod audit;
mod auth;
mod caller;
mod callout;
mod change;
mod checks;
mod controllers;
mod conversion;
mod crd;
mod decode;
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
mod meta;
mod metrics;
mod object;
mod objects;
mod openapi;
mod pki;
mod pretty;
mod quota;
mod rbac;
mod registered;
mod registry;
mod reply;
mod request;
mod resource;
mod route;
mod scale;
mod select;
mod selectors;
mod server;
mod start;
mod status;
mod store;
mod strategies;
mod strategy;
mod table;
mod user;
mod verbs;
mod versions;
mod webhook;

pub use admission::Reviewer;
pub use archive::{RestoreError, STORE, backup, restore};
pub use caller::{Caller, Gone, Identity};
pub use install::ApplyError;
pub use pki::PkiError;
pub use start::{Config, Server, StartError};
pub use store::{BackupError, KeyError, StoreError};
