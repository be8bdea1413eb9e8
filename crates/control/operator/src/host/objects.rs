//! Objects as a watch shows them, and as this process has read and written them since: what decisions are made from without a call.

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use futures::{Stream, StreamExt as _};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Config, Error, Event};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::kept::{Judgement, Kept};
use super::step::InStep;

/// What a watch and this process's own calls tell of all objects of a kind.
pub struct Objects<K: Resource<DynamicType = ()> + 'static> {
    shown: OnceLock<Store<K>>,
    /// The watch has listed them and has not failed since.
    pub in_step: InStep,
    kept: Kept<ObjectRef<K>, K>,
}

impl<K: Resource<DynamicType = ()> + 'static> Default for Objects<K> {
    fn default() -> Self {
        Self { shown: OnceLock::new(), in_step: InStep::default(), kept: Kept::default() }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Objects<K> {
    /// From now on the objects are shown here.
    pub fn are_shown_by(&self, store: Store<K>) {
        // Set once: a controller runs once.
        let _ = self.shown.set(store);
    }

    /// What the watch shows, in step or not; `None` before the controller runs.
    pub fn store(&self) -> Option<&Store<K>> {
        self.shown.get()
    }

    /// To be told of each event, after the store has been.
    pub fn on(&self, event: &Result<Event<K>, Error>) {
        match event {
            Ok(Event::Apply(object)) => {
                self.kept.has_shown(&ObjectRef::from_obj(object), object.resource_version().as_deref());
            }
            Ok(Event::Delete(object)) => self.kept.has_gone(&ObjectRef::from_obj(object)),
            Ok(Event::InitApply(_)) => {}
            Ok(Event::Init) | Err(_) => self.in_step.is_now(false),
            Ok(Event::InitDone) => {
                self.kept.doubt_all();
                self.in_step.is_now(true);
            }
        }
    }

    /// What the watch shows, if it is in step.
    pub fn shown(&self, key: &ObjectRef<K>) -> Option<Option<Arc<K>>> {
        let store = self.shown.get().filter(|_| self.in_step.get())?;
        Some(store.get(key))
    }

    /// The object as far as it is known without a call; `None` if it has to be read. That there is none is believed only if it was read: what
    /// another watch has shown may not have come through this one yet.
    pub fn known(&self, key: &ObjectRef<K>) -> Option<Option<Arc<K>>> {
        let shown = self.shown(key)?;
        let version = shown.as_ref().and_then(|object| object.resource_version());
        match self.kept.judge(key, version.as_deref()) {
            Judgement::Nothing => shown.map(Some),
            Judgement::CaughtUp(_) if shown.is_some() => {
                self.kept.settle(key, version.as_deref());
                Some(shown)
            }
            Judgement::CaughtUp(object) | Judgement::Older(object) => Some(object),
            Judgement::Unclear => None,
        }
    }

    /// The object, read if need be.
    pub async fn get(&self, api: &Api<K>, key: &ObjectRef<K>) -> Result<Option<Arc<K>>, kube::Error>
    where
        K: DeserializeOwned + Debug,
    {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        let before = self.kept.before(key, self.shown_version(key));
        let found = api.get_opt(&key.name).await?.map(Arc::new);
        let version = found.as_ref().and_then(|object| object.resource_version());
        self.kept.note(key, before, found.clone(), version, 0);
        Ok(found)
    }

    fn shown_version(&self, key: &ObjectRef<K>) -> Option<Option<String>> {
        self.shown(key).map(|shown| shown.and_then(|object| object.resource_version()))
    }

    /// Sends a write, and keeps what it answers. After one that fails, nothing is known of the object.
    pub async fn writing(
        &self,
        key: &ObjectRef<K>,
        call: impl Future<Output = Result<K, kube::Error>>,
    ) -> Result<K, kube::Error> {
        let before = self.kept.before(key, self.shown_version(key));
        let under_way = Doubt::of(self, key);
        let written = call.await?;
        under_way.clear();
        let version = written.resource_version();
        self.kept.note(key, before, Some(Arc::new(written.clone())), version, 0);
        Ok(written)
    }

    /// What is known of the object is void: it is read before anything is decided on it.
    pub fn doubt(&self, key: &ObjectRef<K>) {
        self.kept.doubt(key);
    }

    /// The object is gone.
    pub fn forget(&self, key: &ObjectRef<K>) {
        self.kept.forget(key);
    }
}

/// A write that is under way: one that fails or is cut off leaves a doubt.
struct Doubt<'a, K: Resource<DynamicType = ()> + Clone + 'static>(Option<(&'a Objects<K>, &'a ObjectRef<K>)>);

impl<'a, K: Resource<DynamicType = ()> + Clone + 'static> Doubt<'a, K> {
    fn of(objects: &'a Objects<K>, key: &'a ObjectRef<K>) -> Self {
        Self(Some((objects, key)))
    }

    fn clear(mut self) {
        self.0 = None;
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Drop for Doubt<'_, K> {
    fn drop(&mut self) {
        if let Some((objects, key)) = self.0 {
            objects.doubt(key);
        }
    }
}

type Watched<K> = Result<Event<K>, Error>;

/// A watch that begins anew, with a list, after each error: only so is it known to be in step again.
fn anew<K: Clone + Send + 'static>(
    watch: impl Fn() -> futures::stream::BoxStream<'static, Watched<K>> + Send + 'static,
) -> impl Stream<Item = Watched<K>> + Send + 'static {
    let events = futures::stream::unfold((watch, None), |(watch, stream)| async move {
        let mut stream = stream.unwrap_or_else(&watch);
        let event = stream.next().await?;
        let stream = event.is_ok().then_some(stream);
        Some((event, (watch, stream)))
    });
    events.default_backoff()
}

/// Watches objects.
pub fn follow<K>(api: Api<K>) -> impl Stream<Item = Watched<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    anew(move || watcher(api.clone(), Config::default()).boxed())
}
