//! How a controller is ended.

use std::pin::Pin;

/// What ends a controller when it resolves. Boxed, as what runs a controller is: so each of them is compiled once, with this crate, and not
/// with each program and test that begins one.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;
