//! The program at a shell: pipes that are closed, flags that mean nothing.

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use e2e::program;

/// Runs the program with a standard output that nobody reads.
fn unread(arguments: &[&str]) -> Output {
    let mut child = Command::new(program("metamorph").unwrap())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.wait_with_output().unwrap()
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_panic() {
    let add = ["host", "add", "n0", "--address", "192.0.2.7", "--user", "u", "--password", "p"];
    let commands: [&[&str]; 7] =
        [&["crds"], &["reference"], &["state-diagram"], &["completions", "bash"], &add, &["--help"], &["up", "--help"]];
    for command in commands {
        let output = unread(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{command:?}: {} {said}", output.status);
    }
}

#[tokio::test]
async fn a_server_whose_standard_error_is_closed_goes_on_and_ends_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(program("metamorph").unwrap())
        .args(["--log", "debug", "api", "serve", "--api-listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut said = Vec::new();
    let mut piece = [0; 256];
    while !String::from_utf8_lossy(&said).contains("is up at") {
        let count = stderr.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&piece[..count]);
    }
    assert!(!said.contains(&0x1b), "colours where no terminal is: {}", String::from_utf8_lossy(&said));
    drop(stderr);
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap());
    let status = tokio::time::timeout(Duration::from_secs(30), status).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn flags_that_cannot_be_served_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let (file, empty, data) = (folder.path().join("file"), folder.path().join("empty.pem"), folder.path().join("data"));
    std::fs::write(&file, "x").unwrap();
    std::fs::write(&empty, "").unwrap();
    let image = e2e::agent_image().unwrap();
    let good = image.to_str().unwrap();
    let [file, empty] = [&file, &empty].map(|path| path.to_str().unwrap());
    for (arguments, says) in [
        (vec!["--agent-image", "/nonexistent"], vec!["--agent-image", "/nonexistent", "agent-image build"]),
        (vec!["--agent-image", "/"], vec!["--agent-image", "manifest.json", "agent-image build"]),
        (vec!["--agent-image", good, "--agent-image", good], vec!["--agent-image", good, "second image for x86_64"]),
        (vec!["--agent-image", good, "--images", "/nonexistent"], vec!["--images", "/nonexistent"]),
        (vec!["--agent-image", good, "--images", file], vec!["--images", "is a file"]),
        (vec!["--agent-image", good, "--bmc-ca", empty], vec!["--bmc-ca", "holds no certificate"]),
        (vec!["--agent-image", good, "--image-ca", "/nonexistent"], vec!["--image-ca", "/nonexistent"]),
        (vec!["--agent-image", good, "--media-host", "http://192.0.2.1"], vec!["--media-host", "URL"]),
        (vec!["--agent-image", good, "--media-listen", "127.0.0.1:6443"], vec!["--api-listen", "--media-listen"]),
        (vec!["--agent-image", good, "--api-audit-log", "/nonexistent/log"], vec!["--api-audit-log", "/nonexistent"]),
        (vec!["--log", "inof"], vec!["--log", "no level"]),
    ] {
        let output =
            Command::new(program("metamorph").unwrap()).arg("up").arg("--data").arg(&data).args(&arguments).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        for part in says {
            assert!(said.contains(part), "{arguments:?} does not say {part:?}: {said}");
        }
        assert!(!data.exists(), "{arguments:?} left a data folder");
    }
}
