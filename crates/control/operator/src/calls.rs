//! Calls to the Kubernetes API, of which few are under way at once.
//!
//! A thousand hosts may want to be looked at at the same moment. Each call that is under way takes memory, and over a network a connection with its
//! buffers; each look takes its copies of what it decides on. So calls wait for a place in the order in which they come, and a look begins only when few
//! of them wait. A look that asks a machine holds up no other: it has given back its right to begin by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Calls under way at once: enough for the API's store to commit many with one sync of its disk.
const PLACES: usize = 40;
/// Calls that may wait when another look begins.
const MOST_WAITING: usize = 40;
/// Looks at once that have begun and have not come to their machine yet.
const LOOKS: usize = 40;

/// The places of all calls of one client.
#[derive(Debug)]
pub struct Calls {
    places: Semaphore,
    looks: Semaphore,
    waiting: AtomicUsize,
    /// Told when a call less waits than may wait, or as many less as may.
    calm: Notify,
}

/// The right of a look to begin, given back when it is dropped.
#[derive(Debug)]
pub struct Begun<'a>(#[allow(dead_code, reason = "given back when it is dropped")] SemaphorePermit<'a>);

/// A call that waits, until it is dropped.
struct Waits<'a>(&'a Calls);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.pass_on();
    }
}

impl Calls {
    /// A client of the same API whose calls have places, but for watches, which last: those wait for nothing. It needs a runtime.
    pub fn over(client: Client) -> (Client, Arc<Self>) {
        let calls = Arc::new(Self {
            places: Semaphore::new(PLACES),
            looks: Semaphore::new(LOOKS),
            waiting: AtomicUsize::new(0),
            calm: Notify::new(),
        });
        let (shared, namespace) = (Arc::clone(&calls), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request| send(Arc::clone(&shared), client.clone(), request));
        (Client::new(service, namespace), calls)
    }

    /// Waits until few calls wait.
    pub async fn begin(&self) -> Option<Begun<'_>> {
        // It is never closed.
        let begun = self.looks.acquire().await.ok()?;
        while self.waiting.load(Ordering::SeqCst) >= MOST_WAITING {
            self.calm.notified().await;
        }
        self.pass_on();
        Some(Begun(begun))
    }

    /// Wakes the next look that waits for calm, if it is calm; that one wakes another.
    fn pass_on(&self) {
        if self.waiting.load(Ordering::SeqCst) < MOST_WAITING {
            self.calm.notify_one();
        }
    }

    async fn place(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(self);
        // It is never closed.
        self.places.acquire().await.ok()
    }
}

async fn send(calls: Arc<Calls>, client: Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let _place = if is_watch(&request) { None } else { calls.place().await };
    client.send(request).await
}

fn is_watch(request: &Request<Body>) -> bool {
    request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use futures::StreamExt as _;
    use futures::stream::FuturesUnordered;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, WatchParams};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    type Asked = Arc<Mutex<Vec<oneshot::Sender<()>>>>;

    /// An API that answers a call when its sender is used or dropped, and a watch at once.
    fn api() -> (Client, Asked) {
        let asked = Asked::default();
        let asking = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (answer, answered) = oneshot::channel();
            if !is_watch(&request) {
                asking.lock().unwrap().push(answer);
            }
            async move {
                let _ = answered.await;
                let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#;
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(body.as_bytes().to_vec())))
            }
        });
        (Client::new(service, "n"), asked)
    }

    /// Goes on until nothing can: time stands still for as long as anything does.
    async fn settle() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_thousand_calls_few_are_under_way_and_watches_wait_for_none() {
        let (client, asked) = api();
        let (client, calls) = Calls::over(client);
        assert_eq!(client.default_namespace(), "n");
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let under_way: Vec<_> = (0..1000)
            .map(|_| {
                let maps = maps.clone();
                tokio::spawn(async move { maps.get("a").await.is_ok() })
            })
            .collect();
        settle().await;
        assert_eq!((asked.lock().unwrap().len(), calls.waiting.load(Ordering::SeqCst)), (PLACES, 1000 - PLACES));
        let watch = timeout(Duration::from_secs(1), maps.watch(&WatchParams::default(), "0")).await;
        assert!(watch.is_ok_and(|watch| watch.is_ok()));
        // Calls that are given up leave their places to others.
        under_way.iter().take(990).for_each(tokio::task::JoinHandle::abort);
        settle().await;
        assert_eq!(calls.waiting.load(Ordering::SeqCst), 0);
        asked.lock().unwrap().clear();
        let ends: Vec<_> = under_way.into_iter().collect::<FuturesUnordered<_>>().collect().await;
        assert_eq!(ends.iter().filter(|end| matches!(end, Ok(true))).count(), 10);
        assert_eq!(calls.places.available_permits(), PLACES);
    }

    #[tokio::test(start_paused = true)]
    async fn looks_begin_in_order_while_few_calls_wait() {
        let (client, asked) = api();
        let (client, calls) = Calls::over(client);
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let done = Arc::new(Mutex::new(Vec::new()));
        // Each look makes a call, gives back its right to begin, and makes another.
        for number in 0..1000 {
            let (calls, maps, done) = (Arc::clone(&calls), maps.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let begun = calls.begin().await;
                maps.get("a").await.unwrap();
                drop(begun);
                maps.get("a").await.unwrap();
                done.lock().unwrap().push(number);
            });
        }
        let mut most = 0;
        loop {
            settle().await;
            if done.lock().unwrap().len() == 1000 {
                break;
            }
            most = most.max(calls.waiting.load(Ordering::SeqCst));
            let answered: Vec<_> = asked.lock().unwrap().drain(..).collect();
            assert!(!answered.is_empty() && answered.len() <= PLACES, "{}", answered.len());
        }
        assert!(most <= MOST_WAITING + LOOKS, "{most} calls have waited");
        let done = done.lock().unwrap();
        assert!(done.iter().enumerate().all(|(at, number)| at.abs_diff(*number) <= 3 * PLACES), "{done:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_waits_for_its_machine_holds_up_no_other() {
        let (client, _) = api();
        let (_, calls) = Calls::over(client);
        for _ in 0..1000 {
            let begun = timeout(Duration::from_secs(1), calls.begin()).await;
            drop(begun.unwrap());
        }
        let mut kept = Vec::new();
        for _ in 0..LOOKS {
            kept.push(calls.begin().await);
        }
        assert!(timeout(Duration::from_secs(1), calls.begin()).await.is_err());
        kept.pop();
        assert!(timeout(Duration::from_secs(1), calls.begin()).await.is_ok());
    }
}
