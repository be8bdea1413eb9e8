//! What the BMC tells by itself: events about ailments that come and go, over open streams (server-sent events) and to subscriptions.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{events::Subscription, ill::logs};
use crate::{
    ailments::{Ailment, Ailments},
    bmc::{Bmc, lock},
};

/// Where the stream is.
pub const STREAM: &str = "/redfish/v1/EventService/SSE";
/// Most pieces that wait for a slow reader; it misses older ones.
const WAITING: usize = 64;
/// Longest text that is told at once, bytes.
const MAX_TEXT: usize = 16 << 20;
/// Most repetitions of one.
const MAX_TIMES: u32 = 100_000;

/// A part of a stream.
#[derive(Clone)]
enum Piece {
    Bytes(Bytes),
    /// The connection is cut.
    Cut,
}

/// The streams of one BMC.
pub struct Pushes {
    pieces: broadcast::Sender<Piece>,
    open: Arc<AtomicUsize>,
    /// Streams that were opened.
    opened: AtomicU64,
    number: AtomicU64,
}

impl Default for Pushes {
    fn default() -> Self {
        let (pieces, _) = broadcast::channel(WAITING);
        Self { pieces, open: Arc::default(), opened: AtomicU64::new(0), number: AtomicU64::new(0) }
    }
}

/// A stream that is open.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Something to be told, as the control API asks for it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Told {
    /// Records of an event, which goes to streams and subscriptions.
    #[serde(default)]
    events: Option<Value>,
    /// Text that goes over the streams as it is.
    #[serde(default)]
    text: Option<String>,
    /// The same, so many times.
    #[serde(default = "once")]
    times: u32,
}

const fn once() -> u32 {
    1
}

impl Pushes {
    /// Streams that are open now, and those that were ever opened.
    #[must_use]
    pub fn describe(&self) -> Value {
        json!({ "open": self.open.load(Ordering::SeqCst), "opened": self.opened.load(Ordering::SeqCst) })
    }

    /// Cuts all streams, in the middle of a line if need be.
    pub fn cut(&self) {
        self.say(Piece::Cut);
    }

    fn say(&self, piece: Piece) {
        // Without a reader there is nobody to tell.
        let _ = self.pieces.send(piece);
    }

    /// The answer to whoever opens a stream.
    pub fn stream(&self) -> Response {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        let open = Open(self.open.clone());
        let first = Bytes::from_static(b": the stream has begun\n\n");
        let rest = stream::unfold((Some(first), self.pieces.subscribe(), open), |(first, mut pieces, open)| async {
            if let Some(first) = first {
                return Some((Ok(first), (None, pieces, open)));
            }
            loop {
                match pieces.recv().await {
                    Ok(Piece::Bytes(bytes)) => return Some((Ok(bytes), (None, pieces, open))),
                    Ok(Piece::Cut) => {
                        return Some((
                            Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                            (None, pieces, open),
                        ));
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (kind, Body::from_stream(rest)).into_response()
    }
}

/// Tells of the ailments that have come and gone.
pub fn tell_of_change(bmc: &Bmc, before: &Ailments, after: &Ailments) {
    let come = after.iter().filter(|ailment| !before.has(*ailment)).map(|ailment| (ailment, true));
    let gone = before.iter().filter(|ailment| !after.has(*ailment)).map(|ailment| (ailment, false));
    for (ailment, has_come) in come.chain(gone) {
        if let Some(record) = record(bmc, ailment, has_come) {
            tell_records(bmc, &json!([record]));
        }
    }
}

/// One record of an event; none of what a BMC does not notice by itself.
fn record(bmc: &Bmc, ailment: Ailment, has_come: bool) -> Option<Value> {
    let told = logs::told(bmc, ailment)?;
    let (severity, id, text) = match has_come {
        true => (told.severity, told.id, told.text.to_owned()),
        false => ("OK", "ResourceEvent.1.3.ResourceStatusChangedOK".to_owned(), format!("No longer so: {}", told.text)),
    };
    Some(json!({
        "EventType": "Alert",
        "EventTimestamp": (bmc.shared.now)().to_string(),
        "MessageId": id,
        "MessageSeverity": severity,
        "Severity": severity,
        "Message": text,
        "OriginOfCondition": { "@odata.id": told.origin },
    }))
}

/// Tells what the control API asks for.
///
/// # Errors
/// When it is too much, or nothing.
pub fn tell(bmc: &Bmc, told: &Told) -> Result<(), String> {
    let length = told.text.as_ref().map_or(0, String::len);
    if length > MAX_TEXT || told.times > MAX_TIMES {
        return Err(format!("a text has at most {MAX_TEXT} bytes, and is told at most {MAX_TIMES} times"));
    }
    match (&told.events, &told.text) {
        (Some(records), None) => (0..told.times).for_each(|_| tell_records(bmc, records)),
        (None, Some(text)) => {
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            (0..told.times).for_each(|_| bmc.pushes.say(Piece::Bytes(bytes.clone())));
        }
        _ => return Err("either \"events\" or \"text\" is told".to_owned()),
    }
    Ok(())
}

fn tell_records(bmc: &Bmc, records: &Value) {
    let settings = bmc.settings.borrow().clone();
    let number = bmc.pushes.number.fetch_add(1, Ordering::SeqCst) + 1;
    let mut event = json!({
        "@odata.type": "#Event.v1_9_0.Event",
        "Id": number.to_string(),
        "Name": "Event Array",
        "Events": records,
    });
    if settings.events.streams() {
        bmc.pushes.say(Piece::Bytes(Bytes::from(format!("id: {number}\ndata: {event}\n\n"))));
    }
    if !settings.events.subscriptions() {
        return;
    }
    let takers: Vec<(String, String, Vec<Value>)> = lock(&bmc.subscriptions).iter().map(Subscription::taker).collect();
    for (destination, context, headers) in takers {
        event["Context"] = json!(context);
        let fields = headers.iter().filter_map(Value::as_object).flatten();
        let headers: Vec<(String, String)> =
            fields.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let (shared, event) = (Arc::clone(&bmc.shared), event.clone());
        // Nobody is asked a second time.
        tokio::spawn(async move {
            if let Err(error) = shared.media.post(&destination, &headers, &event).await {
                tracing::debug!(%error, "an event was not taken");
            }
        });
    }
}

/// Lays over the EventService what the BMC has of it.
pub fn lay(bmc: &Bmc, body: &mut Value) {
    let settings = bmc.settings.borrow();
    if settings.events.streams() {
        body["ServerSentEventUri"] = json!(STREAM);
    }
    if let Some(fields) = body.as_object_mut()
        && !settings.events.subscriptions()
    {
        fields.shift_remove("Subscriptions");
    }
}
