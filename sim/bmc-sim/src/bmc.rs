//! One BMC: its state, and its machine's reaction to power changes.

use std::{
    collections::BTreeMap,
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    ailments::Ailment,
    config::MachineConfig,
    faults::Faults,
    journal::{EventLog, RequestLog},
    machine::{BootPlan, Command, Exit, Machine, MachineError, Running, Started},
    media::{MediaError, MediaLog, MediaSource, Medium},
    redfish::{
        events::Subscriptions,
        push::{self, Pushes},
        sessions::Sessions,
        tasks::Tasks,
    },
    settings::Settings,
    traffic::Traffic,
};

/// How long a listener may take to open or close.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);

/// Ailments with which a machine starts nothing.
const STUCK: [Ailment; 3] = [Ailment::BootStuckMemory, Ailment::BootStuckPci, Ailment::BootStuckOs];

/// State shared by the BMCs of one simulator.
pub struct Shared {
    /// Changes of state.
    pub events: EventLog,
    /// The last request's number.
    pub requests: AtomicU64,
    /// Where media are fetched from.
    pub media: MediaSource,
    /// When the simulator started.
    pub started: tokio::time::Instant,
    /// The same, by the clock.
    pub made: jiff::Timestamp,
    /// The clock of all BMCs.
    pub now: Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>,
}

/// The boot override of a system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BootOverride {
    /// `Disabled`, `Once` or `Continuous`.
    pub enabled: String,
    /// `None`, `Cd`, `Hdd`, …
    pub target: String,
    /// `UEFI` or `Legacy`.
    pub mode: String,
}

impl Default for BootOverride {
    fn default() -> Self {
        Self { enabled: "Disabled".to_owned(), target: "None".to_owned(), mode: "UEFI".to_owned() }
    }
}

/// The state of a system that clients can change, apart from its power.
#[derive(Clone, Debug)]
pub struct SystemState {
    /// The boot override.
    pub boot: BootOverride,
    /// Whether Secure Boot will be on at the next boot.
    pub secure_boot: bool,
    /// Whether it was at the last.
    pub secure_boot_now: bool,
    /// Settings of the firmware that differ from those it was made with.
    pub bios: BTreeMap<String, Value>,
    /// Those that the next restart brings.
    pub bios_pending: BTreeMap<String, Value>,
    /// When settings were last applied, and those that were dropped then.
    pub bios_applied: Option<(jiff::Timestamp, Vec<String>)>,
    /// The asset tag.
    pub asset_tag: String,
    /// `Off`, `Lit` or `Blinking`.
    pub indicator: String,
}

/// State that is kept across restarts of the simulator.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    secure_boot: Option<bool>,
    boots: u64,
    bios: BTreeMap<String, Value>,
    bios_pending: BTreeMap<String, Value>,
}

/// The power state and the running software, as others see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PowerView {
    /// Whether the system is on.
    pub on: bool,
    /// What runs.
    pub running: Running,
    /// Boots so far, over the machine's life.
    pub boots: u64,
    /// Process id of the running software, if it is a process.
    pub pid: Option<u32>,
    /// Details of the last start.
    pub detail: Value,
    /// How the last run ended on its own, if badly, or why the last start failed.
    pub failure: Option<String>,
    /// When it was last switched on or off, or restarted.
    #[serde(skip)]
    pub since: tokio::time::Instant,
    /// When it was last started or reset, in this life of the simulator.
    #[serde(skip)]
    pub last_reset: Option<jiff::Timestamp>,
}

struct Power {
    /// Counts starts and stops: a run that ended before the last of them is history.
    generation: u64,
    commands: Option<mpsc::Sender<Command>>,
    restart_after_off: bool,
}

/// Why a reset was not done.
#[derive(Debug, thiserror::Error)]
pub enum PowerError {
    /// The system is in that state already.
    #[error("the system is {0} already")]
    Already(&'static str),
    /// The machine did not start.
    #[error("the machine did not start")]
    Machine(#[from] MachineError),
}

/// One BMC and its machine.
pub struct Bmc {
    /// Its configuration.
    pub config: MachineConfig,
    /// State shared with other BMCs.
    pub shared: Arc<Shared>,
    /// Its behaviour.
    pub settings: watch::Sender<Settings>,
    /// Whether its port is listened on; none when it has no listener.
    pub listening: watch::Sender<Option<bool>>,
    /// User name and password.
    pub account: Mutex<(String, String)>,
    /// Sessions.
    pub sessions: Mutex<Sessions>,
    /// Subscriptions to its events.
    pub subscriptions: Mutex<Subscriptions>,
    /// Streams of them.
    pub pushes: Pushes,
    /// Since when it has its present ailments.
    pub ailing: Mutex<jiff::Timestamp>,
    /// Tasks.
    pub tasks: Mutex<Tasks>,
    /// Faults of requests.
    pub faults: Faults,
    /// Requests it got.
    pub requests: RequestLog,
    /// What went over the connections to it.
    pub traffic: Arc<Traffic>,
    /// The fetches for its drive.
    pub media_log: Arc<MediaLog>,
    system: Mutex<SystemState>,
    drive: Mutex<Option<Arc<Medium>>>,
    machine: Arc<dyn Machine>,
    power: tokio::sync::Mutex<Power>,
    view: watch::Sender<PowerView>,
    kept: PathBuf,
}

/// Locks a mutex, even if a thread died while it held it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bmc {
    /// A BMC in front of `machine`, switched off. The file `kept` stores its state across restarts of the simulator.
    #[must_use]
    pub fn new(
        config: MachineConfig,
        shared: Arc<Shared>,
        account: (String, String),
        machine: Arc<dyn Machine>,
        kept: PathBuf,
    ) -> Arc<Self> {
        let before = std::fs::read(&kept).ok().and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
        let before = before.unwrap_or_default();
        let secure_boot = before.secure_boot.unwrap_or(config.secure_boot);
        let system = SystemState {
            boot: BootOverride::default(),
            secure_boot,
            secure_boot_now: secure_boot,
            bios: before.bios,
            bios_pending: before.bios_pending,
            bios_applied: None,
            asset_tag: String::new(),
            indicator: "Off".to_owned(),
        };
        let view = PowerView {
            on: false,
            running: Running::Off,
            boots: before.boots,
            pid: None,
            detail: Value::Null,
            failure: None,
            since: tokio::time::Instant::now(),
            last_reset: None,
        };
        Arc::new(Self {
            settings: watch::Sender::new(config.settings.clone()),
            listening: watch::Sender::new(None),
            account: Mutex::new(account),
            sessions: Mutex::default(),
            subscriptions: Mutex::default(),
            pushes: Pushes::default(),
            ailing: Mutex::new(shared.made),
            tasks: Mutex::default(),
            faults: Faults::default(),
            requests: RequestLog::default(),
            traffic: Arc::default(),
            media_log: Arc::default(),
            system: Mutex::new(system),
            drive: Mutex::default(),
            machine,
            power: tokio::sync::Mutex::new(Power { generation: 0, commands: None, restart_after_off: false }),
            view: watch::Sender::new(view),
            kept,
            config,
            shared,
        })
    }

    /// Records a change of state.
    pub fn event(&self, kind: &'static str, data: Value) {
        self.shared.events.push(&self.config.id, kind, data);
    }

    /// Changes the BMC's behaviour; returns when a change of listening has taken effect.
    ///
    /// # Errors
    /// The patch is invalid for the settings.
    pub async fn change_settings(&self, patch: &Value) -> Result<Settings, serde_json::Error> {
        let before = self.settings.borrow().clone();
        let changed = before.patched(patch)?;
        if changed.ailments != before.ailments {
            *lock(&self.ailing) = (self.shared.now)();
        }
        self.settings.send_replace(changed.clone());
        push::tell_of_change(self, &before.ailments, &changed.ailments);
        self.event("settings", patch.clone());
        let mut listening = self.listening.subscribe();
        let followed = listening.wait_for(|listening| listening.is_none_or(|listening| listening != changed.refuse));
        if tokio::time::timeout(LISTEN_LIMIT, followed).await.is_err() {
            tracing::warn!(machine = self.config.id, "the listener did not follow its settings");
        }
        Ok(changed)
    }

    /// Number for a new request.
    pub fn next_request(&self) -> u64 {
        self.shared.requests.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The power and what runs.
    #[must_use]
    pub fn power(&self) -> PowerView {
        self.view.borrow().clone()
    }

    /// Where the machine's parts are.
    #[must_use]
    pub fn parts(&self) -> Value {
        self.machine.parts()
    }

    /// The state of the system that clients can change.
    #[must_use]
    pub fn system(&self) -> SystemState {
        lock(&self.system).clone()
    }

    /// Changes the system's state.
    pub fn change_system(&self, change: impl FnOnce(&mut SystemState)) {
        let (before, after) = {
            let mut system = lock(&self.system);
            let before = system.clone();
            change(&mut system);
            (before, system.clone())
        };
        if before.boot != after.boot {
            self.event("override", json!(after.boot));
        }
        if before.secure_boot != after.secure_boot {
            self.event("secureBoot", json!({ "enabled": after.secure_boot }));
            self.keep();
        }
        if (&before.bios, &before.bios_pending) != (&after.bios, &after.bios_pending) {
            self.event("bios", json!({ "changed": after.bios, "pending": after.bios_pending }));
            self.keep();
        }
    }

    /// Writes the state that is kept across restarts.
    fn keep(&self) {
        let system = self.system();
        let kept = Kept {
            secure_boot: Some(system.secure_boot),
            boots: self.view.borrow().boots,
            bios: system.bios,
            bios_pending: system.bios_pending,
        };
        let half = self.kept.with_extension("part");
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        if let Err(error) = std::fs::write(&half, bytes).and_then(|()| std::fs::rename(&half, &self.kept)) {
            tracing::warn!(%error, path = %self.kept.display(), "keeping the machine's state");
        }
    }

    /// The medium in the drive.
    #[must_use]
    pub fn medium(&self) -> Option<Arc<Medium>> {
        lock(&self.drive).clone()
    }

    /// Inserts a medium, after the checks that a BMC makes. Returns false if the drive is occupied.
    ///
    /// # Errors
    /// The image cannot be inserted.
    pub async fn insert(&self, image: &str) -> Result<bool, MediaError> {
        if self.medium().is_some() {
            return Ok(false);
        }
        let source = self.shared.media.clone();
        let medium = Medium::insert(source, image, self.settings.subscribe(), self.media_log.clone()).await?;
        {
            let mut drive = lock(&self.drive);
            if drive.is_some() {
                return Ok(false);
            }
            *drive = Some(Arc::new(medium));
        }
        let size = self.medium().map(|medium| medium.size());
        self.event("media", json!({ "inserted": true, "image": image, "size": size }));
        Ok(true)
    }

    /// Ejects the medium, even in the middle of reads. Returns false if the drive was empty.
    pub fn eject(&self) -> bool {
        let Some(medium) = lock(&self.drive).take() else { return false };
        medium.eject();
        self.event("media", json!({ "inserted": false, "image": medium.printable_url() }));
        true
    }

    /// The source of the next boot; consumes an override for one boot.
    fn boot_plan(&self, number: u64) -> BootPlan {
        let mut wanted = None;
        let mut secure_boot = false;
        let (stuck, ailments) = {
            let settings = self.settings.borrow();
            (settings.bios_stuck, settings.ailments.clone())
        };
        self.change_system(|system| {
            let pending = std::mem::take(&mut system.bios_pending);
            if !pending.is_empty() {
                let dropped = if stuck { pending.keys().cloned().collect() } else { Vec::new() };
                system.bios_applied = Some(((self.shared.now)(), dropped));
            }
            if !stuck {
                system.bios.extend(pending);
            }
            if system.boot.enabled != "Disabled" {
                wanted = Some(system.boot.target.clone());
            }
            if system.boot.enabled == "Once" {
                system.boot = BootOverride { mode: system.boot.mode.clone(), ..BootOverride::default() };
            }
            system.secure_boot_now = system.secure_boot;
            secure_boot = system.secure_boot;
        });
        let ignored = ailments.has(Ailment::OverrideIgnored);
        let from_drive = !ignored && matches!(wanted.as_deref(), Some("Cd" | "UsbCd"));
        let medium = if from_drive { self.medium() } else { None };
        BootPlan { medium, secure_boot, number }
    }

    /// Switches the system on.
    ///
    /// # Errors
    /// It is on already, or the machine did not start.
    pub async fn power_on(self: &Arc<Self>) -> Result<(), PowerError> {
        let mut power = self.power.lock().await;
        if self.view.borrow().on {
            return Err(PowerError::Already("on"));
        }
        self.start(&mut power).await.map_err(PowerError::Machine)
    }

    /// Cuts the power.
    ///
    /// # Errors
    /// It is off already.
    pub async fn force_off(&self) -> Result<(), PowerError> {
        let mut power = self.power.lock().await;
        if !self.view.borrow().on {
            return Err(PowerError::Already("off"));
        }
        Self::stop(&mut power).await;
        self.set_off("forced");
        Ok(())
    }

    /// Cuts the power and switches the system on again.
    ///
    /// # Errors
    /// It is off, or the machine did not start.
    pub async fn force_restart(self: &Arc<Self>) -> Result<(), PowerError> {
        let mut power = self.power.lock().await;
        if !self.view.borrow().on {
            return Err(PowerError::Already("off"));
        }
        Self::stop(&mut power).await;
        self.event("reset", json!({ "by": "bmc" }));
        self.start(&mut power).await.map_err(PowerError::Machine)
    }

    /// Presses the power button of a running system: its software may shut down, now or later or never. With `restart`, the system is then switched
    /// on again.
    ///
    /// # Errors
    /// It is off.
    pub async fn press_button(self: &Arc<Self>, restart: bool) -> Result<(), PowerError> {
        let mut power = self.power.lock().await;
        let view = self.power();
        if !view.on {
            return Err(PowerError::Already("off"));
        }
        if let Some(commands) = &power.commands {
            let sent = commands.send(Command::Button).await.is_ok();
            power.restart_after_off = restart && sent;
        } else if view.running != Running::Hung {
            // The imaginary system on the disk of a fake machine, or the firmware's menu, obeys at once.
            power.generation += 1;
            self.set_off("button");
            if restart {
                self.start(&mut power).await?;
            }
        }
        Ok(())
    }

    async fn start(self: &Arc<Self>, power: &mut Power) -> Result<(), MachineError> {
        let number = self.view.borrow().boots + 1;
        let plan = self.boot_plan(number);
        power.generation += 1;
        power.restart_after_off = false;
        let source = plan.medium.as_ref().map(|medium| medium.printable_url());
        let was_on = self.view.borrow().on;
        let started = if self.settings.borrow().ailments.any(&STUCK) {
            // Its firmware never comes to what it was to start.
            Ok(Started { running: Running::Hung, detail: Value::Null, process: None })
        } else {
            self.machine.start(&plan).await
        };
        match started {
            Ok(started) => {
                let pid = started.process.as_ref().map(|process| process.pid);
                self.view.send_modify(|view| {
                    let (running, detail) = (started.running, started.detail.clone());
                    let since = tokio::time::Instant::now();
                    let last_reset = Some((self.shared.now)());
                    *view =
                        PowerView { on: true, running, boots: number, pid, detail, failure: None, since, last_reset };
                });
                self.keep();
                if !was_on {
                    self.event("power", json!({ "state": "On" }));
                }
                let boot = json!({ "number": number, "medium": source, "running": started.running, "pid": pid });
                self.event("boot", boot);
                power.commands = None;
                if let Some(process) = started.process {
                    power.commands = Some(process.commands);
                    tokio::spawn(self.clone().follow(power.generation, process.exit));
                }
                Ok(())
            }
            Err(error) => {
                let failure = describe(&error);
                tracing::warn!(machine = self.config.id, failure, "the machine did not start");
                self.event("failure", json!({ "failure": failure }));
                power.commands = None;
                self.set_off("failure");
                self.view.send_modify(|view| view.failure = Some(failure));
                Err(error)
            }
        }
    }

    /// Kills the running software, and returns when it has ended.
    async fn stop(power: &mut Power) {
        power.generation += 1;
        power.restart_after_off = false;
        if let Some(commands) = power.commands.take() {
            let (done, dead) = oneshot::channel();
            if commands.send(Command::Kill(done)).await.is_ok() {
                // An error means that it ended on its own meanwhile.
                let _ = dead.await;
            }
        }
    }

    fn set_off(&self, why: &str) {
        let was_on = self.view.borrow().on;
        self.view.send_modify(|view| {
            (view.on, view.running, view.pid) = (false, Running::Off, None);
            view.since = tokio::time::Instant::now();
        });
        if was_on {
            self.event("power", json!({ "state": "Off", "why": why }));
        }
    }

    /// Waits for the end of a run and reacts to it. Boxed: it starts the machine, which calls this again.
    fn follow(
        self: Arc<Self>,
        generation: u64,
        exit: oneshot::Receiver<Exit>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            // An error means that it was ended by force, and the caller of that handles the rest.
            let Ok(exit) = exit.await else { return };
            let mut power = self.power.lock().await;
            if power.generation != generation {
                return;
            }
            power.commands = None;
            match exit {
                Exit::PowerOff if !power.restart_after_off => {
                    power.generation += 1;
                    self.set_off("guest");
                }
                Exit::PowerOff | Exit::Reset => {
                    self.event("reset", json!({ "by": "guest" }));
                    // The failure is in the view and among the events.
                    let _ = self.start(&mut power).await;
                }
                Exit::Crashed(why) => {
                    power.generation += 1;
                    self.view.send_modify(|view| {
                        (view.running, view.pid, view.failure) = (Running::Hung, None, Some(why.clone()));
                    });
                    self.event("crash", json!({ "why": why }));
                }
            }
        })
    }
}

/// An error with its causes, in one line.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
