//! What provisioners have said last of the work on each host. Another process begins with nothing, and hears it with its first call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::metal3::ProvisioningState as State;
use host_lifecycle::{Action, Heard};
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
}

impl Entry {
    /// As decisions take it, for a host in this state.
    pub fn of(entry: Option<&Self>, state: State) -> Heard<'_> {
        let Some(entry) = entry.filter(|entry| entry.state == state) else { return Heard::default() };
        let step = entry.step.as_ref().map(|(step, percent)| (step.as_str(), *percent));
        Heard { step, waited: entry.waited }
    }
}

impl AllHeard {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of this host.
    pub fn known(&self, uid: &str) -> Option<Entry> {
        self.lock().get(uid).cloned()
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
        let waited = all.get(uid).filter(|entry| entry.state == state).and_then(|entry| entry.waited);
        let entry = match verdict {
            Verdict::Working(working) => Entry { state, step: Some((working.step.clone(), working.percent)), waited },
            Verdict::Waiting(Waiting::Busy { .. }) => Entry { state, step: None, waited: Some(now) },
            Verdict::Waiting(_) | Verdict::Done(_) => Entry { state, step: None, waited },
        };
        all.insert(uid.to_owned(), entry);
    }

    /// The host is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }
}
