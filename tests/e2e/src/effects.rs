//! Everything that a server does to the world outside, in order, and the one place where it is to be killed.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;

/// On which side of an effect the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The effect does not take place.
    Before,
    /// The effect takes place, the server does not hear of it.
    After,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

/// Where to kill the server.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Label of the effect.
    pub label: String,
    /// Side of it.
    pub side: Side,
}

/// The log of effects, and the gate that each passes.
pub struct Effects {
    log: Mutex<Log>,
    cut: Option<Cut>,
    seen: watch::Sender<usize>,
    struck: watch::Sender<bool>,
    dead: watch::Sender<bool>,
}

#[derive(Default)]
struct Log {
    labels: Vec<String>,
    counts: HashMap<String, usize>,
    delivered: HashSet<String>,
    victim: Option<Pid>,
    /// How many effects were noted when it began to count.
    armed: Option<usize>,
}

impl Effects {
    /// An empty log; the server is killed at `cut`, if there is one, once [`Self::arm`] has been called.
    #[must_use]
    pub fn new(cut: Option<Cut>) -> Arc<Self> {
        let (seen, struck, dead) = (watch::Sender::new(0), watch::Sender::new(false), watch::Sender::new(false));
        Arc::new(Self { log: Mutex::default(), cut, seen, struck, dead })
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that is killed.
    pub fn set_victim(&self, pid: Option<Pid>) {
        self.lock().victim = pid;
    }

    /// From now on effects count: they are those at which the server can be killed.
    pub fn arm(&self) {
        let mut log = self.lock();
        log.armed = Some(log.labels.len());
    }

    /// Labels so far, in order. The same effect for the second time is another label.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        self.lock().labels.clone()
    }

    /// Those that count.
    #[must_use]
    pub fn counted(&self) -> Vec<String> {
        let log = self.lock();
        log.armed.and_then(|from| log.labels.get(from..)).unwrap_or_default().to_vec()
    }

    /// Whether the server has been killed.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        *self.struck.borrow()
    }

    /// Waits until the server is being killed.
    pub async fn wait_struck(&self) {
        // The sender is part of self: it is not gone.
        let _ = self.struck.subscribe().wait_for(|struck| *struck).await;
    }

    /// The killed process has ended.
    pub fn set_dead(&self) {
        self.dead.send_replace(true);
    }

    /// Waits until nothing has happened for `time`.
    pub async fn quiet(&self, time: Duration) {
        let mut seen = self.seen.subscribe();
        while tokio::time::timeout(time, seen.changed()).await.is_ok() {}
    }

    /// An effect that was seen after it had taken place: the server is killed as soon as that is noticed.
    pub fn seen(&self, what: &str) {
        if self.note(what).is_some() {
            self.shoot();
        }
    }

    /// Whether this is told for the first time.
    pub fn is_new(&self, what: &str) -> bool {
        self.lock().delivered.insert(what.to_owned())
    }

    /// Notes an effect; the side on which it is cut, if it is.
    fn note(&self, what: &str) -> Option<Side> {
        let mut log = self.lock();
        let count = log.counts.entry(what.to_owned()).or_default();
        *count += 1;
        let label = if *count == 1 { what.to_owned() } else { format!("{what} #{count}") };
        let armed = log.armed.is_some();
        let side = self.cut.as_ref().filter(|cut| armed && cut.label == label).map(|cut| cut.side);
        log.labels.push(match side {
            Some(side) => format!("{label}   <== killed {side}"),
            None => label,
        });
        let length = log.labels.len();
        drop(log);
        self.seen.send_replace(length);
        side
    }

    /// Kills the server. A process that has ended before is an end too.
    fn shoot(&self) {
        if let Some(pid) = self.lock().victim {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.struck.send_replace(true);
    }

    /// Kills the server and waits for its end.
    async fn strike(&self) {
        self.shoot();
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// A request of the server with an effect: `forward` is the effect. `None`: nobody is there any more to hear the answer.
    pub(crate) async fn perform<T>(&self, what: &str, forward: impl Future<Output = T>) -> Option<T> {
        let side = self.note(what);
        if side == Some(Side::Before) {
            self.strike().await;
            return None;
        }
        let answer = forward.await;
        if side == Some(Side::After) {
            self.strike().await;
            return None;
        }
        Some(answer)
    }

    /// An answer of the server with an effect: whether it is to be delivered.
    pub(crate) async fn deliver(&self, what: &str) -> bool {
        let side = self.note(what);
        if side.is_some() {
            // What the server has sent is out of its hands: it is delivered whether it lives or not.
            self.strike().await;
        }
        side != Some(Side::Before)
    }
}
