//! News of hosts and Secrets for controllers that do not watch them themselves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::metal3::BareMetalHost;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Something that is new.
#[derive(Clone, Debug)]
pub enum Novelty {
    /// A host has been made or changed.
    Host(Arc<BareMetalHost>),
    /// A host is gone.
    HostGone(Arc<BareMetalHost>),
    /// A Secret of this namespace and name has been made, changed or deleted.
    Secret(String, String),
    /// The HardwareData, or the versions of firmware, of this namespace and name have been made, changed or deleted.
    Facts(String, String),
    /// All HardwareData were listed anew: deletions may have been missed.
    FactsListed,
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

    fn tell(&self, what: impl FnOnce() -> Novelty) {
        let mut listeners = self.listeners();
        if listeners.is_empty() {
            return;
        }
        let what = what();
        // This fails only once the listener has ended.
        listeners.retain(|listener| listener.send(what.clone()).is_ok());
    }

    /// Call with each event of the hosts, after the store.
    pub fn of_host(&self, event: &Result<Event<BareMetalHost>, Error>, store: Option<&Store<BareMetalHost>>) {
        // The store has put in that very object; one of a list that is not complete yet it does not show.
        let shared = |host: &BareMetalHost| {
            let stored = store.and_then(|store| store.get(&ObjectRef::from_obj(host)));
            stored
                .filter(|stored| stored.uid() == host.uid() && stored.resource_version() == host.resource_version())
                .unwrap_or_else(|| Arc::new(host.clone()))
        };
        match event {
            Ok(Event::Apply(host) | Event::InitApply(host)) => self.tell(|| Novelty::Host(shared(host))),
            Ok(Event::Delete(host)) => self.tell(|| Novelty::HostGone(Arc::new(host.clone()))),
            Ok(Event::InitDone) => self.tell(|| Novelty::Listed),
            Ok(Event::Init) | Err(_) => {}
        }
    }

    /// The same for what inspections have found, and for versions of firmware. `have_gone`: it has just been found that there is no definition of them, and so none of them.
    pub fn of_facts<K: Resource<DynamicType = ()>>(&self, event: &Result<Event<K>, Error>, have_gone: bool) {
        match event {
            Ok(Event::Apply(data) | Event::Delete(data)) => {
                self.tell(|| Novelty::Facts(data.namespace().unwrap_or_default(), data.name_any()));
            }
            Ok(Event::InitDone) => self.tell(|| Novelty::FactsListed),
            Err(_) if have_gone => self.tell(|| Novelty::FactsListed),
            Ok(Event::Init | Event::InitApply(_)) | Err(_) => {}
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
