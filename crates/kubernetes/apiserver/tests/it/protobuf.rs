//! client-go as the peer: typed clients that speak nothing but protobuf, and the Kubernetes types that the table of
//! kinds is written from. Both need Go.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Api, WIDGETS, configmap, widget};
use serde_json::json;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/kubernetes").join(name)
}

/// Flags of `tests/kubernetes/build`: what the programs share with Kubernetes' own is compiled once.
const FLAGS: [&str; 5] = ["-p", "2", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false"];

fn go(folder: &Path, command: &str, arguments: &[&str]) {
    let mut go = Command::new("go");
    go.arg(command).args(FLAGS).args(arguments).current_dir(folder).env("CGO_ENABLED", "0");
    let output = go.output().expect("Go must be installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go {command} {arguments:?} in {}: {text}", folder.display());
}

#[tokio::test]
async fn typed_clients_of_client_go_work_in_protobuf_alone() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protobuf-client");
    let built = program.clone();
    let build = move || go(&folder("clients/protobuf"), "build", &["-o", built.to_str().unwrap(), "."]);
    tokio::task::spawn_blocking(build).await.unwrap();
    let api = Api::with_kinds().await;
    api.post(WIDGETS, &widget("w", json!({}))).await.expect(201);
    api.post(common::CONFIGMAPS, &configmap("kept")).await.expect(201);
    let kubeconfig = api.dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.server.admin_kubeconfig()).unwrap();
    let run = tokio::process::Command::new(&program).arg(&kubeconfig).kill_on_drop(true).output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(120), run).await.unwrap().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    for kind in
        ["v1.Secret", "v1.Node", "v1.EndpointSlice", "v1.CustomResourceDefinition", "metadata of widgets", "failures"]
    {
        assert!(out.lines().any(|l| l == kind), "{kind} is missing in {out}");
    }
}

#[test]
fn the_table_of_kinds_is_what_the_kubernetes_types_give() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core-kinds/src/kinds.txt");
    go(&folder("kinds"), "run", &[".", "-check", table.to_str().unwrap()]);
}
