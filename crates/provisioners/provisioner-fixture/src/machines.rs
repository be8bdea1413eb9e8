//! The machines: what is on them, what they are doing, and what was done to them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use provisioner::{Cause, Deployed, Failure, Method, Retry, Subscription};
use std::collections::BTreeSet;
use std::time::Duration;

/// Effects that are kept for each machine, the newest.
const MOST_EFFECTS: usize = 256;
/// Subscriptions that a machine takes.
const MOST_SUBSCRIPTIONS: usize = 32;
/// The setting that stands for its volumes.
pub(crate) const VOLUMES: &str = "raid";

/// How a machine can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trouble {
    /// Its work takes ten times as long.
    Slow,
    /// Its next work fails, once.
    Failing,
    /// Its next order is refused, once.
    Refusing,
    /// It does not answer.
    Silent,
    /// There is no room for its work.
    Busy,
    /// It is not known any more, until it is registered.
    Forgotten,
    /// Another one answers in its place.
    Another,
}

/// What was done to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Switched on.
    On,
    /// Switched off.
    Off,
    /// Started anew.
    Restart,
    /// Looked at from inside.
    Inspect,
    /// Written an image to.
    Provision,
    /// Booted from a medium.
    BootLive,
    /// Given a system by a method of its own.
    Deploy,
    /// Emptied.
    Deprovision,
    /// Erased.
    Erase,
    /// Changed by steps of hardware managers.
    Steps,
    /// Let go without being emptied.
    Vacate,
    /// Changed in its volumes, settings or firmware.
    Prepare,
    /// The same, in use.
    Service,
    /// Given a medium.
    Attach,
    /// Taken a medium from.
    Detach,
    /// Told to send its events.
    Subscribe,
    /// Told not to any more.
    Unsubscribe,
    /// Stopped in its work.
    Stop,
    /// Made to be found, by its light.
    Light,
    /// Its light was switched off.
    Darken,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Restart => "restart",
            Self::Inspect => "inspect",
            Self::Provision => "provision",
            Self::BootLive => "boot live",
            Self::Deploy => "deploy",
            Self::Deprovision => "deprovision",
            Self::Erase => "erase",
            Self::Steps => "steps",
            Self::Vacate => "vacate",
            Self::Prepare => "prepare",
            Self::Service => "service",
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Stop => "stop",
            Self::Light => "light",
            Self::Darken => "darken",
        })
    }
}

/// Who is told of each order that a machine is given: a test counts there, or stops the process.
#[async_trait]
pub trait Watch: Send + Sync {
    /// The order is on its way.
    async fn before(&self, address: &str, effect: Effect);
    /// It has happened, or was none: the machine was so already.
    async fn after(&self, address: &str, effect: Effect, happened: bool);
}

/// What a work leaves.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaves {
    /// Nothing.
    Nothing,
    /// A system of this owner.
    System(String, String),
    /// An empty machine, that is off.
    Emptiness,
    /// A machine that is off, and whose system is nobody's.
    Darkness,
    /// Other settings and firmware, by name.
    Firmware(BTreeMap<String, String>, BTreeMap<String, String>),
}

/// A work of a machine: one of an id is begun once.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// How it shows.
    pub effect: Effect,
    /// What it leaves.
    pub leaves: Leaves,
}

/// Where a work is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The machine was never told.
    Unknown,
    /// Under way.
    Running {
        /// 0 to 99.
        percent: u8,
        /// What is left of its time.
        left: Duration,
    },
    /// It is done.
    Done,
    /// It has failed.
    Failed,
}

struct Running {
    job: Job,
    begun: Timestamp,
    until: Timestamp,
    fails: bool,
    over: bool,
}

/// One machine.
#[derive(Default)]
pub struct Machine {
    /// Whether it is on.
    pub on: bool,
    /// What is on its disks, by URL or method, and whose it is; nobody's is empty.
    pub system: Option<(String, String)>,
    /// The medium that is in beside the system.
    pub medium: Option<String>,
    /// Who is sent its events, by id.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Settings of its firmware that were changed.
    pub settings: BTreeMap<String, String>,
    /// Firmware that was installed.
    pub firmware: BTreeMap<String, String>,
    /// The light by which a person finds it is lit.
    pub lit: bool,
    troubles: BTreeSet<Trouble>,
    work: Option<Running>,
    effects: Vec<Effect>,
    subscribed: u64,
}

impl Machine {
    /// It is in this trouble.
    pub fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// Where the work of this id is.
    pub fn standing(&self, id: &str, now: Timestamp) -> Standing {
        let Some(work) = self.work.as_ref().filter(|work| work.job.id == id) else { return Standing::Unknown };
        if work.over {
            return if work.fails { Standing::Failed } else { Standing::Done };
        }
        let (all, left) = (work.until.duration_since(work.begun), work.until.duration_since(now));
        let percent = 100 - (left.as_millis() * 100 / all.as_millis().max(1)).clamp(1, 100);
        Standing::Running {
            percent: u8::try_from(percent).unwrap_or(0),
            left: Duration::try_from(left).unwrap_or(Duration::ZERO),
        }
    }

    /// Begins a work, which ends the one before; false if it has been begun already.
    pub fn begin(&mut self, job: Job, time: Duration, now: Timestamp) -> bool {
        if self.work.as_ref().is_some_and(|work| work.job.id == job.id) {
            return false;
        }
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::ZERO);
        let time = if self.has(Trouble::Slow) { time.saturating_mul(10) } else { time };
        let until = now.checked_add(time).unwrap_or(now);
        let fails = self.troubles.remove(&Trouble::Failing);
        self.work = Some(Running { job, begun: now, until, fails, over: false });
        true
    }

    /// Begins the work of this id anew, as the machine is booted in the middle of it; false if it does not run.
    pub fn begin_again(&mut self, id: &str, time: Duration, now: Timestamp) -> bool {
        let Some(work) = self.work.take_if(|work| work.job.id == id && !work.over) else { return false };
        let fails = work.fails;
        let again = self.begin(work.job, time, now);
        if let Some(work) = &mut self.work {
            work.fails |= fails;
        }
        again
    }

    /// Ends the work of this id; false if it does not run.
    pub fn stop(&mut self, id: &str) -> bool {
        self.work.take_if(|work| work.job.id == id && !work.over).is_some()
    }

    /// The id of a subscription to this, and whether it is new.
    pub fn subscribe(&mut self, subscription: Subscription) -> Result<(bool, String), Failure> {
        let known = self.subscriptions.iter().find(|(_, known)| **known == subscription);
        if let Some((id, _)) = known {
            return Ok((false, id.clone()));
        }
        if self.subscriptions.len() >= MOST_SUBSCRIPTIONS {
            let text = format!("subscribe to events: the BMC has {MOST_SUBSCRIPTIONS} subscriptions, and no more");
            return Err(Failure::new(Cause::BmcRefused, text).advise("delete one that is not needed any more"));
        }
        self.subscribed += 1;
        let id = self.subscribed.to_string();
        self.subscriptions.insert(id.clone(), subscription);
        Ok((true, id))
    }

    /// What has come to its end by now.
    fn complete_due_work(&mut self, now: Timestamp) {
        let Some(work) = self.work.as_mut().filter(|work| !work.over && work.until <= now) else { return };
        work.over = true;
        if work.fails {
            return;
        }
        match work.job.leaves.clone() {
            Leaves::Nothing => {}
            Leaves::System(what, owner) => (self.system, self.on) = (Some((what, owner)), true),
            Leaves::Emptiness => (self.system, self.medium, self.on) = (None, None, false),
            Leaves::Darkness => {
                (self.medium, self.on) = (None, false);
                // Who gives it back as it is has no claim on it any more.
                if let Some((_, owner)) = &mut self.system {
                    owner.clear();
                }
            }
            Leaves::Firmware(settings, firmware) => {
                self.settings.extend(settings);
                self.firmware.extend(firmware);
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    all: Mutex<BTreeMap<String, Machine>>,
    watch: Option<Arc<dyn Watch>>,
    power_reads: AtomicU64,
}

/// All machines, by address: one is there as soon as somebody looks. Clones are of the same machines.
#[derive(Clone, Default)]
pub struct Machines(Arc<Inner>);

impl Machines {
    /// Machines whose orders are watched.
    #[must_use]
    pub fn watched(watch: Arc<dyn Watch>) -> Self {
        Self(Arc::new(Inner { watch: Some(watch), ..Inner::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Machine>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done to the machine at this address, the oldest first.
    #[must_use]
    pub fn effects(&self, address: &str) -> Vec<Effect> {
        self.lock().get(address).map(|machine| machine.effects.clone()).unwrap_or_default()
    }

    /// How often it was asked whether a machine is on, of all of them.
    #[must_use]
    pub fn power_reads(&self) -> u64 {
        self.0.power_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn power_is_read(&self) {
        self.0.power_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// What is on the machine at this address, and whose it is.
    #[must_use]
    pub fn system(&self, address: &str) -> Option<(String, String)> {
        self.lock().get(address).and_then(|machine| machine.system.clone())
    }

    /// The medium that is in beside the system of the machine at this address.
    #[must_use]
    pub fn medium(&self, address: &str) -> Option<String> {
        self.lock().get(address).and_then(|machine| machine.medium.clone())
    }

    /// The volumes of the machine at this address, as they were wished: a JSON text.
    #[must_use]
    pub fn volumes(&self, address: &str) -> Option<String> {
        self.lock().get(address).and_then(|machine| machine.settings.get(VOLUMES).cloned())
    }

    /// Whether the light of the machine at this address is lit.
    #[must_use]
    pub fn is_lit(&self, address: &str) -> bool {
        self.lock().get(address).is_some_and(|machine| machine.lit)
    }

    /// A machine that another process had in its memory, or upstream's fixture, unless it is known here already: in use, it has its host's system and is on.
    pub(crate) fn take_over(&self, address: &str, deployed: &Deployed, owner: String) {
        let what = match &deployed.method {
            Method::Custom(method) => Some(method.clone()),
            Method::Disk | Method::LiveIso => deployed.image.as_ref().map(|image| image.url.clone()),
        };
        self.lock().entry(address.to_owned()).or_insert_with(|| Machine {
            on: what.is_some() || deployed.externally,
            system: what.map(|what| (what, owner)),
            ..Machine::default()
        });
    }

    /// From now on the machine is in this trouble, or not any more.
    pub fn trouble(&self, address: &str, trouble: Trouble, on: bool) {
        let mut all = self.lock();
        let troubles = &mut all.entry(address.to_owned()).or_default().troubles;
        if on {
            troubles.insert(trouble);
        } else {
            troubles.remove(&trouble);
        }
    }

    /// Somebody else has put this on the machine, or taken away what was there.
    pub fn put(&self, address: &str, system: Option<(String, String)>) {
        self.lock().entry(address.to_owned()).or_default().system = system;
    }

    /// Looks at the machine at this time. Nothing is done to it.
    pub(crate) fn look<T>(&self, address: &str, now: Timestamp, look: impl FnOnce(&mut Machine) -> T) -> T {
        let mut all = self.lock();
        let machine = all.entry(address.to_owned()).or_default();
        machine.complete_due_work(now);
        look(machine)
    }

    /// Tells the machine something. `act` says whether that changed anything.
    pub(crate) async fn order<T: Send>(
        &self,
        address: &str,
        (effect, now): (Effect, Timestamp),
        act: impl FnOnce(&mut Machine) -> Result<(bool, T), Failure> + Send,
    ) -> Result<T, Failure> {
        if let Some(watch) = &self.0.watch {
            watch.before(address, effect).await;
        }
        let result = self.look(address, now, |machine| {
            if machine.has(Trouble::Silent) {
                return Err(silent(address));
            }
            if machine.troubles.remove(&Trouble::Refusing) {
                let text = format!("tell the machine at {address}: {effect}: it refuses");
                return Err(Failure::new(Cause::BmcRefused, text).advise("it is tried again"));
            }
            let (happened, result) = act(machine)?;
            if happened {
                machine.effects.push(effect);
                let surplus = machine.effects.len().saturating_sub(MOST_EFFECTS);
                machine.effects.drain(..surplus);
            }
            Ok((happened, result))
        });
        if let Some(watch) = &self.0.watch {
            watch.after(address, effect, matches!(result, Ok((true, _)))).await;
        }
        result.map(|(_, result)| result)
    }
}

/// The machine does not answer.
pub fn silent(address: &str) -> Failure {
    let mut failure = Failure::new(Cause::BmcUnreachable, format!("reach the BMC at {address}: nothing answers"));
    failure.retry = Retry::Later;
    failure.advise("look at the BMC and its network; it is tried again")
}
