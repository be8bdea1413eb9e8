//! What admission knows of a server's provisioners before a host is looked at: which one the host gets, and what that can do with it.
//!
//! It goes by host, namespace and server. The controller, which reads the host's record as well, has the last word (`host::choice`): where these do not
//! tell, nothing is said beforehand.

use std::sync::Arc;

use api::metal3::{BareMetalHost, annotation};
use provisioner::{Capabilities, HostFacts, Provisioner};

type Can = dyn Fn(&HostFacts) -> Option<Capabilities> + Send + Sync;

/// What is known of one provisioner.
#[derive(Clone)]
pub struct Foreseen {
    name: String,
    capabilities: Arc<Can>,
    made: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    address_fault: fn(&str) -> Option<String>,
}

impl Foreseen {
    /// One that this server has: it is asked what it can do with a host, which calls no machine. `address_fault` is what it has against an address, a
    /// sentence.
    #[must_use]
    pub fn made(provisioner: Arc<dyn Provisioner>, address_fault: fn(&str) -> Option<String>) -> Self {
        let asked = Arc::clone(&provisioner);
        Self {
            name: provisioner.name().to_owned(),
            capabilities: Arc::new(move |facts| Some(asked.capabilities(facts))),
            made: Arc::new(move |id| provisioner.made(id)),
            address_fault,
        }
    }

    /// One of this name that is not there yet, or is another process's. Which hosts are its own is not known.
    #[must_use]
    pub fn named(
        name: impl Into<String>,
        capabilities: impl Fn(&HostFacts) -> Option<Capabilities> + Send + Sync + 'static,
        address_fault: fn(&str) -> Option<String>,
    ) -> Self {
        Self { name: name.into(), capabilities: Arc::new(capabilities), made: Arc::new(|_| true), address_fault }
    }

    /// What it can do with the host, if that is known.
    pub(crate) fn capabilities(&self, facts: &HostFacts) -> Option<Capabilities> {
        (self.capabilities)(facts)
    }

    /// What it has against an address.
    pub(crate) fn address_fault(&self, address: &str) -> Option<String> {
        (self.address_fault)(address)
    }
}

/// The provisioners of a server.
#[derive(Clone, Default)]
pub struct ForeseenAll {
    /// The default first.
    pub all: Vec<Foreseen>,
    /// There may be others, of which nothing is known.
    pub is_open: bool,
}

impl ForeseenAll {
    fn of(&self, name: &str) -> Option<&Foreseen> {
        self.all.iter().find(|one| one.name == name)
    }

    /// The provisioner that the host has or gets, if that can be told, and what is wrong with what host or namespace name, a sentence.
    pub(crate) fn choose(
        &self,
        host: &BareMetalHost,
        of_namespace: Option<&str>,
    ) -> (Option<&Foreseen>, Option<String>) {
        let own = host.annotation(annotation::PROVISIONER);
        let wanted = own.or(of_namespace);
        let named = match wanted {
            Some(wanted) => self.of(wanted),
            None => self.all.first(),
        };
        let unknown =
            wanted.filter(|_| named.is_none() && !self.is_open).map(|wanted| self.unknown(wanted, own.is_some()));
        let id = host.status.as_ref().map(|status| status.provisioning.id.as_str()).unwrap_or_default();
        if id.is_empty() {
            return (named, unknown);
        }
        // Registration has fixed it: another annotation of the namespace is for hosts to come.
        let fault = unknown.filter(|_| own.is_some());
        let makers: Vec<&Foreseen> = self.all.iter().filter(|one| (one.made)(id)).collect();
        match (makers.as_slice(), named) {
            (makers, Some(named)) if makers.iter().any(|maker| maker.name == named.name) => (Some(named), fault),
            ([maker], named) => {
                let other = named.filter(|_| own.is_some()).map(|named| {
                    format!(
                        "annotation {}: the host is registered with \"{}\" and stays with it, not \"{}\": set it to {} or remove it; to have another, delete the \
                         host and declare it anew",
                        annotation::PROVISIONER,
                        maker.name,
                        named.name,
                        maker.name
                    )
                });
                (Some(maker), fault.or(other))
            }
            _ => (None, fault),
        }
    }

    fn unknown(&self, wanted: &str, is_own: bool) -> String {
        let known = self.all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
        let key = annotation::PROVISIONER;
        if is_own {
            return format!("annotation {key}: there is no such provisioner; this server has {known}");
        }
        let wanted: String = wanted.chars().filter(|c| !c.is_control()).take(64).collect();
        format!(
            "the namespace's annotation {key} is \"{wanted}\": there is no such provisioner; this server has {known}"
        )
    }
}
