//! Events as they come: a stream of server-sent events (EventService, `ServerSentEventUri`), and what is posted to a subscription's destination.
//!
//! The stream's form is WHATWG's (HTML, "Server-sent events"), what is in it an `Event` (schema Event). All of it is bounded: a line and an event in bytes, events in values, and
//! the events in a row that cannot be read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bmc::{Alert, BmcError, Channel, ErrorKind, EventStream, HealthLevel, NotLeading, Pacer, Posted, StreamPlace};
use serde_json::Value;
use terms::{clean, json_values_at_most};

use crate::json::word;
use crate::transport::{Opened, Pieces, TransportError};

/// Longest line and longest event of a stream, bytes.
pub const MAX_EVENT: usize = 64 << 10;
/// Most values of an event.
const MAX_VALUES: usize = 4096;
/// Most records of an event that are looked at.
const MAX_RECORDS: usize = 256;
/// Events in a row that are none, after which a stream is given up.
const MAX_UNREADABLE: u32 = 32;

/// After each byte so long nothing is read: a stream has a quarter of a megabyte a second at most.
const PER_BYTE: Duration = Duration::from_micros(4);
/// What is attempted, for errors.
pub const LISTEN: &str = "listen to the BMC's events";

/// What an `Event` amounts to; `None` if it is none.
pub fn alert_of(event: &Value) -> Option<Alert> {
    let records = event.get("Events")?.as_array()?;
    let told = records.iter().take(MAX_RECORDS).map(|record| {
        // `Severity` is deprecated since Event 1.5, and what older BMCs have.
        let severity = word(record, "MessageSeverity").or_else(|| word(record, "Severity"));
        let severity = match severity {
            Some("Critical") => HealthLevel::Critical,
            Some("Warning") => HealthLevel::Warning,
            _ => HealthLevel::OK,
        };
        let id = word(record, "MessageId").unwrap_or_default();
        // ResourceEvent.1.x.ResourceStatusChangedOK, …Warning, …Critical; the type is what BMCs before Event 1.3 have.
        let is_health = word(record, "EventType") == Some("StatusChange") || id.contains("ResourceStatusChanged");
        Alert { severity, is_health }
    });
    told.reduce(Alert::and)
}

/// Reads what was posted.
pub fn posted(body: &[u8]) -> Option<Posted> {
    let event = read(body)?;
    let context = word(&event, "Context").unwrap_or_default().to_owned();
    Some(Posted { context, alert: alert_of(&event)? })
}

fn read(text: &[u8]) -> Option<Value> {
    if text.len() > MAX_EVENT || json_values_at_most(text) > MAX_VALUES {
        return None;
    }
    serde_json::from_slice(text).ok()
}

/// Why a stream is given up.
#[derive(Debug, PartialEq, Eq)]
pub enum Broken {
    /// A line or an event is too long.
    TooLong,
    /// Too many events in a row are none.
    Unreadable,
}

/// The lines of a stream, put together to events.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    data: Vec<u8>,
    /// The last byte ended a line, and a line feed after it ends none.
    after_return: bool,
    unreadable: u32,
}

impl Lines {
    /// Takes the next bytes of the stream; what the events that they complete amount to.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Alert>, Broken> {
        let mut told: Option<Alert> = None;
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => {
                    if let Some(alert) = self.line_ends()? {
                        told = Some(told.map_or(alert, |before| before.and(alert)));
                    }
                }
                byte if self.line.len() < MAX_EVENT => self.line.push(*byte),
                _ => return Err(Broken::TooLong),
            }
        }
        Ok(told)
    }

    fn line_ends(&mut self) -> Result<Option<Alert>, Broken> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.event_ends();
        }
        // Other fields (`id`, `event`, `retry`) and comments say nothing that is needed.
        let Some(data) = line.strip_prefix(b"data") else { return Ok(None) };
        let data = match data.strip_prefix(b":") {
            Some(data) => data.strip_prefix(b" ").unwrap_or(data),
            None if data.is_empty() => data,
            None => return Ok(None),
        };
        if self.data.len() + data.len() + 1 > MAX_EVENT {
            return Err(Broken::TooLong);
        }
        self.data.extend_from_slice(data);
        self.data.push(b'\n');
        Ok(None)
    }

    fn event_ends(&mut self) -> Result<Option<Alert>, Broken> {
        let data = std::mem::take(&mut self.data);
        if data.is_empty() {
            return Ok(None);
        }
        let Some(event) = read(&data) else {
            self.unreadable += 1;
            return if self.unreadable >= MAX_UNREADABLE { Err(Broken::Unreadable) } else { Ok(None) };
        };
        self.unreadable = 0;
        // A stream may have other things in it, as reports of metrics.
        Ok(alert_of(&event))
    }
}

/// An open stream.
pub struct Stream {
    pieces: Box<dyn Pieces>,
    lines: Lines,
    channel: Arc<Channel>,
    pacer: Arc<dyn Pacer>,
    /// How long no more is read.
    rest: Duration,
    /// Of the BMC, for errors.
    origin: String,
    _place: StreamPlace,
}

impl Stream {
    /// Of this answer, which has begun.
    pub fn new(
        opened: Opened,
        channel: Arc<Channel>,
        pacer: Arc<dyn Pacer>,
        origin: String,
        place: StreamPlace,
    ) -> Self {
        let lines = Lines::default();
        Self { pieces: opened.pieces, lines, channel, pacer, rest: Duration::ZERO, origin, _place: place }
    }

    fn error(&self, kind: ErrorKind, found: &str) -> BmcError {
        BmcError::new(kind, format!("{LISTEN} on BMC {}", self.origin), found.to_owned())
    }
}

#[async_trait]
impl EventStream for Stream {
    async fn next(&mut self) -> Result<Option<Alert>, BmcError> {
        // A BMC that floods waits itself then: its connection takes no more.
        self.pacer.wait(std::mem::take(&mut self.rest)).await;
        let piece = match self.channel.lead().during(self.pieces.next()).await {
            Ok(Ok(Some(piece))) => piece,
            Ok(Ok(None)) => return Err(self.error(ErrorKind::Unreachable, "the BMC has ended the stream")),
            Ok(Err(error)) => return Err(self.error(kind_of(&error), &clean(&error.to_string(), 300))),
            Err(NotLeading { .. }) => {
                return Err(self.error(ErrorKind::NotLeading, "the stream was cut: another process leads"));
            }
        };
        self.channel.received(piece.len());
        self.rest = PER_BYTE.saturating_mul(u32::try_from(piece.len()).unwrap_or(u32::MAX));
        self.lines.take(&piece).map_err(|broken| match broken {
            Broken::TooLong => self.error(ErrorKind::Protocol, &format!("an event has more than {MAX_EVENT} bytes")),
            Broken::Unreadable => {
                self.error(ErrorKind::Protocol, &format!("{MAX_UNREADABLE} events in a row are not JSON"))
            }
        })
    }
}

const fn kind_of(error: &TransportError) -> ErrorKind {
    match error {
        TransportError::TooLarge | TransportError::Protocol { .. } => ErrorKind::Protocol,
        TransportError::Unconnected { .. } | TransportError::Timeout { .. } => ErrorKind::Timeout,
        _ => ErrorKind::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(severity: &str, id: &str) -> String {
        json!({ "Context": "c", "Events": [{ "MessageSeverity": severity, "MessageId": id }] }).to_string()
    }

    fn told(severity: HealthLevel, is_health: bool) -> Option<Alert> {
        Some(Alert { severity, is_health })
    }

    #[test]
    fn events_are_put_together_whatever_ends_their_lines_and_wherever_they_are_cut() {
        let one = event("Warning", "Base.1.0.X");
        let (head, tail) = one.split_at(11);
        for end in ["\n", "\r\n", "\r"] {
            let text = format!(": hello{end}{end}id: 1{end}event: x{end}data: {head}{end}data:{tail}{end}{end}");
            // A line feed within JSON stands where blanks may stand, or the event is unreadable.
            let whole = format!(": hello{end}{end}id: 1{end}data: {one}{end}{end}");
            for size in [1, 2, 3, 7, 1000] {
                let mut lines = Lines::default();
                let found: Vec<Alert> =
                    whole.as_bytes().chunks(size).filter_map(|piece| lines.take(piece).unwrap()).collect();
                assert_eq!(found, [Alert { severity: HealthLevel::Warning, is_health: false }], "{end:?} {size}");
                let mut lines = Lines::default();
                assert!(text.as_bytes().chunks(size).all(|piece| lines.take(piece).is_ok()));
            }
        }
        let mut lines = Lines::default();
        assert_eq!(lines.take(format!("data: {one}\n").as_bytes()), Ok(None), "it has not ended yet");
        assert_eq!(lines.take(b"\n"), Ok(told(HealthLevel::Warning, false)));
        let both = format!(
            "data: {}\n\ndata: {}\n\n",
            event("Critical", "A"),
            event("OK", "ResourceEvent.1.2.ResourceStatusChangedOK")
        );
        assert_eq!(lines.take(both.as_bytes()), Ok(told(HealthLevel::Critical, true)), "the worst of both");
    }

    #[test]
    fn what_an_event_tells_is_read_in_the_forms_of_all_times() {
        let rows = [
            (
                json!({ "Events": [{ "Severity": "Critical", "EventType": "Alert" }] }),
                told(HealthLevel::Critical, false),
            ),
            (json!({ "Events": [{ "Severity": "OK", "EventType": "StatusChange" }] }), told(HealthLevel::OK, true)),
            (
                json!({ "Events": [{ "MessageSeverity": "Warning", "Severity": "OK" }] }),
                told(HealthLevel::Warning, false),
            ),
            (json!({ "Events": [{}, 3, null, { "Severity": "Loud" }] }), told(HealthLevel::OK, false)),
            (json!({ "Events": [] }), None),
            (json!({ "Events": {} }), None),
            (json!([]), None),
            (json!({ "MetricValues": [] }), None),
        ];
        for (event, expected) in rows {
            assert_eq!(alert_of(&event), expected, "{event}");
            assert_eq!(posted(event.to_string().as_bytes()).map(|posted| posted.alert), expected);
        }
        assert_eq!(posted(event("OK", "X").as_bytes()).map(|posted| posted.context).as_deref(), Some("c"));
        assert!(posted(b"{").is_none() && posted(&vec![b'['; MAX_EVENT * 2]).is_none());
        let many = format!("{{\"Events\":[{}{{}}]}}", "{},".repeat(MAX_VALUES));
        assert!(posted(many.as_bytes()).is_none(), "more values than an event may have");
    }

    #[test]
    fn a_stream_that_is_none_or_never_ends_a_line_is_given_up() {
        let mut lines = Lines::default();
        let endless = vec![b'x'; 4096];
        let given_up = (0..100).position(|_| lines.take(&endless).is_err()).unwrap();
        assert_eq!(given_up, MAX_EVENT / 4096);
        let mut lines = Lines::default();
        let line = format!("data: {}\n", "1,".repeat(2000));
        let given_up = (0..100).position(|_| lines.take(line.as_bytes()).is_err()).unwrap();
        assert!(given_up * 4001 <= MAX_EVENT && lines.data.len() <= MAX_EVENT);
        let mut lines = Lines::default();
        let given_up = (1..100).find(|_| lines.take(b"data: {not json\n\n") == Err(Broken::Unreadable));
        assert_eq!(given_up, Some(MAX_UNREADABLE));
        let mut lines = Lines::default();
        for _ in 0..100 {
            // What is readable in between makes up for it.
            assert!(lines.take(b"data: {not json\n\ndata: {}\n\n").is_ok());
            assert!(lines.take(b":\n\n\r\r\n\ndata\ndatum: 3\nretry: 99999999999\n\n").is_ok());
        }
    }
}
