//! Clients as operators and scripts are written: a Go controller (controller-runtime) and the Python client.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::Api;
use serde_json::json;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/kubernetes/clients")
}

/// Builds a client if it is not there yet. Without its tools that fails, and so does the test.
async fn built(what: &'static str) -> PathBuf {
    let made = tokio::task::spawn_blocking(move || Command::new(clients().join("build")).arg(what).output().unwrap());
    let made = made.await.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

fn kubeconfig(api: &Api) -> PathBuf {
    let path = api.dir.path().join("kubeconfig");
    std::fs::write(&path, api.server.admin_kubeconfig()).unwrap();
    path
}

/// A controller that ends with the test, because its standard input does.
struct Controller(Child);

impl Drop for Controller {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_python_client_works() {
    let python = built("python").await;
    let api = Api::with_kinds().await;
    let config = kubeconfig(&api);
    let run = tokio::task::spawn_blocking(move || {
        Command::new(python).arg(clients().join("python/client.py")).arg(config).output().unwrap()
    });
    let done = run.await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.trim() == "good", "{out}{err}");
}

#[tokio::test]
async fn a_controller_reconciles_with_cache_and_leader_election() {
    let program = built("controller").await;
    let api = Api::with_kinds().await;
    let config = kubeconfig(&api);
    let log = std::fs::File::create(api.dir.path().join("controller.log")).unwrap();
    let child = Command::new(program)
        .env("KUBECONFIG", config)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let controller = Controller(child);
    let base = "/apis/example.com/v1/namespaces/default/widgets";
    let made =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 4}});
    api.post(base, &made).await.expect(201);
    let kept = api.until("/api/v1/namespaces/default/configmaps/w", 200).await;
    assert_eq!(kept.body["data"], json!({"size": "4"}));
    assert_eq!(kept.body["metadata"]["ownerReferences"][0]["kind"], "Widget");
    holds(&api, &format!("{base}/w"), "/status/ready", json!(true)).await;
    api.merge(&format!("{base}/w"), &json!({"spec": {"size": 6}})).await.expect(200);
    holds(&api, "/api/v1/namespaces/default/configmaps/w", "/data/size", json!("6")).await;
    let lease = api.get("/apis/coordination.k8s.io/v1/namespaces/default/leases/widgets.example.com").await.expect(200);
    assert!(lease.body["spec"]["holderIdentity"].is_string());
    let events = api.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dw").await.expect(200);
    assert!(events.text.contains("the ConfigMap was created"), "{}", events.text);
    // The finalizer lets go, and the garbage collector removes what the widget owned.
    api.delete(&format!("{base}/w")).await.expect(200);
    api.until(&format!("{base}/w"), 404).await;
    api.until("/api/v1/namespaces/default/configmaps/w", 404).await;
    drop(controller);
}

/// Waits until a field has this value.
async fn holds(api: &Api, path: &str, pointer: &str, wanted: serde_json::Value) {
    for _ in 0..200 {
        if api.get(path).await.body.pointer(pointer) == Some(&wanted) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{path} {pointer} never was {wanted}: {}", api.get(path).await.text);
}
