//! Provisioners that are other programs, in any language, over gRPC ([docs/external-provisioners.md](../../../../docs/external-provisioners.md)).
//!
//! The server's side is one more implementation of [`provisioner::Provides`] ([`External`]), and for hosts of [`provisioner::Provisioner`]
//! ([`ExternalProvisioner`]): it connects to a worker, agrees on a version
//! ([`versions`]), and asks each call on a stream of its own (`ask.rs`), on which the worker asks back: it writes the host's record, asks whether it may
//! act, shows its work. What a worker remembers is in the record; its process may be killed at any instant, and so may the server's. A call that has no
//! verdict, because the worker is gone, hangs or breaks off, is a failure that says so and is made again; it never holds up the host's loop.
//!
//! A worker is not trusted further than it has to be: it is told of its own hosts alone, what it says is bounded and cleaned (`limits.rs`, `convert.rs`),
//! wake-ups and questions are rationed (`flood.rs`), progress is clamped (`progress.rs`), and ids have to be its own. It has the passwords of its BMCs, so who serves it
//! has to be whom its entry names: a user of this machine ([`UnixSocket`]) or the owner of a certificate ([`Tls`]).
//!
//! All of this is the same for every kind of resource. A kind says by [`Carried`] what its calls have beside what every call has; `hosts.rs`, `host.rs`
//! and `machine.rs` are about hosts alone. Which kind a worker is of is agreed on by `Hello`, where programs from before there were others name none and mean
//! hosts.
//!
//! [`serve`] puts any provisioner in Rust behind the same protocol, [`Supervised`] starts workers and keeps them, [`check`] has the kit judge them.

mod ask;
mod carried;
pub mod check;
mod convert;
mod exchange;
mod external;
mod flood;
mod host;
mod hosts;
mod keeper;
mod limits;
mod link;
mod machine;
mod progress;
mod provisioner_impl;
pub mod serve;
mod shared;
mod site;
mod supervise;
mod tls;
mod transport;
pub mod versions;
mod wire;

pub use ask::Effects;
pub use carried::{Carried, Heeded, Unanswered};
pub use exchange::Exchange;
pub use external::{Checking, External};
pub use link::{Hold, Known, introduce};
pub use provisioner_impl::ExternalProvisioner;
pub use site::{Program, Reached, Site, SitesError, read_sites, socket_address, unix_socket};
pub use supervise::{Patience, Supervised, supervise};
pub use tls::{Identity, Pin, Trust, client as tls_client, server as tls_server};
pub use transport::{Connect, InMemory, Stream, Tls, Trusted, UnixSocket, file};
pub use wire::v1;
