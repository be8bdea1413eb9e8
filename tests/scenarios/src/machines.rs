//! Machines that take their time and do what they are told: a provisioner for what is about the controller alone. What it
//! remembers, it remembers like a machine does, whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use inventory::HardwareDetails;
use provisioner::{
    AdoptRequest, Capabilities, CleaningRequest, Deploy, Failure, Host, HostContext, HostFacts, HostKey, Inspect,
    InspectRequest, Manage, Named, Outcome, Power, PowerRequest, PowerWish, ProvisionRequest, Provisioner, Recorded,
    RegisterRequest, Registered, ReleaseRequest, Verdict, WakeUps, Waker,
};
use tokio::time::Instant;

/// How long each kind of work takes.
const WORK: Duration = Duration::from_secs(90);

/// One machine.
#[derive(Default)]
struct Machine {
    on: bool,
    image: Option<String>,
    begun: Option<(&'static str, Instant)>,
    /// What was done to it, in order.
    effects: Vec<String>,
}

/// All machines, by address. Clones are of the same machines.
#[derive(Clone, Default)]
pub struct Machines {
    all: Arc<Mutex<BTreeMap<String, Machine>>>,
    waker: Arc<Waker>,
    calls: Arc<Mutex<u64>>,
}

impl Machines {
    /// What was done to the machine whose address ends so, in order.
    pub fn effects(&self, name: &str) -> Vec<String> {
        let found = self.lock();
        found.iter().filter(|(address, _)| address.ends_with(name)).flat_map(|(_, m)| m.effects.clone()).collect()
    }

    /// How often the power of a machine was asked for.
    pub fn powers(&self) -> u64 {
        *self.calls()
    }

    /// Wakes the controller for a host of which there is nothing new.
    pub fn wake(&self, namespace: &str, name: &str) {
        let key = HostKey { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        self.waker.wake(&key);
    }

    fn calls(&self) -> MutexGuard<'_, u64> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Machine>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Named for Machines {
    fn name(&self) -> &'static str {
        "machines"
    }
}

#[async_trait]
impl Provisioner for Machines {
    fn capabilities(&self, _: &HostFacts) -> Capabilities {
        Capabilities::default()
    }

    fn machine_key(&self, address: &str) -> Option<String> {
        Some(address.to_owned())
    }

    fn host(&self, context: HostContext) -> Result<Box<dyn Host>, Failure> {
        Ok(Box::new(OneHost { machines: self.clone(), context }))
    }

    fn has_news(&self, _: &HostKey) -> bool {
        false
    }

    fn heard(&self, _: &HostKey) {}

    fn subscribe(&self) -> WakeUps {
        self.waker.subscribe()
    }

    fn expect(&self, _: &HostKey, _: &Recorded) {}

    fn forget(&self, _: &HostKey) {}

    async fn close(&self) {}
}

impl Host for OneHost {}

struct OneHost {
    machines: Machines,
    context: HostContext,
}

impl OneHost {
    fn with<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> T {
        let address = self.context.bmc.as_ref().map(|bmc| bmc.address.clone()).unwrap_or_default();
        act(self.machines.lock().entry(address).or_default())
    }

    /// Work that is begun once, goes on without anybody, and is done after its time.
    fn work<T>(&self, what: &'static str, done: impl FnOnce(&mut Machine) -> T) -> Outcome<T> {
        self.with(|machine| match machine.begun {
            Some((begun, since)) if begun == what && since.elapsed() >= WORK => {
                machine.begun = None;
                Ok(Verdict::Done(done(machine)))
            }
            Some((begun, _)) if begun == what => Ok(Verdict::working(what, 10)),
            _ => {
                machine.begun = Some((what, Instant::now()));
                machine.effects.push(what.to_owned());
                Ok(Verdict::working(what, 10))
            }
        })
    }
}

#[async_trait]
impl Manage for OneHost {
    async fn register(&mut self, _: RegisterRequest) -> Outcome<Registered> {
        let (known, own) = (self.context.provisioning_id.clone(), self.context.key.uid.clone());
        let id = if known.is_empty() { own } else { known };
        Ok(Verdict::Done(Registered { id, powered_on: Some(self.with(|m| m.on)) }))
    }

    async fn adopt(&mut self, _: AdoptRequest) -> Outcome<()> {
        Ok(Verdict::Done(()))
    }

    async fn release(&mut self, _: ReleaseRequest) -> Outcome<()> {
        Ok(Verdict::Done(()))
    }
}

#[async_trait]
impl Power for OneHost {
    async fn power_state(&mut self) -> Outcome<Option<bool>> {
        *self.machines.calls() += 1;
        Ok(Verdict::Done(Some(self.with(|m| m.on))))
    }

    async fn set_power(&mut self, request: PowerRequest) -> Outcome<bool> {
        self.with(|machine| {
            let on = request.power == PowerWish::On;
            if machine.on != on {
                machine.on = on;
                machine.effects.push(if on { "on" } else { "off" }.to_owned());
            }
            Ok(Verdict::Done(on))
        })
    }
}

#[async_trait]
impl Inspect for OneHost {
    async fn inspect(&mut self, _: InspectRequest) -> Outcome<Box<HardwareDetails>> {
        self.work("inspect", |_| Box::default())
    }
}

#[async_trait]
impl Deploy for OneHost {
    async fn provision(&mut self, request: ProvisionRequest) -> Outcome<()> {
        let url = request.image.url.clone();
        if self.with(|m| m.image.as_ref() == Some(&url)) {
            return Ok(Verdict::Done(()));
        }
        self.work("provision", |machine| (machine.image, machine.on) = (Some(url), true))
    }

    async fn deprovision(&mut self, _: CleaningRequest) -> Outcome<()> {
        if self.with(|m| m.image.is_none()) {
            return Ok(Verdict::Done(()));
        }
        self.work("deprovision", |machine| (machine.image, machine.on) = (None, false))
    }
}
