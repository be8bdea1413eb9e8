//! Objects of a watch, read one by one: one that cannot be read is reported and left out, and stops no other.
//!
//! A definition may take what this program's types do not hold (a number beyond 32 bits, a state of another version), and whoever may write one
//! object must not stop the hosts of others.

use std::borrow::Cow;
use std::fmt::Debug;

use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::events::{Recorder, Said};

/// Longest reason that is shown, bytes.
const MAX_WHY: usize = 400;

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
    why: String,
    /// The object without what may be wrong with it, if the kind allows that.
    hollow: Option<K>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&object) {
            Ok(read) => return Ok(Self::Read(Box::new(read))),
            Err(error) => error.to_string(),
        };
        let metadata = object.get("metadata").cloned().unwrap_or_default();
        let hollow = json!({ "apiVersion": object.get("apiVersion"), "kind": object.get("kind"), "metadata": metadata, "spec": {} });
        Ok(Self::Unreadable(Box::new(Unreadable {
            metadata: serde_json::from_value(metadata).unwrap_or_default(),
            why: error.get(..error.floor_char_boundary(MAX_WHY)).unwrap_or_default().to_owned(),
            hollow: serde_json::from_value(hollow).ok(),
        })))
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

/// The events of those objects that can be read. Of the others an Event and the log tell; their deletion is passed on.
///
/// An object that becomes unreadable stays known as it was read last: whatever is written or done to it is conditional on its version or read anew,
/// and fails there.
pub fn readable<K>(
    events: impl Stream<Item = Result<Event<Readable<K>>, Error>> + Send + 'static,
    recorder: Recorder,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    events.filter_map(move |event| {
        let (kept, unreadable) = match event {
            Ok(Event::Apply(Readable::Read(object))) => (Some(Ok(Event::Apply(*object))), None),
            Ok(Event::InitApply(Readable::Read(object))) => (Some(Ok(Event::InitApply(*object))), None),
            Ok(Event::Delete(Readable::Read(object))) => (Some(Ok(Event::Delete(*object))), None),
            Ok(Event::Apply(Readable::Unreadable(object)) | Event::InitApply(Readable::Unreadable(object))) => {
                (None, Some(object))
            }
            Ok(Event::Delete(Readable::Unreadable(object))) => {
                (object.hollow.map(|object| Ok(Event::Delete(object))), None)
            }
            Ok(Event::Init) => (Some(Ok(Event::Init)), None),
            Ok(Event::InitDone) => (Some(Ok(Event::InitDone)), None),
            Err(error) => (Some(Err(error)), None),
        };
        let recorder = recorder.clone();
        async move {
            if let Some(object) = unreadable {
                tell(&recorder, &Readable::Unreadable(object)).await;
            }
            kept
        }
    })
}

async fn tell<K: Resource<DynamicType = ()>>(recorder: &Recorder, object: &Readable<K>) {
    let Readable::Unreadable(unreadable) = object else { return };
    let (kind, namespace, name) = (K::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
    let why = &unreadable.why;
    tracing::warn!(%kind, namespace, name, "the object cannot be read, and is left out: {why}");
    let note = format!(
        "This {kind} cannot be read by this server: {why} — correct what is written in it; until then it counts as it was read last, or as absent"
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
    fn an_object_that_cannot_be_read_is_known_by_its_name() {
        let host = |status: Value| {
            let object = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                "metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"online": true}, "status": status});
            serde_json::from_value::<Readable<BareMetalHost>>(object).unwrap()
        };
        assert!(matches!(host(json!({})), Readable::Read(_)));
        let Readable::Unreadable(found) = host(json!({"provisioning": {"state": "nonsense"}})) else { panic!() };
        assert!(found.why.contains("nonsense"), "{}", found.why);
        assert_eq!(found.hollow.unwrap().name_any(), "a");
        let record = json!({"apiVersion": "metamorph.metal3.io/v1alpha1", "kind": "MachineRecord", "metadata": {"name": "evil"},
            "spec": {"host": {"name": "evil", "uid": "x"}, "provisioner": {"name": "m", "version": 4_294_967_296_u64, "revision": 1, "data": {}}}});
        let found = serde_json::from_value::<Readable<MachineRecord>>(record).unwrap();
        assert!(matches!(found, Readable::Unreadable(_)) && found.name_any() == "evil");
    }
}
