//! Revisions, history, guards and group commit.

use super::*;

fn key(name: &str) -> Key {
    Key { resource: "things".into(), ns: "a".into(), name: name.into() }
}

fn put(name: &str, expect: Expect, body: &'static str) -> Write {
    Write { key: key(name), expect, op: Op::Put(Bytes::from_static(body.as_bytes())), guard: None }
}

fn all(at: Option<u64>) -> ListQuery {
    ListQuery { resource: "things".into(), ns: None, after: None, at, limit: 100 }
}

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("s.db")).unwrap();
    (dir, store)
}

#[tokio::test]
async fn revisions_rise_and_lost_updates_are_refused() {
    let (_dir, store) = open();
    assert_eq!(store.write(put("x", Expect::Absent, "1")).await, Ok(1));
    assert_eq!(store.write(put("x", Expect::Absent, "2")).await, Err(WriteError::Conflict));
    assert_eq!(store.write(put("x", Expect::Rev(1), "2")).await, Ok(2));
    assert_eq!(store.write(put("x", Expect::Rev(1), "3")).await, Err(WriteError::Conflict));
    assert_eq!(store.get(&key("x")).await.unwrap().unwrap().body, "2");
}

#[tokio::test]
async fn older_revisions_can_be_listed_until_compaction() {
    let (_dir, store) = open();
    store.write(put("x", Expect::Absent, "x1")).await.unwrap();
    store.write(put("y", Expect::Absent, "y2")).await.unwrap();
    store.write(put("x", Expect::Rev(1), "x3")).await.unwrap();
    let gone = Write { op: Op::Delete(Bytes::from_static(b"y2")), ..put("y", Expect::Rev(2), "") };
    assert_eq!(store.write(gone).await, Ok(4));
    let bodies = |page: ListPage| page.rows.into_iter().map(|r| r.body).collect::<Vec<_>>();
    assert_eq!(bodies(store.list(all(Some(2))).await.unwrap()), ["x1", "y2"]);
    assert_eq!(bodies(store.list(all(Some(3))).await.unwrap()), ["x3", "y2"]);
    assert_eq!(bodies(store.list(all(None)).await.unwrap()), ["x3"]);
    store.write(put("z", Expect::Absent, "z5")).await.unwrap();
    store.compact(4).await.unwrap();
    assert!(matches!(store.list(all(Some(3))).await, Err(StoreError::Compacted { .. })));
    assert_eq!(bodies(store.list(all(Some(4))).await.unwrap()), ["x3"]);
    assert_eq!(bodies(store.list(all(None)).await.unwrap()), ["x3", "z5"]);
}

#[tokio::test]
async fn history_comes_from_memory_and_after_a_restart_from_the_file() {
    let (dir, store) = open();
    store.write(put("x", Expect::Absent, "1")).await.unwrap();
    store.write(put("x", Expect::Rev(1), "2")).await.unwrap();
    let resource: Arc<str> = "things".into();
    let (events, upto) = store.events_after(&resource, 1).await.unwrap();
    assert_eq!((events.len(), events[0].prev, upto), (1, 1, 2));
    store.close().await;
    let again = Store::open(&dir.path().join("s.db")).unwrap();
    assert_eq!(again.revision(), 2);
    let (events, upto) = again.events_after(&resource, 0).await.unwrap();
    assert_eq!((events.len(), upto), (2, 2));
    again.write(put("y", Expect::Absent, "3")).await.unwrap();
    again.compact(2).await.unwrap();
    assert!(matches!(again.events_after(&resource, 1).await, Err(EventsError::Compacted { .. })));
}

#[tokio::test]
async fn guards_hold_within_the_same_commit() {
    let (_dir, store) = open();
    store.write(put("ns", Expect::Absent, "1")).await.unwrap();
    let mut guarded = put("x", Expect::Absent, "2");
    guarded.guard = Some(Guard::Unchanged(key("ns"), 7));
    assert_eq!(store.write(guarded.clone()).await, Err(WriteError::Guard));
    guarded.guard = Some(Guard::Unchanged(key("ns"), 1));
    assert_eq!(store.write(guarded.clone()).await, Ok(2));
    guarded.guard = Some(Guard::EmptyNamespace("a".into()));
    guarded.expect = Expect::Rev(2);
    assert_eq!(store.write(guarded).await, Err(WriteError::Guard));
}

#[tokio::test]
async fn many_writers_share_commits_and_all_are_kept() {
    let (dir, store) = open();
    let writes = (0..300).map(|i| {
        let store = store.clone();
        tokio::spawn(async move { store.write(put(&format!("n{i}"), Expect::Absent, "b")).await.unwrap() })
    });
    let mut revisions: Vec<u64> = futures::future::join_all(writes).await.into_iter().map(Result::unwrap).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=300).collect::<Vec<_>>());
    store.close().await;
    let again = Store::open(&dir.path().join("s.db")).unwrap();
    assert_eq!(again.list(ListQuery { limit: 1000, ..all(None) }).await.unwrap().rows.len(), 300);
}
