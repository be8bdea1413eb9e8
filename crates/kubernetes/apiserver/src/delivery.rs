//! Delivery of responses: in small pieces, each produced after the client has read the previous one. A response keeps
//! its place among the requests in flight until it is delivered. A connection on which a piece waits too long is
//! closed, along with everything else on it.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::limits::Place;
use crate::reply::{Body, Broken, Response};

/// Size of a piece in bytes: larger ones would wait unnoticed in the connection's buffers.
const PIECE: usize = 32 << 10;
/// Time for a client to read a piece of a response. Slow clients pass, those that do not read at all do not.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for a watch, which keeps nothing in memory while its client is busy.
const WATCH_PATIENCE: Duration = Duration::from_secs(600);
/// How often connections are checked.
const LOOK: Duration = Duration::from_secs(5);

/// Milliseconds since a fixed moment, never 0.
fn clock(now: Instant) -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(|| now);
    u64::try_from(now.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

/// When the connection got the last piece; 0 while the response has nothing to send.
type Given = AtomicU64;

/// The responses in delivery on one connection.
#[derive(Default)]
pub struct Deliveries {
    under_way: Mutex<Vec<(Weak<Given>, Duration)>>,
    /// Closes the connection.
    pub cut: CancellationToken,
}

impl Deliveries {
    /// Delivers a response in pieces. It keeps its place until it is delivered; watches have none.
    pub fn send(&self, response: Response, place: Option<Place>) -> Response {
        let given = Arc::new(Given::new(0));
        let patience = if place.is_some() { PATIENCE } else { WATCH_PATIENCE };
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.len() == under_way.capacity() {
            under_way.retain(|(given, _)| given.strong_count() > 0);
        }
        under_way.push((Arc::downgrade(&given), patience));
        drop(under_way);
        response.map(|inner| Delivery { inner, rest: Bytes::new(), given, _place: place }.boxed_unsync())
    }

    /// Whether a piece has waited too long for the client.
    fn stalled(&self, now: Instant) -> bool {
        let now = clock(now);
        let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.iter().any(|(given, patience)| {
            let given = given.upgrade().map_or(0, |given| given.load(Ordering::Relaxed));
            given > 0 && u128::from(now.saturating_sub(given)) > patience.as_millis()
        })
    }
}

/// All connections.
#[derive(Default)]
pub struct Connections(Mutex<Vec<Weak<Deliveries>>>);

impl Connections {
    /// Registers a connection.
    pub fn open(&self) -> Arc<Deliveries> {
        let deliveries = Arc::<Deliveries>::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|one| one.strong_count() > 0);
        }
        all.push(Arc::downgrade(&deliveries));
        deliveries
    }

    /// Closes connections whose clients do not read. Returns their number.
    fn look(&self, now: Instant) -> usize {
        let all: Vec<Arc<Deliveries>> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let stalled = all.iter().filter(|one| one.stalled(now));
        stalled.map(|one| one.cut.cancel()).count()
    }

    /// Checks all connections periodically until `stop`.
    pub async fn keep(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            let ended = self.look(Instant::now());
            if ended > 0 {
                tracing::info!(ended, "connections were ended: their clients do not read what they asked for");
            }
        }
    }
}

/// A body in delivery.
struct Delivery {
    inner: Body,
    /// The rest of the last part.
    rest: Bytes,
    given: Arc<Given>,
    _place: Option<Place>,
}

impl hyper::body::Body for Delivery {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                other => {
                    this.given.store(0, Ordering::Relaxed);
                    return other;
                }
            }
        }
        this.given.store(clock(Instant::now()), Ordering::Relaxed);
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(inner.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::reply;
    use crate::user::User;
    use futures::FutureExt as _;
    use http::StatusCode;
    use hyper::body::Body as _;

    #[tokio::test]
    async fn an_answer_leaves_in_pieces_and_holds_its_place_until_it_has_left() {
        let limits = Limits::default();
        let place = limits.enter(&User::anonymous(), false);
        let deliveries = Deliveries::default();
        let answer = reply::plain(StatusCode::OK, "text/plain", vec![7; 100_000]);
        let mut body = deliveries.send(answer, place).into_body();
        assert_eq!(body.size_hint().exact(), Some(100_000));
        let mut sizes = Vec::new();
        while let Some(frame) = body.frame().await {
            assert_eq!(limits.in_flight(), (1, 0));
            sizes.push(frame.unwrap().into_data().unwrap().len());
            assert_eq!(body.size_hint().exact(), Some(100_000 - sizes.iter().sum::<usize>() as u64));
        }
        assert_eq!(sizes, [PIECE, PIECE, PIECE, 100_000 - 3 * PIECE]);
        drop(body);
        assert_eq!(limits.in_flight(), (0, 0));
    }

    #[tokio::test]
    async fn who_does_not_read_is_cut_off_and_who_waits_is_not() {
        let connections = Connections::default();
        let (idle, waiting, stuck) = (connections.open(), connections.open(), connections.open());
        let (_quiet, frames) = tokio::sync::mpsc::channel::<Result<Bytes, Broken>>(1);
        let stream = reply::unending(frames);
        let mut quiet = waiting.send(http::Response::new(stream), None).into_body();
        assert!(quiet.frame().now_or_never().is_none(), "nothing has come yet");
        let answer = || reply::plain(StatusCode::OK, "text/plain", vec![7; 100_000]);
        let limits = Limits::default();
        let place = || limits.enter(&User::anonymous(), false);
        let mut read = waiting.send(answer(), place()).into_body();
        while read.frame().await.is_some() {}
        let mut unread = stuck.send(answer(), place()).into_body();
        unread.frame().await.unwrap().unwrap();
        let mut watch = waiting.send(answer(), None).into_body();
        watch.frame().await.unwrap().unwrap();
        let now = Instant::now();
        assert_eq!(connections.look(now + PATIENCE / 2), 0);
        assert_eq!(connections.look(now + 2 * PATIENCE), 1);
        assert!(stuck.cut.is_cancelled() && !waiting.cut.is_cancelled());
        assert_eq!(connections.look(now + 2 * WATCH_PATIENCE), 2);
        assert!(waiting.cut.is_cancelled() && !idle.cut.is_cancelled());
    }

    #[tokio::test]
    async fn what_has_left_is_forgotten() {
        let deliveries = Deliveries::default();
        for _ in 0..10_000 {
            drop(deliveries.send(reply::plain(StatusCode::OK, "text/plain", "x"), None));
        }
        assert!(deliveries.under_way.lock().unwrap().capacity() < 64);
    }
}
