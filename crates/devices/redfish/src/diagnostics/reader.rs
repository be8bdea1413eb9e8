//! One call at a time within a budget, and what it has met.

use std::time::Duration;

use bmc::EvidenceBudget;
use diagnosis::{Account, Answer, Connection, License, Message, PartKind, Reading, Spent, Unread};
use serde_json::Value;
use terms::json_values_at_most;
use tokio::time::{Instant, timeout};

use super::facts::messages;
use crate::client::Client;
use crate::json::{MAX_VALUES, link, make_absolute};
use crate::state::Auth;
use terms::clean;

pub(super) const WHAT: &str = "look for what is wrong";
pub(super) const NO_RIGHT: &str = "the BMC does not let this server in";
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
    /// Kinds of parts of which each one that the BMC lists was read.
    pub whole_kinds: Vec<PartKind>,
    /// Whether the collection that was read last was read whole: each of its members, and all of them.
    pub whole: bool,
    /// What is being read is a thing without which nothing is provisioned.
    pub needed: bool,
    /// This look has signed in, or has tried to: it does not a second time.
    pub signed_in: bool,
    /// The BMC lets this server in no more: nothing is asked.
    pub shut: bool,
    /// Another BMC than the one meant answers.
    pub stranger: Option<Connection>,
    /// A request with the password itself was answered.
    entered: bool,
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
            whole_kinds: Vec::new(),
            whole: false,
            needed: false,
            signed_in: false,
            shut: false,
            stranger: None,
            entered: false,
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
    pub fn note(&mut self, answer: Answer) {
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push(answer);
        }
    }

    /// A resource of the service that needs a session. One that has ended is renewed once a look, and only if its token was good for something before; a
    /// password that was refused is not sent again.
    pub async fn get(&mut self, path: &str) -> Result<Value, Miss> {
        if self.shut {
            return Err(Miss::Failed(NO_RIGHT.to_owned()));
        }
        let client = self.client;
        let (auth, served) = {
            let state = client.core.state();
            (state.auth.clone(), state.token_served)
        };
        let noted = self.answers.len();
        let answer = self.once(path, auth.as_ref()).await;
        if !matches!(answer, Err(Miss::Status(401))) {
            self.entered |= answer.is_ok();
            return answer;
        }
        match auth {
            Some(Auth::Basic) => {
                // The same pair again would count against the account.
                self.shut = true;
                if let Some(refusal) = self.answers.get_mut(noted) {
                    refusal.sign_in = !self.entered;
                }
                answer
            }
            Some(session) if served && !self.signed_in => {
                self.signed_in = true;
                match timeout(self.left(), client.core.renew(WHAT, &session)).await {
                    Ok(Ok(renewed)) => {
                        // It had ended, and that is all that this answer says.
                        self.answers.truncate(noted);
                        self.once(path, Some(&renewed)).await
                    }
                    Ok(Err(error)) => {
                        self.answers.truncate(noted);
                        self.shut = true;
                        self.refused(&error);
                        Err(Miss::Failed(NO_RIGHT.to_owned()))
                    }
                    Err(_) => {
                        self.shut = true;
                        Err(Miss::Spent("time"))
                    }
                }
            }
            _ => answer,
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
            let call = format!("GET {}", clean(shown, 200));
            let (at, status, needed) = (Some(self.budget.now), Some(response.status), self.needed);
            self.note(Answer { call, at, status, messages: told, needed, sign_in: false });
        }
        Err(if absent { Miss::Absent(response.status) } else { Miss::Status(response.status) })
    }

    /// The members of a collection as whole resources. Of one that the BMC does not show whole, `most` are read one by one; the others are noted as left out.
    pub async fn members(&mut self, what: &str, path: &str, most: usize) -> Result<Vec<(String, Value)>, Miss> {
        let expand = {
            let state = self.client.core.state();
            state.root.as_ref().and_then(|root| root.expand).filter(|_| !state.expand_broken)
        };
        self.whole = false;
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
        let listed = list.get("Members").and_then(Value::as_array);
        let members = listed.map(Vec::as_slice).unwrap_or_default();
        let (mut found, mut read, mut left) = (Vec::new(), 0, members.len().saturating_sub(MAX_MEMBERS));
        let on_one_page = listed.is_some() && list.get("Members@odata.nextLink").is_none();
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
        self.whole = on_one_page && found.len() == members.len();
        Ok(found)
    }

    /// A text of the BMC's without secrets, on one line.
    pub fn clean(&self, whole: &str) -> String {
        // Hidden before it is cut: half a password is too much.
        let whole = whole.get(..whole.floor_char_boundary(MAX_WHOLE)).unwrap_or_default();
        clean(&without_media(&without_paths(&self.client.core.without_secrets(whole))), crate::json::MAX_FIELD)
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

/// The text without paths and names of media, which are secrets where they have no address before them, too: they give what the agent is given.
fn without_media(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '(' | ')' | ',' | ';' | '=');
    let is_medium = |word: &str| {
        let word = word.trim_end_matches(['.', ':', '!', '?']).to_ascii_lowercase();
        ["/media/", "/shard/", "\\media\\", "%2f", "%5c"].iter().any(|part| word.contains(part))
            || [".iso", ".img"].iter().any(|end| word.ends_with(end))
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(if is_medium(word) { "…" } else { word });
        let sign = after.chars().next().map_or(0, char::len_utf8);
        let (sign, next) = after.split_at(sign);
        out.push_str(sign);
        rest = next;
    }
    out
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
