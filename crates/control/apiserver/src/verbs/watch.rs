//! watch: a stream of changes. A watcher is a revision that moves on; nothing is queued for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Backend, Request, history_failed, list};
use crate::media::{Accept, Shape};
use crate::reply::{self, Response};
use crate::resource::Resource;
use crate::selectors::Selector;
use crate::status::{ApiError, ApiResult};
use crate::store::Event;
use crate::table;

/// Seconds between bookmarks.
const BOOKMARK: Duration = Duration::from_secs(60);
/// Seconds that a watch lasts when the client does not say.
const LASTS: std::ops::Range<u64> = 1800..3600;

/// A running watch.
struct Watch {
    resource: Arc<Resource>,
    ns: String,
    selector: Selector,
    accept: Accept,
    include: String,
    bookmarks: bool,
    headed: bool,
    at: u64,
}

/// How it begins.
enum Begin {
    /// With the present objects as additions.
    Present,
    /// As above, ended by a bookmark that says so.
    PresentMarked,
    /// With what comes after a revision.
    After(u64),
}

/// Answers with a stream of events.
pub async fn watch(backend: &Arc<Backend>, request: &Request) -> ApiResult<Response> {
    let query = &request.query;
    let resource = Arc::clone(request.resource());
    let selector = Selector::parse(query.get("labelSelector"), query.get("fieldSelector"), &resource)?;
    let begin = begin(backend, request).await?;
    let seconds = match query.number("timeoutSeconds")? {
        Some(0) | None => rand::random_range(LASTS),
        Some(seconds) => seconds.min(24 * 3600),
    };
    let watch = Watch {
        resource,
        ns: request.target.ns.clone(),
        selector,
        accept: request.accept.clone(),
        include: crate::table::included(query.get("includeObject"))?.to_owned(),
        bookmarks: query.flag("allowWatchBookmarks"),
        headed: false,
        at: 0,
    };
    let (out, frames) = mpsc::channel::<Bytes>(16);
    let backend = Arc::clone(backend);
    let deadline = Instant::now() + Duration::from_secs(seconds);
    tokio::spawn(async move {
        let stop = backend.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = out.closed() => {}
            _ = run(watch, begin, &backend, &out) => {}
        }
    });
    reply::stream(request, frames)
}

async fn begin(backend: &Backend, request: &Request) -> ApiResult<Begin> {
    let query = &request.query;
    let asked = query.get("resourceVersion");
    let matching = query.get("resourceVersionMatch");
    let forbidden = |text: &str| {
        Err(ApiError::invalid(
            "meta.k8s.io",
            "ListOptions",
            "",
            &[crate::status::FieldError::forbidden("resourceVersionMatch", text)],
        ))
    };
    if query.flag("sendInitialEvents") {
        if matching != "NotOlderThan" {
            return forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        list::wait_for(backend, asked.parse().unwrap_or(0)).await?;
        return Ok(if query.flag("allowWatchBookmarks") { Begin::PresentMarked } else { Begin::Present });
    }
    if !matching.is_empty() {
        return forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if asked.is_empty() || asked == "0" {
        let says_none = query.get("sendInitialEvents") == "false";
        return Ok(if says_none { Begin::After(backend.store.revision()) } else { Begin::Present });
    }
    let rev: u64 = asked
        .parse()
        .map_err(|_| ApiError::bad_request(format!("resourceVersion: Invalid value: {asked:?}: must be a number")))?;
    list::wait_for(backend, rev).await?;
    Ok(Begin::After(rev))
}

/// The client is gone, or the stream ended with an error that was sent.
struct Ended;

async fn run(mut watch: Watch, begin: Begin, backend: &Backend, out: &mpsc::Sender<Bytes>) -> Result<(), Ended> {
    match begin {
        Begin::After(rev) => watch.at = rev,
        Begin::Present | Begin::PresentMarked => {
            watch.present(backend, out).await?;
            if matches!(begin, Begin::PresentMarked) {
                watch.bookmark(out, true).await?;
            }
        }
    }
    let mut news = backend.store.subscribe();
    let mut next_bookmark = Instant::now() + BOOKMARK;
    loop {
        news.borrow_and_update();
        watch.catch_up(backend, out).await?;
        tokio::select! {
            changed = news.changed() => changed.map_err(|_| Ended)?,
            () = tokio::time::sleep_until(next_bookmark), if watch.bookmarks => {
                next_bookmark = Instant::now() + BOOKMARK;
                watch.bookmark(out, false).await?;
            }
        }
    }
}

impl Watch {
    async fn present(&mut self, backend: &Backend, out: &mpsc::Sender<Bytes>) -> Result<(), Ended> {
        let mut after = None;
        let mut at = None;
        loop {
            let page = backend.page(&self.resource, &self.ns, &self.selector, at, after, Some(256)).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => return self.fail(out, &error).await,
            };
            (self.at, at) = (page.rev, Some(page.rev));
            for row in &page.rows {
                self.send(out, "ADDED", row.rev, &row.body).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
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

    /// Brings a tail to the version of the watch.
    async fn convert(&self, backend: &Backend, rev: u64, tail: &mut Bytes) -> ApiResult<()> {
        backend.convert_tails(&self.resource, &mut [(rev, tail)]).await
    }

    /// Sends an event as the selector sees it: leaving the selection is a deletion, entering it an addition.
    /// `body` is the event's in the version of the watch.
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
            let now = !event.deleted && matches(body, event.rev);
            let before = event.prev > 0
                && match backend.store.at_revision(event.prev).await {
                    Ok(Some(mut body)) => {
                        self.convert(backend, event.prev, &mut body).await.is_err() || matches(&body, event.prev)
                    }
                    // Compacted meanwhile: sending one event too many is the safe side.
                    _ => true,
                };
            match (before, now) {
                (true, true) => "MODIFIED",
                (false, true) => "ADDED",
                (true, false) => "DELETED",
                (false, false) => return Ok(()),
            }
        };
        self.send(out, kind, event.rev, body).await
    }

    async fn send(&mut self, out: &mpsc::Sender<Bytes>, kind: &str, rev: u64, tail: &[u8]) -> Result<(), Ended> {
        match self.encode(kind, rev, tail) {
            Ok(frame) => out.send(frame).await.map_err(|_| Ended),
            Err(error) => {
                let error = ApiError::internal(format!("a stored object is damaged: {error}"));
                self.fail(out, &error).await
            }
        }
    }

    fn encode(&mut self, kind: &str, rev: u64, tail: &[u8]) -> Result<Bytes, serde_json::Error> {
        let object = match &self.accept.shape {
            Shape::Plain => self.resource.encode(rev, tail)?,
            Shape::Partial => serde_json::to_vec(&reply::partial(&self.resource.load(rev, tail)?))?,
            Shape::Table(version) => {
                let row = table::row(&self.resource, self.resource.load(rev, tail)?, &self.include);
                let version = format!("meta.k8s.io/{version}");
                serde_json::to_vec(&self.table(&version, rev, vec![row]))?
            }
        };
        reply::frame(&self.accept, kind, &object)
    }

    fn table(&mut self, version: &str, rev: u64, rows: Vec<Value>) -> Value {
        // Columns stand in the first table of the stream only.
        let columns = if self.headed { Value::Null } else { table::columns(&self.resource) };
        self.headed = true;
        json!({"kind": "Table", "apiVersion": version, "metadata": {"resourceVersion": rev.to_string()},
            "columnDefinitions": columns, "rows": rows})
    }

    async fn bookmark(&mut self, out: &mpsc::Sender<Bytes>, initial_end: bool) -> Result<(), Ended> {
        let mut meta = json!({"resourceVersion": self.at.to_string(), "creationTimestamp": null});
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
                let row = json!({"cells": [], "object": object});
                let at = self.at;
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
    use crate::resource::Registry;
    use crate::store::Store;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn history_that_is_gone_is_told_within_the_stream() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db")).unwrap();
        let auth = crate::auth::Auth::for_tests();
        let backend = Backend {
            store,
            registry: Registry::new(),
            stop: CancellationToken::new(),
            auth,
            admission: Default::default(),
        };
        crate::controllers::ensure_namespaces(&backend).await.unwrap();
        backend.store.compact(3).await.unwrap();
        let catalog = backend.registry.catalog();
        for (from, told) in [(1, "ERROR"), (3, "ADDED")] {
            // A store opened anew holds no events in memory: they come from the file.
            let backend = Backend {
                store: Store::open(&dir.path().join("s.db")).unwrap(),
                registry: Registry::new(),
                stop: CancellationToken::new(),
                auth: crate::auth::Auth::for_tests(),
                admission: Default::default(),
            };
            let watch = Watch {
                resource: Arc::clone(catalog.find("", "v1", "namespaces").unwrap()),
                ns: String::new(),
                selector: Selector::default(),
                accept: Accept::plain(crate::media::Encoding::Json),
                include: String::new(),
                bookmarks: false,
                headed: false,
                at: 0,
            };
            let (out, mut frames) = mpsc::channel(16);
            let running = tokio::spawn(async move { run(watch, Begin::After(from), &backend, &out).await });
            let frame: Value = serde_json::from_slice(&frames.recv().await.unwrap()).unwrap();
            assert_eq!(frame["type"], told);
            if told == "ERROR" {
                assert_eq!((&frame["object"]["code"], &frame["object"]["reason"]), (&json!(410), &json!("Expired")));
            }
            running.abort();
        }
    }
}
