//! One host over a provisioner, for stories of a few calls.

use std::sync::Arc;
use std::time::Duration;

use provisioner::{
    Answer, BmcAccess, Call, Failure, HostContext, HostFacts, Outcome, Provisioner, RegisterRequest, Verdict, ask,
};
use provisioner_ironic::{Site, Transport};
use provisioner_kit::{MemoryHistory, MemoryMachine, MemoryRecord, paused_clock};

use crate::conformance::{access, facts, provisioner};

/// One host.
pub struct Host {
    pub provisioner: Arc<dyn Provisioner>,
    pub facts: HostFacts,
    pub access: BmcAccess,
    pub record: Arc<MemoryRecord>,
    pub machine: Arc<MemoryMachine>,
    pub now: provisioner::Now,
}

impl Host {
    pub fn new(transport: Arc<dyn Transport>, site: Site) -> Self {
        let provisioner: Arc<dyn Provisioner> = Arc::new(provisioner(transport, site));
        let (record, machine) = (Arc::default(), Arc::default());
        Self { provisioner, facts: facts("node-0"), access: access(), record, machine, now: paused_clock() }
    }

    /// The process is gone, and another has its place.
    pub fn restart(&mut self, transport: Arc<dyn Transport>, site: Site) {
        self.provisioner = Arc::new(provisioner(transport, site));
    }

    pub async fn look(&self, call: Call) -> Outcome<Answer> {
        let context = HostContext {
            facts: Arc::new(self.facts.clone()),
            bmc: Some(self.access.clone()),
            record: self.record.clone(),
            history: Arc::new(MemoryHistory::default()),
            machine: self.machine.clone(),
            now: self.now.clone(),
            may_act: Arc::new(|| true),
        };
        let mut host = self.provisioner.host(context)?;
        ask(host.as_mut(), call).await
    }

    /// Asks until it is done or has failed.
    pub async fn drive(&mut self, call: Call) -> Result<Answer, Failure> {
        for _ in 0..1000 {
            match self.look(call.clone()).await? {
                Verdict::Done(answer) => {
                    if let Answer::Registered(registered) = &answer {
                        self.facts.provisioning_id.clone_from(&registered.id);
                    }
                    return Ok(answer);
                }
                Verdict::Working(working) => tokio::time::sleep(working.look_again).await,
                Verdict::Waiting(waiting) => {
                    println!("{waiting:?}");
                    tokio::time::sleep(Duration::from_secs(5)).await;
                }
            }
        }
        panic!("{} does not come to its end", call.name());
    }

    pub async fn register(&mut self) -> Result<Answer, Failure> {
        self.drive(Call::Register(RegisterRequest::default())).await
    }
}
