//! News of hosts and Secrets for controllers that do not watch them themselves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::BareMetalHost;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Error, Event};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Something that is new.
#[derive(Clone, Debug)]
pub enum Novelty {
    /// A host has been made or changed.
    Host(Box<BareMetalHost>),
    /// A host is gone.
    HostGone(Box<BareMetalHost>),
    /// A Secret of this namespace and name has been made, changed or deleted.
    Secret(String, String),
    /// All were listed anew: deletions may have been missed.
    Listed,
}

/// The channels to the listeners; without any, news are dropped.
#[derive(Default)]
pub struct News(Mutex<Vec<UnboundedSender<Novelty>>>);

impl News {
    fn listeners(&self) -> MutexGuard<'_, Vec<UnboundedSender<Novelty>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens from now on.
    pub fn listen(&self) -> UnboundedReceiver<Novelty> {
        let (sender, receiver) = unbounded_channel();
        self.listeners().push(sender);
        receiver
    }

    fn tell(&self, what: impl Fn() -> Novelty) {
        // This fails only once the listener has ended.
        self.listeners().retain(|listener| listener.send(what()).is_ok());
    }

    /// Call with each event of the hosts, after the store.
    pub fn of_host(&self, event: &Result<Event<BareMetalHost>, Error>) {
        match event {
            Ok(Event::Apply(host) | Event::InitApply(host)) => self.tell(|| Novelty::Host(Box::new(host.clone()))),
            Ok(Event::Delete(host)) => self.tell(|| Novelty::HostGone(Box::new(host.clone()))),
            Ok(Event::InitDone) => self.tell(|| Novelty::Listed),
            Ok(Event::Init) | Err(_) => {}
        }
    }

    /// The same for the Secrets.
    pub fn of_secret(&self, event: &Result<Event<PartialObjectMeta<Secret>>, Error>) {
        match event {
            Ok(Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret)) => {
                self.tell(|| Novelty::Secret(secret.namespace().unwrap_or_default(), secret.name_any()));
            }
            Ok(Event::InitDone) => self.tell(|| Novelty::Listed),
            Ok(Event::Init) | Err(_) => {}
        }
    }
}
