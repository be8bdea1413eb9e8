//! The agent's log on its way to the server: a bounded ring that tracing writes into.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use agent_protocol::{LogLine, MAX_LOG_LINES};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::text::cut;

/// Lines kept while the server cannot be reached.
const MAX_KEPT: usize = 2000;

/// Longest text of a line, in bytes.
const MAX_TEXT: usize = 4096;

/// Most bytes of text in one report: with JSON's escapes far below the report's limit.
const MAX_REPORT_TEXT: usize = 512 << 10;

/// Milliseconds since the kernel started.
#[must_use]
pub fn uptime_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).unwrap_or(0)
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    /// Number of the first line kept, counted from the start.
    first: u64,
    /// Lines lost since the last report.
    lost: u64,
}

/// Log lines that the server has not got yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LogRing {
    ring: Arc<Mutex<Ring>>,
}

impl LogRing {
    /// An empty ring.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Ring) -> T) -> T {
        act(&mut self.ring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a line; drops the oldest if the ring is full.
    pub fn push(&self, level: &str, text: &str) {
        let line = LogLine { uptime_ms: uptime_ms(), level: level.to_owned(), text: cut(text, MAX_TEXT).to_owned() };
        self.with(|ring| {
            ring.lines.push_back(line);
            if ring.lines.len() > MAX_KEPT {
                ring.lines.pop_front();
                ring.first += 1;
                ring.lost += 1;
            }
        });
    }

    /// Lines for the next report, oldest first, and the mark for [`LogRing::acknowledge`]. They stay until acknowledged.
    #[must_use]
    pub fn pending(&self) -> (Vec<LogLine>, u64) {
        self.with(|ring| {
            let mut lines = Vec::new();
            if ring.lost > 0 {
                let text = format!("{} older log lines were dropped", ring.lost);
                lines.push(LogLine { uptime_ms: uptime_ms(), level: "warn".to_owned(), text });
            }
            let (mut bytes, mut taken) = (0, 0);
            for line in ring.lines.iter().take(MAX_LOG_LINES - 1) {
                bytes += line.text.len();
                if bytes > MAX_REPORT_TEXT {
                    break;
                }
                lines.push(line.clone());
                taken += 1;
            }
            (lines, ring.first + taken)
        })
    }

    /// All lines that are kept, oldest first; they stay.
    #[must_use]
    pub fn kept(&self) -> Vec<LogLine> {
        self.with(|ring| ring.lines.iter().cloned().collect())
    }

    /// The server has every line before `mark`.
    pub fn acknowledge(&self, mark: u64) {
        self.with(|ring| {
            while ring.first < mark && ring.lines.pop_front().is_some() {
                ring.first += 1;
            }
            ring.lost = 0;
        });
    }

    /// A tracing layer that writes into this ring.
    pub fn layer<S: Subscriber>(&self) -> impl Layer<S> + use<S> {
        RingLayer(self.clone())
    }
}

struct RingLayer(LogRing);

impl<S: Subscriber> Layer<S> for RingLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => return,
        };
        let mut text = Text::default();
        event.record(&mut text);
        self.0.push(level, &format!("{}{}", text.message, text.fields));
    }
}

/// Message first, then fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if self.message.len() + self.fields.len() > MAX_TEXT {
            return;
        }
        // writing into a String cannot fail
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { self.message.push_str(value) } else { self.record_debug(field, &value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    #[test]
    fn lines_stay_until_the_server_has_them() {
        let ring = LogRing::new();
        ring.push("info", "a");
        let (first, mark) = ring.pending();
        ring.push("info", "b");
        assert_eq!(first.len(), 1);
        assert_eq!(ring.pending().0.len(), 2);
        ring.acknowledge(mark);
        assert_eq!(ring.pending().0[0].text, "b");
    }

    #[test]
    fn too_many_lines_are_dropped_and_said_so() {
        let ring = LogRing::new();
        for number in 0..MAX_KEPT + 3 {
            ring.push("info", &number.to_string());
        }
        let (lines, mark) = ring.pending();
        assert_eq!(lines.len(), MAX_LOG_LINES);
        assert!(lines[0].text.contains("3 older"), "{}", lines[0].text);
        assert_eq!(lines[1].text, "3");
        ring.acknowledge(mark);
        assert_eq!(ring.pending().0[0].text, (3 + MAX_LOG_LINES - 1).to_string());
    }

    #[test]
    fn events_become_lines_with_their_fields() {
        let ring = LogRing::new();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(ring.layer()), || {
            tracing::warn!(disk = "sda", count = 3, "wiping {}", 7);
            tracing::trace!("not this");
        });
        let (lines, _) = ring.pending();
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].level.as_str(), lines[0].text.as_str()), ("warn", "wiping 7 disk=\"sda\" count=3"));
        ring.push("info", &"é".repeat(MAX_TEXT));
        assert!(ring.pending().0[1].text.len() <= MAX_TEXT);
    }
}
