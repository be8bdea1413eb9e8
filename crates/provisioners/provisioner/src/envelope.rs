//! How calls travel between programs of different versions: an envelope with the version of the contract. It is generic over the kind of resource
//! that is provisioned (a host, for instance), and preserves fields that its reader does not know.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{Cause, Failure, ObjectKey, Resource, Retry, Verdict};

/// What every version of an envelope begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Head<R: Resource> {
    /// [`Resource::VERSION`] of the sender.
    pub version: u32,
    /// [`Resource::KIND`].
    pub kind: String,
    /// Counts the calls of a sender since it connected. The answer repeats it, which identifies late and duplicate answers.
    pub number: u64,
    /// Who.
    pub key: ObjectKey,
    #[serde(skip)]
    of: PhantomData<R>,
}

/// A call on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Envelope<R: Resource> {
    /// What it begins with.
    #[serde(flatten)]
    pub head: Head<R>,
    /// What is known of it.
    pub facts: Kept<R::Facts>,
    /// What is asked.
    pub call: Kept<R::Call>,
    /// What a later version has added.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Reply<R: Resource> {
    /// [`Resource::VERSION`] of the sender.
    pub version: u32,
    /// [`Head::number`] of the call.
    pub number: u64,
    /// [`Head::key`] of the call.
    pub key: ObjectKey,
    /// The answer.
    pub result: Result<Verdict<R::Answer>, Failure>,
    /// What a later version has added.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// An envelope that cannot be accepted.
#[derive(Clone, Debug)]
pub struct Unread<R: Resource> {
    /// What it begins with, if that can be read: it can be answered.
    pub head: Option<Head<R>>,
    /// Why.
    pub error: EnvelopeError,
}

/// Why an envelope or a reply is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Its version is not known.
    #[error(
        "read a call of a provisioner: it is of version {found} of the contract, this program knows versions up to {known} — run programs of one release"
    )]
    Version {
        /// Its version.
        found: u32,
        /// The highest that is known.
        known: u32,
    },
    /// It is about something else.
    #[error("read a call of a provisioner: it is about a {found}, and a {wanted} was expected")]
    Kind {
        /// What it is about.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// It cannot be parsed, or is an unknown call.
    #[error("read a call of a provisioner: {0}")]
    Unknown(String),
    /// It answers another call: it is late, a duplicate, or for another resource.
    #[error("read a provisioner's answer: it answers call {found}, and call {wanted} was asked")]
    Stray {
        /// Number of the call that it answers.
        found: u64,
        /// Number of the call that was asked.
        wanted: u64,
    },
}

impl<R: Resource> Head<R> {
    fn check(&self) -> Result<(), EnvelopeError> {
        if self.version > R::VERSION {
            return Err(EnvelopeError::Version { found: self.version, known: R::VERSION });
        }
        if self.kind != R::KIND {
            let found = self.kind.chars().take(64).collect();
            return Err(EnvelopeError::Kind { found, wanted: R::KIND });
        }
        Ok(())
    }

    /// The answer to what it begins.
    pub fn reply(&self, result: Result<Verdict<R::Answer>, Failure>) -> Reply<R> {
        let (number, key) = (self.number, self.key.clone());
        Reply { version: R::VERSION, number, key, result, more: Map::new() }
    }
}

impl<R: Resource> Unread<R> {
    /// The answer to it: [`Cause::NotServed`], if it can be answered.
    #[must_use]
    pub fn reply(&self) -> Option<Reply<R>> {
        let mut failure = Failure::new(Cause::NotServed, self.error.to_string());
        failure.retry = Retry::AfterChange;
        Some(self.head.as_ref()?.reply(Err(failure.advise("run programs of one release"))))
    }
}

impl<R: Resource> Envelope<R> {
    /// A call.
    pub fn new(number: u64, key: ObjectKey, facts: R::Facts, call: R::Call) -> Self {
        let head = Head { version: R::VERSION, kind: R::KIND.to_owned(), number, key, of: PhantomData };
        Self { head, facts: facts.into(), call: call.into(), more: Map::new() }
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`Unread`]: with what it begins with, so that a call which this version does not know is answered and not lost.
    pub fn read(value: Value) -> Result<Self, Box<Unread<R>>> {
        let unknown = |error: serde_json::Error| EnvelopeError::Unknown(error.to_string().chars().take(200).collect());
        let head: Head<R> =
            Head::deserialize(&value).map_err(|error| Box::new(Unread { head: None, error: unknown(error) }))?;
        let unread = |error| Box::new(Unread { head: Some(head.clone()), error });
        head.check().map_err(unread)?;
        serde_json::from_value(value).map_err(|error| unread(unknown(error)))
    }

    /// The reply, if it is the one to this call.
    ///
    /// # Errors
    /// When it is not, or of a version that this program does not know.
    pub fn accept(&self, reply: Reply<R>) -> Result<Reply<R>, EnvelopeError> {
        if reply.version > R::VERSION {
            return Err(EnvelopeError::Version { found: reply.version, known: R::VERSION });
        }
        if reply.number != self.head.number || reply.key != self.head.key {
            return Err(EnvelopeError::Stray { found: reply.number, wanted: self.head.number });
        }
        Ok(reply)
    }
}

/// Something that was read, with the fields that this version does not know: they are written again as they were.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T> {
    /// What is known of it.
    pub known: T,
    /// As it was read.
    read: Value,
}

impl<T> From<T> for Kept<T> {
    fn from(known: T) -> Self {
        Self { known, read: Value::Null }
    }
}

impl<T: Serialize> Serialize for Kept<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(&self.known).map_err(serde::ser::Error::custom)?;
        keep(&mut value, &self.read);
        value.serialize(serializer)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Kept<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Value::deserialize(deserializer)?;
        let known = serde_json::from_value(read.clone()).map_err(serde::de::Error::custom)?;
        Ok(Self { known, read })
    }
}

/// Adds the members of objects that only `read` has.
fn keep(written: &mut Value, read: &Value) {
    if let (Value::Object(written), Value::Object(read)) = (written, read) {
        for (name, value) in read {
            match written.get_mut(name) {
                Some(known) => keep(known, value),
                None => {
                    written.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, CONTRACT_VERSION, Call, HostFacts, HostKey, HostResource, InspectRequest, PowerWish};
    use serde_json::json;

    fn envelope(call: Call) -> Envelope<HostResource> {
        let key = HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() };
        Envelope::new(7, key.clone(), HostFacts { key, ..HostFacts::default() }, call)
    }

    #[test]
    fn what_a_later_version_adds_is_passed_on() {
        let mut value = serde_json::to_value(envelope(Call::Inspect(InspectRequest::default()))).unwrap();
        value["facts"]["weather"] = json!("sunny");
        value["call"]["request"]["depth"] = json!({ "metres": 3 });
        value["postage"] = json!(2);
        let read = Envelope::<HostResource>::read(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
        let mut reply = serde_json::to_value(read.head.reply(Ok(Verdict::Done(Answer::Done)))).unwrap();
        reply["postage"] = json!(3);
        let read: Reply<HostResource> = serde_json::from_value(reply.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), reply);
    }

    #[test]
    fn an_envelope_of_a_later_contract_or_of_another_kind_is_refused() {
        let good = serde_json::to_value(envelope(Call::PowerState)).unwrap();
        for (edit, said) in [
            (json!({ "version": CONTRACT_VERSION + 1 }), "of version"),
            (json!({ "kind": "switch" }), "about a switch"),
            (json!({ "call": { "call": "levitate", "request": { "metres": 3 } } }), "levitate"),
            (json!({ "facts": 7 }), "read a call"),
        ] {
            let mut value = good.clone();
            value.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
            let unread = Envelope::<HostResource>::read(value).unwrap_err();
            let reply = unread.reply().expect("what can be read of it is answered");
            let failure = reply.result.unwrap_err();
            assert_eq!((reply.number, failure.cause), (7, Cause::NotServed));
            assert!(failure.message.contains(said), "{failure}");
        }
        let unread = Envelope::<HostResource>::read(json!({ "number": 7 })).unwrap_err();
        assert!(unread.reply().is_none(), "nobody knows whom it is about");
    }

    #[test]
    fn a_reply_that_is_late_or_for_another_host_is_no_answer() {
        let asked = envelope(Call::SetPower(PowerWish::On.into()));
        let reply = asked.head.reply(Ok(Verdict::Done(Answer::Power(Some(true)))));
        assert!(asked.accept(reply.clone()).is_ok());
        let late = Reply { number: 6, ..reply.clone() };
        assert_eq!(asked.accept(late).unwrap_err(), EnvelopeError::Stray { found: 6, wanted: 7 });
        let mut stray = reply;
        stray.key.uid = "v".into();
        assert!(asked.accept(stray).is_err());
    }
}
