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
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
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
        let Lean(object) = Lean::deserialize(deserializer)?;
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

/// An object without `metadata.managedFields`. Nothing here looks at them, and they are half of many an object; whoever writes an object without them
/// leaves them to the API server, which keeps its own.
struct Lean(Value);

impl<'de> Deserialize<'de> for Lean {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Members { inner: Some("metadata") }).map(Self)
    }
}

/// Reads a value. Of an object, the member `inner` is read without `managedFields`; without `inner`, they are left out here.
struct Members {
    inner: Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = serde_json::Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if self.inner == Some(key.as_str()) {
                let value = members.next_value_seed(Self { inner: None })?;
                object.insert(key, value);
            } else if self.inner.is_none() && key == "managedFields" {
                members.next_value::<IgnoredAny>()?;
            } else {
                let value = members.next_value()?;
                object.insert(key, value);
            }
        }
        Ok(Value::Object(object))
    }

    // Whatever else stands in its place is refused by the object's type.
    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
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
    use super::*;
    use api::metal3::BareMetalHost;
    use api::metamorph::MachineRecord;

    #[test]
    fn managed_fields_are_left_out_and_nothing_else_is() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"managedFields": "stays"},
            "metadata": {"name": "a", "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {}}}], "labels": {"managedFields": "x"}}});
        let Lean(lean) = serde_json::from_value(object.clone()).unwrap();
        let mut expected = object;
        expected["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
        assert_eq!(lean, expected);
        for odd in [json!(null), json!([{"metadata": 1}]), json!({"metadata": [1, -1, 0.5, "x", true]}), json!("text")]
        {
            assert_eq!(serde_json::from_value::<Lean>(odd.clone()).unwrap().0, odd);
        }
        let text = r#"{"metadata": {"name": "a"}, "spec": {"data": [1, 1.5, -3, 18446744073709551615, null]}}"#;
        assert_eq!(serde_json::from_str::<Lean>(text).unwrap().0, serde_json::from_str::<Value>(text).unwrap());
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
