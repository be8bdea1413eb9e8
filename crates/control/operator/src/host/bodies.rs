//! Contents of Secrets: read when their version changes, and kept until then. Only their metadata is watched.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{Error, Event};
use kube::{Api, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::kept::{Before, Judgement, Kept};
use super::step::InStep;

/// Most Secrets kept, and most bytes of them in total. Beyond that, the least recently used are dropped and read again.
const MAX_SECRETS: usize = 16_384;
const MAX_BYTES: usize = 64 << 20;

/// A Secret as it was read.
pub struct Body {
    /// Its metadata, without managedFields.
    pub metadata: ObjectMeta,
    /// Its type.
    pub kind: String,
    data: BTreeMap<String, SecretBox<[u8]>>,
    login: OnceLock<Result<Login, &'static str>>,
}

/// Identifies a Secret with its user and password: its uid, and a digest of both, or what it lacks.
pub type Identity = (Option<String>, Result<[u8; 32], &'static str>);

/// User and password in a Secret, trimmed.
pub struct Login {
    /// User.
    pub username: String,
    /// Password.
    pub password: SecretString,
    /// Digest of both. It never leaves the process.
    pub content: [u8; 32],
}

impl Body {
    fn of(secret: Secret) -> Self {
        let Secret { mut metadata, data, string_data, type_, .. } = secret;
        metadata.managed_fields = None;
        let texts = string_data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes()));
        let bytes = data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0));
        // `data` wins over `stringData`.
        let data = texts.chain(bytes).map(|(key, bytes)| (key, bytes.into_boxed_slice().into())).collect();
        Self { metadata, kind: type_.unwrap_or_default(), data, login: OnceLock::new() }
    }

    /// Whether it has something of this name, empty or not.
    pub fn has(&self, key: &str) -> bool {
        self.data.contains_key(key)
    }

    /// Whether what it has of this name is empty.
    pub fn is_empty(&self, key: &str) -> bool {
        self.data.get(key).is_some_and(|value| value.expose_secret().is_empty())
    }

    /// A text that is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        let bytes = self.data.get(key)?.expose_secret();
        std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    }

    /// User and password; else which of them is missing.
    pub fn login(&self) -> &Result<Login, &'static str> {
        self.login.get_or_init(|| {
            let field = |key| self.text(key).map(str::trim).filter(|text| !text.is_empty()).ok_or(key);
            let (username, password) = (field("username")?, field("password")?);
            let mut hash = Sha256::new();
            hash.update((username.len() as u64).to_be_bytes());
            hash.update(username);
            hash.update(password);
            let content = hash.finalize().into();
            Ok(Login { username: username.to_owned(), password: SecretString::from(password), content })
        })
    }

    /// Tells whether it is the same Secret, with the same user and password.
    pub fn identity(&self) -> Identity {
        let content = self.login().as_ref().map(|login| login.content).map_err(|missing| *missing);
        (self.metadata.uid.clone(), content)
    }

    fn weight(&self) -> usize {
        let bytes = |(key, value): (&String, &SecretBox<[u8]>)| key.len() + value.expose_secret().len();
        1024 + self.data.iter().map(bytes).sum::<usize>()
    }
}

type Key = ObjectRef<PartialObjectMeta<Secret>>;

/// The Secrets of all hosts.
#[derive(Default)]
pub struct Bodies {
    store: OnceLock<Store<PartialObjectMeta<Secret>>>,
    pub in_step: InStep,
    kept: Kept<Key, Body>,
    /// Locks by key hash: concurrent requests for the same Secret wait for one read.
    reading: [tokio::sync::Mutex<()>; 32],
}

impl Bodies {
    /// Sets the store that the watch fills with their metadata.
    pub fn set_store(&self, store: Store<PartialObjectMeta<Secret>>) {
        // Set once: a controller runs once.
        let _ = self.store.set(store);
    }

    /// Call with each event, after the store.
    pub fn on(&self, event: &Result<Event<PartialObjectMeta<Secret>>, Error>) {
        match event {
            Ok(Event::Apply(secret)) => {
                self.kept.observe(&ObjectRef::from_obj(secret), secret.resource_version().as_deref());
            }
            Ok(Event::Delete(secret)) => self.kept.forget(&ObjectRef::from_obj(secret)),
            Ok(Event::InitApply(_)) => {}
            Ok(Event::Init) | Err(_) => self.in_step.is_now(false),
            Ok(Event::InitDone) => {
                self.kept.invalidate_all();
                self.in_step.is_now(true);
            }
        }
    }

    fn watched_version(&self, key: &Key) -> Option<Option<String>> {
        let store = self.store.get().filter(|_| self.in_step.get())?;
        Some(store.get(key).and_then(|secret| secret.resource_version()))
    }

    /// A Secret's metadata as the watch shows them; `None` if it shows none, or is not in step.
    pub fn watched(&self, namespace: &str, name: &str) -> Option<Arc<PartialObjectMeta<Secret>>> {
        let store = self.store.get().filter(|_| self.in_step.get())?;
        store.get(&ObjectRef::new(name).within(namespace))
    }

    /// All whose metadata match, as the watch shows them; none while it is not in step.
    pub fn watched_matching(&self, wanted: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<PartialObjectMeta<Secret>>> {
        let Some(store) = self.store.get().filter(|_| self.in_step.get()) else { return Vec::new() };
        store.state().into_iter().filter(|secret| wanted(&secret.metadata)).collect()
    }

    /// The Secret as known without a call. Absence is never known without one.
    pub fn known(&self, namespace: &str, name: &str) -> Option<Arc<Body>> {
        let key = ObjectRef::new(name).within(namespace);
        let version = self.watched_version(&key)??;
        match self.kept.judge(&key, Some(&version)) {
            Judgement::CaughtUp(body) | Judgement::Older(body) => body,
            Judgement::Nothing | Judgement::Unclear => None,
        }
    }

    /// The Secret, read if need be; `None` if there is none.
    pub async fn get(&self, api: &Api<Secret>, namespace: &str, name: &str) -> Result<Option<Arc<Body>>, kube::Error> {
        let key = ObjectRef::new(name).within(namespace);
        let _turn = self.turn(&key).await;
        if let Some(known) = self.known(namespace, name) {
            return Ok(Some(known));
        }
        let before = self.kept.before(&key, self.watched_version(&key));
        let Some(secret) = api.get_opt(name).await? else {
            self.kept.forget(&key);
            return Ok(None);
        };
        Ok(Some(self.keep(&key, before, secret)))
    }

    async fn turn(&self, key: &Key) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let mut hash = DefaultHasher::new();
        key.hash(&mut hash);
        let slot = usize::try_from(hash.finish() % self.reading.len() as u64).ok()?;
        Some(self.reading.get(slot)?.lock().await)
    }

    fn keep(&self, key: &Key, before: Before, secret: Secret) -> Arc<Body> {
        let version = secret.resource_version();
        let body = Arc::new(Body::of(secret));
        self.kept.note(key, before, Some(Arc::clone(&body)), version, body.weight());
        self.kept.trim(MAX_SECRETS, MAX_BYTES);
        body
    }

    /// Patches the Secret and keeps the result; after a failure, nothing is known of it.
    pub async fn patch(
        &self,
        api: &Api<Secret>,
        namespace: &str,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<(), kube::Error> {
        let key = ObjectRef::new(name).within(namespace);
        let _turn = self.turn(&key).await;
        let before = self.kept.before(&key, self.watched_version(&key));
        match api.patch(name, &PatchParams::default(), patch).await {
            Ok(secret) => {
                self.keep(&key, before, secret);
                Ok(())
            }
            Err(error) => {
                self.kept.invalidate(&key);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after `echo password | base64`.
    #[test]
    fn white_space_around_user_and_password_is_cut_off() {
        let body = |username: &str, password: &str| {
            let data = [("username", username), ("password", password)];
            let string_data = Some(data.map(|(key, text)| (key.to_owned(), text.to_owned())).into());
            Body::of(Secret { string_data, ..Secret::default() })
        };
        let plain = body("admin", "pass word");
        let login = plain.login().as_ref().unwrap();
        assert_eq!((login.username.as_str(), login.password.expose_secret()), ("admin", "pass word"));
        for (username, password) in [("admin\n", "pass word"), (" admin", "\tpass word \r\n")] {
            assert!(body(username, password).identity() == plain.identity(), "{username:?} {password:?}");
        }
        assert_eq!(body("admin", " \n").login().as_ref().err(), Some(&"password"));
        assert_eq!(body("\n", "x").login().as_ref().err(), Some(&"username"));
    }
}
