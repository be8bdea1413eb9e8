//! Many at once: a thousand watches on one connection, connections that say nothing.

use std::time::Duration;

use crate::common::{self, Api, CONFIGMAPS, configmap};
use tokio::net::TcpStream;

/// Watches on one connection: as many as a connection may have.
const WATCHES: usize = 1000;
/// Connections that never say a word.
const SILENT: usize = 2000;
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Held by each test: the other one's files would be counted, too.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Files that this process, client and server, has open.
fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_share_a_connection_and_all_see_everything() {
    let _alone = ALONE.lock().await;
    let api = Api::start().await;
    let version = api.get(CONFIGMAPS).await.expect(200).version();
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={version}");
    let before = open_files();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        watches.push(api.request("GET", &path).send().await.unwrap());
    }
    assert!(watches.iter().all(|w| w.status() == 200));
    assert!(open_files() < before + 20, "there is one connection for all, beside the store's files");
    // The connection of the watches is full.
    let (base, other) = (format!("https://{}", api.server.local_addr()), common::client(api.server.ca_pem()));
    for name in ["one", "two"] {
        let post = other.post(format!("{base}{CONFIGMAPS}")).bearer_auth(api.server.admin_token());
        common::answer(post.json(&configmap(name))).await.expect(201);
    }
    for (number, watch) in watches.iter_mut().enumerate() {
        let mut text = Vec::new();
        while text.iter().filter(|b| **b == b'\n').count() < 2 {
            let chunk = tokio::time::timeout(PATIENCE, watch.chunk()).await;
            let chunk = chunk.unwrap_or_else(|_| panic!("watch {number} sees nothing")).unwrap();
            text.extend_from_slice(&chunk.expect("it goes on"));
        }
        let text = String::from_utf8(text).unwrap();
        let names: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(names[0]["object"]["metadata"]["name"], "one");
        assert_eq!(names[1]["object"]["metadata"]["name"], "two");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_are_in_nobodys_way() {
    let _alone = ALONE.lock().await;
    let api = Api::start().await;
    let address = api.server.local_addr();
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let client = common::client(api.server.ca_pem());
    for name in ["one", "two"] {
        // A new connection, behind all the others.
        let made = client.post(format!("https://{address}{CONFIGMAPS}")).bearer_auth(api.server.admin_token());
        let made = tokio::time::timeout(PATIENCE, made.json(&configmap(name)).send()).await.unwrap().unwrap();
        assert_eq!(made.status(), 201);
    }
    drop(silent);
    api.get(CONFIGMAPS).await.expect(200);
}
