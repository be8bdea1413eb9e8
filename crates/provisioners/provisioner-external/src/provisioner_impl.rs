//! A worker of hosts as the contract's provisioner.

use std::sync::Arc;

use async_trait::async_trait;
use bmc::Address;
use provisioner::{
    Capabilities, Failure, Host, HostContext, HostFacts, HostKey, HostResource, Provides, Provisioner, Recorded,
    WakeUps,
};

use crate::external::External;
use crate::host::ExternalHost;

/// A provisioner of hosts that is another program.
pub type ExternalProvisioner = External<HostResource>;

#[async_trait]
impl Provisioner for ExternalProvisioner {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        Provides::capabilities(self, host)
    }

    fn learn(&self, host: &HostFacts) {
        if self.serves(host).is_ok() {
            self.shared.learn(host);
        }
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
        Provides::has_news(self, key)
    }

    fn acknowledge_news(&self, key: &HostKey) {
        Provides::acknowledge_news(self, key);
    }

    fn subscribe(&self) -> WakeUps {
        Provides::subscribe(self)
    }

    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        Provides::expect(self, key, recorded);
    }

    fn forget(&self, key: &HostKey) {
        Provides::forget(self, key);
    }

    async fn close(&self) {
        Provides::close(self).await;
    }
}
