//! Hosts as a kind of resource: the contract's small traits behind calls that are data.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Answer, Asked, CONTRACT_VERSION, Call, Capabilities, Given, HostContext, HostFacts, HostKey, Outcome, Provides,
    Provisioner, Record, Recorded, Resource, WakeUps, ask,
};

/// A BareMetalHost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostResource;

impl Resource for HostResource {
    const KIND: &'static str = "host";
    const VERSION: u32 = CONTRACT_VERSION;
    type Facts = HostFacts;
    type Call = Call;
    type Answer = Answer;
    type Capabilities = Capabilities;
    type Context = HostContext;
    type Provisioner = dyn Provisioner;

    fn key(facts: &HostFacts) -> &HostKey {
        &facts.key
    }
}

impl Asked for Call {
    fn name(&self) -> &'static str {
        Self::name(self)
    }
}

impl Given<HostResource> for HostContext {
    fn facts(&self) -> &HostFacts {
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

#[async_trait]
impl Provides<HostResource> for dyn Provisioner {
    fn capabilities(&self, facts: &HostFacts) -> Capabilities {
        Provisioner::capabilities(self, facts)
    }
    async fn ask(&self, context: HostContext, call: Call) -> Outcome<Answer> {
        let mut host = self.host(context)?;
        ask(host.as_mut(), call).await
    }
    fn subscribe(&self) -> WakeUps {
        Provisioner::subscribe(self)
    }
    fn has_news(&self, key: &HostKey) -> bool {
        Provisioner::has_news(self, key)
    }
    fn acknowledge_news(&self, key: &HostKey) {
        Provisioner::acknowledge_news(self, key);
    }
    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        Provisioner::expect(self, key, recorded);
    }
    fn forget(&self, key: &HostKey) {
        Provisioner::forget(self, key);
    }
    async fn close(&self) {
        Provisioner::close(self).await;
    }
}
