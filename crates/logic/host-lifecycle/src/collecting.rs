//! The end of a request whose host is not asked: what is kept of what the host's provisioner has read or done, and what is said where it did not. Pure.

use api::metamorph::{CollectedLog, OperationPhase, OperationType, TestMediumReport};
use terms::{clean, is_printable};

use crate::request_age::{is_fresh, stale};
use crate::request_view::{RequestStep, RequestView, status};
use crate::requests::{ANOTHER, GONE, READY, clip, ended, failed};

/// Most logs of one request.
const MAX_LOGS: usize = 16;
/// Most bytes of all of them: they stand in one object, beside which there are others.
const MAX_BYTES: usize = 128 << 10;
/// Longest name of a log, in characters.
const MAX_SOURCE: usize = 128;
/// Longest text that tells which light was switched, in characters.
const MAX_LIGHT: usize = 300;

/// What has become of calling the host's provisioner.
#[derive(Clone, Debug, PartialEq)]
pub enum Collected {
    /// The host was diagnosed: what was found, a sentence.
    Diagnosed(String),
    /// It was tested what the BMC can read, and the host was diagnosed.
    Tested {
        /// How the test ended.
        report: TestMediumReport,
        /// The same, a sentence.
        tested: String,
        /// What was found by the diagnosis, a sentence.
        found: String,
    },
    /// Its logs were read.
    Logs(Vec<CollectedLog>),
    /// Its locating light is as asked for: which light that is, a clause.
    Located(String),
    /// The host's BMC is busy; a sentence.
    Busy(String),
    /// The host is not called now; a sentence.
    NotNow(String),
    /// The host's provisioner does not do it; its name.
    Unserved(String),
    /// The host is gone.
    Gone,
    /// It failed.
    Failed {
        /// The failure's cause, as HostOperations tell it.
        cause: String,
        /// What happened.
        message: String,
        /// What to do, if anybody knows.
        advice: Option<String>,
    },
}

/// What is written of it. A BMC that is busy is asked again for an hour, which the request says.
#[must_use]
pub fn conclude_collection(view: &RequestView<'_>, collected: Collected) -> RequestStep {
    match collected {
        Collected::Busy(why) => conclude_waiting(view, &why),
        Collected::NotNow(why) => failed(view, "NotNow", &clip(&why), READY),
        Collected::Gone => failed(view, "HostGone", GONE, "create another one"),
        Collected::Unserved(name) => {
            let (what, advice) = match view.request.spec.operation {
                OperationType::Locate => ("switches no locating light", "switch it at the BMC itself"),
                _ => ("reads no logs", "look at the console of the BMC"),
            };
            let why = format!("the provisioner of the host, \"{}\", {what}", clip(&name));
            failed(view, "NotServed", &why, advice)
        }
        Collected::Failed { cause, message, advice } => {
            let advice = advice.map(|advice| clip(&advice));
            failed(view, &clip(&cause), &clip(&message), advice.as_deref().unwrap_or(ANOTHER))
        }
        Collected::Diagnosed(found) => {
            let message = format!("{}; the HostDiagnosis of the host has the rest", clip(&found));
            RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&message))))
        }
        Collected::Located(which) => {
            let lit = view.request.spec.locate.is_some_and(|locate| locate.lit);
            let (state, which) = (if lit { "on" } else { "off" }, clean(&which, MAX_LIGHT));
            let message = format!("the light to find the server by is {state}: {which}");
            RequestStep::Status(Box::new(ended(view, OperationPhase::Succeeded, Ok(&message))))
        }
        Collected::Tested { report, tested, found } => {
            let (tested, found) = (clip(&tested), clip(&found));
            let message = clip(&format!("{tested}; {found}; the HostDiagnosis of the host has the rest"));
            let mut status = ended(view, OperationPhase::Succeeded, Ok(&message));
            status.test_medium = Some(report);
            RequestStep::Status(Box::new(status))
        }
        Collected::Logs(logs) => {
            let logs = bounded(logs);
            let read = logs.iter().filter(|log| !log.text.is_empty()).count();
            let message = format!("{read} logs with entries were read; status.logs has them");
            let mut status = ended(view, OperationPhase::Succeeded, Ok(&message));
            status.logs = logs;
            RequestStep::Status(Box::new(status))
        }
    }
}

/// What is written while the BMC is given time, if that is anything new: what is waited for. It is given no more of it than an hour.
#[must_use]
pub fn conclude_waiting(view: &RequestView<'_>, what: &str) -> RequestStep {
    let mut status = status(view.request);
    if !is_fresh(status.start_time.as_ref(), view.now) {
        let (cause, text) = stale(status.start_time.as_ref(), view.now, "taken", what);
        return failed(view, cause, &clip(&text), ANOTHER);
    }
    let message = Some(clip(what));
    if status.message == message {
        return RequestStep::Nothing;
    }
    status.message = message;
    RequestStep::Status(Box::new(status))
}

/// As much of each log as there is room for, from its end: a short one leaves its room to the others.
fn bounded(mut logs: Vec<CollectedLog>) -> Vec<CollectedLog> {
    logs.truncate(MAX_LOGS);
    let mut order: Vec<usize> = (0..logs.len()).collect();
    order.sort_by_key(|at| logs.get(*at).map(|log| log.text.len()));
    let (mut room, mut waiting) = (MAX_BYTES, logs.len());
    for at in order {
        let Some(log) = logs.get_mut(at) else { continue };
        let share = room / waiting.max(1);
        cut(log, share);
        room = room.saturating_sub(log.text.len());
        waiting -= 1;
    }
    logs
}

/// The log in printable lines, the newest of them in at most so many bytes.
fn cut(log: &mut CollectedLog, most: usize) {
    log.source = log.source.chars().filter(|c| is_printable(*c)).take(MAX_SOURCE).collect();
    log.missing = log.missing.take().map(|missing| clip(&missing));
    let mut kept = Vec::new();
    let mut bytes = 0;
    let mut left: u32 = 0;
    for line in log.text.lines().rev() {
        // Those that are left out are older than all that are kept.
        if left > 0 || bytes + line.len() >= most {
            left = left.saturating_add(1);
            continue;
        }
        bytes += line.len() + 1;
        kept.push(line);
    }
    let printable = |c: char| if c == '\n' || is_printable(c) { c } else { '?' };
    let text: String = kept.iter().rev().flat_map(|line| [*line, "\n"]).collect();
    log.text = text.chars().map(printable).collect();
    if left > 0 {
        log.omitted = Some(log.omitted.unwrap_or_default().saturating_add(left));
    }
}
