//! SIGKILL under write load: what was acknowledged is there afterwards.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{self, CONFIGMAPS, configmap};

const ROUNDS: usize = 200;
const WRITERS: usize = 8;
const FOLDER: &str = "APISERVER_TEST_CHILD_FOLDER";

/// Not a test: the server process of the test below, which starts this program again with a folder.
#[test]
#[ignore = "the child process of the crash test"]
fn child() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = apiserver::Server::start(common::config(Path::new(&folder))).await.unwrap();
        println!("LISTENING {} {}", server.local_addr(), server.admin_token());
        std::future::pending::<()>().await;
    });
}

struct Running {
    child: Child,
    base: String,
    token: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(folder: &Path) -> Running {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running { child, base: String::new(), token: String::new() };
    let lines = BufReader::new(running.child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        if let Some((_, rest)) = line.split_once("LISTENING ") {
            let (address, token) = rest.split_once(' ').unwrap();
            running.base = format!("https://{address}");
            running.token = token.to_owned();
            return running;
        }
    }
    panic!("the server did not start");
}

/// Creates, then updates; returns `(name, value)` of all that was acknowledged last.
async fn write(
    client: reqwest::Client,
    base: String,
    token: String,
    prefix: String,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) -> Vec<(String, String, u64)> {
    let mut acknowledged = Vec::new();
    for i in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{prefix}-{i}");
        let mut object = configmap(&name);
        for value in ["one", "two"] {
            object["data"]["k"] = value.into();
            let request = match value {
                "one" => client.post(format!("{base}{CONFIGMAPS}")),
                _ => client.put(format!("{base}{CONFIGMAPS}/{name}")),
            };
            let Ok(response) = request.bearer_auth(&token).json(&object).send().await else { return acknowledged };
            assert!(response.status().is_success(), "{}", response.status());
            let Ok(body) = response.json::<serde_json::Value>().await else { return acknowledged };
            let version = body["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
            acknowledged.retain(|(n, ..)| *n != name);
            acknowledged.push((name.clone(), value.to_owned(), version));
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

/// Looks for what a server that was killed had acknowledged; returns the newest revision of all that.
async fn compare(running: &Running, client: &reqwest::Client, acknowledged: Vec<(String, String, u64)>) -> u64 {
    let mut newest = 0;
    let looks = acknowledged.into_iter().map(|(name, value, version)| {
        newest = newest.max(version);
        let request = client.get(format!("{}{CONFIGMAPS}/{name}", running.base)).bearer_auth(&running.token);
        async move {
            let found: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
            let kept: u64 = found["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap();
            assert!(kept >= version, "{name} {value} at {version} is lost: {found}");
            if kept == version {
                assert_eq!(found["data"]["k"], value.as_str());
            }
        }
    });
    let looks: Vec<_> = looks.collect();
    futures::future::join_all(looks).await;
    newest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let (mut newest, mut acknowledged) = (0, Vec::new());
    // Each round looks at what the one before left behind; the last one only looks.
    for round in 0..=ROUNDS {
        let mut running = start(dir.path());
        let ca = std::fs::read_to_string(dir.path().join("pki/ca.crt")).unwrap();
        let client = common::client(&ca);
        newest = newest.max(compare(&running, &client, std::mem::take(&mut acknowledged)).await);
        let post = client.post(format!("{}{CONFIGMAPS}", running.base)).bearer_auth(&running.token);
        let made = post.json(&configmap(&format!("after-{round}"))).send().await.unwrap();
        let made: serde_json::Value = made.json().await.unwrap();
        let version: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(version > newest, "revisions went back before round {round}");
        if round == ROUNDS {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let prefix = format!("r{round}w{w}");
                let (stop, count) = (Arc::clone(&stop), Arc::clone(&count));
                tokio::spawn(write(client.clone(), running.base.clone(), running.token.clone(), prefix, stop, count))
            })
            .collect();
        // The kill comes at another moment each round: after so many acknowledged writes.
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while count.load(Ordering::Relaxed) < 1 + 7 * round % 101 && std::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        assert!(!acknowledged.is_empty(), "round {round} wrote nothing");
    }
}
