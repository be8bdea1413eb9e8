//! Where the time of an operation has gone, as far as its HostOperation tells: by kinds of steps, with what is between them, so that the parts are the whole.

use std::collections::BTreeMap;

use api::metamorph::{HostOperationStatus, OperationStep};
use jiff::{SignedDuration, Timestamp};

/// What a step is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    /// Power and what the BMC lists.
    Bmc,
    /// Settings and Secure Boot.
    Firmware,
    /// The medium goes in, the machine starts, and the agent reports: the record does not tell these apart.
    AgentBoot,
    /// The agent lists the hardware, or a hardware manager's steps, and runs these.
    Agent,
    /// The agent writes, wipes or erases.
    Disks,
    /// The machine starts what it was given.
    Boot,
    /// Steps of other provisioners and later versions.
    Other,
}

impl Spent {
    /// Of a step, by its name (`provisioning-plan`, `steps.rs`).
    fn of(step: &str) -> Self {
        match step {
            "read-inventory" | "power-off" => Self::Bmc,
            "switch-secure-boot" | "set-firmware" => Self::Firmware,
            "boot-agent" => Self::AgentBoot,
            "collect-inventory" | "list-steps" | "run-steps" => Self::Agent,
            "write-image" | "wipe-disks" | "erase-disks" => Self::Disks,
            "boot-disk"
            | "switch-off-for-disk"
            | "switch-on-to-disk"
            | "reset-to-disk"
            | "insert-live-iso"
            | "boot-live-iso"
            | "switch-off-for-live-iso"
            | "switch-on-to-live-iso"
            | "reset-to-live-iso" => Self::Boot,
            _ => Self::Other,
        }
    }

    /// In a sentence.
    const fn words(self) -> &'static str {
        match self {
            Self::Bmc => "BMC",
            Self::Firmware => "firmware",
            Self::AgentBoot => "medium and agent's boot",
            Self::Agent => "agent",
            Self::Disks => "disks",
            Self::Boot => "boot",
            Self::Other => "other steps",
        }
    }
}

/// From a time to another, whole seconds, never negative.
pub fn seconds(from: Timestamp, to: Timestamp) -> u64 {
    let passed = to.duration_since(from).max(SignedDuration::ZERO);
    passed.as_secs().unsigned_abs()
}

/// Seconds as people say them.
pub fn duration(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Begin and end of a step; one under way ends now.
fn span(step: &OperationStep, end: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let begin = step.start_time.as_ref()?.0;
    let end = step.end_time.as_ref().map_or(end, |time| time.0.min(end));
    (begin <= end).then_some((begin, end))
}

/// How long a step took; one that has not ended, so far.
pub fn of_step(step: &OperationStep, now: Timestamp) -> Option<u64> {
    span(step, now).map(|(begin, end)| seconds(begin, end))
}

/// The operation's time and its parts, a line. `None`: it has not begun. `asked` is when the host began to want it.
pub fn line(status: &HostOperationStatus, asked: Option<Timestamp>, now: Timestamp) -> Option<String> {
    let begin = status.start_time.as_ref()?.0;
    let end = status.end_time.as_ref().map_or(now, |time| time.0);
    let whole = seconds(begin, end);
    let mut spans: Vec<_> =
        status.steps.iter().filter_map(|step| Some((span(step, end)?, Spent::of(&step.name)))).collect();
    spans.sort_by_key(|(span, _)| *span);
    // What two steps say of the same time counts once.
    let mut counted_to = begin;
    let mut parts: BTreeMap<Spent, u64> = BTreeMap::new();
    for ((from, to), spent) in spans {
        let part = seconds(from.max(counted_to), to);
        *parts.entry(spent).or_default() += part;
        counted_to = counted_to.max(to);
    }
    let known: u64 = parts.values().sum();
    let mut told: Vec<String> =
        parts.iter().map(|(spent, seconds)| format!("{} {}", spent.words(), duration(*seconds))).collect();
    let rest = whole.saturating_sub(known);
    if rest > 0 {
        told.push(format!("not known {} (between steps, turns and earlier attempts)", duration(rest)));
    }
    let queue = asked.filter(|asked| *asked < begin).map(|asked| seconds(asked, begin)).filter(|waited| *waited > 0);
    let queue = queue.map(|waited| format!(", after {} in the queue", duration(waited))).unwrap_or_default();
    let parts = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    Some(format!("{} since {begin}{queue}{parts}", duration(whole)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(steps: &serde_json::Value, end: Option<&str>) -> HostOperationStatus {
        serde_json::from_value(
            json!({ "phase": "Running", "startTime": "2026-03-01T11:00:00Z", "endTime": end, "steps": steps }),
        )
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        format!("2026-03-01T{text}Z").parse().unwrap()
    }

    fn step(name: &str, start: Option<&str>, end: Option<&str>) -> serde_json::Value {
        let time = |text: Option<&str>| text.map(|text| format!("2026-03-01T{text}Z"));
        json!({ "name": name, "startTime": time(start), "endTime": time(end) })
    }

    #[test]
    fn the_parts_are_the_whole_and_what_is_not_known_is_called_so() {
        let steps = json!([
            step("boot-agent", Some("11:01:00"), Some("11:05:00")),
            step("write-image", Some("11:05:00"), Some("11:09:30")),
            step("boot-disk", Some("11:10:00"), None),
            step("acme-step", None, None),
        ]);
        let said = line(&status(&steps, None), Some(at("10:50:00")), at("11:12:00")).unwrap();
        assert_eq!(
            said,
            "12 min 0 s since 2026-03-01T11:00:00Z, after 10 min 0 s in the queue: medium and agent's boot 4 min 0 s, disks 4 min 30 s, boot 2 min 0 s, \
             not known 1 min 30 s (between steps, turns and earlier attempts)"
        );
    }

    #[test]
    fn steps_at_the_same_time_count_once_and_lies_do_not_underflow() {
        let steps = json!([
            step("write-image", Some("11:00:00"), Some("11:10:00")),
            step("set-firmware", Some("11:05:00"), Some("11:08:00")),
            // Backwards, before the operation, after its end.
            step("wipe-disks", Some("11:09:00"), Some("11:02:00")),
            step("boot-agent", Some("09:00:00"), Some("11:00:00")),
            step("boot-disk", Some("11:10:00"), Some("23:00:00")),
        ]);
        let said = line(&status(&steps, Some("2026-03-01T11:11:00Z")), Some(at("12:00:00")), at("13:00:00")).unwrap();
        assert!(said.starts_with("11 min 0 s since 2026-03-01T11:00:00Z: "), "{said}");
        assert!(
            said.contains("disks 10 min 0 s") && said.contains("boot 1 min 0 s") && !said.contains("not known"),
            "{said}"
        );
        assert_eq!(line(&HostOperationStatus::default(), None, at("13:00:00")), None);
        let future = line(&status(&json!([]), None), None, at("10:00:00")).unwrap();
        assert_eq!(future, "0 s since 2026-03-01T11:00:00Z");
    }

    #[test]
    fn each_step_of_the_native_plan_has_a_kind() {
        for step in operator_steps() {
            assert_ne!(Spent::of(step), Spent::Other, "{step}");
        }
    }

    /// As `provisioning-plan` names them.
    fn operator_steps() -> Vec<&'static str> {
        provisioning_plan::steps::Step::ALL.iter().map(|step| step.name()).collect()
    }
}
