//! How calls travel between programs of different versions: an envelope with the version of the contract, generic over the kind of thing that is
//! provisioned (a host is one), that loses no field which its reader does not know.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Answer, Call, Failure, HostFacts, HostKey, Verdict};

/// Version of the contract. It grows when a reader of the version before would misunderstand; a new field or call does not make it grow.
pub const CONTRACT_VERSION: u32 = 1;

/// A kind of thing that provisioners look after.
pub trait Resource {
    /// Name of the kind on the wire.
    const KIND: &'static str;
    /// What tells one from another.
    type Key: Clone + Serialize + DeserializeOwned;
    /// What is told of it with each call.
    type Facts: Clone + Serialize + DeserializeOwned;
    /// What it can be asked.
    type Call: Clone + Serialize + DeserializeOwned;
    /// What that gives.
    type Answer: Clone + Serialize + DeserializeOwned;
}

/// A BareMetalHost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostResource;

impl Resource for HostResource {
    const KIND: &'static str = "host";
    type Key = HostKey;
    type Facts = HostFacts;
    type Call = Call;
    type Answer = Answer;
}

/// A call on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Envelope<R: Resource> {
    /// [`CONTRACT_VERSION`] of the sender.
    pub version: u32,
    /// [`Resource::KIND`].
    pub kind: String,
    /// Counts the calls of a sender: the answer carries it, and one that is late or comes twice is told by it.
    pub number: u64,
    /// Who.
    pub key: R::Key,
    /// What is known of it.
    pub facts: Kept<R::Facts>,
    /// What is asked.
    pub call: Kept<R::Call>,
}

/// Its answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Reply<R: Resource> {
    /// [`CONTRACT_VERSION`] of the sender.
    pub version: u32,
    /// [`Envelope::number`] of the call.
    pub number: u64,
    /// [`Envelope::key`] of the call.
    pub key: R::Key,
    /// The answer.
    pub result: Result<Verdict<R::Answer>, Failure>,
}

/// Why an envelope or a reply is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Its version is not known.
    #[error(
        "read a call of a provisioner: it is of version {0} of the contract, this program knows versions up to {CONTRACT_VERSION} — run programs of one release"
    )]
    Version(u32),
    /// It is about something else.
    #[error("read a call of a provisioner: it is about a {found}, and a {wanted} was expected")]
    Kind {
        /// What it is about.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// It answers another call: late, twice, or for somebody else.
    #[error("read a provisioner's answer: it answers call {found}, and call {wanted} was asked")]
    Stray {
        /// Number of the call that it answers.
        found: u64,
        /// Number of the call that was asked.
        wanted: u64,
    },
}

impl<R: Resource> Envelope<R> {
    /// A call.
    pub fn new(number: u64, key: R::Key, facts: R::Facts, call: R::Call) -> Self {
        let kind = R::KIND.to_owned();
        Self { version: CONTRACT_VERSION, kind, number, key, facts: facts.into(), call: call.into() }
    }

    /// Whether this program may read it.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self) -> Result<(), EnvelopeError> {
        if self.version > CONTRACT_VERSION {
            return Err(EnvelopeError::Version(self.version));
        }
        if self.kind != R::KIND {
            let found = self.kind.chars().take(64).collect();
            return Err(EnvelopeError::Kind { found, wanted: R::KIND });
        }
        Ok(())
    }

    /// Its answer.
    pub fn reply(&self, result: Result<Verdict<R::Answer>, Failure>) -> Reply<R> {
        Reply { version: CONTRACT_VERSION, number: self.number, key: self.key.clone(), result }
    }

    /// The result in a reply, if that is the reply to this call.
    ///
    /// # Errors
    /// When it is not, or of a version that this program does not know.
    pub fn opened(&self, reply: Reply<R>) -> Result<Result<Verdict<R::Answer>, Failure>, EnvelopeError>
    where
        R::Key: PartialEq,
    {
        if reply.version > CONTRACT_VERSION {
            return Err(EnvelopeError::Version(reply.version));
        }
        if reply.number != self.number || reply.key != self.key {
            return Err(EnvelopeError::Stray { found: reply.number, wanted: self.number });
        }
        Ok(reply.result)
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
    use crate::{InspectRequest, PowerRequest};
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
        let read: Envelope<HostResource> = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(read.check(), Ok(()));
        assert_eq!(serde_json::to_value(&read).unwrap(), value);
    }

    #[test]
    fn an_envelope_of_a_later_contract_or_of_another_kind_is_refused() {
        let mut later = envelope(Call::PowerState);
        later.version += 1;
        assert_eq!(later.check(), Err(EnvelopeError::Version(CONTRACT_VERSION + 1)));
        let mut other = envelope(Call::PowerState);
        other.kind = "switch".into();
        assert!(matches!(other.check(), Err(EnvelopeError::Kind { .. })));
    }

    #[test]
    fn a_reply_that_is_late_or_for_another_host_is_no_answer() {
        let asked = envelope(Call::SetPower(PowerRequest::On));
        let reply = asked.reply(Ok(Verdict::Done(Answer::Power(true))));
        assert!(asked.opened(reply.clone()).is_ok());
        let late = Reply { number: 6, ..reply.clone() };
        assert_eq!(asked.opened(late).unwrap_err(), EnvelopeError::Stray { found: 6, wanted: 7 });
        let mut stray = reply;
        stray.key.uid = "v".into();
        assert!(asked.opened(stray).is_err());
    }
}
