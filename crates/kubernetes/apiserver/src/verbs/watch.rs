//! watch: a stream of changes. A watcher is an advancing revision; no events are queued for it. It has no task of its
//! own: its connection polls for the next frame when it can send one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::options::{Options, version, wait_for};
use super::{Backend, history_failed};
use crate::media::{Accept, Shape};
use crate::reply::{self, Response};
use crate::request::Request;
use crate::resource::Resource;
use crate::select::Selected;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult, StatusReason};
use crate::store::{Event, Pick};
use crate::{table, versions};

/// Time between bookmarks.
const BOOKMARK: Duration = Duration::from_secs(60);
/// How long before a watch's end the last bookmark reports its progress.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// Duration of a watch in seconds if the client does not specify one.
const LASTS: std::ops::Range<u64> = 1800..3600;
/// Frames buffered for a client. A watch pauses for a slow reader and later reads the missed events from the ring or
/// the file.
const WAITING: usize = 1;

/// A running watch.
struct Watch {
    resource: Arc<Resource>,
    ns: String,
    selector: Selector,
    /// The selector, if it is about labels alone: those of former revisions are mostly known without reading them.
    pick: Option<Pick>,
    accept: Accept,
    include: String,
    /// Key of the encoding, shared by all watchers that get the same bytes.
    form: Arc<str>,
    bookmarks: bool,
    deadline: Instant,
    headed: bool,
    at: u64,
}

/// How a watch begins.
enum Begin {
    /// With the present objects as additions. Holds the first part, read when the request arrived.
    Present(Selected),
    /// With the changes after a revision.
    After(u64),
    /// With an error, which ends it.
    Refused(ApiError),
}

/// Answers with a stream of events.
pub async fn watch(backend: &Arc<Backend>, request: &Request) -> ApiResult<Response> {
    let query = &request.query;
    let resource = Arc::clone(request.resource());
    let mut options = Options::read(query, &resource, true)?;
    if !request.target.name.is_empty() {
        options.selector = options.selector.of_one(&request.target.name)?;
    }
    let begin = begin(backend, request, &options).await?;
    let seconds = match options.seconds {
        0 => LASTS.start + backend.given.below(LASTS.end - LASTS.start),
        seconds => seconds.min(24 * 3600),
    };
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let include = match request.accept.shape {
        Shape::Table(_) => crate::table::included(query.get("includeObject"))?.to_owned(),
        _ => String::new(),
    };
    let form = format!("{} {} {:?} {include}", backend.registry.catalog().generation, resource.version, request.accept);
    let watch = Watch {
        ns: request.target.ns.clone(),
        // A conversion webhook may change labels.
        pick: if versions::asks(&resource) { None } else { options.selector.pick_alone() },
        resource,
        selector: options.selector,
        accept: request.accept.clone(),
        include,
        form: form.into(),
        bookmarks: options.bookmarks,
        deadline,
        headed: false,
        at: 0,
    };
    let (out, frames) = mpsc::channel::<Bytes>(WAITING);
    let backend = Arc::clone(backend);
    let making = async move {
        let stop = backend.stop.clone();
        tokio::select! {
            biased;
            _ = run(watch, begin, &backend, &out) => {}
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(deadline) => {}
        }
    };
    reply::stream(request, Frames { making: Some(Box::pin(making)), made: frames })
}

/// The frames of a watch, made when the connection polls for them.
struct Frames {
    making: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    made: mpsc::Receiver<Bytes>,
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(making) = &mut self.making
            && making.as_mut().poll(context).is_ready()
        {
            // Drops the sender: the stream ends after the buffered frames.
            self.making = None;
        }
        self.made.poll_recv(context)
    }
}

/// After the version is parsed, every error is an event of the stream, as upstream.
async fn begin(backend: &Backend, request: &Request, options: &Options) -> ApiResult<Begin> {
    let asked = version(&options.version)
        .map_err(|text| ApiError::new(http::StatusCode::INTERNAL_SERVER_ERROR, StatusReason::Unknown, text))?;
    Ok(match options.initial {
        Some(true) => match wait_for(backend, asked).await {
            Ok(()) => {
                let ns = &request.target.ns;
                let first = backend.part(request.resource(), ns, &options.selector, None, None).await;
                first.map_or_else(Begin::Refused, Begin::Present)
            }
            Err(error) => Begin::Refused(error),
        },
        Some(false) if asked == 0 => Begin::After(backend.store.revision()),
        _ => Begin::After(asked),
    })
}

/// The client disconnected, or the stream ended with an error event.
struct Ended;

async fn run(mut watch: Watch, begin: Begin, backend: &Backend, out: &mpsc::Sender<Bytes>) -> Result<(), Ended> {
    match begin {
        Begin::Refused(error) => return watch.fail(out, &error).await,
        Begin::After(rev) => watch.at = rev,
        Begin::Present(first) => {
            watch.present(first, backend, out).await?;
            if watch.bookmarks {
                watch.bookmark(out, true).await?;
            }
        }
    }
    let mut news = backend.store.subscribe_to(&watch.resource.storage);
    let mut next_bookmark = pin!(tokio::time::sleep_until(watch.next_bookmark(Instant::now())));
    loop {
        news.borrow_and_update();
        watch.catch_up(backend, out).await?;
        tokio::select! {
            changed = news.changed() => changed.map_err(|_| Ended)?,
            () = &mut next_bookmark => {
                next_bookmark.as_mut().reset(watch.next_bookmark(Instant::now()));
                // Changes of other resources do not wake it, but its revision must not fall behind compaction.
                watch.catch_up(backend, out).await?;
                if watch.bookmarks {
                    watch.bookmark(out, false).await?;
                }
            }
        }
    }
}

impl Watch {
    /// When the next bookmark is due: every minute, and once shortly before the end.
    fn next_bookmark(&self, now: Instant) -> Instant {
        let last = self.deadline.checked_sub(LAST_BOOKMARK).filter(|last| *last > now);
        last.map_or(now + BOOKMARK, |last| last.min(now + BOOKMARK))
    }

    async fn present(&mut self, first: Selected, backend: &Backend, out: &mpsc::Sender<Bytes>) -> Result<(), Ended> {
        let mut page = first;
        loop {
            self.at = page.rev;
            for row in &page.rows {
                let frame = self.encode("ADDED", row.rev, &row.body);
                self.send(out, frame).await?;
            }
            let Some(after) = page.next else { return Ok(()) };
            let (at, ns) = (Some(self.at), &self.ns);
            page = match backend.part(&self.resource, ns, &self.selector, at, Some(after)).await {
                Ok(page) => page,
                Err(error) => return self.fail(out, &error).await,
            };
        }
    }

    async fn catch_up(&mut self, backend: &Backend, out: &mpsc::Sender<Bytes>) -> Result<(), Ended> {
        loop {
            let found = backend.store.events_after(&self.resource.storage, self.at).await;
            let (events, upto) = match found {
                Ok(found) => found,
                Err(error) => return self.fail(out, &history_failed(error, self.at)).await,
            };
            let none = events.is_empty();
            for event in events {
                if self.ns.is_empty() || event.ns == self.ns {
                    let mut body = event.body.clone();
                    if let Err(error) = self.convert(backend, event.rev, &mut body).await {
                        return self.fail(out, &error).await;
                    }
                    self.pass(backend, out, &event, &body).await?;
                }
            }
            self.at = upto;
            if none {
                return Ok(());
            }
        }
    }

    /// Converts a tail to the version of the watch.
    async fn convert(&self, backend: &Backend, rev: u64, tail: &mut Bytes) -> ApiResult<()> {
        backend.convert_tails(&self.resource, &mut [(rev, tail)]).await
    }

    /// Sends an event as the selector sees it: an object that leaves the selection is deleted, one that enters it is
    /// added. `body` is the event's body in the version of the watch.
    async fn pass(
        &mut self,
        backend: &Backend,
        out: &mpsc::Sender<Bytes>,
        event: &Event,
        body: &Bytes,
    ) -> Result<(), Ended> {
        let matches = |body: &Bytes, rev| self.selector.matches(&self.resource, &event.ns, &event.name, rev, body);
        let kind = if self.selector.is_empty() {
            match (event.deleted, event.prev) {
                (true, _) => "DELETED",
                (false, 0) => "ADDED",
                (false, _) => "MODIFIED",
            }
        } else {
            let pick = self.pick.as_ref();
            let now = pick.map_or_else(|| matches(body, event.rev), |p| backend.store.matches(event.rev, body, p));
            let known = pick.filter(|_| event.prev > 0).and_then(|p| backend.store.known_to_match(event.prev, p));
            let leaves = known == Some(true) && !now && !event.deleted;
            let former = match event.prev {
                0 => None,
                _ if known.is_some() && !leaves => None,
                prev => match backend.store.at_revision(prev).await {
                    Ok(Some(mut body)) => self.convert(backend, prev, &mut body).await.is_ok().then_some(body),
                    _ => None,
                },
            };
            // If the former state is compacted or cannot be converted, send the event: a redundant event does no
            // harm.
            let unknown = || former.as_ref().is_none_or(|body| matches(body, event.prev));
            let before = event.prev > 0 && known.unwrap_or_else(unknown);
            match (before, now && !event.deleted) {
                (true, true) => "MODIFIED",
                (false, true) => "ADDED",
                (true, false) if event.deleted => "DELETED",
                (true, false) => {
                    // The object as last selected, with the revision of the change.
                    let frame = self.encode("DELETED", event.rev, former.as_ref().unwrap_or(body));
                    return self.send(out, frame).await;
                }
                (false, false) => return Ok(()),
            }
        };
        let frame = if self.unheaded() {
            self.encode(kind, event.rev, body)
        } else {
            let form = Arc::clone(&self.form);
            event.frames.get(&form, kind, || self.encode(kind, event.rev, body))
        };
        self.send(out, frame).await
    }

    /// Whether the next frame differs from those of other watchers because it contains the table's columns.
    fn unheaded(&self) -> bool {
        matches!(self.accept.shape, Shape::Table(_)) && !self.headed
    }

    async fn send(&mut self, out: &mpsc::Sender<Bytes>, frame: Result<Bytes, serde_json::Error>) -> Result<(), Ended> {
        match frame {
            Ok(frame) => out.send(frame).await.map_err(|_| Ended),
            Err(error) => {
                let error = ApiError::internal(format!("a stored object is damaged: {error}"));
                self.fail(out, &error).await
            }
        }
    }

    fn encode(&mut self, kind: &'static str, rev: u64, tail: &[u8]) -> Result<Bytes, serde_json::Error> {
        let object = match &self.accept.shape {
            Shape::Plain => self.resource.encode(rev, tail)?,
            Shape::Partial => self.resource.encode_partial(rev, tail)?,
            Shape::Table(version) => {
                let row = table::row(&self.resource, self.resource.load(rev, tail)?, &self.include, version);
                let version = format!("meta.k8s.io/{version}");
                serde_json::to_vec(&self.table(&version, rev, vec![row]))?
            }
        };
        reply::frame(&self.accept, kind, &object)
    }

    fn table(&mut self, version: &str, rev: u64, rows: Vec<Value>) -> Value {
        // Only the first table of the stream has columns.
        let columns = if self.headed { Value::Null } else { table::columns(&self.resource) };
        self.headed = true;
        json!({"kind": "Table", "apiVersion": version, "metadata": {"resourceVersion": rev.to_string()},
            "columnDefinitions": columns, "rows": rows})
    }

    async fn bookmark(&mut self, out: &mpsc::Sender<Bytes>, initial_end: bool) -> Result<(), Ended> {
        let mut meta = json!({"resourceVersion": self.at.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object =
            json!({"kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": meta});
        match self.accept.shape.clone() {
            Shape::Plain => {}
            Shape::Partial => {
                object["kind"] = json!("PartialObjectMetadata");
                object["apiVersion"] = json!("meta.k8s.io/v1");
            }
            Shape::Table(version) => {
                let at = self.at;
                let row = match object {
                    Value::Object(object) => table::row(&self.resource, object, &self.include, &version),
                    _ => Value::Null,
                };
                object = self.table(&format!("meta.k8s.io/{version}"), at, vec![row]);
            }
        }
        let frame = reply::frame(&self.accept, "BOOKMARK", object.to_string().as_bytes()).map_err(|_| Ended)?;
        out.send(frame).await.map_err(|_| Ended)
    }

    async fn fail(&self, out: &mpsc::Sender<Bytes>, error: &ApiError) -> Result<(), Ended> {
        if let Ok(frame) = reply::frame(&self.accept, "ERROR", error.to_status().to_string().as_bytes()) {
            let _ = out.send(frame).await;
        }
        Err(Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn history_that_is_gone_is_an_error_within_the_stream() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap();
        let backend = Backend::on(store);
        crate::controllers::ensure_namespaces(&backend).await.unwrap();
        backend.store.compact(3).await.unwrap();
        let catalog = backend.registry.catalog();
        for (from, expected) in [(1, "ERROR"), (3, "ADDED")] {
            // A reopened store has no events in memory, so they are read from the file.
            let backend = Backend::on(Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap());
            let watch = Watch {
                resource: Arc::clone(catalog.find("", "v1", "namespaces").unwrap()),
                ns: String::new(),
                selector: Selector::default(),
                pick: None,
                accept: Accept::plain(crate::media::Encoding::Json),
                include: String::new(),
                form: "".into(),
                bookmarks: false,
                deadline: Instant::now() + BOOKMARK,
                headed: false,
                at: 0,
            };
            let (out, mut frames) = mpsc::channel(16);
            let running = tokio::spawn(async move { run(watch, Begin::After(from), &backend, &out).await });
            let frame: Value = serde_json::from_slice(&frames.recv().await.unwrap()).unwrap();
            assert_eq!(frame["type"], expected);
            if expected == "ERROR" {
                assert_eq!((&frame["object"]["code"], &frame["object"]["reason"]), (&json!(410), &json!("Expired")));
            }
            running.abort();
        }
    }
}
