//! What the agents of one host have written last, for people: bounded, and lost with the process.

use std::collections::VecDeque;
use std::fmt::Write as _;

use agent_protocol::LogLine;

/// Most bytes that are kept of one host. A boot that goes well writes less than a quarter of it.
const MAX_BYTES: usize = 16 << 10;

/// The last lines.
#[derive(Clone, Debug, Default)]
pub struct Said {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that were written and are not kept.
    omitted: u64,
}

impl Said {
    /// Adds what the agent of this generation has written; `dropped` lines before it were not taken.
    pub fn add(&mut self, generation: u64, lines: &[LogLine], dropped: u64) {
        self.omitted += dropped;
        for line in lines {
            let mut text = String::new();
            let (seconds, millis) = (line.uptime_ms / 1000, line.uptime_ms % 1000);
            // Ironic-python-agent's lines have their time in the text, and no uptime.
            let at = if line.uptime_ms == 0 { String::new() } else { format!(", {seconds}.{millis:03} s") };
            // Writing to a String does not fail.
            let _ = write!(text, "boot {generation}{at} {}: {}", level(&line.level), line.text);
            self.bytes += text.len();
            self.lines.push_back(text);
        }
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len();
            self.omitted += 1;
        }
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    /// How many are missing.
    pub const fn omitted(&self) -> u64 {
        self.omitted
    }
}

/// The level in one of the words that there are: what an agent says is bounded nowhere else.
fn level(said: &str) -> &'static str {
    match said {
        "error" => "error",
        "warn" => "warn",
        "info" => "info",
        _ => "debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine { uptime_ms: 12_034, level: "info".into(), text: text.into() }
    }

    #[test]
    fn the_newest_lines_are_kept_and_the_others_counted() {
        let mut said = Said::default();
        said.add(3, &[line("first"), LogLine { level: "x".repeat(9000), ..line("second") }], 0);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines, ["boot 3, 12.034 s info: first", "boot 3, 12.034 s debug: second"]);
        assert_eq!(said.omitted(), 0);
        let long = "x".repeat(4096);
        said.add(4, &vec![line(&long); 100], 7);
        assert!(said.lines().map(str::len).sum::<usize>() <= MAX_BYTES);
        assert_eq!(said.lines().count() as u64 + said.omitted(), 109);
        assert!(said.lines().all(|line| line.starts_with("boot 4")));
    }
}
