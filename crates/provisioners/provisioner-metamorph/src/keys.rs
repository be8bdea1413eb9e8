//! Keys: what media addresses and agents' tokens are derived from, and which certificate the agents of a boot know the server by.
//!
//! A key has a number. New boots are derived from the current one, and their record says so; earlier keys stay valid until the last boot derived
//! from them is over. A removed key opens nothing: its media are gone, and its agents are refused.

use std::sync::{Arc, PoisonError, RwLock};

use api::metamorph::AgentBoot;
use boot_media::derive;

/// Number of the first key: that of boots whose record names none.
pub const FIRST_KEY: u32 = 1;

/// One key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Its number.
    pub number: u32,
    /// What media addresses and agents' tokens are derived from.
    pub secret: [u8; 32],
    /// SHA-256 of the certificate (DER, lower-case hex) that the agents of its boots know the server by.
    pub certificate_sha256: String,
    /// That certificate (PEM): ironic-python-agent trusts it as an authority.
    pub certificate_pem: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Key {
    /// How a boot's record names it.
    #[must_use]
    pub fn recorded(&self) -> Option<u32> {
        (self.number != FIRST_KEY).then_some(self.number)
    }
}

/// All keys. Clones share them, so that they can be replaced while the server works.
#[derive(Clone, Debug)]
pub struct KeyRing(Arc<RwLock<Keys>>);

#[derive(Debug)]
struct Keys {
    current: Arc<Key>,
    earlier: Vec<Arc<Key>>,
    /// The greatest number that a key has had here.
    highest: u32,
}

/// The holder of a genuine token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// uid of the host.
    pub host: &'a str,
    /// Boot generation.
    pub generation: u64,
    /// Number of the key that the token is derived from.
    pub key: u32,
    /// Whether that is the current key.
    pub current: bool,
}

impl KeyRing {
    /// A ring of the key of new boots, and of earlier ones.
    #[must_use]
    pub fn new(current: Key, earlier: Vec<Key>) -> Self {
        Self(Arc::new(RwLock::new(Keys::of(current, earlier))))
    }

    /// Replaces the keys.
    pub fn replace(&self, current: Key, earlier: Vec<Key>) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let new = Keys::of(current, earlier);
        // Holders of an unchanged key keep the same `Arc`.
        let kept = |key: Arc<Key>| keys.all().find(|old| **old == key).cloned().unwrap_or(key);
        *keys = Keys {
            highest: keys.highest.max(new.highest),
            current: kept(new.current),
            earlier: new.earlier.into_iter().map(kept).collect(),
        };
    }

    /// Whether it is an earlier key that no caller holds: no unrecorded boot is derived from it, and none will be.
    #[must_use]
    pub fn idle(&self, number: u32) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.earlier.iter().any(|key| key.number == number && Arc::strong_count(key) == 1)
    }

    /// The key of new boots.
    #[must_use]
    pub fn current(&self) -> Arc<Key> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).current)
    }

    /// The greatest key number since the ring was made, even if that key was removed: boots may refer to it.
    #[must_use]
    pub fn highest(&self) -> u32 {
        self.0.read().unwrap_or_else(PoisonError::into_inner).highest
    }

    /// The key that a boot was derived from, if it is still there.
    #[must_use]
    pub fn of(&self, boot: &AgentBoot) -> Option<Arc<Key>> {
        let number = boot.key.unwrap_or(FIRST_KEY);
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.all().find(|key| key.number == number).cloned()
    }

    /// The first of what is made with each of the keys, the current one first, that is what is sought.
    #[must_use]
    pub fn find_made<T>(&self, make: impl Fn(&[u8; 32]) -> T, is_sought: impl Fn(&T) -> bool) -> Option<T> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.all().map(|key| make(&key.secret)).find(is_sought)
    }

    /// Proof that the host of this namespace and name goes by `subject`.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str, subject: &str) -> String {
        derive::claim(&self.current().secret, namespace, name, subject)
    }

    /// Whether that is such a proof, by whichever key.
    #[must_use]
    pub fn proves(&self, claim: &str, namespace: &str, name: &str, subject: &str) -> bool {
        let genuine = |key: &Arc<Key>| derive::equal(claim, &derive::claim(&key.secret, namespace, name, subject));
        self.0.read().unwrap_or_else(PoisonError::into_inner).all().any(genuine)
    }

    /// The HostDiscovery, by its uid, and the revision of whose medium this is the token, if it is derived from one of the keys.
    #[must_use]
    pub fn discovery_holder<'a>(&self, credential: &'a str) -> Option<(&'a str, u64)> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.all().find_map(|key| derive::discovery_holder(&key.secret, credential))
    }

    /// The holder of this token, if it is derived from one of the keys.
    #[must_use]
    pub fn holder<'a>(&self, credential: &'a str) -> Option<Holder<'a>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.all().find_map(|key| {
            let (host, generation) = derive::holder(&key.secret, credential)?;
            Some(Holder { host, generation, key: key.number, current: key.number == keys.current.number })
        })
    }
}

impl Keys {
    fn of(current: Key, earlier: Vec<Key>) -> Self {
        let highest = earlier.iter().map(|key| key.number).fold(current.number, u32::max);
        Self { current: Arc::new(current), earlier: earlier.into_iter().map(Arc::new).collect(), highest }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Key>> {
        std::iter::once(&self.current).chain(&self.earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Key {
        Key {
            number,
            secret: [u8::try_from(number).unwrap(); 32],
            certificate_sha256: String::new(),
            certificate_pem: String::new(),
        }
    }

    fn boot(key: Option<u32>) -> AgentBoot {
        AgentBoot { key, ..AgentBoot::default() }
    }

    #[test]
    fn a_boot_whose_record_names_no_key_is_the_first_keys() {
        let ring = KeyRing::new(key(1), vec![]);
        assert_eq!(ring.current().recorded(), None);
        assert_eq!(ring.of(&boot(None)).unwrap().number, 1);
        ring.clone().replace(key(3), vec![key(1)]);
        assert_eq!((ring.current().number, ring.current().recorded()), (3, Some(3)));
        assert_eq!(ring.of(&boot(None)).unwrap().number, 1);
        assert_eq!(ring.of(&boot(Some(3))).unwrap().number, 3);
        assert_eq!(ring.of(&boot(Some(2))), None);
        ring.replace(key(3), vec![]);
        assert_eq!(ring.of(&boot(None)), None, "a key that was removed does not come back under another's number");
    }

    #[test]
    fn a_token_tells_its_key() {
        let ring = KeyRing::new(key(2), vec![key(1)]);
        for (number, current) in [(1, false), (2, true)] {
            let credential = derive::credential(&key(number).secret, "uid", 7);
            let holder = Holder { host: "uid", generation: 7, key: number, current };
            assert_eq!(ring.holder(&credential), Some(holder));
        }
        assert_eq!(ring.holder(&derive::credential(&key(3).secret, "uid", 7)), None);
    }

    #[test]
    fn a_key_is_not_idle_while_a_boot_is_being_derived_from_it() {
        let ring = KeyRing::new(key(1), vec![]);
        let in_hand = ring.current();
        assert!(!ring.idle(1), "it is the current one");
        ring.replace(key(2), vec![key(1)]);
        assert!(!ring.idle(1) && !ring.idle(2) && !ring.idle(3));
        ring.replace(key(2), vec![key(1)]);
        assert!(!ring.idle(1), "read once more it is still in hand");
        drop(in_hand);
        assert!(ring.idle(1));
    }

    #[test]
    fn no_key_is_printed() {
        let text = format!("{:?}", KeyRing::new(key(77), vec![key(78)]));
        assert!(text.contains("77") && !text.contains("[77"), "{text}");
    }
}
