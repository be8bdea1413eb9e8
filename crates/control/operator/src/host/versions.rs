//! Under which versions of a Secret its user and password were what they are.
//!
//! A Secret's resourceVersion changes with each write to it, so with each claim by one of the hosts that share it; the BMC has to be asked only when
//! user or password change. What is noted here is read again after a restart: then a host may be registered once more than it had to be.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Most versions that are kept of one Secret: as many hosts may claim it before one of them is looked at.
const MAX_VERSIONS: usize = 1024;
/// Most Secrets that are kept.
const MAX_SECRETS: usize = 16_384;

/// What has been read of Secrets, by uid: one of the same name that is made anew is another.
#[derive(Default)]
pub struct Versions(Mutex<HashMap<String, Seen>>);

struct Seen {
    content: [u8; 32],
    versions: VecDeque<String>,
}

impl Versions {
    /// Notes what a version of a Secret held (`content`: a digest of it). The other versions that are known to have held the same.
    pub fn note(&self, uid: &str, version: &str, content: &[u8; 32]) -> Vec<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SECRETS && !all.contains_key(uid) {
            all.clear();
        }
        let seen = all.entry(uid.to_owned()).or_insert_with(|| Seen { content: *content, versions: VecDeque::new() });
        if seen.content != *content {
            *seen = Seen { content: *content, versions: VecDeque::new() };
        }
        if !seen.versions.iter().any(|known| known == version) {
            if seen.versions.len() >= MAX_VERSIONS {
                seen.versions.pop_front();
            }
            seen.versions.push_back(version.to_owned());
        }
        seen.versions.iter().filter(|known| *known != version).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_same_while_the_content_is() {
        let versions = Versions::default();
        let (one, two) = ([1; 32], [2; 32]);
        assert_eq!(versions.note("a", "10", &one), [""; 0]);
        assert_eq!(versions.note("a", "10", &one), [""; 0]);
        assert_eq!(versions.note("a", "11", &one), ["10"]);
        assert_eq!(versions.note("b", "12", &one), [""; 0], "another Secret");
        // Another password: none of the old versions counts, not even when the first one comes back.
        assert_eq!(versions.note("a", "13", &two), [""; 0]);
        assert_eq!(versions.note("a", "14", &one), [""; 0]);
        assert_eq!(versions.note("a", "15", &one), ["14"]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let versions = Versions::default();
        for version in 0..2 * MAX_VERSIONS {
            assert!(versions.note("a", &version.to_string(), &[1; 32]).len() < MAX_VERSIONS);
        }
        for uid in 0..2 * MAX_SECRETS {
            versions.note(&uid.to_string(), "1", &[1; 32]);
        }
        assert!(versions.0.lock().unwrap().len() <= MAX_SECRETS);
    }
}
