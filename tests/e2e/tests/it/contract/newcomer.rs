//! Somebody who has no hardware and tries the programs, and somebody whose demo fails.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use api::metal3::ProvisioningState;
use e2e::{Options, Running, World, agent_image, program};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// What docs/without-hardware.md says, word for word where it matters: no agent is named, and no path of a system.
#[tokio::test]
async fn a_simulated_machine_is_declared_by_host_add_and_becomes_available() {
    let world = World::start(Options::one_fake()).await.unwrap();
    let mut command = Command::new(program("bmc-sim").unwrap());
    command.args(["--fake", "1"]).env_remove("METAMORPH_AGENT").stdout(Stdio::piped());
    let mut simulator = Running::start(command, &world.folder.path().join("own-sim.log")).unwrap();
    let mut line = String::new();
    BufReader::new(simulator.stdout().unwrap()).read_line(&mut line).await.unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let machine = &ready["machines"][0];
    let field = |name: &str| machine[name].as_str().unwrap().to_owned();
    let address = format!("redfish-virtualmedia+{}", field("redfish"));
    let added = Command::new(program("metamorph").unwrap())
        .args(["host", "add", &field("id"), "--address", &address, "--user", &field("username")])
        .args(["--password", &field("password"), "--boot-mac", &field("mac")])
        .output()
        .await
        .unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    world.kubectl(&["apply", "-f", "-"], &String::from_utf8(added.stdout).unwrap()).await.unwrap();
    world.wait_state("fake-0", 60, ProvisioningState::Available).await.unwrap();
    simulator.stop().await.unwrap();
}

#[tokio::test]
async fn a_demo_that_fails_says_why_and_leaves_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("os.raw"), vec![0; 1 << 20]).unwrap();
    let digest: String = Sha256::digest(vec![0; 1 << 20]).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(path("SHA256SUMS"), format!("{digest}  os.raw\n")).unwrap();
    // A simulator whose BMC answers nobody: port 9 of loopback is closed.
    let ready = r#"{"machines":[{"id":"node-0","redfish":"http://127.0.0.1:9","system":"/redfish/v1/Systems/1","username":"u","password":"hidden-word","mac":"52:54:00:00:00:01"}]}"#;
    std::fs::write(path("bmc-sim"), format!("#!/bin/sh\necho '{ready}'\necho started >&2\nexec sleep 60\n")).unwrap();
    std::fs::set_permissions(path("bmc-sim"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(program("metamorph").unwrap())
        .args(["demo", "--once", "--timeout", "4", "--data"])
        .arg(path("data"))
        .arg("--bmc-sim")
        .arg(path("bmc-sim"))
        .arg("--image")
        .arg(path("os.raw"))
        .arg("--agent-image")
        .arg(agent_image().unwrap())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    for part in ["within 4 s", "127.0.0.1:9", "is kept in", "hosts.yaml", "metamorph.log", "bmc-sim.log"] {
        assert!(said.contains(part), "it does not say {part:?}: {said}");
    }
    let objects = std::fs::read_to_string(path("data/hosts.yaml")).unwrap();
    assert!(objects.contains("kind: BareMetalHost") && objects.contains("registration error"), "{objects}");
    assert!(!objects.contains("hidden-word"), "a password is among what is kept");
}
