//! The provisioners in other languages (`examples/provisioners`) pass the kit: `make test-provisioners`, which has them built.

use std::path::PathBuf;

use e2e::{Running, program};
use tokio::process::Command;

/// Starts a sample, and has the kit judge it.
async fn passes(name: &str, scenarios: usize) {
    let built = std::env::var_os("METAMORPH_PROVISIONERS");
    let built = PathBuf::from(built.expect("METAMORPH_PROVISIONERS names what tests/provisioners/build has built"));
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}/sample.sock", folder.path().display());
    let mut command = Command::new(built.join(name));
    command.env("METAMORPH_PROVISIONER_LISTEN", &socket);
    let sample = Running::start(command, &folder.path().join("log")).unwrap();
    sample.wait_logged("listening", 60).await.unwrap();
    let check = Command::new(program("metamorph").unwrap()).args(["provisioner", "check", &socket]).output().await.unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("passed")).take(60).collect();
    assert!(check.status.success(), "{wrong:#?}\n{}\n{}", String::from_utf8_lossy(&check.stderr), sample.tail());
    let end = format!("{scenarios} scenarios passed");
    assert!(said.contains(&end) && said.contains(" 0 were left out"), "{end}: {wrong:#?}");
}

#[tokio::test]
async fn the_one_in_go_passes_the_kit() {
    passes("memory-go", 204).await;
}

#[tokio::test]
async fn the_one_in_python_passes_the_kit() {
    passes("memory-python", 204).await;
}
