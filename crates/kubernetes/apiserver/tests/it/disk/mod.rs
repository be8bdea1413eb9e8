//! Disks that fill up, fail, or lose and tear what was not synced: what was acknowledged is there afterwards.

mod layer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use crate::common::{Api, CONFIGMAPS, configmap};
use layer::{Disk, Step};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::json;

/// The answer that a client got to a write: name, and its revision or that it is gone.
struct Answer {
    name: String,
    version: Option<u64>,
}

/// Creates, changes and removes objects by several clients at once; every answer is noted in the disk's own order.
async fn work(api: &Api, disk: &Disk) -> Vec<Answer> {
    let answers = std::sync::Mutex::new(Vec::new());
    let acknowledge = |name: &str, version: Option<u64>| {
        let mut all = answers.lock().unwrap();
        disk.note(Step::Acknowledged(all.len()));
        all.push(Answer { name: name.to_owned(), version });
    };
    let client = async |client: usize| {
        for i in 0..25 {
            let name = format!("kept-{client}-{i}");
            let mut object = configmap(&name);
            object["data"]["k"] = json!("x".repeat(20_000));
            acknowledge(&name, Some(api.post(CONFIGMAPS, &object).await.expect(201).version()));
            let path = format!("{CONFIGMAPS}/{name}");
            let body = json!({"data": {"k": "y".repeat(30_000)}});
            acknowledge(&name, Some(api.merge(&path, &body).await.expect(200).version()));
            let name = format!("gone-{client}-{i}");
            acknowledge(&name, Some(api.post(CONFIGMAPS, &configmap(&name)).await.expect(201).version()));
            api.delete(&format!("{CONFIGMAPS}/{name}")).await.expect(200);
            acknowledge(&name, None);
        }
    };
    futures::future::join_all((0..4).map(client)).await;
    answers.into_inner().unwrap()
}

/// What lies on the disk: bytes that were synced, and steps that were not.
#[derive(Default, Clone)]
struct Content {
    synced: Vec<u8>,
    loose: Vec<Step>,
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

fn apply_step(bytes: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { at, data, .. } => put(bytes, *at, data),
        Step::Truncate { size, .. } => bytes.resize(*size, 0),
        Step::Sync { .. } | Step::Delete { .. } | Step::Acknowledged(_) => {}
    }
}

impl Content {
    /// As the power went: nothing loose arrived (0), a beginning with its last write torn (1), or any sectors (2).
    fn after_loss(&self, way: u8, chance: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        if way == 1 && !self.loose.is_empty() {
            let last = chance.random_range(0..self.loose.len());
            for step in &self.loose[..last] {
                apply_step(&mut bytes, step);
            }
            if let Step::Write { at, data, .. } = &self.loose[last] {
                put(&mut bytes, *at, &data[..chance.random_range(0..=data.len())]);
            }
        }
        if way == 2 {
            for step in &self.loose {
                match step {
                    _ if !chance.random_bool(0.7) => {}
                    Step::Write { at, data, .. } => {
                        for (sector, part) in data.chunks(512).enumerate() {
                            if chance.random_bool(0.7) {
                                put(&mut bytes, at + sector * 512, part);
                            }
                        }
                    }
                    other => apply_step(&mut bytes, other),
                }
            }
        }
        bytes
    }
}

/// Opens what is left and compares it with the answers that clients got; the first difference is the error.
fn compare(folder: &Path, answers: &[Answer]) -> Result<(), String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let store = Connection::open_with_flags_and_vfs(folder.join("store.db"), flags, c"unix").unwrap();
    let sound: String = store.query_row("PRAGMA quick_check", [], |r| r.get(0)).unwrap();
    if sound != "ok" {
        return Err(format!("the file is damaged: {sound}"));
    }
    let mut last: BTreeMap<&str, Option<u64>> = BTreeMap::new();
    for Answer { name, version } in answers {
        last.insert(name, *version);
    }
    let mut find = store
        .prepare("SELECT r.rev FROM current c JOIN rows r ON r.rev=c.rev WHERE c.resource='configmaps' AND c.name=?1")
        .unwrap();
    for (name, version) in last {
        let found: Option<i64> = find.query_row([name], |r| r.get(0)).optional().unwrap();
        let found = found.map(|rev| u64::try_from(rev).unwrap());
        match (version, found) {
            (None, None) => {}
            (None, Some(_)) => return Err(format!("{name} came back")),
            // Its deletion may have arrived although nobody got an answer.
            (Some(_), None) if name.starts_with("gone") => {}
            (Some(version), found) if found.is_none_or(|rev| rev < version) => {
                return Err(format!("{name} at {version} is lost: {found:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Cuts the power at each sync after the first acknowledgement, in several ways; how often, if nothing was lost.
fn cut_everywhere(steps: &[Step], answers: &[Answer]) -> Result<usize, String> {
    let mut files: BTreeMap<String, Content> = BTreeMap::new();
    let mut chance = StdRng::seed_from_u64(4);
    // Of 14 GB in all, which no disk need have.
    let scratch = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (mut acknowledged, mut cuts, mut begun) = (0, 0, false);
    for step in steps {
        match step {
            Step::Acknowledged(at) => acknowledged = at + 1,
            Step::Delete { file } => {
                files.remove(file);
            }
            Step::Write { file, .. } | Step::Truncate { file, .. } => {
                files.entry(file.clone()).or_default().loose.push(step.clone());
            }
            Step::Sync { file } => {
                // The power goes just before the sync returns, and at points before it: those are torn beginnings.
                for way in [0, 1, 1, 2, 2].into_iter().filter(|_| begun) {
                    let image = scratch.path().join(format!("cut-{cuts}"));
                    std::fs::create_dir(&image).unwrap();
                    for (name, content) in &files {
                        std::fs::write(image.join(name), content.after_loss(way, &mut chance)).unwrap();
                    }
                    compare(&image, &answers[..acknowledged])?;
                    std::fs::remove_dir_all(&image).unwrap();
                    cuts += 1;
                }
                let content = files.entry(file.clone()).or_default();
                for loose in std::mem::take(&mut content.loose) {
                    apply_step(&mut content.synced, &loose);
                }
                // The server answers nobody before its tables are there.
                begun |= acknowledged > 0;
            }
        }
    }
    Ok(cuts)
}

/// How often the log was moved into the file.
fn moves(steps: &[Step]) -> usize {
    steps.iter().filter(|s| matches!(s, Step::Sync { file } if file == "store.db")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_loss_of_power_at_every_point() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::watch(dir.path());
    let api = Api::start_in(dir).await;
    let answers = work(&api, &disk).await;
    assert_eq!(answers.len(), 400);
    let steps = disk.take_steps();
    let moved = moves(&steps);
    assert!(moved >= 2, "the log was never moved into the file: the test is too small");
    let cuts = cut_everywhere(&steps, &answers).unwrap();
    assert!(cuts >= 300, "{cuts} cut points");
    println!("{cuts} cut points, {} steps, {moved} syncs of the file", steps.len());
}

/// The check above must be able to fail: here the store syncs as SQLite does by `synchronous=NORMAL`, that is not before
/// it acknowledges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_catches_a_store_that_syncs_too_late() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::watch(dir.path());
    disk.lax.store(true, Ordering::SeqCst);
    let api = Api::start_in(dir).await;
    let answers = work(&api, &disk).await;
    let steps = disk.take_steps();
    assert!(moves(&steps) >= 2, "the store never synced: the test is too small");
    let lost = cut_everywhere(&steps, &answers).unwrap_err();
    assert!(lost.contains(" is lost: ") || lost.ends_with(" came back"), "{lost}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_but_deletions_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::watch(dir.path());
    let api = Api::start_in(dir).await;
    api.post(CONFIGMAPS, &configmap("before")).await.expect(201);
    api.post(CONFIGMAPS, &configmap("unwanted")).await.expect(201);
    let mut held = configmap("held");
    held["metadata"]["finalizers"] = json!(["example.com/a"]);
    api.post(CONFIGMAPS, &held).await.expect(201);
    disk.full.store(true, Ordering::SeqCst);
    for name in ["a", "b"] {
        let refused = api.post(CONFIGMAPS, &configmap(name)).await.expect(507);
        assert!(refused.message().contains("the disk of the data folder is full"), "{}", refused.text);
    }
    api.get(&format!("{CONFIGMAPS}/before")).await.expect(200);
    api.get(&format!("{CONFIGMAPS}/a")).await.expect(404);
    let report = api.get("/readyz?verbose").await.expect(500).text;
    assert!(report.contains("[-]storage-room failed: reason withheld"), "{report}");
    let report = api.get("/readyz/storage-room").await.expect(500).text;
    assert!(report.contains("the disk of the data folder is full: only deletions are stored"), "{report}");
    api.get("/livez").await.expect(200);
    // Room is kept for what makes room: deletions, also those that a finalizer holds up.
    api.delete(&format!("{CONFIGMAPS}/unwanted")).await.expect(200);
    api.get(&format!("{CONFIGMAPS}/unwanted")).await.expect(404);
    api.delete(&format!("{CONFIGMAPS}/held")).await.expect(200);
    api.merge(&format!("{CONFIGMAPS}/before"), &json!({"data": {"k": "w"}})).await.expect(507);
    api.merge(&format!("{CONFIGMAPS}/held"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    api.get(&format!("{CONFIGMAPS}/held")).await.expect(404);
    disk.full.store(false, Ordering::SeqCst);
    api.post(CONFIGMAPS, &configmap("a")).await.expect(201);
    api.get("/readyz").await.expect(200);
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    for name in ["before", "a"] {
        api.get(&format!("{CONFIGMAPS}/{name}")).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_ends_writing_until_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::watch(dir.path());
    let api = Api::start_in(dir).await;
    api.post(CONFIGMAPS, &configmap("before")).await.expect(201);
    disk.broken.store(true, Ordering::SeqCst);
    api.post(CONFIGMAPS, &configmap("lost")).await.expect(500);
    disk.broken.store(false, Ordering::SeqCst);
    // The disk looks well again, but what it holds is unknown.
    api.post(CONFIGMAPS, &configmap("refused")).await.expect(503);
    api.get(&format!("{CONFIGMAPS}/before")).await.expect(200);
    let report = api.get("/readyz?verbose").await.expect(500).text;
    assert!(report.contains("[-]storage failed: reason withheld"), "{report}");
    api.get("/livez/ping").await.expect(200);
    let Api { server, dir, .. } = api;
    server.shutdown().await;
    let api = Api::start_in(dir).await;
    api.get(&format!("{CONFIGMAPS}/before")).await.expect(200);
    api.get(&format!("{CONFIGMAPS}/refused")).await.expect(404);
    api.post(CONFIGMAPS, &configmap("after")).await.expect(201);
}
