//! What provisioners have said last of the work on each host. Another process begins with nothing, and hears it with its first call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::ProvisioningState as State;
use host_lifecycle::{Action, Heard, budget};
use jiff::Timestamp;
use provisioner::{Answer, Verdict, Waiting};

/// Of all hosts, by uid.
#[derive(Debug, Default)]
pub(crate) struct AllHeard(Mutex<HashMap<String, Entry>>);

/// Of one.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The state in which the host was.
    state: State,
    step: Option<(String, Option<u8>)>,
    waited: Option<Timestamp>,
    /// It is paused or held: it waits until it is looked at without that.
    held: bool,
    told_late: bool,
}

impl Entry {
    /// As decisions take it, for a host in this state.
    pub fn of(entry: Option<&Self>, state: State) -> Heard<'_> {
        let Some(entry) = entry.filter(|entry| entry.state == state) else { return Heard::default() };
        let step = entry.step.as_ref().map(|(step, percent)| (step.as_str(), *percent));
        Heard { step, waited: entry.waited, told_late: entry.told_late }
    }

    /// Of a host that is first seen in this state now: whatever was before, no process of this server worked on it.
    const fn first(state: State, now: Timestamp) -> Self {
        Self { state, step: None, waited: Some(now), held: false, told_late: false }
    }
}

impl AllHeard {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of this host, which is in this state.
    pub fn known(&self, uid: &str, state: State, now: Timestamp) -> Option<Entry> {
        let mut all = self.lock();
        if budget(state).is_none() && all.get(uid).is_none_or(|entry| entry.state != state) {
            return None;
        }
        let entry = all.entry(uid.to_owned()).or_insert_with(|| Entry::first(state, now));
        if entry.state != state {
            *entry = Entry::first(state, now);
        }
        if std::mem::take(&mut entry.held) {
            entry.waited = Some(now);
        }
        Some(entry.clone())
    }

    /// The host is in this state, and nothing is done with it now: it is paused, or the brake holds it.
    pub fn waits(&self, uid: &str, state: State) {
        if let Some(entry) = self.lock().get_mut(uid).filter(|entry| entry.state == state) {
            entry.held = true;
        }
    }

    /// An Event has told that the host is in this state for longer than it should be.
    pub fn told_late(&self, uid: &str, state: State) {
        if let Some(entry) = self.lock().get_mut(uid).filter(|entry| entry.state == state) {
            entry.told_late = true;
        }
    }

    /// A host's provisioner has answered while the host was in this state.
    pub fn note(&self, uid: &str, state: State, action: &Action, verdict: &Verdict<Answer>, now: Timestamp) {
        // Looks beside the work tell nothing of it.
        let looks = matches!(
            action,
            Action::ReadPower
                | Action::RefreshFacts
                | Action::Diagnose
                | Action::CheckMedia { .. }
                | Action::LookAtMedia
        );
        if looks {
            return;
        }
        let mut all = self.lock();
        let before = all.get(uid).filter(|entry| entry.state == state);
        let mut entry = before.cloned().unwrap_or_else(|| Entry::first(state, now));
        entry.step = match verdict {
            Verdict::Working(working) => Some((working.step.clone(), working.percent)),
            Verdict::Waiting(_) | Verdict::Done(_) => None,
        };
        if matches!(verdict, Verdict::Waiting(Waiting::Busy { .. })) {
            entry.waited = Some(now);
        }
        all.insert(uid.to_owned(), entry);
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waited(heard: &AllHeard, state: State, second: i64) -> Option<i64> {
        let entry = heard.known("a", state, at(second));
        Entry::of(entry.as_ref(), state).waited.map(Timestamp::as_second)
    }

    #[test]
    fn time_in_which_nobody_was_to_work_is_no_time_of_the_work() {
        let heard = AllHeard::default();
        // A process that has just begun knows of no time before.
        assert_eq!(waited(&heard, State::Inspecting, 100), Some(100));
        assert_eq!(waited(&heard, State::Inspecting, 200), Some(100));
        // Paused, for as long as it may be: what counts is when it goes on.
        heard.waits("a", State::Inspecting);
        assert_eq!(waited(&heard, State::Inspecting, 9000), Some(9000));
        assert_eq!(waited(&heard, State::Inspecting, 9100), Some(9000));
        heard.told_late("a", State::Inspecting);
        let told = |state| Entry::of(heard.known("a", state, at(9200)).as_ref(), state).told_late;
        assert!(told(State::Inspecting));
        // Another state begins with nothing.
        assert!(!told(State::Preparing) && !told(State::Inspecting));
        // Of hosts at rest nothing is kept.
        assert_eq!(heard.known("b", State::Available, at(1)).map(drop), None);
        assert_eq!(heard.lock().len(), 1);
    }

    #[test]
    fn what_a_provisioner_says_is_kept_and_its_being_busy_is_waiting() {
        let heard = AllHeard::default();
        waited(&heard, State::Provisioning, 100);
        let busy =
            Verdict::Waiting(Waiting::Busy { reason: String::new(), look_again: std::time::Duration::from_secs(1) });
        heard.note("a", State::Provisioning, &Action::Provision, &busy, at(500));
        assert_eq!(waited(&heard, State::Provisioning, 600), Some(500));
        heard.told_late("a", State::Provisioning);
        let working =
            Verdict::Working(provisioner::Working { step: "writing".into(), ..provisioner::Working::default() });
        heard.note("a", State::Provisioning, &Action::Provision, &working, at(700));
        let entry = heard.known("a", State::Provisioning, at(800));
        let known = Entry::of(entry.as_ref(), State::Provisioning);
        assert_eq!((known.step, known.told_late), (Some(("writing", None)), true));
        assert_eq!(known.waited, Some(at(500)));
    }
}
