//! Index of hosts by BMC and by Secret, kept up to date by the watch, so that no lookup scans all hosts.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::BareMetalHost;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use provisioner::Registry;

/// Namespace and name of a host.
type Name = (String, String);

/// What hosts are found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Mark {
    /// The machine at their BMC, as the provisioner of this name calls it.
    Machine(String, String),
    /// The Secret of their BMC, with its namespace.
    Login(String, String),
    /// Another Secret that they name.
    Data(String, String),
}

#[derive(Default)]
struct Inner {
    hosts: HashMap<Name, HashSet<Mark>>,
    marks: HashMap<Mark, BTreeSet<Name>>,
    /// Hosts of a list that is not complete yet.
    listed: HashSet<Name>,
}

/// The index of a controller.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call with each event of the hosts, after the store.
    pub fn on(&self, event: &Event<BareMetalHost>, registry: &Registry) {
        match event {
            Event::Apply(host) => self.lock().put(host, registry),
            Event::Delete(host) => self.lock().remove(&name_of(host)),
            Event::Init => self.lock().listed.clear(),
            Event::InitApply(host) => {
                let mut inner = self.lock();
                inner.listed.insert(name_of(host));
                inner.put(host, registry);
            }
            Event::InitDone => {
                let mut inner = self.lock();
                let listed = std::mem::take(&mut inner.listed);
                let gone: Vec<Name> = inner.hosts.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| inner.remove(name));
            }
        }
    }

    /// Hosts whose BMC address has this machine key with this provisioner.
    pub fn at_machine(&self, provisioner: &str, key: &str) -> Vec<ObjectRef<BareMetalHost>> {
        self.find(&Mark::Machine(provisioner.to_owned(), key.to_owned()))
    }

    /// Hosts that name this Secret for their BMC.
    pub fn signs_in(&self, namespace: &str, secret: &str) -> Vec<ObjectRef<BareMetalHost>> {
        self.find(&Mark::Login(namespace.to_owned(), secret.to_owned()))
    }

    /// Hosts that name this Secret for their data.
    pub fn takes_data(&self, namespace: &str, secret: &str) -> Vec<ObjectRef<BareMetalHost>> {
        self.find(&Mark::Data(namespace.to_owned(), secret.to_owned()))
    }

    fn find(&self, mark: &Mark) -> Vec<ObjectRef<BareMetalHost>> {
        let inner = self.lock();
        let found = inner.marks.get(mark).into_iter().flatten();
        found.map(|(namespace, name)| ObjectRef::new(name).within(namespace)).collect()
    }
}

impl Inner {
    fn put(&mut self, host: &BareMetalHost, registry: &Registry) {
        let (name, marks) = (name_of(host), marks_of(host, registry));
        if self.hosts.get(&name) == Some(&marks) {
            return;
        }
        self.remove(&name);
        for mark in &marks {
            self.marks.entry(mark.clone()).or_default().insert(name.clone());
        }
        if !marks.is_empty() {
            self.hosts.insert(name, marks);
        }
    }

    fn remove(&mut self, name: &Name) {
        for mark in self.hosts.remove(name).into_iter().flatten() {
            if let Some(names) = self.marks.get_mut(&mark) {
                names.remove(name);
                if names.is_empty() {
                    self.marks.remove(&mark);
                }
            }
        }
    }
}

fn name_of(host: &BareMetalHost) -> Name {
    (host.namespace().unwrap_or_default(), host.name_any())
}

fn marks_of(host: &BareMetalHost, registry: &Registry) -> HashSet<Mark> {
    let (spec, namespace) = (&host.spec, host.namespace().unwrap_or_default());
    let references = [&spec.user_data, &spec.network_data, &spec.meta_data];
    let data = references.into_iter().flatten().filter_map(|reference| reference.name.as_deref());
    let pull = spec.image.as_ref().and_then(|image| image.oci_auth_secret_name.as_deref());
    let data = data.chain(spec.preprovisioning_network_data_name.as_deref()).chain(pull);
    let data = data.filter(|name| !name.is_empty());
    let data = data.map(|name| Mark::Data(namespace.clone(), name.to_owned()));
    let login = spec.bmc.as_ref().map(|bmc| bmc.credentials_name.clone()).filter(|name| !name.is_empty());
    let login = login.map(|name| Mark::Login(namespace.clone(), name));
    // For each provisioner: the host's own depends on an annotation, which may change.
    let machines = registry.iter().filter_map(|provisioner| {
        let key = provisioner.machine_key(&spec.bmc.as_ref()?.address)?;
        Some(Mark::Machine(provisioner.name().to_owned(), key))
    });
    data.chain(login).chain(machines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use api::metal3::{BareMetalHostSpec, Bmc, SecretReference};
    use provisioner::{Capabilities, Failure, Host, HostContext, HostKey, Provisioner, Recorded, WakeUps};

    struct Keys(&'static str);

    impl provisioner::Named for Keys {
        fn name(&self) -> &'static str {
            self.0
        }
    }

    #[async_trait::async_trait]
    impl Provisioner for Keys {
        fn capabilities(&self, _: &provisioner::HostFacts) -> Capabilities {
            Capabilities::default()
        }
        fn made(&self, _: &str) -> bool {
            true
        }
        fn machine_key(&self, address: &str) -> Option<String> {
            address.starts_with(self.0).then(|| address.to_lowercase())
        }
        fn host(&self, _: HostContext) -> Result<Box<dyn Host>, Failure> {
            Err(Failure::new(provisioner::Cause::Internal, "unused"))
        }
        fn has_news(&self, _: &HostKey) -> bool {
            false
        }
        fn acknowledge_news(&self, _: &HostKey) {}
        fn subscribe(&self) -> WakeUps {
            provisioner::Waker::default().subscribe()
        }
        fn expect(&self, _: &HostKey, _: &Recorded) {}
        fn forget(&self, _: &HostKey) {}
        async fn close(&self) {}
    }

    fn host(name: &str, address: &str, login: &str, data: &str) -> BareMetalHost {
        let bmc = Bmc { address: address.into(), credentials_name: login.into(), ..Bmc::default() };
        let user_data = SecretReference { name: Some(data.into()), namespace: None };
        let spec = BareMetalHostSpec { bmc: Some(bmc), user_data: Some(user_data), ..BareMetalHostSpec::default() };
        let mut host = BareMetalHost::new(name, spec);
        host.metadata.namespace = Some("n".into());
        host
    }

    #[test]
    fn hosts_are_found_by_machine_and_secret_as_the_watch_shows_them() {
        let (index, registry) = (Index::default(), Registry::new(Arc::new(Keys("a")) as Arc<dyn Provisioner>));
        let on = |event: Event<BareMetalHost>| index.on(&event, &registry);
        let names = |found: Vec<ObjectRef<BareMetalHost>>| {
            found.iter().map(|host| host.name.clone()).collect::<Vec<_>>().join(" ")
        };
        let at = |key: &str| names(index.at_machine("a", key));
        let (login, data) = (|name| names(index.signs_in("n", name)), |name| names(index.takes_data("n", name)));
        on(Event::Init);
        for (name, address) in [("one", "aX"), ("two", "ax"), ("three", "ay"), ("four", "b")] {
            on(Event::InitApply(host(name, address, "login", "data")));
        }
        on(Event::InitDone);
        assert_eq!((at("ax"), at("ay"), at("b")), ("one two".into(), "three".into(), String::new()));
        assert_eq!((login("login"), login("data")), ("four one three two".into(), String::new()));
        assert_eq!((data("data"), names(index.takes_data("m", "data"))), ("four one three two".into(), String::new()));
        on(Event::Apply(host("two", "ay", "other", "")));
        on(Event::Delete(host("three", "ay", "login", "data")));
        assert_eq!((at("ax"), at("ay")), ("one".into(), "two".into()));
        assert_eq!(
            (login("login"), login("other"), data("data")),
            ("four one".into(), "two".into(), "four one".into())
        );
        // What a new list lacks is gone when it is complete, and not before.
        on(Event::Init);
        on(Event::InitApply(host("two", "ax", "login", "")));
        assert_eq!(at("ax"), "one two");
        on(Event::InitDone);
        assert_eq!((at("ax"), login("login"), data("data")), ("two".into(), "two".into(), String::new()));
        on(Event::Delete(host("two", "ax", "login", "")));
        let inner = index.lock();
        assert!(inner.hosts.is_empty() && inner.marks.is_empty() && inner.listed.is_empty());
    }
}
