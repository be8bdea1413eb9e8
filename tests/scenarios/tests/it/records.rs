//! Records as provisioners get them: written over the revision that was read, and over no other.

use std::sync::{Arc, Mutex};

use api::metal3::ProvisioningState as State;
use api::metamorph::MachineRecord;
use async_trait::async_trait;
use kube::api::Api;
use provisioner::{
    Capabilities, Failure, Host, HostContext, HostFacts, HostKey, Named, Provisioner, Purpose, Record, Recorded,
    Registry, WakeUps,
};
use provisioner_fixture::FixtureProvisioner;
use scenarios::{Machines, Site};
use serde_json::Value;

/// The fixture, and the record that the controller gave it last.
struct Kept {
    fixture: FixtureProvisioner,
    record: Mutex<Option<Arc<dyn Record>>>,
}

impl Kept {
    fn new(machines: &Machines) -> Arc<Self> {
        Arc::new(Self { fixture: FixtureProvisioner::new(machines.clone()), record: Mutex::default() })
    }

    fn record(&self) -> Arc<dyn Record> {
        Arc::clone(self.record.lock().unwrap().as_ref().unwrap())
    }
}

impl Named for Kept {
    fn name(&self) -> &'static str {
        self.fixture.name()
    }
}

#[async_trait]
impl Provisioner for Kept {
    fn capabilities(&self, host: &HostFacts) -> Capabilities {
        self.fixture.capabilities(host)
    }
    fn made(&self, id: &str) -> bool {
        self.fixture.made(id)
    }
    fn machine_key(&self, address: &str) -> Option<String> {
        self.fixture.machine_key(address)
    }
    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        *self.record.lock().unwrap() = Some(Arc::clone(&context.record));
        self.fixture.host(context)
    }
    fn has_news(&self, key: &HostKey) -> bool {
        self.fixture.has_news(key)
    }
    fn acknowledge_news(&self, key: &HostKey) {
        self.fixture.acknowledge_news(key);
    }
    fn subscribe(&self) -> WakeUps {
        self.fixture.subscribe()
    }
    fn expect(&self, key: &HostKey, recorded: &Recorded) {
        self.fixture.expect(key, recorded);
    }
    fn forget(&self, key: &HostKey) {
        self.fixture.forget(key);
    }
    async fn close(&self) {
        self.fixture.close().await;
    }
}

/// What the API has: the revision, and the provisioner's own.
async fn stored(site: &Site) -> (u64, Value) {
    let records: Api<MachineRecord> = Api::default_namespaced(site.observer());
    let part = records.get("a").await.unwrap().spec.provisioner.unwrap();
    (part.revision, part.data)
}

#[test]
fn a_record_is_written_only_over_the_revision_that_was_read() {
    scenarios::run(31, async |site| {
        let machines = Machines::default();
        let (one, other) = (Kept::new(&machines), Kept::new(&machines));
        let controller = site.controller(Registry::new(Arc::clone(&one) as Arc<dyn Provisioner>));
        site.create_host("a").await;
        site.wait("a", 300, |host| host.state() == State::Available).await;
        controller.abort();
        let first = one.record();
        let read = first.current();
        let mut content = read.content.clone().unwrap();
        // This process, with what it had read before it wrote.
        assert_eq!(first.write(read.revision, content.clone(), Purpose::Note).await.unwrap(), read.revision + 1);
        content.data["number"] = 77.into();
        for purpose in [Purpose::Note, Purpose::Intent] {
            let refusal = first.write(read.revision, content.clone(), purpose).await.unwrap_err();
            assert!(refusal.to_string().contains("revision"), "{refusal}");
        }
        // Another process, which has written since; and this one, which knows so by then.
        let controller = site.controller(Registry::new(Arc::clone(&other) as Arc<dyn Provisioner>));
        for _ in 0..60 {
            if other.record.lock().unwrap().is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        controller.abort();
        let (second, mut newer) = (other.record(), content.clone());
        newer.data["number"] = 78.into();
        let revision = second.current().revision;
        second.write(revision, newer, Purpose::Note).await.unwrap();
        let after = stored(&site).await;
        assert_eq!((after.0, &after.1["number"]), (revision + 1, &Value::from(78)));
        for _ in 0..3 {
            first.write(revision, content.clone(), Purpose::Note).await.unwrap_err();
            assert_eq!(stored(&site).await, after, "what the other has recorded is gone");
        }
    });
}
