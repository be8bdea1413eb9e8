//! One call at a time within a budget, and what it has met.

use std::time::Duration;

use bmc::EvidenceBudget;
use diagnosis::{Account, Answer, License, Message, Reading, Spent, Unread};
use serde_json::Value;
use terms::json_values_at_most;
use tokio::time::{Instant, timeout};

use super::facts::messages;
use crate::client::Client;
use crate::json::{MAX_VALUES, link, make_absolute};
use crate::state::Auth;
use crate::text::clean;

pub(super) const WHAT: &str = "look for what is wrong";
/// Most answers with errors that are kept.
const MAX_ANSWERS: usize = 16;
/// Most notes of what was left out.
const MAX_SKIPPED: usize = 64;
/// Most members of a collection that are looked at.
pub(super) const MAX_MEMBERS: usize = 64;
/// Longest text of which secrets are taken out, bytes.
const MAX_WHOLE: usize = 4096;

/// Why something was not read.
#[derive(Clone, Debug)]
pub(super) enum Miss {
    /// The budget is used up.
    Spent(&'static str),
    /// The BMC does not have it.
    Absent(u16),
    /// It answered with an error.
    Status(u16),
    /// There was no answer, or none that can be understood.
    Failed(String),
}

impl Miss {
    /// As a source that was not read.
    pub fn reading<T>(self) -> Reading<T> {
        match self {
            Self::Spent(what) => Reading::Skipped(format!("the budget of {what} for this look is used up")),
            Self::Absent(status) => Reading::NotAvailable(format!("the BMC answered {status}")),
            Self::Status(status) => Reading::Failed(format!("the BMC answered {status}")),
            Self::Failed(why) => Reading::Failed(why),
        }
    }

    fn text(&self) -> String {
        self.clone().reading::<()>().unread().unwrap_or_default()
    }
}

/// Reads within a budget.
pub(super) struct Reader<'a> {
    pub client: &'a Client,
    pub budget: EvidenceBudget,
    started: Instant,
    calls: u32,
    bytes: u64,
    /// What the BMC has answered that was an error.
    pub answers: Vec<Answer>,
    /// What was left out.
    pub skipped: Vec<Unread>,
    /// Whether it has virtual media, if that was seen.
    pub has_media: Option<bool>,
    /// Ids of its systems, if they were read.
    pub systems: Vec<String>,
    /// Whether the host's system is one of them.
    pub system_known: Option<bool>,
    /// Collections of network adapters of its chassis.
    pub adapters: Vec<String>,
    /// Logs that take no more.
    pub full_logs: Vec<String>,
    /// Account and licences, which are read last.
    pub late: Option<(Reading<Account>, Reading<Vec<License>>)>,
}

impl<'a> Reader<'a> {
    pub fn new(client: &'a Client, budget: &EvidenceBudget) -> Self {
        let started = Instant::now();
        Self {
            client,
            budget: *budget,
            started,
            calls: 0,
            bytes: 0,
            answers: Vec::new(),
            skipped: Vec::new(),
            has_media: None,
            systems: Vec::new(),
            system_known: None,
            adapters: Vec::new(),
            full_logs: Vec::new(),
            late: None,
        }
    }

    /// What it has cost so far.
    pub fn spent(&self) -> Spent {
        let milliseconds = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Spent { calls: self.calls, bytes: self.bytes, milliseconds }
    }

    /// Seconds since the look began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Time that is left.
    pub fn left(&self) -> Duration {
        self.budget.time.saturating_sub(self.started.elapsed())
    }

    /// Calls that are left.
    pub const fn calls_left(&self) -> u32 {
        self.budget.calls.saturating_sub(self.calls)
    }

    /// One more call was made by others' code.
    pub const fn count(&mut self) {
        self.calls += 1;
    }

    /// Notes what was left out.
    pub fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(Unread { what: what.into(), why: why.into() });
        }
    }

    /// Notes an answer that is an error.
    pub fn note(&mut self, call: String, status: Option<u16>, messages: Vec<Message>) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push(Answer { call, at: Some(self.budget.now), status, messages });
        }
    }

    /// A resource of the service that needs a session.
    pub async fn get(&mut self, path: &str) -> Result<Value, Miss> {
        let core = &self.client.core;
        let auth = core.state().auth.clone();
        match self.once(path, auth.as_ref()).await {
            Err(Miss::Status(401)) if matches!(auth, Some(Auth::Session { .. })) => {
                let Some(auth) = auth else { return Err(Miss::Status(401)) };
                // The session has ended meanwhile: once.
                let core = &self.client.core;
                match timeout(self.left(), core.renew(WHAT, &auth)).await {
                    Ok(Ok(renewed)) => self.once(path, Some(&renewed)).await,
                    Ok(Err(error)) => Err(Miss::Failed(error.to_string())),
                    Err(_) => Err(Miss::Spent("time")),
                }
            }
            other => other,
        }
    }

    /// One call with these credentials.
    pub async fn once(&mut self, path: &str, auth: Option<&Auth>) -> Result<Value, Miss> {
        if self.calls >= self.budget.calls {
            return Err(Miss::Spent("calls"));
        }
        if self.bytes >= self.budget.bytes {
            return Err(Miss::Spent("bytes"));
        }
        let left = self.left();
        if left.is_zero() {
            return Err(Miss::Spent("time"));
        }
        self.calls += 1;
        let core = &self.client.core;
        let answer = timeout(left, core.glance(WHAT, path, auth)).await;
        // Whoever waits for the BMC goes first.
        tokio::task::yield_now().await;
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err((error, _))) => return Err(Miss::Failed(error.found)),
            Err(_) => return Err(Miss::Failed("no answer came in the time of this look".to_owned())),
        };
        self.bytes = self.bytes.saturating_add(response.body.len() as u64);
        let sound = json_values_at_most(&response.body) <= MAX_VALUES;
        let value = if sound { serde_json::from_slice::<Value>(&response.body).ok() } else { None };
        if response.status == 200 {
            let Some(mut value) = value.filter(Value::is_object) else {
                return Err(Miss::Failed("the answer is no JSON object, or holds too much".to_owned()));
            };
            make_absolute(&response.path, &mut value);
            return Ok(value);
        }
        let shown = path.split('?').next().unwrap_or(path);
        let absent = matches!(response.status, 404 | 405 | 410 | 501);
        if !absent {
            let told = value.map(|value| self.messages(&value)).unwrap_or_default();
            self.note(format!("GET {}", clean(shown, 200)), Some(response.status), told);
        }
        Err(if absent { Miss::Absent(response.status) } else { Miss::Status(response.status) })
    }

    /// The members of a collection as whole resources. Of one that the BMC does not show whole, `most` are read one by one; the others are noted as left out.
    pub async fn members(&mut self, what: &str, path: &str, most: usize) -> Result<Vec<(String, Value)>, Miss> {
        let expand = {
            let state = self.client.core.state();
            state.root.as_ref().and_then(|root| root.expand).filter(|_| !state.expand_broken)
        };
        if expand.is_none() && most == 0 {
            self.skip(what, "the BMC says that all is well there, and would have to be asked for each by itself");
            return Ok(Vec::new());
        }
        let list = match expand {
            Some(query) => match self.get(&format!("{path}{query}")).await {
                Err(Miss::Status(_) | Miss::Failed(_)) => self.get(path).await?,
                other => other?,
            },
            None => self.get(path).await?,
        };
        let members = list.get("Members").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let (mut found, mut read, mut left) = (Vec::new(), 0, members.len().saturating_sub(MAX_MEMBERS));
        for member in members.iter().take(MAX_MEMBERS) {
            let Some(path) = link(member) else { continue };
            if member.as_object().is_some_and(|fields| fields.len() > 2) {
                found.push((path, member.clone()));
            } else if read < most {
                read += 1;
                match self.get(&path).await {
                    Ok(value) => found.push((path, value)),
                    Err(Miss::Spent(of)) => {
                        self.skip(what, Miss::Spent(of).text());
                        break;
                    }
                    Err(miss) => self.skip(clean(&path, 200), miss.text()),
                }
            } else {
                left += 1;
            }
        }
        if left > 0 {
            self.skip(what, format!("{left} more were not read one by one"));
        }
        Ok(found)
    }

    /// A text of the BMC's without secrets, on one line.
    pub fn clean(&self, whole: &str) -> String {
        // Hidden before it is cut: half a password is too much.
        let whole = whole.get(..whole.floor_char_boundary(MAX_WHOLE)).unwrap_or_default();
        clean(&without_paths(&self.client.core.without_secrets(whole)), crate::text::MAX_FIELD)
    }

    /// A text field.
    pub fn text(&self, value: &Value, field: &str) -> Option<String> {
        let text = self.clean(value.get(field)?.as_str()?);
        (!text.is_empty()).then_some(text)
    }

    /// The messages of an answer or a resource.
    pub fn messages(&self, value: &Value) -> Vec<Message> {
        messages(value, |text| self.clean(text))
    }

    /// Notes of a source below another one that it was not read.
    pub fn missed(&mut self, what: &str, miss: &Miss) {
        self.skip(what, miss.text());
    }
}

/// Addresses without what comes after host and port: that of a medium is a secret.
fn without_paths(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let host = after.find(['/', ' ', '"', '\'', '<', '>', ',', ')']).unwrap_or(after.len());
        // A user with a password may stand before the host.
        let shown = after[..host].rsplit('@').next().unwrap_or_default();
        out.push_str(shown);
        rest = &after[host..];
        if rest.starts_with('/') {
            out.push_str("/…");
            let end = rest
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | ')'))
                .unwrap_or(rest.len());
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::without_paths;

    #[test]
    fn of_addresses_host_and_port_are_left() {
        for (text, left) in [
            ("mounted http://u:p@192.0.2.1:80/media/secret.iso?x=y now", "mounted http://192.0.2.1:80/… now"),
            ("see \"https://a/b\" and nfs://c", "see \"https://a/…\" and nfs://c"),
            ("none :// here", "none :// here"),
            ("", ""),
        ] {
            assert_eq!(without_paths(text), left);
        }
    }
}
