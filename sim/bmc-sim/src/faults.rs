//! Faults of single requests: rules that pick requests by method and path, and gates that hold requests until stepped.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Most rules one BMC keeps.
const MAX_RULES: usize = 256;

/// When a fault strikes, seen from the request's effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// Before anything is done.
    #[default]
    Before,
    /// After the effect, before the answer.
    After,
}

/// What a fault does to a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Answers with this status and a Redfish error body; nothing is done.
    Status {
        /// HTTP status.
        status: u16,
    },
    /// Waits, then goes on.
    Delay {
        /// Milliseconds.
        ms: u64,
    },
    /// Cuts the connection without an answer.
    Drop {
        /// Before or after the effect.
        #[serde(default)]
        when: When,
    },
    /// Holds the request until it is stepped or the BMC is resumed.
    Hold {
        /// Before or after the effect.
        #[serde(default)]
        when: When,
    },
    /// Does what is asked, then answers 200 with a body that is not JSON.
    Garbage,
    /// Does what is asked, then answers with these fields in place of its own, null among them.
    Edit {
        /// The fields.
        fields: serde_json::Value,
    },
}

/// One rule: which requests it strikes, how often, and what it does.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Method, such as `POST`; any when absent.
    #[serde(default)]
    pub method: Option<String>,
    /// Path pattern in which `*` stands for any text; any path when absent.
    #[serde(default)]
    pub path: Option<String>,
    /// So many matching requests pass first.
    #[serde(default)]
    pub skip: u32,
    /// So many matching requests are struck; all when absent.
    #[serde(default)]
    pub count: Option<u32>,
    /// What happens to them.
    pub action: Action,
}

impl Rule {
    /// A rule that strikes every request.
    #[must_use]
    pub fn all(action: Action) -> Self {
        Self { method: None, path: None, skip: 0, count: None, action }
    }

    fn matches(&self, method: &str, path: &str) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && self.path.as_deref().is_none_or(|pattern| glob(pattern, path))
    }
}

/// Whether `text` fits `pattern`, `*` standing for any text, without backtracking beyond the last star.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star, mut mark) = (0, 0, None, 0);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some(p);
            mark = t;
            p += 1;
        } else if pattern.get(p) == text.get(t) {
            p += 1;
            t += 1;
        } else if let Some(star) = star {
            p = star + 1;
            mark += 1;
            t = mark;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// A rule with its number and what it has done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    /// Its number, by which it is removed.
    pub id: u64,
    /// The rule, with what is left of its counts.
    #[serde(flatten)]
    pub rule: Rule,
    /// How many requests it struck.
    pub struck: u32,
}

/// Why a rule was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// Too many rules.
    #[error("this BMC has {MAX_RULES} fault rules already; remove some first")]
    TooMany,
    /// Not a status of an HTTP answer.
    #[error("{0} is not the status of an HTTP answer (200 to 599)")]
    Status(u16),
}

/// A request that is held.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The request's sequence number.
    pub seq: u64,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Before or after its effect.
    pub when: When,
}

#[derive(Default)]
struct Inner {
    next: u64,
    rules: Vec<ActiveRule>,
    paused: Option<When>,
    waiting: VecDeque<(Held, oneshot::Sender<()>)>,
}

/// The faults of one BMC.
#[derive(Default)]
pub struct Faults {
    inner: Mutex<Inner>,
}

impl Faults {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule and gives its number. Rules are tried in the order they were added; all that match act.
    ///
    /// # Errors
    /// There are too many, or the status is none.
    pub fn add(&self, rule: Rule) -> Result<u64, RuleError> {
        if let Action::Status { status } = rule.action
            && !(200..=599).contains(&status)
        {
            return Err(RuleError::Status(status));
        }
        let mut inner = self.lock();
        if inner.rules.len() >= MAX_RULES {
            return Err(RuleError::TooMany);
        }
        inner.next += 1;
        let id = inner.next;
        inner.rules.push(ActiveRule { id, rule, struck: 0 });
        Ok(id)
    }

    /// The rules as they are.
    #[must_use]
    pub fn list(&self) -> Vec<ActiveRule> {
        self.lock().rules.clone()
    }

    /// Removes one rule; false when there is none of that number.
    pub fn remove(&self, id: u64) -> bool {
        let mut inner = self.lock();
        let before = inner.rules.len();
        inner.rules.retain(|rule| rule.id != id);
        inner.rules.len() != before
    }

    /// Removes all rules. Held requests stay held.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// What strikes this request, used up by one where a rule counts.
    pub fn strike(&self, method: &str, path: &str) -> Vec<Action> {
        let mut inner = self.lock();
        let mut actions = Vec::new();
        for active in &mut inner.rules {
            if active.rule.count == Some(0) || !active.rule.matches(method, path) {
                continue;
            }
            if active.rule.skip > 0 {
                active.rule.skip -= 1;
                continue;
            }
            active.rule.count = active.rule.count.map(|left| left - 1);
            active.struck += 1;
            actions.push(active.rule.action.clone());
        }
        if let Some(when) = inner.paused {
            actions.push(Action::Hold { when });
        }
        actions
    }

    /// Holds every request from now on, before or after its effect, until `resume`.
    pub fn pause(&self, when: When) {
        self.lock().paused = Some(when);
    }

    /// Waits until this request is stepped or the BMC is resumed.
    pub async fn hold(&self, held: Held) {
        let (release, released) = oneshot::channel();
        {
            let mut inner = self.lock();
            inner.waiting.retain(|(_, release)| !release.is_closed());
            inner.waiting.push_back((held, release));
        }
        // An error means that the table was dropped with its simulator: nothing is left to wait for.
        let _ = released.await;
    }

    /// Lets the `count` longest-held requests go on; gives how many there were.
    pub fn step(&self, count: usize) -> usize {
        let mut inner = self.lock();
        let mut stepped = 0;
        while stepped < count {
            let Some((_, release)) = inner.waiting.pop_front() else { break };
            // A request whose client went away is gone: it does not count.
            stepped += usize::from(release.send(()).is_ok());
        }
        stepped
    }

    /// Ends a pause, removes the rules that hold, and lets all held requests go on; gives how many there were.
    pub fn resume(&self) -> usize {
        {
            let mut inner = self.lock();
            inner.paused = None;
            inner.rules.retain(|rule| !matches!(rule.rule.action, Action::Hold { .. }));
        }
        self.step(usize::MAX)
    }

    /// The requests held now.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        let inner = self.lock();
        inner.waiting.iter().filter(|(_, release)| !release.is_closed()).map(|(held, _)| held.clone()).collect()
    }
}

/// The waiting time that these actions ask for before the effect.
#[must_use]
pub fn delay(actions: &[Action]) -> Duration {
    let ms = actions.iter().map(|action| if let Action::Delay { ms } = action { *ms } else { 0 });
    Duration::from_millis(ms.fold(0, u64::saturating_add).min(600_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, fits) in [
            ("*", "/redfish/v1", true),
            ("/redfish/v1", "/redfish/v1", true),
            ("/redfish/v1", "/redfish/v1/Systems", false),
            ("*/Actions/*", "/redfish/v1/Systems/a/Actions/ComputerSystem.Reset", true),
            ("*.Reset", "/x/Manager.ResetX", false),
            ("a*b*c", "a-b-b-c", true),
            ("", "", true),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} on {text}");
        }
    }

    #[test]
    fn rules_skip_and_count() {
        let faults = Faults::default();
        let action = Action::Status { status: 503 };
        let rule = Rule { method: Some("POST".to_owned()), skip: 1, count: Some(2), ..Rule::all(action.clone()) };
        let id = faults.add(rule).unwrap();
        assert!(faults.strike("GET", "/a").is_empty());
        let struck: Vec<usize> = (0..4).map(|_| faults.strike("POST", "/a").len()).collect();
        assert_eq!(struck, [0, 1, 1, 0]);
        assert_eq!(faults.list()[0].struck, 2);
        assert!(faults.remove(id) && !faults.remove(id));
        assert!(faults.add(Rule::all(Action::Status { status: 99 })).is_err());
    }

    #[tokio::test]
    async fn held_requests_are_stepped_in_order() {
        let faults = std::sync::Arc::new(Faults::default());
        let held = |seq| Held { seq, method: "GET".to_owned(), path: "/".to_owned(), when: When::Before };
        let abandoned = { faults.hold(held(0)) };
        drop(abandoned);
        let mut tasks = Vec::new();
        for seq in 1..=2 {
            let faults = faults.clone();
            tasks.push(tokio::spawn(async move { faults.hold(held(seq)).await }));
            tokio::task::yield_now().await;
        }
        assert_eq!(faults.held().iter().map(|held| held.seq).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(faults.step(1), 1);
        tasks.remove(0).await.unwrap();
        assert_eq!(faults.held().len(), 1);
        assert_eq!(faults.resume(), 1);
        tasks.remove(0).await.unwrap();
    }
}
