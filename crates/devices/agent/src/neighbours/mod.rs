//! Listening for LLDP on all ports, beside the agent's other work.
//!
//! Switches speak every 30 s, so that whoever wants to hear all of them has to listen for longer than that. A [`Listener`] therefore begins when the agent does:
//! quietly, by sockets that change nothing on the machine, because most boots are for other work. Only an inspection opens the ports up (a firmware that keeps
//! LLDP for itself is told not to, ports that are down are brought up, and both are undone at the end), waits for what is missing ([`watch`]), and takes what
//! was heard. So ports of the agent's own network have been listened on for a while when an inspection is ordered, and it ends as soon as each port with a link was
//! heard.
//!
//! The kernel's parameter `metamorph.lldp=SECONDS` says how long a port with a link is listened on, 60 at most; 0 waits for none. An agent that an Ironic has
//! booted does not listen.

mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use inventory::{HardwareDetails, LinkReport};

use crate::machine::{Heard, Hearing, Machine, Port};
use crate::text::chain;
use crate::tree::Tree;
use watch::Watch;

pub use watch::{LONGEST, PATIENCE};

/// How often ports are looked at.
const STEP: Duration = Duration::from_millis(250);

/// Looks after which an inspection is asked whether it goes on: each answer is a report to the server.
const ASKED_EVERY: u32 = 20;

/// Most ports that are listened on.
const MAX_PORTS: usize = 128;

/// Most frames that are taken from a port at one look: whoever floods it is heard no faster.
const MAX_FRAMES: usize = 64;

/// Listens from its beginning until it is dropped.
pub struct Listener {
    machine: Arc<dyn Machine>,
    shared: Arc<Shared>,
    patience: Duration,
}

struct Shared {
    begun: Instant,
    state: Mutex<State>,
    over: AtomicBool,
}

#[derive(Default)]
struct State {
    watch: Watch,
    open: BTreeMap<String, Box<dyn Port>>,
    /// An inspection has opened the ports up, those that come later, too.
    is_opened: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, machine: &dyn Machine) {
        self.state().look(machine, self.begun.elapsed());
    }

    /// One look of the thread that listens quietly; false when it is over.
    fn goes_on(&self, machine: &dyn Machine) -> bool {
        let mut state = self.state();
        let goes_on = !self.over.load(Ordering::Relaxed);
        if goes_on {
            state.look(machine, self.begun.elapsed());
        }
        goes_on
    }
}

impl State {
    /// Listens on ports that are new, and takes what has come.
    fn look(&mut self, machine: &dyn Machine, now: Duration) {
        let ports: Vec<String> = machine.ports().into_iter().take(MAX_PORTS).collect();
        // A card that is removed and comes back under its name is another to the kernel.
        self.watch.keep(&ports);
        self.open.retain(|name, _| ports.contains(name));
        for name in &ports {
            if !self.watch.knows(name) {
                self.watch.begin(name, own(machine.tree(), name));
                match machine.listen(name) {
                    Ok(mut port) => {
                        if self.is_opened {
                            open_up(&mut self.watch, name, port.as_mut(), now);
                        }
                        self.open.insert(name.clone(), port);
                    }
                    Err(error) => {
                        tracing::warn!("listening for LLDP on {name} failed: {}", chain(&error));
                        self.watch.deaf(name);
                    }
                }
            }
            self.watch.link(name, carrier(machine.tree(), name), now);
        }
        self.take();
    }

    /// Takes what has come.
    fn take(&mut self) {
        for (name, port) in &mut self.open {
            for _ in 0..MAX_FRAMES {
                match port.next() {
                    Ok(Heard::Frame(frame)) => match self.watch.frame(name, &frame) {
                        Ok(Some(said)) => tracing::info!("{name}: {said}"),
                        Ok(None) => {}
                        Err(ignored) => tracing::debug!("{name}: an LLDP frame is ignored: {ignored}"),
                    },
                    Ok(Heard::Nothing) => break,
                    Ok(Heard::End) => {
                        self.watch.end(name);
                        break;
                    }
                    Err(error) => {
                        if self.watch.deaf(name) {
                            tracing::warn!("listening for LLDP on {name} failed: {}", chain(&error));
                        }
                        break;
                    }
                }
            }
        }
    }

    fn open_up(&mut self, now: Duration) {
        self.is_opened = true;
        for (name, port) in &mut self.open {
            open_up(&mut self.watch, name, port.as_mut(), now);
        }
    }
}

fn open_up(watch: &mut Watch, name: &str, port: &mut dyn Port, now: Duration) {
    match port.open_up() {
        Ok(opened) => {
            opened.said.iter().for_each(|done| tracing::info!("{name}: {done}, to listen for LLDP"));
            match opened.hearing {
                Hearing::Always => watch.opened(name, Duration::ZERO),
                Hearing::FromNow => watch.opened(name, now),
                Hearing::Perhaps => {}
            }
        }
        Err(error) => tracing::warn!("opening {name} up for LLDP failed: {}", chain(&error)),
    }
}

/// Addresses from which the port itself sends.
fn own(tree: &Tree, name: &str) -> Vec<[u8; 6]> {
    let current = tree.text(&format!("sys/class/net/{name}/address"));
    let found = [current, crate::facts::permanent_mac(tree, name)].into_iter().flatten();
    found.filter_map(|mac| crate::net::rtnetlink::mac_bytes(&mac)).collect()
}

/// Whether there is a link; a port that is set down cannot be asked.
fn carrier(tree: &Tree, name: &str) -> Option<bool> {
    tree.number(&format!("sys/class/net/{name}/carrier")).map(|carrier| carrier == 1)
}

/// How long the kernel's command line has ports with a link listened on.
fn patience(tree: &Tree) -> Duration {
    let line = tree.text("proc/cmdline").unwrap_or_default();
    let given = line.split_whitespace().filter_map(|word| word.strip_prefix("metamorph.lldp=")).next_back();
    match given.map(str::parse) {
        None => PATIENCE,
        Some(Ok(seconds)) => Duration::from_secs(seconds).min(LONGEST),
        Some(Err(_)) => {
            tracing::warn!("metamorph.lldp is no number of seconds; {} are meant", PATIENCE.as_secs());
            PATIENCE
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("patience", &self.patience).finish_non_exhaustive()
    }
}

impl Listener {
    /// Begins to listen, by a thread of its own.
    #[must_use]
    pub fn begin(machine: Arc<dyn Machine>) -> Self {
        let shared = Shared { begun: Instant::now(), state: Mutex::default(), over: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let patience = patience(machine.tree());
        let (its, on) = (Arc::clone(&shared), Arc::clone(&machine));
        std::thread::spawn(move || {
            while its.goes_on(on.as_ref()) {
                std::thread::sleep(STEP);
            }
        });
        Self { machine, shared, patience }
    }

    /// Waits this long for a port with a link, instead of what the kernel's command line says.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience.min(LONGEST);
        self
    }

    /// Opens the ports up and waits until each with a link was heard, or long enough. `goes_on` is asked all the while.
    ///
    /// # Errors
    /// That of `goes_on`.
    pub fn hear<E>(&self, mut goes_on: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let asked = self.shared.begun.elapsed();
        if self.shared.over.load(Ordering::Relaxed) {
            // It has ended before: what was heard then says nothing of now.
            *self.shared.state() = State::default();
        }
        // Ports that have come since the last look.
        self.shared.look(self.machine.as_ref());
        if !self.patience.is_zero() {
            self.shared.state().open_up(self.shared.begun.elapsed());
        }
        for round in 1.. {
            self.shared.look(self.machine.as_ref());
            let now = self.shared.begun.elapsed();
            if self.shared.state().watch.waits(now, asked, self.patience).is_empty() {
                break;
            }
            if round % ASKED_EVERY == 0 {
                goes_on()?;
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// Puts what was heard into the facts; what has become of listening on each port.
    #[must_use]
    pub fn tell(&self, hardware: &mut HardwareDetails) -> Vec<LinkReport> {
        let state = self.shared.state();
        for nic in &mut hardware.nics {
            if let Some(neighbour) = nic.name.as_deref().and_then(|name| state.watch.neighbour(name)) {
                lldp::tell(neighbour, nic);
            }
        }
        state.watch.links(self.shared.begun.elapsed())
    }

    /// Listens no more: sockets are closed, and what was changed on the ports is changed back. What was heard is kept.
    pub fn end(&self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.state().open.clear();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}
