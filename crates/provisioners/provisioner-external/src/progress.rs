//! Progress that people can believe: never more than all, and never less than before within a step of an attempt. Pure.

use std::collections::HashMap;

use provisioner::{Outcome, Verdict};
use sha2::{Digest, Sha256};

/// Hosts whose progress is kept; more than that many at work at once are shown what their worker says.
const MAX_HOSTS: usize = 16_384;

/// What was shown of one host.
struct Shown {
    /// Name of the call.
    call: String,
    /// Digest of the call with its request (so of wish and attempt), and of the step.
    step: [u8; 32],
    percent: u8,
}

/// What was shown of all hosts, by uid.
#[derive(Default)]
pub struct Progress(HashMap<String, Shown>);

impl Progress {
    /// The answer to a call, as it is to be shown.
    pub fn heed<A>(&mut self, uid: &str, name: &str, request: &[u8], outcome: Outcome<A>) -> Outcome<A> {
        let Ok(Verdict::Working(mut working)) = outcome else {
            // What another call has come to is no end of this one.
            if self.0.get(uid).is_some_and(|shown| shown.call == name) {
                self.0.remove(uid);
            }
            return outcome;
        };
        working.percent = working.percent.map(|percent| percent.min(100));
        if let Some(percent) = working.percent {
            let mut digest = Sha256::new();
            for part in [name.as_bytes(), request, working.step.as_bytes()] {
                digest.update(part.len().to_le_bytes());
                digest.update(part);
            }
            let step: [u8; 32] = digest.finalize().into();
            let before = self.0.get(uid).filter(|shown| shown.step == step).map_or(0, |shown| shown.percent);
            let percent = percent.max(before);
            working.percent = Some(percent);
            if self.0.len() < MAX_HOSTS || self.0.contains_key(uid) {
                self.0.insert(uid.to_owned(), Shown { call: name.to_owned(), step, percent });
            }
        }
        Ok(Verdict::Working(working))
    }

    /// The host is gone.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use provisioner::{Answer, Working};

    #[test]
    fn progress_neither_exceeds_all_nor_goes_back_within_a_step_of_an_attempt() {
        let mut progress = Progress::default();
        let mut shown = |request: &str, step: &str, percent| {
            let working = Working { step: step.into(), percent: Some(percent), ..Working::default() };
            match progress.heed::<Answer>("u", "provision", request.as_bytes(), Ok(Verdict::Working(working))) {
                Ok(Verdict::Working(working)) => working.percent,
                _ => None,
            }
        };
        assert_eq!(shown("1", "write", 40), Some(40));
        assert_eq!(shown("1", "write", 30), Some(40), "it does not go back");
        assert_eq!(shown("1", "write", 250), Some(100));
        assert_eq!(shown("1", "boot", 5), Some(5), "another step begins anew");
        assert_eq!(shown("2", "boot", 1), Some(1), "and so does another attempt");
        let _ = progress.heed("u", "collectLogs", b"", Ok(Verdict::Done(Answer::Done)));
        assert!(!progress.0.is_empty(), "what was asked in between has not ended it");
        let _ = progress.heed("u", "provision", b"2", Ok(Verdict::Done(Answer::Done)));
        assert!(progress.0.is_empty());
    }
}
