//! Events about hosts, for people.
//!
//! A repeated message is counted in its existing Event. A new message becomes another Event, up to a limit, so that ever-changing messages
//! cannot fill the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Resource as _, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Clock;

/// Name under which this controller publishes Events.
const REPORTER: &str = "metamorph";
/// How long an Event is counted up after it was published last, as Kubernetes' own components do.
const COUNTED: SignedDuration = SignedDuration::from_mins(6);
/// How often those that are no longer counted up are forgotten.
const SWEEP: SignedDuration = SignedDuration::from_secs(60);
/// Most separate Events per object, type and reason; further messages are counted in the last one.
const MOST_APART: usize = 10;
/// Longest text of an Event, bytes.
const MAX_NOTE: usize = 1024;
/// Longest name of an object that goes into the Event's name, bytes.
const MAX_NAME: usize = 200;

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// In CamelCase, for programs; it is the Event's action, too.
    pub reason: String,
    /// For people.
    pub note: String,
    /// Whether somebody should look.
    pub warning: bool,
}

/// Publishes Events. Clones share what was published.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    clock: Arc<dyn Clock>,
    recent: Arc<Mutex<Recent>>,
}

impl Recorder {
    /// A recorder that has published nothing.
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, recent: Arc::default() }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes it about this object.
    ///
    /// # Errors
    /// When the Kubernetes API fails or refuses it.
    pub async fn publish(&self, said: &Said, about: &ObjectReference) -> Result<(), kube::Error> {
        self.publish_beside(said, about, None).await
    }

    /// Publishes it about this object, which is `related` to another.
    ///
    /// # Errors
    /// When the Kubernetes API fails or refuses it.
    pub async fn publish_beside(
        &self,
        said: &Said,
        about: &ObjectReference,
        related: Option<ObjectReference>,
    ) -> Result<(), kube::Error> {
        let now = self.clock.now();
        let new = Event { related, ..event(said, about, now) };
        let api: Api<Event> = Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let counted = self.recent().counted(&new, now);
        if let Some(counted) = counted {
            match api.patch_metadata(&counted.name, &PatchParams::default(), &Patch::Merge(counted.patch())).await {
                Ok(_) => {
                    self.recent().keep(topic(&new), counted);
                    return Ok(());
                }
                // It was deleted: create a new one.
                Err(kube::Error::Api(error)) if error.code == 404 => self.recent().lose(&topic(&new), &counted),
                Err(error) => return Err(error),
            }
        }
        match create(&self.client, &new).await {
            Ok(_) => {}
            // An earlier process published the same message about the same object at the same instant.
            Err(kube::Error::Api(error)) if error.code == 409 => {}
            Err(error) => return Err(error),
        }
        if let Some(event) = Counted::of(&new) {
            self.recent().keep(topic(&new), event);
        }
        Ok(())
    }

    /// Publishes it about this object if no process has done so for the same `cause` while that Event is kept. Whether it was published.
    ///
    /// # Errors
    /// When the Kubernetes API fails or refuses it.
    pub async fn publish_once(&self, said: &Said, about: &ObjectReference, cause: &str) -> Result<bool, kube::Error> {
        let mut new = event(said, about, self.clock.now());
        new.metadata.name = Some(name(about, &format!("{cause}\n{}", said.reason)));
        match create(&self.client, &new).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(error)) if error.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Creates it. What the API answers, which is the Event again, is not read.
async fn create(client: &Client, event: &Event) -> Result<(), kube::Error> {
    let text = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let path = Event::url_path(&(), Some(event.metadata.namespace.as_deref().unwrap_or("default")));
    let request = Request::new(path).create(&PostParams::default(), text).map_err(kube::Error::BuildRequest)?;
    client.request::<IgnoredAny>(request).await.map(|_| ())
}

/// An Event that repetitions are still counted in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    name: String,
    /// Of its words.
    note: Digest128,
    count: i32,
    last: Timestamp,
}

impl Counted {
    fn of(event: &Event) -> Option<Self> {
        let MicroTime(last) = event.event_time.clone()?;
        let note = digest(event.note.as_slice());
        Some(Self { name: event.name_any(), note, count: 1, last })
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.last + COUNTED <= now
    }

    /// The patch that counts it up.
    fn patch(&self) -> Value {
        json!({ "series": EventSeries { count: self.count, last_observed_time: MicroTime(self.last) } })
    }
}

/// Events that repetitions are still counted in.
#[derive(Default)]
struct Recent {
    topics: HashMap<Topic, Vec<Counted>>,
    /// When those that are over were last removed.
    swept: Option<Timestamp>,
}

impl Recent {
    /// The existing Event with its count raised, unless the message gets an Event of its own.
    fn counted(&mut self, said: &Event, now: Timestamp) -> Option<Counted> {
        if self.swept.is_none_or(|swept| now.duration_since(swept).abs() >= SWEEP) {
            self.topics.retain(|_, events| {
                events.retain(|event| !event.is_over(now));
                !events.is_empty()
            });
            self.swept = Some(now);
        }
        let events = self.topics.get_mut(&topic(said))?;
        events.retain(|event| !event.is_over(now));
        let note = digest(said.note.as_slice());
        let same = events.iter().find(|event| event.note == note);
        let event = same.or_else(|| events.last().filter(|_| events.len() >= MOST_APART))?.clone();
        Some(Counted { count: event.count.saturating_add(1), last: now, ..event })
    }

    fn keep(&mut self, topic: Topic, event: Counted) {
        // Most topics have one.
        let events = self.topics.entry(topic).or_insert_with(|| Vec::with_capacity(1));
        match events.iter_mut().find(|known| known.name == event.name) {
            Some(known) => *known = event,
            None => events.push(event),
        }
    }

    fn lose(&mut self, topic: &Topic, event: &Counted) {
        if let Some(events) = self.topics.get_mut(topic) {
            events.retain(|known| known.name != event.name);
        }
    }
}

/// The beginning of a SHA-256: of each Event of the last minutes, two of these are kept, and not its words.
type Digest128 = [u8; 16];

fn digest(parts: &[impl AsRef<str>]) -> Digest128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_ref().len().to_be_bytes());
        hash.update(part.as_ref());
    }
    let whole: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|at| whole[at])
}

/// Of whom and why: uid, type, reason.
type Topic = Digest128;

fn topic(event: &Event) -> Topic {
    let uid = event.regarding.as_ref().and_then(|object| object.uid.as_deref());
    digest(&[uid, event.type_.as_deref(), event.reason.as_deref()].map(Option::unwrap_or_default))
}

fn clipped(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

/// Name of an Event about this object that is told from others by `what`.
fn name(about: &ObjectReference, what: &str) -> String {
    let object = about.name.as_deref().unwrap_or(REPORTER);
    let digest = Sha256::digest(format!("{what}\n{}", about.uid.as_deref().unwrap_or_default()));
    format!("{}.{}", clipped(object, MAX_NAME), hex::encode(digest).get(..16).unwrap_or_default())
}

fn event(said: &Said, about: &ObjectReference, now: Timestamp) -> Event {
    let note = clipped(&said.note, MAX_NOTE);
    Event {
        metadata: ObjectMeta {
            name: Some(name(about, &format!("{}\n{}\n{note}", now.as_nanosecond(), said.reason))),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some(said.reason.clone()),
        event_time: Some(MicroTime(now)),
        note: Some(note.to_owned()),
        reason: Some(said.reason.clone()),
        regarding: Some(about.clone()),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(REPORTER.to_owned()),
        type_: Some(if said.warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(about: &str, reason: &str, note: &str, at: i64) -> Event {
        let about = ObjectReference { name: Some("a".into()), uid: Some(about.into()), ..ObjectReference::default() };
        let said = Said { reason: reason.into(), note: note.into(), warning: false };
        event(&said, &about, Timestamp::from_second(at).unwrap())
    }

    /// How often these words have been said in their Event, this time included.
    fn say(recent: &mut Recent, event: &Event, at: i64) -> (Digest128, i32) {
        let counted = recent.counted(event, Timestamp::from_second(at).unwrap());
        let counted = counted.or_else(|| Counted::of(event)).unwrap();
        recent.keep(topic(event), counted.clone());
        (counted.note, counted.count)
    }

    #[test]
    fn the_same_words_are_counted_up_and_others_are_another_event() {
        let mut recent = Recent::default();
        for (about, reason, note, at, count) in [
            ("u", "Started", "image one", 0, 1),
            ("u", "Started", "image two", 10, 1),
            ("u", "Started", "image one", 20, 2),
            ("u", "Started", "image two", 30, 2),
            ("u", "Stopped", "image one", 40, 1),
            ("v", "Started", "image one", 50, 1),
            ("u", "Started", "image one", 20 + 359, 3),
            ("u", "Started", "image one", 20 + 359 + 360, 1),
        ] {
            let wanted = (digest(&[note]), count);
            assert_eq!(say(&mut recent, &said(about, reason, note, at), at), wanted, "{about} {reason} {note} {at}");
        }
    }

    #[test]
    fn whoever_says_something_else_all_the_time_makes_a_bounded_number_of_events() {
        let mut recent = Recent::default();
        let mut names = std::collections::BTreeSet::new();
        for number in 0..1000 {
            let event = said("u", "Drifted", &format!("disk {number}"), number);
            let now = Timestamp::from_second(number).unwrap();
            let counted = recent.counted(&event, now).or_else(|| Counted::of(&event)).unwrap();
            names.insert(counted.name.clone());
            recent.keep(topic(&event), counted);
        }
        // Six minutes after it was said last, one makes room for another.
        assert!((MOST_APART..=MOST_APART * 4).contains(&names.len()), "{}", names.len());
        assert!(recent.topics.values().all(|events| events.len() <= MOST_APART));
        assert_eq!(recent.counted(&said("w", "x", "y", 0), Timestamp::from_second(10_000).unwrap()), None);
        assert!(recent.topics.is_empty(), "what is over is forgotten");
    }

    #[test]
    fn names_and_notes_are_as_long_as_the_api_takes() {
        let about = ObjectReference { name: Some("n".repeat(253)), ..ObjectReference::default() };
        let long = Said { reason: "R".into(), note: "ä".repeat(1000), warning: true };
        let event = event(&long, &about, Timestamp::UNIX_EPOCH);
        assert!(event.metadata.name.unwrap().len() <= 253 && event.note.unwrap().len() <= MAX_NOTE);
    }
}
