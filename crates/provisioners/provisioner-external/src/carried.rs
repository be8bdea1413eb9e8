//! A kind of resource whose calls travel, and what its calls have beside what every kind's have. Hosts are one kind (`hosts.rs`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{Context, RecordError, Resource};

use crate::exchange::Exchange;
use crate::wire::v1;
use crate::wire::v1::ask_response::Message as FromWorker;

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The worker is gone, or breaks off.
    Broken(String),
    /// It reads nothing of what it asks for.
    Unread(String),
    /// It took too long.
    TooLong(Duration),
    /// It cannot take one more call.
    NoRoom(String),
    /// It breaks the protocol.
    Wrong(String),
}

/// What becomes of what a worker has said.
#[derive(Clone, Debug, PartialEq)]
pub enum Heeded {
    /// It is not answered.
    Silently,
    /// The question of this number is answered so.
    Answered(u64, Result<v1::answered::Result, RecordError>),
}

/// A kind of resource that workers in other processes look after.
#[async_trait]
pub trait Carried: Resource {
    /// What its ids are of, for messages.
    const THING: &'static str;

    /// What may be asked of a worker of which nothing is known: no wish is refused that it may serve, and nothing is promised of its care.
    fn unknown() -> Self::Capabilities;

    /// The id by which its provisioner knows it; empty before there is one.
    fn id(facts: &Self::Facts) -> &str;

    /// The id that an answer gives it, for ever.
    fn given_id(answer: &Self::Answer) -> Option<&str>;

    /// The object is being deleted.
    fn is_leaving(facts: &Self::Facts) -> bool;

    /// Where what stands behind it is found: what was said of it at another address counts no more.
    fn address(facts: &Self::Facts) -> &str;

    /// Scheme of that address, where workers differ by it.
    fn scheme(_facts: &Self::Facts) -> Option<&str> {
        None
    }

    /// On the server's side: adds to a call what only this kind's calls have.
    fn add(_context: &Self::Context, _call: &mut v1::Call) {}

    /// On the server's side: heeds what only workers of this kind say. `worker` is the name of who says it.
    async fn heed(_context: &Self::Context, _said: FromWorker, _worker: &str) -> Result<Heeded, Unanswered> {
        Err(Unanswered::Wrong(format!("it asks what is not asked of a {}", Self::KIND)))
    }

    /// On the worker's side, in Rust: what the provisioner is given, from what every call has, and this one.
    fn received(common: Context<Self>, call: v1::Call, exchange: &Arc<Exchange>) -> Self::Context;
}

/// The kind that this name on the wire means: programs from before there were others name none.
pub fn kind_of(named: &str) -> &str {
    if named.is_empty() { "host" } else { named }
}
