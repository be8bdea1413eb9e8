//! Revisions, history, guards and group commit.

use super::*;

fn key(name: &str) -> Key {
    Key { resource: "things".into(), ns: "a".into(), name: name.into() }
}

fn put(name: &str, expect: Expect, body: &'static str) -> Write {
    Write { key: key(name), expect, op: Op::Put(Bytes::from_static(body.as_bytes())), guard: None }
}

fn all(at: Option<u64>) -> ListQuery {
    ListQuery { resource: "things".into(), ns: None, after: None, at, limit: 100, pick: None }
}

fn open() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap();
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
    // A page requested before the compaction and read after it reports the compaction, too.
    let late = &store.shared.readers;
    assert_eq!(late.list(&all(Some(3))).unwrap().err(), Some(4));
    assert_eq!(late.count(&all(Some(3))).unwrap().err(), Some(4));
    assert_eq!(late.events_after(&"things".into(), 3).unwrap().err(), Some(4));
    assert_eq!(bodies(store.list(all(Some(4))).await.unwrap()), ["x3"]);
    assert_eq!(bodies(store.list(all(None)).await.unwrap()), ["x3", "z5"]);
}

#[tokio::test]
async fn batches_of_old_events_are_bounded_in_bytes() {
    let (_dir, store) = open();
    let large = Op::Put(vec![b'x'; 100 << 10].into());
    for name in ["a", "b", "c", "d", "e"] {
        store.write(Write { op: large.clone(), ..put(name, Expect::Absent, "") }).await.unwrap();
    }
    let mut at = 0;
    let mut batches = Vec::new();
    while at < 5 {
        let (events, upto) = store.shared.readers.events_after(&"things".into(), at).unwrap().unwrap();
        batches.push(events.len());
        at = upto;
    }
    assert_eq!(batches, [2, 2, 1]);
}

#[tokio::test]
async fn those_with_wanted_labels_are_listed_now_and_as_of_then() {
    let (_dir, store) = open();
    let tail = |at: usize, rack: usize| {
        format!(",\"labels\":{{\"rack\":\"{rack}\"}},\"name\":\"n{at:02}\"}},\"spec\":1}}").into()
    };
    for round in 0..3 {
        for at in 0..20 {
            let key = key(&format!("n{at:02}"));
            let expect = if round == 0 { Expect::Absent } else { Expect::Rev((round as u64 - 1) * 20 + at as u64 + 1) };
            store.write(Write { key, expect, op: Op::Put(tail(at, (at + round) % 4)), guard: None }).await.unwrap();
        }
    }
    let wanted = |labels: &[u8]| labels == b"{\"rack\":\"1\"}";
    let pick = Some(Pick::new(wanted, None));
    // The second time the labels are cached.
    for at in [None, Some(20), Some(33), Some(59), None, Some(33), Some(60)] {
        let mut whole = store.list(all(at)).await.unwrap();
        whole.rows.retain(|row| wanted(crate::object::labels(&row.body).unwrap()));
        let picked = store.list(ListQuery { pick: pick.clone(), ..all(at) }).await.unwrap();
        let seen =
            |page: &ListPage| page.rows.iter().map(|r| (r.name.clone(), r.rev, r.body.clone())).collect::<Vec<_>>();
        assert_eq!((seen(&picked), picked.rev, picked.more), (seen(&whole), whole.rev, false), "{at:?}");
        assert!(picked.rows.len() > 3);
    }
    let page = store.list(ListQuery { pick: pick.clone(), limit: 2, ..all(None) }).await.unwrap();
    assert_eq!((page.rows.len(), page.more), (2, true));
    let after = Some(("a".to_owned(), page.rows[1].name.clone()));
    let rest = store.list(ListQuery { pick, after, ..all(None) }).await.unwrap();
    assert_eq!((rest.rows.len(), rest.more), (3, false));
}

/// Whatever is written, relabelled and deleted meanwhile: an index by label shows what a look at all labels shows.
#[tokio::test]
async fn an_index_by_label_misses_nothing_and_shows_nothing_else() {
    let (_dir, store) = open();
    let mut state = 7_u64;
    let mut below = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    let pick = |rack: u64, indexed: bool| {
        let wanted = move |labels: &[u8]| labels == format!("{{\"rack\":\"{rack}\"}}").as_bytes();
        Some(Pick::new(wanted, indexed.then(|| Pair { key: "rack".to_owned(), value: rack.to_string() })))
    };
    let seen = |page: ListPage| {
        (page.rev, page.more, page.rows.into_iter().map(|r| (r.ns, r.name, r.rev)).collect::<Vec<_>>())
    };
    let mut present = std::collections::BTreeMap::new();
    for round in 0..3000 {
        let (ns, name) = (["a", "a-b", "b"][below(3) as usize], format!("n{}", below(40)));
        let key = Key { ns: ns.to_owned(), ..key(&name) };
        let expect = present.get(&(ns, name.clone())).map_or(Expect::Absent, |rev| Expect::Rev(*rev));
        let body = Bytes::from(format!(",\"labels\":{{\"rack\":\"{}\"}},\"name\":\"{name}\"}}}}", below(4)));
        let ends = expect != Expect::Absent && below(3) == 0;
        let op = if ends { Op::Delete(body) } else { Op::Put(body) };
        let rev = store.write(Write { key, expect, op, guard: None }).await.unwrap();
        match ends {
            true => present.remove(&(ns, name)),
            false => present.insert((ns, name), rev),
        };
        // At first there is no index.
        if round < 50 || below(4) > 0 {
            continue;
        }
        let rack = below(4);
        let ns = [None, Some("a".to_owned()), Some("b".to_owned())][below(3) as usize].clone();
        let after = (below(2) == 0).then(|| ("a".to_owned(), format!("n{}", below(40))));
        let query = ListQuery { ns, after, limit: 1 + below(9) as usize, ..all(None) };
        let [found, expected] = [true, false].map(|indexed| ListQuery { pick: pick(rack, indexed), ..query.clone() });
        let (found, expected) = (store.list(found).await.unwrap(), store.list(expected).await.unwrap());
        assert_eq!(seen(found), seen(expected), "{round}");
    }
    let index = store.shared.readers.by_label();
    let pair = Pair { key: "rack".to_owned(), value: "1".to_owned() };
    let places = index.places(&"things".into(), &pair).unwrap();
    assert!(!places.is_empty() && places.len() <= 120, "{}", places.len());
    index.found_in_vain(&"things".into(), 100_000);
    assert_eq!(index.places(&"things".into(), &pair), None, "it is made anew by the next list");
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
    let again = Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap();
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
    let again = Store::open(&dir.path().join("s.db"), &dir.path().join("keys")).unwrap();
    assert_eq!(again.list(ListQuery { limit: 1000, ..all(None) }).await.unwrap().rows.len(), 300);
}

#[tokio::test]
async fn a_backup_of_a_running_store_is_restored_beyond_all_revisions() {
    let (dir, store) = open();
    store.write(put("x", Expect::Absent, "1")).await.unwrap();
    store.write(put("y", Expect::Absent, "2")).await.unwrap();
    let gone = Write { op: Op::Delete(Bytes::from_static(b"2")), ..put("y", Expect::Rev(2), "") };
    store.write(gone).await.unwrap();
    let (file, saved) = (dir.path().join("s.db"), dir.path().join("saved"));
    backup(&file, &saved).unwrap();
    assert!(matches!(backup(&file, &saved), Err(BackupError::File { what: "making", .. })));
    store.write(put("x", Expect::Rev(1), "after")).await.unwrap();
    store.close().await;
    restore(&file, &saved).unwrap();
    let again = Store::open(&file, &dir.path().join("keys")).unwrap();
    assert_eq!(again.get(&key("x")).await.unwrap().unwrap().body, "1");
    assert_eq!(again.list(all(None)).await.unwrap().rows.len(), 1);
    assert!(again.revision() > 1_000_000);
    assert_eq!(again.compacted(), again.revision());
    let resource: Arc<str> = "things".into();
    assert!(matches!(again.events_after(&resource, 4).await, Err(EventsError::Compacted { .. })));
    let next = again.write(put("z", Expect::Absent, "3")).await.unwrap();
    assert_eq!(next, again.compacted() + 1);
    assert!(dir.path().join("s.db.old").exists());
    std::fs::write(dir.path().join("junk"), "no store at all, but long enough to be looked at").unwrap();
    assert!(matches!(restore(&file, &dir.path().join("junk")), Err(BackupError::NotABackup { .. })));
}

#[tokio::test]
async fn a_store_at_its_limit_can_be_read_and_deleted_from() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_limited(&dir.path().join("s.db"), &dir.path().join("keys"), 400_000).unwrap();
    let body = Bytes::from(vec![b'x'; 20_000]);
    let mut stored = Vec::new();
    let refused = loop {
        let name = format!("n{}", stored.len());
        let write = Write { key: key(&name), expect: Expect::Absent, op: Op::Put(body.clone()), guard: None };
        match store.write(write).await {
            Ok(rev) => stored.push((name, rev)),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, WriteError::Limit { limit: 400_000 });
    assert!((10..40).contains(&stored.len()), "{}", stored.len());
    assert_eq!(store.count(all(None)).await.unwrap(), stored.len() as u64);
    for (name, rev) in stored.drain(..10) {
        let gone = Write { key: key(&name), expect: Expect::Rev(rev), op: Op::Delete(body.clone()), guard: None };
        store.write(gone).await.unwrap();
    }
    store.compact(store.revision()).await.unwrap();
    assert!(store.write(put("again", Expect::Absent, "1")).await.is_ok());
}

#[tokio::test]
async fn a_file_of_the_first_format_is_brought_up_to_date() {
    let (dir, store) = open();
    store.write(put("x", Expect::Absent, "1")).await.unwrap();
    store.close().await;
    let file = dir.path().join("s.db");
    let old = rusqlite::Connection::open(&file).unwrap();
    old.execute_batch("UPDATE rows SET ns='a'; UPDATE current SET ns='a'; PRAGMA user_version=1;").unwrap();
    drop(old);
    let again = Store::open(&file, &dir.path().join("keys")).unwrap();
    assert_eq!(again.get(&key("x")).await.unwrap().unwrap().body, "1");
    let newer = rusqlite::Connection::open(&file).unwrap();
    newer.execute_batch("PRAGMA user_version=99;").unwrap();
    drop(newer);
    assert!(matches!(Store::open(&file, &dir.path().join("keys")), Err(StoreError::Format { found: 99, .. })));
}

#[tokio::test]
async fn a_quiet_resource_is_not_looked_for_in_the_file() {
    let (_dir, store) = open();
    let quiet: Arc<str> = "quiet".into();
    let write = Write { key: Key { resource: Arc::clone(&quiet), ..key("q") }, ..put("q", Expect::Absent, "1") };
    let since = store.write(write).await.unwrap();
    // More than the ring holds.
    let body = Bytes::from(vec![b'x'; 1 << 20]);
    let mut last = 0;
    for n in 0..6 {
        let name = format!("big{n}");
        last = store.write(Write { op: Op::Put(body.clone()), ..put(&name, Expect::Absent, "") }).await.unwrap();
    }
    assert!(store.shared.ring.after(&quiet, since).is_none());
    let before = store.shared.readers.uses();
    let (events, upto) = store.events_after(&quiet, since).await.unwrap();
    assert_eq!((events.len(), upto), (0, last));
    assert_eq!(store.shared.readers.uses(), before, "the file was not read");
    let (events, _) = store.events_after(&quiet, since - 1).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(store.shared.readers.uses(), before + 1);
}

#[tokio::test]
async fn what_was_written_is_read_without_the_file() {
    let (_dir, store) = open();
    store.write(put("x", Expect::Absent, "1")).await.unwrap();
    store.write(put("y", Expect::Absent, "1")).await.unwrap();
    store.write(put("x", Expect::Rev(1), "2")).await.unwrap();
    let before = store.shared.readers.uses();
    assert_eq!(store.get(&key("x")).await.unwrap().unwrap().body, "2");
    let gone = Write { op: Op::Delete(Bytes::from_static(b"1")), ..put("y", Expect::Rev(2), "") };
    store.write(gone).await.unwrap();
    assert_eq!(store.shared.readers.uses(), before);
    assert!(store.get(&key("y")).await.unwrap().is_none());
    assert_eq!(store.write(put("x", Expect::Rev(1), "lost")).await, Err(WriteError::Conflict));
    assert_eq!(store.get(&key("x")).await.unwrap().unwrap().rev, 3);
}
