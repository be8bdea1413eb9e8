//! Versions of a Secret that hold the same user and password.
//!
//! A Secret's resourceVersion changes with each write, so with each claim by a host that shares it; the BMC has to be asked only when user or
//! password change. This is lost with the process: after a restart, a host may be registered once more than necessary.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most versions kept per Secret: that many hosts may claim it before one of them is looked at.
const MAX_VERSIONS: usize = 1024;
/// Most Secrets that are kept.
const MAX_SECRETS: usize = 16_384;

/// What was read of Secrets, by uid: a recreated Secret is another one.
#[derive(Default)]
pub struct Versions(Mutex<HashMap<String, Seen>>);

struct Seen {
    content: [u8; 32],
    /// From the first to the last that was noted.
    versions: Arc<Vec<String>>,
}

impl Versions {
    /// Notes what a version of a Secret held (`content`: a digest of it). Returns all versions known to have held the same, including this one.
    pub fn note(&self, uid: &str, version: &str, content: &[u8; 32]) -> Arc<Vec<String>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SECRETS && !all.contains_key(uid) {
            all.clear();
        }
        if !all.contains_key(uid) {
            all.insert(uid.to_owned(), Seen { content: *content, versions: Arc::default() });
        }
        let Some(seen) = all.get_mut(uid) else { return Arc::default() };
        if seen.content != *content {
            *seen = Seen { content: *content, versions: Arc::default() };
        }
        // Mostly it is the last one.
        if !seen.versions.iter().rev().any(|known| known == version) {
            let versions = Arc::make_mut(&mut seen.versions);
            if versions.len() >= MAX_VERSIONS {
                // Half of them at once, so that this is not done for each one more.
                versions.drain(..MAX_VERSIONS / 2);
            }
            versions.push(version.to_owned());
        }
        Arc::clone(&seen.versions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_same_while_the_content_is() {
        let versions = Versions::default();
        let (one, two) = ([1; 32], [2; 32]);
        let note = |uid, version, content| versions.note(uid, version, content).join(" ");
        assert_eq!(note("a", "10", &one), "10");
        assert_eq!(note("a", "10", &one), "10");
        assert_eq!(note("a", "11", &one), "10 11");
        assert_eq!(note("b", "12", &one), "12", "another Secret");
        // Another password: none of the old versions counts, not even when the first one comes back.
        assert_eq!(note("a", "13", &two), "13");
        assert_eq!(note("a", "14", &one), "14");
        assert_eq!(note("a", "15", &one), "14 15");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let versions = Versions::default();
        for version in 0..2 * MAX_VERSIONS {
            assert!(versions.note("a", &version.to_string(), &[1; 32]).len() <= MAX_VERSIONS);
        }
        for uid in 0..2 * MAX_SECRETS {
            versions.note(&uid.to_string(), "1", &[1; 32]);
        }
        assert!(versions.0.lock().unwrap().len() <= MAX_SECRETS);
    }
}
