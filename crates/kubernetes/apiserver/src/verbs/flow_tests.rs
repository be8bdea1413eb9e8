//! What the server makes ahead of clients that do not read, counted.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{Backend, list, watch};
use crate::media::{Accept, Encoding};
use crate::object;
use crate::reply::Body;
use crate::request::Request;
use crate::route::{Query, ResourceTarget, Verb};
use crate::store::{Expect, Op, Write};
use crate::user::User;

/// Bytes of a ConfigMap's text.
const SIZE: usize = 20_000;

fn request(backend: &Backend, verb: Verb, query: &str) -> Request {
    let resource = Arc::clone(backend.registry.catalog().find("", "v1", "configmaps").unwrap());
    let target = ResourceTarget { resource, verb, ns: "a".into(), name: String::new(), sub: String::new() };
    Request {
        target,
        query: Query::parse(query),
        accept: Accept::plain(Encoding::Json),
        content_type: String::new(),
        body: Bytes::new(),
        warnings: Vec::new(),
        user: User::administrator(),
        agent: String::new(),
        audit: Default::default(),
    }
}

/// Stores ConfigMaps of 20 KB.
async fn store(backend: &Backend, numbers: std::ops::Range<usize>) {
    let resource = Arc::clone(backend.registry.catalog().find("", "v1", "configmaps").unwrap());
    for number in numbers {
        let name = format!("n{number:04}");
        let object = json!({"metadata": {"name": name, "namespace": "a"}, "data": {"k": "x".repeat(SIZE)}});
        let Value::Object(object) = object else { unreachable!() };
        let body = object::to_tail(object);
        let write = Write { key: resource.key("a", &name), expect: Expect::Absent, op: Op::Put(body), guard: None };
        backend.store.write(write).await.unwrap();
    }
}

/// The next piece of a body, as text.
async fn piece(body: &mut Body) -> Option<String> {
    let frame = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(frame.to_vec()).unwrap())
}

/// Lets all tasks run until none can go on.
async fn run_until_idle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
}

#[tokio::test]
async fn a_list_is_read_from_the_file_only_as_fast_as_it_is_taken() {
    let (backend, _dir) = Backend::for_tests();
    let backend = Arc::new(backend);
    store(&backend, 0..200).await;
    let before = backend.store.file_reads();
    let mut body = list::list(&backend, &request(&backend, Verb::List, "")).await.unwrap().into_body();
    run_until_idle().await;
    let ahead = backend.store.file_reads() - before;
    // Some hundred kilobytes of four million bytes.
    assert!(ahead < 8, "{ahead} pages were read for nobody");
    run_until_idle().await;
    assert_eq!(backend.store.file_reads() - before, ahead);
    let mut text = String::new();
    while let Some(next) = piece(&mut body).await {
        text.push_str(&next);
    }
    assert!(backend.store.file_reads() - before > 25);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 200);
}

#[tokio::test]
async fn a_watch_begins_with_what_was_there_when_it_was_asked_for() {
    let (backend, _dir) = Backend::for_tests();
    let backend = Arc::new(backend);
    store(&backend, 0..20).await;
    let body = watch::watch(&backend, &request(&backend, Verb::Watch, "resourceVersion=0")).await.unwrap().into_body();
    let resource = Arc::clone(backend.registry.catalog().find("", "v1", "configmaps").unwrap());
    let key = resource.key("a", "n0019");
    let Some(row) = backend.store.get(&key).await.unwrap() else { unreachable!() };
    let write = Write { key, expect: Expect::Rev(row.rev), op: Op::Put(row.body), guard: None };
    backend.store.write(write).await.unwrap();
    let mut body = body;
    let mut seen = Vec::new();
    while seen.len() < 21 {
        let event: Value = serde_json::from_str(&piece(&mut body).await.unwrap()).unwrap();
        seen.push(format!("{} {}", event["type"], event["object"]["metadata"]["resourceVersion"]));
    }
    assert_eq!(seen[18..], ["\"ADDED\" \"19\"", "\"ADDED\" \"20\"", "\"MODIFIED\" \"21\""]);
}

#[tokio::test]
async fn who_does_not_read_a_watch_holds_up_nobody_and_misses_nothing() {
    let (backend, _dir) = Backend::for_tests();
    let backend = Arc::new(backend);
    store(&backend, 0..1).await;
    let open = async || watch::watch(&backend, &request(&backend, Verb::Watch, "resourceVersion=1")).await;
    let (mut slow, mut quick) = (open().await.unwrap().into_body(), open().await.unwrap().into_body());
    // More than is kept in memory for watchers: the rest is in the file.
    let count = 400;
    let mut seen = Vec::new();
    for number in 1..=count {
        store(&backend, number..number + 1).await;
        seen.push(piece(&mut quick).await.unwrap());
    }
    run_until_idle().await;
    let before = backend.store.file_reads();
    run_until_idle().await;
    assert_eq!(backend.store.file_reads(), before, "nothing is made for who does not read");
    for wanted in &seen {
        assert_eq!(piece(&mut slow).await.as_ref(), Some(wanted));
    }
    assert!(backend.store.file_reads() > before, "what was missed came from the file");
    assert!(slow.frame().now_or_never().is_none());
}

#[tokio::test]
async fn an_event_is_encoded_once_for_a_thousand_watchers_and_shared() {
    let (backend, _dir) = Backend::for_tests();
    let backend = Arc::new(backend);
    store(&backend, 0..1).await;
    let mut watchers = Vec::new();
    for _ in 0..1000 {
        let answer = watch::watch(&backend, &request(&backend, Verb::Watch, "resourceVersion=1")).await.unwrap();
        watchers.push(answer.into_body());
    }
    store(&backend, 1..2).await;
    let mut frames = Vec::new();
    for body in &mut watchers {
        frames.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    let first = frames[0].as_ptr();
    assert!(frames.iter().all(|frame| frame.as_ptr() == first), "each watcher has the same bytes in the same place");
}
