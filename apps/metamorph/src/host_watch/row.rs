//! One host of `host watch` as text: a line of columns, and a message below it, wrapped to the terminal's width.
//!
//! Messages come from BMCs, agents and image servers: control characters in them never reach the terminal.

use api::metal3::{BareMetalHost, OperationalStatus, ProvisioningState as State, annotation};
use api::metamorph::{HostOperation, OperationPhase, OperationType, StepPhase};
use host_lifecycle::is_request;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Columns of the name; a longer one is cut.
const NAME: usize = 24;
/// Columns of the state.
const STATE: usize = 22;
/// Most lines of a message.
const MESSAGE_LINES: usize = 6;
/// Least width that lines are laid out for, columns.
const NARROWEST: usize = 40;

/// The known state of one host.
#[derive(Default)]
pub struct Row {
    host: Option<Box<BareMetalHost>>,
    operation: Option<Box<HostOperation>>,
}

impl Row {
    /// Sets the host's current state.
    pub fn see_host(&mut self, host: Box<BareMetalHost>) {
        self.host = Some(host);
    }

    /// Sets the operation, unless it is older than the known one. Of a request, the work that it brings about is shown.
    pub fn see_operation(&mut self, operation: Box<HostOperation>) {
        if is_request(&operation) {
            return;
        }
        let newer = self
            .operation
            .as_ref()
            .is_none_or(|known| known.name_any() == operation.name_any() || order(known) <= order(&operation));
        if newer {
            self.operation = Some(operation);
        }
    }

    /// Whether the host itself is known, not only its operations.
    pub const fn is_known(&self) -> bool {
        self.host.is_some()
    }

    fn running(&self) -> Option<&HostOperation> {
        self.operation.as_deref().filter(|o| o.status.as_ref().is_some_and(|s| s.phase == OperationPhase::Running))
    }

    /// The state, with a qualifier in brackets.
    fn state(&self) -> String {
        let Some(host) = &self.host else { return String::new() };
        let state = match host.state().as_str() {
            "" => "new",
            state => state,
        };
        let more = match host.status.as_ref().map(|s| s.operational_status).unwrap_or_default() {
            _ if host.annotation(annotation::PAUSED).is_some() => " (paused)",
            OperationalStatus::Error => " (error)",
            OperationalStatus::Delayed => " (delayed)",
            OperationalStatus::Detached => " (detached)",
            _ => "",
        };
        format!("{state}{more}")
    }

    /// Start of the current situation: the work under way, or the last change of the status, or the creation.
    fn since(&self) -> Option<Timestamp> {
        let work = self.running().and_then(|o| o.status.as_ref()?.start_time.as_ref());
        let written = self.host.as_ref().and_then(|h| h.status.as_ref()?.last_updated.as_ref());
        let made = self.host.as_ref().and_then(|h| h.metadata.creation_timestamp.as_ref());
        work.or(written).or(made).map(|time| time.0)
    }

    /// The work under way in a few words, or how long the last operation took.
    fn work(&self) -> String {
        if let Some(status) = self.running().and_then(|o| o.status.as_ref()) {
            let done = status.steps.iter().filter(|s| s.phase == StepPhase::Done).count();
            let step = status.steps.iter().find(|s| s.phase == StepPhase::Running);
            let name = step.map(|s| s.name.as_str()).or(status.current_step.as_deref()).unwrap_or_default();
            let percent = step.and_then(|s| s.percent).map(|p| format!(" {p}%")).unwrap_or_default();
            return plain(&format!("{done}/{} {name}{percent}", status.steps.len()));
        }
        let Some((operation, status)) = self.operation.as_ref().and_then(|o| Some((o, o.status.as_ref()?))) else {
            return String::new();
        };
        match (status.phase, &status.start_time, &status.end_time) {
            (OperationPhase::Succeeded, Some(start), Some(end)) if self.is_outcome_of(operation) => {
                format!("{} took {}", operation.spec.operation.as_str(), time_between(start.0, end.0))
            }
            _ => String::new(),
        }
    }

    /// Whether the host's state is still the operation's result, not a later one.
    fn is_outcome_of(&self, operation: &HostOperation) -> bool {
        let state = self.host.as_ref().map(|host| host.state()).unwrap_or_default();
        match operation.spec.operation {
            OperationType::Inspect => matches!(state, State::Preparing | State::Available | State::Ready),
            OperationType::Provision => state == State::Provisioned,
            OperationType::Deprovision | OperationType::Erase | OperationType::Steps => {
                matches!(state, State::Available | State::Ready)
            }
            OperationType::Prepare => !matches!(state, State::Preparing),
            OperationType::CollectLogs | OperationType::Diagnose | OperationType::Locate => false,
            OperationType::Service | OperationType::Reboot | OperationType::Rebuild => {
                !matches!(state, State::Provisioned | State::ExternallyProvisioned)
            }
        }
    }

    /// The message to show: an error, or the current activity.
    fn message(&self) -> String {
        let status = self.host.as_ref().and_then(|h| h.status.as_ref());
        if let Some(status) = status.filter(|s| !s.error_message.is_empty()) {
            let kind = status.error_type.map(|kind| format!("{}: ", kind.as_str())).unwrap_or_default();
            return plain(&format!("{kind}{}", status.error_message));
        }
        let message = self.running().and_then(|o| o.status.as_ref()?.message.clone());
        plain(&message.unwrap_or_default())
    }

    /// The lines for a terminal of this width.
    pub fn lines(&self, name: &str, width: usize, now: Timestamp) -> Vec<String> {
        let width = width.max(NARROWEST);
        let time = self.since().map(|since| time_between(since, now)).unwrap_or_default();
        let columns =
            format!("{:NAME$} {:STATE$} {time:>6}  {}", cut(name, NAME), cut(&self.state(), STATE), self.work());
        let mut lines = vec![cut(columns.trim_end(), width)];
        let mut message: Vec<String> = wrapped(&self.message(), width - 4);
        if message.len() > MESSAGE_LINES {
            message.truncate(MESSAGE_LINES);
            if let Some(last) = message.last_mut() {
                *last = cut(&format!("{last} …"), width - 4);
            }
        }
        lines.extend(message.into_iter().map(|line| format!("    {line}")));
        lines
    }

    /// The same as JSON, for programs.
    pub fn event(&self, now: Timestamp) -> Value {
        let host = self.host.as_ref();
        let status = host.and_then(|h| h.status.as_ref());
        let mut event = json!({
            "time": now.to_string(), "type": "host",
            "host": {
                "namespace": host.and_then(|h| h.namespace()).unwrap_or_default(),
                "name": host.map(|h| h.name_any()).unwrap_or_default(),
            },
            "state": host.map(|h| h.state()).unwrap_or_default().as_str(),
            "operationalStatus": status.map(|s| s.operational_status).unwrap_or_default(),
            "poweredOn": status.is_some_and(|s| s.powered_on),
        });
        if let Some(error) = status.filter(|s| s.error_type.is_some()) {
            event["error"] = json!({ "type": error.error_type, "message": plain(&error.error_message) });
        }
        if let Some((operation, status)) = self.operation.as_ref().and_then(|o| Some((o, o.status.as_ref()?))) {
            let step = status.steps.iter().find(|s| s.phase == StepPhase::Running);
            event["operation"] = json!({
                "name": operation.name_any(), "type": operation.spec.operation, "phase": status.phase,
                "step": step.map(|s| s.name.as_str()), "percent": step.and_then(|s| s.percent),
                "message": plain(&status.message.clone().unwrap_or_default()),
            });
            if let Some(error) = &status.error {
                event["operation"]["cause"] = error.cause.as_str().into();
            }
        }
        event
    }

    /// The line for a log, with the time at which this state began, and a key: a new line is due only when the key changes (percents change it by
    /// tens).
    pub fn logged(&self, name: &str, zone: &TimeZone, now: Timestamp) -> (String, String) {
        let status = self.running().and_then(|o| o.status.as_ref());
        let step = status.and_then(|s| s.steps.iter().find(|s| s.phase == StepPhase::Running));
        let tens = step.and_then(|s| s.percent).map(|p| p / 10);
        let error = self.host.as_ref().and_then(|h| h.status.as_ref()).map(|s| s.error_message.as_str());
        let key = format!("{} {:?} {tens:?} {error:?} {}", self.state(), step.map(|s| &s.name), status.is_none());
        // Work under way is current; a state that was written before the watch began has its own time.
        let ended = self.operation.as_ref().and_then(|o| o.status.as_ref()?.end_time.as_ref()).map(|time| time.0);
        let last = self.since().max(ended);
        let at = if status.is_some() { now } else { last.unwrap_or(now).min(now) };
        let zoned = at.to_zoned(zone.clone());
        let old = now.duration_since(at).as_hours() >= 24;
        let clock = zoned.strftime(if old { "%Y-%m-%d %H:%M:%S" } else { "%H:%M:%S" });
        let parts = [self.state(), self.work(), self.message()];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        (key, format!("{clock} {name}  {}", parts.join(" · ")))
    }
}

/// Orders a host's operations: the number in their names.
fn order(operation: &HostOperation) -> u64 {
    operation.name_any().rsplit('-').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Text without control characters, which a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The text, or as much of it as fits with a sign that there is more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// The text in lines of this width, cut between words; longer words are cut where the line ends.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(width) {
            let part: String = part.iter().collect();
            let needed = line.chars().count() + usize::from(!line.is_empty()) + part.chars().count();
            if needed > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&part);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// A time for people: `45s`, `2m10s`, `3h05m`, `2d04h`.
fn time_between(start: Timestamp, end: Timestamp) -> String {
    let seconds = end.duration_since(start).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn row(status: Value) -> Row {
        let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
            "metadata": { "name": "node-0" }, "spec": { "online": true }, "status": status });
        let mut row = Row::default();
        row.see_host(serde_json::from_value(host).unwrap());
        row
    }

    fn operation(number: u32, status: Value) -> Box<HostOperation> {
        let object = json!({ "apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "HostOperation",
            "metadata": { "name": format!("node-0-{number:03}-provision"), "ownerReferences": [{
                "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "name": "node-0", "uid": "u", "controller": true
            }] },
            "spec": { "type": "Provision", "host": { "name": "node-0" } }, "status": status });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn of_a_request_the_work_that_it_brings_about_is_shown() {
        let mut row = writing();
        let before = row.lines("n", 80, at("2026-01-01T00:02:10Z"));
        let mut request = operation(9, json!({ "phase": "Running", "startTime": "2026-01-01T00:02:00Z" }));
        request.metadata.owner_references = None;
        row.see_operation(request);
        assert_eq!(row.lines("n", 80, at("2026-01-01T00:02:10Z")), before);
    }

    fn writing() -> Row {
        let mut row = row(json!({ "provisioning": { "ID": "x", "state": "provisioning" }, "operationalStatus": "OK" }));
        let steps = json!([
            { "name": "boot-agent", "phase": "Done" },
            { "name": "write-image", "phase": "Running", "percent": 42, "startTime": "2026-01-01T00:01:00Z" },
            { "name": "boot-disk", "phase": "Pending" },
        ]);
        row.see_operation(operation(
            7,
            json!({ "phase": "Running", "startTime": "2026-01-01T00:00:00Z", "steps": steps,
            "message": "writing the image: 420 of 1000 MB" }),
        ));
        row
    }

    #[test]
    fn work_under_way_is_readable_at_eighty_columns() {
        let lines = writing().lines("metal3/a-server-with-a-long-name-0001", 80, at("2026-01-01T00:02:10Z"));
        assert_eq!(
            lines,
            [
                "metal3/a-server-with-a-… provisioning            2m10s  1/3 write-image 42%",
                "    writing the image: 420 of 1000 MB",
            ]
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn programs_are_told_the_same() {
        let event = writing().event(at("2026-01-01T00:02:10Z"));
        assert_eq!((&event["host"]["name"], &event["state"]), (&json!("node-0"), &json!("provisioning")), "{event}");
        assert_eq!(event["operation"]["step"], "write-image", "{event}");
        assert_eq!(event["operation"]["percent"], 42, "{event}");
        assert!(event["error"].is_null(), "{event}");
        let mut failed =
            row(json!({ "operationalStatus": "error", "errorType": "registration error", "errorMessage": "x\u{1b}" }));
        failed.see_operation(operation(
            1,
            json!({ "phase": "Failed", "error": { "cause": "BmcUnreachable", "message": "m" } }),
        ));
        let event = failed.event(Timestamp::UNIX_EPOCH);
        assert_eq!(event["error"], json!({ "type": "registration error", "message": "x " }));
        assert_eq!(event["operation"]["cause"], "BmcUnreachable", "{event}");
    }

    #[test]
    fn an_older_operation_that_is_told_later_does_not_hide_the_present_one() {
        let mut row = writing();
        row.see_operation(operation(6, json!({ "phase": "Succeeded" })));
        assert!(row.lines("n", 80, at("2026-01-01T00:02:10Z"))[0].contains("write-image"));
    }

    #[test]
    fn the_time_is_that_of_the_work_not_of_the_watching() {
        let started_watching_an_hour_later = at("2026-01-01T01:05:00Z");
        assert!(writing().lines("n", 80, started_watching_an_hour_later)[0].contains(" 1h05m "));
        let mut done = row(json!({ "provisioning": { "ID": "x", "state": "provisioned" }, "operationalStatus": "OK",
            "lastUpdated": "2026-01-01T00:03:12Z" }));
        done.see_operation(operation(
            7,
            json!({ "phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z",
            "endTime": "2026-01-01T00:03:12Z" }),
        ));
        let line = &done.lines("node-0", 80, at("2026-01-03T04:03:12Z"))[0];
        assert_eq!(line, "node-0                   provisioned             2d04h  provision took 3m12s");
    }

    #[test]
    fn errors_are_wrapped_and_cannot_write_to_the_terminal() {
        let message = format!("reach the BMC: \x1b[2J nothing answers at {} — check the address", "x".repeat(120));
        let row = row(json!({ "provisioning": { "ID": "", "state": "registering" }, "operationalStatus": "error",
            "errorType": "registration error", "errorMessage": message, "lastUpdated": "2026-01-01T00:00:00Z" }));
        for width in [40, 80, 200] {
            let lines = row.lines("node-0", width, at("2026-01-01T00:00:05Z"));
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            assert!(!lines.concat().contains('\x1b'), "{lines:?}");
            let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
            assert!(words.join(" ").contains("check the address"), "{lines:?}");
        }
        let lines = row.lines("node-0", 80, at("2026-01-01T00:00:05Z"));
        assert!(lines[0].starts_with("node-0                   registering (error)        5s"), "{lines:?}");
        assert!(lines[1].starts_with("    registration error: reach the BMC:"), "{lines:?}");
    }

    #[test]
    fn a_log_says_when_it_was_so() {
        let provisioned = row(json!({ "provisioning": { "ID": "x", "state": "available" }, "operationalStatus": "OK",
            "lastUpdated": "2026-01-01T10:00:00Z" }));
        let (key, line) = provisioned.logged("default/node-0", &TimeZone::UTC, at("2026-01-01T12:00:00Z"));
        assert_eq!(line, "10:00:00 default/node-0  available");
        let (same, later) = provisioned.logged("default/node-0", &TimeZone::UTC, at("2026-01-03T12:00:00Z"));
        assert_eq!((key, later.as_str()), (same, "2026-01-01 10:00:00 default/node-0  available"));
        let (_, line) = writing().logged("default/node-0", &TimeZone::UTC, at("2026-01-01T00:02:10Z"));
        assert_eq!(
            line,
            "00:02:10 default/node-0  provisioning · 1/3 write-image 42% · writing the image: 420 of 1000 MB"
        );
    }

    #[test]
    fn each_percent_is_not_a_line_of_a_log() {
        let keys: Vec<String> = [41, 42, 51]
            .into_iter()
            .map(|percent| {
                let mut row = row(json!({}));
                let steps = json!([{ "name": "write-image", "phase": "Running", "percent": percent }]);
                row.see_operation(operation(1, json!({ "phase": "Running", "steps": steps })));
                row.logged("n", &TimeZone::UTC, Timestamp::UNIX_EPOCH).0
            })
            .collect();
        assert_eq!(keys[0], keys[1]);
        assert_ne!(keys[1], keys[2]);
    }
}
