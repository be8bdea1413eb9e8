//! Compiled definitions that in-process servers share: schemas and rules take most of their start time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::resource::Resource;
use crate::store::Stored;

/// Most revisions of definitions that are kept; beyond it all are dropped, and compiled again on demand.
const MOST: usize = 512;

/// Resources by name and revision of a definition, with the body of that revision.
type Made = HashMap<(String, u64), (Bytes, Arc<[Arc<Resource>]>)>;

/// The shared cache; the default one caches nothing.
#[derive(Clone, Default)]
pub struct Compiled(Option<Arc<Mutex<Made>>>);

impl Compiled {
    /// A cache that servers can share.
    pub fn shared() -> Self {
        Self(Some(Arc::default()))
    }

    /// The resources that a stored definition serves.
    pub fn of(&self, name: &str, stored: &Stored, make: impl FnOnce() -> Vec<Resource>) -> Arc<[Arc<Resource>]> {
        let make = || make().into_iter().map(Arc::new).collect::<Arc<[_]>>();
        let Some(made) = &self.0 else { return make() };
        let key = (name.to_owned(), stored.rev);
        let kept = |made: &Made| made.get(&key).filter(|(tail, _)| *tail == stored.tail).map(|(_, r)| Arc::clone(r));
        if let Some(found) = kept(&made.lock().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }
        let resources = make();
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() >= MOST {
            made.clear();
        }
        made.insert(key, (stored.tail.clone(), Arc::clone(&resources)));
        resources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_body_under_the_same_revision_is_another_definition() {
        let compiled = Compiled::shared();
        let made = std::cell::Cell::new(0);
        let ask = |compiled: &Compiled, rev, body: &'static str| {
            let stored = Stored { rev, tail: Bytes::from_static(body.as_bytes()) };
            compiled.of("a.b", &stored, || {
                made.set(made.get() + 1);
                Vec::new()
            });
            made.get()
        };
        assert_eq!((ask(&compiled, 1, "x"), ask(&compiled.clone(), 1, "x")), (1, 1));
        // Two servers with the same start each have a revision 2.
        assert_eq!((ask(&compiled, 1, "y"), ask(&compiled, 2, "y")), (2, 3));
        assert_eq!((ask(&Compiled::default(), 2, "y"), ask(&Compiled::default(), 2, "y")), (4, 5));
        for rev in 3..2000 {
            ask(&compiled, rev, "z");
            assert!(compiled.0.as_ref().unwrap().lock().unwrap().len() <= MOST);
        }
    }
}
