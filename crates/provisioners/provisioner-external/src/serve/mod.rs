//! The worker's side: any provisioner in Rust ([`provisioner::Provides`]), of hosts or of another kind, served as the .proto says.
//! Authors of other languages have the .proto itself.
//!
//! An effect of a served provisioner is asked for and told by [`about_to`] and [`did`], which find the call that they belong to.

mod call;
mod listen;
mod service;

use std::sync::Arc;

use async_trait::async_trait;
use provisioner::{HostResource, Resource};

use crate::carried::Carried;
use crate::wire::v1;

pub use crate::exchange::{about_to, did};
pub use listen::{Bound, listen_tls, listen_unix, serve_stream};
pub use service::Worker;

/// What a worker says of itself.
#[derive(Clone, Debug)]
pub struct About<R: Resource = HostResource> {
    /// Its name, as in the server's list.
    pub name: String,
    /// Version of the program.
    pub program: String,
    /// How the ids of its machines begin.
    pub id_prefix: String,
    /// What can be asked of one of which nothing else is known.
    pub capabilities: R::Capabilities,
    /// Schemes of addresses that it serves; all without any.
    pub schemes: Vec<String>,
    /// Address of machines to check it with, with `{n}` for their number.
    pub check_address: Option<String>,
}

/// Machines that can be troubled, for `metamorph provisioner check`.
#[async_trait]
pub trait Troubles: Send + Sync {
    /// From now on the machine is in this condition, or is not any more; false if it cannot be.
    async fn set(&self, address: &str, condition: v1::Condition, on: bool) -> bool;
}

/// A worker that serves this provisioner.
#[must_use]
pub fn worker<R: Carried>(
    provisioner: Arc<R::Provisioner>,
    about: About<R>,
    troubles: Option<Arc<dyn Troubles>>,
) -> Worker<R> {
    Worker::new(provisioner, about, troubles)
}
