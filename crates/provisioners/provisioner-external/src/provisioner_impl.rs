//! The provisioner object of one worker.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bmc::Address;
use provisioner::{
    Capabilities, Cause, Failure, Host, HostContext, HostFacts, HostKey, Named, Provisioner, Recorded, Retry, WakeUps,
    Waker,
};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::ask::Effects;
use crate::convert;
use crate::host::ExternalHost;
use crate::keeper::keep;
use crate::limits::SHORT;
use crate::link::{Expected, Hold, Known, Link};
use crate::shared::{Hosts, Shared};
use crate::site::Site;
use crate::transport::Connect;
use crate::wire::v1;

/// How a provisioner is watched and timed by those who check it.
#[derive(Clone, Default)]
pub struct Checking {
    /// Held while the worker is waited for.
    pub hold: Option<Hold>,
    /// Sees effects.
    pub effects: Option<Arc<dyn Effects>>,
    /// What the worker has said of itself before.
    pub known: Option<Arc<Known>>,
    /// Notified when the worker hangs.
    pub hangs: Option<Arc<Notify>>,
}

/// A provisioner that is another program.
pub struct ExternalProvisioner {
    name: &'static str,
    site: Site,
    shared: Arc<Shared>,
    keeper: Mutex<Option<AbortHandle>>,
}

impl Drop for ExternalProvisioner {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.abort();
        }
    }
}

impl ExternalProvisioner {
    /// The provisioner of this entry, reached so. It is not connected to yet.
    #[must_use]
    pub fn new(site: Site, connect: Arc<dyn Connect>) -> Self {
        Self::checked(site, connect, Checking::default())
    }

    /// The same, of a program that this server has started: whoever looks after it hears by this that it hangs.
    #[must_use]
    pub fn started(site: Site, connect: Arc<dyn Connect>, hangs: Arc<Notify>) -> Self {
        Self::checked(site, connect, Checking { hangs: Some(hangs), ..Checking::default() })
    }

    /// The same, for those who check it.
    #[must_use]
    pub fn checked(site: Site, connect: Arc<dyn Connect>, checking: Checking) -> Self {
        let expected = Expected { name: site.name.clone(), id_prefix: site.id_prefix.clone() };
        let shared = Shared {
            name: site.name.clone(),
            id_prefix: site.id_prefix.clone(),
            deadline: site.deadline,
            link: Link::new(expected, connect, checking.hold.clone(), checking.known),
            waker: Waker::default(),
            room: Semaphore::new(site.calls),
            most_calls: site.calls,
            hold: checking.hold,
            effects: checking.effects,
            hosts: Mutex::new(Hosts::default()),
            calls: AtomicU64::new(0),
            heard: Arc::default(),
            hangs: checking.hangs,
        };
        // A registry's names last as long as the program, and there are as many as its file lists.
        let name = Box::leak(site.name.clone().into_boxed_str());
        Self { name, site, shared: Arc::new(shared), keeper: Mutex::new(None) }
    }

    /// Connects, and says what the worker says of itself.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub async fn greet(&self) -> Result<Arc<Known>, Failure> {
        Ok(self.shared.link.live().await?.known)
    }

    /// Whether the worker is connected, and the version of its program, as far as is known without asking.
    #[must_use]
    pub fn standing(&self) -> (bool, String) {
        let program = self.shared.link.known().map(|known| known.program.clone()).unwrap_or_default();
        (self.shared.link.is_connected(), program)
    }

    /// What its entry and the worker say of whom it serves is asked of those who choose it: a host that it has registered is not given to another, and
    /// is not left with its disks as they are because a list was edited.
    fn serves(&self, host: &HostFacts) -> Result<(), Failure> {
        let name = &self.site.name;
        let namespace = &host.key.namespace;
        let is_registered = !host.provisioning_id.is_empty();
        if !self.site.namespaces.is_empty() && !self.site.namespaces.contains(namespace) {
            let text = format!("use the provisioner \"{name}\": it is not for hosts of the namespace {namespace}");
            if is_registered {
                // An id is no more than a status says: it opens no namespace.
                let mut failure = Failure::new(Cause::NotServed, text);
                failure.retry = Retry::Held;
                return Err(failure.advise(
                    "the host is registered with it: add the namespace to the list of provisioners again, until the host is gone",
                ));
            }
            return Err(Shared::refused(
                Cause::NotServed,
                text,
                "choose another one, or have the namespace added to the list of provisioners",
            ));
        }
        if is_registered {
            return Ok(());
        }
        // A host that is let go may have lost its address.
        let Some((scheme, _)) = host.address.split_once("://") else { return Ok(()) };
        let said = self.shared.link.known();
        let scheme = scheme.to_ascii_lowercase();
        let fits = |schemes: &[String]| schemes.is_empty() || schemes.contains(&scheme);
        if fits(&self.site.schemes) && said.is_none_or(|known| fits(&known.schemes)) {
            return Ok(());
        }
        let scheme = terms::clean(&scheme, 64);
        let text = format!("reach the BMC: the provisioner \"{name}\" does not serve addresses of the scheme {scheme}");
        Err(Shared::refused(Cause::BmcAddressInvalid, text, "correct spec.bmc.address, or choose another provisioner"))
    }
}

impl Named for ExternalProvisioner {
    fn name(&self) -> &'static str {
        self.name
    }
}

#[async_trait]
impl Provisioner for ExternalProvisioner {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        self.shared.capabilities(host)
    }

    fn vouches(&self) -> bool {
        false
    }

    fn made(&self, id: &str) -> bool {
        id.strip_prefix(self.shared.id_prefix.as_str()).is_some_and(|rest| !rest.is_empty())
    }

    /// A BMC and a system behind it; of an address that this program does not know, what follows its scheme.
    fn machine_key(&self, address: &str) -> Option<String> {
        if let Ok(known) = Address::parse(address) {
            return Some(format!("{}{}", known.key(), known.system_path().unwrap_or_default()));
        }
        let (_, rest) = address.trim().split_once("://")?;
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest).trim_end_matches('/');
        (!rest.is_empty()).then(|| rest.to_ascii_lowercase())
    }

    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        self.serves(&context.facts)?;
        let mut capabilities = self.shared.capabilities(&context.facts);
        if self.shared.link.known().is_none() {
            // Whether the worker has them is seen when it is asked.
            (capabilities.health, capabilities.diagnose, capabilities.logs) = (true, true, true);
        }
        Ok(Box::new(ExternalHost { shared: Arc::clone(&self.shared), context, capabilities }))
    }

    fn has_news(&self, key: &HostKey) -> bool {
        self.shared.hosts().news.contains(&key.uid)
    }

    fn acknowledge_news(&self, key: &HostKey) {
        self.shared.hosts().news.remove(&key.uid);
    }

    fn subscribe(&self) -> WakeUps {
        let wake_ups = self.shared.waker.subscribe();
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() {
            *keeper = Some(tokio::spawn(keep(Arc::downgrade(&self.shared))).abort_handle());
        }
        wake_ups
    }

    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        self.shared.hosts().known.insert(key.uid.clone(), key.clone());
        let (shared, host, recorded) = (Arc::clone(&self.shared), convert::key(key), convert::recorded(recorded));
        tokio::spawn(async move {
            let Ok(live) = shared.link.live().await else { return };
            let request = v1::ExpectRequest { host: Some(host), recorded: Some(recorded) };
            // It is asked when the host's time comes in any case.
            let _ = timeout(SHORT, live.client().expect(request)).await;
        });
    }

    fn forget(&self, key: &HostKey) {
        // Others' hosts are not its business.
        if !self.shared.forget(key) {
            return;
        }
        let (shared, host) = (Arc::clone(&self.shared), convert::key(key));
        tokio::spawn(async move {
            let Ok(live) = shared.link.live().await else { return };
            // A worker that does not hear it keeps a little more than it needs.
            let _ = timeout(SHORT, live.client().forget(v1::ForgetRequest { host: Some(host) })).await;
        });
    }

    async fn close(&self) {
        // Who is not connected has no sessions by this server's orders that it could hear of now.
        if !self.shared.link.is_connected() {
            return;
        }
        let Ok(live) = self.shared.link.live().await else { return };
        if !matches!(timeout(SHORT, live.client().close(v1::CloseRequest {})).await, Ok(Ok(_))) {
            tracing::warn!(provisioner = %self.name, "the provisioner may have left sessions open");
        }
    }
}
