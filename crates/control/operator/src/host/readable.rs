//! Objects of a watch, read one by one: one that cannot be read is reported, and stops no other.
//!
//! A definition may take what this program's types do not hold (a number beyond 32 bits, a state of another version), and whoever may write one
//! object must not stop the hosts of others. Nor must such an object vanish: its machine stays its host's. So what can be read of it stays known,
//! for comparisons with it; whoever decides on it has to read it anew, which fails ([`Marks`]).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt as _};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use crate::events::{Recorder, Said};

/// Longest reason that is shown, bytes.
const MAX_WHY: usize = 400;
/// Most parts of an object that are left out.
const MAX_FAULTS: usize = 32;
/// Most Events that wait to be published: of further objects the log alone tells.
const MAX_WAITING: usize = 256;

/// An object, or what is known of one that cannot be read.
#[derive(Clone, Debug)]
pub enum Readable<K> {
    /// It is understood.
    Read(Box<K>),
    /// It is not.
    Unreadable(Box<Unreadable<K>>),
}

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable<K> {
    metadata: ObjectMeta,
    /// The decoder's reason.
    pub why: String,
    /// The object without what cannot be read.
    pub rest: Option<K>,
}

impl<K> Readable<K> {
    /// The object, or what can be read of it.
    pub fn rest(self) -> Option<K> {
        match self {
            Self::Read(object) => Some(*object),
            Self::Unreadable(object) => object.rest,
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = lean(text.get());
        let object: Value = match serde_json::from_str(&text) {
            Ok(read) => return Ok(Self::Read(Box::new(read))),
            // Not all that a text cannot be read for, a value cannot: the last of two members of one name counts.
            Err(_) => serde_json::from_str(&text).map_err(D::Error::custom)?,
        };
        let error = match K::deserialize(&object) {
            Ok(read) => return Ok(Self::Read(Box::new(read))),
            Err(error) => error.to_string(),
        };
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        Ok(Self::Unreadable(Box::new(Unreadable {
            metadata: serde_json::from_value(metadata).unwrap_or_default(),
            why: error.get(..error.floor_char_boundary(MAX_WHY)).unwrap_or_default().to_owned(),
            rest: rest_of(object),
        })))
    }
}

#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    metadata: Managed<'a>,
}

#[derive(Deserialize)]
struct Managed<'a> {
    #[serde(borrow, rename = "managedFields")]
    fields: &'a RawValue,
}

/// An object without `metadata.managedFields`. Nothing here looks at them, and they are half of many an object; whoever writes an object without them
/// leaves them to the API server, which keeps its own.
///
/// An event of a watch can be read only if its `type` comes before its `object`, as API servers write it: in another order there is no text of the object.
fn lean(text: &str) -> Cow<'_, str> {
    let parts = serde_json::from_str::<Outline<'_>>(text).ok().and_then(|outline| {
        let fields = outline.metadata.fields.get();
        let start = fields.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        Some((text.get(..start)?, text.get(start + fields.len()..)?))
    });
    parts.map_or(Cow::Borrowed(text), |(before, after)| Cow::Owned([before, "null", after].concat()))
}

/// What can be read of an object: the least that cannot is left out, or else all but its metadata.
fn rest_of<K: DeserializeOwned>(mut object: Value) -> Option<K> {
    let (kind, version) = (object["kind"].clone(), object["apiVersion"].clone());
    let bare = json!({ "apiVersion": version, "kind": kind, "metadata": object["metadata"], "spec": {} });
    for _ in 0..MAX_FAULTS {
        match serde_path_to_error::deserialize::<_, K>(&object) {
            Ok(read) => return Some(read),
            Err(error) if leave_out(&mut object, error.path()) => {}
            Err(_) => break,
        }
    }
    serde_json::from_value(bare).ok()
}

/// Leaves out the part at this path; false if there is none, or if nothing would be left.
fn leave_out(object: &mut Value, path: &Path) -> bool {
    let mut steps: Vec<&Segment> =
        path.iter().take_while(|step| matches!(step, Segment::Map { .. } | Segment::Seq { .. })).collect();
    let Some(last) = steps.pop() else { return false };
    let mut parent = object;
    for step in steps {
        let next = match step {
            Segment::Map { key } => parent.get_mut(key),
            Segment::Seq { index } => parent.get_mut(index),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        let Some(next) = next else { return false };
        parent = next;
    }
    match (last, parent) {
        (Segment::Map { key }, Value::Object(fields)) => fields.shift_remove(key).is_some(),
        (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

/// Namespace and name of an object.
type Name = (String, String);

/// Versions of objects that cannot be read. An object that was corrected has another version.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Marked>);

#[derive(Debug, Default)]
struct Marked {
    versions: HashMap<Name, String>,
    /// Objects of a list that is not complete yet.
    listed: HashSet<Name>,
}

fn name_of(object: &impl Resource) -> Name {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

impl Marks {
    fn lock(&self) -> MutexGuard<'_, Marked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this object is what could be read of one that cannot be.
    pub fn hold(&self, object: &impl Resource) -> bool {
        let marked = self.lock();
        !marked.versions.is_empty()
            && marked.versions.get(&name_of(object)).map(String::as_str) == object.meta().resource_version.as_deref()
    }

    /// Before the store is told.
    fn on<K: Resource<DynamicType = ()>>(&self, event: &Event<Readable<K>>) {
        let mut marked = self.lock();
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let name = name_of(object);
                if let Readable::Unreadable(object) = object {
                    let version = object.metadata.resource_version.clone().unwrap_or_default();
                    marked.versions.insert(name.clone(), version);
                }
                if matches!(event, Event::InitApply(_)) && marked.versions.contains_key(&name) {
                    marked.listed.insert(name);
                }
            }
            // The store may show it for a moment yet, in its last version.
            Event::Delete(_) => {}
            Event::Init => marked.listed.clear(),
            Event::InitDone => {
                let listed = std::mem::take(&mut marked.listed);
                marked.versions.retain(|name, _| listed.contains(name));
            }
        }
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Readable<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Read(object) => object.meta(),
            Self::Unreadable(object) => &object.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Read(object) => object.meta_mut(),
            Self::Unreadable(object) => &mut object.metadata,
        }
    }
}

/// The events of the objects, with what can be read of those that cannot be: [`Marks::hold`] tells them apart, an Event and the log tell of them.
pub fn readable<K>(
    events: impl Stream<Item = Result<Event<Readable<K>>, Error>> + Send + 'static,
    recorder: Recorder,
    marks: Arc<Marks>,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    // The watch does not wait for an API server that takes its time for an Event.
    let (news, mut waiting) = tokio::sync::mpsc::channel::<Box<Unreadable<K>>>(MAX_WAITING);
    let telling = async move {
        while let Some(object) = waiting.recv().await {
            tell(&recorder, &Readable::Unreadable(object)).await;
        }
    };
    let mut telling = Some(telling);
    events.filter_map(move |event| {
        let event = event.inspect(|event| marks.on(event));
        if let Ok(Event::Apply(Readable::Unreadable(object)) | Event::InitApply(Readable::Unreadable(object))) = &event {
            if let Some(telling) = telling.take() {
                // It ends with the watch.
                tokio::spawn(telling);
            }
            let (kind, why) = (K::kind(&()), &object.why);
            tracing::warn!(%kind, namespace = object.metadata.namespace, name = object.metadata.name, "the object cannot be read: {why}");
            // Of those for which there is no room, the log has told.
            let _ = news.try_send(object.clone());
        }
        std::future::ready(match event {
            Ok(Event::Apply(object)) => object.rest().map(|object| Ok(Event::Apply(object))),
            Ok(Event::InitApply(object)) => object.rest().map(|object| Ok(Event::InitApply(object))),
            Ok(Event::Delete(object)) => object.rest().map(|object| Ok(Event::Delete(object))),
            Ok(Event::Init) => Some(Ok(Event::Init)),
            Ok(Event::InitDone) => Some(Ok(Event::InitDone)),
            Err(error) => Some(Err(error)),
        })
    })
}

async fn tell<K: Resource<DynamicType = ()>>(recorder: &Recorder, object: &Readable<K>) {
    let Readable::Unreadable(unreadable) = object else { return };
    let (kind, namespace, name) = (K::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
    let why = &unreadable.why;
    let note = format!(
        "This {kind} cannot be read by this server: {why} — correct what is written in it; until then nothing is done on its word"
    );
    let said = Said { reason: "ObjectUnreadable".to_owned(), note, warning: true };
    if let Err(error) = recorder.publish(&said, &object.object_ref(&())).await {
        tracing::warn!(namespace, name, %error, "publish an Event");
    }
}

#[cfg(test)]
mod tests {
    use kube::api::WatchEvent;

    use super::*;
    use api::metal3::BareMetalHost;
    use api::metamorph::MachineRecord;

    #[test]
    fn managed_fields_are_left_out_and_nothing_else_is() {
        let text = r#"{"apiVersion": "v1", "data": {"managedFields": "stays"}, "metadata": {"name": "a",
            "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}], "labels": {"managedFields": "x"}}, "kind": "ConfigMap"}"#;
        let mut expected: Value = serde_json::from_str(text).unwrap();
        expected["metadata"]["managedFields"] = Value::Null;
        assert_eq!(serde_json::from_str::<Value>(&lean(text)).unwrap(), expected);
        for other in [
            "null",
            "[{\"metadata\": 1}]",
            "\"text\"",
            "{\"metadata\": [1, -1, 0.5]}",
            "{\"metadata\": {\"name\": \"a\"}, \"managedFields\": [1]}",
        ] {
            assert_eq!(lean(other), other);
        }
    }

    #[test]
    fn events_of_a_watch_and_values_are_read_alike() {
        let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "spec": {"online": true},
            "metadata": {"name": "a", "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}});
        let event = format!(r#"{{"type": "MODIFIED", "object": {object}}}"#);
        let WatchEvent::Modified(Readable::Read(read)) = serde_json::from_str(&event).unwrap() else {
            panic!("{event}")
        };
        let host: BareMetalHost = *read;
        assert!(host.spec.online && host.name_any() == "a" && host.managed_fields().is_empty());
        let Readable::Read(read) = serde_json::from_value::<Readable<BareMetalHost>>(object).unwrap() else { panic!() };
        assert_eq!(read.metadata, host.metadata);
        let twice = r#"{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "spec": {"online": false, "online": true}, "metadata": {"name": "a"}}"#;
        let Readable::Read(read) = serde_json::from_str::<Readable<BareMetalHost>>(twice).unwrap() else { panic!() };
        assert!(read.spec.online);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_known_by_its_name() {
        let host = |status: Value| {
            let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                "metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"online": true}, "status": status});
            serde_json::from_value::<Readable<BareMetalHost>>(object).unwrap()
        };
        assert!(matches!(host(json!({})), Readable::Read(_)));
        let Readable::Unreadable(found) = host(json!({"provisioning": {"state": "nonsense", "ID": "i"}})) else {
            panic!()
        };
        assert!(found.why.contains("nonsense"), "{}", found.why);
        let rest = found.rest.unwrap();
        assert_eq!((rest.name_any().as_str(), rest.spec.online), ("a", true));
        assert_eq!(rest.status.unwrap().provisioning.id, "i");
        let record = json!({"apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "MachineRecord", "metadata": {"name": "evil"},
            "spec": {"bmcAddress": "b", "host": {"name": "evil", "uid": "x"}, "provisioner": {"name": "m", "version": 4_294_967_296_u64, "revision": 1, "data": {}}}});
        let found = serde_json::from_value::<Readable<MachineRecord>>(record).unwrap();
        assert!(matches!(found, Readable::Unreadable(_)) && found.name_any() == "evil");
        let rest = found.rest().unwrap();
        assert_eq!((rest.spec.host.uid.as_deref(), rest.spec.bmc_address.as_str()), (Some("x"), "b"));
    }
}
