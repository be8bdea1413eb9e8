//! What provisioners look after, by kind: hosts are one kind, and whoever has another names its types here and gets the rest.
//!
//! A kind ([`Resource`]) is a name, a version, and four types that travel as documents: what is known of one ([`Resource::Facts`]), what it is asked
//! ([`Resource::Call`]), what that gives ([`Resource::Answer`]), what can be asked of it ([`Resource::Capabilities`]). Everything else is the same for
//! all kinds, and knows none of them: the registry, the envelope, the record with its intents, verdicts, failures and wake-ups here; the protocol of
//! workers in other languages, their connection and supervision in `provisioner-external`; scenarios and laws in `provisioner-kit`.
//!
//! ```text
//!   controller of the kind ──▶ Registry<P> ──▶ Provides<R>::ask(context, call) ──▶ Outcome<Answer>
//!                                                   │ in this process: whatever implements it
//!                                                   └ in another: provisioner_external::External<R> ──▶ the worker's stream
//! ```
//!
//! What is asked for is an object of Kubernetes in any kind: its key is namespace, name and uid. What a kind's call needs beside facts, record, time and
//! leadership ([`Context`]) is the kind's own: a host has access to its BMC, a history and a machine's record ([`crate::HostContext`]).
//!
//! The words for effects and causes are shared by all kinds, and were found for machines: "machine" in them is what stands behind the resource.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{Outcome, Record, Recorded};

/// What has a name in annotations and flags.
pub trait Named {
    /// The name: lower-case letters, digits and `-`.
    fn name(&self) -> &'static str;
}

/// An object's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid of the object: another one is another object, whatever its name.
    pub uid: String,
}

/// Whether this process may still act. Check it before each effect: another process may have taken over since the last check.
pub type MayAct = Arc<dyn Fn() -> bool + Send + Sync>;

/// The time, given from outside.
pub type Now = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Something happened to a resource: its controller looks at it at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Which.
    pub key: ObjectKey,
}

/// Wake-ups as they come.
pub type WakeUps = UnboundedReceiver<WakeUp>;

/// What travels as a document.
pub trait Document: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static> Document for T {}

/// A call. As a document it is tagged: `{"call": name, "request": …}`, without a request where there is none.
pub trait Asked {
    /// Its name on the wire.
    fn name(&self) -> &'static str;
}

/// A kind of thing that provisioners look after.
pub trait Resource: Clone + Debug + PartialEq + Send + Sync + Sized + 'static {
    /// Name of the kind on the wire: a noun in lower case.
    const KIND: &'static str;
    /// Version of this kind's documents. It grows when a reader of the previous version would misunderstand.
    const VERSION: u32;
    /// What is told of it with each call.
    type Facts: Document;
    /// What it can be asked.
    type Call: Document + Asked;
    /// What that gives. As a document it is tagged: `{"answer": name, "value": …}`, without a value where there is none.
    type Answer: Document;
    /// What can be asked of one.
    type Capabilities: Document;
    /// Everything that a provisioner is given with a call.
    type Context: Given<Self>;
    /// Its provisioners.
    type Provisioner: Provides<Self> + ?Sized;

    /// Which one the facts are of.
    fn key(facts: &Self::Facts) -> &ObjectKey;
}

/// What every kind's context has.
pub trait Given<R: Resource>: Clone + Send + Sync + 'static {
    /// What is known of it.
    fn facts(&self) -> &R::Facts;
    /// What its provisioner remembers of it.
    fn record(&self) -> &Arc<dyn Record>;
    /// The time.
    fn time(&self) -> jiff::Timestamp;
    /// Whether this process may act now.
    fn leads(&self) -> bool;
    /// Which one it is.
    fn key(&self) -> &ObjectKey {
        R::key(self.facts())
    }
}

/// What is given with a call of any kind, and all that a kind without more needs.
pub struct Context<R: Resource> {
    /// What is known of it.
    pub facts: Arc<R::Facts>,
    /// What its provisioner remembers of it.
    pub record: Arc<dyn Record>,
    /// The time.
    pub now: Now,
    /// Asked before each effect.
    pub may_act: MayAct,
}

impl<R: Resource> Clone for Context<R> {
    fn clone(&self) -> Self {
        Self {
            facts: Arc::clone(&self.facts),
            record: Arc::clone(&self.record),
            now: Arc::clone(&self.now),
            may_act: Arc::clone(&self.may_act),
        }
    }
}

impl<R: Resource> Given<R> for Context<R> {
    fn facts(&self) -> &R::Facts {
        &self.facts
    }
    fn record(&self) -> &Arc<dyn Record> {
        &self.record
    }
    fn time(&self) -> jiff::Timestamp {
        (self.now)()
    }
    fn leads(&self) -> bool {
        (self.may_act)()
    }
}

/// A provisioner of a kind: calls and answers are data. One object for all resources of a server.
#[async_trait]
pub trait Provides<R: Resource>: Named + Send + Sync + 'static {
    /// What can be asked of this one, without looking at it.
    fn capabilities(&self, facts: &R::Facts) -> R::Capabilities;

    /// One call. It is idempotent and answers at once: done, still working, waiting for something else, or failed for a typed cause.
    async fn ask(&self, context: R::Context, call: R::Call) -> Outcome<R::Answer>;

    /// The stream of wake-ups from now on. A new subscription ends the previous stream.
    fn subscribe(&self) -> WakeUps;

    /// Whether something has happened since the last [`Provides::acknowledge_news`] that failed work may have been waiting for.
    fn has_news(&self, _key: &ObjectKey) -> bool {
        false
    }

    /// Acknowledges the news so far.
    fn acknowledge_news(&self, _key: &ObjectKey) {}

    /// It waits, and this process has not called it yet.
    fn expect(&self, _key: &ObjectKey, _recorded: &Recorded) {}

    /// The object is gone: drops what this process keeps of it, without waiting.
    fn forget(&self, _key: &ObjectKey) {}

    /// Ends what is open, before the server stops.
    async fn close(&self) {}
}
