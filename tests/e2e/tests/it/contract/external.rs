//! A provisioner that is another program: started by the server, used by a host that names it, started again when it dies, and ended with the server.

use std::process::Stdio;

use api::metal3::ProvisioningState;
use e2e::{Options, World, program};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;
use tokio::process::Command;

/// The programs that the server has started, by their ids.
fn started(world: &World) -> Vec<Pid> {
    let pid = world.server.pid().unwrap().as_raw_nonzero();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let all: String = children.collect();
    all.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

async fn declare(world: &World, name: &str) {
    let host = json!({ "apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
        "metadata": { "name": name, "annotations": { "metamorph.metal3.io/provisioner": "fixture" } },
        "spec": { "online": false, "bootMACAddress": "00:00:00:00:00:01",
            "bmc": { "address": format!("redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/{name}"), "credentialsName": "bmc" } } });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "bmc" }, "stringData": { "username": "u", "password": "p" } });
    world.kubectl(&["apply", "-f", "-"], &secret.to_string()).await.unwrap();
    world.kubectl(&["apply", "-f", "-"], &host.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_host_is_looked_after_by_a_program_that_the_server_keeps_running() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("provisioners.yaml");
    let metamorph = program("metamorph").unwrap();
    let entry =
        json!({ "provisioners": [{ "name": "fixture", "command": [metamorph, "provisioner", "serve", "fixture"] }] });
    std::fs::write(&list, entry.to_string()).unwrap();
    let mut world = World::start(Options::one_fake().with(&["--provisioners", list.to_str().unwrap()])).await.unwrap();
    declare(&world, "one").await;
    world.wait_state("one", 60, ProvisioningState::Available).await.unwrap();
    let id = world.kubectl(&["get", "bmh", "one", "-o", "jsonpath={.status.provisioning.ID}"], "").await.unwrap();
    assert!(id.starts_with("fixture-"), "{id}");
    let workers = started(&world);
    assert_eq!(workers.len(), 1);
    kill_process(workers[0], Signal::KILL).unwrap();
    declare(&world, "two").await;
    world.wait_state("two", 60, ProvisioningState::Available).await.unwrap();
    let workers = started(&world);
    assert_eq!(workers.len(), 1);
    world.server.stop().await.unwrap();
    assert!(test_kill_process(workers[0]).is_err(), "it has ended with the server");
}

#[tokio::test]
async fn the_verdict_of_a_check_is_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}/fixture.sock", folder.path().display());
    let metamorph = program("metamorph").unwrap();
    let check = |only: &'static str| {
        let mut command = Command::new(&metamorph);
        command.args(["provisioner", "check", &socket, "--only", only]).stdin(Stdio::null()).output()
    };
    let nobody = check("register").await.unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("fixture.sock"), "{nobody:?}");
    let mut serve = Command::new(&metamorph);
    serve.args(["provisioner", "serve", "fixture", "--listen", &socket]);
    let mut served = e2e::Running::start(serve, &folder.path().join("log")).unwrap();
    served.wait_logged("listening", 30).await.unwrap();
    let passed = check("power on:").await.unwrap();
    let said = String::from_utf8_lossy(&passed.stdout);
    assert!(
        passed.status.success() && said.contains("passed    Plain: power on: nothing happens (1 runs)"),
        "{passed:?}"
    );
    assert!(said.contains(" 0 did not, 0 were left out"), "{said}");
    assert_eq!(check("levitate").await.unwrap().status.code(), Some(1), "what checks nothing passes nothing");
    served.stop().await.unwrap();
}
