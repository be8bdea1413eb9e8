//! The program `bmc-sim`: what it prints, and that nothing of it outlives it.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::kit::{self, Images};
use serde_json::{Value, json};

struct Program {
    child: Child,
    ready: Value,
    client: reqwest::Client,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail when the test has ended it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Starts it with two fake machines, whose agent is this script.
    fn start(folder: &Path, temporary: &Path, script: &str) -> Self {
        let agent = kit::agent(folder, script);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bmc-sim"));
        command.args(["--fake", "2", "--username", "root", "--password", "calvin", "--agent"]).arg(agent);
        command.arg("--state-dir").arg(folder.join("state")).env("TMPDIR", temporary).stdout(Stdio::piped());
        let client = kit::client();
        let mut program = Self { child: command.spawn().unwrap(), ready: Value::Null, client };
        let mut line = String::new();
        BufReader::new(program.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        program.ready = serde_json::from_str(&line).unwrap();
        program
    }

    async fn post(&self, machine: usize, rest: &str, body: Value) -> u16 {
        let machine = &self.ready["machines"][machine];
        let text = |name: &str| machine[name].as_str().unwrap();
        let url = format!("{}{}{rest}", text("redfish"), text("system"));
        let method = if rest.is_empty() { reqwest::Method::PATCH } else { reqwest::Method::POST };
        let request = self.client.request(method, url).basic_auth(text("username"), Some(text("password")));
        request.json(&body).send().await.unwrap().status().as_u16()
    }

    /// Boots machine 1 from a medium; gives the agent's process id and the one that it says.
    async fn boot(&self, images: &Images) -> [u64; 2] {
        let image = json!({ "Image": images.url("a.iso") });
        assert_eq!(self.post(1, "/VirtualMedia/CD1/Actions/VirtualMedia.InsertMedia", image).await, 204);
        let boot = json!({ "Boot": { "BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once" } });
        assert_eq!(self.post(1, "", boot).await, 200);
        assert_eq!(self.post(1, "/Actions/ComputerSystem.Reset", json!({ "ResetType": "On" })).await, 204);
        let url = format!("{}/machines/fake-1", self.ready["control"].as_str().unwrap());
        let machine: Value = self.client.get(url).send().await.unwrap().json().await.unwrap();
        let console = machine["serialConsole"].as_str().unwrap();
        let said = eventually(|| std::fs::read_to_string(console).unwrap().trim().parse().ok()).await;
        [machine["pid"].as_u64().unwrap(), said]
    }
}

/// Asks again until there is an answer, within bounds.
async fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(answer) = ask() {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen");
}

/// Whether a process runs; one that only waits to be collected does not.
fn runs(pid: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn it_says_what_it_has_and_ends_with_all_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::serve(kit::pattern(4096)).await;
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut program = Program::start(folder.path(), &temporary, "sleep 1000 & echo $!; wait");
    assert_eq!(program.ready["machines"].as_array().unwrap().len(), 2);
    let pids = program.boot(&images).await;
    assert!(pids.into_iter().all(runs));
    let terminate = rustix::process::Signal::TERM;
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, terminate).unwrap();
    assert!(eventually(|| program.child.try_wait().unwrap()).await.success());
    // They are killed, which takes the kernel a moment. One that outlives the simulator is waited for in vain.
    eventually(|| (!pids.into_iter().any(runs)).then_some(())).await;
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a temporary file was left behind");
}

#[tokio::test]
async fn killed_it_takes_the_agent_along() {
    let folder = tempfile::tempdir().unwrap();
    let images = Images::serve(kit::pattern(4096)).await;
    let mut program = Program::start(folder.path(), folder.path(), "echo $$; exec sleep 1000");
    let [agent, said] = program.boot(&images).await;
    assert!(runs(agent) && agent == said);
    program.child.kill().unwrap();
    eventually(|| (!runs(agent)).then_some(())).await;
}

#[test]
fn it_explains_what_is_missing() {
    let cases = [
        (vec![], "no machine"),
        (vec!["--fake", "1", "--agent", "/none"], "/none is no file"),
        (vec!["--config", "/none"], "/none"),
    ];
    for (args, said) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_bmc-sim")).args(&args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{args:?}: {error}");
    }
}
