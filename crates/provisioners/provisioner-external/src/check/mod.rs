//! Checks a worker by the kit: its machines, or what its kind has in their place, one a run, and what it says that it does to them.

mod numbered;

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use provisioner::{HostResource, MayAct, ObjectKey, Provisioner, Resource};
use provisioner_kit::{Condition, Effect, Kind, Point, Subject, Tested, Trail};

use crate::ask::Effects;
use crate::carried::Carried;
use crate::external::{Checking, External};
use crate::link::{Hold, Known, trouble};
use crate::site::Site;
use crate::transport::Connect;
use crate::wire::v1;

pub use numbered::Numbered;

/// Longest real time that one answer of a worker in another process may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A kind whose workers the kit judges.
pub trait Checkable: Carried + Tested {
    /// The worker's adapter as a provisioner of this kind.
    fn adapter(external: External<Self>) -> Arc<Self::Provisioner>;
}

impl Checkable for HostResource {
    fn adapter(external: External<Self>) -> Arc<dyn Provisioner> {
        Arc::new(external)
    }
}

/// Machines of a worker, as they are delivered.
pub trait Machines: Sync {
    /// Another one.
    fn machine(&self) -> Box<dyn CheckedMachine>;
}

/// One machine.
pub trait CheckedMachine: Send {
    /// Address of its BMC, or by what another kind finds it.
    fn address(&self) -> String;
    /// A server's process starts: how it reaches the worker.
    fn connect(&mut self) -> Arc<dyn Connect>;
    /// Whether it can be in this condition.
    fn can_be(&self, condition: Condition) -> bool;
    /// From now on it is, or is not any more.
    fn set(&mut self, condition: Condition, on: bool);
}

/// A worker that is checked.
pub struct Checked<R: Resource = HostResource> {
    /// Its entry.
    pub site: Site,
    /// What it has said of itself.
    pub known: Arc<Known<R>>,
    /// Its machines.
    pub machines: Box<dyn Machines + Send>,
    /// Held while it is waited for.
    pub hold: Option<Hold>,
    count: AtomicU64,
}

impl<R: Resource> Checked<R> {
    /// A worker that has been greeted.
    #[must_use]
    pub fn new(site: Site, known: Arc<Known<R>>, machines: Box<dyn Machines + Send>, hold: Option<Hold>) -> Self {
        Self { site, known, machines, hold, count: AtomicU64::new(0) }
    }
}

impl<R: Checkable> Kind<R> for Checked<R> {
    fn name(&self) -> &str {
        &self.site.name
    }

    fn machine(&self, trail: &Trail) -> Box<dyn Subject<R>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let machine = self.machines.machine();
        let checking = Checking {
            hold: self.hold.clone(),
            effects: Some(Arc::new(Watching(trail.clone()))),
            known: Some(Arc::clone(&self.known)),
            hangs: None,
        };
        Box::new(One { site: self.site.clone(), machine, checking, number })
    }
}

/// Enters what the worker says that it does.
struct Watching(Trail);

const fn kind(effect: v1::Effect) -> Option<Effect> {
    Some(match effect {
        v1::Effect::Unspecified => return None,
        v1::Effect::Boot => Effect::Boot,
        v1::Effect::Power => Effect::Power,
        v1::Effect::Media => Effect::Media,
        v1::Effect::Write => Effect::Write,
        v1::Effect::Wipe => Effect::Wipe,
        v1::Effect::Configure => Effect::Configure,
        v1::Effect::Inspect => Effect::Inspect,
        v1::Effect::Events => Effect::Events,
        v1::Effect::End => Effect::End,
        v1::Effect::Locate => Effect::Locate,
    })
}

#[async_trait]
impl Effects for Watching {
    async fn before(&self, _: &ObjectKey, _: v1::Effect, _: &str) {
        self.0.point(Point::BeforeEffect).await;
    }

    async fn after(&self, _: &ObjectKey, effect: v1::Effect, happened: bool, detail: &str) {
        if let Some(effect) = kind(effect).filter(|_| happened) {
            self.0.saw(effect, detail);
        }
        self.0.point(Point::AfterEffect).await;
    }
}

struct One<R: Resource> {
    site: Site,
    machine: Box<dyn CheckedMachine>,
    checking: Checking<R>,
    number: u64,
}

impl<R: Checkable> One<R> {
    fn declared(&self) -> (R::Facts, R::Access) {
        let namespace = self.site.namespaces.first().cloned().unwrap_or_else(|| "check".to_owned());
        let name = format!("machine-{}", self.number);
        let key = ObjectKey { namespace, uid: format!("uid-of-{name}"), name };
        R::declared(key, self.machine.address())
    }
}

impl<R: Checkable> Subject<R> for One<R> {
    fn start(&mut self, _: u64, _: MayAct) -> Arc<R::Provisioner> {
        R::adapter(External::checked(self.site.clone(), self.machine.connect(), self.checking.clone()))
    }

    fn stop(&mut self, _: u64) {}

    fn facts(&self) -> R::Facts {
        self.declared().0
    }

    fn access(&self) -> R::Access {
        self.declared().1
    }

    fn can_be(&self, condition: Condition) -> bool {
        self.machine.can_be(condition)
    }

    fn set(&mut self, condition: Condition, on: bool) {
        self.machine.set(condition, on);
    }
}

/// The condition on the wire.
#[must_use]
pub const fn condition(condition: Condition) -> v1::Condition {
    match condition {
        Condition::Slow => v1::Condition::Slow,
        Condition::Failing => v1::Condition::Failing,
        Condition::Refusing => v1::Condition::Refusing,
        Condition::Silent => v1::Condition::Silent,
        Condition::Busy => v1::Condition::Busy,
        Condition::Forgotten => v1::Condition::Forgotten,
        Condition::Another => v1::Condition::Another,
        Condition::Foreign => v1::Condition::Foreign,
        Condition::Occupied => v1::Condition::Occupied,
        Condition::Unread => v1::Condition::Unread,
    }
}

/// Keeps paused time still while a worker in another process is waited for, which takes real time; a worker that hangs lets it go on after half a
/// minute, so that the call's deadline comes. To be used within tokio's runtime.
#[must_use]
pub fn real_time() -> Hold {
    Arc::new(|| {
        let (over, waits) = mpsc::channel::<()>();
        // While a blocking task runs, paused time does not advance by itself.
        tokio::task::spawn_blocking(move || {
            // Both ends are what is waited for.
            let _ = waits.recv_timeout(PATIENCE);
        });
        let held: Box<dyn Any + Send> = Box::new(over);
        Box::new(held)
    })
}

/// What is asked of the worker's [`v1::trouble_service_server::TroubleService`].
type Wish = (v1::SetConditionRequest, mpsc::Sender<bool>);

/// Makes machines so, from a thread whose time is real.
pub struct Troubler(tokio::sync::mpsc::UnboundedSender<Wish>);

impl Troubler {
    /// Begins.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(connect: Arc<dyn Connect>) -> std::io::Result<Self> {
        let (sender, mut wishes) = tokio::sync::mpsc::unbounded_channel::<Wish>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("troubler".to_owned()).spawn(move || {
            runtime.block_on(async {
                while let Some((wish, answer)) = wishes.recv().await {
                    let set = tokio::time::timeout(PATIENCE, trouble(connect.as_ref(), wish)).await;
                    // Whoever asked has gone.
                    let _ = answer.send(set.unwrap_or(false));
                }
            });
        })?;
        Ok(Self(sender))
    }

    /// From now on the machine is so, or is not any more; false if it cannot be.
    pub fn set(&self, address: &str, condition: v1::Condition, on: bool) -> bool {
        let wish = v1::SetConditionRequest { address: address.to_owned(), condition: condition.into(), on };
        let (answered, answer) = mpsc::channel();
        self.0.send((wish, answered)).is_ok() && answer.recv().unwrap_or(false)
    }
}
