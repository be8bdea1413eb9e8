//! Limits on what one agent may report: how often, how much, and how long its texts may be. A party that holds a token, or has taken a machine
//! over, stays within these limits and costs other hosts nothing.

use agent_protocol::{AgentState, CommandId, LogLine, MAX_LOG_LINES, Outcome, Report};
use inventory::{BY_PATH, MachineEvidence, Storage};
use provisioner::HostKey;
use terms::is_printable;
use tokio::time::{Duration, Instant};

/// Reports per second, sustained, and in a burst. A working agent makes one per second, and one more for each change of its state.
const REPORTS: (u32, u32) = (4, 40);
/// Log lines per second, sustained, and in a burst.
const LINES: (u32, u32) = (20, 2 * MAX_LOG_LINES as u32);
/// Bytes of log lines per second, sustained, and in a burst.
const LOG_BYTES: (u32, u32) = (4 << 10, 256 << 10);
/// Longest log line kept, in bytes.
const MAX_LOG_TEXT: usize = 4096;

/// Most MACs and disks that are taken as evidence, and the longest text of each, in characters.
const MAX_EVIDENCE: usize = 512;
const MAX_TEXT: usize = 128;
/// Most marks, disks and warnings of an outcome.
const MAX_ITEMS: usize = 512;
const MAX_WARNINGS: usize = 32;
/// Longest sentence of an agent, in characters.
const MAX_SENTENCE: usize = 2000;
/// Longest name of an operation or a step that a server can have given.
const MAX_NAME: usize = 400;
/// Longest name of a source, in characters.
const MAX_FACT: usize = 512;
/// Longest name of a disk, of an owner or of a boot entry, and longest reason.
const MAX_LABEL: usize = 200;
/// Most arguments that are kept of a step.
const MAX_ARGUMENTS: usize = 64;

/// A quantity that fills up with time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// What it is filled with in a second.
    rate: u32,
    /// What it holds.
    most: u32,
    left: f64,
    at: Option<Instant>,
}

impl Bucket {
    fn new((rate, most): (u32, u32)) -> Self {
        Self { rate, most, left: f64::from(most), at: None }
    }

    /// Takes this amount out, if there is enough.
    fn take(&mut self, amount: u32) -> bool {
        let now = Instant::now();
        let passed = self.at.map_or(Duration::ZERO, |at| now.duration_since(at));
        self.at = Some(now);
        self.left = (self.left + passed.as_secs_f64() * f64::from(self.rate)).min(f64::from(self.most));
        let enough = self.left >= f64::from(amount);
        if enough {
            self.left -= f64::from(amount);
        }
        enough
    }
}

/// What one host's agent may still report.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    reports: Bucket,
    lines: Bucket,
    bytes: Bucket,
    dropped: u64,
}

impl Default for Budget {
    fn default() -> Self {
        let [reports, lines, bytes] = [REPORTS, LINES, LOG_BYTES].map(Bucket::new);
        Self { reports, lines, bytes, dropped: 0 }
    }
}

impl Budget {
    /// Whether one more report is taken.
    pub fn report(&mut self) -> bool {
        self.reports.take(1)
    }

    /// How many of these lines, from the first, are kept, and how many were dropped between the last kept line and these.
    pub fn lines(&mut self, lines: &[LogLine]) -> (usize, u64) {
        let is_within = |line: &&LogLine| {
            let bytes = u32::try_from(line.text.len().min(MAX_LOG_TEXT)).unwrap_or(u32::MAX);
            self.lines.take(1) && self.bytes.take(bytes)
        };
        let kept = lines.iter().take(MAX_LOG_LINES).take_while(is_within).count();
        let missing = if kept > 0 { std::mem::take(&mut self.dropped) } else { 0 };
        self.dropped += (lines.len() - kept) as u64;
        (kept, missing)
    }
}

/// Takes the report's log lines out of it, the first `kept` of them, printable and no longer than they may be.
pub fn lines(report: &mut Report, kept: usize) -> Vec<LogLine> {
    let bounded = |mut line: LogLine| {
        line.text.truncate(line.text.floor_char_boundary(MAX_LOG_TEXT));
        line.text = line.text.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect();
        line
    };
    std::mem::take(&mut report.logs).into_iter().take(kept).map(bounded).collect()
}

/// Prints log lines of the agent of the host with this uid. Hosts that are not looked after yet are told by it.
pub fn log(lines: &[LogLine], uid: &str, key: Option<&HostKey>, dropped: u64) {
    let (namespace, host) = key.map_or(("", uid), |key| (key.namespace.as_str(), key.name.as_str()));
    if dropped > 0 && !lines.is_empty() {
        tracing::warn!(target: "agent", namespace, host, "{dropped} log lines of the agent were dropped: it says too much");
    }
    for LogLine { uptime_ms, level, text } in lines {
        match level.as_str() {
            "error" | "warn" => tracing::warn!(target: "agent", namespace, host, uptime_ms, "{text}"),
            "info" => tracing::info!(target: "agent", namespace, host, uptime_ms, "{text}"),
            _ => tracing::debug!(target: "agent", namespace, host, uptime_ms, "{text}"),
        }
    }
}

/// Printable and not longer than this many characters.
fn short(text: &mut String, most: usize) {
    if text.len() > most || !text.chars().all(is_printable) {
        *text = text.chars().filter(|c| is_printable(*c)).take(most).collect();
    }
}

/// The report with everything cut to a sane length; log lines apart, which have their own limits.
pub fn bounded(mut report: Report) -> Report {
    for text in [&mut report.version, &mut report.boot_id] {
        short(text, MAX_TEXT);
    }
    report.machine = report.machine.map(evidence);
    match &mut report.state {
        AgentState::Idle => {}
        AgentState::Running { command, progress } => {
            name(command);
            short(&mut progress.disk, MAX_LABEL);
            short(&mut progress.source, MAX_FACT);
        }
        AgentState::Finished { command, outcome } => {
            name(command);
            bound_outcome(outcome);
        }
    }
    report
}

fn name(command: &mut CommandId) {
    for text in [&mut command.operation, &mut command.step, &mut command.boot_id] {
        short(text, MAX_NAME);
    }
}

/// Bounds an agent's evidence, which is untrusted.
fn evidence(mut machine: MachineEvidence) -> MachineEvidence {
    [&mut machine.manufacturer, &mut machine.system_uuid, &mut machine.serial_number]
        .into_iter()
        .flatten()
        .for_each(|text| short(text, MAX_TEXT));
    for list in [&mut machine.macs, &mut machine.disks] {
        list.truncate(MAX_EVIDENCE);
        list.iter_mut().for_each(|text| short(text, MAX_TEXT));
    }
    machine
}

fn bound_outcome(outcome: &mut Outcome) {
    match outcome {
        Outcome::Inspected { hardware, marks, links, devices, .. } => {
            **devices = devices.bounded();
            *links = inventory::links::bounded(links);
            **hardware = hardware.bounded();
            marks.truncate(MAX_ITEMS);
            for mark in marks {
                [&mut mark.place, &mut mark.owner, &mut mark.host].into_iter().for_each(|text| short(text, MAX_LABEL));
            }
        }
        Outcome::Written(summary) => {
            summary.warnings.truncate(MAX_WARNINGS);
            summary.warnings.iter_mut().for_each(|text| short(text, MAX_SENTENCE));
            [&mut summary.disk, &mut summary.digest].into_iter().for_each(|text| short(text, MAX_LABEL));
            summary.boot_entry.iter_mut().for_each(|text| short(text, MAX_LABEL));
            short(&mut summary.source, MAX_FACT);
        }
        Outcome::Wiped { disks, left } => {
            disks.truncate(MAX_ITEMS);
            disks.iter_mut().for_each(|text| short(text, MAX_LABEL));
            left.truncate(MAX_ITEMS);
            left.iter_mut().for_each(|disk| {
                short(&mut disk.disk, MAX_LABEL);
                short(&mut disk.why, MAX_LABEL);
            });
        }
        Outcome::Erased { disks } => {
            disks.truncate(MAX_ITEMS);
            *disks = std::mem::take(disks).into_iter().map(|disk| disk.bounded(is_printable)).collect();
        }
        Outcome::StepsListed { steps, omitted, versions } => {
            let more = u32::try_from(steps.len().saturating_sub(MAX_ITEMS)).unwrap_or(u32::MAX);
            *omitted = omitted.saturating_add(more);
            steps.truncate(MAX_ITEMS);
            for step in steps {
                [&mut step.manager, &mut step.step, &mut step.interface]
                    .into_iter()
                    .for_each(|text| short(text, MAX_LABEL));
                if let Some(args) = &mut step.args {
                    args.truncate(MAX_ARGUMENTS);
                    for arg in args {
                        [&mut arg.name, &mut arg.description].into_iter().for_each(|text| short(text, MAX_LABEL));
                    }
                }
            }
            // A step is run with all of them as they are, or not at all: a part of them is of no use.
            let fits = |text: &String| text.len() <= MAX_LABEL && text.chars().all(is_printable);
            if versions.len() > MAX_WARNINGS || !versions.iter().all(|(name, version)| fits(name) && fits(version)) {
                versions.clear();
            }
        }
        Outcome::StepRan { result } => short(result, MAX_SENTENCE),
        Outcome::Leaving => {}
        Outcome::Failed(error) => short(&mut error.message, MAX_SENTENCE),
    }
}

/// Most of the record that the disks of an inspection take, bytes.
const MAX_DISKS_BYTES: usize = 16 << 10;

/// What tells these disks from others, of as many of them as the host's record has room for.
pub fn disks_to_record(disks: &[Storage]) -> Vec<Storage> {
    let mut left = MAX_DISKS_BYTES;
    let slim = disks.iter().map(|disk| {
        let names = disk.alternate_names.iter().filter(|name| name.starts_with(BY_PATH));
        Storage {
            name: disk.name.clone(),
            alternate_names: names.cloned().collect(),
            serial_number: disk.serial_number.clone(),
            wwn: disk.wwn.clone(),
            wwn_vendor_extension: disk.wwn_vendor_extension.clone(),
            wwn_with_extension: disk.wwn_with_extension.clone(),
            disk_type: disk.disk_type,
            ..Storage::default()
        }
    });
    let fits = |disk: &Storage| {
        let bytes = serde_json::to_vec(disk).map_or(usize::MAX, |json| json.len());
        left.checked_sub(bytes).map(|rest| left = rest).is_some()
    };
    slim.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_protocol::{CommandError, DiskMarkFound, ErrorCode, LeftDisk, WriteSummary};
    use inventory::ErasedDisk;

    fn line(bytes: usize) -> LogLine {
        LogLine { uptime_ms: 1, level: "info".into(), text: "x".repeat(bytes) }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_as_many_as_an_agent_makes() {
        let mut budget = Budget::default();
        let at_once = (0..1000).filter(|_| budget.report()).count();
        assert_eq!(at_once, 40);
        let mut taken = 0;
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(100)).await;
            taken += (0..10).filter(|_| budget.report()).count();
        }
        assert!((39..=41).contains(&taken), "{taken} in ten seconds");
        // An agent at work, for an hour.
        let mut honest = Budget::default();
        for _ in 0..3600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(honest.report());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_lines_and_their_bytes_are_counted_and_what_is_dropped_is_told() {
        let mut budget = Budget::default();
        let long: Vec<LogLine> = (0..500).map(|_| line(1 << 20)).collect();
        assert_eq!(budget.lines(&long), (64, 0), "256 KiB of what is kept of them");
        assert_eq!(budget.lines(&long), (0, 0));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(budget.lines(&[line(10)]), (1, 936));
        assert_eq!(budget.lines(&[line(10)]), (1, 0));
        let many: Vec<LogLine> = (0..500).map(|_| line(1)).collect();
        let kept: usize = (0..10).map(|_| budget.lines(&many).0).sum();
        assert!(kept <= 1000, "{kept}");
    }

    #[test]
    fn every_word_of_an_agent_has_an_end() {
        let long = "\u{1b}[31mlong ".repeat(1 << 10);
        let id = CommandId { operation: long.clone(), step: long.clone(), attempt: 1, boot_id: long.clone() };
        let mark = DiskMarkFound { place: long.clone(), owner: long.clone(), host: long.clone() };
        let left = LeftDisk { disk: long.clone(), why: long.clone() };
        let erased = ErasedDisk {
            name: long.clone(),
            serial_number: Some(long.clone()),
            wwn: Some(long.clone()),
            method: Some(long.clone()),
            evidence: long.clone(),
            ..ErasedDisk::default()
        };
        let many = vec![long.clone(); 2000];
        let outcomes = [
            Outcome::Inspected {
                hardware: Box::default(),
                marks: vec![mark; 2000],
                uefi: true,
                secure_boot: false,
                links: Vec::new(),
                devices: Box::default(),
            },
            Outcome::Written(WriteSummary {
                warnings: many.clone(),
                boot_entry: Some(long.clone()),
                ..WriteSummary::default()
            }),
            Outcome::Wiped { disks: many.clone(), left: vec![left; 2000] },
            Outcome::Erased { disks: vec![erased; 2000] },
            Outcome::Failed(CommandError { code: ErrorCode::Internal, message: long.clone(), untouched: false }),
        ];
        for outcome in outcomes {
            let report = Report {
                protocol: 2,
                version: long.clone(),
                host: "u".into(),
                generation: 1,
                boot_id: long.clone(),
                sequence: 1,
                state: AgentState::Finished { command: id.clone(), outcome },
                machine: Some(MachineEvidence {
                    macs: many.clone(),
                    system_uuid: Some(long.clone()),
                    ..MachineEvidence::default()
                }),
                firmware: None,
                wait_seconds: 1,
                logs: vec![],
            };
            let text = serde_json::to_string(&bounded(report)).unwrap();
            assert!(text.len() < 500_000, "{} bytes", text.len());
            assert!(!text.contains("\\u001b"), "no escape sequences");
        }
    }

    #[test]
    fn what_an_inspection_finds_is_bounded() {
        let nics = vec![inventory::Nic::default(); 2000];
        let hardware = Box::new(inventory::HardwareDetails { nics, ..Default::default() });
        let node = |node| inventory::NumaNode { node, ..Default::default() };
        let devices = Box::new(inventory::Devices { numa: Some((0..9999).map(node).collect()), ..Default::default() });
        let mut outcome = Outcome::Inspected {
            hardware,
            marks: Vec::new(),
            uefi: true,
            secure_boot: false,
            links: Vec::new(),
            devices,
        };
        bound_outcome(&mut outcome);
        let Outcome::Inspected { hardware, devices, .. } = outcome else { panic!("another outcome") };
        assert!(devices.numa_left_out > 9000, "{}", devices.numa_left_out);
        assert_eq!(hardware.nics.len(), MAX_ITEMS);
    }
}
