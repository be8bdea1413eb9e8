//! Faults of single requests: rules that select requests by their content and by the machine's state, and gates that hold requests
//! until stepped. A BMC that deviates from the standard, or lies, is nothing but a list of such rules.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::http::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::scene::{Condition, Scene};

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

/// A side effect on the machine or its BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// All sessions end.
    EndSessions,
    /// The medium leaves the drive.
    Eject,
    /// The boot override is forgotten.
    ForgetOverride,
    /// The machine is switched on.
    PowerOn,
    /// The machine loses power.
    PowerOff,
}

/// Encoding of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Encoding {
    /// UTF-8.
    #[default]
    Utf8,
    /// UTF-16, little-endian, with its mark.
    Utf16,
    /// ISO 8859-1; other characters become a question mark.
    Latin1,
    /// UTF-8 in gzip, even if the client does not accept it.
    Gzip,
}

/// The effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Answers with this status and a Redfish error body, without performing the request.
    Status {
        /// HTTP status.
        status: u16,
    },
    /// Waits, then continues.
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
    /// Performs the request, then answers 200 with a body that is not JSON.
    Garbage,
    /// Performs the request, then answers with these fields in place of its own, including nulls.
    Edit {
        /// The fields.
        fields: Value,
    },
    /// Performs the request, then answers without these fields.
    Remove {
        /// JSON pointers (RFC 6901).
        fields: Vec<String>,
    },
    /// Answers this: with `before` the request is not performed, with `after` it is performed first.
    Answer {
        /// HTTP status.
        status: u16,
        /// Further headers.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// Id of a message for an error body, with registry and version where it is not of the Base registry.
        #[serde(default)]
        message_id: Option<String>,
        /// Its text.
        #[serde(default)]
        message: String,
        /// Its arguments.
        #[serde(default)]
        arguments: Vec<String>,
        /// The whole body, in place of an error body.
        #[serde(default)]
        body: Option<Value>,
        /// Before or after the effect.
        #[serde(default)]
        when: When,
    },
    /// Changes headers of the answer, including those that every answer has.
    Headers {
        /// Headers and their values.
        #[serde(default)]
        set: BTreeMap<String, String>,
        /// Headers to leave out.
        #[serde(default)]
        remove: Vec<String>,
    },
    /// Changes the answer's text (indented JSON, a blank after each colon).
    Text {
        /// Pairs of a text and its replacement, for every occurrence.
        #[serde(default)]
        replace: Vec<(String, String)>,
        /// Prefix.
        #[serde(default)]
        prefix: String,
        /// Suffix.
        #[serde(default)]
        suffix: String,
        /// Only so many characters are sent, and pass for the whole.
        #[serde(default)]
        keep: Option<usize>,
        /// Encoding of the result.
        #[serde(default)]
        encoding: Encoding,
    },
    /// Sends the answer's body in pieces, without its length.
    Pieces {
        /// Bytes of a piece.
        bytes: usize,
        /// Milliseconds between them.
        #[serde(default)]
        pause_ms: u64,
        /// The connection is cut after so many bytes.
        #[serde(default)]
        cut_after: Option<usize>,
    },
    /// Closes the connection after the answer, without announcing it.
    Close {
        /// How long after it, in milliseconds.
        after_ms: u64,
    },
    /// Handles the request at another path.
    Route {
        /// That path.
        to: String,
    },
    /// Has a side effect.
    Also {
        /// The side effect.
        effect: Effect,
        /// Before or after the request is performed.
        #[serde(default)]
        when: When,
    },
}

/// Whether these can be a header's name and value.
fn header_fits(name: &str, value: &str) -> bool {
    name.parse::<HeaderName>().is_ok() && value.parse::<HeaderValue>().is_ok()
}

impl Action {
    /// # Errors
    /// An invalid status or header.
    fn check(&self) -> Result<(), RuleError> {
        let (status, headers) = match self {
            Self::Status { status } => (Some(*status), None),
            Self::Answer { status, headers, .. } => (Some(*status), Some(headers)),
            Self::Headers { set, .. } => (None, Some(set)),
            _ => (None, None),
        };
        if let Some(status) = status.filter(|status| !(200..=599).contains(status)) {
            return Err(RuleError::Status(status));
        }
        match headers.into_iter().flatten().find(|(name, value)| !header_fits(name, value)) {
            Some((name, _)) => Err(RuleError::Header(name.clone())),
            None => Ok(()),
        }
    }
}

/// One rule: which requests it applies to, how often, and its effect.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Method, such as `POST`; any when absent.
    #[serde(default)]
    pub method: Option<String>,
    /// Path pattern in which `*` matches any text; any path when absent.
    #[serde(default)]
    pub path: Option<String>,
    /// Further conditions on the request and the machine.
    #[serde(default, rename = "if")]
    pub condition: Condition,
    /// So many matching requests pass first.
    #[serde(default)]
    pub skip: u32,
    /// So many matching requests are struck; all when absent.
    #[serde(default)]
    pub count: Option<u32>,
    /// The effect on them.
    pub action: Action,
}

impl Rule {
    /// A rule that strikes every request.
    #[must_use]
    pub fn all(action: Action) -> Self {
        Self { method: None, path: None, condition: Condition::default(), skip: 0, count: None, action }
    }

    fn matches(&self, scene: &Scene<'_>) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(scene.method))
            && self.path.as_deref().is_none_or(|pattern| glob(pattern, scene.path))
            && self.condition.holds(scene)
    }
}

/// Whether `text` matches `pattern`, in which `*` matches any text, without backtracking beyond the last star.
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

/// A rule with its number and its count so far.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    /// Its number, by which it is removed.
    pub id: u64,
    /// The rule, with its remaining counts.
    #[serde(flatten)]
    pub rule: Rule,
    /// How many requests it struck.
    pub struck: u32,
}

/// Why a rule was refused.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// Too many rules.
    #[error("this BMC has {MAX_RULES} fault rules already; remove some first")]
    TooMany,
    /// Not a status of an HTTP answer.
    #[error("{0} is not the status of an HTTP answer (200 to 599)")]
    Status(u16),
    /// Not a header of an HTTP answer.
    #[error("{0:?} and its value are no header of an HTTP answer")]
    Header(String),
}

/// The faults for a request.
#[derive(Clone, Debug, Default)]
pub struct Struck {
    /// Numbers of the rules.
    pub rules: Vec<u64>,
    /// Their effects.
    pub actions: Vec<Action>,
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

    /// Adds a rule and returns its number. Rules are tried in the order they were added; all that match apply.
    ///
    /// # Errors
    /// There are too many, or its status or a header is invalid.
    pub fn add(&self, rule: Rule) -> Result<u64, RuleError> {
        rule.action.check()?;
        let mut inner = self.lock();
        if inner.rules.len() >= MAX_RULES {
            return Err(RuleError::TooMany);
        }
        inner.next += 1;
        let id = inner.next;
        inner.rules.push(ActiveRule { id, rule, struck: 0 });
        Ok(id)
    }

    /// The current rules.
    #[must_use]
    pub fn list(&self) -> Vec<ActiveRule> {
        self.lock().rules.clone()
    }

    /// Removes one rule; false if the number is unknown.
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

    /// The faults for this request; decrements the counts of the rules.
    pub fn strike(&self, scene: &Scene<'_>) -> Struck {
        let mut inner = self.lock();
        let mut struck = Struck::default();
        for active in &mut inner.rules {
            if active.rule.count == Some(0) || !active.rule.matches(scene) {
                continue;
            }
            if active.rule.skip > 0 {
                active.rule.skip -= 1;
                continue;
            }
            active.rule.count = active.rule.count.map(|left| left - 1);
            active.struck += 1;
            struck.rules.push(active.id);
            struck.actions.push(active.rule.action.clone());
        }
        if let Some(when) = inner.paused {
            struck.actions.push(Action::Hold { when });
        }
        struck
    }

    /// The faults for a resource that is shown inside another one's answer (`$expand`): changes of its fields, or another resource in its place. None
    /// if it is only to be had by a request of its own: that meets with other faults, or with a rule that counts.
    pub fn strike_inside(&self, scene: &Scene<'_>) -> Option<Vec<Action>> {
        let fits = |rule: &Rule| {
            let shows = matches!(rule.action, Action::Edit { .. } | Action::Remove { .. } | Action::Route { .. });
            shows && rule.skip == 0 && rule.count.is_none()
        };
        let mut inner = self.lock();
        let (mut actions, mut struck) = (Vec::new(), Vec::new());
        for (at, active) in inner.rules.iter().enumerate() {
            // A rule without a path is one for requests, not for what is in their answers.
            if active.rule.count == Some(0) || active.rule.path.is_none() || !active.rule.matches(scene) {
                continue;
            }
            if !fits(&active.rule) {
                return None;
            }
            struck.push(at);
            actions.push(active.rule.action.clone());
        }
        for at in struck {
            inner.rules[at].struck += 1;
        }
        Some(actions)
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

    /// Releases the `count` longest-held requests; returns how many there were.
    pub fn step(&self, count: usize) -> usize {
        let mut inner = self.lock();
        let mut stepped = 0;
        while stepped < count {
            let Some((_, release)) = inner.waiting.pop_front() else { break };
            // A request whose client has disconnected does not count.
            stepped += usize::from(release.send(()).is_ok());
        }
        stepped
    }

    /// Ends a pause, removes the rules that hold requests, and releases all held requests; returns how many there were.
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

/// The total delay of these actions before the effect.
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
        let headers = axum::http::HeaderMap::new();
        let scene = |method| Scene { method, ..Scene::of("/a", &headers) };
        assert!(faults.strike(&scene("GET")).actions.is_empty());
        let struck: Vec<usize> = (0..4).map(|_| faults.strike(&scene("POST")).rules.len()).collect();
        assert_eq!(struck, [0, 1, 1, 0]);
        assert_eq!(faults.list()[0].struck, 2);
        assert!(faults.remove(id) && !faults.remove(id));
        assert!(faults.add(Rule::all(Action::Status { status: 99 })).is_err());
        let set = BTreeMap::from([("a b".to_owned(), "c".to_owned())]);
        assert!(faults.add(Rule::all(Action::Headers { set, remove: Vec::new() })).is_err());
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
