//! What happens between a provisioner, its record and its machine, in order; and the places where it can be stopped in the middle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use provisioner::Purpose;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// What is done to a machine, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Its power is switched; to do it again changes nothing.
    Power,
    /// The provisioner's own system is started on it, or made ready to.
    Boot,
    /// It is looked at from inside.
    Inspect,
    /// A system is put on it, or started from a medium.
    Write,
    /// What is on its disks is removed.
    Wipe,
    /// Its volumes, settings or firmware are changed.
    Configure,
    /// A medium is put in or taken out beside the system that runs.
    Media,
    /// Its BMC is told whom to send its events.
    Events,
    /// Work is ended, what was left behind is taken away.
    End,
    /// The light by which a person finds it is switched; to do it again changes nothing.
    Locate,
}

impl Effect {
    /// It must not happen twice for one wish.
    #[must_use]
    pub const fn once(self) -> bool {
        matches!(self, Self::Write | Self::Wipe | Self::Configure)
    }

    /// It must stand recorded before it happens.
    #[must_use]
    pub const fn recorded(self) -> bool {
        self.once() || matches!(self, Self::Boot | Self::Inspect)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The record was written.
    Write(Purpose),
    /// Something was done to the machine.
    Effect(Effect),
    /// A secret was written where it does not belong.
    Leak,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Part of the scenario in which it happened.
    pub part: usize,
    /// What.
    pub what: What,
    /// For people.
    pub text: String,
}

/// A place where a process can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The record is about to be written.
    BeforeWrite,
    /// It is written, and the process does not know it yet.
    AfterWrite,
    /// Something is about to be done to the machine.
    BeforeEffect,
    /// It is done, and the process does not know it yet.
    AfterEffect,
}

#[derive(Default)]
struct State {
    part: usize,
    entries: Vec<Entry>,
    points: Vec<Point>,
    stop_at: Option<usize>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    stopped: Notify,
    thawed: Notify,
}

/// The trail of one run. Clones share it.
#[derive(Clone, Default)]
pub struct Trail(Arc<Inner>);

impl Trail {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a call's effect: the process can be stopped before and after `act`, which returns whether the effect happened.
    pub async fn effect<T>(&self, effect: Effect, text: &str, act: impl FnOnce() -> (bool, T)) -> T {
        self.point(Point::BeforeEffect).await;
        let (happened, result) = act();
        if happened {
            self.saw(effect, text);
        }
        self.point(Point::AfterEffect).await;
        result
    }

    /// A point where the process can be stopped, for machines that enter their effects themselves ([`Self::saw`]).
    pub async fn point(&self, point: Point) {
        let stops = {
            let mut state = self.lock();
            state.points.push(point);
            let here = state.points.len() - 1;
            state.stop_at.take_if(|at| *at == here).is_some()
        };
        if stops {
            self.0.stopped.notify_one();
            self.0.thawed.notified().await;
        }
    }

    /// Enters an effect that the machine carried out by itself, on an earlier order.
    pub fn saw(&self, effect: Effect, text: &str) {
        self.enter(What::Effect(effect), text);
    }

    pub(crate) fn enter(&self, what: What, text: &str) {
        let mut state = self.lock();
        let part = state.part;
        state.entries.push(Entry { part, what, text: text.to_owned() });
    }

    /// Begins the next part of the scenario: its points count from 0, and the process stops at `stop_at`.
    pub(crate) fn begin_part(&self, stop_at: Option<usize>) {
        let mut state = self.lock();
        state.part += 1;
        state.points.clear();
        state.stop_at = stop_at;
    }

    pub(crate) async fn stopped(&self) {
        self.0.stopped.notified().await;
    }

    /// Resumes the stopped process.
    pub(crate) fn thaw(&self) {
        self.0.thawed.notify_one();
    }

    /// Where the process could have been stopped since the part began.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.lock().points.clone()
    }

    /// Everything, the oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// The entries of the present part.
    pub(crate) fn present(&self) -> Vec<Entry> {
        let state = self.lock();
        state.entries.iter().filter(|entry| entry.part == state.part).cloned().collect()
    }
}
