//! Notifies watchers of a resource: a commit wakes only those of the resources it changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch as latest;

/// Senders by storage name of a resource. Unused senders are dropped when a new one is created.
#[derive(Default)]
pub(super) struct News(Mutex<HashMap<Arc<str>, latest::Sender<u64>>>);

impl News {
    /// Wakes at each commit that changes an object of the resource.
    pub(super) fn subscribe(&self, resource: &Arc<str>) -> latest::Receiver<u64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = all.get(resource) {
            return sender.subscribe();
        }
        all.retain(|_, sender| sender.receiver_count() > 0);
        all.entry(Arc::clone(resource)).or_insert_with(|| latest::channel(0).0).subscribe()
    }

    /// Wakes the watchers of these resources after a commit at `rev`.
    pub(super) fn notify<'r>(&self, rev: u64, resources: impl Iterator<Item = &'r Arc<str>>) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in resources.filter_map(|resource| all.get(resource)) {
            sender.send_if_modified(|latest_rev| std::mem::replace(latest_rev, rev) != rev);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_wait_for_a_resource_are_woken() {
        let news = News::default();
        let (hosts, leases): (Arc<str>, Arc<str>) = ("hosts".into(), "leases".into());
        let (mut one, mut other) = (news.subscribe(&hosts), news.subscribe(&leases));
        news.notify(7, [&hosts, &hosts].into_iter());
        assert!(one.has_changed().unwrap() && !other.has_changed().unwrap());
        assert_eq!(*one.borrow_and_update(), 7);
        drop(one);
        news.notify(8, [&hosts, &leases].into_iter());
        assert_eq!(*other.borrow_and_update(), 8);
        drop(other);
        let _third = news.subscribe(&"third".into());
        assert_eq!(news.0.lock().unwrap().len(), 1, "what nobody listens to is gone");
    }
}
