//! Objects as a watch shows them, and as this process has read and written them since, so that decisions need no call.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::runtime::watcher::{Config, Error, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::kept::{Judgement, Kept};
use super::readable::{Marks, Readable, readable};
use super::step::InStep;
use crate::events::Recorder;

/// How long somebody waits for another's read of the same object.
const PATIENCE: Duration = Duration::from_secs(10);

/// All objects of a kind, by a watch and this process's own calls.
pub struct Objects<K: Resource<DynamicType = ()> + 'static> {
    store: OnceLock<Store<K>>,
    /// The watch has listed them and has not failed since.
    pub in_step: InStep,
    /// The kind is not installed, as the watch last found.
    absent: InStep,
    kept: Kept<ObjectRef<K>, K>,
    /// Reads that others wait for.
    reads: Mutex<HashMap<ObjectRef<K>, Arc<Reads<K>>>>,
    /// Those that cannot be read.
    marks: Arc<Marks>,
}

impl<K: Resource<DynamicType = ()> + 'static> Default for Objects<K> {
    fn default() -> Self {
        Self {
            store: OnceLock::new(),
            in_step: InStep::default(),
            absent: InStep::default(),
            kept: Kept::default(),
            reads: Mutex::default(),
            marks: Arc::default(),
        }
    }
}

/// Reads of one object. What all hosts of a site share, a FirmwareSchema for instance, is large, and a thousand looks may want it at the same moment: who
/// comes while it is read waits, and shares the next read with all others that wait.
struct Reads<K> {
    /// How many were begun.
    begun: AtomicU64,
    /// The number of the last one that has ended, and what it found, unless it failed.
    last: tokio::sync::Mutex<(u64, Option<Ended<K>>)>,
}

/// What a read has found, as long as somebody holds it.
type Ended<K> = Option<Weak<K>>;

impl<K> Default for Reads<K> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: tokio::sync::Mutex::new((0, None)) }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Objects<K> {
    /// Sets the store that the watch fills.
    pub fn set_store(&self, store: Store<K>) {
        // Set once: a controller runs once.
        let _ = self.store.set(store);
    }

    /// Which objects cannot be read.
    pub const fn marks(&self) -> &Arc<Marks> {
        &self.marks
    }

    /// What the watch shows, in step or not; `None` before the controller runs. Of objects that cannot be read, what can be ([`Self::marks`]).
    pub fn store(&self) -> Option<&Store<K>> {
        self.store.get()
    }

    /// Call with each event, after the store.
    pub fn on(&self, event: &Result<Event<K>, Error>) {
        match event {
            Ok(Event::Apply(object)) => {
                self.kept.observe_whole(&ObjectRef::from_obj(object), object.resource_version().as_deref());
            }
            Ok(Event::Delete(object)) => self.kept.has_gone(&ObjectRef::from_obj(object)),
            Ok(Event::InitApply(_)) => {}
            Ok(Event::Init) => self.in_step.is_now(false),
            Err(error) => {
                self.in_step.is_now(false);
                if is_not_installed(error) {
                    self.absent.is_now(true);
                }
            }
            Ok(Event::InitDone) => {
                self.absent.is_now(false);
                self.kept.invalidate_all();
                self.in_step.is_now(true);
            }
        }
    }

    /// Whether the kind is not installed: there are no objects, and none can be made.
    pub fn is_absent(&self) -> bool {
        self.absent.get()
    }

    /// Waits until the objects have been listed, or their kind is found not to be installed.
    pub async fn listed(&self) {
        tokio::select! {
            () = self.in_step.wait() => {}
            () = self.absent.wait() => {}
        }
    }

    /// Like [`Self::known`], but also trusts the watch that an object is absent.
    pub fn cached(&self, key: &ObjectRef<K>) -> Option<Option<Arc<K>>> {
        if self.is_absent() {
            return Some(None);
        }
        self.known(key).or_else(|| {
            let watched = self.watched(key)?;
            (watched.is_none() && matches!(self.kept.judge(key, None), Judgement::Nothing)).then_some(None)
        })
    }

    /// What the watch shows, if it is in step and the object can be read.
    pub fn watched(&self, key: &ObjectRef<K>) -> Option<Option<Arc<K>>> {
        let store = self.store.get().filter(|_| self.in_step.get())?;
        // A store looks twice for what it does not hold.
        let watched = if store.is_empty() { None } else { store.get(key) };
        (!watched.as_ref().is_some_and(|object| self.marks.hold(object.as_ref()))).then_some(watched)
    }

    /// The object as known without a call; `None` if it has to be read. Absence counts only if it was read: this watch may lag behind another that
    /// has shown the object.
    pub fn known(&self, key: &ObjectRef<K>) -> Option<Option<Arc<K>>> {
        if self.is_absent() {
            return Some(None);
        }
        let watched = self.watched(key)?;
        let version = watched.as_ref().and_then(|object| object.resource_version());
        match self.kept.judge(key, version.as_deref()) {
            Judgement::Nothing => watched.map(Some),
            Judgement::CaughtUp(_) if watched.is_some() => {
                self.kept.forget_if_current(key, version.as_deref());
                Some(watched)
            }
            Judgement::CaughtUp(object) | Judgement::Older(object) => Some(object),
            Judgement::Unclear => None,
        }
    }

    /// The object, read if need be.
    pub async fn get(&self, client: &Client, key: &ObjectRef<K>) -> Result<Option<Arc<K>>, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Debug,
    {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let api = Api::namespaced(client.clone(), key.namespace.as_deref().unwrap_or_default());
        let reading = Reading::of(self, key);
        self.read(&api, key, &reading.reads).await
    }

    fn lock_reads(&self) -> std::sync::MutexGuard<'_, HashMap<ObjectRef<K>, Arc<Reads<K>>>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads it, or takes what a read has found that was begun since this call.
    async fn read(&self, api: &Api<K>, key: &ObjectRef<K>, reads: &Reads<K>) -> Result<Option<Arc<K>>, kube::Error>
    where
        K: DeserializeOwned + Debug,
    {
        let before = reads.begun.load(Ordering::SeqCst);
        // A read that hangs holds up nobody for long.
        let Ok(mut last) = timeout(PATIENCE, reads.last.lock()).await else { return self.read_alone(api, key).await };
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        if last.0 > before {
            match &last.1 {
                Some(None) => return Ok(None),
                Some(Some(found)) => {
                    if let Some(found) = found.upgrade() {
                        return Ok(Some(found));
                    }
                }
                // After a failure they do not fail one after the other.
                None => {
                    drop(last);
                    return self.read_alone(api, key).await;
                }
            }
        }
        let number = reads.begun.fetch_add(1, Ordering::SeqCst) + 1;
        *last = (number, None);
        let found = self.read_alone(api, key).await?;
        *last = (number, Some(found.as_ref().map(Arc::downgrade)));
        Ok(found)
    }

    async fn read_alone(&self, api: &Api<K>, key: &ObjectRef<K>) -> Result<Option<Arc<K>>, kube::Error>
    where
        K: DeserializeOwned + Debug,
    {
        let before = self.kept.before(key, self.watched_version(key));
        let found = api.get_opt(&key.name).await?.map(lean).map(Arc::new);
        let version = found.as_ref().and_then(|object| object.resource_version());
        self.kept.note(key, before, found.clone(), version, 0);
        Ok(found)
    }

    fn watched_version(&self, key: &ObjectRef<K>) -> Option<Option<String>> {
        self.watched(key).map(|watched| watched.and_then(|object| object.resource_version()))
    }

    /// Sends a write and keeps its answer. After a failure, nothing is known of the object.
    pub async fn writing(
        &self,
        key: &ObjectRef<K>,
        call: impl Future<Output = Result<K, kube::Error>>,
    ) -> Result<K, kube::Error> {
        let before = self.kept.before(key, self.watched_version(key));
        let under_way = InvalidateOnDrop::of(self, key);
        let written = lean(call.await?);
        under_way.clear();
        let version = written.resource_version();
        self.kept.note(key, before, Some(Arc::new(written.clone())), version, 0);
        Ok(written)
    }

    /// Invalidates what is known of the object: it is read before the next decision on it.
    pub fn doubt(&self, key: &ObjectRef<K>) {
        self.kept.invalidate(key);
    }

    /// The object was deleted. While the watch still shows it, it is read before any decision on it.
    pub fn forget(&self, key: &ObjectRef<K>) {
        // Whoever reads it keeps its own.
        self.lock_reads().remove(key);
        match self.watched(key) {
            Some(None) => self.kept.forget(key),
            _ => self.kept.invalidate(key),
        }
    }
}

/// The object without its managed fields, as the watch shows it.
pub(crate) fn lean<K: Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Somebody's part in the reads of an object, which are forgotten with the last one, whether he was answered or gave up.
struct Reading<'a, K: Resource<DynamicType = ()> + Clone + 'static> {
    objects: &'a Objects<K>,
    key: &'a ObjectRef<K>,
    reads: Arc<Reads<K>>,
}

impl<'a, K: Resource<DynamicType = ()> + Clone + 'static> Reading<'a, K> {
    fn of(objects: &'a Objects<K>, key: &'a ObjectRef<K>) -> Self {
        let reads = Arc::clone(objects.lock_reads().entry(key.clone()).or_default());
        Self { objects, key, reads }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Drop for Reading<'_, K> {
    fn drop(&mut self) {
        let mut all = self.objects.lock_reads();
        let mine = std::mem::take(&mut self.reads);
        // The map's and this one. It goes while the map is locked, so that one of two who leave together is the last.
        // Where the object was forgotten meanwhile, what stands there is others'.
        if Arc::strong_count(&mine) <= 2 && all.get(self.key).is_some_and(|there| Arc::ptr_eq(there, &mine)) {
            all.remove(self.key);
        }
        drop(mine);
    }
}

/// Invalidates the object unless the write under way succeeds, even if it is cancelled.
struct InvalidateOnDrop<'a, K: Resource<DynamicType = ()> + Clone + 'static>(
    Option<(&'a Objects<K>, &'a ObjectRef<K>)>,
);

impl<'a, K: Resource<DynamicType = ()> + Clone + 'static> InvalidateOnDrop<'a, K> {
    fn of(objects: &'a Objects<K>, key: &'a ObjectRef<K>) -> Self {
        Self(Some((objects, key)))
    }

    fn clear(mut self) {
        self.0 = None;
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Drop for InvalidateOnDrop<'_, K> {
    fn drop(&mut self) {
        if let Some((objects, key)) = self.0 {
            objects.doubt(key);
        }
    }
}

/// Whether a watch has found that its kind is not there.
fn is_not_installed(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(source) | Error::WatchStartFailed(source) | Error::WatchFailed(source) => {
            matches!(source, kube::Error::Api(status) if status.code == 404)
        }
        Error::WatchError(status) => status.code == 404,
        _ => false,
    }
}

type Watched<K> = Result<Event<K>, Error>;

/// Pause before a watch restarts; doubles with each that failed early.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A watch that lasted this long did not fail early.
const LASTED: Duration = Duration::from_secs(60);

/// Objects of one answer while a watch lists: each answer is in memory as text and as objects at once.
const PAGE: u32 = 100;

/// A watch that restarts with a list after each error: only then is it known to be in step again.
fn anew<K: Clone + Send + 'static>(
    watch: impl Fn() -> BoxStream<'static, Watched<K>> + Send + 'static,
) -> impl Stream<Item = Watched<K>> + Send + 'static {
    futures::stream::unfold((watch, None, 0_u32), |(watch, under_way, failures)| async move {
        let (mut stream, since) = match under_way {
            Some(under_way) => under_way,
            None => {
                if failures > 0 {
                    sleep(FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE)).await;
                }
                (watch(), Instant::now())
            }
        };
        let event = stream.next().await?;
        let failures = if since.elapsed() >= LASTED { 0 } else { failures };
        let next = match &event {
            Ok(_) => (watch, Some((stream, since)), failures),
            Err(_) => (watch, None, failures.saturating_add(1)),
        };
        Some((event, next))
    })
}

/// The objects of a namespace, or of all.
pub(crate) fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// What the objects of a watch are.
pub trait Followed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + Sync + 'static
{
}

impl<K> Followed for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// How soon a kind that is not installed is looked for again.
const ABSENT: Duration = Duration::from_secs(60);

/// Whether the API has a definition of the kind; one that cannot be asked may have it.
pub async fn is_installed<K>(api: &Api<K>) -> bool
where
    K: Clone + DeserializeOwned + Debug,
{
    let found = api.list_metadata(&ListParams::default().limit(1)).await;
    !matches!(found, Err(kube::Error::Api(error)) if error.code == 404)
}

/// Waits until the kind is installed, and says each time that it is not.
pub async fn installed<K>(api: &Api<K>, mut say: impl FnMut())
where
    K: Clone + DeserializeOwned + Debug,
{
    while !is_installed(api).await {
        say();
        sleep(ABSENT).await;
    }
}

/// Watches the objects of a namespace, or of all; those that cannot be read get marks.
pub fn follow<K: Followed>(
    client: &Client,
    namespace: Option<&str>,
    recorder: &Recorder,
    marks: &Arc<Marks>,
) -> impl Stream<Item = Watched<K>> + Send + use<K> {
    follow_selected(client, namespace, Config::default(), recorder, marks)
}

/// The same of those that `selected` has.
pub fn follow_selected<K: Followed>(
    client: &Client,
    namespace: Option<&str>,
    selected: Config,
    recorder: &Recorder,
    marks: &Arc<Marks>,
) -> impl Stream<Item = Watched<K>> + Send + use<K> {
    let api: Api<Readable<K>> = scoped(client, namespace);
    let selected = selected.page_size(PAGE);
    let watch = move || watcher(api.clone(), selected.clone()).boxed();
    readable(anew(watch), recorder.clone(), Arc::clone(marks))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_begins_anew_less_and_less_often() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let begins = Arc::clone(&begun);
        let start = Instant::now();
        let watch = move || {
            let mut begins = begins.lock().unwrap();
            begins.push(start.elapsed().as_millis());
            // The sixth lasts.
            let lasts = Duration::from_secs(if begins.len() == 6 { 61 } else { 0 });
            let ends = async move {
                sleep(lasts).await;
                Err(Error::NoResourceVersion)
            };
            futures::stream::iter([Ok(Event::<u8>::Init)]).chain(futures::stream::once(ends)).boxed()
        };
        let events: Vec<_> = anew(watch).take(16).collect().await;
        assert!(events.chunks(2).all(|pair| pair[0].is_ok() && pair[1].is_err()));
        let pauses: Vec<_> = begun.lock().unwrap().windows(2).map(|pair| (pair[1] - pair[0]) / 500).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 123, 2]);
    }

    /// An API that answers each read after a second with the next version, and fails the second of them.
    fn slow_api(reads: Arc<AtomicU64>) -> Client {
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let number = reads.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                sleep(Duration::from_secs(1)).await;
                let object = serde_json::json!({ "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": { "name": "a", "namespace": "n", "resourceVersion": number.to_string() } });
                let answer = http::Response::new(kube::client::Body::from(object.to_string().into_bytes()));
                if number == 2 { Err(std::io::Error::other("it is away")) } else { Ok(answer) }
            }
        });
        Client::new(service, "n")
    }

    /// Each would hold a copy of its own.
    #[tokio::test(start_paused = true)]
    async fn those_that_come_while_an_object_is_read_share_the_next_read() {
        let reads = Arc::new(AtomicU64::new(0));
        let objects = Objects::<k8s_openapi::api::core::v1::ConfigMap>::default();
        let client = slow_api(Arc::clone(&reads));
        let key = ObjectRef::new("a").within("n");
        let all = async |count: u32| {
            let asks = (0..count).map(|_| objects.get(&client, &key));
            let begun = Instant::now();
            let found = futures::future::join_all(asks).await;
            (found, begun.elapsed().as_secs(), reads.load(Ordering::SeqCst))
        };
        // The first read was begun by then; the second one fails, and those that shared it read at once.
        let (found, seconds, count) = all(100).await;
        let versions = |found: &[Result<Option<Arc<k8s_openapi::api::core::v1::ConfigMap>>, kube::Error>]| {
            let version = |one: &Arc<k8s_openapi::api::core::v1::ConfigMap>| one.resource_version().unwrap();
            found.iter().flatten().flatten().map(version).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((found.iter().filter(|one| one.is_err()).count(), seconds, count), (1, 3, 100));
        let (found, seconds, count) = all(100).await;
        assert_eq!((versions(&found), seconds, count), (2, 2, 102));
        assert!(objects.lock_reads().is_empty());
        // Who reads what was forgotten meanwhile leaves theirs to those who came later.
        let later = async {
            sleep(Duration::from_millis(500)).await;
            objects.forget(&key);
            let asks = futures::future::join_all((0..3).map(|_| objects.get(&client, &key)));
            let looks = async {
                sleep(Duration::from_millis(700)).await;
                assert!(!objects.lock_reads().is_empty());
            };
            futures::join!(asks, looks)
        };
        let (found, _) = futures::join!(objects.get(&client, &key), later);
        assert!(found.is_ok() && objects.lock_reads().is_empty());
    }

    #[test]
    fn what_is_gone_is_not_decided_on_while_the_watch_shows_it_still() {
        let (reader, mut writer) = kube::runtime::reflector::store();
        let objects = Objects::<k8s_openapi::api::core::v1::ConfigMap>::default();
        objects.set_store(reader);
        let mut object = k8s_openapi::api::core::v1::ConfigMap::default();
        (object.metadata.name, object.metadata.namespace) = (Some("a".into()), Some("n".into()));
        object.metadata.resource_version = Some("1".into());
        let key = ObjectRef::from_obj(&object);
        let mut event = |event: Event<_>| {
            writer.apply_watcher_event(&event);
            objects.on(&Ok(event));
        };
        event(Event::Init);
        event(Event::InitApply(object.clone()));
        event(Event::InitDone);
        assert!(objects.known(&key).is_some_and(|found| found.is_some()));
        objects.forget(&key);
        assert!(objects.known(&key).is_none(), "it is read");
        event(Event::Delete(object));
        assert!(objects.known(&key).is_none(), "that there is none is believed when it was read");
    }
}
